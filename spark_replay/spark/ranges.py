"""Files with neighbouring keys: rows are cut by ranges of the key and sorted by it, so that a filter on the key leaves
out the other files, and changes of neighbouring rows concern few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TASK_ROWS", "by_range", "quoted"]

TASK_ROWS: Final = 500_000
"""What a file has, about."""


@contextmanager
def by_range(rows: DataFrame, key: Sequence[str], parts: int) -> Iterator[DataFrame]:
    """The rows in at most so many partitions, each with a range of the columns of the key and in their order. Within
    the block they are on the disks of the executors, since Spark reads them twice, for a sample of them first.
    """
    from pyspark import StorageLevel

    order = [*map(quoted, key)]
    if parts <= 1:
        yield rows.coalesce(1).sortWithinPartitions(*order)
        return
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept.repartitionByRange(parts, *order).sortWithinPartitions(*order)
    finally:
        kept.unpersist()


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it."""
    return f"`{name.replace('`', '``')}`"
