"""A subscriber of the binlog as a reader: run as ``python -m benchmarks.peers.subscriber values|transport PORT``.

``values``: ``on_updates`` reads every value of every row. ``transport``: it only counts. Prints ``ready`` when a
publisher may connect; then see :mod:`benchmarks.peers.outcome`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from benchmarks.cases import memory_peak_mib
from subscriber_sdk import Subscriber, Update, serve

__all__ = ["main"]


class Transport(Subscriber):
    """Counts."""

    def __init__(self, wanted: int) -> None:
        self.rows = 0
        self.checksum: int | None = None
        self.first = 0.0
        self.last = 0.0
        self.done = asyncio.Event()
        self._wanted = wanted

    async def on_updates(self, batch: Sequence[Update]) -> None:
        self.first = self.first or time.monotonic()
        self.look(batch)
        self.rows += len(batch)
        if self.rows >= self._wanted:
            self.last = time.monotonic()
            self.done.set()

    def look(self, batch: Sequence[Update]) -> None:
        """At the updates: not here."""


class Values(Transport):
    """Reads every value of every row."""

    def look(self, batch: Sequence[Update]) -> None:
        total = 0
        for update in batch:
            row: Any = update.after
            total += row["id"] + row["user"] + (row["amount"] is not None) + row["state"]
            total += (row["changed"] is not None) + len(row["note"]) + len(row["body"])
        self.checksum = (self.checksum or 0) + total


async def main() -> None:
    """See the module."""
    kind, port = sys.argv[1:]
    wanted = int(os.environ["PEER_ROWS"])
    subscriber = Values(wanted) if kind == "values" else Transport(wanted)
    listen = f"127.0.0.1:{port}"
    async with serve(subscriber, application="app0", id="s", listen=listen, advertise=listen):
        print("ready", flush=True)
        await subscriber.done.wait()
        seconds = subscriber.last - subscriber.first
        told = {"rows": subscriber.rows, "seconds": seconds, "checksum": subscriber.checksum}
        print(json.dumps({**told, "peak_mib": memory_peak_mib(os.getpid())}), flush=True)
        os._exit(0)  # its end is not measured


if __name__ == "__main__":
    uvloop.run(main())
