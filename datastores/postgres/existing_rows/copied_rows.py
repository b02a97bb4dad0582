"""Rows as COPY sends them, to update bytes as the log's decoder writes them. Hot: compiled where possible.

COPY writes each value as the type's output function does, which is what the log has, too. So a row becomes a tuple of
pgoutput, which `datastores.postgres.decode.rows` encodes::

    row   := value ('\\t' value)* '\\n'
    value := '\\N' (NULL), or the text with '\\b', '\\f', '\\n', '\\r', '\\t', '\\v' and '\\\\' for these characters
"""

from __future__ import annotations

import re
import struct
from typing import Final

from datastores.postgres.decode.rows import Rows
from datastores.postgres.decode.table import Table
from wormhole.model.errors import DecodeError

__all__ = ["CopiedRows", "tuple_of"]

_NULL: Final = b"\\N"
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_MEANT: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_COUNT: Final = struct.Struct(">cH")
_HEAD: Final = struct.Struct(">cI")
_HEADS: Final = tuple(_HEAD.pack(b"t", size) for size in range(256))
_SHORT: Final = 256
_LEFT_OUT: Final = b"t"
_ROOM: Final = 1 << 16


def _meant(found: re.Match[bytes]) -> bytes:
    return _MEANT.get(found[1], found[1])


def tuple_of(fields: list[bytes]) -> bytes:
    """The tuple of pgoutput, with its kind."""
    parts = [_COUNT.pack(b"N", len(fields))]
    for field in fields:
        if field == _NULL:
            parts.append(b"n")
            continue
        if b"\\" in field:
            field = _ESCAPED.sub(_meant, field)
        size = len(field)
        parts.append(_HEADS[size] if size < _SHORT else _HEAD.pack(b"t", size))
        parts.append(field)
    return b"".join(parts)


class CopiedRows:
    """Encodes rows of one table, the key of which the table has.

    ``most``: bytes of values that an update may have; one with more comes without them. ``flagged``: a row has one more
    value, ``t`` where values of it were left out. ``size``: bytes of all updates.
    """

    def __init__(self, table: Table, most: int, flagged: bool = False) -> None:
        self.size = 0
        self._table = table
        self._flagged = flagged
        self._rows = Rows(most, 0, _ROOM)

    def add(self, lines: list[bytes], found: dict[bytes, bytes], room: int) -> int:
        """Encode ``lines`` until ``size`` is ``room``; returns how many.

        ``found``: gets their updates by key, a ``RowKey`` without a table. Raises
        :class:`~wormhole.model.errors.DecodeError` for what is no value of its column.
        """
        rows = self._rows
        updates = rows.updates
        taken = 0
        for line in lines:
            fields = line[:-1].split(b"\t")
            left_out = self._flagged and fields.pop() == _LEFT_OUT
            if len(fields) != self._table.count:
                raise self._bad(len(fields))
            data = tuple_of(fields)
            key = rows.existing(data, 0, len(data), self._table, left_out)
            out = updates.out
            at = 1
            while out[at] > 0x7F:
                at += 1
            at += 1
            update = bytes(out[at : updates.used])
            updates.drop(1)
            found[update[2 : 2 + key]] = update
            taken += 1
            self.size += len(update)
            if self.size >= room:
                break
        return taken

    def _bad(self, count: int) -> DecodeError:
        table = self._table
        return DecodeError(f"{table.name}: a row has {count} values for {table.count} columns", tables=(table.name,))
