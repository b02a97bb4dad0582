"""The rows that a baseline read, as rows of the archive, and the archived changes that are folded with them.

A row that was read gets the place of a backfill's row at its chunk's ``not_before``. So it is ordered after the changes
before that place, all of which it contains, and before all later changes. It may contain some later changes too.
Applying their whole images and known columns once more changes nothing. The argument is in docs/decisions.md. Key
changes without whole images are an exception, and are replaced (:func:`without_moves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay.archive.columns import read_number, read_place
from spark_replay.archive.storage import Storage
from spark_replay.baseline.work import Done
from spark_replay.images import read_row
from spark_replay.selected import PLAIN, TYPES
from spark_replay.spark.portions import read_portions
from spark_replay.tables.updates import UpdatesFile, file_rows
from wormhole.model.errors import ReplayError
from wormhole.model.position import LogPosition
from wormhole.model.values import Op
from wormhole.wire.rows import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["baseline_rows", "offsets", "split_moves", "unknown_keys", "without_moves"]

_SHAPE: Final = f"{TYPES}, shard string"
_OWN: Final = 1 << 30
"""The first number of our rows at a place. Lower numbers are of rows that the archive's own backfill read there."""
_MOST: Final = (1 << 31) - 1


def offsets(done: Iterable[Done]) -> list[tuple[UpdatesFile, dict[LogPosition, int]]]:
    """The files, each with the number of its first row at each place, so that all rows have different places.

    Raises :class:`~wormhole.model.errors.ReplayError` for more rows than a place can have.
    """
    reached: dict[LogPosition, int] = {}
    found = []
    for one in done:
        if one.file is None:
            continue
        found.append((one.file, {place: reached.get(place, _OWN) for place in one.rows}))
        for place, rows in one.rows.items():
            reached[place] = reached.get(place, _OWN) + rows
            if reached[place] > _MOST:
                raise ReplayError(
                    f"more than {_MOST - _OWN:,} rows were read while the archive ended at {place}",
                    hint="while rows are read, let something be written to the database now and then; begin the "
                    "baseline in another folder",
                )
    return found


def baseline_rows(
    spark: SparkSession, storage: Storage, files: Sequence[tuple[UpdatesFile, Mapping[LogPosition, int]]]
) -> DataFrame:
    """The rows that were read: the archive's columns and ``shard``, in no order. A task for each file."""
    return read_portions(spark, files, partial(_file_rows, storage), _SHAPE)


def _file_rows(storage: Storage, given: tuple[UpdatesFile, Mapping[LogPosition, int]]) -> Iterator[pa.RecordBatch]:
    """The rows of a file. Runs on the executors."""
    file, offset = given
    by_bytes = {place.to_bytes(): (place, first) for place, first in offset.items()}
    for rows in file_rows(storage, file):
        yield _placed(rows, by_bytes)


def _placed(rows: pa.RecordBatch, offset: Mapping[bytes, tuple[LogPosition, int]]) -> pa.RecordBatch:
    places = []
    for place in rows.column(0).to_pylist():
        position, first = offset[place[: LogPosition.SIZE]]
        places.append(read_place(position, first + (read_number(place) or 0)))
    return pa.RecordBatch.from_arrays([pa.array(places, pa.binary()), *rows.columns[1:]], schema=PLAIN)


def without_moves(df: DataFrame) -> DataFrame:
    """Archive rows with each key change without a whole image replaced by two changes.

    They are a delete of the former key, and an update of the row under the new key, which has an effect if that row was
    read. The image under the former key must not be used: it may be of another row that took this key, and that was
    read after the change.
    """
    import pyspark.sql.functions as f

    moved = f.col("old_key").isNotNull() & f.col("partial")
    return df.where(~moved).unionByName(df.where(moved).select(*PLAIN.names).mapInArrow(split_moves, _SHAPE))


def split_moves(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace each key change without a whole image by a delete and an update."""
    for batch in batches:
        made: list[dict[str, Any]] = []
        for one in batch.to_pylist():
            row = read_row(one["update"])
            gone = Row(op="DELETE", key=row.old_key)
            made.append(
                {
                    **one,
                    "op": Op.DELETE.value,
                    "key": one["old_key"],
                    "old_key": None,
                    "partial": False,
                    "update": gone.SerializeToString(deterministic=True),
                }
            )
            row.ClearField("old_key")
            made.append({**one, "old_key": None, "update": row.SerializeToString(deterministic=True)})
        if made:
            yield pa.RecordBatch.from_pylist(made, schema=PLAIN)


def unknown_keys(df: DataFrame) -> DataFrame:
    """Shard, table and key of the rows that lack values, without rows that lack them because of their size."""
    import pyspark.sql.functions as f

    lacking = df.where(f.col("partial")).select("shard", "table", "key", "update")
    return lacking.mapInArrow(_not_too_large, "shard string, table string, key binary")


def _not_too_large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = [not read_row(update).too_large for update in batch.column("update").to_pylist()]
        yield batch.filter(pa.array(kept, pa.bool_())).select(["shard", "table", "key"])
