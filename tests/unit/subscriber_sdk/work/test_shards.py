"""Credit of all flows together, and what a newer epoch does to an older one (more in test_dispatch)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from subscriber_sdk import RetryPolicy, Subscriber, Update
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.epoch_records import EpochRecords
from subscriber_sdk.testing import ScriptedPublisher, body_of, frames, marker_at, update
from subscriber_sdk.work.shards import Shards
from wormhole.wire.v1 import push_pb2


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


async def test_flows_share_one_budget_and_a_later_one_always_gets_some() -> None:
    options = Options(application="app", id="one", listen="127.0.0.1:1", credit=1 << 20, buffer=4 << 20)
    shards = Shards(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"))
    for flow in range(1, 21):
        publisher.send(frames.assign(flow, 1, "app", f"s{flow}", marker_at(0)))
    await shards.settled()
    granted = [frame.accepted.credit for frame in publisher.take("accepted")]
    assert granted[0] == 1 << 20
    assert granted == sorted(granted, reverse=True)
    assert granted[-1] == 64 << 10
    assert sum(granted) <= (4 << 20) + 20 * (64 << 10)
    for flow in range(1, 21):
        publisher.send(frames.revoke(flow, 1))
    await shards.settled()
    publisher.send(frames.assign(99, 2, "app", "s1", marker_at(0)))
    await shards.settled()
    assert publisher.take("accepted")[0].accepted.credit == 1 << 20
    await shards.close()


async def test_the_same_epoch_again_takes_over() -> None:
    """A publisher that lost the stream and did not change owner may dial with the epoch it has."""
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Shards(Idle(), options)
    for _ in range(2):
        publisher = ScriptedPublisher(shards, options)
        publisher.send(frames.hello("app"), frames.assign(1, 3, "app", "s", marker_at(0)))
        await shards.settled()
        assert publisher.take("accepted")
    assert [worker.epoch.number for worker in shards.workers()] == [3]
    await shards.close()


class Busy:
    """A subscriber whose callback of the shard ``s`` runs, in epoch 3 of a publisher that is gone, until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self._called = asyncio.Event()
        self.options = Options(application="app", id="one", listen="127.0.0.1:1")

        class Slow(Subscriber):
            async def on_update(_, update: Update) -> None:  # noqa: N805 - of another object
                self._called.set()
                await self.may_end.wait()

        self.shards = Shards(Slow(), self.options)

    async def begin(self) -> None:
        lost = ScriptedPublisher(self.shards, self.options)
        lost.send(frames.hello("app"), frames.assign(1, 3, "app", "s", marker_at(0)))
        await self.shards.settled()
        change = update("shop.users", key=1, after={"id": 1})
        lost.teach([change.schema])
        lost.send(frames.batch(1, 3, 1, body_of([change])))
        await self._called.wait()
        lost.vanish()


async def test_one_that_leaves_gives_nothing_back_while_a_callback_of_the_shard_runs() -> None:
    busy = Busy()
    await busy.begin()
    publisher = ScriptedPublisher(busy.shards, busy.options)
    leaving = asyncio.create_task(busy.shards.leave(60.0))
    await asyncio.sleep(0)
    publisher.send(frames.hello("app"), frames.assign(1, 4, "app", "s", marker_at(0)))
    assert publisher.take("released") == []
    busy.may_end.set()
    assert await leaving
    assert len(publisher.take("released")) == 1
    await busy.shards.close()


async def test_a_flow_revoked_before_its_record_was_found_is_not_released_while_a_callback_of_its_shard_runs() -> None:
    async def nothing_recorded(_shards: Collection[str]) -> Mapping[str, int]:
        return {}

    busy = Busy()
    await busy.begin()
    publisher = ScriptedPublisher(busy.shards, busy.options)
    connection = publisher.connection
    unchecked = connection._unchecked = EpochRecords(nothing_recorded, connection._take, connection._refuse_unrecorded)
    publisher.send(frames.hello("app"), frames.assign(1, 4, "app", "s", marker_at(0)), frames.revoke(1, 4))
    assert publisher.take("released") == []
    busy.may_end.set()
    await busy.shards.leave(60.0)
    assert len(publisher.take("released")) == 1
    unchecked.close()
    await busy.shards.close()


async def test_the_log_says_who_serves_a_shard_from_where_and_why_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Shards(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"), frames.assign(1, 3, "app", "s", marker_at(0)))
    await shards.settled()
    publisher.send(frames.revoke(1, 3, "the test takes it"))
    await shards.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"publisher test/test/log@localhost:1 serves shards: s from {marker_at(0)} in epoch 3",
        "shards are no longer served: s nothing acknowledged: the test takes it",
    ]


async def test_who_serves_a_shard_is_logged_before_what_fails_there(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Subscriber):
        async def on_update(self, update: Update) -> None:
            raise ValueError("the cache is away")

    caplog.set_level(logging.INFO)
    options = Options(application="app", id="one", listen="127.0.0.1:1", retry=RetryPolicy(attempts=1))
    shards = Shards(Broken(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"), frames.assign(1, 3, "app", "s", marker_at(0)))
    await shards.settled()
    change = update("shop.users", key=1, after={"id": 1})
    publisher.teach([change.schema])
    publisher.send(frames.batch(1, 3, 1, body_of([change])))
    await shards.settled()
    serves, failed, *_ = [record.getMessage() for record in caplog.records]
    assert serves.startswith("publisher test/test/log@localhost:1 serves shards: s from ")
    assert "the cache is away" in failed
    await shards.close()


async def test_settled_returns_at_once_without_flows() -> None:
    shards = Shards(Idle(), Options(application="app", listen="127.0.0.1:1"))
    await shards.settled()
    assert await shards.leave(1.0)
    await shards.close()


class Two:
    """One subscriber and the publishers that dial it."""

    def __init__(self) -> None:
        self.options = Options(application="app", id="one", listen="127.0.0.1:1")
        self.shards = Shards(Idle(), self.options)

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
    two = Two()
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
