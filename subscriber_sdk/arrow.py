"""Updates as Arrow columns, for ``on_arrow``: one row for each change, made directly from the received bytes.

The module imports pyarrow (the extra ``arrow``). A record batch has consecutive updates of a shard, all of one table
and one schema.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Final

import pyarrow as pa

from wormhole.model.errors import ProtocolError, UsageError, WormholeError
from wormhole.model.position import LogPosition
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.arrow_message import Message, Names
from wormhole.wire.body import Slices
from wormhole.wire.cells import NAMES, Cells, Layout, pairs, width_of
from wormhole.wire.columns import PLACE_BYTES, bits_of_bytes, kinds_of, spread, write_ids, write_names
from wormhole.wire.update import Batch, Update, stretch
from wormhole.wire.v1 import update_pb2

__all__ = ["BatchInfo", "RecordBatches"]

_MOST_BYTES: Final = 1 << 30  # updates in one record batch take at most this: Arrow counts a column's bytes in 31 bits
_LEAST_ROWS: Final = 64  # rows that a record batch may have after a batch that ended at a value of another type
_SCHEMAS: Final = 64  # schemas that are cached

# A decimal has no scale in the log, so it is text, exact to the last digit.
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
# Translation tables for bytes that are numbers of marks: the number of the named mark becomes 1, every other one 0.
_IS_ENTERED, _IS_LEFT = (
    bytes(number == mark for number in range(256)) for mark in (int(update_pb2.ENTERED), int(update_pb2.LEFT))
)
_LIST: Final = pa.list_(pa.string())
_PLACE: Final = pa.binary(PLACE_BYTES)
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(slots=True, frozen=True)
class BatchInfo:
    """The properties that all rows of a record batch share.

    ``key``: the names of the key's columns, in the key's order; empty for a table without a key. The other fields are
    as in :class:`~subscriber_sdk.Update`.
    """

    table: str
    shard: str
    epoch: int
    generation: int
    replayed: bool
    key: tuple[str, ...]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> BatchInfo:
        """Read the properties from a batch that ``on_arrow`` received. Raises :class:`~subscriber_sdk.UsageError` for
        any other batch."""
        metadata = batch.schema.metadata or {}
        if _METADATA not in metadata:
            raise UsageError("this record batch is none that on_arrow got", hint="call BatchInfo.of before changing it")
        given = json.loads(metadata[_METADATA])
        return cls(
            table=given["table"],
            shard=given["shard"],
            epoch=given["epoch"],
            generation=given["generation"],
            replayed=given["replayed"],
            key=tuple(given["key"]),
        )

    def to_json(self) -> str:
        """The properties as JSON, for the metadata of the batch."""
        return json.dumps(
            {
                "table": self.table,
                "shard": self.shard,
                "epoch": self.epoch,
                "generation": self.generation,
                "replayed": self.replayed,
                "key": self.key,
            }
        )


_METADATA: Final = b"wormhole"


class _Places:
    """The transactions of a batch, in the form of :func:`~wormhole.wire.columns.spread`."""

    def __init__(self, batch: Batch) -> None:
        body = batch.body
        self.batch = batch
        self.ended = bisect_right(body.tx_end, len(body.updates))
        self.stops = array("I", body.tx_end[: self.ended])
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
        self.longest = max(map(len, self.sources), default=0) + 1 + number  # bytes of the longest transaction id
        self.reads = frozenset(i for i, source in enumerate(body.sources) if is_read_source(source))
        if isinstance(body.updates, Slices):
            self.data, self.spans = body.updates.data, body.updates.spans
        else:
            rows = list(body.updates)
            ends = [0, *accumulate(map(len, rows))]
            self.data = b"".join(rows)
            self.spans = array("q", chain.from_iterable(pairwise(ends)))

    def write(self, first: int, message: Message) -> None:
        """Write the columns from ``_place`` to ``_left``, for the updates from ``first`` on."""
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
            # READ rows are ordered after the changes at the same place, as in the archive.
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
    """Makes record batches of the updates of one flow. ``before``: whether a batch also has the row before each
    change."""

    def __init__(self, before: bool = False) -> None:
        self._before = before
        self._layouts: dict[int, Layout] = {}
        self._schemas: dict[tuple[object, ...], pa.Schema] = {}
        self._places: _Places | None = None
        self._most = 0  # the most rows of the next batch, limited after a value of another type; 0: no limit

    def take(self, updates: Sequence[Update], begin: int) -> tuple[int, pa.RecordBatch]:
        """Make a record batch of ``updates`` from the index ``begin`` on. Returns its number of updates, and the batch.

        The batch ends before the next table or schema, or before a value of another type than its column. Raises
        :class:`~wormhole.model.errors.DecodeError` or :class:`~wormhole.model.errors.ProtocolError` for an update that
        cannot be read.
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
            # An error from the properties of an update names the update.
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
        cells = Cells(places.data, places.spans, first, count, layout)
        if cells.ops.translate(None, _KNOWN):
            raise ProtocolError("an update has an operation that this release does not know")
        kinds, until = kinds_of(cells.kinds, count, layout.kinds)
        if until < count:
            return self._made(places, first, until)
        own, keys = len(layout.names), len(layout.key)
        columns = own + 3 * keys
        spans = places.spans
        # A close upper bound for the bytes of the batch: unused memory would be allocated and freed at each batch. The
        # factor 2 is for the row before the change.
        most = (spans[2 * (first + count) - 1] - spans[2 * first]) * (2 if self._before else 1)
        most += count * (width_of(kinds) + places.longest + PLACE_BYTES + 50) + 40 * len(kinds) + 600
        message = Message(count, pairs(kinds), most)
        cells.write(0, kinds[:own], message)
        message.node()
        message.empty()
        message.text(message.at, write_names(_wide(cells.ops), *_OPNAMES, message.out, message.at), count)
        places.write(first, message)
        cells.unavailable(0, own, layout.shown, message)
        for begin in (own + keys, own + 2 * keys) if keys else ():
            cells.rows(begin, kinds[begin : begin + keys], message)
        if self._before:
            cells.rows(columns, kinds[columns:], message)
            cells.unavailable(columns, layout.own, layout.shown, message)
        arrow = self._schema(schema, layout, kinds, places.batch)
        return count, pa.ipc.read_record_batch(pa.py_buffer(message.written()), arrow)

    def _layout(self, schema: Schema) -> Layout:
        found = self._layouts.get(schema.id)
        if found is None:
            if len(self._layouts) >= _SCHEMAS:
                self._layouts.clear()
            found = self._layouts[schema.id] = Layout.of(schema, before=self._before)
        return found

    def _schema(self, schema: Schema, layout: Layout, kinds: bytearray, batch: Batch) -> pa.Schema:
        known = (schema.id, bytes(kinds), batch.shard, batch.epoch, batch.generation, batch.replayed)
        found = self._schemas.get(known)
        if found is None:
            if len(self._schemas) >= _SCHEMAS:
                self._schemas.clear()
            found = self._schemas[known] = _arrow_schema(schema, layout, kinds, batch, before=self._before)
        return found


def _arrow_schema(schema: Schema, layout: Layout, kinds: bytearray, batch: Batch, *, before: bool) -> pa.Schema:
    def field(name: str, kind: int) -> pa.Field:
        return pa.field(name, _TYPES[kind], metadata={_METADATA: NAMES[kind]})

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
    return pa.schema(fields, metadata={_METADATA: info.to_json()})


def _wide(values: bytearray) -> memoryview:
    """The same numbers with four bytes for each."""
    wide = bytearray(4 * len(values))
    wide[::4] = values
    return memoryview(wide).cast("i")


_OPERATIONS: Final = Names.of(_OPS)
_OPNAMES: Final = (_OPERATIONS.joined, _OPERATIONS.ends)
