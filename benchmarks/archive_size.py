"""Measures the cost of planning a read of a large archive: memory of the driver and its JVM, bytes per task, and
seconds. No rows are read.

    python -m benchmarks.archive_size [FILES] [portion|list]

The files exist only as entries of manifests: 64 shards, one of which has nine tenths of the files. With ``portion``
each task receives its own files. With ``list`` each task receives all files, as in earlier releases. A run measures one
way, because the peak of memory counts. About twenty of the tasks are run.
"""

from __future__ import annotations

import pickle
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay.archive.manifest import FileEntry
from spark_replay.replay import keyed
from spark_replay.selected import FilePiece, tasks_of
from spark_replay.spark.portions import portions, taken
from spark_replay.spark.session import spark_session
from wormhole.model.position import Datamarker, LogPosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARDS: Final = 64
_MOST: Final = 20  # tasks that are run of all
_RAW: Final = 1_700_000  # 600,000 files are a terabyte


def entries(files: int) -> list[FilePiece]:
    """Pieces of synthetic files."""
    found = []
    for number in range(files):
        shard = "db1.large" if number % 10 else f"db1.t{number // 10 % (_SHARDS - 1)}"
        begin, end = (LogPosition(1, 1, 100 * at) for at in (number, number + 1))
        entry = FileEntry(
            f"{number:032x}.parquet", 1000, 400_000, Datamarker(begin, "", begin), Datamarker(end, "", end), 1, 2,
            {"update": 1000}, {"shop.orders": 1000}, {"00000000000000aa": "shop.orders"}, raw=_RAW,
        )  # fmt: skip
        found.append(FilePiece(shard, entry, b"", b"\xff"))
    return sorted(found, key=lambda one: one.shard)


def _count(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(map(len, taken(given)))]})


class _Whole:
    """As it was: the list of all tasks is a part of the function."""

    def __init__(self, tasks: list[tuple[FilePiece, ...]]) -> None:
        self.tasks = tasks

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            yield pa.RecordBatch.from_pydict({"n": [len(self.tasks[n]) for n in batch.column(0).to_pylist()]})


def peak_mib(status: str) -> float:
    """The most memory that a process ever had, by its ``/proc/PID/status``."""
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def jvm_peak_mib(spark: SparkSession) -> float:
    """The peak memory of the driver's JVM."""
    jvm: Any = spark.sparkContext._jvm
    return peak_mib(Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text())


def measure(spark: SparkSession, files: int, way: str) -> None:
    """Print a line."""
    pieces = entries(files)
    tasks = tasks_of(pieces, 2)
    started = jvm_peak_mib(spark)
    begin = time.monotonic()
    if way == "portion":
        size = max(len(pickle.dumps(one)) for one in tasks)
        rows: Any = portions(spark, tasks).mapInArrow(_count, "n bigint").take(_MOST)
        assert [one.n for one in rows] == [len(one) for one in tasks[:_MOST]]
    else:
        whole = _Whole(tasks)
        size = len(pickle.dumps(whole))
        spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(whole, "n bigint").take(_MOST)
    seconds = time.monotonic() - begin
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{way}: {size:,} bytes a task, {seconds:.1f} s for {len(tasks):,} tasks of {files:,} files; Python driver "
        f"{mib:,.0f} MiB at most, its JVM {jvm_peak_mib(spark):,.0f} MiB ({started:,.0f} before)"
    )
    large = [one.entry for one in pieces if one.shard == "db1.large"]
    cut, uncapped = len(keyed.slices(large)), -(-sum(entry.raw for entry in large) // keyed.PART_BYTES)
    print(f"blocks of a shuffle of the largest shard: {cut * keyed.parts(large):,}; before {cut * uncapped:,}")


if __name__ == "__main__":
    words = sys.argv[1:]
    count = int(words[0]) if words else 600_000
    measure(spark_session("benchmark", "local[2]"), count, words[1] if len(words) > 1 else "portion")
