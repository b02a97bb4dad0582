"""Updates as Arrow columns, for ``on_arrow``: one row for each change, straight from the bytes that travelled.

Its import needs pyarrow, the extra ``arrow``. A record batch has updates of one table and one schema that follow one
another in their shard.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, pairwise
from struct import Struct
from typing import Any, Final

import pyarrow as pa

from wormhole.model.errors import ProtocolError, UsageError, WormholeError
from wormhole.model.position import LogPosition
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema, free_names
from wormhole.model.values import Op
from wormhole.wire.body import Slices
from wormhole.wire.columns import (
    PLACE_BYTES,
    bits_of_bytes,
    copy_missing,
    kinds_of,
    spread,
    unavailable,
    write_columns,
    write_ids,
    write_names,
)
from wormhole.wire.update import Batch, Update, stretch
from wormhole.wire.v1 import update_pb2
from wormhole.wire.values import KEY, Ints, check_decimals, locate, one_value

__all__ = ["BatchInfo", "RecordBatches"]

_MOST_BYTES: Final = 1 << 30  # of updates in one record batch: Arrow counts the bytes of a column in 31 bits
_LEAST_ROWS: Final = 64  # tried after a batch that ended at a value of another type
_SCHEMAS: Final = 64  # remembered

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
_WIDTHS: Final = {**dict.fromkeys(_NAMES, 5), 3: 9, 4: 9, 5: 9, 6: 1}  # bytes of a row at most, beside a text's own
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


@dataclass(slots=True, frozen=True)
class _Names:
    """Texts one after the other, and where each ends."""

    joined: bytes
    ends: array[int]
    longest: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Names:
        encoded = [text.encode() for text in texts]
        ends = array("i", accumulate(map(len, encoded)))
        return cls(b"".join(encoded), ends, max(map(len, encoded), default=0))


@dataclass(slots=True)
class _Layout:
    """Where the cells of a schema lie: columns of a grid, one row for each update.

    First the table's columns, those of the key among them that the table has not; then key, old key, end of a range of
    keys, and the row before.
    """

    names: tuple[str, ...]
    shown: _Names  # the names
    own: int  # how many of them are the table's
    kinds: bytes  # of all columns of the grid, as the schema has them
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
            _Names.of(names),
            len(own),
            bytes(_KIND.get(column.type, _KIND["bytes"]) for column in grid),
            tuple(place[column.name] for column in schema.key),
            array("i", (-1, -1, beyond, 0, beyond + 3 * keys if before else -1, beyond + keys, beyond + 2 * keys)),
            array("i", (0, 0, keys, len(own), len(own), keys, keys)),
            beyond + 3 * keys + (len(own) if before else 0),
        )


class _Message:
    """A record batch in the bytes of Arrow's format for exchange (IPC: a message of format version 5, not compressed).

    pyarrow makes all arrays of a batch from it in one call, which takes a third of the time of a call for each. The
    order of the columns is that of the schema.
    """

    # Where a message's fields are in it is fixed by these tables of a flatbuffer: of a Message, which has version,
    # header (its type and where it is) and the bytes of the body, and of the header, a RecordBatch with its rows, nodes
    # and buffers. Each node is two numbers, and each buffer is.
    _PREFIX = Struct("<ii I6H iI q hBx 4x 5H6x iI q I").pack
    _NODES_AT = 8 + 76
    _VERSION, _RECORD_BATCH = 4, 3

    def __init__(self, rows: int, pairs: int, most: int) -> None:
        """``pairs``: nodes and buffers. ``most``: bytes of the body."""
        self.rows = rows
        self.body = self.at = _aligned(self._NODES_AT + 4 + 4 + 4 + 16 * pairs, 64)
        self.out = bytearray(self.body + _aligned(most + 64, 8))
        self.nodes: list[int] = []
        self.buffers: list[int] = []

    def node(self, nulls: int = 0, rows: int = -1) -> None:
        """A column begins."""
        self.nodes += (self.rows if rows < 0 else rows, nulls)

    def empty(self) -> None:
        """A buffer that is left out."""
        self.buffers += (self.at - self.body, 0)

    def buffer(self, size: int) -> int:
        """A buffer of 0s: where it begins."""
        begin = self.at
        self.buffers += (begin - self.body, size)
        self.at = _aligned(begin + size, 8)
        if self.at > len(self.out):
            raise ValueError(f"{len(self.out)} bytes are too few for a buffer of {size} bytes at {begin}")
        return begin

    def fill(self, content: bytes | bytearray | Ints) -> None:
        """A buffer with this content."""
        view = memoryview(content).cast("B")
        begin = self.buffer(len(view))
        self.out[begin : begin + len(view)] = view

    def room(self, size: int) -> None:
        """This much more than the bytes of the body."""
        self.out.extend(bytes(_aligned(size, 8)))

    def text(self, offsets: int, end: int, count: int) -> None:
        """The two buffers of ``count`` texts that were written from ``offsets``, the free place, to ``end``."""
        assert self.buffer(4 * count + 4) == offsets
        self.buffer(end - self.at)

    def flags(self, values: bytearray | None) -> None:
        """A column of booleans; ``None``: all false."""
        self.node()
        self.empty()
        at = self.buffer((self.rows + 7) // 8)
        if values is not None:
            bits_of_bytes(values, 0, self.rows, self.out, at)

    def made(self, schema: pa.Schema) -> pa.RecordBatch:
        """The record batch. It keeps these bytes."""
        out, nodes, buffers = self.out, self.nodes, self.buffers
        several = array("q", nodes).tobytes()
        buffers_at = self._NODES_AT + 4 + len(several) + 4
        if buffers_at + 4 + 8 * len(buffers) > self.body:
            raise ValueError(f"{len(buffers) // 2} buffers do not fit their message")
        # fmt: off
        out[: self._NODES_AT] = self._PREFIX(
            -1, self.body - 8, 16, 12, 20, 16, 18, 4, 8, 12, 36, self.at - self.body, self._VERSION, self._RECORD_BATCH,
            10, 20, 8, 4, 16, 16, 16, self.rows, buffers_at - 8 - 72,
        )
        # fmt: on
        begin = self._NODES_AT
        out[begin : begin + 4] = (len(nodes) // 2).to_bytes(4, "little")
        out[begin + 4 : buffers_at - 4] = several
        out[buffers_at : buffers_at + 4] = (len(buffers) // 2).to_bytes(4, "little")
        out[buffers_at + 4 : buffers_at + 4 + 8 * len(buffers)] = array("q", buffers).tobytes()
        del out[self.at :]
        return pa.ipc.read_record_batch(pa.py_buffer(out), schema)


class _Cells:
    """The cells of ``count`` updates, as :func:`~wormhole.wire.values.locate` fills them."""

    def __init__(self, data: bytes, spans: array[int], first: int, count: int, layout: _Layout) -> None:
        size = layout.width * count
        self.data = data
        self.count = count
        self.kinds = bytearray(size)
        self.numbers = memoryview(bytearray(8 * size)).cast("Q")
        self.sizes = memoryview(bytearray(4 * size)).cast("i")
        self.ops = bytearray(count)
        locate(data, spans, first, count, layout.bases, layout.widths, self.kinds, self.numbers, self.sizes, self.ops)
        for i, column in enumerate(layout.key):
            source = (layout.bases[KEY] + i) * count
            copy_missing(self.kinds, self.numbers, self.sizes, source, column * count, count)

    def write(self, column: int, types: bytearray, message: _Message) -> None:
        """Columns from ``column`` on, whose values are of these kinds."""
        if _DECIMAL in types:
            for i, kind in enumerate(types, column):
                if kind == _DECIMAL:
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

    def rows(self, column: int, types: bytearray, message: _Message) -> None:
        """Several columns as one of structs, null where the update does not have them."""
        at = message.buffer((self.count + 7) // 8)
        message.node(bits_of_bytes(self.kinds, column * self.count, self.count, message.out, at))
        self.write(column, types, message)

    def unavailable(self, column: int, columns: int, names: _Names, message: _Message) -> None:
        """For each row the names of the columns, from ``column`` on, that the log does not have; null for none."""
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

    def _write_entries(self, column: int, message: _Message) -> None:
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
        self.unknown_times = 0 in self.times
        self.sources = [source.encode() for source in body.sources]
        number = len(str(max(self.numbers, default=0)))
        self.longest = max(map(len, self.sources), default=0) + 1 + number  # of a transaction's id
        self.reads = frozenset(i for i, source in enumerate(body.sources) if is_read_source(source))
        if isinstance(body.updates, Slices):
            self.data, self.spans = body.updates.data, body.updates.spans
        else:
            rows = list(body.updates)
            ends = [0, *accumulate(map(len, rows))]
            self.data = b"".join(rows)
            self.spans = array("q", chain.from_iterable(pairwise(ends)))

    def write(self, first: int, message: _Message) -> None:
        """The columns of the updates from ``first`` on, from ``_place`` to ``_left``."""
        body, count = self.batch.body, message.rows
        numbers = memoryview(bytearray(8 * count)).cast("Q")
        sources = memoryview(bytearray(4 * count)).cast("i")
        indexes = memoryview(bytearray(4 * count)).cast("i")
        times = memoryview(bytearray(8 * count)).cast("q")
        places, ends = bytearray(PLACE_BYTES * count), bytearray(count)
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
        if self.reads:
            # Behind the updates of the log at the same place, as the archive has it.
            for row, source_id in enumerate(sources):
                if source_id in self.reads:
                    places[PLACE_BYTES * row + LogPosition.SIZE + 1] |= 0x80
        message.node()
        message.empty()
        message.fill(places)
        message.node()
        message.empty()
        message.text(message.at, write_ids(numbers, sources, self.sources, message.out, message.at), count)
        message.node()
        message.empty()
        message.fill(indexes)
        message.flags(ends)
        if self.unknown_times:
            at = message.buffer((count + 7) // 8)
            message.node(bits_of_bytes(bytearray(map(bool, times)), 0, count, message.out, at))
        else:
            message.node()
            message.empty()
        message.fill(times)
        marks = bytes(body.marks[first : first + count]) if body.marks else b""
        for mark in (_IS_ENTERED, _IS_LEFT):
            message.flags(bytearray(marks.translate(mark)) if marks else None)


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
        kinds, until = kinds_of(cells.kinds, count, layout.kinds)
        if until < count:
            return self._made(places, first, until)
        own, keys = len(layout.names), len(layout.key)
        columns = own + 3 * keys
        spans = places.spans
        # Not far too much, which would be returned to the system at each batch. A row before may be there twice.
        most = (spans[2 * (first + count) - 1] - spans[2 * first]) * (2 if self._before else 1)
        most += (
            count * (sum(map(_WIDTHS.__getitem__, kinds)) + places.longest + PLACE_BYTES + 50) + 40 * len(kinds) + 600
        )
        message = _Message(count, _pairs(kinds), most)
        cells.write(0, kinds[:own], message)
        message.node()
        message.empty()
        message.text(message.at, write_names(_wide(cells.ops), *_OP_NAMES, message.out, message.at), count)
        places.write(first, message)
        cells.unavailable(0, own, layout.shown, message)
        for begin in (own + keys, own + 2 * keys) if keys else ():
            cells.rows(begin, kinds[begin : begin + keys], message)
        if self._before:
            cells.rows(columns, kinds[columns:], message)
            cells.unavailable(columns, layout.own, layout.shown, message)
        return count, message.made(self._schema(schema, layout, kinds, places.batch))

    def _layout(self, schema: Schema) -> _Layout:
        found = self._layouts.get(schema.id)
        if found is None:
            if len(self._layouts) >= _SCHEMAS:
                self._layouts.clear()
            found = self._layouts[schema.id] = _Layout.of(schema, before=self._before)
        return found

    def _schema(self, schema: Schema, layout: _Layout, kinds: bytearray, batch: Batch) -> pa.Schema:
        known = (schema.id, bytes(kinds), batch.shard, batch.epoch, batch.generation, batch.replayed)
        found = self._schemas.get(known)
        if found is None:
            if len(self._schemas) >= _SCHEMAS:
                self._schemas.clear()
            found = self._schemas[known] = _arrow_schema(schema, layout, kinds, batch, before=self._before)
        return found


def _arrow_schema(schema: Schema, layout: _Layout, kinds: bytearray, batch: Batch, *, before: bool) -> pa.Schema:
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


def _pairs(kinds: bytearray) -> int:
    """Nodes and buffers at the most: each column's, those of the columns that every batch has, and of structs."""
    return 4 * len(kinds) + 9 * kinds.count(_ENTRIES) + 46


def _wide(values: bytearray) -> memoryview:
    """The same numbers with four bytes for each."""
    wide = bytearray(4 * len(values))
    wide[::4] = values
    return memoryview(wide).cast("i")


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


_OPERATIONS: Final = _Names.of(_OPS)
_OP_NAMES: Final = (_OPERATIONS.joined, _OPERATIONS.ends)
