"""What planning a read of a large archive costs: driver memory, bytes for a task and seconds, without its rows.

    python -m benchmarks.archive_size [FILES]

The files are entries of manifests alone: 64 shards, nine tenths of them in one. ``list in the function`` is how each
task received all of them before. Of all tasks twenty are run, or a few more.
"""

from __future__ import annotations

import pickle
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay.archive.manifest import FileEntry
from spark_replay.replay import keyed
from spark_replay.selected import Piece, tasks_of
from spark_replay.spark.portions import portions, taken
from spark_replay.spark.session import spark_session
from wormhole.model.position import Datamarker, LogPosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARDS: Final = 64
_MOST: Final = 20  # tasks that are run of all
_RAW: Final = 1_700_000  # 600,000 files are a terabyte


def entries(files: int) -> list[Piece]:
    """Pieces of synthetic files."""
    found = []
    for number in range(files):
        shard = "db1.large" if number % 10 else f"db1.t{number // 10 % (_SHARDS - 1)}"
        begin, end = (LogPosition(1, 1, 100 * at) for at in (number, number + 1))
        entry = FileEntry(
            f"{number:032x}.parquet", 1000, 400_000, Datamarker(begin, "", begin), Datamarker(end, "", end), 1, 2,
            {"update": 1000}, {"shop.orders": 1000}, {"00000000000000aa": "shop.orders"}, raw=_RAW,
        )  # fmt: skip
        found.append(Piece(shard, entry, b"", b"\xff"))
    return sorted(found, key=lambda one: one.shard)


def _count(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(map(len, taken(given)))]})


class _Whole:
    """As it was: the list of all tasks is a part of the function."""

    def __init__(self, tasks: list[tuple[Piece, ...]]) -> None:
        self.tasks = tasks

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            yield pa.RecordBatch.from_pydict({"n": [len(self.tasks[n]) for n in batch.column(0).to_pylist()]})


def _line(name: str, size: int, seconds: float, tasks: int) -> None:
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:24} {size:>12,} bytes a task {seconds:8.1f} s for {tasks:,} tasks, Python driver {mib:,.0f} MiB at most"
    )


def measure(spark: SparkSession, files: int) -> None:
    """Print a line for each way."""
    pieces = entries(files)
    tasks = tasks_of(pieces, 2)
    begin = time.monotonic()
    rows: Any = portions(spark, tasks).mapInArrow(_count, "n bigint").take(_MOST)
    assert [one.n for one in rows] == [len(one) for one in tasks[:_MOST]]
    _line("own portion", max(len(pickle.dumps(one)) for one in tasks), time.monotonic() - begin, len(tasks))
    whole = _Whole(tasks)
    size = len(pickle.dumps(whole))
    begin = time.monotonic()
    spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(whole, "n bigint").take(_MOST)
    _line("list in the function", size, time.monotonic() - begin, len(tasks))
    large = [one.entry for one in pieces if one.shard == "db1.large"]
    cut, uncapped = len(keyed.slices(large)), -(-sum(entry.raw for entry in large) // keyed.PART_BYTES)
    print(f"blocks of a shuffle of the largest shard: {cut * keyed.parts(large):,}; before {cut * uncapped:,}")


if __name__ == "__main__":
    measure(spark_session("benchmark", "local[2]"), int(sys.argv[1]) if len(sys.argv) > 1 else 600_000)
