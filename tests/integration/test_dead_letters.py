"""Parking with both sides for real: the publisher over memory parts, gRPC, the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from publisher.stores.dead_letters.memory import MemoryDeadLetters
from subscriber_sdk import RetryPolicy, Subscriber, Update, serve
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.model.errors import UsageError
from wormhole.ports.dead_letters import Parcel, place_of, wrap
from wormhole.push.parking import park_frames
from wormhole.wire.v1 import push_pb2, update_pb2

KEY = ("app", "log.t")
RETRY = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.01)


class Keys(Subscriber):
    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.seen: list[str] = []
        self.waiting = asyncio.Event()
        self.waiting.set()

    async def on_update(self, update: Update) -> None:
        key = bytes(update.key[0]).decode()  # type: ignore[arg-type]
        await self.waiting.wait()
        if key in self.bad:
            raise ValueError(f"{key} is bad")
        self.seen.append(key)


@pytest.fixture
def world() -> World:
    world = World()
    world.application(on_failure="park")
    return world


@asynccontextmanager
async def subscribed(world: World, subscriber: Subscriber, **options: Any) -> AsyncIterator[None]:
    coordinator = MemoryCoordinator(world.coordination)
    await coordinator.start()
    try:
        async with serve(subscriber, application="app", coordinator=coordinator, retry=RETRY, **options):
            yield
    finally:
        await coordinator.stop()


async def flow_of(publisher: Publisher) -> PublisherFlow:
    await eventually(lambda: KEY in publisher.assigner.flows, "the flow is known")
    return publisher.assigner.flows[KEY]


def ids(flow: PublisherFlow) -> list[str]:
    return [letter.id.rpartition("/")[2] for letter in flow.parking.letters or ()]


async def test_from_failure_to_retry(world: World) -> None:
    subscriber = Keys("a")
    async with world.publisher() as publisher, subscribed(world, subscriber):
        world.commit("a", "b")
        last = world.commit("a", "c")
        flow = await flow_of(publisher)
        await eventually(lambda: flow.delivery.durable == last, "everything was processed or parked")
        assert subscriber.seen == ["b", "c"]
        told, total = await publisher.dead_letters.letters(KEY, 1)
        assert total == flow.parking.count == 2
        [first] = told
        assert (first.flow, first.table, first.key, first.op) == ("app/log.t", "t", "t:0x61", "upsert")
        assert first.error == "ValueError('a is bad')"
        (_, second), _ = await publisher.dead_letters.letters(None, 10)
        assert second.error == "an earlier update of its row is parked"
        epoch = flow.holding.epoch
        note = await publisher.dead_letters.retry(flow, "t:0x61", preview=True)
        assert "2 parked updates are delivered again" in note
        assert flow.holding.epoch == epoch
        subscriber.bad.clear()
        subscriber.seen.clear()
        await publisher.dead_letters.retry(flow, "t:0x61")
        world.commit("a", "d")
        await eventually(lambda: subscriber.seen == ["a", "a", "a", "d"], "in order, before anything new")
        await eventually(lambda: not flow.parking.count, "they are gone")
        assert world.markers.letters == {KEY: {}}
        with pytest.raises(UsageError, match="no update is parked"):
            await publisher.dead_letters.retry(flow, "")


async def test_parked_updates_outlive_both_processes(world: World) -> None:
    async with world.publisher() as publisher, subscribed(world, Keys("a")):
        place = world.commit("a")
        flow = await flow_of(publisher)
        await eventually(lambda: flow.delivery.durable == place, "parked")
    another = Keys()
    async with world.publisher() as publisher, subscribed(world, another):
        place = world.commit("a", "b")
        flow = await flow_of(publisher)
        await eventually(lambda: flow.delivery.durable == place, "what follows is parked too")
        assert another.seen == ["b"]
        assert flow.parking.count == 2
        await publisher.dead_letters.discard(flow, "")
        world.commit("a")
        await eventually(lambda: another.seen == ["b", "a"], "the row is free")
        assert flow.parking.count == 0


async def test_at_the_bound_the_flow_is_halted_and_says_what_to_do(world: World) -> None:
    world.settings["dead_letters"] = 1
    subscriber = Keys("a")
    async with world.publisher() as publisher, subscribed(world, subscriber):
        first = world.commit("a")
        flow = await flow_of(publisher)
        await eventually(lambda: flow.delivery.durable == first, "parked")
        last = world.commit("a", "b")
        await eventually(lambda: flow.state(frozenset()) is PublisherFlowState.HELD, "full")
        assert "1 updates are parked, which is publisher.dead_letters" in flow.cause
        assert "wormholectl flows dead-letters retry app/log.t" in flow.cause
        assert "b" not in subscriber.seen
        subscriber.bad.clear()
        await publisher.dead_letters.retry(flow, "")
        await eventually(lambda: flow.delivery.durable == last, "there is room again")
        assert subscriber.seen == ["a", "a", "b"]
        assert flow.parking.count == 0


async def test_bytes_are_bounded_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDeadLetters, "most_bytes", 10)
    async with world.publisher() as publisher, subscribed(world, Keys("a")):
        world.commit("a")
        world.commit("a")
        flow = await flow_of(publisher)
        await eventually(lambda: "10 are kept" in flow.cause, "the first goes in, the second does not")
        assert flow.parking.count == 1
        monkeypatch.setattr(MemoryDeadLetters, "largest", 10)
        await publisher.dead_letters.discard(flow, "")
        await eventually(lambda: "the store takes 10 of one" in flow.cause, "no single one may be larger")


async def test_a_subscriber_that_takes_no_message_as_large_as_the_assignment_waits_and_the_flow_says_why(
    world: World,
) -> None:
    bad = [f"{number:03}" + "x" * 200 for number in range(30)]
    async with world.publisher() as publisher, subscribed(world, Keys(*bad)):
        place = world.commit(*bad)
        flow = await flow_of(publisher)
        await eventually(lambda: flow.delivery.durable == place, "parked")
    small = Keys()
    async with world.publisher() as publisher, subscribed(world, small, max_frame=4096):
        flow = await flow_of(publisher)
        await eventually(lambda: "bytes too many for one message" in flow.cause, "it says why")
        epoch = flow.holding.epoch
        (stream,) = publisher.assigner.streams()
        world.commit("next")
        publisher.assigner.changed()
        await eventually(lambda: stream.traffic.connections == 1 and stream.connected, "its stream is not ended by it")
        assert (flow.holding.epoch, small.seen, stream.flows) == (epoch, [], []), "nor are epochs used up"
        await publisher.dead_letters.retry(flow, "")
        await eventually(lambda: small.seen == [*bad, "next"], "what is delivered again needs no room")


async def test_as_much_is_parked_as_the_subscriber_can_hear_of(world: World) -> None:
    bad = [f"{number:03}" + "x" * 200 for number in range(30)]
    async with world.publisher() as publisher, subscribed(world, Keys(*bad), max_frame=4096):
        world.commit(*bad)
        flow = await flow_of(publisher)
        await eventually(lambda: "half of max_frame is 2048" in flow.cause, "it halts, and says why")
        assert 0 < flow.parking.count < len(bad)


async def test_reports_reach_the_flow(world: World) -> None:
    world.settings["heartbeat"] = 0.2
    subscriber = Keys()
    async with world.publisher() as publisher, subscribed(world, subscriber):
        world.commit("a")
        flow = await flow_of(publisher)
        await eventually(lambda: flow.holding.handler is not None and flow.holding.handler.updates == 1, "told")
        assert flow.holding.progressed_at > 0
        subscriber.waiting.clear()
        world.commit("b")
        held = flow.holding
        await eventually(lambda: held.handler is not None and bool(held.handler.running_update), "it runs")
        assert held.handler is not None
        assert held.handler.running_s >= 0
        subscriber.waiting.set()
        await eventually(lambda: held.handler is not None and held.handler.slowest_table == "t", "it was slow")


async def test_what_a_subscriber_parked_that_never_was_reaches_no_other_one(world: World) -> None:
    """Unless an operator vouches for it."""
    world.commit("a", "b")
    async with (
        scripted_subscriber("app", "bad-1") as bad,
        scripted_subscriber("app", "good-1") as good,
        world.publisher() as publisher,
    ):
        await world.register(bad)
        assign = await bad.accepts(await bad.hears_later("assign"))
        real, other = bad.updates(await bad.hears_later("batch"))
        body = update_pb2.BatchBody.FromString(wrap(real).body)
        row = update_pb2.Update.FromString(body.updates[0])
        row.key[0].bytes = b"F"
        body.updates[0] = row.SerializeToString()
        forged = Parcel(wrap(real).schema, body.SerializeToString())
        for frame in park_frames(real.id, forged, place_of(real), "no", 1 << 20):
            frame.flow, frame.epoch = assign.flow, assign.epoch
            await bad.says(park=frame)
        assert (await bad.hears_later("parked")).parked.refused == ""
        flow = await flow_of(publisher)
        await world.leaves(bad)
        await world.register(good)
        await publisher.dead_letters.retry(flow, "")
        await bad.says(released=push_pb2.Released(flow=assign.flow, epoch=assign.epoch))
        taken = await good.hears_later("assign")
        assert [one.key.values[0].bytes for one in taken.assign.parked] == [b"F"]
        await good.accepts(taken)
        assert [one.id for one in good.updates(await good.hears_later("batch"))] == [real.id, other.id]
        await publisher.dead_letters.retry(flow, "", anyone=True)
        await good.says(released=push_pb2.Released(flow=taken.assign.flow, epoch=taken.assign.epoch))
        again = await good.hears_later("assign")
        assert not again.assign.parked
        await good.accepts(again)
        [one] = good.updates(await good.hears_later("batch"))
        assert one.key == (b"F",)
