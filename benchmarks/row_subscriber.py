"""Subscribers for the benchmark of existing rows: one follows the writer, others copy the table.

Run as ``python -m benchmarks.row_subscriber live PORT``: prints ``ready``; for each line of standard input prints, as
JSON, when each update since the last line was due and how late it came, in nanoseconds.

Or as ``python -m benchmarks.row_subscriber copies PORT ...``, an application for each port, app1 and so on: prints
``ready``, ``first`` when the first row came to each, and one line of JSON when each has the whole table.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import uvloop

from subscriber_sdk import Op, ScanEnd, Subscriber, Update, serve


class Live(Subscriber):
    """Notes how late each update is."""

    def __init__(self) -> None:
        self.delays: list[tuple[int, int]] = []

    async def on_updates(self, batch: Sequence[Update]) -> None:
        now = time.monotonic_ns()
        for update in batch:
            after = update.after
            assert after is not None
            due = after["stamp"]
            assert isinstance(due, int)
            self.delays.append((due, now - due))


class Copy(Subscriber):
    """Reads the key and the values of each update, and counts the rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.first = 0.0
        self.last = 0.0
        self.began = asyncio.Event()
        self.done = asyncio.Event()

    async def on_updates(self, batch: Sequence[Update]) -> None:
        for update in batch:
            after = update.after
            assert after is not None
            assert update.key == (after["id"],)
            self.rows += update.op is Op.READ
        if self.rows and not self.first:
            self.first = time.monotonic()
            self.began.set()

    async def on_scan_end(self, end: ScanEnd) -> None:
        self.last = time.monotonic()
        self.done.set()


async def live(port: str) -> None:
    """See the module."""
    listen = f"127.0.0.1:{port}"
    subscriber = Live()
    async with serve(subscriber, application="app0", id="s", listen=listen, advertise=listen):
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(subscriber.delays), flush=True)
            subscriber.delays.clear()


async def copies(ports: Sequence[str]) -> None:
    """See the module."""
    subscribers = [Copy() for _ in ports]
    async with AsyncExitStack() as stack:
        for number, (port, subscriber) in enumerate(zip(ports, subscribers, strict=True), 1):
            listen = f"127.0.0.1:{port}"
            await stack.enter_async_context(
                serve(subscriber, application=f"app{number}", id="s", listen=listen, advertise=listen)
            )
        print("ready", flush=True)
        for one in subscribers:
            await one.began.wait()
        print("first", flush=True)
        for one in subscribers:
            await one.done.wait()
        used = resource.getrusage(resource.RUSAGE_SELF)
        result = {
            "first": [one.first for one in subscribers],
            "last": [one.last for one in subscribers],
            "rows": [one.rows for one in subscribers],
            "cpu_s": used.ru_utime + used.ru_stime,
        }
        print(json.dumps(result), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    what, *places = sys.argv[1:]
    uvloop.run(live(places[0]) if what == "live" else copies(places))
