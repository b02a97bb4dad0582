"""Encodes the progress of a backfill as compact bytes, with a version before them and a checksum after them."""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["DamagedError", "FieldReader", "FieldWriter", "sealed", "unsealed"]

_CHECKSUM: Final = 4
_MOST_BITS: Final = 105


class DamagedError(ValueError):
    """The bytes have another version, are damaged, or have other content than expected."""


def sealed(version: int, content: bytes) -> bytes:
    """``content`` with its version and a checksum."""
    data = bytes((version,)) + content
    return data + zlib.crc32(data).to_bytes(_CHECKSUM, "big")


def unsealed(version: int, data: bytes) -> bytes:
    """Inverse of :func:`sealed`. Raises :class:`DamagedError`."""
    content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if not content or content[0] != version or zlib.crc32(content).to_bytes(_CHECKSUM, "big") != checksum:
        raise DamagedError
    return content[1:]


class FieldWriter:
    """Collects bytes; numbers are not negative."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = bytearray()

    def number(self, value: int) -> None:
        """Append a number, seven bits a byte, the lowest first."""
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def raw(self, value: bytes) -> None:
        """Append bytes whose length the reader knows."""
        self._out += value

    def data(self, value: bytes) -> None:
        """Bytes after their length."""
        self.number(len(value))
        self._out += value

    def taken(self) -> bytes:
        """The collected bytes."""
        return bytes(self._out)


class FieldReader:
    """Reads the bytes of :class:`FieldWriter`. Every method raises :class:`DamagedError` if the bytes do not fit."""

    __slots__ = ("_at", "_source")

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._at = 0

    def number(self) -> int:
        """See :meth:`FieldWriter.number`."""
        value = shift = 0
        while shift < _MOST_BITS:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise DamagedError

    def raw(self, size: int) -> bytes:
        """See :meth:`FieldWriter.raw`."""
        found = self._source[self._at : self._at + size]
        if len(found) != size:
            raise DamagedError
        self._at += size
        return found

    def data(self) -> bytes:
        """See :meth:`FieldWriter.data`."""
        return self.raw(self.number())

    def text(self) -> str:
        """Read text that its length precedes."""
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise DamagedError from error

    def rest(self) -> bytes:
        """All remaining bytes."""
        return self.raw(len(self._source) - self._at)

    def end(self) -> None:
        """Check that no bytes remain."""
        if self._at != len(self._source):
            raise DamagedError
