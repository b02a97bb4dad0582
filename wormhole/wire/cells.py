"""Lays out the updates of one schema as a grid of cells, and writes columns of the grid in Arrow's form. Pure.

The grid has one row for each update, and one column for each value that an update can have.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from struct import Struct
from typing import Any, Final

from wormhole.model.schema import Schema, free_names
from wormhole.model.values import NAN, UNAVAILABLE, Value
from wormhole.wire.arrow_message import Message, Names
from wormhole.wire.columns import bits_of_bytes, copy_missing, unavailable, write_columns, write_names
from wormhole.wire.values import KEY, check_decimals, decimal_of, locate, one_value

__all__ = ["DECIMAL", "ENTRIES", "KINDS", "NAMES", "Cells", "Layout", "pairs", "width_of"]

NAMES: Final[Mapping[int, str]] = {
    1: "bytes",
    2: "text",
    3: "int",
    4: "uint",
    5: "double",
    6: "bool",
    7: "decimal",
    10: "entries",
}
"""The types of columns by the field of ``wormhole.wire.v1.Value`` that holds them."""
KINDS: Final = {**{name: kind for kind, name in NAMES.items()}, "hash": 2}
DECIMAL: Final = 7
ENTRIES: Final = 10
_DOUBLE: Final = Struct("<d")
_WIDTHS: Final = {**dict.fromkeys(NAMES, 5), 3: 9, 4: 9, 5: 9, 6: 1}


@dataclass(slots=True)
class Layout:
    """The layout of a schema's cells: columns of a grid, one row for each update.

    The table's columns are first, including columns of the key that the table lacks. Then follow key, old key, end of a
    range of keys, and the row before.
    """

    names: tuple[str, ...]
    shown: Names  # `names` in Arrow's form
    own: int  # how many of the columns are the table's
    kinds: bytes  # the kinds of all columns of the grid, as the schema has them
    key: tuple[int, ...]  # the place in the table of each column of the key
    bases: array[int]
    widths: array[int]
    width: int

    @classmethod
    def of(cls, schema: Schema, *, before: bool) -> Layout:
        own = [column.name for column in schema.columns]
        extra = [column for column in schema.key if column.name not in own]
        columns = (*schema.columns, *extra)
        shown = free_names(column.name for column in columns)
        place = {column.name: i for i, column in enumerate(columns)}
        keys = len(schema.key)
        beyond = len(columns)
        names = tuple(shown[column.name] for column in columns)
        grid = (*columns, *schema.key, *schema.key, *schema.key, *(schema.columns if before else ()))
        return cls(
            names,
            Names.of(names),
            len(own),
            bytes(KINDS.get(column.type, KINDS["bytes"]) for column in grid),
            tuple(place[column.name] for column in schema.key),
            array("i", (-1, -1, beyond, 0, beyond + 3 * keys if before else -1, beyond + keys, beyond + 2 * keys)),
            array("i", (0, 0, keys, len(own), len(own), keys, keys)),
            beyond + 3 * keys + (len(own) if before else 0),
        )


class Cells:
    """The cells of ``count`` updates, as :func:`~wormhole.wire.values.locate` fills them."""

    def __init__(
        self, data: bytes, spans: array[int], first: int, count: int, layout: Layout, *, falls_back: bool = True
    ) -> None:
        size = layout.width * count
        self.data = data
        self.count = count
        self.kinds = bytearray(size)
        self.numbers = memoryview(bytearray(8 * size)).cast("Q")
        self.sizes = memoryview(bytearray(4 * size)).cast("i")
        self.ops = bytearray(count)
        locate(
            data, spans, first, count, layout.bases, layout.widths, self.kinds, self.numbers, self.sizes, self.ops,
            falls_back,
        )  # fmt: skip
        for i, column in enumerate(layout.key):
            source = (layout.bases[KEY] + i) * count
            copy_missing(self.kinds, self.numbers, self.sizes, source, column * count, count)

    def value(self, cell: int) -> Value:
        """The value in a cell."""
        kind, number = self.kinds[cell], self.numbers[cell]
        match kind:
            case 0 | 9:
                return UNAVAILABLE
            case 1:
                return self.data[number : number + self.sizes[cell]]
            case 2:
                return self.data[number : number + self.sizes[cell]].decode()
            case 3:
                return number - (1 << 64) if number >> 63 else number
            case 4:
                return number
            case 5:
                value: float = _DOUBLE.unpack(number.to_bytes(8, "little"))[0]
                return value if value == value else NAN
            case 6:
                return number != 0
            case 7:
                check_decimals(self.data, self.kinds, self.numbers, self.sizes, cell, cell + 1)
                return decimal_of(self.data[number : number + self.sizes[cell]].decode())
            case 10:
                return one_value(self.data, number, number + self.sizes[cell])
        return None

    def write(self, column: int, types: bytearray, message: Message) -> None:
        """Write to ``message`` the columns from ``column`` on. ``types``: the kind of each column's values."""
        if DECIMAL in types:
            for i, kind in enumerate(types, column):
                if kind == DECIMAL:
                    begin = i * self.count
                    check_decimals(self.data, self.kinds, self.numbers, self.sizes, begin, begin + self.count)
        first, _, rest = types.partition(b"\x0a")  # entries
        message.at = write_columns(
            self.data, self.kinds, self.numbers, self.sizes, self.count, column, first, message.out, message.body,
            message.at, message.nodes, message.buffers,
        )  # fmt: skip
        if len(first) < len(types):
            column += len(first)
            self._write_entries(column, message)
            self.write(column + 1, rest, message)

    def rows(self, column: int, types: bytearray, message: Message) -> None:
        """Write several columns as one column of structs, which is null for an update without these values."""
        at = message.buffer((self.count + 7) // 8)
        message.node(bits_of_bytes(self.kinds, column * self.count, self.count, message.out, at))
        self.write(column, types, message)

    def unavailable(self, column: int, columns: int, names: Names, message: Message) -> None:
        """Write for each row the names of those of ``columns`` columns, from ``column`` on, whose values are not in the
        log; null if every value is.
        """
        begin = column * self.count
        end = begin + columns * self.count
        if self.kinds.find(0, begin, end) < 0 and self.kinds.find(9, begin, end) < 0:
            message.node(self.count)
            message.buffer((self.count + 7) // 8)
            message.buffer(4 * self.count + 4)
            found = array("i")
        else:
            there, offsets, found = unavailable(self.kinds, begin, columns, self.count)
            message.node(self.count - sum(map(int.bit_count, there)))
            message.room((8 + names.longest) * len(found) + 32)
            message.fill(there)
            message.fill(offsets)
        message.node(rows=len(found))
        message.empty()
        end = write_names(found, names.joined, names.ends, message.out, message.at)
        message.text(message.at, end, len(found))

    def _write_entries(self, column: int, message: Message) -> None:
        begin = column * self.count
        cells = [self._entries(cell) for cell in range(begin, begin + self.count)]
        there = bytearray(cell is not None for cell in cells)
        at = message.buffer((self.count + 7) // 8)
        message.node(bits_of_bytes(there, 0, self.count, message.out, at))
        message.fill(array("i", accumulate((len(cell or ()) for cell in cells), initial=0)))
        entries = list(chain.from_iterable(cell or () for cell in cells))
        message.room(sum(8 + len(name) + len(value) for name, value in entries) + 64)
        message.node(rows=len(entries))
        message.empty()
        for part in range(2):
            texts = [entry[part] for entry in entries]
            message.node(rows=len(entries))
            message.empty()
            message.fill(array("i", accumulate(map(len, texts), initial=0)))
            message.fill(b"".join(texts))

    def _entries(self, cell: int) -> list[tuple[bytes, bytes]] | None:
        if self.kinds[cell] != ENTRIES:
            return None
        begin = self.numbers[cell]
        value: Any = one_value(self.data, begin, begin + self.sizes[cell])
        return list(value.items())


def pairs(kinds: bytearray) -> int:
    """Limit of the nodes and buffers of a batch: for these columns, the columns of every batch, and the structs."""
    return 4 * len(kinds) + 9 * kinds.count(ENTRIES) + 46


def width_of(kinds: bytearray) -> int:
    """Limit of the bytes of a row of such columns, without those of the texts themselves."""
    return sum(map(_WIDTHS.__getitem__, kinds))
