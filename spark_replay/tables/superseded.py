"""Changes that leave no trace in the current rows: dropped where they are read, before Spark moves and sorts them, and
once more before they are folded row by row.

A change of a whole row contains all of it, so a change of the same row before it counts for nothing, unless the row
went on under another key in between. What is left folds to the same rows (:mod:`spark_replay.tables.versions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wormhole.model.values import Op

__all__ = ["not_superseded", "rows_that_count"]

_WINDOW_BYTES: Final = 64 << 20
_ROW: Final = ("shard", "table", "key")
_WHOLE: Final = [op.value for op in (Op.INSERT, Op.UPDATE, Op.UPSERT, Op.READ, Op.DELETE)]
_OF_ONE_ROW: Final = [*_WHOLE, Op.MERGE.value]


def rows_that_count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Archive rows of which those of one row ascend by place, without such changes as far as windows of 64 MiB show
    them."""
    held: list[pa.RecordBatch] = []
    size = least = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > max(_WINDOW_BYTES, 2 * least):
            held = not_superseded(held)
            size = least = sum(one.nbytes for one in held)
            if least > _WINDOW_BYTES // 2:  # many keys: little would be gained
                yield from held
                held, size, least = [], 0, 0
    if held:
        yield from not_superseded(held)


def not_superseded(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows but for those that a later one of them makes superfluous."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    at = pa.chunked_array([pa.array(range(rows.num_rows), pa.int64())])
    keyed = rows.select(_ROW).append_column("at", at)
    moved = pc.is_valid(rows.column("old_key"))
    whole = pc.and_not(pc.is_in(rows.column("op"), pa.array(_WHOLE)), rows.column("partial"))
    if "_left" in rows.column_names:
        whole = pc.and_not(whole, rows.column("_left"))  # it is in its own group, too
    last = keyed.filter(whole).group_by([*_ROW]).aggregate([("at", "max")])
    if pc.any(moved).as_py():  # the image before such a change may be looked for under the former key
        former = rows.select(["shard", "table", "old_key"]).filter(moved).rename_columns([*_ROW])
        last = last.join(former.group_by([*_ROW]).aggregate([]), [*_ROW], join_type="left anti")
    found = keyed.join(last, [*_ROW], join_type="inner")
    gone = found.filter(pc.less(found.column("at"), found.column("at_max"))).column("at")
    alone = pc.is_in(rows.column("op"), pa.array(_OF_ONE_ROW))
    kept: Any = pc.or_(pc.invert(pc.is_in(at, gone.combine_chunks())), pc.or_(moved, pc.invert(alone)))
    return list(rows.filter(kept).to_batches())
