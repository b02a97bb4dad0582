"""From batches of updates to rows of the archive: columns that grow, and are converted to Arrow when they are taken."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import signed
from spark_replay.archive.columns import PLACE_BYTES, SCHEMA, read_place
from wormhole.model.errors import DecodeError
from wormhole.model.position import LogPosition
from wormhole.model.reads import is_read_source, is_read_transaction
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.body import ParsedBody
from wormhole.wire.columns import LARGE, PARTIAL, scan, spread
from wormhole.wire.update import Update, stretch
from wormhole.wire.v1 import update_pb2

__all__ = ["NO_READS", "ReadsAt", "Rows"]

# About the bytes per row of all columns but the bytes of update and key.
_ROW_BYTES: Final = 80
# By number in the wire format; there is no number 0.
_OPS: Final = ("", *(Op[update_pb2.Op.Name(number)].value for number in range(1, 9)))
_KNOWN: Final = bytes(range(1, len(_OPS)))


class ReadsAt(NamedTuple):
    """``rows``: the number of rows that backfills read at ``position``, the newest position with such rows."""

    position: LogPosition
    rows: int


NO_READS: Final = ReadsAt(LogPosition(0, 0, 0), 0)


class Rows:
    """Updates of one shard, in log order, until they are written.

    ``reads``: the rows of backfills that came earlier.

    The columns are plain arrays: a batch from the network may hold one update, for which an Arrow batch would cost more
    than the update.
    """

    def __init__(self, reads: ReadsAt = NO_READS) -> None:
        self.reads = reads
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        """About how many bytes of memory the rows take."""
        self.schemas: dict[int, Schema] = {}
        """The schemas of the rows, by id."""
        self.too_large = 0
        """The number of updates that came without values because of their size."""
        self._updates = bytearray()
        self._sizes = array("i")
        self._keys = bytearray()
        self._key_sizes = array("i")
        self._old_keys = bytearray()
        self._old_sizes = array("i")
        self._ops = bytearray()
        self._flags = bytearray()
        self._places = bytearray()
        self._numbers = array("Q")
        self._indexes = array("i")
        self._times = array("q")
        self._sources: dict[str, int] = {}
        self._source_of = array("i")
        self._ends_tx = bytearray()
        self._tables: dict[str, int] = {}
        self._table_of = array("i")
        self._schema_of = array("q")

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, updates: Sequence[Update]) -> None:
        """Append updates in the order of the SDK. They are all or some of one or more batches.

        Raises :class:`~wormhole.model.errors.DecodeError` for bytes that are not an update. Then no update that follows
        was appended.
        """
        at = 0
        while at < len(updates):
            batch = updates[at].batch
            count, first = len(batch.body.updates), 0
            if at + count > len(updates) or updates[at + count - 1].batch is not batch:
                count, first = stretch(updates, at)
            self.add_body(batch.body, batch.schema_of, first, first + count)
            at += count

    def add_body(
        self, body: ParsedBody, schema_of: Callable[[int], Schema], begin: int = 0, end: int | None = None
    ) -> None:
        """Append the updates of a body from ``begin`` to ``end``, by default all. ``schema_of``: schema by id. Raises
        as :meth:`add`.
        """
        updates = list(body.updates)[begin:end]  # each access to it makes new objects
        count = len(updates)
        if not count:
            return
        blob = b"".join(updates)
        sizes = array("i", map(len, updates))
        ops, flags = bytearray(count), bytearray(count)
        key_sizes, old_sizes = array("i", bytes(4 * count)), array("i", bytes(4 * count))
        keys, old_keys = scan(blob, sizes, ops, flags, key_sizes, old_sizes)
        if unknown := ops.translate(None, _KNOWN):
            raise DecodeError(
                f"an update has the operation {unknown[0]}, which this release does not know",
                hint="install the release of the publisher here too",
                code="release-too-old",
            )
        self._add_schemas(body, schema_of, begin, count)
        self._add_places(body, begin, count)
        self._updates += blob
        self._sizes += sizes
        self._keys += keys
        self._key_sizes += key_sizes
        self._old_keys += old_keys
        self._old_sizes += old_sizes
        self._ops += ops
        self._flags += flags
        self.too_large += flags.count(PARTIAL | LARGE)
        self.size += len(blob) + len(keys) + len(old_keys) + count * _ROW_BYTES

    def _add_schemas(self, body: ParsedBody, schema_of: Callable[[int], Schema], begin: int, count: int) -> None:
        schemas = [schema_of(id_) for id_ in body.schema_ids]
        tables = [self._tables.setdefault(schema.table, len(self._tables)) for schema in schemas]
        ids = [signed(schema.id) for schema in schemas]
        self.schemas.update((schema.id, schema) for schema in schemas)
        index = body.schema_index if len(body.schema_index) <= 1 else body.schema_index[begin : begin + count]
        if len(body.schema_index) <= 1:
            only = index[0] if index else 0
            self._table_of += array("i", (tables[only],)) * count
            self._schema_of += array("q", (ids[only],)) * count
        else:
            self._table_of += array("i", map(tables.__getitem__, index))
            self._schema_of += array("q", map(ids.__getitem__, index))

    def _add_places(self, body: ParsedBody, begin: int, count: int) -> None:
        transactions = len(body.tx_number)
        ended = len(body.tx_end)
        known = [self._sources.setdefault(source, len(self._sources)) for source in body.sources]
        stops = array("I", body.tx_end)
        if ended < transactions:
            stops.append(len(body.updates))
        places = bytearray(PLACE_BYTES * count)
        numbers, indexes, times = (array(code, bytes(size * count)) for code, size in (("Q", 8), ("i", 4), ("q", 8)))
        sources = array("i", bytes(4 * count))
        ends_tx = bytearray(count)
        spread(
            stops,
            ended,
            body.incarnation,
            array("Q", body.tx_file),
            array("Q", body.tx_offset),
            body.first_index,
            array("I", body.update_index),
            places,
            array("Q", body.tx_number),
            array("i", map(known.__getitem__, body.tx_source or (0,))),
            array("q", body.tx_committed_at_us),
            numbers,
            sources,
            times,
            indexes,
            ends_tx,
            begin,
        )
        self._order_reads(body, places, stops, begin, count)
        self._places += places
        self._numbers += numbers
        self._indexes += indexes
        self._times += times
        self._source_of += sources
        self._ends_tx += ends_tx

    def _order_reads(self, body: ParsedBody, places: bytearray, stops: array[int], begin: int, count: int) -> None:
        """Give rows that a backfill read places after the updates of the log at their position."""
        if not any(map(is_read_source, body.sources)):
            return
        at = 0
        for tx, stop in enumerate(stops):
            until = min(stop - begin, count)
            if at < until and is_read_transaction(body.transaction_id(tx)):
                position = body.position_of(tx)
                number = self.reads.rows if self.reads.position == position else 0
                self.reads = ReadsAt(position, number + until - at)
                for row, here in enumerate(range(at, until), number):
                    places[PLACE_BYTES * here : PLACE_BYTES * (here + 1)] = read_place(position, row)
            at = max(at, until)

    def take(self) -> pa.RecordBatch:
        """Remove the rows and return them in the columns of :data:`~spark_replay.archive.columns.SCHEMA`.

        Counts start at 0 again. The schemas stay.
        """
        count = len(self._sizes)
        times = _numbers(pa.int64(), self._times)
        old_sizes = _numbers(pa.int32(), self._old_sizes)
        flags = _numbers(pa.uint8(), self._flags)
        columns = {
            "place": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(PLACE_BYTES), count, [None, pa.py_buffer(self._places)]
            ),
            "tx_source": _named(_numbers(pa.int32(), self._source_of), self._sources),
            "tx_number": _numbers(pa.int64(), self._numbers),
            "tx_index": _numbers(pa.int32(), self._indexes),
            "ends_tx": _numbers(pa.uint8(), self._ends_tx).cast(pa.bool_()),
            "committed_at": pc.if_else(pc.equal(times, _ZERO_64), _NO_TIME, times).cast(pa.timestamp("us", tz="UTC")),
            "op": _named(_numbers(pa.uint8(), self._ops).cast(pa.int32()), _OPS),
            "table": _named(_numbers(pa.int32(), self._table_of), self._tables),
            "key": _bytes(self._keys, self._key_sizes),
            "old_key": pc.if_else(pc.equal(old_sizes, _ZERO_32), _NO_KEY, _bytes(self._old_keys, self._old_sizes)),
            "schema_id": _numbers(pa.int64(), self._schema_of),
            "partial": pc.not_equal(pc.bit_wise_and(flags, _PARTIAL), _NO_FLAG),
            "update": _bytes(self._updates, self._sizes),
        }
        rows = pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
        schemas = self.schemas
        self._clear()
        self.schemas = schemas
        return rows


def _numbers(type_: pa.DataType, values: array[int] | bytearray) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _bytes(data: bytearray | bytes, sizes: array[int]) -> pa.Array:
    """Binary values from their concatenated bytes."""
    ends = pc.cumulative_sum(_numbers(pa.int32(), sizes))
    offsets = pa.concat_arrays([_numbers(pa.int32(), array("i", (0,))), ends])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, offsets.buffers()[1], pa.py_buffer(data)])


def _named(indices: pa.Array, names: Iterable[str]) -> pa.Array:
    """A dictionary of texts, from their ordinals."""
    encoded = [name.encode() for name in names]
    texts = _bytes(b"".join(encoded), array("i", map(len, encoded))).cast(pa.string())
    return pa.DictionaryArray.from_arrays(indices, texts)


# Made from a buffer. To convert a Python object, pyarrow would import pandas if it is installed, which takes 50 MiB.
_ZERO_32: Final = _numbers(pa.int32(), array("i", (0,)))[0]
_ZERO_64: Final = _numbers(pa.int64(), array("q", (0,)))[0]
_NO_TIME: Final = pa.nulls(1, pa.int64())[0]
_NO_KEY: Final = pa.nulls(1, pa.binary())[0]
_NO_FLAG: Final = _numbers(pa.uint8(), bytearray(1))[0]
_PARTIAL: Final = _numbers(pa.uint8(), bytearray((PARTIAL,)))[0]
