"""One row per key instead of every change: what the changes of a range come to.

Rows come sorted by table, key and place; those of one key are folded to one::

    last change      first change     the row says
    DELETE           any              DELETE
    UPSERT           any              UPSERT    (the log cannot tell what was there)
    INSERT, UPDATE   INSERT           INSERT    there was no such row as the range began
                     UPDATE, DELETE   UPDATE    there was one
                     UPSERT           UPSERT

with the values after the last change, and as ``before`` the values before the first one: the net change of the range. Where the log holds
parts of rows, the values are laid over each other column by column; what is absent erases nothing. A partial INSERT after a DELETE stays
beside it, because an UPDATE would leave in place what the DELETE removed. A key that changed once keeps its bytes.

Everything but :func:`latest_rows` is free of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import TYPES, ShardFiles, read, schemas_of
from spark_replay.images import Image, encoded, fold, read_row
from wormhole.errors import ReplayError
from wormhole.schema import Schema
from wormhole.values import UNAVAILABLE, Op
from wormhole.wire.v1 import update_pb2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FOLDABLE", "folded", "latest_rows", "net_op"]

FOLDABLE: Final = (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE)
"""The operations that say what becomes of one row. The others (MERGE, DELETE_RANGE, TRUNCATE) have to be replayed as they came."""

_INSERT: Final[str] = Op.INSERT.value
_UPDATE: Final[str] = Op.UPDATE.value
_UPSERT: Final[str] = Op.UPSERT.value
_DELETE: Final[str] = Op.DELETE.value
_KEY: Final = ("table", "key")
_U64: Final = (1 << 64) - 1


def net_op(first: str, last: str) -> str:
    """What the changes of one key come to: the table at the top of the module."""
    if last in (_DELETE, _UPSERT):
        return last
    return {_INSERT: _INSERT, _UPSERT: _UPSERT}.get(first, _UPDATE)


@dataclass(slots=True)
class _Change:
    """A row of the archive: the whole of it as a batch of one, and what is looked at."""

    op: str
    schema_id: int
    update: bytes
    partial: bool
    row: pa.RecordBatch

    @classmethod
    def of(cls, batch: pa.RecordBatch, at: int) -> Self:
        def cell(name: str) -> Any:
            return batch.column(name)[at].as_py()

        # Taken, not sliced: a slice keeps the whole batch.
        return cls(cell("op"), cell("schema_id"), cell("update"), cell("partial"), batch.take(pa.array([at])))


@dataclass(slots=True)
class _Group:
    """The changes of one key so far, in memory that does not grow with them.

    ``image``: the row after ``last``, where that alone does not say it. ``removed``: what came before a partial INSERT, up to and with the
    DELETE; it counts no more once the row is whole again.
    """

    first: _Change
    last: _Change
    changes: int = 1
    image: Image | None = None
    removed: _Group | None = None


class _Folder:
    """Folds the groups of one partition. ``by_values``: see :func:`latest_rows`."""

    def __init__(self, schemas: Mapping[int, Schema], by_values: bool) -> None:
        self._schemas = schemas
        self._by_values = by_values
        self._open: _Group | None = None

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The next rows; what they show to be over comes back."""
        _refuse_others(batch)
        starts = _starts(batch)
        if self._open is not None and not _same_key(self._open.last.row, batch):
            yield from self._closed(self._open)
            self._open = None
        # The first group may have begun in an earlier batch and the last may go on in the next one.
        if self._open is not None:
            self._extend(self._open, batch, 0, starts[1])
            starts = starts[1:]
        if len(starts) > 1:
            if self._open is not None:
                yield from self._closed(self._open)
            yield from self._whole(batch, starts[:-1])
            self._open = self._begun(batch, starts[-2], starts[-1])

    def rest(self) -> Iterator[pa.RecordBatch]:
        """After the last batch."""
        if self._open is not None:
            yield from self._closed(self._open)

    def _begun(self, batch: pa.RecordBatch, start: int, end: int) -> _Group:
        change = _Change.of(batch, start)
        group = _Group(change, change, image=self._image(None, change) if change.partial else None)
        self._extend(group, batch, start + 1, end)
        return group

    def _extend(self, group: _Group, batch: pa.RecordBatch, start: int, end: int) -> None:
        if start < end and not pc.any(batch.column("partial").slice(start, end - start)).as_py():
            # Only the last counts: it is a whole row, or none.
            _advance(group, _Change.of(batch, end - 1), end - start, None)
            return
        for at in range(start, end):
            change = _Change.of(batch, at)
            if change.partial and change.op == _INSERT and group.last.op == _DELETE:
                group.removed = replace(group)
                group.first = group.last = change
                group.changes, group.image = 1, self._image(None, change)
            else:
                image = self._image(self._before(group), change) if change.partial else None
                _advance(group, change, 1, image)

    def _before(self, group: _Group) -> Image | None:
        return self._image(None, group.last) if group.image is None else group.image

    def _image(self, base: Image | None, change: _Change) -> Image | None:
        return fold(base, self._schemas[change.schema_id & _U64], read_row(change.update))

    def _whole(self, batch: pa.RecordBatch, starts: list[int]) -> Iterator[pa.RecordBatch]:
        """Groups that begin and end in this batch; nearly all of them have one change, or need no other bytes than the last one's."""
        if len(starts) < 2:
            return
        begins = pa.array(starts[:-1], pa.int64())
        lasts = pc.subtract(pa.array(starts[1:], pa.int64()), 1)
        changes = pc.add(pc.subtract(lasts, begins), 1)
        plain = pc.or_(pc.equal(changes, 1), pc.equal(batch.column("op").take(lasts), _UPSERT))
        kept = pc.indices_nonzero(plain)
        yield _counted(batch.take(lasts.take(kept)), changes.take(kept))
        for at in pc.indices_nonzero(pc.invert(plain)).to_pylist():
            yield from self._closed(self._begun(batch, starts[at], starts[at + 1]))

    def _closed(self, group: _Group) -> Iterator[pa.RecordBatch]:
        if group.removed is not None:
            yield self._row(group.removed)
        yield self._row(group)

    def _row(self, group: _Group) -> pa.RecordBatch:
        first, last = group.first, group.last
        if group.changes == 1 or last.op == _UPSERT:
            return _counted(last.row, [group.changes])
        op = net_op(first.op, last.op)
        if self._by_values and op != _DELETE:
            op = _UPSERT
        row = read_row(last.update if group.image is None else encoded(group.image, Op(op)))
        row.op = update_pb2.Op.Value(op.upper())  # type: ignore[assignment]
        row.ClearField("before")
        if not self._by_values and first.op != _INSERT and first.schema_id == last.schema_id:
            row.before.extend(read_row(first.update).before)
        partial = group.image is not None and any(value is UNAVAILABLE for value in group.image.values)
        changed = {"op": op, "update": row.SerializeToString(), "partial": partial}
        taken = last.row
        for name, value in changed.items():
            at = taken.schema.get_field_index(name)
            taken = taken.set_column(at, taken.schema.field(at), pa.array([value], taken.schema.field(at).type))
        return _counted(taken, [group.changes])


def _advance(group: _Group, change: _Change, changes: int, image: Image | None) -> None:
    group.last, group.image = change, image
    group.changes += changes
    whole = image is None or all(value is not UNAVAILABLE for value in image.values)
    if group.removed is not None and whole:
        group.first = group.removed.first
        group.changes += group.removed.changes
        group.removed = None


def _counted(rows: pa.RecordBatch, changes: Any) -> pa.RecordBatch:
    counts = changes if isinstance(changes, pa.Array) else pa.array(changes, pa.int64())
    return rows.append_column(pa.field("changes", pa.int64()), counts.cast(pa.int64()))


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Where a key begins that the row before does not have, and the end of the batch."""
    rows = batch.num_rows
    of_table, of_key = (pc.not_equal(column.slice(1), column.slice(0, rows - 1)) for column in map(batch.column, _KEY))
    differs = pc.or_(of_table, of_key)
    return [0, *pc.add(pc.indices_nonzero(differs), 1).to_pylist(), rows]


def _same_key(row: pa.RecordBatch, batch: pa.RecordBatch) -> bool:
    return all(row.column(name)[0].as_py() == batch.column(name)[0].as_py() for name in _KEY)


def _refuse_others(batch: pa.RecordBatch) -> None:
    known = pa.array([op.value for op in FOLDABLE])
    if not pc.all(pc.is_in(batch.column("op"), known)).as_py():
        others = sorted(set(batch.column("op").to_pylist()) - set(known.to_pylist()))
        raise ReplayError(
            f"the range holds {', '.join(others)}, which no row per key can stand for, although its manifest does not say so",
            hint="replay with --mode log; `wormholectl archive verify` shows what the manifest says wrongly",
        )


def folded(
    batches: Iterable[pa.RecordBatch], schemas: Mapping[int, Schema], *, by_values: bool = False
) -> Iterator[pa.RecordBatch]:
    """Rows of one shard sorted by table, key and place, in batches cut anywhere, to rows per key with a column ``changes`` more.

    Raises :class:`~wormhole.errors.ReplayError` for an operation that cannot be folded.
    """
    folder = _Folder(schemas, by_values)
    for batch in batches:
        if batch.num_rows:
            yield from folder.add(batch)
    yield from folder.rest()


def latest_rows(spark: SparkSession, store: ArchiveStore, chosen: ShardFiles, *, by_values: bool = False) -> DataFrame:
    """One row per key of a shard's range, in no order, with the archive's columns and ``changes``: for how many it stands.

    Places are those of the last changes, so they differ. ``by_values``: the flow's filter asks for values. The subscriber may hold, beyond
    its datamarker, what passed in the middle of the range and does not at its end; so rows of several changes come as UPSERT without
    ``before``, which to a filter means that they may have passed.
    """
    fold_all = partial(folded, schemas=schemas_of(store, [chosen]), by_values=by_values)
    rows = read(spark, store, [chosen]).drop("shard").repartition(*_KEY).sortWithinPartitions(*_KEY, "place")
    return rows.mapInArrow(fold_all, f"{TYPES}, changes bigint")
