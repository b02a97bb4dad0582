"""One subscriber process of the demo. It writes each update to its journal before the update counts as processed.

    python -m examples.demo.receiver APPLICATION ID CONFIG.toml JOURNAL SLOW_MS

An ordinary application of the SDK. ``SLOW_MS`` above 0 makes its callback take this many milliseconds for each update,
until the process gets SIGUSR1.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.demo.events import log_to_stderr, tell
from examples.demo.journal import Journal, Receipt, digest
from examples.demo.workload import serial_of
from subscriber_sdk import DataLoss, LossDecision, ShardNotice, Subscriber, SubscriberOptions, Update, serve

__all__ = ["Receiver", "main"]

_SLOW_CREDIT = "64KiB"


class Receiver(Subscriber):
    """Journals each batch with one write, then waits if ``slow_s`` is not 0."""

    def __init__(self, journal: Journal, slow_s: float) -> None:
        self._journal = journal
        self._slow_s = slow_s
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Be slow no longer."""
        self._hurry.set()

    async def on_updates(self, batch: Sequence[Update]) -> None:
        now = time.monotonic_ns()
        self._journal.write([_receipt(update, now).line() for update in batch])
        if self._slow_s and not self._hurry.is_set():
            try:
                async with asyncio.timeout(len(batch) * self._slow_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        tell("notice", kind=notice.kind.value, shard=notice.shard, epoch=notice.epoch, cause=notice.cause)

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        tell("loss", shard=loss.shard, epoch=loss.epoch, message=loss.message)
        return LossDecision.HALT


def _receipt(update: Update, now: int) -> Receipt:
    after = update.after
    value = after["value"] if after is not None else None
    assert value is None or isinstance(value, bytes)
    key = update.key[0]
    assert isinstance(key, bytes)
    serial = 0 if value is None else serial_of(value)
    table = update.table.rpartition(".")[2]  # a server's tables are named with their database
    return Receipt(update.shard, update.epoch, update.id, table, key.decode(), serial, digest(value), now)


async def _receive(application: str, name: str, config: str, journal: Path, slow_ms: float) -> None:
    receiver = Receiver(Journal(journal), slow_ms / 1000)
    options: SubscriberOptions = {"id": name, "coordinator": config, "stop_timeout": 1.0}
    if slow_ms:
        options["credit"] = _SLOW_CREDIT
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, receiver.hurry)
    async with serve(receiver, application=application, **options):
        tell("ready")
        await stop.wait()


def main(arguments: Sequence[str]) -> int:
    """Receive until SIGTERM."""
    application, name, config, journal, slow_ms = arguments
    log_to_stderr()
    asyncio.run(_receive(application, name, config, Path(journal), float(slow_ms)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
