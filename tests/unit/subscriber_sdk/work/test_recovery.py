"""What follows when a callback fails: rollback, another try, a resend, or parking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, cast

import pytest

from subscriber_sdk import (
    RetryPolicy,
    Subscriber,
    Update,
)
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Ending, Epoch
from subscriber_sdk.calls.gate import Gate
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.subscriber import ParkRefused
from subscriber_sdk.testing import Change, Kit, marker_at, update
from subscriber_sdk.work.parking import EpochOver, Parking
from tests.support.eventually import eventually
from tests.support.flows import Recorder, failing
from tests.support.letters import letter
from wormhole.model.errors import HandlerFailed
from wormhole.ports.dead_letters import Parcel, UpdatePlace, open_parcel
from wormhole.wire.v1 import update_pb2

# --- recovery: what follows when a callback fails: rollback, another try, a resend, standing still ---


def test_a_failure_rolls_back_to_the_last_acknowledged_place(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder(failing(2, key=3)))
    flow.commit(update("t", key=1))
    flow.commit(update("t", key=2), update("t", key=3))
    again = ["rollback 1 no", 2, 3]
    assert subscriber.heard == ["assigned", 1, "marker 1", 2, 3, *again, *again, "marker 2"]
    assert flow.datamarker == flow.end
    assert wormhole_kit.now == pytest.approx(0.1 + 0.2)


def test_retries_exhausted_halt_the_flow(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder(failing(99)), retry=RetryPolicy(attempts=3))
    with pytest.raises(HandlerFailed, match="test:1:0 after 3 attempts") as raised:
        flow.commit(update("t", key=1))
    assert isinstance(raised.value.__cause__, ValueError)
    assert flow.halted is not None
    assert (flow.halted.update_id, flow.halted.attempts) == ("test:1:0", 3)
    assert subscriber.heard[-1] == "halted test:1:0"
    assert flow.datamarker == marker_at(0)


def test_a_halted_flow_begins_again_when_it_is_assigned_anew(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder(failing(2)), retry=RetryPolicy(attempts=2))
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    flow.crash_and_redeliver()
    assert flow.datamarker == flow.end


def test_a_batch_that_repeats_too_much_is_asked_for_again(wormhole_kit: Kit) -> None:
    """A transaction larger than what is held: RESEND, a new epoch, and the attempts still count."""
    flow = wormhole_kit.attach(subscriber := Recorder(failing(2, key=9)), credit=300, retry=RetryPolicy(attempts=3))
    rows = [update("t", key=n, after={"v": bytes(100)}) for n in range(10)]
    flow.commit(*rows, pieces=10)
    assert flow.datamarker == flow.end
    assert flow.epoch == 3
    assert [h for h in subscriber.heard if h == 9] == [9, 9, 9]


def test_attempts_are_counted_over_resends(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder(failing(99, key=9)), credit=300, retry=RetryPolicy(attempts=3))
    with pytest.raises(HandlerFailed, match="after 3 attempts"):
        flow.commit(*[update("t", key=n, after={"v": bytes(100)}) for n in range(10)], pieces=10)


@pytest.mark.parametrize("name", ["on_datamarker", "on_rollback", "on_shard_notice"])
def test_other_callbacks_are_retried_too(wormhole_kit: Kit, name: str) -> None:
    class Flaky(Recorder):
        left = 2

    async def flaky(self: Flaky, *arguments: Any) -> None:
        if self.left:
            self.left -= 1
            raise OSError(name)

    setattr(Flaky, name, flaky)
    flow = wormhole_kit.attach(Flaky(failing(1)))
    flow.commit(update("t", key=1))
    assert flow.datamarker == flow.end


def test_a_failed_batch_names_its_first_update(wormhole_kit: Kit) -> None:
    class Batches(Subscriber):
        def on_updates(self, batch: Sequence[Update]) -> None:
            raise OSError

    flow = wormhole_kit.attach(Batches(), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed, match="test:1:0"):
        flow.commit(update("t", key=1), update("t", key=2))


@pytest.mark.parametrize("on_failure", ["halt", "park"])
def test_an_update_of_an_unknown_operation_halts_the_flow_at_itself(
    wormhole_kit: Kit, on_failure: Literal["halt", "park"]
) -> None:
    """Nor can the publisher store it as a parked update: no other release of this side could read it."""

    class Reader(Subscriber):
        def on_update(self, update: Update) -> None:
            assert update.op

    known = update("t", key=1)
    unknown = update_pb2.Update.FromString(known.row)
    unknown.op = 99  # type: ignore[assignment]
    flow = wormhole_kit.attach(Reader(), on_failure=on_failure, retry=1)
    with pytest.raises(HandlerFailed, match="halted at update test:1:1"):
        flow.commit(known, Change(known.schema, unknown.SerializeToString()))


# --- parking: in place of a callback: passed over, or stored by the publisher before anything counts on it ---


def users(number: int, key: int = 1) -> Update:
    return open_parcel(letter(number, key)[1])


class Heard(Subscriber):
    def __init__(self) -> None:
        self.ids: list[str] = []

    async def on_update(self, update: Update) -> None:
        self.ids.append(update.id)


class Asked:
    """A port that notes what it should have stored."""

    def __init__(self) -> None:
        self.parks: list[tuple[str, str]] = []

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        assert open_parcel(parcel).id == update_id
        self.parks.append((update_id, error))


class World:
    def __init__(self, gate: Gate | None = None) -> None:
        self.rests = 0
        self.epoch = Epoch("shop", 1, marker_at(0), self._rested)
        self.heard = Heard()
        self.calls = Callbacks(self.epoch, Handlers(self.heard), 30.0)
        self.asked = Asked()
        self.parking = Parking(self.epoch, self.calls, cast(FlowPort, self.asked), gate or Gate())

    def _rested(self) -> None:
        self.rests += 1

    async def begin(self, awaitable: Any) -> asyncio.Task[Any]:
        """Start it, up to where it waits for the publisher."""
        task: asyncio.Task[Any] = asyncio.ensure_future(awaitable)
        await eventually(lambda: self.parking.waiting, "asked to park")
        return task


@pytest.fixture
def world() -> World:
    return World()


async def test_nothing_counts_as_parked_before_the_publisher_says_so(world: World) -> None:
    task = await world.begin(world.parking.park(users(5), ValueError("no")))
    assert (world.epoch.resting, world.rests, world.parking.parked) == (True, 1, 0)
    assert not world.parking.gate.stored(users(5))
    world.parking.answered("another", "")
    assert world.parking.waiting
    world.parking.answered(users(5).id, "")
    assert not world.epoch.resting, "the answer is work"
    assert await task
    assert world.parking.gate.stored(users(5))
    assert (world.parking.parked, world.asked.parks) == (1, [(users(5).id, "ValueError('no')")])


@pytest.mark.parametrize("given", [{}, {"id": "billing-1"}])
async def test_a_process_without_an_id_of_its_own_is_told_that_a_restart_makes_it_another_one(
    world: World, given: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    options = Options("shop", coordinator="zk:2181", **given)
    gate = Gate()
    world.parking = Parking(world.epoch, world.calls, cast(FlowPort, world.asked), gate, lasting=options.lasting)
    task = await world.begin(world.parking.park(users(5), ValueError("no")))
    world.parking.answered(users(5).id, "")
    assert await task
    assert ("give it an `id`" in caplog.text) is not bool(given)


async def test_what_was_stored_in_this_epoch_is_not_asked_for_again(world: World) -> None:
    task = await world.begin(world.parking.park(users(5), None))
    world.parking.answered(users(5).id, "")
    await task
    assert await world.parking.park(users(5), None)
    assert len(world.asked.parks) == 1


async def test_a_refusal_says_why(world: World) -> None:
    task = await world.begin(world.parking.park(users(5), None))
    world.parking.answered(users(5).id, "1000 are parked")
    with pytest.raises(ParkRefused, match="1000 are parked"):
        await task
    assert not world.parking.gate.stored(users(5))
    assert not world.epoch.resting


async def test_no_answer_is_awaited_when_the_epoch_ends(world: World) -> None:
    task = await world.begin(world.parking.park(users(5), None))
    world.epoch.end(Ending.LOST)
    world.parking.end()
    assert not await task
    assert not await world.parking.park(users(6), None), "nor is anything asked for"
    assert len(world.asked.parks) == 1
    assert world.parking.parked == 0


async def test_what_a_handler_raises_is_reported_in_one_bounded_line(world: World) -> None:
    task = await world.begin(world.parking.park(users(5), ValueError("a\n  b" + "c" * 5000)))
    ((_, error),) = world.asked.parks
    assert "\n" not in error
    assert len(error) == 1003
    world.parking.end()
    await task


async def test_a_sequence_keeps_its_order_around_what_is_diverted() -> None:
    """The row of key 1 is parked from 5 on; 7 is passed over; key 2 is nobody's concern."""
    told, _ = letter(5)
    skipped = users(7, key=2)
    world = World(Gate([skipped.id], [(told.rows[0], told.place)]))
    updates = [users(4), users(5, key=2), users(6), skipped, users(8, key=2)]
    task = await world.begin(world.parking.sequence(updates, singly=False))
    assert world.heard.ids == [users(4).id, users(5, key=2).id], "what is behind waits for the answer"
    world.parking.answered(users(6).id, "")
    assert await task
    assert world.heard.ids[2:] == [users(8, key=2).id]
    assert (world.parking.skipped, world.parking.parked) == (1, 1)


async def test_one_of_several_that_could_not_be_parked_is_no_success() -> None:
    told, _ = letter(5)
    world = World(Gate(parked=[(told.rows[0], told.place)]))
    task = await world.begin(world.parking.one(users(6)))
    world.epoch.end(Ending.REVOKED)
    world.parking.end()
    with pytest.raises(EpochOver):
        await task
    await world.parking.one(users(4))
    assert world.heard.ids == [users(4).id]
