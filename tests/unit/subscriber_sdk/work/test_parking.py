"""In place of a callback: passed over, or stored by the publisher before anything counts on it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Ending, Epoch
from subscriber_sdk.calls.gate import Gate
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.subscriber import ParkRefused
from subscriber_sdk.testing import marker_at
from subscriber_sdk.work.parking import EpochOver, Parking
from tests.support.eventually import eventually
from tests.support.letters import letter
from wormhole.ports.dead_letters import Parcel, UpdatePlace, open_parcel


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
