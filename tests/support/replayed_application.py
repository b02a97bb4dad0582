"""``python -m tests.support.replayed_application SETTINGS``: an application with the public SDK that writes down what it is told.

A line for each update, in one file for all subscribers: shard, epoch, sequence number, key, value. A line with epoch 0 is a notice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from subscriber_sdk import ShardNotice, Subscriber, Update, run
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


def _line(update: Update) -> bytes:
    _, sequence, _ = update.id.rsplit(":", 2)
    value = (update.after or {}).get("value", b"")
    assert isinstance(value, bytes)
    key = update.key[0]
    assert isinstance(key, bytes)
    return f"{update.shard} {update.epoch} {sequence} {key.hex()} {value.hex()}\n".encode()


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    run(_Application(given), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
