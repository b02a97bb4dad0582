"""Runs the jobs of several replays without the push (:mod:`benchmarks.unpushed`), in one Spark session.

Run as ``python -m benchmarks.unpusher MASTER LOG``. Each line on standard input is JSON: the archive's folder and the
mode; the answer is a line with the moments (monotonic) at which it began and ended, and updates and bytes of the
bodies. What Spark prints goes to ``LOG``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.unpushed import Unpushed
from spark_replay.archive.manifest import Manifest
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.frames import ShardFiles
from spark_replay.replay.pieces import Formats
from spark_replay.replay.publisher import Reach

if TYPE_CHECKING:
    from spark_replay.replay.jobs import Jobs
    from spark_replay.replay.task import TaskOutcome

__all__ = ["main"]


def _push(jobs: Jobs, store: ArchiveStore, manifest: Manifest, mode: str) -> TaskOutcome:
    """One flow, as the driver has it pushed."""
    task = Unpushed(
        flow=f"app/{manifest.shard}",
        replay="unpushed",
        ticket="",
        name="unpushed",
        publisher=Reach("", None, ""),
        store=store,
        shard=manifest.shard,
        begin=manifest.begin,
        until=manifest.end,
        where="",
        formats=Formats(),
        rate=0.0,
        patience_s=1.0,
        tls=None,
        heartbeat_s=1.0,
        max_frame=1 << 20,
    )
    if mode == "log":
        return jobs.log(task)
    chosen = ShardFiles(manifest.shard, manifest.files, manifest.begin, manifest.end)
    return jobs.latest(task, chosen, by_values=False)


def main() -> None:
    """See the module."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(sys.argv[2], "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from spark_replay.replay.jobs import Jobs
    from spark_replay.spark.session import spark_session

    jobs = Jobs(spark_session("unpushed", sys.argv[1], pushing=True))
    jobs.warm()
    for line in sys.stdin:
        folder, mode = json.loads(line)
        store = open_store(folder, "bench")
        manifests = list(store.manifests().values())
        began = time.monotonic()
        with ThreadPoolExecutor(len(manifests)) as pool:
            outcomes = list(pool.map(lambda one, mode=mode, store=store: _push(jobs, store, one, mode), manifests))
        told = [began, time.monotonic(), sum(one.updates for one in outcomes), sum(one.bytes for one in outcomes)]
        print(json.dumps(told), file=answers)


if __name__ == "__main__":
    main()
