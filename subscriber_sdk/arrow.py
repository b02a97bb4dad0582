"""Updates as Arrow columns, for ``on_arrow``: one row for each change, straight from the bytes that travelled.

Its import needs pyarrow, the extra ``arrow``. A record batch has updates of one table and one schema that follow one
another in their shard.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wormhole.model.errors import ProtocolError, UsageError, WormholeError
from wormhole.model.position import LogPosition
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema, free_names
from wormhole.model.values import Op
from wormhole.wire.body import Slices
from wormhole.wire.columns import (
    PLACE_BYTES,
    bitmap,
    bits,
    bits_of_bytes,
    copy_bytes,
    copy_missing,
    spread,
    unavailable,
)
from wormhole.wire.update import Batch, Update, stretch
from wormhole.wire.v1 import update_pb2
from wormhole.wire.values import KEY, check_decimals, locate, one_value

__all__ = ["BatchInfo", "RecordBatches"]

_MOST_BYTES: Final = 1 << 30  # of updates in one record batch: Arrow counts the bytes of a column in 31 bits
_LEAST_ROWS: Final = 64  # tried after a batch that ended at a value of another type
_SCHEMAS: Final = 64  # remembered
_NO_VALUE: Final = b"\x00\x08\x09"  # kinds of cells: no value, NULL, UNAVAILABLE

# The field of wormhole.wire.v1.Value by the type of a column, and what Arrow calls it. A decimal has no scale in the
# log, so it is text, exact to the last digit.
_NAMES: Final[Mapping[int, str]] = {
    1: "bytes",
    2: "text",
    3: "int",
    4: "uint",
    5: "double",
    6: "bool",
    7: "decimal",
    10: "entries",
}
_KIND: Final = {**{name: kind for kind, name in _NAMES.items()}, "hash": 2}
_NUMBERS: Final = frozenset({3, 4, 5})
_BOOL: Final = 6
_DECIMAL: Final = 7
_ENTRIES: Final = 10
_TYPES: Final[Mapping[int, pa.DataType]] = {
    1: pa.binary(),
    2: pa.string(),
    3: pa.int64(),
    4: pa.uint64(),
    5: pa.float64(),
    6: pa.bool_(),
    7: pa.string(),
    10: pa.map_(pa.binary(), pa.binary()),
}
_OPS: Final = ("", *(Op[update_pb2.Op.Name(number)].value for number in range(1, len(Op) + 1)))
_KNOWN: Final = bytes(range(1, len(_OPS)))
# Numbers of marks to whether it is that one.
_IS_ENTERED, _IS_LEFT = (
    bytes(number == mark for number in range(256)) for mark in (int(update_pb2.ENTERED), int(update_pb2.LEFT))
)
_LIST: Final = pa.list_(pa.string())
_PLACE: Final = pa.binary(PLACE_BYTES)
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(slots=True, frozen=True)
class BatchInfo:
    """What all rows of a record batch share.

    ``key``: the names of the columns that are the table's key, in its order; empty for a table without one. The others
    are as in :class:`~subscriber_sdk.Update`.
    """

    table: str
    shard: str
    epoch: int
    generation: int
    replayed: bool
    key: tuple[str, ...]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> BatchInfo:
        """Of a batch that ``on_arrow`` got. Raises :class:`~subscriber_sdk.UsageError` for another one."""
        metadata = batch.schema.metadata or {}
        if _METADATA not in metadata:
            raise UsageError("this record batch is none that on_arrow got", hint="call BatchInfo.of before changing it")
        said = json.loads(metadata[_METADATA])
        return cls(**{**said, "key": tuple(said["key"])})


_METADATA: Final = b"wormhole"


@dataclass(slots=True)
class _Layout:
    """Where the cells of a schema lie: columns of a grid, one row for each update.

    First the table's columns, those of the key among them that the table has not; then key, old key, end of a range of
    keys, and the row before.
    """

    names: tuple[str, ...]
    shown: pa.Array  # the names
    kinds: tuple[int, ...]  # of all columns of the grid, as the schema has them
    key: tuple[int, ...]  # of each column of the key, where it is in the table
    bases: array[int]
    widths: array[int]
    width: int

    @classmethod
    def of(cls, schema: Schema, *, before: bool) -> _Layout:
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
            _texts(names),
            tuple(_KIND.get(column.type, _KIND["bytes"]) for column in grid),
            tuple(place[column.name] for column in schema.key),
            array("i", (-1, -1, beyond, 0, beyond + 3 * keys if before else -1, beyond + keys, beyond + 2 * keys)),
            array("i", (0, 0, keys, len(own), len(own), keys, keys)),
            beyond + 3 * keys + (len(own) if before else 0),
        )


class _Cells:
    """The cells of ``count`` updates, as :func:`~wormhole.wire.values.locate` fills them."""

    def __init__(self, data: bytes, spans: array[int], first: int, count: int, layout: _Layout) -> None:
        size = layout.width * count
        self.data = data
        self.count = count
        self.kinds = bytearray(size)
        self.numbers = array("Q", bytes(8 * size))
        self.sizes = array("i", bytes(4 * size))
        self.ops = bytearray(count)
        locate(data, spans, first, count, layout.bases, layout.widths, self.kinds, self.numbers, self.sizes, self.ops)
        for i, column in enumerate(layout.key):
            source = (layout.bases[KEY] + i) * count
            copy_missing(self.kinds, self.numbers, self.sizes, source, column * count, count)

    def kind(self, column: int, declared: int) -> tuple[int, int]:
        """The kind of a column's values, and how many rows have no value of another one."""
        begin, end = column * self.count, (column + 1) * self.count
        rows = self.kinds[begin:end]
        typed = rows.translate(None, _NO_VALUE)
        kind = typed[0] if typed else declared
        if typed.count(kind) == len(typed):
            return kind, self.count
        return kind, next(i for i, one in enumerate(rows) if one not in _NO_VALUE and one != kind)

    def any(self, column: int, columns: int) -> bool:
        """Whether there is a value in any of these columns."""
        begin, end = column * self.count, (column + columns) * self.count
        return self.kinds.count(0, begin, end) != end - begin

    def array(self, column: int, kind: int) -> pa.Array:
        """A column as Arrow has it."""
        count, begin = self.count, column * self.count
        if kind == _ENTRIES:
            return pa.array([self._entries(cell) for cell in range(begin, begin + count)], _TYPES[kind])
        valid, nulls = None, 0
        if self.kinds.count(kind, begin, begin + count) != count:
            held, nulls = bitmap(self.kinds, begin, count)
            valid = pa.py_buffer(held)
        if kind == _BOOL:
            buffers = [pa.py_buffer(bits(self.numbers, begin, count))]
        elif kind in _NUMBERS:
            buffers = [pa.py_buffer(self.numbers[begin : begin + count])]
        else:
            if kind == _DECIMAL:
                check_decimals(self.data, self.kinds, self.numbers, self.sizes, begin, begin + count)
            buffers = list(map(pa.py_buffer, copy_bytes(self.data, self.kinds, self.numbers, self.sizes, begin, count)))
        return pa.Array.from_buffers(_TYPES[kind], count, [valid, *buffers], nulls)

    def rows(self, column: int, kinds: Sequence[int], fields: pa.DataType) -> pa.Array:
        """Several columns as one of structs, null where the update does not have them."""
        if not self.any(column, len(kinds)):
            return pa.nulls(self.count, fields)
        begin = column * self.count
        there = pa.py_buffer(bits_of_bytes(self.kinds, begin, self.count))
        children = [self.array(column + i, kind) for i, kind in enumerate(kinds)]
        return pa.Array.from_buffers(fields, self.count, [there], children=children)

    def unavailable(self, column: int, names: pa.Array) -> pa.Array:
        """For each row the names of the columns, from ``column`` on, that the log does not have; null for none."""
        begin, columns = column * self.count, len(names)
        end = begin + columns * self.count
        if self.kinds.find(0, begin, end) < 0 and self.kinds.find(9, begin, end) < 0:
            return pa.nulls(self.count, _LIST)
        there, offsets, found = unavailable(self.kinds, begin, columns, self.count)
        children = [names.take(_numbers(pa.int32(), found))]
        buffers = [pa.py_buffer(there), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(_LIST, self.count, buffers, children=children)

    def _entries(self, cell: int) -> list[tuple[bytes, bytes]] | None:
        if self.kinds[cell] != _ENTRIES:
            return None
        begin = self.numbers[cell]
        value: Any = one_value(self.data, begin, begin + self.sizes[cell])
        return list(value.items())


class _Places:
    """What a batch says of its transactions, as :func:`~wormhole.wire.columns.spread` takes it."""

    def __init__(self, batch: Batch) -> None:
        body = batch.body
        self.batch = batch
        self.ended = len(body.tx_end)
        self.stops = array("I", body.tx_end)
        if self.ended < len(body.tx_number):
            self.stops.append(len(body.updates))
        self.files = array("Q", body.tx_file)
        self.offsets = array("Q", body.tx_offset)
        self.indexes = array("I", body.update_index)
        self.numbers = array("Q", body.tx_number)
        self.source_of = array("i", body.tx_source or (0,))
        self.times = array("q", body.tx_committed_at_us)
        self.sources = _texts(body.sources)
        if isinstance(body.updates, Slices):
            self.data, self.spans = body.updates.data, body.updates.spans
        else:
            rows = list(body.updates)
            ends = [0, *accumulate(map(len, rows))]
            self.data = b"".join(rows)
            self.spans = array("q", chain.from_iterable(pairwise(ends)))

    def columns(self, first: int, count: int) -> dict[str, pa.Array]:
        """The columns of ``count`` updates from ``first`` on."""
        body = self.batch.body
        places = bytearray(PLACE_BYTES * count)
        numbers, indexes, times = (array(code, bytes(size * count)) for code, size in (("Q", 8), ("i", 4), ("q", 8)))
        sources = array("i", bytes(4 * count))
        ends = bytearray(count)
        spread(
            self.stops,
            self.ended,
            body.incarnation,
            self.files,
            self.offsets,
            body.first_index,
            self.indexes,
            places,
            self.numbers,
            self.source_of,
            self.times,
            numbers,
            sources,
            times,
            indexes,
            ends,
            first,
        )
        number = _numbers(pa.uint64(), numbers).cast(pa.string())
        source = self.sources[0] if len(self.sources) == 1 else self.sources.take(_numbers(pa.int32(), sources))
        if any(map(is_read_source, body.sources)):
            # Behind the updates of the log at the same place, as the archive has it.
            for row, source_id in enumerate(sources):
                if is_read_source(body.sources[source_id]):
                    places[PLACE_BYTES * row + LogPosition.SIZE + 1] |= 0x80
        marks = bytearray(body.marks[first : first + count]) if body.marks else bytearray(count)
        unknown = None
        if times.count(0):
            unknown = pa.py_buffer(bits(array("Q", times.tobytes()), 0, count))
        return {
            "_tx": pc.binary_join_element_wise(source, number, _COLON),
            "_index": _numbers(pa.int32(), indexes),
            "_place": pa.Array.from_buffers(_PLACE, count, [None, pa.py_buffer(places)]),
            "_committed_at": pa.Array.from_buffers(_TIME, count, [unknown, pa.py_buffer(times)]),
            "_ends_tx": _flags(ends),
            "_entered": _flags(marks.translate(_IS_ENTERED)),
            "_left": _flags(marks.translate(_IS_LEFT)),
        }


class RecordBatches:
    """Makes record batches of the updates of one flow. ``before``: with the row before each change, too."""

    def __init__(self, before: bool = False) -> None:
        self._before = before
        self._layouts: dict[int, _Layout] = {}
        self._schemas: dict[tuple[object, ...], pa.Schema] = {}
        self._places: _Places | None = None
        self._most = 0  # rows at most, after a value of another type; 0: as many as there are

    def take(self, updates: Sequence[Update], begin: int) -> tuple[int, pa.RecordBatch]:
        """A record batch of ``updates`` from ``begin`` on, and how many are in it: up to the next table or schema, or a
        value of another type.

        Raises what looking at such an update raises: :class:`~wormhole.model.errors.DecodeError`,
        :class:`~wormhole.model.errors.ProtocolError`.
        """
        count, first = stretch(updates, begin)
        batch = updates[begin].batch
        if self._places is None or self._places.batch is not batch:
            self._places = _Places(batch)
        places, spans = self._places, self._places.spans
        if self._most:
            count = min(count, self._most)
        while count > 1 and spans[2 * (first + count) - 1] - spans[2 * first] > _MOST_BYTES:
            count //= 2
        try:
            taken, made = self._made(places, first, count)
        except WormholeError:
            # Says which update it is, as its own properties do.
            for update in updates[begin : begin + count]:
                _ = update.op, update.key, update.after, update.before
            raise
        self._most = max(_LEAST_ROWS, 2 * taken) if taken < count else 2 * self._most
        if self._most > len(batch.body.updates):
            self._most = 0
        return taken, made

    def _made(self, places: _Places, first: int, count: int) -> tuple[int, pa.RecordBatch]:
        schema = places.batch.table_of(first)
        layout = self._layout(schema)
        cells = _Cells(places.data, places.spans, first, count, layout)
        if cells.ops.translate(None, _KNOWN):
            raise ProtocolError("an update has an operation that this release does not know")
        kinds, until = [], count
        for column, declared in enumerate(layout.kinds):
            kind, rows = cells.kind(column, declared)
            kinds.append(kind)
            until = min(until, rows)
        if until < count:
            return self._made(places, first, until)
        own, keys = len(layout.names), len(layout.key)
        arrow = self._schema(schema, layout, kinds, places.batch)
        more = places.columns(first, count)
        more["_op"] = _OP_NAMES.take(_numbers(pa.uint8(), cells.ops))
        more["_unavailable"] = cells.unavailable(0, layout.shown)
        if keys:
            more["_old_key"] = cells.rows(own + keys, kinds[own + keys : own + 2 * keys], arrow.field("_old_key").type)
            end = own + 2 * keys
            more["_key_end"] = cells.rows(end, kinds[end : end + keys], arrow.field("_key_end").type)
        if self._before:
            begin = own + 3 * keys
            more["_before"] = cells.rows(begin, kinds[begin:], arrow.field("_before").type)
            more["_before_unavailable"] = cells.unavailable(begin, layout.shown.slice(0, len(kinds) - begin))
        columns = [cells.array(column, kinds[column]) for column in range(own)]
        columns += [more[name] for name in arrow.names[own:]]
        return count, pa.RecordBatch.from_arrays(columns, schema=arrow)

    def _layout(self, schema: Schema) -> _Layout:
        found = self._layouts.get(schema.id)
        if found is None:
            if len(self._layouts) >= _SCHEMAS:
                self._layouts.clear()
            found = self._layouts[schema.id] = _Layout.of(schema, before=self._before)
        return found

    def _schema(self, schema: Schema, layout: _Layout, kinds: list[int], batch: Batch) -> pa.Schema:
        known = (schema.id, bytes(kinds), batch.shard, batch.epoch, batch.generation, batch.replayed)
        found = self._schemas.get(known)
        if found is None:
            if len(self._schemas) >= _SCHEMAS:
                self._schemas.clear()
            found = self._schemas[known] = _arrow_schema(schema, layout, kinds, batch, before=self._before)
        return found


def _arrow_schema(schema: Schema, layout: _Layout, kinds: list[int], batch: Batch, *, before: bool) -> pa.Schema:
    def field(name: str, kind: int) -> pa.Field:
        return pa.field(name, _TYPES[kind], metadata={_METADATA: _NAMES[kind]})

    own, keys = len(layout.names), len(layout.key)
    fields = [field(name, kind) for name, kind in zip(layout.names, kinds, strict=False)]
    fields += [
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_place", _PLACE, nullable=False),
        pa.field("_tx", pa.string(), nullable=False),
        pa.field("_index", pa.int32(), nullable=False),
        pa.field("_ends_tx", pa.bool_(), nullable=False),
        pa.field("_committed_at", _TIME),
        pa.field("_entered", pa.bool_(), nullable=False),
        pa.field("_left", pa.bool_(), nullable=False),
        pa.field("_unavailable", _LIST),
    ]
    key = [layout.names[column] for column in layout.key]
    if keys:
        for i, name in ((1, "_old_key"), (2, "_key_end")):
            begin = own + i * keys
            fields.append(pa.field(name, pa.struct(map(field, key, kinds[begin : begin + keys]))))
    if before:
        fields.append(pa.field("_before", pa.struct(map(field, layout.names, kinds[own + 3 * keys :]))))
        fields.append(pa.field("_before_unavailable", _LIST))
    info = BatchInfo(schema.table, batch.shard, batch.epoch, batch.generation, batch.replayed, tuple(key))
    return pa.schema(fields, metadata={_METADATA: json.dumps(asdict(info))})


def _numbers(type_: pa.DataType, values: array[int] | bytearray) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _flags(values: bytearray) -> pa.Array:
    count = len(values)
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits_of_bytes(values, 0, count))])


def _texts(values: Sequence[str]) -> pa.Array:
    """Made from memory: what pyarrow makes of Python's objects makes it import pandas where that is installed."""
    encoded = [value.encode() for value in values]
    offsets = array("i", accumulate(map(len, encoded), initial=0))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


_OP_NAMES: Final = _texts(_OPS)
_COLON: Final = _texts((":",))[0]
