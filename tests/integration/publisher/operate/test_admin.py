"""The service for operators, over real gRPC: who is let in, and that nobody who is not costs a flow anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from publisher.operate import admin
from publisher.operate.admin import serve_admin
from publisher.operate.admin_access import host_token
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, request
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, eventually, patience
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.admin.admin_service import ask_each
from wormhole.host.local_admin import token_path
from wormhole.host.trust import Trust
from wormhole.ports.marker_store import FlowControl
from wormhole.push.refusal import refusal_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where

_SERVICE = "/wormhole.wire.v1.Admin/"
PAUSE = request("pause")


@pytest.fixture(autouse=True)
def _state(world: World, tmp_path: Path) -> None:
    world.settings["state_dir"] = tmp_path / "state"
    world.application()
    world.commit("a")


@asynccontextmanager
async def served(world: World, trust: Trust | None = None) -> AsyncIterator[tuple[Publisher, str]]:
    async with world.publisher() as publisher:
        async with serve_admin(
            publisher.served, publisher.process, operated(publisher), publisher.clock, "127.0.0.1:0", trust
        ) as address:
            await eventually(lambda: KEY in publisher.assigner.flows, "registered")
            yield publisher, address


async def ask(
    address: str,
    method: str,
    message: bytes,
    *,
    token: str = "",
    credentials: grpc.ChannelCredentials | None = None,
) -> bytes:
    channel = (
        grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
    )
    async with channel:
        call: Any = channel.unary_unary(_SERVICE + method)
        metadata = (("authorization", token),) if token else ()
        return bytes(await call(message, metadata=metadata, timeout=PATIENCE_S))


async def refusal(address: str, message: bytes, method: str = "Change", **how: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(address, method, message, **how)
    text = str(caught.value.details())
    assert "\n" not in text
    _, problem = refusal_of(caught.value)
    assert text == str(problem)
    assert "Next:" not in problem.text
    return caught.value.code(), text


async def bearer(world: World) -> str:
    return f"Bearer {await asyncio.to_thread(host_token, world.settings['state_dir'])}"


async def test_every_client_that_reaches_it_may_ask_how_it_is(world: World) -> None:
    async with served(world) as (_, address):
        told = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", b""))
    assert told.dataset == "shop"
    assert not told.subscribers
    assert token_path(world.settings["state_dir"]) == Path(told.token_file)
    assert await asyncio.to_thread(Path(told.token_file).read_text)


async def test_the_hosts_token_permits_changes(world: World) -> None:
    async with served(world) as (_, address):
        data = await ask(address, "Change", PAUSE.SerializeToString(), token=await bearer(world))
        reply = admin_pb2.ChangeReply.FromString(data)
        assert reply.after.paused.startswith("maria@ops at ")
        letters = admin_pb2.DeadLettersReply.FromString(
            await ask(address, "DeadLetters", b"", token=await bearer(world))
        )
        assert (letters.total, letters.limit) == (0, 1000)
    assert world.markers.records[KEY].control.paused


async def test_nobody_else_gets_more_than_one_line(world: World) -> None:
    tokens = ("", "Bearer ", "Bearer " + "0" * 64, "Basic bWFyaWE6")
    asked = [("Change", PAUSE.SerializeToString()), ("DeadLetters", b""), ("Change", b"\xff" * 100)]
    async with scripted_subscriber("app", "s1") as s1, served(world) as (publisher, address):
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        before = (publisher.assigner.flows[KEY].holding.epoch, world.markers.records[KEY])
        for token, (method, message) in product(tokens, asked):
            code, text = await refusal(address, message, method, token=token)
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "token" in text
        code, _ = await refusal(address, b"x" * (1 << 20))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        code, _ = await refusal(address, b"", "Shutdown")
        assert code is grpc.StatusCode.UNIMPLEMENTED
        world.commit("b")
        assert keys(s1, await s1.hears_later("batch")) == [b"b"]
        assert (publisher.assigner.flows[KEY].holding.epoch, world.markers.records[KEY]) == before
    assert not world.coordination.history


async def test_a_request_that_is_none_and_one_that_cannot_be_are_reported(world: World) -> None:
    async with served(world) as (_, address):
        code, text = await refusal(address, b"\xff" * 100, token=await bearer(world))
        assert (code, "no ChangeRequest" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        code, text = await refusal(
            address, request("pause", "app/log.x").SerializeToString(), token=await bearer(world)
        )
        assert (code, FLOW in text) == (grpc.StatusCode.NOT_FOUND, True)
        wanted = request("set_marker", place="9/9/9").SerializeToString()
        code, text = await refusal(address, wanted, token=await bearer(world))
        assert (code, "Next: " in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_what_breaks_inside_is_one_line_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(world) as (publisher, address):
        monkeypatch.setattr(publisher.records, "control", None)
        code, text = await refusal(address, PAUSE.SerializeToString(), token=await bearer(world))
        assert code is grpc.StatusCode.INTERNAL
        assert text == "internal error: TypeError; the publisher's log has more [internal-error]"


async def test_a_change_is_finished_when_its_client_hangs_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(world) as (publisher, address):
        go_on = asyncio.Event()
        begun = asyncio.Event()
        control = publisher.records.control

        async def slow(*arguments: Any) -> None:
            begun.set()
            await go_on.wait()
            await control(*arguments)

        monkeypatch.setattr(publisher.records, "control", slow)
        asking = asyncio.create_task(ask(address, "Change", PAUSE.SerializeToString(), token=await bearer(world)))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        with pytest.raises(grpc.RpcError):  # an answer shows that the server has read what was sent before: the hang-up
            await ask(address, "Change", b"", token="Bearer wrong")
        go_on.set()
        await eventually(lambda: world.markers.records[KEY].control != FlowControl(), "finished")
        await eventually(lambda: bool(world.coordination.history), "kept")


async def test_with_tls_a_listed_certificate_permits_and_a_subscribers_does_not(world: World, tmp_path: Path) -> None:
    world.settings["admins"] = ("ops",)
    authority = Authority(tmp_path / "certificates")
    ops, subscriber, publisher_tls = (authority.issue(name) for name in ("ops", "app-1", "publisher"))
    stranger = Authority(tmp_path / "strangers", "strangers").issue("ops")
    async with served(world, await asyncio.to_thread(Trust, publisher_tls)) as (_, address):
        message = PAUSE.SerializeToString()
        theirs = (await asyncio.to_thread(Trust, subscriber)).channel_credentials()
        unknown = (await asyncio.to_thread(Trust, stranger.model_copy(update={"ca": ops.ca}))).channel_credentials()
        ours = (await asyncio.to_thread(Trust, ops)).channel_credentials()
        assert await ask(address, "Describe", b"", credentials=theirs)
        code, text = await refusal(address, message, credentials=theirs)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "app-1" in text
        code, _ = await refusal(address, message, credentials=theirs, token="Bearer no")
        assert code is grpc.StatusCode.UNAUTHENTICATED
        code, _ = await refusal(address, message, credentials=unknown)
        assert code is grpc.StatusCode.UNAVAILABLE
        code, _ = await refusal(address, message)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert not world.markers.records[KEY].control.paused
        data = await ask(address, "Change", message, credentials=ours)
        assert admin_pb2.ChangeReply.FromString(data).after.paused
        again = request("resume").SerializeToString()
        assert await ask(address, "Change", again, credentials=theirs, token=await bearer(world))
    assert [entry.who for entry in world.coordination.history] == ["maria@ops (certificate ops)", "maria@ops"]


async def test_strangers_take_a_bounded_number_of_connections(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "MOST_CONNECTIONS", 3)
    async with served(world) as (_, address), patience():
        host, _, port = address.rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        reads = [asyncio.create_task(stranger.read()) for stranger, _ in strangers]
        await eventually(lambda: sum(read.done() for read in reads) >= 3, "those beyond are closed at once")
        assert not reads[0].done(), "the first ones stay"
        for _, writer in strangers:
            writer.close()
        await asyncio.gather(*reads, return_exceptions=True)
        while True:  # the server sees the ends a moment later
            with suppress(grpc.aio.AioRpcError):
                if await ask(address, "Describe", b""):
                    break


async def test_a_replay_begins_with_the_token_and_goes_on_with_its_ticket(world: World) -> None:
    begin = admin_pb2.ReplayRequest(flow=FLOW, replay="r1", begin=admin_pb2.BeginReplay(mode=admin_pb2.LOG))
    async with served(world) as (_, address):
        code, _ = await refusal(address, begin.SerializeToString(), "Replay")
        assert code is grpc.StatusCode.UNAUTHENTICATED
        data = await ask(address, "Replay", begin.SerializeToString(), token=await bearer(world))
        ticket = admin_pb2.ReplayReply.FromString(data).ticket
        renew = admin_pb2.ReplayRequest(flow=FLOW, replay="r1", ticket=ticket, renew=admin_pb2.RenewReplay())
        found = admin_pb2.ReplayReply.FromString(await ask(address, "Replay", renew.SerializeToString()))
        assert found.replay.state == "held"
        told = admin_pb2.PublisherStatus.FromString(await ask(address, "Describe", b""))
        assert told.flows[0].state == "replaying"
        assert told.flows[0].replay.replay == "r1"
        code, text = await refusal(address, b"\xff" * 100, "Replay")
        assert (code, "ReplayRequest" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_a_revoked_certificate_asks_and_changes_nothing(world: World, tmp_path: Path) -> None:
    world.settings["admins"] = ("ops",)
    authority = Authority(tmp_path / "certificates")
    ops = authority.issue("ops")
    mine = authority.issue("publisher", crl=authority.revoke(ops.cert))
    async with served(world, await asyncio.to_thread(Trust, mine)) as (publisher, address):
        theirs = (await asyncio.to_thread(Trust, ops)).channel_credentials()
        for method, message in (("Describe", b""), ("Change", PAUSE.SerializeToString())):
            code, text = await refusal(address, message, method, credentials=theirs)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "the certificate CN=ops" in text
            assert "was revoked on 20" in text
        assert not publisher.assigner.flows[KEY].control.paused
        other = authority.issue("app-1", crl=authority.revoke(mine.cert))
        told = await asyncio.to_thread(ask_each, Where(publisher=address, tls=other))
        assert told[0].status is None
        assert "the certificate CN=publisher" in told[0].problem, "nor is anything asked of a revoked publisher"
