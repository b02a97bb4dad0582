"""A client of a publisher's admin address without a credential, and subscribers that make its answers large."""

from __future__ import annotations

import asyncio
import difflib
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from publisher.flows import assigner
from publisher.operate import admin, status
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import request
from tests.integration.publisher.operate.test_admin import PAUSE, ask, bearer, refusal, served
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.admin import admin_service
from wormhole.audit.sent_counts import Settled
from wormhole.wire.v1 import admin_pb2, push_pb2

TABLES = [f"t{number:02}" for number in range(20)]


@pytest.fixture(autouse=True)
def _state(world: World, tmp_path: Path) -> None:
    world.settings["state_dir"] = tmp_path / "state"
    world.application()
    world.commit("a")


@pytest.fixture
async def loud(world: World) -> AsyncIterator[ScriptedSubscriber]:
    """A subscriber of twenty flows, to report as much as it may of each."""
    for table in TABLES:
        world.commit("a", table=table)
    async with scripted_subscriber("app", "s1") as one:
        yield one


async def reports(subscriber: ScriptedSubscriber) -> None:
    handler = push_pb2.HandlerReport(slowest_table="x" * 5000, running_update="y" * 5000)
    for _ in [*TABLES, "t"]:
        assign = await subscriber.accepts(await subscriber.hears_later("assign"))
        await subscriber.says(report=push_pb2.Report(flow=assign.flow, epoch=assign.epoch, handler=handler))


def _settled(publisher: Publisher, name: str) -> bool:
    """Whether the flow is live and its one update is under way."""
    (flow,) = operated(publisher).reports.status(name).flows
    return flow.state == "live" and flow.updates == 1


async def test_the_status_of_flows_comes_in_pages_whatever_subscribers_report(
    world: World, loud: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_PAGE_BYTES", 12_000)
    async with served(world) as (publisher, address):
        await world.register(loud)
        await reports(loud)
        flows = publisher.assigner.flows.values()
        await eventually(lambda: all(flow.holding.handler is not None for flow in flows), "reported")
        await eventually(
            lambda: all(_settled(publisher, flow.name) for flow in flows),
            "each flow is live and has sent its update: nothing changes between two answers",
        )
        first = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", b""))
        assert 0 < len(first.flows) < len(TABLES)
        assert sum(flow.ByteSize() for flow in first.flows) < 12_000
        assert first.more == first.flows[-1].flow
        whole = await asyncio.to_thread(admin_service.describe, address)
        assert [flow.flow for flow in whole.flows] == sorted(flow.name for flow in flows)
        at_once = await operated(publisher).reports.whole()
        for flow in (*whole.flows, *at_once.flows):
            for age in ("lag_s", "progress_s"):
                flow.ClearField(age)
        assert at_once.flows == whole.flows


async def test_a_change_needs_to_hear_of_its_flow_alone(
    world: World, loud: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a subscriber could make the list so large that no operator could pause its flow."""
    monkeypatch.setattr(status, "_PAGE_BYTES", 12_000)
    async with served(world) as (_, address):
        await world.register(loud)
        await reports(loud)
        asked = admin_pb2.DescribeRequest(flow="app/log.t19").SerializeToString()
        told = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", asked))
        assert [flow.flow for flow in told.flows] == ["app/log.t19"]
        await ask(
            address, "Change", request("pause", flow="app/log.t19").SerializeToString(), token=await bearer(world)
        )
        told = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", asked))
        assert told.flows[0].paused


async def test_causes_and_addresses_of_subscribers_do_not_fill_the_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigner, "_LIST_BYTES", 2000)
    async with served(world) as (publisher, address):
        for number in range(30):
            one = ScriptedSubscriber("app", f"s{number}")
            one.address = "127.0.0.1:1"
            await world.register(one)
        await eventually(
            lambda: sum(bool(stream.problem) for stream in publisher.assigner.streams()) == 30, "every dial has failed"
        )
        told = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", b""))
        assert 0 < len(told.subscribers) < 30
        assert any("of 30 subscribers are not listed" in problem for problem in told.problems)


async def test_a_request_without_a_ticket_is_refused_before_anything_is_made_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(message: admin_pb2.Settled) -> Settled:
        raise AssertionError("it was opened")

    monkeypatch.setattr(Settled, "from_message", taken)
    advance = admin_pb2.AdvanceReplay(epoch=1)
    for _ in range(15_000):
        advance.settled.windows.add()
    wanted = admin_pb2.ReplayRequest(flow="app/log.t", replay="r", ticket="guessed", advance=advance)
    async with served(world) as (_, address):
        code, text = await refusal(address, wanted.SerializeToString(), "Replay")
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no replay" in text
        for _ in range(6000):
            advance.settled.windows.add()
        wanted.advance.CopyFrom(advance)
        code, _ = await refusal(address, wanted.SerializeToString(), "Replay")
        assert code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION}


async def test_a_name_of_half_a_mebibyte_is_compared_with_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def matches(name: str, names: object, **how: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", matches)
    wanted = admin_pb2.ReplayRequest(flow="app/" + "x" * 400_000, renew=admin_pb2.RenewReplay())
    async with served(world) as (_, address):
        code, text = await refusal(address, wanted.SerializeToString(), "Replay")
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert len(text) < 300
        assert not compared


async def test_calls_that_are_opened_and_send_nothing_keep_no_operator_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "_REQUEST_S", 2.0)
    async with served(world) as (publisher, address), AsyncExitStack() as stack:
        calls: list[Any] = []
        for _ in range(4):
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            method: Any = channel.stream_unary("/wormhole.wire.v1.Admin/Describe")
            calls += [method() for _ in range(30)]
        first, *_ = [await code for code in itertools.islice(asyncio.as_completed([c.code() for c in calls]), 1)]
        assert first is grpc.StatusCode.RESOURCE_EXHAUSTED
        codes = {first}
        await ask(address, "Change", PAUSE.SerializeToString(), token=await bearer(world))
        assert publisher.assigner.flows[KEY].control.paused
        codes |= {await call.code() for call in calls}
        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}
        await ask(address, "Describe", b"")
