"""Callbacks that fail or take too long: what is logged, tried again and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from subscriber_sdk import FlowHalted, NoticeKind, RetryPolicy, ShardNotice, Subscriber, Update
from subscriber_sdk.calls.epoch import Ending, Epoch
from subscriber_sdk.calls.failure_report import change_of, headline
from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.calls.watchdog import Watchdog
from subscriber_sdk.testing import Kit, marker_at, update
from subscriber_sdk.testing.clock import FakeTimeLoop
from tests.support.eventually import PATIENCE_S
from wormhole.host.logs import TextFormatter
from wormhole.model.errors import ConfigError, DecodeError, HandlerFailed
from wormhole.model.position import LogPosition

# --- failure report: what the log shows when a callback fails: the application's own line first ---


HERE = __file__


class Failing(Subscriber):
    async def on_update(self, update: Update) -> None:
        charge(update)


class FailingInThread(Subscriber):
    def on_update(self, update: Update) -> None:
        charge(update)


class Forever(Subscriber):
    async def on_update(self, update: Update) -> None:
        await asyncio.sleep(1e9)


def charge(update: Update) -> None:
    raise LookupError("no card\nof this name")


def logged(kit: Kit, caplog: pytest.LogCaptureFixture, subscriber: Subscriber, **options: Any) -> list[str]:
    """What two attempts for one update write, as ``run`` sets logging up."""
    flow = kit.attach(subscriber, retry=RetryPolicy(attempts=2), **options)
    with pytest.raises(HandlerFailed):
        flow.commit(update("shop.users", key=17, after={"email": "ada@example.com"}))
    formatter = TextFormatter(colours=False)
    texts = [formatter.format(record) for record in caplog.records if "attempt" in record.getMessage()]
    return [text.partition("] ")[2] for text in texts]  # behind time and level


@pytest.mark.parametrize("subscriber", [Failing(), FailingInThread()])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_line_that_raised_comes_first_then_the_next_step(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, subscriber: Subscriber, concurrency: int
) -> None:
    first, second, halted = logged(wormhole_kit, caplog, subscriber, concurrency=concurrency)
    line = charge.__code__.co_firstlineno + 1
    message, _, frames = first.partition("\n")
    assert message.startswith(
        f"{HERE}:{line} in charge: LookupError: no card of this name at update test:1:0, insert of shop.users:17; "
        "flow shop epoch 1: attempt 1 of 2 failed, the next one in 0."
    )
    assert [text.split('"')[1] for text in frames.splitlines() if 'File "' in text] == [HERE, HERE]
    assert "attempt 2 of 2 failed, the last one" in second
    assert "is halted at update test:1:0 after 2 attempts" in halted
    assert "ada@example.com" not in caplog.text


def test_attempts_between_the_first_and_the_last_are_one_line_each(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    flow = wormhole_kit.attach(Failing(), retry=RetryPolicy(attempts=4))
    with pytest.raises(HandlerFailed):
        flow.commit(update("shop.users", key=17))
    attempts = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [bool(record.exc_info) for record in attempts] == [True, False, False, True]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_callback_whose_time_is_over_is_shown_where_it_waited(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, concurrency: int
) -> None:
    (text, *_) = logged(wormhole_kit, caplog, Forever(), concurrency=concurrency, handler_timeout=2)
    line = Forever.on_update.__code__.co_firstlineno + 1
    assert text.startswith(f"{HERE}:{line} in on_update: TimeoutError: on_update ran longer than handler_timeout = 2 s")
    assert "subscriber_sdk/" not in text.replace(HERE, "")


def test_the_alarm_and_the_revocation_show_their_line_too(wormhole_kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    class Sore(Failing):
        async def on_error(self, error: FlowHalted) -> None:
            raise OSError("alarm is down")

        async def on_shard_notice(self, notice: ShardNotice) -> None:
            if notice.kind is NoticeKind.REVOKED:
                raise OSError("cannot forget")

    flow = wormhole_kit.attach(Sore(), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    flow.revoke()
    for callback, error in ((Sore.on_error, "alarm is down"), (Sore.on_shard_notice, "cannot forget")):
        line = f"{HERE}:%d in {callback.__name__}: OSError: {error}; {callback.__name__}"
        raised = callback.__code__.co_firstlineno + (1 if callback is Sore.on_error else 2)
        assert line % raised in caplog.text


def test_without_a_frame_of_the_application_the_exception_is_shown_alone() -> None:
    assert headline(DecodeError("row 3 ends amid a number")) == (
        "wormhole.model.errors.DecodeError: row 3 ends amid a number [log-undecodable]"
    )


def test_a_row_is_shown_without_its_values_and_shortened(wormhole_kit: Kit) -> None:
    seen: list[str] = []

    class Rows(Subscriber):
        async def on_update(self, update: Update) -> None:
            seen.append(change_of(update))

    wormhole_kit.attach(Rows()).commit(update("t", key="k" * 900, after={"v": "secret"}))
    assert seen == [f"insert of t:{'k' * 198}... (902 characters)"]


# --- retry: attempts are counted by shard; an acknowledgement resets the count ---


def place(offset: int, index: int = 0) -> tuple[LogPosition, int]:
    return LogPosition(1, 1, offset), index


@pytest.mark.parametrize(
    ("policy", "chance", "waits"),
    [
        (RetryPolicy(attempts=9, first_wait=0.5, longest_wait=3.0), 0.0, [0.5, 1.0, 2.0, 3.0, 3.0]),
        (RetryPolicy(first_wait=1.0), 1.0, [0.5]),
        (RetryPolicy(first_wait=1.0), 0.5, [0.75]),
    ],
)
def test_waits_double_up_to_the_longest_and_chance_takes_up_to_half_off(
    policy: RetryPolicy, chance: float, waits: list[float]
) -> None:
    assert [policy.wait(number, chance) for number in range(1, len(waits) + 1)] == waits


def test_a_million_failures_do_not_overflow() -> None:
    assert RetryPolicy(longest_wait=60.0).wait(1_000_000, 0.0) == 60.0


@pytest.mark.parametrize(
    ("attempts", "fails", "again"),
    [
        (3, [place(5), place(5), place(5)], [True, True, False]),
        (1, [None], [False]),
        (3, [place(5), place(5), place(5, 1), place(5, 1), place(5, 1)], [True, True, True, True, False]),
        (3, [place(5), place(4), place(3)], [True, True, False]),
        (2, [None, place(1)], [True, False]),
    ],
    ids=["the first try counts", "a single attempt", "further on a new count", "before the furthest", "no place"],
)
def test_attempts_are_counted_up_to_the_furthest_place(
    attempts: int, fails: list[tuple[LogPosition, int] | None], again: list[bool]
) -> None:
    retry = Retry(RetryPolicy(attempts=attempts), lambda: 0.0)
    assert [retry.failed(one) for one in fails] == again


def test_a_reset_forgets() -> None:
    retry = Retry(RetryPolicy(attempts=2), lambda: 0.0)
    retry.failed(place(5))
    retry.reset()
    assert retry.failed(place(1))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"first_wait": -1.0}, "first_wait"),
        ({"longest_wait": float("inf")}, "longest_wait"),
    ],
)
def test_impossible_policies_name_the_field(fields: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=f"retry.{named}"):
        RetryPolicy(**fields)  # type: ignore[arg-type]


# --- watchdog: A callback over its time is noticed within an eighth of the limit ---


@pytest.fixture
def loop() -> Iterator[FakeTimeLoop]:
    loop = FakeTimeLoop()
    yield loop
    loop.close()


def test_it_cancels_between_the_limit_and_an_eighth_more(loop: FakeTimeLoop) -> None:
    async def main() -> float:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        await asyncio.sleep(0.5)
        dog.current = "slow"
        began = loop.time()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            task.uncancel()
        assert dog.expired
        dog.close()
        return loop.time() - began

    assert 8.0 <= loop.run_until_complete(main()) <= 9.0


def test_many_short_callbacks_are_fine(loop: FakeTimeLoop) -> None:
    async def main() -> None:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        for number in range(50):
            dog.current = object()
            await asyncio.sleep(7.0)
            assert not dog.expired, number
        dog.close()

    loop.run_until_complete(main())


def test_resting_costs_no_timer(loop: FakeTimeLoop) -> None:
    async def main() -> None:
        dog = Watchdog(8.0)
        task = asyncio.current_task()
        assert task is not None
        dog.watch(task)
        dog.current = "x"
        dog.rest()
        await asyncio.sleep(100)
        assert not dog.expired
        began = loop.time()
        dog.watch(task)
        dog.current = "y"
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            task.uncancel()
        assert loop.time() - began < 10
        dog.close()

    loop.run_until_complete(main())


# --- epoch: what the parts of one epoch share: how it ends, and how it waits ---


@pytest.fixture
def epoch() -> Epoch:
    return Epoch("shop", 3, marker_at(0))


def test_the_first_reason_to_end_stays(epoch: Epoch) -> None:
    assert epoch.end(Ending.REVOKED)
    assert not epoch.end(Ending.LOST, "the stream broke")
    assert (epoch.ending, epoch.cause, epoch.state) == (Ending.REVOKED, "revoked", "ending")


def test_the_state_says_the_gravest(epoch: Epoch) -> None:
    states = [epoch.state]
    epoch.resting = True
    states.append(epoch.state)
    epoch.stopped = True
    states.append(epoch.state)
    epoch.halted = FlowHalted("shop", 3, "a:1", 8, marker_at(0), ValueError("no"))
    states.append(epoch.state)
    epoch.end(Ending.CUT, "epoch 4 was assigned")
    assert [*states, epoch.state] == ["working", "resting", "stopped", "halted", "ending"]
    assert epoch.cause == "epoch 4 was assigned"


def test_an_acknowledged_place_is_where_a_rollback_leads(epoch: Epoch) -> None:
    assert (epoch.marker, epoch.acked) == (marker_at(0), None)
    epoch.acknowledged(marker_at(1))
    assert (epoch.marker, epoch.acked) == (marker_at(1), marker_at(1))


def test_rest_is_reported() -> None:
    told: list[bool] = []
    resting = Epoch("shop", 3, marker_at(0), lambda: told.append(resting.resting))
    resting.rest()
    assert told == [True]


async def test_a_pause_ends_with_the_epoch(epoch: Epoch) -> None:
    await epoch.pause(0.0)
    waiting = asyncio.create_task(epoch.pause(3600.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    epoch.end(Ending.LOST)
    await asyncio.wait_for(waiting, PATIENCE_S)
