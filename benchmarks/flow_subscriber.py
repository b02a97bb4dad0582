"""A subscriber of many flows: run as ``python -m benchmarks.flow_subscriber ZOOKEEPER FLOWS``.

Prints ``ready``, and the monotonic seconds whenever FLOWS more assignments have come. The line ``marked`` of standard
input is answered when FLOWS datamarkers have come, any other one by the delays since the one before, in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import uvloop

from benchmarks.store import STAMP
from subscriber_sdk import Datamarker, NoticeKind, ShardNotice, Subscriber, serve
from wormhole.wire.update import Update

__all__ = ["main"]


class Flows(Subscriber):
    """Counts assignments in rounds of ``flows``, and takes the delay of every update that a schedule wrote."""

    def __init__(self, flows: int) -> None:
        self.flows = flows
        self.assigned = 0
        self.delays: list[float] = []
        self.datamarkers = 0
        self.marked = asyncio.Event()

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.ASSIGNED:
            self.assigned += 1
            if self.assigned % self.flows == 0:
                print(time.monotonic(), flush=True)

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.datamarkers += 1
        if self.datamarkers >= self.flows:
            self.marked.set()

    async def on_updates(self, batch: Sequence[Update]) -> None:
        now = time.monotonic_ns()
        for update in batch:
            value = (update.after or {})["value"]
            assert isinstance(value, bytes)
            self.delays.append((now - STAMP.unpack_from(value)[0]) / 1e6)


async def main() -> None:
    """See the module."""
    subscriber = Flows(int(sys.argv[2]))
    async with serve(subscriber, application="app", coordinator=sys.argv[1], id="s", listen="127.0.0.1:0"):
        print("ready", flush=True)
        while asked := await asyncio.to_thread(sys.stdin.readline):
            if asked.strip() == "marked":
                await subscriber.marked.wait()
                print("marked", flush=True)
                continue
            delays, subscriber.delays = subscriber.delays, []
            print(*(f"{delay:.3f}" for delay in delays), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
