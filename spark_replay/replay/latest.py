"""One row per key instead of every change: what the changes of a range come to.

The changes of each key, which :mod:`spark_replay.combine` has made few, are folded to one row::

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

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import U64
from spark_replay.combine import Written, combined, groups, replaced
from spark_replay.images import RowImage, encoded, fold, read_row
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import Row, number_of_op

__all__ = ["FOLDABLE", "folded", "net_op", "refuse_others"]

FOLDABLE: Final = (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE, Op.READ)
"""The operations that say what becomes of one row.

The others (MERGE, DELETE_RANGE, TRUNCATE) have to be replayed as they came.
"""

_INSERT: Final[str] = Op.INSERT.value
_UPDATE: Final[str] = Op.UPDATE.value
_UPSERT: Final[str] = Op.UPSERT.value
_DELETE: Final[str] = Op.DELETE.value
_READ: Final[str] = Op.READ.value


def net_op(first: str, last: str) -> str:
    """What the changes of one key come to: the table at the top of the module."""
    if last in (_DELETE, _UPSERT, _READ):
        return _UPSERT if last == _READ else last
    return {_INSERT: _INSERT, _UPSERT: _UPSERT, _READ: _UPSERT}.get(first, _UPDATE)


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


def folded(rows: pa.RecordBatch, schemas: Mapping[int, Schema], *, by_values: bool = False) -> Iterator[pa.RecordBatch]:
    """Rows of one shard ascending by place, in one piece, to rows per key in no order. Places are those of the last
    changes, so they differ. Rows without a key come back as they are.

    ``by_values``: the flow's filter asks for values. The subscriber may hold, beyond its datamarker, what passed in the
    middle of the range and does not at its end; so rows of several changes come as UPSERT without ``before``, which to
    a filter means that they may have passed.

    Raises :class:`~wormhole.model.errors.ReplayError` for an operation that cannot be folded.
    """
    refuse_others(rows)
    rows = combined(rows, schemas)
    order, begins, ends = groups(rows)
    lasts = order.take(pc.subtract(ends, 1))
    # Most keys need their last change only: it is the only one, or it has the whole row.
    plain = pc.or_(
        pc.equal(pc.subtract(ends, begins), 1), pc.equal(rows.column("op").cast(pa.string()).take(lasts), _UPSERT)
    )
    yield rows.take(lasts.filter(plain))
    others = pc.invert(plain)
    begins, ends = begins.filter(others).to_pylist(), ends.filter(others).to_pylist()
    if not begins:
        return
    net, at = _Net(rows, schemas, by_values), order.to_pylist()
    written = dict(found for begin, end in zip(begins, ends, strict=True) for found in net.of(at[begin:end]))
    wanted = pa.array(sorted(written), pa.int64())
    yield replaced(rows.take(wanted), wanted, written)


class _Net:
    """What the changes of one key come to, of which there are several."""

    def __init__(self, rows: pa.RecordBatch, schemas: Mapping[int, Schema], by_values: bool) -> None:
        self._ops = rows.column("op").cast(pa.string()).to_pylist()
        self._partial = rows.column("partial").to_pylist()
        self._schemas = [schemas[number & U64] for number in rows.column("schema_id").to_pylist()]
        self._updates = rows.column("update")
        self._by_values = by_values

    def of(self, changes: list[int]) -> Iterator[tuple[int, Written]]:
        """The rows that are left of these, which ascend by place. They are two where a partial INSERT came after a
        DELETE, and the row is not whole again at the end."""
        removed: tuple[int, int, RowImage | None] | None = None
        first = last = changes[0]
        image = self._image(None, first) if self._partial[first] else None  # None: the last change says the row
        for at in changes[1:]:
            if self._partial[at] and self._ops[at] == _INSERT and self._ops[last] == _DELETE:
                removed, first = (first, last, image), at
                image = self._image(None, at)
            else:
                image = self._image(image or self._image(None, last), at) if self._partial[at] else None
            last = at
            if removed is not None and (image is None or image.complete):
                first, removed = removed[0], None
        if removed is not None:
            yield self._net(*removed)
        yield self._net(first, last, image)

    def _row(self, at: int) -> Row:
        return read_row(self._updates[at].as_py())

    def _image(self, base: RowImage | None, at: int) -> RowImage:
        return fold(base, self._schemas[at], self._row(at))

    def _net(self, first: int, last: int, image: RowImage | None) -> tuple[int, Written]:
        op = self._ops[last]
        if first == last or op == _UPSERT:
            return last, (op, self._updates[last].as_py(), self._partial[last])
        op = net_op(self._ops[first], op)
        if self._by_values and op != _DELETE:
            op = _UPSERT
        row = self._row(last) if image is None else read_row(encoded(image, Op(op)))
        row.op = number_of_op(Op(op))  # type: ignore[assignment]
        row.ClearField("before")
        if (
            not self._by_values
            and op != _UPSERT
            and self._ops[first] != _INSERT
            and self._schemas[first] is self._schemas[last]
        ):
            row.before.extend(self._row(first).before)
        return last, (op, row.SerializeToString(), image is not None and not image.complete)
