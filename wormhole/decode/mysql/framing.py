"""Packets of MySQL's client/server protocol that are not one whole event; the encoder walks the others by itself."""

from __future__ import annotations

from typing import Final

from wormhole.errors import DecodeError

__all__ = ["WHOLE_PAYLOAD", "join", "tells_the_end"]

WHOLE_PAYLOAD: Final = 0xFFFFFF
"""A payload of this size goes on in the next packet, which may be empty."""


def join(data: bytes, at: int, end: int) -> tuple[bytes, int, int]:
    """The payload that begins with the packet at ``at``, the place after its last packet, and 0.

    Where ``end`` comes before: nothing, ``at``, and the bytes from ``at`` on that hold its packets up to the first that is not whole.
    """
    parts = []
    start = at
    while True:
        length = int.from_bytes(data[at : min(at + 3, end)], "little")
        if end - at < 4 or length > end - at - 4:
            return b"", start, at + 4 - start + (length if end - at >= 4 else 0)
        parts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
        if length < WHOLE_PAYLOAD:
            return b"".join(parts), at, 0


def tells_the_end(payload: bytes) -> bool:
    """Whether a payload that holds no event tells the end of the stream (True) or an error (False).

    Raises :class:`DecodeError` for neither.
    """
    if payload[0] == 0xFF:
        return False
    if payload[0] == 0xFE and len(payload) < 9:
        return True
    raise DecodeError(f"a packet of the binlog stream begins with 0x{payload[0]:02x}, which is no event, end or error")
