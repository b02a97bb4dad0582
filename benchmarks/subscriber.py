"""Subscribers for the benchmarks, through the public SDK. They read every value, only count, or measure latency from
the scheduled write time.

Run as ``python -m benchmarks.subscriber``. Prints one line ``ready``, then one line of JSON when every application has
received its ``--counts`` updates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import uvloop

from benchmarks.store import STAMP
from subscriber_sdk import Subscriber, serve
from wormhole.wire.update import Update

if TYPE_CHECKING:
    import pyarrow

SAMPLE = 4  # latency is taken of every fourth update, so that looking does not become the load


class Counter:
    """What one application received: counts, and the time of the first and the last update."""

    def __init__(self, count: int, latency: bool) -> None:
        self.left = count
        self.first = 0.0
        self.last = 0.0
        self.values = 0
        self.latency = latency
        self.delays: list[int] = []
        self.done = asyncio.Event()

    def took(self, count: int) -> None:
        now = time.monotonic()
        if not self.first:
            self.first = now
        self.last = now
        self.left -= count
        if self.left <= 0:
            self.done.set()


class Values(Subscriber):
    """Takes whole batches and reads every value of every update."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    async def on_updates(self, batch: Sequence[Update]) -> None:
        self.counter.values += sum(map(read, batch))
        self.counter.took(len(batch))


class SingleValues(Subscriber):
    """Takes one update at a time and reads its values."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    async def on_update(self, update: Update) -> None:
        counter = self.counter
        counter.values += read(update)
        counter.left -= 1
        if not counter.first or counter.left <= 0:
            counter.took(0)


class Columns(Subscriber):
    """Takes whole batches as Arrow columns and counts the values in them."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    async def on_arrow(self, batch: pyarrow.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not name.startswith("_"):
                self.counter.values += len(column) - column.null_count
        self.counter.took(batch.num_rows)


def read(update: Update) -> int:
    """Read every value after the change: how many there are."""
    after = update.after
    assert after is not None
    seen = 0
    for value in after.values():
        seen += value is not None
    return seen


class Batches(Subscriber):
    """Takes whole batches and counts: transport alone."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    async def on_updates(self, batch: Sequence[Update]) -> None:
        counter = self.counter
        if counter.latency:
            now = time.monotonic_ns()
            for update in batch[::SAMPLE]:
                after = update.after
                assert after is not None
                value = after["value"]
                assert isinstance(value, bytes)
                counter.delays.append(now - STAMP.unpack_from(value)[0])
        counter.took(len(batch))


_KINDS: Final[Mapping[str, Callable[[Counter], Subscriber]]] = {
    "values": Values,
    "single values": SingleValues,
    "values as columns": Columns,
    "transport": Batches,
    "latency": Batches,
}


async def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=_KINDS, required=True)
    parser.add_argument("--counts", required=True, help="updates to wait for, one number per port or one for all")
    parser.add_argument("--ports", required=True, help="one application per port: app0, app1 ...")
    parser.add_argument("--dial", default="", help="the publisher's address; empty: it dials the ports")
    parser.add_argument("--first", type=int, default=0, help="number of the first application")
    arguments = parser.parse_args()
    counters = []
    async with AsyncExitStack() as stack:
        ports, counts = arguments.ports.split(","), arguments.counts.split(",")
        for index, port in enumerate(ports):
            counter = Counter(int(counts[index % len(counts)]), arguments.mode == "latency")
            counters.append(counter)
            listen = f"127.0.0.1:{port}"
            where: dict[str, Any] = {"listen": listen, "advertise": listen}
            if arguments.dial:
                where = {"dial": [arguments.dial]}
            application = f"app{arguments.first + index}"
            await stack.enter_async_context(
                serve(_KINDS[arguments.mode](counter), application=application, id="s", **where)
            )
        print("ready", flush=True)
        for counter in counters:
            await counter.done.wait()
        used = resource.getrusage(resource.RUSAGE_SELF)
        result = {
            "first": [c.first for c in counters],
            "last": [c.last for c in counters],
            "seconds": [c.last - c.first for c in counters],
            "values": [c.values for c in counters],
            "cpu_s": used.ru_utime + used.ru_stime,
            "delays_ns": [sorted(c.delays) for c in counters],
        }
        print(json.dumps(result), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
