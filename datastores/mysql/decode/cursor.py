"""Reads the fields of rare events, and checks each read against the end of the bytes."""

from __future__ import annotations

from typing import Final

from wormhole.model.errors import DecodeError

__all__ = ["Cursor"]

# The first byte of a length-encoded integer determines how many bytes follow (MySQL's client/server protocol,
# "Integer Types").
_LENGTH_BYTES: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class Cursor:
    """A place in ``data``, up to ``end``. Every method raises :class:`DecodeError` with ``what`` and the field.

    Integers are little endian and unsigned unless the method's name states otherwise.
    """

    __slots__ = ("at", "data", "end", "what")

    def __init__(self, data: bytes, what: str, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.what = what
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """The bytes up to the end."""
        return self.end - self.at

    def take(self, size: int, field: str) -> bytes:
        """The next ``size`` bytes."""
        start = self.at
        if size > self.end - start:
            raise DecodeError(f"{self.what}: {field} takes {size} bytes, {self.end - start} are left")
        self.at = start + size
        return bytes(self.data[start : self.at])

    def rest(self) -> bytes:
        """The bytes up to the end, which are then read."""
        return self.take(self.end - self.at, "rest")

    def number(self, size: int, field: str) -> int:
        """An integer of ``size`` bytes."""
        return int.from_bytes(self.take(size, field), "little")

    def text(self, size: int, field: str) -> str:
        """UTF-8 text. Invalid bytes are escaped, because these texts are only names for messages."""
        return self.take(size, field).decode("utf-8", "backslashreplace")

    def length(self, field: str) -> int:
        """A length-encoded integer: one byte below 251, or a byte that determines how many follow."""
        first = self.number(1, field)
        if first < 0xFB:
            return first
        size = _LENGTH_BYTES.get(first)
        if size is None:
            raise DecodeError(f"{self.what}: {field} begins with 0x{first:02x}, with which no integer begins")
        return self.number(size, field)

    def varint(self, field: str) -> int:
        """An unsigned integer of MySQL's serialization library. Its first byte has a trailing 1 bit for each further
        byte."""
        first = self.number(1, field)
        extra = (~first & (first + 1)).bit_length() - 1
        if extra == 8:
            return self.number(8, field)
        return first >> (extra + 1) | self.number(extra, field) << (7 - extra)

    def signed_varint(self, field: str) -> int:
        """A `varint` with the sign in the lowest bit: ``n << 1``, or ``~n << 1 | 1`` for a negative number."""
        n = self.varint(field)
        return ~(n >> 1) if n & 1 else n >> 1
