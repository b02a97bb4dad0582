"""Folds the changes of a range to one row per key, the net change.

:mod:`spark_replay.combine` has already reduced the changes of each key. They are folded to one row::

    last change      first change     the row is
    DELETE           any              DELETE
    UPSERT, READ     any              UPSERT    (whether the key existed is not known)
    INSERT, UPDATE   INSERT           INSERT    the key did not exist at the beginning of the range
                     UPDATE, DELETE   UPDATE    the key existed
                     UPSERT, READ     UPSERT

It has the values after the last change, and as ``before`` the values before the first one. If the log has parts of
rows, values are combined column by column: a column that a change lacks keeps its earlier value. A key that changed
once keeps its bytes.

If the changes after a DELETE do not have all columns of the row, there are two rows: the DELETE, and an INSERT with the
columns that are known. One UPDATE would keep the values that the DELETE removed. The columns at the end of the range
decide this. A row that was whole may lack a column there, because a later change has a schema with another column.

Rows of a table without a key cannot be identified, so each of their changes stays as it is.
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
"""The operations that contain the result for one row.

All other operations (MERGE, DELETE_RANGE, TRUNCATE) have to be replayed as they are.
"""

_INSERT: Final[str] = Op.INSERT.value
_UPDATE: Final[str] = Op.UPDATE.value
_UPSERT: Final[str] = Op.UPSERT.value
_DELETE: Final[str] = Op.DELETE.value
_READ: Final[str] = Op.READ.value


def net_op(first: str, last: str) -> str:
    """The operation of the net change, by the operations of the first and the last change (see the module)."""
    if last in (_DELETE, _UPSERT, _READ):
        return _UPSERT if last == _READ else last
    return {_INSERT: _INSERT, _UPSERT: _UPSERT, _READ: _UPSERT}.get(first, _UPDATE)


def refuse_others(batch: pa.RecordBatch) -> None:
    """Raise :class:`~wormhole.model.errors.ReplayError` for an operation that cannot be folded."""
    known = pa.array([op.value for op in FOLDABLE])
    if not pc.all(pc.is_in(batch.column("op"), known)).as_py():
        others = sorted(set(batch.column("op").to_pylist()) - set(known.to_pylist()))
        raise ReplayError(
            (
                f"the range holds {', '.join(others)}, which no row per key can stand for, although its manifest "
                "records otherwise: the archive is damaged"
            ),
            hint="`wormholectl archive verify --deep` names the files; restore their manifest from a backup",
        )


def folded(rows: pa.RecordBatch, schemas: Mapping[int, Schema], *, by_values: bool = False) -> Iterator[pa.RecordBatch]:
    """Fold rows of one shard, ascending by place and in one piece, to one row per key, in no order.

    Each row has the place of its key's last change, so no two have the same. Rows without a key are returned as they
    are.

    ``by_values``: the flow's filter tests values. The subscriber may already have, beyond its datamarker, a row that
    passed the filter in the middle of the range and does not pass at its end. So the row of several changes is an
    UPSERT without ``before``, for which a filter assumes that the row may have passed.

    Raises :class:`~wormhole.model.errors.ReplayError` for an operation that cannot be folded.
    """
    refuse_others(rows)
    rows = combined(rows, schemas)
    order, begins, ends = groups(rows)
    lasts = order.take(pc.subtract(ends, 1))
    # Most keys need only their last change, because it is the only one or has the whole row.
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
    """Computes the net change of a key with several changes."""

    def __init__(self, rows: pa.RecordBatch, schemas: Mapping[int, Schema], by_values: bool) -> None:
        self._ops = rows.column("op").cast(pa.string()).to_pylist()
        self._partial = rows.column("partial").to_pylist()
        self._schemas = [schemas[number & U64] for number in rows.column("schema_id").to_pylist()]
        self._updates = rows.column("update")
        self._by_values = by_values

    def of(self, changes: list[int]) -> Iterator[tuple[int, Written]]:
        """The net change of ``changes``, which ascend by place.

        It has two rows if changes came after a DELETE, and lack columns of the row at the end."""
        first, last = changes[0], changes[-1]
        if not self._partial[last]:
            yield self._net(first, last, None)
            return
        since = 1 + max((number for number, at in enumerate(changes[:-1]) if self._ops[at] == _DELETE), default=-1)
        image = self._image(changes[since:])
        if since and not image.complete:
            yield self._net(first, changes[since - 1], None)
            op = _UPSERT if self._by_values else net_op(_INSERT, self._ops[last])
            yield last, (op, encoded(image, Op(op)), True)
        else:
            yield self._net(first, last, image)

    def _image(self, changes: list[int]) -> RowImage:
        """The row after the changes."""
        begin = max((number for number, at in enumerate(changes) if not self._partial[at]), default=0)
        image: RowImage | None = None
        for at in changes[begin:]:
            image = fold(image, self._schemas[at], self._row(at))
        assert image is not None
        return image

    def _row(self, at: int) -> Row:
        return read_row(self._updates[at].as_py())

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
