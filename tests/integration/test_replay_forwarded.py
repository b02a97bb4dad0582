"""A mass replay to a subscriber that dials: the publisher forwards what the task pushes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from spark_replay.replay.task import Ended
from subscriber_sdk import Update
from tests.integration.test_replay_parking import FLOW, KEY, Keys, Scene, taking_part
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from wormhole.host.trust import Trust
from wormhole.push.forwarding import MOST_ASSIGNED_BYTES, Forwarding
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2


class Slow(Keys):
    """Waits with the second update."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    async def on_update(self, update: Update) -> None:
        if self.seen:
            self.began.set()
            await self.goes_on.wait()
        await super().on_update(update)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, attaches=True)


async def test_a_replay_goes_on_where_a_cut_connection_ended_it(scene: Scene) -> None:
    port = free_port()
    scene.world.settings["attach_listen"] = f"127.0.0.1:{port}"
    slow = scene.keys = Slow()
    await scene.archived("a")
    end = await scene.archived("b", "c")
    with FaultProxy("127.0.0.1", port) as proxy:
        scene.dials = f"{proxy.host}:{proxy.port}"
        async with taking_part(scene):
            task = asyncio.create_task(scene.replayed(end))
            await asyncio.wait({task, asyncio.ensure_future(slow.began.wait())}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(proxy.cut)
            slow.goes_on.set()
            outcome = await task
            assert (outcome.ended, outcome.marker) == (Ended.DONE, end), outcome.message
            assert outcome.epoch > 1
            await asyncio.to_thread(scene.driver.finish, outcome.epoch, end)
            last = scene.world.commit("d")
            flow = scene.publisher.assigner.flows[KEY]
            await eventually(lambda: flow.delivery.durable == last, "it is live")
    assert set(slow.seen) == {b"a", b"b", b"c", b"d"}
    assert slow.seen[-3:] == [b"b", b"c", b"d"]


async def _trusted(scene: Scene, authority: Authority) -> None:
    crl = await asyncio.to_thread(authority.revoke)
    mine = await asyncio.to_thread(lambda: authority.issue("db1", crl=crl))
    scene.world.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))
    scene.tls = await asyncio.to_thread(authority.issue, "spark")
    scene.options |= {"id": "s1", "tls": await asyncio.to_thread(authority.issue, "s1"), "publishers": ["db1"]}


async def test_with_tls_the_task_proves_itself_to_the_publisher(scene: Scene, tmp_path: Path) -> None:
    await _trusted(scene, await asyncio.to_thread(Authority, tmp_path))
    slow = scene.keys = Slow()
    await scene.archived("a")
    end = await scene.archived("b")
    async with taking_part(scene):
        task = asyncio.create_task(scene.replayed(end))
        await asyncio.wait({task, asyncio.ensure_future(slow.began.wait())}, return_when=asyncio.FIRST_COMPLETED)
        (stream,) = scene.publisher.assigner.streams()
        attached = scene.publisher.listener.service.attached
        await eventually(lambda: attached.offers(stream.info), "another one is offered beside the one in use")
        slow.goes_on.set()
        outcome = await task
        assert (outcome.ended, outcome.marker) == (Ended.DONE, end), outcome.message
    assert slow.seen == [b"a", b"b"]


async def test_a_revoked_certificate_of_the_task_ends_its_stream(scene: Scene, tmp_path: Path) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    await _trusted(scene, authority)
    assert scene.tls is not None
    scene.patience_s = 0.5
    slow = scene.keys = Slow()
    await scene.archived("a")
    end = await scene.archived("b")
    async with taking_part(scene):
        task = asyncio.create_task(scene.replayed(end))
        await asyncio.wait({task, asyncio.ensure_future(slow.began.wait())}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(authority.revoke, scene.tls.cert)
        outcome = await task
        slow.goes_on.set()
        assert (outcome.ended, outcome.code) == (Ended.FAILED, "certificate-refused"), outcome.message


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ((), grpc.StatusCode.INVALID_ARGUMENT),
        (Forwarding(FLOW, "r1", "guessed", 1).to_metadata(), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_a_task_without_the_ticket_is_refused_before_it_sends(
    scene: Scene, metadata: Any, code: grpc.StatusCode
) -> None:
    await scene.archived("a")
    async with taking_part(scene), grpc.aio.insecure_channel(scene.driver.reach.address) as channel:
        call: Any = channel.stream_stream("/wormhole.wire.v1.Subscriber/Push")(metadata=metadata)
        assert await call.code() is code


async def test_rows_of_parked_updates_that_no_forwarded_message_takes_are_refused(scene: Scene) -> None:
    """They are more than the 512 KiB of such a message, and less than a message to a subscriber that is live."""
    scene.world.settings["max_frame"] = 4 << 20
    first = await scene.archived(*(f"bad{name * (3 * MOST_ASSIGNED_BYTES // 4)}" for name in "xy"))
    async with taking_part(scene):
        outcome = await scene.replayed(first)
        assert outcome.ended is Ended.DONE, outcome.message
        await asyncio.to_thread(scene.driver.finish, outcome.epoch, first)
        flow = scene.publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.caravan_flow is not None, "live")
        what = admin_pb2.BeginReplay(who="me@here", mode=admin_pb2.LOG, lease_s=600)
        what.begin.CopyFrom(marker_to_message(scene.begin))
        await asyncio.to_thread(scene.driver.begin, what)
        outcome = await scene.replayed(first)
        assert (outcome.ended, outcome.code) == (Ended.FAILED, "frame-too-small")
        assert len(scene.parked) == 2
