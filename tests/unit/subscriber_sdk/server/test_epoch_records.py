"""Assignments that wait for their records, and streams joined to flows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

import pytest

from subscriber_sdk.server import epoch_records as module
from subscriber_sdk.server.epoch_records import EpochRecords
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.testing import body_of, frames, marker_at, update
from tests.support.eventually import eventually, patience
from tests.support.flows import Idle, NewWorld
from wormhole.model.errors import CoordinationLost
from wormhole.wire.v1 import push_pb2

# --- epoch records ---


class World:
    """``epochs``: what is recorded; ``None``: nothing is, anywhere.

    ``asked``: how many shards each look-up was about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience_s: float = 60.0) -> None:
        monkeypatch.setattr(module, "_AGAIN_S", 0.001)
        monkeypatch.setattr(module, "_PATIENCE_S", patience_s)
        self.epochs: Mapping[str, int] | None = {}
        self.lost = False
        self.asked: list[int] = []
        self.done: asyncio.Queue[tuple[str, int | None]] = asyncio.Queue()
        self.recorded = EpochRecords(self.ask, self.take, self._put)

    async def ask(self, shards: Collection[str]) -> Mapping[str, int] | None:
        self.asked.append(len(shards))
        await asyncio.sleep(0)
        if self.lost:
            raise CoordinationLost("no contact")
        return self.epochs

    def take(self, assigned: Assigned) -> None:
        self._put(assigned, None)

    def _put(self, assigned: Assigned, epoch: int | None) -> None:
        self.done.put_nowait((assigned.shard, epoch))

    async def next(self) -> tuple[str, int | None]:
        async with patience():
            return await self.done.get()

    async def asked_again(self) -> None:
        seen = len(self.asked)
        await eventually(lambda: len(self.asked) >= seen + 2, "it is looked up again")


def assigned(flow: int, epoch: int = 5) -> Assigned:
    return Assigned(flow, epoch, f"s{flow}", marker_at(0), False)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_what_is_recorded_is_taken_and_the_rest_waits_for_it(world: World) -> None:
    world.epochs = {"s1": 5, "s2": 4}
    world.recorded.add(assigned(1))
    world.recorded.add(assigned(2))
    assert await world.next() == ("s1", None)
    await world.asked_again()
    assert world.done.empty()
    world.epochs = {"s2": 5}
    assert await world.next() == ("s2", None)


async def test_what_a_later_owner_has_recorded_is_refused_at_once(world: World) -> None:
    """An assignment of a former owner may have been on its way when the log was taken over."""
    world.epochs = {"s1": 6}
    world.recorded.add(assigned(1))
    assert await world.next() == ("s1", 6)


async def test_what_is_not_recorded_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, patience_s=0)
    world.epochs = {"s1": 4}
    world.recorded.add(assigned(1))
    world.recorded.add(assigned(2))
    assert {await world.next(), await world.next()} == {("s1", 4), ("s2", 0)}


async def test_where_nothing_is_recorded_everything_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, patience_s=0)
    world.epochs = None
    world.recorded.add(assigned(1))
    assert await world.next() == ("s1", None)


async def test_without_contact_it_waits_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, patience_s=0)
    world.lost = True
    world.recorded.add(assigned(1))
    await world.asked_again()
    assert world.done.empty()
    assert caplog.text.count("1 assignments wait until their epochs can be looked up: no contact") == 1
    world.lost, world.epochs = False, {"s1": 5}
    assert await world.next() == ("s1", None)


async def test_many_are_looked_up_in_portions(world: World) -> None:
    """So that a stream that asks for thousands leaves room between them for the others."""
    world.epochs = {f"s{flow}": 5 for flow in range(200)}
    for flow in range(200):
        world.recorded.add(assigned(flow))
    assert {(await world.next())[0] for _ in range(200)} == set(world.epochs)
    assert world.asked == [64, 64, 64, 8]


async def test_what_is_wanted_back_or_assigned_anew_is_not_taken(world: World) -> None:
    for flow in (1, 2):
        world.recorded.add(assigned(flow))
    await world.asked_again()
    assert world.recorded.drop(1)
    assert not world.recorded.drop(1)
    world.recorded.add(assigned(2, epoch=6))
    world.epochs = {"s1": 5, "s2": 5}
    await world.asked_again()
    assert world.done.empty()
    world.recorded.close()
    world.epochs = {"s2": 6}
    await asyncio.sleep(0.01)
    assert world.done.empty()


# --- connection: A stream joined to flows: what a closed stream no longer says ---


async def test_goodbye_ends_the_flows_without_an_answer(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world, publisher = new_world(Idle())
    await world.open(publisher)
    publisher.received.clear()
    publisher.send(push_pb2.PublisherFrame(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING)))
    await world.shards.settled()
    assert publisher.closed
    assert publisher.received == []
    assert not world.shards.workers()
    assert "goodbye (LEAVING)" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_silence_ends_the_flows(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world, publisher = new_world(Idle())
    await world.open(publisher)
    publisher.connection.tick(3.0)
    await world.shards.settled()
    assert publisher.closed
    assert not world.shards.workers()
    assert [record.levelname for record in caplog.records if "nothing heard" in record.getMessage()] == ["WARNING"]


async def test_what_needs_no_answer_wakes_nobody(new_world: NewWorld) -> None:
    world, publisher = new_world(Idle())
    change = update("t", key=1)
    publisher.teach([change.schema])
    await world.open(publisher)
    woken: list[None] = []
    publisher.connection._output = lambda: woken.append(None)
    publisher.connection._soon = lambda: None
    data = push_pb2.PublisherMessage(frames=[frames.batch(1, 1, 1, body_of([change]))]).SerializeToString()
    publisher.connection.receive(data, 0.0)
    assert not woken
    await world.shards.settled()
    assert publisher.connection.take_output(0.0) is not None, "its progress"


async def test_leaving_twice_says_goodbye_once(new_world: NewWorld) -> None:
    _, publisher = new_world(Idle())
    publisher.connection.leave()
    publisher.connection.leave()
    assert len(publisher.take("goodbye")) == 1
