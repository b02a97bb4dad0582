"""Updates per second of the sink of Redis, beside `redis-benchmark` with as many bytes in the same run.

    python -m benchmarks.sink_redis [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. What is counted is all
that it does: to decode, make keys or documents, send them and wait for the answers. `redis-benchmark` sends one command
for each key over one connection, with 64 of them in each pipeline.
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys
import time
from typing import Final

import uvloop

from benchmarks.sink_feed import RUNS, Bodies, bodies, feed, show
from sinks.redis.kind import KIND
from sinks.redis.settings import RedisSettings
from tests.support.redis_server import RedisServer

_TABLE: Final = "shop.orders"


def _sink(server: RedisServer, given: Bodies, mode: str) -> float:
    sink = KIND.open("bench", RedisSettings.model_validate({"url": server.url(), "mode": mode}))
    begin = time.monotonic()
    uvloop.run(feed(sink, given, "bench"))
    return time.monotonic() - begin


def _plain(server: RedisServer, count: int, *command: str) -> float:
    words = [*server.program("redis-benchmark"), "-p", str(server.port), "-c", "1", "-P", "64", "-n", str(count)]
    words += ["-r", str(count), "--csv", *command]
    done = subprocess.run(words, env=server.environment(), check=True, capture_output=True, text=True)
    (*_, row) = csv.reader(done.stdout.splitlines())
    return count / float(row[1])


def _rate(server: RedisServer, count: int, mode: str | None, given: Bodies) -> float:
    with contextlib.closing(server.client()) as client:
        client.flushall()
        if mode == "delete":
            client.mset({f"{_TABLE}:{key}": "x" * 110 for key in range(count)})
        if mode is not None:
            seconds = _sink(server, given, mode)
            assert sum(not key.startswith(b"wormhole:") for key in client.scan_iter(count=5000)) == (
                count if mode == "set" else 0
            )
            return count / seconds
    return count / _plain(server, count, "SET", f"{_TABLE}:__rand_int__", "x" * 110)


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    given = bodies(count)
    cases = {"redis-benchmark, SET": None, "sink, mode delete": "delete", "sink, mode set": "set"}
    with RedisServer() as server:
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(RUNS):
            for name, mode in cases.items():
                found[name].append(_rate(server, count, mode, given))
    title = f"{count:,} updates, documents of about 110 bytes"
    show(found, "redis-benchmark, SET", "of redis-benchmark", title)


if __name__ == "__main__":
    main()
