"""Recognizes the packets of a binlog stream that hold no event: the end of the stream, or an error."""

from __future__ import annotations

from typing import Final

from wormhole.model.errors import DecodeError

__all__ = ["WHOLE_PAYLOAD", "tells_the_end"]

WHOLE_PAYLOAD: Final = 0xFFFFFF
"""A payload of this size continues in the next packet, which may be empty."""


def tells_the_end(payload: bytes) -> bool:
    """Whether a payload without an event reports the end of the stream; false: it reports an error.

    Raises :class:`DecodeError` for neither.
    """
    if payload[0] == 0xFF:
        return False
    if payload[0] == 0xFE and len(payload) < 9:
        return True
    raise DecodeError(f"a packet of the binlog stream begins with 0x{payload[0]:02x}, which is no event, end or error")
