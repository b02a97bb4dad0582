"""The application of the replay benchmark, with the public SDK: counts the updates that arrive, in several rounds.

Run as ``python -m benchmarks.replayed PORT COUNT``. Prints ``ready``, then a line of JSON when ``COUNT`` updates have
arrived. Each further line on standard input begins another round, with its count and the microseconds that the handler
works on each update. Times are monotonic seconds: ``held`` is the first revocation of a shard in the round (a replay
holds its flows), and ``first`` and ``last`` are the times of the first and the last update.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence

import uvloop

from subscriber_sdk import NoticeKind, ShardNotice, Subscriber, serve
from wormhole.wire.update import Update

__all__ = ["Counted"]


class Counted(Subscriber):
    """Takes whole batches."""

    def __init__(self) -> None:
        self.expect(0)

    def expect(self, count: int, work_us: float = 0.0) -> None:
        """Count from here."""
        self.left = count
        self.work_s = work_us / 1e6
        self.held = self.first = self.last = 0.0
        self.done = asyncio.Event()

    async def on_updates(self, batch: Sequence[Update]) -> None:
        now = time.monotonic()
        self.first = self.first or now
        until = now + self.work_s * len(batch)
        while now < until:
            now = time.monotonic()
        self.last = now
        self.left -= len(batch)
        if self.left <= 0:
            self.done.set()

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            self.held = self.held or time.monotonic()


async def main() -> None:
    """See the module."""
    listen, counted = f"127.0.0.1:{sys.argv[1]}", Counted()
    counted.expect(int(sys.argv[2]))
    async with serve(counted, application="app", id="s", listen=listen, advertise=listen):
        print("ready", flush=True)
        while True:
            await counted.done.wait()
            used = resource.getrusage(resource.RUSAGE_SELF)
            told = {"held": counted.held, "first": counted.first, "last": counted.last}
            counted.expect(1 << 62)
            print(json.dumps({**told, "cpu_s": used.ru_utime + used.ru_stime}), flush=True)
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            count, work_us = line.split()
            counted.expect(int(count), float(work_us))
            print("counting", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
