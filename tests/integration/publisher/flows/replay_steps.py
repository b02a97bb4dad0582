"""The steps of a mass replay that most of its tests begin with."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from publisher.flows.refused_error import RefusedError
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW
from tests.integration.publisher.receiving import KEY, taken
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.replaying import ReplayClient
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.ports.marker_store import ReplayControl
from wormhole.wire.v1 import admin_pb2, push_pb2

Status = grpc.StatusCode


async def client(publisher: Publisher, replay: str = "r1") -> ReplayClient:
    """The publisher knows its flow; a replay of it."""
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    requests = operated(publisher).replays

    async def ask(asked: admin_pb2.ReplayRequest) -> admin_pb2.ReplayReply:
        return await requests.replay(asked, lambda: "")

    return ReplayClient(ask, FLOW, replay, lease_s=30.0 * FAST)


async def refused(asked: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await asked
    return caught.value


def stored(world: World) -> ReplayControl | None:
    return world.markers.records[KEY].control.replay


def flow_of(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[KEY]


def state(publisher: Publisher) -> str:
    return flow_of(publisher).state(publisher.states.lead_flows()).value


def lease_runs_out(publisher: Publisher) -> None:
    """The driver is not heard any more."""
    run = publisher.replays.run_of(flow_of(publisher))
    assert run is not None
    run.until = 0.0


async def lets_go(subscriber: ScriptedSubscriber, assign: push_pb2.Assign) -> None:
    await subscriber.hears_later("revoke")
    await subscriber.releases(assign)


async def held(world: World, publisher: Publisher, s1: ScriptedSubscriber, **begin: Any) -> ReplayClient:
    """A replay of the flow that s1 had."""
    await world.register(s1)
    assign = await taken(s1)
    replay = await client(publisher)
    await replay.begin(**begin)
    await lets_go(s1, assign)
    return replay


async def opened(world: World, publisher: Publisher, s1: ScriptedSubscriber, **begin: Any) -> ReplayClient:
    """As :func:`held`, and a task of it pushes."""
    replay = await held(world, publisher, s1, **begin)
    await replay.opens()
    return replay
