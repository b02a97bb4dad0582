"""Reduces the changes of each key to fewer ones that fold to the same result.

A task does this with its own changes before they are joined with those of other tasks. It works on whole columns, and
does most of the work of replay, snapshot and export.

A change of a whole row contains every value, so earlier changes of the row have no effect on the rows at the end
(:func:`rows_that_count`). A replay's net change begins with the first change of a key. So :func:`combined` keeps this
change, and one row for all later ones::

    whole rows                     the last one
    parts of rows                  the last one, with the earlier values of the columns that it lacks
    a DELETE with later changes    the last such DELETE, and one row for the changes after it

The DELETE stays also if the row is whole after it, because a later change may have a schema with another column. The
row then lacks this column, and must not get the value from before the DELETE. If an UPSERT of a whole row is the last
change, no DELETE is needed. Only UPDATEs lack columns, and a log with UPSERTs has no UPDATEs.

So at most three rows of a key are left, however often it changed. Combined rows can be combined again with later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import U64
from spark_replay.images import RowImage, encoded, fold, read_row
from wormhole.model.schema import Schema
from wormhole.model.values import Op

__all__ = ["Written", "combined", "groups", "keyless", "not_superseded", "replaced", "rows_that_count"]

_INSERT, _UPDATE, _UPSERT, _DELETE = (op.value for op in (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.DELETE))
_WINDOW_BYTES: Final = 64 << 20
_ROW: Final = ("shard", "table", "key")
_WHOLE: Final = [op.value for op in (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.READ, Op.DELETE)]
_OF_ONE_ROW: Final = [*_WHOLE, Op.MERGE.value]
Written = tuple[str, bytes, bool]
"""An operation, its update, and whether the update lacks columns."""


def keyless(keys: pa.Array) -> pa.Array:
    """Whether each value of the archive's column ``key`` belongs to a table without a key.

    Each update of such a table counts as the change of a separate row.
    """
    return pc.equal(pc.binary_length(keys), 0)


def numbers(rows: pa.RecordBatch, *more: pa.Array) -> pa.Array:
    """A number for each row, equal for equal table, key and ``more``. Numbers are sorted much faster than keys.

    Each row without a key has its own number."""
    found, count = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows), 1
    for column in (rows.column("key"), rows.column("table"), *more):
        named = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        found = pc.add(pc.multiply(found, len(named.dictionary)), named.indices.cast(pa.int64()))
        count *= len(named.dictionary)
    alone = keyless(rows.column("key"))
    if not pc.any(alone).as_py():
        return found
    return pc.if_else(alone, pa.array(range(count, count + rows.num_rows), pa.int64()), found)  # above all keys


def groups(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Group rows by key. ``rows``: ascending by place, in one piece.

    Returns an order by key and then place, and where in this order each key begins and ends."""
    of = numbers(rows)
    order = pc.array_sort_indices(of)
    of = of.take(order)
    count = rows.num_rows
    cuts = pc.add(pc.indices_nonzero(pc.not_equal(of.slice(1), of.slice(0, max(0, count - 1)))), 1).cast(pa.int64())
    first, end = (pa.array(one, pa.int64()) for one in ([0] * bool(count), [count] * bool(count)))
    return order, pa.concat_arrays([first, cuts]), pa.concat_arrays([cuts, end])


def combined(rows: pa.RecordBatch, schemas: Mapping[int, Schema]) -> pa.RecordBatch:
    """Fewer rows, ascending by place, of which :func:`~spark_replay.replay.latest.folded` makes the same rows.

    ``rows``: the rows of one shard, ascending by place, in one piece. ``schemas``: the schemas of the rows, by id.
    """
    order, begins, ends = groups(rows)
    if len(begins) == rows.num_rows:
        return rows
    firsts, lasts = order.take(begins), order.take(pc.subtract(ends, 1))
    ops, partial = rows.column("op").cast(pa.string()), rows.column("partial")
    # If the first and the last change both have the whole row, only the last one is needed.
    plain = pc.and_not(pc.equal(ops, _UPSERT), partial)
    kept = [lasts, firsts.filter(pc.invert(pc.and_(plain.take(firsts), plain.take(lasts))))]
    deletes = pc.equal(ops, _DELETE)
    if pc.any(deletes).as_py():
        kept.append(order.take(_followed(deletes.take(order), ends, pc.invert(plain.take(lasts)))))
    chains = pc.and_(pc.greater(pc.subtract(ends, begins), 2), partial.take(lasts))
    written: dict[int, Written] = {}
    if pc.any(chains).as_py():
        chain = _Chain(rows, schemas)
        at = order.to_pylist()
        for begin, end in zip(begins.filter(chains).to_pylist(), ends.filter(chains).to_pylist(), strict=True):
            row = chain.of(at[begin:end])
            if row is not None:
                written[at[end - 1]] = row
    wanted = pc.unique(pa.concat_arrays(kept))
    wanted = wanted.take(pc.array_sort_indices(wanted))
    return replaced(rows.take(wanted), wanted, written)


def _followed(deletes: pa.Array, ends: pa.Array, wanted: pa.Array) -> pa.Array:
    """The last DELETE of each key, if other changes of the key follow it.

    ``deletes``: whether a row is a DELETE, for each in an order by key and then place. ``ends``: where each key ends in
    this order. ``wanted``: for each key, whether its DELETE is wanted. Returns numbers in the order."""
    deletes = pc.indices_nonzero(deletes).cast(pa.int64())
    keys = pa.array(range(len(ends)), pa.int64())
    of = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, keys)).take(deletes)
    last = pc.not_equal(of.slice(1), of.slice(0, len(of) - 1))
    last = pa.concat_arrays([last, pa.array([True])])
    return deletes.filter(pc.and_(pc.and_(last, wanted.take(of)), pc.less(deletes, pc.subtract(ends.take(of), 1))))


class _Chain:
    """Combines the changes of one key after the first, if the last of them is a part of a row."""

    def __init__(self, rows: pa.RecordBatch, schemas: Mapping[int, Schema]) -> None:
        self._ops = rows.column("op").cast(pa.string()).to_pylist()
        self._partial = rows.column("partial").to_pylist()
        self._schema_ids = rows.column("schema_id")
        self._updates = rows.column("update")
        self._schemas = schemas

    def of(self, changes: list[int]) -> Written | None:
        """The last change, with the changes since the last DELETE (or since the first change) combined into it.

        ``changes``: three rows or more, by place. Returns ``None`` if the last change stays as it is."""
        start, inserted = 1, False  # the first of the changes that are combined, and whether they follow a DELETE
        for number, at in enumerate(changes[1:], 1):
            after_delete = self._ops[changes[number - 1]] == _DELETE
            if after_delete or not self._partial[at] or self._ops[at] != _UPDATE:
                start = number
            inserted = inserted or after_delete
        if start == len(changes) - 1:
            return None
        image: RowImage | None = None
        for at in changes[start:]:
            schema = self._schemas[self._schema_ids[at].as_py() & U64]
            image = fold(image, schema, read_row(self._updates[at].as_py()))
        assert image is not None
        # Every value that an INSERT lacks is unknown, so unknown values need no mark of their own.
        op = Op.INSERT if inserted else Op.UPDATE
        return op.value, encoded(image, op, last=inserted), not image.complete


def replaced(rows: pa.RecordBatch, at: pa.Array, written: Mapping[int, Written]) -> pa.RecordBatch:
    """``rows`` with the new content in ``written`` for some. ``at``: the number of each row, ascending."""
    if not written:
        return rows
    mask = pc.is_in(at, pa.array(written, at.type))
    found = zip(*(written[one] for one in sorted(written)), strict=True)
    for name, values in zip(("op", "update", "partial"), found, strict=True):
        at_column = rows.schema.get_field_index(name)
        field, column = rows.schema.field(at_column), rows.column(name)
        named = pa.types.is_dictionary(column.type)
        if named:
            column = column.cast(pa.string())
        column = pc.replace_with_mask(column, mask, pa.array(values, column.type))
        rows = rows.set_column(at_column, field, column.dictionary_encode() if named else column)
    return rows


def rows_that_count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Archive rows without changes that have no effect on the rows at the end.

    The changes of each row have to ascend by place. Changes are compared within windows of 64 MiB, so some of these
    changes may stay."""
    held: list[pa.RecordBatch] = []
    size = least = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size > max(_WINDOW_BYTES, 2 * least):
            held = not_superseded(held)
            size = least = sum(one.nbytes for one in held)
            if least > _WINDOW_BYTES // 2:  # there are many keys, so little would be gained
                yield from held
                held, size, least = [], 0, 0
    if held:
        yield from not_superseded(held)


def not_superseded(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows, except those that a later row makes superfluous."""
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    of, at = numbers(rows, rows.column("shard")), pa.array(range(rows.num_rows), pa.int64())
    whole = pc.and_not(pc.is_in(rows.column("op"), pa.array(_WHOLE)), rows.column("partial"))
    if "_left" in rows.schema.names:
        whole = pc.and_not(whole, rows.column("_left"))  # the row is in its own group too
    moved = pc.is_valid(rows.column("old_key"))
    if pc.any(moved).as_py():  # the image before a key change may be needed under the former key
        whole = pc.and_not(whole, pc.is_in(rows.column("key"), rows.column("old_key").filter(moved)))
    last = pa.table({"of": of, "at": at}).filter(whole).group_by("of").aggregate([("at", "max")]).combine_chunks()
    reached = last.column("at_max").take(pc.index_in(of, last.column("of")))
    gone: Any = pc.fill_null(pc.less(at, reached), False)
    alone = pc.is_in(rows.column("op"), pa.array(_OF_ONE_ROW))
    return [rows.filter(pc.invert(pc.and_(gone, pc.and_not(alone, moved))))]
