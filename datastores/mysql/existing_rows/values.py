"""Encodes the rows of a text result with the same bytes as the decoder of the log. Hot: compiled where possible.

The server sends each text in its column's character set (``character_set_results`` is NULL), so that the rules of the
log apply to its decoding. An entry is the part of a field after its tag: a length and a ``Value``.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final

from datastores.mysql.decode.charsets import ERRORS
from datastores.mysql.decode.floats import Singles

__all__ = ["Entry", "RowEncoder", "entry_of_kind"]

Entry = Callable[[bytes], bytes]
"""Returns the entry for the server's bytes of a value that is not NULL."""

_READ: Final = b"\x08\x08"
_KEY: Final = b"\x12"
_AFTER: Final = b"\x1a"
_TOO_LARGE: Final = b"\x38\x01"
_LEFT_OUT: Final = b"1"
_NULL: Final = b"\x02\x40\x01"
_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_SHORT: Final = 125  # the most bytes of a string whose two lengths take one byte each
_TEXT_HEADS: Final = tuple(bytes((n + 2, 0x12, n)) for n in range(_SHORT + 1))
_BYTES_HEADS: Final = tuple(bytes((n + 2, 0x0A, n)) for n in range(_SHORT + 1))
_UNDECODED: Final = "backslashreplace"


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _number(tag: bytes, n: int) -> bytes:
    value = tag + _varint(n)
    return bytes((len(value),)) + value


def _long(tag: bytes, raw: bytes) -> bytes:
    value = tag + _varint(len(raw)) + raw
    return _varint(len(value)) + value


_SMALLEST, _LARGEST = 1 << 13, 1 << 20  # the range of the numbers whose varint takes three bytes
_SMALL: Final = {str(n).encode(): _number(b"\x18", 2 * n) for n in range(_SMALLEST)}


def _integer(raw: bytes) -> bytes:
    known = _SMALL.get(raw)
    if known is not None:
        return known
    n = int(raw)
    if _SMALLEST <= n < _LARGEST:
        n *= 2
        return bytes((4, 0x18, n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14))
    if n >> 63 > 0:
        return _number(b"\x20", n)
    return _number(b"\x18", 2 * n if n >= 0 else -2 * n - 1)


def _bits(raw: bytes) -> bytes:
    return _number(b"\x20", int.from_bytes(raw, "big"))


def _double(raw: bytes) -> bytes:
    return b"\x09\x29" + _DOUBLE.pack(float(raw))


def _single(raw: bytes) -> bytes:
    out = bytearray(8)
    Singles().put(out, 0, _SINGLE.pack(float(raw)), 0)
    return b"\x09\x29" + bytes(out)


def _decimal(raw: bytes) -> bytes:
    """Encode a DECIMAL. ZEROFILL adds zeros that the log does not have."""
    sign, digits = (b"-", raw[1:]) if raw[:1] == b"-" else (b"", raw)
    if digits[:1] == b"0" and digits[1:2] not in (b"", b"."):
        digits = digits.lstrip(b"0")
        if not digits or digits[:1] == b".":
            digits = b"0" + digits
    text = sign + digits
    return bytes((len(text) + 2, 0x3A, len(text))) + text


def _plain(raw: bytes) -> bytes:
    """Text in ASCII."""
    size = len(raw)
    return _TEXT_HEADS[size] + raw if size <= _SHORT else _long(b"\x12", raw)


def _bytes(raw: bytes) -> bytes:
    size = len(raw)
    return _BYTES_HEADS[size] + raw if size <= _SHORT else _long(b"\x0a", raw)


def _utf8(raw: bytes) -> bytes:
    """Encode a text. Invalid UTF-8 is sent as bytes."""
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return _bytes(raw)
    return _plain(raw)


def _coded(codec: str) -> Entry:
    def entry(raw: bytes) -> bytes:
        return _plain(raw.decode(codec, ERRORS).encode())

    return entry


def _member(codec: str) -> Entry:
    """The encoder for the names of an ENUM or a SET."""
    errors = ERRORS if codec else _UNDECODED

    def entry(raw: bytes) -> bytes:
        return _plain(raw.decode(codec or "utf-8", errors).encode())

    return entry


def _uuid(raw: bytes) -> bytes:
    return _bytes(bytes.fromhex(raw.decode("ascii").replace("-", "")))


def _inet4(raw: bytes) -> bytes:
    return _bytes(socket.inet_pton(socket.AF_INET, raw.decode("ascii")))


def _inet6(raw: bytes) -> bytes:
    return _bytes(socket.inet_pton(socket.AF_INET6, raw.decode("ascii")))


_FIXED: Final[dict[str, Entry]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), _integer),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), _plain),
    "bit": _bits,
    "double": _double,
    "float": _single,
    "decimal": _decimal,
    "json": _plain,
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
}


def entry_of_kind(kind: str, codec: str, *, compressed: bool = False) -> Entry:
    """The encoder of a column of type ``kind`` (``DATA_TYPE``, lower case). ``codec``: the codec of its text; empty for
    bytes and for a character set without a codec."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in ("enum", "set"):
        return _member(codec)
    if not codec:
        return _bytes
    if codec == "utf-8" or (codec == "ascii" and not compressed):
        return _utf8
    return _coded(codec)


class RowEncoder:
    """Encodes rows of one table.

    ``entries``: the encoder of each column. ``key``: positions of the key's columns, in the key's order. ``most``: the
    most bytes of values in an update; a larger update comes without them. ``flagged``: each row has one more value,
    which is ``1`` if values were left out. ``size``: bytes of all updates.
    """

    def __init__(self, entries: Sequence[Entry], key: Sequence[int], most: int, flagged: bool = False) -> None:
        self._entries = tuple(entries)
        self._columns = len(self._entries)
        self._key = tuple(key)
        self._most = most
        self._flagged = flagged
        self._single = self._key[0] if len(self._key) == 1 else -1
        self.size = 0

    def add(
        self,
        rows: list[list[bytes | None]],
        found: dict[bytes, bytes],
        raw_keys: dict[bytes, list[bytes | None]] | None,
        room: int,
    ) -> int:
        """Encode ``rows`` until ``size`` reaches ``room``. Returns the number of encoded rows.

        ``found``: receives the updates by key, a ``RowKey`` without a table. ``raw_keys``: receives the keys as the
        server sent them. Raises ``ValueError`` or a similar error for a value that does not fit its column.
        """
        entries = self._entries
        columns = self._columns
        taken = 0
        for row in rows:
            if len(row) != columns + self._flagged:
                raise ValueError(f"{len(row)} values for {columns} columns")
            cells = []
            for i in range(columns):
                raw = row[i]
                cells.append(_NULL if raw is None else entries[i](raw))
            if self._single >= 0:
                key = _KEY + cells[self._single]
            else:
                key = b"".join([_KEY + cells[column] for column in self._key])
            after = _AFTER + _AFTER.join(cells)
            if len(after) > self._most or (self._flagged and row[columns] == _LEFT_OUT):
                after = _TOO_LARGE
            update = _READ + key + after
            found[key] = update
            if raw_keys is not None:
                raw_keys[key] = [row[column] for column in self._key]
            taken += 1
            self.size += len(update)
            if self.size >= room:
                break
        return taken
