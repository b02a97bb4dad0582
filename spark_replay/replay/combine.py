"""Fewer rows that fold to the same: what a task makes of the changes that it has before others add theirs.

Of a key's changes the first one stays, since the net change begins with it, and one row that says what those behind it
come to::

    whole rows, deletes      the last one
    parts of rows            the last one, with what the earlier ones say of the columns that it lacks
    a delete and then a partial INSERT, not whole again to the end      both, and what comes behind them

So of a key there are four rows at the most, however often it changed, and what was combined can be combined again with
what comes behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.images import read_row
from spark_replay.replay.keyed import numbers
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import Row, number_of_op
from wormhole.wire.v1 import update_pb2

__all__ = ["combined"]

_INSERT, _UPDATE, _UPSERT, _DELETE = (op.value for op in (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE))
_U64: Final = (1 << 64) - 1
_Written = tuple[bytes, bool]  # an UPDATE, and whether it lacks columns


def combined(rows: pa.RecordBatch, schemas: Mapping[int, Schema]) -> pa.RecordBatch:
    """Rows of one shard ascending by place, in one piece, to rows ascending by place of which
    :func:`~spark_replay.replay.latest.folded` makes the same. ``schemas``: of the rows, by id.
    """
    of = numbers(rows)
    order = pc.array_sort_indices(of)
    of = of.take(order)
    count = rows.num_rows
    cuts = pc.add(pc.indices_nonzero(pc.not_equal(of.slice(1), of.slice(0, count - 1))), 1).cast(pa.int64())
    begins = pa.concat_arrays([pa.array([0], pa.int64()), cuts])
    ends = pa.concat_arrays([cuts, pa.array([count], pa.int64())])
    if len(begins) == count:
        return rows
    firsts, lasts = order.take(begins), order.take(pc.subtract(ends, 1))
    partial = rows.column("partial")
    # Of two whole rows without a row before them, the second one says it all.
    plain = pc.and_not(pc.equal(rows.column("op").cast(pa.string()), _UPSERT), partial)
    kept = [lasts, firsts.filter(pc.invert(pc.and_(plain.take(firsts), plain.take(lasts))))]
    chains = pc.and_(pc.greater(pc.subtract(ends, begins), 2), partial.take(lasts))
    written: dict[int, _Written] = {}
    if pc.any(chains).as_py():
        chain = _Chain(rows, schemas)
        at = order.to_pylist()
        for begin, end in zip(begins.filter(chains).to_pylist(), ends.filter(chains).to_pylist(), strict=True):
            found, row = chain.of(at[begin:end])
            kept.append(pa.array(found, order.type))
            if row is not None:
                written[at[end - 1]] = row
    wanted = pc.unique(pa.concat_arrays(kept))
    wanted = wanted.take(pc.array_sort_indices(wanted))
    return _replaced(rows.take(wanted), wanted, written)


class _Chain:
    """What the changes of one key behind the first come to, where the last of them is a part of a row."""

    def __init__(self, rows: pa.RecordBatch, schemas: Mapping[int, Schema]) -> None:
        self._ops = rows.column("op").cast(pa.string()).to_pylist()
        self._partial = rows.column("partial").to_pylist()
        self._schema_ids = rows.column("schema_id")
        self._updates = rows.column("update")
        self._schemas = schemas

    def of(self, changes: list[int]) -> tuple[list[int], _Written | None]:
        """``changes``: three rows or more, by place. Which of them stay besides the first and the last, and what the
        last says now; ``None``: what it said."""
        stay: list[int] = []
        tail: _Parts | None = None
        before = changes[0]
        for at in changes[1:]:
            if not self._partial[at]:
                stay, tail = [], self._parts(at)
            elif self._ops[at] == _INSERT and self._ops[before] == _DELETE:
                stay, tail = [before, at], None
            elif self._ops[at] == _UPDATE and tail is not None:
                tail = tail.then(self._parts(at))
            else:
                tail = self._parts(at)
            before = at
        return stay, None if tail is None else tail.written()

    def _parts(self, at: int) -> _Parts:
        schema = self._schemas[self._schema_ids[at].as_py() & _U64]
        return _Parts(schema, self._ops[at], self._updates[at].as_py())


_ABSENT: Final = update_pb2.Value(unavailable=True)
_UNKNOWN: Final = update_pb2.Value()
"""What a change says of a column that has another value than before, and not which."""


@dataclass(slots=True)
class _Parts:
    """What a change says of the row, parsed once another is laid over it. ``values`` are those of the schema's columns:
    one that is unavailable is as it was before, one without a kind is not known any more."""

    schema: Schema
    op: str
    update: bytes
    values: list[Any] | None = None
    key: Iterable[Any] = ()

    def then(self, later: _Parts) -> _Parts:
        """This change and an UPDATE behind it."""
        self._parse()
        later._parse()
        assert self.values is not None
        assert later.values is not None
        if self.schema == later.schema:
            base = self.values
        else:
            named = {column.name: value for column, value in zip(self.schema.columns, self.values, strict=True)}
            base = [named.get(column.name, _UNKNOWN) for column in later.schema.columns]
        later.values = [
            old if new.HasField("unavailable") else new for old, new in zip(base, later.values, strict=True)
        ]
        return later

    def _parse(self) -> None:
        if self.values is not None:
            return
        row = read_row(self.update)
        self.key = row.key
        self.values = list(row.after)
        if not self.values:
            of_key = {column.name: value for column, value in zip(self.schema.key, row.key, strict=True)}
            self.values = [of_key.get(column.name, _ABSENT) for column in self.schema.columns]
        if self.op != _UPDATE or row.too_large:
            self.values = [_UNKNOWN if value.HasField("unavailable") else value for value in self.values]

    def written(self) -> _Written | None:
        """What it comes to; ``None``: nothing was laid over it, and it needs no other form."""
        if self.values is None:
            if self.op != _INSERT:
                return None
            self._parse()  # behind a delete it would be another row
        assert self.values is not None
        row = Row(op=number_of_op(Op.UPDATE), key=self.key, after=self.values)  # type: ignore[arg-type]
        lacks = any(value.WhichOneof("kind") in (None, "unavailable") for value in self.values)
        return row.SerializeToString(), lacks


def _replaced(rows: pa.RecordBatch, at: pa.Array, written: Mapping[int, _Written]) -> pa.RecordBatch:
    """``rows``, which were at ``at``, with what was written of some."""
    if not written:
        return rows
    mask = pc.is_in(at, pa.array(written, at.type))
    found = [written[one] for one in sorted(written)]
    for name, values in (
        ("op", [_UPDATE] * len(found)),
        ("partial", [lacks for _, lacks in found]),
        ("update", [update for update, _ in found]),
    ):
        at_column = rows.schema.get_field_index(name)
        field, column = rows.schema.field(at_column), rows.column(name)
        named = pa.types.is_dictionary(column.type)
        if named:
            column = column.cast(pa.string())
        column = pc.replace_with_mask(column, mask, pa.array(values, column.type))
        rows = rows.set_column(at_column, field, column.dictionary_encode() if named else column)
    return rows
