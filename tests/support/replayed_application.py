"""``python -m tests.support.replayed_application SETTINGS``: an application with the public SDK that writes down what
it is told.

A line for each update, in one file for all subscribers: shard, epoch, the store's number of the change, whether it is
replayed, key, value (``-``: deleted). Notices and data losses are in a file of their own.

``slow_from``: from so many updates on each batch takes a moment, and none is taken to its end from ``full_at`` on,
until the file ``go`` is there: whoever wants to meet it half way can, on a machine of any speed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subscriber_sdk import DataLoss, LossDecision, ShardNotice, Subscriber, Update, run
from tests.system.harness.child import settings

_SLOW_S = 0.02


class _Application(Subscriber):
    def __init__(self, given: dict[str, Any]) -> None:
        self._file = os.open(given["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._notices = os.open(given["log"] + ".notices", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._slow_from, self._full_at, self._go = given["slow_from"], given["full_at"], Path(given["go"])
        self._count = 0

    async def on_updates(self, batch: Sequence[Update]) -> None:
        os.write(self._file, b"".join(map(_line, batch)))
        self._count += len(batch)
        if self._count >= self._slow_from and not self._go.exists():
            await asyncio.sleep(_SLOW_S)
            # Nothing tells of a file.
            while self._count >= self._full_at and not self._go.exists():  # noqa: ASYNC110
                await asyncio.sleep(_SLOW_S)

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        os.write(self._notices, f"{notice.shard} {notice.epoch} {notice.kind.value}\n".encode())

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        os.write(self._notices, f"{loss.shard} {loss.epoch} loss {loss.first_missing} {loss.last_missing}\n".encode())
        return LossDecision.HALT


def _line(update: Update) -> bytes:
    _, number, index = update.id.rsplit(":", 2)
    key = update.key[0]
    assert isinstance(key, bytes)
    value = b"-" if update.after is None else update.after["value"]
    assert isinstance(value, bytes)
    head = f"{update.shard} {update.epoch} {int(number) + int(index)} {int(update.replayed)} "
    return head.encode() + key + b" " + value + b"\n"


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    run(_Application(given), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
