"""What a flow tells of what it processed: what was called, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Ending
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.options.subscriber_options import Options, RetryPolicy
from subscriber_sdk.stream.counts import Counts, CountsReport
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.testing import body_of, marker_at, update
from subscriber_sdk.work.acks import BatchItem, MarkerItem
from subscriber_sdk.work.flow_worker import FlowWorker
from subscriber_sdk.work.recovery import KeptOverEpochs
from tests.support.eventually import eventually
from wormhole.wire.tally import update_hash

CHANGES = [update("users", key=number, after={"name": "ada"}) for number in range(6)]


class Port:
    """Answers of one epoch, and all that is counted with each of them."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.told: list[CountsReport] = []
        self.lives: list[int] = []
        self.progressed: list[CountsReport] = []
        self.released: CountsReport | None = None

    def accept(self, credit: int, have: object, counts: Counts) -> None:
        self.counts = counts
        self.lives.append(counts.life)

    def ack(self, marker: object) -> None:
        self.told.append(self.counts.report())

    def release(self, marker: object) -> None:
        self.released = self.counts.report()

    def progress(self, number: int | None) -> None:
        self.progressed.append(self.counts.report())

    def fail(self, *given: Any) -> None:
        raise AssertionError(given)

    def schema(self, id_: int) -> Any:
        return CHANGES[0].schema


class Heard(Subscriber):
    """Fails once at ``at``."""

    def __init__(self, at: int = -1) -> None:
        self.calls = 0
        self.at = at

    async def on_update(self, update: Update) -> None:
        if update.index == self.at:
            self.at = -1
            raise RuntimeError("once")
        self.calls += 1


class Together(Subscriber):
    async def on_updates(self, updates: Sequence[Update]) -> None:
        pass


class Threaded(Subscriber):
    def on_update(self, update: Update) -> None:
        pass


def new_worker(subscriber: Subscriber, port: Port, counts: Counts, *skip: str, concurrency: int = 1) -> FlowWorker:
    return FlowWorker(
        Handlers(subscriber, None),
        Options(application="app", listen="127.0.0.1:1", concurrency=concurrency),
        port,  # type: ignore[arg-type]  # what it is asked for here
        Assigned(1, 1, "db1", marker_at(0), False, skip),
        KeptOverEpochs(Retry(RetryPolicy(first_wait=0.001), lambda: 0.0), counts),
        credit=1 << 20,
    )


async def told_by(subscriber: Subscriber, counts: Counts, *skip: str, concurrency: int = 1) -> Port:
    """One epoch with one batch of six updates and a datamarker, then given back."""
    port = Port()
    worker = new_worker(subscriber, port, counts, *skip, concurrency=concurrency)
    task = worker.start()
    worker.feed(BatchItem(1, False, body_of(CHANGES, number=7)))
    worker.feed(MarkerItem(marker_at(7)))
    await eventually(lambda: bool(port.told), "an acknowledgement")
    worker.end(Ending.REVOKED)
    await task
    return port


def figures(told: CountsReport) -> tuple[int, int]:
    """Processed and set aside."""
    return sum(one.updates for one in told.windows.values()), sum(one.aside for one in told.windows.values())


def rolled_back(told: CountsReport) -> int:
    """Processed or set aside, and to come again."""
    return sum(one.rolled_back for one in told.windows.values())


@pytest.mark.parametrize(("kind", "concurrency"), [(Heard, 1), (Heard, 3), (Together, 1), (Threaded, 1)])
async def test_what_was_called_is_reported_and_the_life_goes_on(kind: type[Subscriber], concurrency: int) -> None:
    counts = Counts()
    life = counts.life
    port = await told_by(kind(), counts, concurrency=concurrency)
    assert [figures(told) for told in port.told] == [(6, 0)]
    assert port.lives == [life] == [port.told[0].life]
    assert port.released == port.told[0]
    assert (counts.life, rolled_back(port.told[0])) == (life, 0)


async def test_callbacks_that_run_again_after_a_failure_are_counted_again() -> None:
    heard = Heard(at=4)
    port = await told_by(heard, Counts())
    assert figures(port.told[0]) == (heard.calls, 0) == (10, 0)
    assert rolled_back(port.told[0]) == 4
    assert [figures(told) for told in port.progressed] == [(4, 0), (10, 0)], "the failure is told before the second try"


async def test_side_by_side_too() -> None:
    heard = Heard(at=5)
    port = await told_by(heard, Counts(), concurrency=2)
    assert figures(port.told[0]) == (heard.calls, 0)
    assert rolled_back(port.told[0]) == heard.calls - 6


async def test_what_is_passed_over_is_counted_apart_with_its_hash() -> None:
    port = await told_by(Heard(), Counts(), "test:7:2")
    assert figures(port.told[0]) == (5, 1)
    (one,) = port.told[0].windows.values()
    assert one.aside_hash == update_hash("test", 7, 2)


async def test_callbacks_before_a_revocation_are_reported_with_the_release() -> None:
    class Slow(Subscriber):
        def __init__(self) -> None:
            self.calls = 0
            self.reached = asyncio.Event()
            self.go = asyncio.Event()

        async def on_update(self, update: Update) -> None:
            self.calls += 1
            if self.calls == 3:
                self.reached.set()
                await self.go.wait()

    slow, port = Slow(), Port()
    worker = new_worker(slow, port, Counts())
    task = worker.start()
    worker.feed(BatchItem(1, False, body_of(CHANGES, number=7)))
    await slow.reached.wait()
    worker.end(Ending.REVOKED)
    slow.go.set()
    await task
    assert slow.calls == 3
    assert port.released is not None
    assert figures(port.released) == (3, 0)


async def test_an_update_that_was_not_called_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    each = Callbacks._each

    async def without_one(calls: Callbacks, updates: list[Update]) -> bool:
        return await each(calls, updates[1:])

    monkeypatch.setattr(Callbacks, "_each", without_one)  # a fault of the SDK: what it returns is not what it called
    port = await told_by(Heard(), Counts())
    assert figures(port.told[0]) == (5, 0)
