"""Measures the fold of a snapshot, beside Spark's own ``max_by`` over the same rows in the same run.

    python -m benchmarks.table_fold [UPDATES] [SHARDS]

``max_by`` only looks for each row's last change: it knows no parts of rows, changed keys, TRUNCATEs or checks. Both
read the archive as everything else here does, and neither writes.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.archive_size import jvm_peak_mib
from benchmarks.cases import scratch
from benchmarks.made_archive import MadeArchive, make_archive
from spark_replay import frames
from spark_replay.selected import PLAIN
from spark_replay.spark.session import spark_session
from spark_replay.tables.history import version_rows
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import select
from wormholectl.show.printer import print_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

_RUNS: Final = 3


def _current(spark: SparkSession, archive: MadeArchive) -> DataFrame:
    selection = select(archive.store)
    rows = attach(frames.read(spark, archive.store, selection.shards, current=True), selection.schemas)
    return version_rows(rows, selection.whole, current=True, inspect=selection.needs_inspection).select(*PLAIN.names)


def _native(spark: SparkSession, archive: MadeArchive) -> DataFrame:
    import pyspark.sql.functions as f

    rows = frames.read(spark, archive.store, select(archive.store).shards)
    last = f.max_by(f.struct(*PLAIN.names), "place").alias("last")
    return rows.groupBy("shard", "table", "key").agg(last).select("last.*").where("op <> 'delete'")


def measure(spark: SparkSession, archive: MadeArchive) -> float:
    """The ratio of the two, which is printed."""
    make_archive(archive)
    seconds: dict[str, list[float]] = {}
    for run in range(_RUNS + 1):  # the first one warms Spark up
        for name, made in (("snapshot", _current), ("max_by", _native)):
            begin = time.monotonic()
            made(spark, archive).write.format("noop").mode("overwrite").save()
            if run:
                seconds.setdefault(name, []).append(time.monotonic() - begin)
    ours, native = (statistics.median(seconds[name]) for name in ("snapshot", "max_by"))
    print_text(
        f"{archive.count:,} updates to {archive.keys:,} keys in {archive.shards} shards: snapshot's fold {ours:.2f} s, "
        f"max_by {native:.2f} s, ratio {ours / native:.2f}; the driver's JVM {jvm_peak_mib(spark):,.0f} MiB at most"
    )
    return ours / native


if __name__ == "__main__":
    words = [*map(int, sys.argv[1:])]
    updates, shards = [*words, *(1_000_000, 4)[len(words) :]]
    with scratch() as folder:
        for keys in (updates // 20, updates // 5, updates):
            measure(
                spark_session("benchmark", "local[2]"),
                MadeArchive(Path(folder) / str(keys), updates, 100, shards, keys),
            )
