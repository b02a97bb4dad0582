"""A subscriber that prints when updates arrive: run as ``python -m benchmarks.arrivals PORT``.

Prints ``ready``, then for every batch the seconds since the machine's start. The kernel records the starts of processes
by the same clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import uvloop

from subscriber_sdk import Subscriber, serve
from wormhole.wire.update import Update

__all__ = ["main"]


class Arrivals(Subscriber):
    """Tells the time of every batch."""

    async def on_updates(self, batch: Sequence[Update]) -> None:
        print(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.6f}", flush=True)


async def main() -> None:
    """See the module."""
    listen = f"127.0.0.1:{sys.argv[1]}"
    async with serve(Arrivals(), application="app0", id="s", listen=listen, advertise=listen):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
