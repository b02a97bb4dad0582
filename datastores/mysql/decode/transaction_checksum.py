"""The checksum that identifies a transaction: CRC-32 over header and checksum of each of its events.

Hot: compiled where possible."""

from __future__ import annotations

from typing import Final

from zlib_ng.zlib_ng import crc32

from datastores.mysql.decode import events

__all__ = ["TransactionChecksum"]

_HEADER: Final = events.HEADER
_CHECKSUM: Final = events.CHECKSUM
_ROOM: Final = 4096
"""The bytes collected before the checksum is updated: one update for a whole small transaction."""


class TransactionChecksum:
    """Computes the checksum of one transaction after the other."""

    def __init__(self) -> None:
        self._bytes = bytearray(_ROOM + _HEADER + _CHECKSUM)
        self._used = 0
        self._noted = 0
        self._checksum = 0

    def note(self, data: bytes, start: int, end: int, checked: bool, inside: bool) -> None:
        """Add the event in ``data[start:end]``. ``checked``: it ends with its checksum. ``inside``: it belongs to the
        open transaction.

        The caller has checked that the header is complete.
        """
        p = data
        b = self._bytes
        used = self._used
        for i in range(_HEADER):
            b[used + i] = p[start + i]
        noted = _HEADER
        if checked:
            for i in range(_CHECKSUM):
                b[used + noted + i] = p[end - _CHECKSUM + i]
            noted += _CHECKSUM
        self._noted = noted
        if inside:
            used += noted
            if used > _ROOM:
                self._checksum = crc32(self._bytes[:used], self._checksum)
                used = 0
            self._used = used

    def begin(self) -> None:
        """Begin a transaction with the last event, which belongs to no other one."""
        self._used = self._noted
        self._checksum = 0

    def end(self) -> int:
        """End the transaction. Returns its checksum."""
        b = self._bytes
        checksum = crc32(b[: self._used], self._checksum)
        self._used = 0
        return checksum
