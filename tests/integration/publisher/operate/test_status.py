"""A publisher's report about itself."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace

import pytest

from publisher.flows.progress import Progress
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.host.compiled import compiled_modules
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.marker_store import FlowControl
from wormhole.wire.v1 import admin_pb2


async def test_flows_caravans_and_subscribers_are_reported(world: World) -> None:
    world.application(where='op == "upsert"')
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await s1.hears("hello")
        await s1.accepts(await s1.hears("assign"), credit=5000)
        await s1.hears("batch")
        await eventually(publisher.states.lead_flows, "live")
        await asyncio.to_thread(compiled_modules)  # as `serve_admin` does
        told = operated(publisher).reports.status()
        assert (told.dataset, told.copy, told.log, told.coordination) == ("shop", "main", "log", "connected")
        [flow] = told.flows
        assert (flow.flow, flow.state, flow.subscriber, flow.epoch) == ("app/log.t", "live", "s1", 1)
        assert 0 < flow.in_flight == flow.bytes
        assert (flow.credit + flow.in_flight, flow.updates) == (5000, 1)
        assert flow.place == told.log_end
        assert flow.lag_bytes == told.log_end.offset  # nothing was acknowledged yet
        assert flow.lag_transactions == 1
        assert not flow.HasField("headroom_s")
        assert flow.headroom_unknown
        assert (told.source, told.log_base) == (publisher.served.kind, "")
        assert flow.filter
        [caravan] = told.caravans
        assert caravan.lead
        assert list(caravan.flows) == ["app/log.t"]
        assert caravan.target_bytes_per_s == 0
        assert "starts at 1/1/" in caravan.events[0].what
        assert caravan.events[0].kind == admin_pb2.CaravanEvent.STARTED
        assert any(event.what.startswith("app/log.t joins: ") for event in told.events)
        assert told.limits.caravans == 4
        assert told.limits.buffered_bytes == caravan.buffered_bytes
        assert flow.caravan == caravan.number
        [subscriber] = told.subscribers
        assert (subscriber.subscriber, subscriber.state, subscriber.flows) == ("s1", "connected", 1)
        s1.welcomes = False
        s1.hang_up()
        await eventually(lambda: operated(publisher).reports.status().subscribers[0].state == "unreachable", "told")
        assert "closed the stream" in operated(publisher).reports.status().subscribers[0].cause


async def test_a_flow_that_went_over_to_another_server_and_has_everything_is_in_time(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await s1.hears("hello")
        await s1.accepts(await s1.hears("assign"), credit=5000)
        await s1.hears("batch")
        [flow] = publisher.assigner.flows.values()
        end = LogPosition(2, 1, 700)
        flow.acked(replace(world.source.latest(), committed_at_us=1_000_000))
        assert flow.delivery.caravan_flow is not None
        flow.delivery.caravan_flow.go_over(Datamarker(end, flow.delivery.marker.delivered, end))
        publisher.log.watch.measured(SourceStatus(end, LogPosition(2, 1, 4), 0), publisher.clock.monotonic())
        told = operated(publisher).flow_reports.status(flow, publisher.states.lead_flows())
        assert (told.lag_s, told.lag_bytes, told.lag_transactions) == (0.0, 0, 0)


async def test_problems_of_the_log_come_with_their_next_step_apart_and_as_text(
    world: World, publisher: Publisher
) -> None:
    publisher.log.watch.failed(Problem("it cannot be read", "look at its disk"))
    told = operated(publisher).reports.status()
    assert [(one.text, one.hint) for one in told.warnings] == [("it cannot be read", "look at its disk")]
    assert list(told.problems) == ["it cannot be read. Next: look at its disk"]


async def test_an_application_that_cannot_be_served_is_named_with_the_reason(
    world: World, publisher: Publisher
) -> None:
    world.application("late", start="2999-01-01T00:00:00Z")
    await eventually(lambda: "late" in publisher.applications.unserved, "refused")
    [warning] = operated(publisher).reports.status().warnings
    assert (
        warning.text == "application late is not served as configured: start = '2999-01-01T00:00:00Z' is in the future"
    )
    assert "latest" in warning.hint


async def test_who_it_is_and_where_its_token_and_pages_are(world: World) -> None:
    async with world.publisher() as publisher:
        publisher.process.http_address = "127.0.0.1:7490"
        told = operated(publisher).reports.status()
    assert (told.host, told.pid, told.http_address) == (socket.gethostname(), os.getpid(), "127.0.0.1:7490")
    assert told.token_file == str(publisher.served.settings.state_dir.absolute() / "admin.token")


@pytest.mark.usefixtures("first")
async def test_what_operators_asked_and_why_it_waits_is_reported(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await world.register(s1)
    await s1.hears("hello")
    await s1.accepts(await s1.hears("assign"))
    await s1.hears("batch")
    [flow] = publisher.assigner.flows.values()
    clock = publisher.clock.monotonic()
    flow.controlled(FlowControl("maria", ("mem:1:0",)))
    flow.holding.halted_at = "mem:0:0"
    flow.holding.lacks_credit(clock - 100)
    flow.holding.progressed(clock - 50)
    told = operated(publisher).flow_reports.status(flow, frozenset())
    assert (told.paused, list(told.skip), told.halted_at, told.dead_letters) == ("maria", ["mem:1:0"], "mem:0:0", 0)
    assert told.credit_waited_s >= 100
    assert 50 <= told.progress_s < told.credit_waited_s
    assert not told.loss_pending
    flow.ask(LogGap(LossKind.PURGED, "", "", "gone"), flow.delivery.marker)
    flow.holding.has_credit()
    told = operated(publisher).flow_reports.status(flow, frozenset())
    assert told.loss_pending
    assert told.credit_waited_s == 0


async def test_a_log_that_is_not_read_is_reported_with_its_time(world: World, publisher: Publisher) -> None:
    publisher.log.progress = Progress()
    assert not operated(publisher).reports.status().HasField("stuck_s")
    place, since = world.source.latest().order, publisher.clock.monotonic() - 60
    for behind in (1, 2, 3):
        publisher.log.progress.measured(place, behind, since)
    assert operated(publisher).reports.status().stuck_s >= 60
