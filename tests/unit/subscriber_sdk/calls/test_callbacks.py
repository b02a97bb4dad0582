"""Callbacks: which are overridden, where they run, what becomes of an update in their place, and their time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from subscriber_sdk import (
    Datamarker,
    RetryPolicy,
    Subscriber,
    Update,
)
from subscriber_sdk.calls.gate import Gate, Verdict
from subscriber_sdk.calls.handlers import Handlers, each_in_thread
from subscriber_sdk.calls.meter import Meter
from subscriber_sdk.testing import Change, Kit, update
from subscriber_sdk.testing.clock import InlineExecutor
from tests.support.eventually import eventually
from tests.support.flows import NewWorld, Recorder
from tests.support.letters import letter, parcel_of
from wormhole.model.errors import DecodeError
from wormhole.ports.dead_letters import open_parcel

# --- callbacks: callbacks within their time: on the loop, in threads, in batches ---


def test_a_handler_over_its_time_is_cancelled_and_tried_again(wormhole_kit: Kit) -> None:
    cancelled: list[str] = []

    async def act(update: Update) -> None:
        if not cancelled:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(update.id)
                raise

    flow = wormhole_kit.attach(subscriber := Recorder(act), handler_timeout=8.0)
    flow.commit(update("t", key=1))
    assert cancelled == ["test:1:0"]
    assert "handler_timeout = 8 s" in subscriber.heard[2]
    assert flow.datamarker == flow.end
    assert 8.0 <= wormhole_kit.now <= 9.2


def test_a_handler_that_swallows_its_cancellation_counts_as_processed(wormhole_kit: Kit) -> None:
    async def act(update: Update) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    flow = wormhole_kit.attach(subscriber := Recorder(act), handler_timeout=1.0)
    flow.commit(update("t", key=1))
    flow.commit(update("t", key=2))
    assert subscriber.heard == ["assigned", 1, "marker 1", 2, "marker 2"]


def test_cancelled_error_of_the_handlers_own_is_a_failure(wormhole_kit: Kit) -> None:
    raised: list[int] = []

    async def act(update: Update) -> None:
        if not raised:
            raised.append(1)
            raise asyncio.CancelledError

    flow = wormhole_kit.attach(subscriber := Recorder(act))
    flow.commit(update("t", key=1))
    assert "of its own" in subscriber.heard[2]
    assert flow.datamarker == flow.end


def test_batches_come_whole(wormhole_kit: Kit) -> None:
    class Batches(Subscriber):
        def __init__(self) -> None:
            self.batches: list[list[Any]] = []

        async def on_updates(self, batch: Sequence[Update]) -> None:
            self.batches.append([(u.key[0], u.transaction.id, u.ends_transaction) for u in batch])

    flow = wormhole_kit.attach(subscriber := Batches())
    flow.commit(*[update("t", key=n) for n in range(4)], pieces=2)
    assert subscriber.batches == [
        [(0, "test:1", False), (1, "test:1", False)],
        [(2, "test:1", False), (3, "test:1", True)],
    ]


async def test_callbacks_that_never_wait_leave_the_loop_to_others(new_world: NewWorld) -> None:
    class Busy(Subscriber):
        async def on_update(self, update: Update) -> None:
            began = time.perf_counter()
            while time.perf_counter() - began < 0.0002:
                pass

    world, publisher = new_world(Busy())
    await world.open(publisher)
    for number in range(1, 11):
        world.push(publisher, number, *range(100))
    turns = 0
    settled = asyncio.create_task(world.shards.settled())
    while not settled.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_a_plain_def_runs_in_a_thread_and_keeps_order(new_world: NewWorld) -> None:
    loop_thread = threading.get_ident()

    class Threaded(Subscriber):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_update(self, update: Update) -> None:
            assert threading.get_ident() != loop_thread
            self.heard.append(update.key[0])

        def on_datamarker(self, marker: Datamarker) -> None:
            self.heard.append(f"marker {marker.delivered}")

    world, publisher = new_world(subscriber := Threaded())
    await world.open(publisher)
    world.push(publisher, 1, *range(50))
    await world.shards.settled()
    assert subscriber.heard == [*range(50), "marker 1"]


async def test_a_thread_that_outlives_its_time_is_never_joined_by_a_second(new_world: NewWorld) -> None:
    class Stuck(Subscriber):
        def __init__(self) -> None:
            self.release = threading.Event()
            self.inside = self.most = self.calls = 0

        def on_update(self, update: Update) -> None:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.calls == 1:
                self.release.wait()
            self.inside -= 1

    world, publisher = new_world(
        subscriber := Stuck(), handler_timeout=0.2, retry=RetryPolicy(attempts=5, first_wait=0.0)
    )
    await world.open(publisher)
    world.push(publisher, 1, 1)
    await eventually(lambda: subscriber.calls, "begun")
    await asyncio.sleep(0.35)
    assert subscriber.calls == 1
    subscriber.release.set()
    await world.shards.settled()
    assert subscriber.calls > 1, "it was tried again"
    assert subscriber.most == 1
    assert publisher.take("ack")


# --- handlers: which callbacks are overridden, and where they run ---


class One(Subscriber):
    async def on_update(self, update: Any) -> None:
        pass


class Many(Subscriber):
    def on_updates(self, batch: Any) -> None:
        pass


def test_the_update_callback_is_recognised() -> None:
    one, many = Handlers(One()), Handlers(Many())
    assert (one.batched, one.threaded) == (False, False)
    assert (many.batched, many.threaded) == (True, True)


class Both(One, Many):
    pass


class AlsoArrow(One):
    async def on_arrow(self, batch: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Both(), "Both overrides both on_update and on_updates"),
        (AlsoArrow(), "AlsoArrow overrides both on_update and on_arrow"),
        (Subscriber(), "none of on_update, on_updates, on_arrow"),
        (object(), r"no subscriber_sdk\.Subscriber"),
    ],
)
def test_one_callback_of_a_subscriber_takes_updates(given: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Handlers(given)


def test_a_callback_set_on_the_object_counts() -> None:
    subscriber = Subscriber()
    subscriber.on_update = lambda update: None  # type: ignore[method-assign]
    assert Handlers(subscriber).threaded


def test_a_callable_object_may_be_asynchronous() -> None:
    class Callback:
        async def __call__(self, update: Any) -> None:
            pass

    subscriber = Subscriber()
    subscriber.on_update = Callback()  # type: ignore[method-assign]
    assert not Handlers(subscriber).threaded


async def test_callbacks_that_are_not_overridden_answer_their_default() -> None:
    handlers = Handlers(One())
    assert await handlers.call("on_shard_notice", None) is None


async def test_plain_callbacks_run_in_a_thread() -> None:
    class Plain(One):
        def on_error(self, error: Any) -> Any:
            return threading.current_thread().name

    handlers = Handlers(Plain())
    assert (await handlers.call("on_error", None)).startswith("wormhole-handler")
    handlers.close()
    handlers.close()


async def test_async_behind_a_plain_def_is_an_error_not_a_silence() -> None:
    class Hidden(One):
        def on_error(self, error: Any) -> Any:
            return asyncio.sleep(0)

    handlers = Handlers(Hidden(), InlineExecutor())
    with pytest.raises(TypeError, match="declare it with async def"):
        await handlers.call("on_error", None)


def test_each_stops_on_request() -> None:
    heard: list[int] = []
    assert not each_in_thread(heard.append, [1, 2, 3], lambda n: n < 3)
    assert heard == [1, 2]
    assert each_in_thread(heard.append, [4], lambda n: True)


# --- gate: what becomes of an update in place of its callback ---


def users(number: int, key: int = 1) -> Update:
    return open_parcel(letter(number, key)[1])


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_an_update_is_passed_over_by_its_id_even_if_its_row_is_parked() -> None:
    told, _ = letter(5)
    gate = Gate(["test:7:0"], [(told.rows[0], told.place)])
    assert not gate.idle
    assert [gate.verdict(users(n)) for n in (6, 7, 8)] == [Verdict.PARK, Verdict.SKIP, Verdict.PARK]


def test_what_was_before_the_first_parked_update_is_not_held() -> None:
    told, _ = letter(5)
    gate = Gate(parked=[(told.rows[0], told.place)])
    assert [gate.verdict(users(n)) for n in (4, 5, 6)] == [Verdict.CALL, Verdict.PARK, Verdict.PARK]
    assert gate.verdict(users(6, key=2)) is Verdict.CALL


def test_parking_closes_the_row_and_is_remembered(gate: Gate) -> None:
    assert (gate.idle, gate.verdict(users(6))) == (True, Verdict.CALL), "nothing is parked yet"
    gate.parked(users(5))
    assert not gate.idle
    assert gate.stored(users(5))
    assert not gate.stored(users(6))
    assert gate.verdict(users(6)) is Verdict.PARK


def test_a_row_that_cannot_be_read_is_reported(gate: Gate) -> None:
    gate.parked(users(5))
    broken = open_parcel(parcel_of(Change(update("users", key=1, after={"name": "ada"}).schema, b"\xff"), 6))
    with pytest.raises(DecodeError):
        gate.verdict(broken)


# --- meter: what the measure tells, for times that the test gives ---


def of(table: str) -> Update:
    return open_parcel(parcel_of(update(table, key=1)))


SLOW, FAST = of("slow"), of("fast")


@pytest.fixture
def meter() -> Meter:
    return Meter()


def test_the_slowest_of_those_that_are_timed_is_known(meter: Meter) -> None:
    meter.begin(10.0)
    for one, at in ((FAST, 10.0), (SLOW, 10.1), (FAST, 12.1)):
        meter.lap(one, at)
    meter.end([FAST, SLOW, FAST], 12.2)
    assert meter.slowest() == ("slow", 2.0)
    assert meter.slowest() == ("", 0.0)
    assert round(meter.busy, 6) == 2.2
    assert meter.timing


def test_fast_callbacks_are_not_timed_and_slow_ones_again(meter: Meter) -> None:
    many = [FAST] * 64
    timing = []
    for began, took in ((0.0, 64 * 10e-6), (1.0, 0.5)):
        meter.begin(began)
        meter.end(many, began + took)
        timing.append(meter.timing)
    assert timing == [False, True]
    assert meter.slowest() == ("fast", 0.5)


def test_a_slow_piece_of_several_tables_names_none(meter: Meter) -> None:
    meter.begin(0.0)
    meter.end([FAST, SLOW], 3.0)
    assert meter.slowest() == ("", 3.0)


def test_what_runs_now_and_since_when(meter: Meter) -> None:
    assert meter.running(FAST, 5.0) == (None, 0.0)
    meter.begin(5.0)
    assert meter.running(None, 6.0) == (None, 0.0)
    assert meter.running(FAST, 6.0) == (FAST, 1.0)
    meter.lap(SLOW, 7.0)
    assert meter.running(SLOW, 7.5) == (SLOW, 0.5)
    assert meter.spent(8.0) == 3.0
    meter.end([SLOW], 8.0)
    meter.end([], 9.0)
    assert (meter.spent(10.0), meter.running(None, 10.0)) == (3.0, (None, 0.0))


def test_callbacks_side_by_side(meter: Meter) -> None:
    meter.enter(SLOW, 1.0)
    meter.enter(FAST, 2.0)
    assert meter.running(None, 3.0) == (SLOW, 2.0)
    assert meter.spent(3.0) == 3.0
    meter.leave(FAST, 3.0)
    meter.leave(SLOW, 5.0)
    assert meter.busy == 5.0
    assert meter.slowest() == ("slow", 4.0)
