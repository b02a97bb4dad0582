"""``python -m tests.support.mirrored_application SETTINGS``: an application with the public SDK that writes down what
it is told of a server's rows.

A line of JSON for each update, in one file for all subscribers, and what else it is told in a file of its own;
:mod:`.mirror` reads both.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from subscriber_sdk import UNAVAILABLE, DataLoss, LossDecision, ShardNotice, Subscriber, Update, run
from tests.system.harness.child import settings


class _Application(Subscriber):
    def __init__(self, given: dict[str, Any]) -> None:
        self._file = os.open(given["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._notices = os.open(given["log"] + ".notices", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def on_updates(self, batch: Sequence[Update]) -> None:
        os.write(self._file, "".join(map(_line, batch)).encode())

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        os.write(self._notices, f"{notice.shard} {notice.epoch} {notice.kind.value}\n".encode())

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        os.write(self._notices, f"{loss.shard} {loss.epoch} loss {loss.first_missing} {loss.last_missing}\n".encode())
        return LossDecision.HALT


def _line(update: Update) -> str:
    told = {
        "id": update.id,
        "shard": update.shard,
        "op": update.op.value,
        "table": update.table,
        "key": _shown(update.key),
        "old_key": _shown(update.old_key or ()),
        "after": _named(update.after),
    }
    return json.dumps(told) + "\n"


def _named(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Without the columns that the log does not hold."""
    return None if row is None else {name: _one(value) for name, value in row.items() if value is not UNAVAILABLE}


def _shown(values: Iterable[Any]) -> list[Any]:
    return [_one(value) for value in values]


def _one(value: Any) -> tuple[str, Any]:
    match value:
        case None:
            return "null", True
        case int():
            return "int", value
        case float():
            return "double", struct.pack("<d", value).hex()
        case Decimal():
            return "decimal", format(value, "f")
        case bytes():
            return "bytes", value.hex()
        case _:
            return "text", value


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    run(_Application(given), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
