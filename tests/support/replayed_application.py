"""``python -m tests.support.replayed_application SETTINGS``: an application with the public SDK that writes down what it is told.

A line for each update, in one file for all subscribers: shard, epoch, the store's number of the change, whether it is replayed, key, value
(``-``: deleted). Notices and data losses are in a file of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from subscriber_sdk import DataLoss, LossDecision, ShardNotice, Subscriber, Update, run
from tests.system.harness.child import settings

__all__ = ["main"]


class _Application(Subscriber):
    def __init__(self, given: dict[str, Any]) -> None:
        self._file = os.open(given["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._notices = os.open(given["log"] + ".notices", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def on_updates(self, batch: Sequence[Update]) -> None:
        os.write(self._file, b"".join(map(_line, batch)))

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
