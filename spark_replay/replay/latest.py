"""One row per key instead of every change: what the changes of a range come to.

Rows come with those of one key together, by place; they are folded to one::

    last change      first change     the row says
    DELETE           any              DELETE
    UPSERT, READ     any              UPSERT    (it does not say what was there)
    INSERT, UPDATE   INSERT           INSERT    there was no such row as the range began
                     UPDATE, DELETE   UPDATE    there was one
                     UPSERT, READ     UPSERT

with the values after the last change, and as ``before`` the values before the first one: the net change of the range.
Where the log holds parts of rows, the values are laid over each other column by column; what is absent erases nothing.
A partial INSERT after a DELETE stays beside it, because an UPDATE would leave in place what the DELETE removed. A key
that changed once keeps its bytes.

Rows of a table without a key cannot be identified: each of its changes stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.images import Image, encoded, fold, read_row
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.v1 import update_pb2

__all__ = ["FOLDABLE", "folded", "keyless", "net_op", "refuse_others"]

FOLDABLE: Final = (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE, Op.READ)
"""The operations that say what becomes of one row.

The others (MERGE, DELETE_RANGE, TRUNCATE) have to be replayed as they came.
"""

_INSERT: Final[str] = Op.INSERT.value
_UPDATE: Final[str] = Op.UPDATE.value
_UPSERT: Final[str] = Op.UPSERT.value
_DELETE: Final[str] = Op.DELETE.value
_READ: Final[str] = Op.READ.value
_NUMBERS: Final = {op.value: update_pb2.Op.Value(op.name) for op in FOLDABLE}
_KEY: Final = ("table", "key")
_U64: Final = (1 << 64) - 1


def net_op(first: str, last: str) -> str:
    """What the changes of one key come to: the table at the top of the module."""
    if last in (_DELETE, _UPSERT, _READ):
        return _UPSERT if last == _READ else last
    return {_INSERT: _INSERT, _UPSERT: _UPSERT, _READ: _UPSERT}.get(first, _UPDATE)


@dataclass(slots=True)
class _Change:
    """What is looked at of a row of the archive.

    ``at``: which row of its batch; ``kept``: the row alone, once its batch is gone.
    """

    op: str
    schema_id: int
    update: bytes
    partial: bool
    at: int
    kept: pa.RecordBatch | None = None

    def keep(self, batch: pa.RecordBatch) -> None:
        """``batch`` goes. Taken, not sliced: a slice would keep the whole batch."""
        if self.kept is None:
            self.kept = batch.take(pa.array([self.at]))
            self.at = 0


@dataclass(slots=True)
class _Group:
    """The changes of one key so far, in memory that does not grow with them.

    ``image``: the row after ``last``, where that alone does not say it. ``removed``: what came before a partial INSERT,
    up to and with the DELETE; it counts no more once the row is whole again.
    """

    first: _Change
    last: _Change
    changes: int = 1
    image: Image | None = None
    removed: _Group | None = None

    def keep(self, batch: pa.RecordBatch) -> None:
        """``batch`` goes, and the group goes on."""
        self.last.keep(batch)
        if self.removed is not None:
            self.removed.last.keep(batch)


@dataclass(frozen=True, slots=True)
class _Net:
    """What a group comes to: the row of ``change`` with these values."""

    change: _Change
    op: str
    update: bytes
    partial: bool
    changes: int


class _Cells:
    """The values of a batch that are looked at: few of them, or once many are needed all."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._columns = [batch.column(name) for name in ("op", "schema_id", "update", "partial")]
        self._lists: list[list[Any]] | None = None
        self._some_partial = bool(pc.any(self._columns[3]).as_py())

    def need_many(self) -> None:
        """Convert the columns at once."""
        self._lists = self._lists or [column.to_pylist() for column in self._columns]

    def change(self, at: int) -> _Change:
        """One row."""
        if self._lists is not None:
            ops, schema_ids, updates, partials = self._lists
            return _Change(ops[at], schema_ids[at], updates[at], partials[at], at)
        op, schema_id, update, partial = (column[at].as_py() for column in self._columns)
        return _Change(op, schema_id, update, partial, at)

    def any_partial(self, start: int, end: int) -> bool:
        """Whether one of these rows may lack columns."""
        if not self._some_partial:
            return False
        if self._lists is not None:
            return any(self._lists[3][start:end])
        return bool(pc.any(self._columns[3].slice(start, end - start)).as_py())


class _Folder:
    """Folds the groups of one part of the keys. ``by_values``: see :func:`folded`."""

    def __init__(self, schemas: Mapping[int, Schema], by_values: bool) -> None:
        self._schemas = schemas
        self._by_values = by_values
        self._open: _Group | None = None

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The next rows; what they show to be over comes back."""
        refuse_others(batch)
        cells, starts = _Cells(batch), _starts(batch)
        # The first group may have begun in an earlier batch and the last may go on in the next one.
        if self._open is not None and _same_key(self._open.last.kept, batch):
            self._extend(self._open, cells, 0, starts[1])
            self._open.keep(batch)
            starts = starts[1:]
        if len(starts) == 1:
            return
        yield from self.rest()
        yield from self._whole(batch, cells, starts[:-1])
        self._open = self._begun(cells, starts[-2], starts[-1])
        self._open.keep(batch)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The group that may have gone on: it does not."""
        if self._open is not None:
            for net in self._nets(self._open):
                yield _rows(net.change.kept, [net])
        self._open = None

    def _begun(self, cells: _Cells, start: int, end: int) -> _Group:
        change = cells.change(start)
        group = _Group(change, change, image=self._image(None, change) if change.partial else None)
        self._extend(group, cells, start + 1, end)
        return group

    def _extend(self, group: _Group, cells: _Cells, start: int, end: int) -> None:
        if start < end and not cells.any_partial(start, end):
            # Only the last counts: it is a whole row, or none.
            _advance(group, cells.change(end - 1), end - start, None)
            return
        for at in range(start, end):
            change = cells.change(at)
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

    def _whole(self, batch: pa.RecordBatch, cells: _Cells, starts: list[int]) -> Iterator[pa.RecordBatch]:
        """Groups that begin and end in this batch.

        Of most the last change is all: they have no other, or it says what the row is.
        """
        if len(starts) < 2:
            return
        begins = pa.array(starts[:-1], pa.int64())
        lasts = pc.subtract(pa.array(starts[1:], pa.int64()), 1)
        changes = pc.add(pc.subtract(lasts, begins), 1)
        plain = pc.or_(pc.equal(changes, 1), pc.equal(batch.column("op").take(lasts), _UPSERT))
        kept = pc.indices_nonzero(plain)
        yield _counted(batch.take(lasts.take(kept)), changes.take(kept))
        if len(kept) < len(plain):
            cells.need_many()
            others = pc.indices_nonzero(pc.invert(plain)).to_pylist()
            groups = (self._begun(cells, starts[at], starts[at + 1]) for at in others)
            yield _rows(batch, [net for group in groups for net in self._nets(group)])

    def _nets(self, group: _Group) -> Iterator[_Net]:
        if group.removed is not None:
            yield self._net(group.removed)
        yield self._net(group)

    def _net(self, group: _Group) -> _Net:
        first, last = group.first, group.last
        if group.changes == 1 or last.op == _UPSERT:
            return _Net(last, last.op, last.update, last.partial, group.changes)
        op = net_op(first.op, last.op)
        if self._by_values and op != _DELETE:
            op = _UPSERT
        row = read_row(last.update if group.image is None else encoded(group.image, Op(op)))
        row.op = _NUMBERS[op]  # type: ignore[assignment]
        row.ClearField("before")
        if not self._by_values and op != _UPSERT and first.op != _INSERT and first.schema_id == last.schema_id:
            row.before.extend(read_row(first.update).before)
        return _Net(last, op, row.SerializeToString(), not _complete(group.image), group.changes)


def _advance(group: _Group, change: _Change, changes: int, image: Image | None) -> None:
    group.last, group.image = change, image
    group.changes += changes
    if group.removed is not None and _complete(image):
        group.first = group.removed.first
        group.changes += group.removed.changes
        group.removed = None


def _complete(image: Image | None) -> bool:
    return image is None or all(value is not UNAVAILABLE for value in image.values)


def _rows(batch: pa.RecordBatch | None, nets: list[_Net]) -> pa.RecordBatch:
    assert batch is not None
    rows = batch.take(pa.array([net.change.at for net in nets], pa.int64()))
    for name, values in (
        ("op", [net.op for net in nets]),
        ("update", [net.update for net in nets]),
        ("partial", [net.partial for net in nets]),
    ):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
    return _counted(rows, pa.array([net.changes for net in nets], pa.int64()))


def _counted(rows: pa.RecordBatch, changes: pa.Array) -> pa.RecordBatch:
    return rows.append_column(pa.field("changes", pa.int64()), changes)


def keyless(keys: pa.Array) -> pa.Array:
    """Of the values of the archive's column ``key``: which are of a table without a key. No two of such rows are one
    row's changes."""
    return pc.equal(pc.binary_length(keys), 0)


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Where a key begins that the row before does not have, and the end of the batch. Each row without a key is a
    beginning."""
    rows = batch.num_rows
    of_table, of_key = (pc.not_equal(column.slice(1), column.slice(0, rows - 1)) for column in map(batch.column, _KEY))
    differs = pc.or_(pc.or_(of_table, of_key), keyless(batch.column("key").slice(1)))
    return [0, *pc.add(pc.indices_nonzero(differs), 1).to_pylist(), rows]


def _same_key(row: pa.RecordBatch | None, batch: pa.RecordBatch) -> bool:
    if row is None or not row.column("key")[0].as_py():
        return False
    return all(row.column(name)[0].as_py() == batch.column(name)[0].as_py() for name in _KEY)


def refuse_others(batch: pa.RecordBatch) -> None:
    """Raises :class:`~wormhole.model.errors.ReplayError` for an operation that cannot be folded."""
    known = pa.array([op.value for op in FOLDABLE])
    if not pc.all(pc.is_in(batch.column("op"), known)).as_py():
        others = sorted(set(batch.column("op").to_pylist()) - set(known.to_pylist()))
        raise ReplayError(
            (
                f"the range holds {', '.join(others)}, which no row per key can stand for, although its manifest says "
                "otherwise: the archive is damaged"
            ),
            hint="`wormholectl archive verify --deep` names the files; restore their manifest from a backup",
        )


def folded(
    batches: Iterable[pa.RecordBatch], schemas: Mapping[int, Schema], *, by_values: bool = False
) -> Iterator[pa.RecordBatch]:
    """Rows of one shard, those of one key together and by place, in batches cut anywhere, to rows per key in no order
    with a column ``changes`` more: the number of rows that each replaces. Places are those of the last changes, so they
    differ. Rows without a key come back as they are.

    ``by_values``: the flow's filter asks for values. The subscriber may hold, beyond its datamarker, what passed in the
    middle of the range and does not at its end; so rows of several changes come as UPSERT without ``before``, which to
    a filter means that they may have passed.

    Raises :class:`~wormhole.model.errors.ReplayError` for an operation that cannot be folded.
    """
    folder = _Folder(schemas, by_values)
    for batch in batches:
        if batch.num_rows:
            yield from folder.add(batch)
    yield from folder.rest()
