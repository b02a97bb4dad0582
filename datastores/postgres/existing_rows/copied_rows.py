"""Encodes the rows of a COPY as updates, as the log's decoder does. Hot: compiled where possible.

COPY writes a value with its type's output function, as the log does. So a row is converted to a tuple of pgoutput,
which `datastores.postgres.decode.rows` encodes::

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
    """The tuple of pgoutput for a row, with the tuple's kind."""
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
    """Encodes rows of one table, which has a key.

    ``most``: the most bytes of values in an update; a larger update comes without them. ``flagged``: each row has one
    more value, which is ``t`` if values were left out. ``size``: bytes of all updates.
    """

    def __init__(self, table: Table, most: int, flagged: bool = False) -> None:
        self.size = 0
        self._table = table
        self._flagged = flagged
        self._rows = Rows(most, 0, _ROOM)

    def add(self, lines: list[bytes], found: dict[bytes, bytes], room: int) -> int:
        """Encode ``lines`` until ``size`` reaches ``room``. Returns the number of encoded lines.

        ``found``: receives the updates by key, a ``RowKey`` without a table. Raises
        :class:`~wormhole.model.errors.DecodeError` for a value that does not fit its column.
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
