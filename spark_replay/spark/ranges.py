"""Partitions rows by ranges of the key and sorts them by it, so that each exported file has neighbouring keys.

A filter on the key then skips most files, and changes of neighbouring rows affect few files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TASK_ROWS", "by_range", "quoted"]

TASK_ROWS: Final = 500_000
"""The approximate number of rows of a file."""


@contextmanager
def by_range(rows: DataFrame, key: Sequence[str], parts: int) -> Iterator[DataFrame]:
    """The rows in at most ``parts`` partitions, each with a range of the key and sorted by it.

    Within the block the rows are kept on the disks of the executors, because Spark reads them twice: first for a
    sample.
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
    """A column's name, quoted for Spark's expressions."""
    return f"`{name.replace('`', '``')}`"
