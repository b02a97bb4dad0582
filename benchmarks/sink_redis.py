"""Updates per second of the sink of Redis, beside `redis-benchmark` with as many bytes in the same run.

    python -m benchmarks.sink_redis [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. What is counted is all
that it does: to decode, make keys or documents, send them and wait for the answers. `redis-benchmark` sends one command
for each key over one connection, with 64 of them in each pipeline.
"""

from __future__ import annotations

import contextlib
import csv
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any, Final

import uvloop

from sinks.redis.kind import KIND
from sinks.redis.settings import RedisSettings
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import body_of, marker_at, update
from tests.support.redis_server import RedisServer
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch
from wormholectl.show.printer import print_table

_RUNS: Final = 3
_BATCH: Final = 2_000
_MARKER: Final = 20_000
_TABLE: Final = "shop.orders"

Batches = list[tuple[bytes, Schema]]


def _schema(schema: Schema, _: int) -> Schema:
    return schema


def _batches(count: int) -> Batches:
    made = []
    for begin in range(0, count, _BATCH):
        changes = [
            update(_TABLE, key=key, before={"status": "new"}, after={"status": "paid", "note": f"{key:080d}"})
            for key in range(begin, min(count, begin + _BATCH))
        ]
        made.append((body_of(changes, number=begin + 1), changes[0].schema))
    return made


async def _by_the_sink(batches: Batches, url: str, mode: str) -> None:
    sink = KIND.open("bench", RedisSettings.model_validate({"url": url, "mode": mode}))
    subscriber: Any = sink.subscriber
    await subscriber.on_shard_notice(
        ShardNotice(NoticeKind.ASSIGNED, "db1", 1, marker_at(0), dataset="shop", log="db1")
    )
    done = 0
    for body, schema in batches:
        updates = Batch(parse_body(body), "db1", 1, False, partial(_schema, schema)).updates()
        await subscriber.on_updates(updates)
        done += len(updates)
        if done % _MARKER == 0:
            await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await sink.close()


def _sink(server: RedisServer, batches: Batches, mode: str) -> float:
    begin = time.monotonic()
    uvloop.run(_by_the_sink(batches, server.url(), mode))
    return time.monotonic() - begin


def _plain(server: RedisServer, count: int, *command: str) -> float:
    words = [*server.program("redis-benchmark"), "-p", str(server.port), "-c", "1", "-P", "64", "-n", str(count)]
    words += ["-r", str(count), "--csv", *command]
    done = subprocess.run(words, env=server.environment(), check=True, capture_output=True, text=True)
    (*_, row) = csv.reader(done.stdout.splitlines())
    return count / float(row[1])


def _rate(server: RedisServer, count: int, mode: str | None, batches: Batches) -> float:
    with contextlib.closing(server.client()) as client:
        client.flushall()
        if mode == "delete":
            client.mset({f"{_TABLE}:{key}": "x" * 110 for key in range(count)})
        if mode is not None:
            seconds = _sink(server, batches, mode)
            assert sum(not key.startswith(b"wormhole:") for key in client.scan_iter(count=5000)) == (
                count if mode == "set" else 0
            )
            return count / seconds
    return count / _plain(server, count, "SET", f"{_TABLE}:__rand_int__", "x" * 110)


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    batches = _batches(count)
    cases = {"redis-benchmark, SET": None, "sink, mode delete": "delete", "sink, mode set": "set"}
    with RedisServer() as server:
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(_RUNS):
            for name, mode in cases.items():
                found[name].append(_rate(server, count, mode, batches))
    rates = {name: statistics.median(values) for name, values in found.items()}
    base = rates["redis-benchmark, SET"]
    rows = [
        [name, f"{rate:,.0f}", f"{min(found[name]):,.0f} - {max(found[name]):,.0f}", f"{rate / base:.2f}"]
        for name, rate in rates.items()
    ]
    title = f"{count:,} updates, documents of about 110 bytes, median of {_RUNS}"
    print_table(["case", "updates/s", "min - max", "of redis-benchmark"], rows, "", title)


if __name__ == "__main__":
    main()
