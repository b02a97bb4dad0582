"""Credit of all flows together, and what a newer epoch does to an older one (more in test_dispatch)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from subscriber_sdk import RetryPolicy
from subscriber_sdk.server.epoch_records import EpochRecords
from subscriber_sdk.testing import ScriptedPublisher, frames, marker_at
from tests.support.flows import Gate, Idle, NewWorld, Recorder, World, failing
from wormhole.wire.v1 import push_pb2


async def test_flows_share_one_budget_and_a_later_one_always_gets_some(new_world: NewWorld) -> None:
    world, publisher = new_world(Idle(), credit=1 << 20, buffer=4 << 20)
    for flow in range(1, 21):
        publisher.send(frames.assign(flow, 1, "app", f"s{flow}", marker_at(0)))
    await world.shards.settled()
    granted = [frame.accepted.credit for frame in publisher.take("accepted")]
    assert granted[0] == 1 << 20
    assert granted == sorted(granted, reverse=True)
    assert granted[-1] == 64 << 10
    assert sum(granted) <= (4 << 20) + 20 * (64 << 10)
    for flow in range(1, 21):
        publisher.send(frames.revoke(flow, 1))
    await world.shards.settled()
    await world.open(publisher, 2, 99, "s1")
    assert publisher.take("accepted")[0].accepted.credit == 1 << 20


async def test_the_same_epoch_again_takes_over(new_world: NewWorld) -> None:
    """A publisher that lost the stream and did not change owner may dial with the epoch it has."""
    world, first = new_world(Idle())
    for publisher in (first, world.dial()):
        await world.open(publisher, 3)
        assert publisher.take("accepted")
    assert [worker.epoch.number for worker in world.shards.workers()] == [3]


@pytest.fixture
async def busy(new_world: NewWorld) -> tuple[World, Gate]:
    """A callback of the shard ``s`` runs, in epoch 3 of a publisher that is gone, until its gate opens."""
    world, lost = new_world(gate := Gate())
    await world.open(lost, 3)
    world.push(lost, 1, 1, epoch=3)
    await gate.entered.wait()
    lost.vanish()
    return world, gate


async def test_one_that_leaves_gives_nothing_back_while_a_callback_of_the_shard_runs(busy: tuple[World, Gate]) -> None:
    world, gate = busy
    publisher = world.dial()
    leaving = asyncio.create_task(world.shards.leave(60.0))
    await asyncio.sleep(0)
    publisher.send(frames.assign(1, 4, "app", "s", marker_at(0)))
    assert publisher.take("released") == []
    gate.open.set()
    assert await leaving
    assert len(publisher.take("released")) == 1


async def test_a_flow_revoked_before_its_record_was_found_is_not_released_while_a_callback_of_its_shard_runs(
    busy: tuple[World, Gate],
) -> None:
    async def nothing_recorded(_shards: Collection[str]) -> Mapping[str, int]:
        return {}

    world, gate = busy
    publisher = world.dial()
    connection = publisher.connection
    unchecked = connection._unchecked = EpochRecords(nothing_recorded, connection._take, connection._refuse_unrecorded)
    publisher.send(frames.assign(1, 4, "app", "s", marker_at(0)), frames.revoke(1, 4))
    assert publisher.take("released") == []
    gate.open.set()
    await world.shards.leave(60.0)
    assert len(publisher.take("released")) == 1
    unchecked.close()


async def test_the_log_says_who_serves_a_shard_from_where_what_fails_there_and_why_no_longer(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world, publisher = new_world(Recorder(failing(1)), retry=RetryPolicy(attempts=1))
    await world.open(publisher, 3)
    world.push(publisher, 1, 1, epoch=3)
    await world.shards.settled()
    publisher.send(frames.revoke(1, 3, "the test takes it"))
    await world.shards.close()
    serves, failed, *_, served = [record.getMessage() for record in caplog.records]
    assert serves == f"publisher test/test/log@localhost:1 serves shards: s from {marker_at(0)} in epoch 3"
    assert "ValueError: no" in failed
    assert served == "shards are no longer served: s nothing acknowledged: the test takes it"


class Two(World):
    """One subscriber and the publishers that dial it."""

    async def dials(self, owner: str, epoch: int, *, yields: bool = False) -> ScriptedPublisher:
        """A publisher with this lock connects and assigns the shard."""
        publisher = ScriptedPublisher(self.shards, self.options)
        assign = frames.assign(1, epoch, "app", "s", marker_at(0), yields=yields)
        publisher.send(frames.hello("app", publisher=f"p-{owner}", owner=owner), assign)
        await self.shards.settled()
        return publisher


def refused(publisher: ScriptedPublisher) -> push_pb2.Failed:
    (frame,) = publisher.take("failed")
    assert frame.failed.reason == push_pb2.Failed.STALE_EPOCH
    return frame.failed


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    two = Two(Idle())
    yield two
    await two.shards.close()


async def test_of_two_publishers_in_one_epoch_the_first_keeps_the_shard(two: Two) -> None:
    first = await two.dials("a", 3)
    assert first.take("accepted")
    second = await two.dials("b", 3)
    told = refused(second)
    assert (told.held_epoch, told.held_by, told.contested) == (3, "p-a", True)
    assert not first.take("failed")
    assert [worker.epoch.number for worker in two.shards.workers()] == [3]


async def test_also_when_the_first_is_gone_an_epoch_has_one_publisher(two: Two) -> None:
    first = await two.dials("a", 3)
    first.vanish()
    told = refused(await two.dials("b", 3))
    assert (told.held_epoch, told.held_by, told.contested) == (3, "p-a", False)
    assert (await two.dials("b", 4)).take("accepted")


async def test_a_publisher_whose_flow_is_taken_is_reported_by_whom(two: Two) -> None:
    first = await two.dials("a", 3)
    second = await two.dials("b", 4)
    assert second.take("accepted")
    told = refused(first)
    assert (told.epoch, told.held_epoch, told.held_by, told.contested) == (3, 4, "p-b", True)


async def test_one_that_yields_takes_nothing_from_a_publisher_that_is_connected(two: Two) -> None:
    first = await two.dials("a", 3)
    assert first.take("accepted")
    second = await two.dials("b", 9, yields=True)
    assert refused(second).contested
    assert not first.take("failed")
    first.vanish()
    assert (await two.dials("b", 10, yields=True)).take("accepted")


async def test_one_that_yields_takes_over_from_itself(two: Two) -> None:
    """The old stream of a publisher that was killed may look open for a while."""
    await two.dials("a", 3)
    assert (await two.dials("a", 4, yields=True)).take("accepted")
