"""``python -m tests.system.harness.subscriber SETTINGS``: an application written with the public SDK that logs what it
is told.

Settings: ``application``, ``log`` (file), ``options`` (of `subscriber_sdk.run`), ``callback`` (``each``, ``batch`` or
``thread``), ``loss`` (``halt`` or ``continue``), ``pause`` (seconds that each callback takes), ``drop`` (the SDK
forgets one update out of the batch in which so many have come), ``refuse`` (file with the keys that ``each`` refuses,
read each time).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subscriber_sdk import DataLoss, Datamarker, LossDecision, NoticeKind, ShardNotice, Subscriber, Update, run
from subscriber_sdk.calls.callbacks import Callbacks
from tests.system.harness.child import settings
from tests.system.harness.logs import line_of
from tests.system.harness.truth import digest


class _Told(logging.Handler):
    """Remembers which publisher assigned a shard in which epoch: the SDK says it in its log only."""

    def __init__(self) -> None:
        super().__init__()
        self.publisher: dict[tuple[str, int], str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if "assigns shard" in str(record.msg) and isinstance(record.args, tuple):
            publisher, shard, epoch, _ = record.args
            assert isinstance(epoch, int)
            self.publisher[str(shard), epoch] = str(publisher)


class _Logging(Subscriber):
    """Everything but the updates."""

    def __init__(self, given: dict[str, Any], told: _Told) -> None:
        self._file = os.open(Path(given["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._continue = given.get("loss") == "continue"
        self._told = told
        self._epochs: dict[str, int] = {}
        self.pause: float = given.get("pause", 0.0)
        self._refuse = Path(given["refuse"]) if "refuse" in given else None

    def write(self, *lines: bytes) -> None:
        os.write(self._file, b"".join(lines))

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.ASSIGNED:
            assert notice.marker is not None
            self._epochs[notice.shard] = notice.epoch
            publisher = self._told.publisher.pop((notice.shard, notice.epoch), "")
            begin = (notice.marker.order, notice.marker.delivered, publisher)
            self.write(line_of("A", time.monotonic(), notice.shard, notice.epoch, *begin))
        elif notice.kind is NoticeKind.REVOKED:
            self.write(line_of("R", time.monotonic(), notice.shard, notice.epoch, " ".join(notice.cause.split())))

    async def on_datamarker(self, marker: Datamarker) -> None:
        place = (marker.order, marker.delivered)
        self.write(line_of("M", time.monotonic(), marker.shard, self._epochs[marker.shard], *place))

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        decision = LossDecision.CONTINUE if self._continue else LossDecision.HALT
        what = (loss.kind.value, loss.first_missing, loss.last_missing, decision.value)
        self.write(line_of("L", time.monotonic(), loss.shard, loss.epoch, *what))
        return decision


def _line(update: Update) -> bytes:
    _, sequence, index = update.id.rsplit(":", 2)
    key, after = update.key[0], update.after
    assert isinstance(key, bytes)
    value = None if after is None else after["value"]
    return line_of(
        "U",
        time.monotonic(),
        update.shard,
        update.epoch,
        sequence,
        index,
        int(update.ends_transaction),
        update.position,
        update.committed_at,
        int(update.replayed),
        update.op.value,
        update.table,
        key.hex(),
        digest(value) if isinstance(value, bytes) else "",
    )


class _Each(_Logging):
    async def on_update(self, update: Update) -> None:
        if self._refuse is not None and update.key[0] in self._refuse.read_bytes().split():
            raise ValueError("refused")
        if self.pause:
            await asyncio.sleep(self.pause)
        self.write(_line(update))


class _Batch(_Logging):
    async def on_updates(self, batch: Sequence[Update]) -> None:
        if self.pause:
            await asyncio.sleep(self.pause)
        self.write(*map(_line, batch))


class _Thread(_Logging):
    def on_update(self, update: Update) -> None:
        if self.pause:
            time.sleep(self.pause)
        self.write(_line(update))


def _drop(number: int) -> None:
    """Plant a fault in the SDK: one callback is never called, and no error is raised."""
    each, come = Callbacks._each, 0

    async def without_one(calls: Callbacks, updates: list[Update]) -> bool:
        nonlocal come
        before, come = come, come + len(updates)
        return await each(calls, updates[1:] if before < number <= come else updates)

    setattr(Callbacks, "_each", without_one)  # noqa: B010 - a fault is no method


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    if given.get("drop"):
        _drop(given["drop"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    told = _Told()
    logging.getLogger("subscriber_sdk").addHandler(told)
    logging.getLogger("subscriber_sdk").setLevel(logging.DEBUG)  # it says who assigns what there
    kind = {"each": _Each, "batch": _Batch, "thread": _Thread}[given.get("callback", "each")]
    run(kind(given, told), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
