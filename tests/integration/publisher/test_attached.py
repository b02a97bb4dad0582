"""Subscribers of the SDK that dial a publisher: who is admitted, and what follows when a connection is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from publisher.flows.candidacy import Candidate
from publisher.publisher import Publisher
from publisher.push import attach_service
from publisher.push.attach_service import AttachService
from subscriber_sdk import Datamarker, NoticeKind, Running, ShardNotice, Subscriber, Update, serve
from subscriber_sdk.server import dialler
from tests.integration.publisher.conftest import World
from tests.support.certificates import Authority
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from wormhole.coordination.access_tokens import AccessToken, new_token
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import LogGroup
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError
from wormhole.ports.datastore import Standing

KEY = ("app", "log.t")


class Recorder(Subscriber):
    def __init__(self) -> None:
        self.keys: list[object] = []
        self.acked: list[Datamarker] = []
        self.causes: list[str] = []
        self.free = asyncio.Event()
        self.free.set()

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            self.causes.append(notice.cause)

    async def on_update(self, update: Update) -> None:
        self.keys.append(update.key[0])
        await self.free.wait()

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.acked.append(marker)


@pytest.fixture
async def world() -> World:
    return World(fast_clock(), 120.0 * FAST, attaches=True)


@asynccontextmanager
async def attached(publisher: Publisher | str, recorder: Recorder, **given: Any) -> AsyncIterator[Running]:
    """A subscriber of the SDK that dials the publisher."""
    address = publisher
    if isinstance(publisher, Publisher):
        await eventually(lambda: publisher.listener.address, "it listens")
        address = publisher.listener.address
    async with serve(recorder, application="app", dial=cast("Any", [address]), **{"id": "s1", **given}) as running:
        yield running


async def test_updates_are_delivered_acknowledged_and_stored(world: World) -> None:
    world.application()
    end = world.commit("a", "b")
    recorder = Recorder()
    async with world.publisher() as publisher:
        async with attached(publisher, recorder) as running:
            assert running.address == ""
            await eventually(lambda: recorder.acked, "the datamarker")
            end = world.commit("c")
            await eventually(lambda: recorder.acked[-1].order == end.order, "the next one")
        assert recorder.keys == [b"a", b"b", b"c"]
        # It released its flow and said goodbye, so another process may have its id at once.
        again = Recorder()
        async with attached(publisher, again):
            last = world.commit("d")
            await eventually(lambda: [marker.order for marker in again.acked] == [last.order], "what came since")
    assert again.keys == [b"d"]
    assert world.markers.records[KEY].marker.order == last.order


async def test_a_lost_connection_is_made_anew_by_the_same_process(world: World) -> None:
    world.application()
    recorder = Recorder()
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        host, _, port = publisher.listener.address.rpartition(":")
        with FaultProxy(host, int(port)) as proxy:
            async with attached(f"{proxy.host}:{proxy.port}", recorder):
                world.commit("a")
                await eventually(lambda: recorder.acked, "the datamarker")
                for key in ("b", "c"):
                    await asyncio.to_thread(proxy.cut)
                    end = world.commit(key)
                    await eventually(lambda end=end: recorder.acked[-1].order == end.order, "it goes on")  # type: ignore[misc]
                assert [len(cause.splitlines()) for cause in recorder.causes] == [1, 1], "each is one line"
        assert recorder.keys == [b"a", b"b", b"c"]


async def test_another_process_with_the_id_is_refused_until_the_first_is_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.application()
    first, second = Recorder(), Recorder()
    async with world.publisher() as publisher, attached(publisher, first):
        world.commit("a")
        await eventually(lambda: first.acked, "the datamarker")
        async with attached(publisher, second):
            await eventually(lambda: "address-taken" in caplog.text, "it is refused")
        world.commit("b")
        await eventually(lambda: first.keys == [b"a", b"b"], "the first one goes on")
    assert second.keys == []


async def test_a_handler_of_a_lost_process_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The connection is cut while a handler runs, and another process takes the id."""
    caplog.set_level(logging.WARNING)
    world.application()
    world.settings |= {"grace_period": 4.0, "handler_timeout": 4.0}
    first, second = Recorder(), Recorder()
    first.free.clear()
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        host, _, port = publisher.listener.address.rpartition(":")
        with FaultProxy(host, int(port)) as proxy:
            async with attached(f"{proxy.host}:{proxy.port}", first, handler_timeout=60.0, stop_timeout=0.1):
                world.commit("a")
                await eventually(lambda: first.keys, "the handler runs")
                await asyncio.to_thread(proxy.mute)
                await asyncio.to_thread(proxy.cut)
                async with attached(publisher, second):
                    await eventually(lambda: "in-progress" in caplog.text, "it is refused at first")
                    assert second.keys == []
                    await eventually(lambda: second.keys == [b"a"], "it has the flow later")
                await asyncio.to_thread(proxy.pass_through)  # so that no test waits for the silent connection to end


@pytest.mark.parametrize(
    ("given", "settings", "code"),
    [
        ({}, {"connect": "subscriber"}, "application-unknown"),
        ({"application": "other"}, {}, "application-unknown"),
        ({}, {"allow": ("s2",)}, "not-permitted"),
    ],
)
async def test_who_is_not_admitted_is_told_why(
    world: World, caplog: pytest.LogCaptureFixture, given: dict[str, Any], settings: dict[str, Any], code: str
) -> None:
    world.application(**settings)
    world.application("dials")  # so that the publisher listens
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        options: dict[str, Any] = {"application": "app", "dial": [publisher.listener.address], "id": "s1", **given}
        async with serve(Recorder(), **options):
            await eventually(lambda: f"[{code}]" in caplog.text, "the reason")


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    return await asyncio.to_thread(Authority, tmp_path)


async def _trusted(authority: Authority, world: World) -> None:
    mine = await asyncio.to_thread(authority.issue, "db1")
    world.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))


async def test_a_stream_ends_when_the_subscribers_certificate_is_revoked(world: World, authority: Authority) -> None:
    crl = await asyncio.to_thread(authority.revoke)
    mine = await asyncio.to_thread(lambda: authority.issue("db1", crl=crl))
    world.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))
    world.application()
    world.commit("a")
    tls = await asyncio.to_thread(authority.issue, "s1")
    recorder = Recorder()
    async with world.publisher() as publisher, attached(publisher, recorder, tls=tls, publishers=["db1"]) as running:
        await eventually(lambda: recorder.acked, "the datamarker")
        await asyncio.to_thread(authority.revoke, tls.cert)
        await eventually(lambda: not running.flows(), "its flow is taken away")
        world.commit("b")
        (stream,) = publisher.assigner.streams()
        await eventually(lambda: not stream.connected, "it stays away")
    assert recorder.keys == [b"a"]


@pytest.mark.parametrize(("name", "publishers"), [("s2", ["db1"]), ("s1", ["db2"])])
async def test_with_tls_another_name_is_refused(
    world: World, authority: Authority, caplog: pytest.LogCaptureFixture, name: str, publishers: list[str]
) -> None:
    """The certificate of another subscriber; a publisher that the subscriber does not take updates from."""
    await _trusted(authority, world)
    world.application()
    world.commit("a")
    tls = await asyncio.to_thread(authority.issue, name)
    recorder = Recorder()
    async with world.publisher() as publisher, attached(publisher, recorder, tls=tls, publishers=publishers):
        refused = "certificate-refused" if name == "s2" else "may not push"
        await eventually(lambda: refused in caplog.text, "the reason")
    assert recorder.keys == []


# --- standbys


def candidate(host: str, rank: int) -> Candidate:
    """A publisher that may own the log, and can read it."""

    async def look() -> Standing:
        return Standing("S")

    return Candidate(LogGroup("shop", "main", "log"), "main", host, rank, 0.0, look)


@asynccontextmanager
async def owner_and_standby(world: World) -> AsyncIterator[tuple[Publisher, Publisher, Callable[[], Awaitable[None]]]]:
    """Two publishers of the log, and what ends the first one, which owns it."""
    async with AsyncExitStack() as ending:
        world.candidate = candidate("alpha", 0)
        owner = await ending.enter_async_context(world.publisher())
        await eventually(lambda: owner.ownership.term, "it owns the log")
        world.candidate = candidate("beta", 1)
        async with world.publisher() as standby:
            await eventually(lambda: owner.listener.address and standby.listener.address, "both listen")
            yield owner, standby, ending.aclose


async def test_a_standby_admits_and_takes_over_on_the_connection_that_it_has(world: World) -> None:
    world.application()
    world.commit("a")
    recorder = Recorder()
    async with owner_and_standby(world) as (owner, standby, end_owner):
        dial = [owner.listener.address, standby.listener.address]
        async with serve(recorder, application="app", dial=dial, id="s1"):
            await eventually(lambda: recorder.acked, "the owner delivers")
            (waiting,) = standby.assigner.streams()
            await eventually(lambda: waiting.connected, "the standby has the subscriber")
            assert not waiting.flows
            assert standby.ownership.standby
            place = waiting.place
            await end_owner()
            end = world.commit("b")
            await eventually(lambda: recorder.acked[-1].order == end.order, "the standby delivers")
            (serving,) = standby.assigner.streams()
            assert (serving, serving.place) == (waiting, place)
    assert recorder.keys == [b"a", b"b"]


async def test_a_standby_follows_which_applications_there_are(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.application()
    world.settings |= {"grace_period": 0.1, "handler_timeout": 0.1}
    async with owner_and_standby(world) as (_, standby, _), attached(standby, Recorder()):
        await eventually(lambda: [stream.connected for stream in standby.assigner.streams()] == [True], "it is there")
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await eventually(lambda: not standby.assigner.streams(), "it is hung up on")
        await eventually(lambda: "[application-unknown]" in caplog.text, "it is told why")
        world.application()
        await eventually(lambda: [stream.connected for stream in standby.assigner.streams()] == [True], "it is back")


# --- publishers that are found


@pytest.fixture
async def coordinator(world: World) -> AsyncIterator[MemoryCoordinator]:
    """The subscriber's client of coordination."""
    client = MemoryCoordinator(world.coordination)
    await client.start()
    yield client
    await client.stop()


async def test_publishers_are_found_with_those_that_stand_by(
    world: World, coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialler, "_LOOK_S", 0.01)
    world.application()
    world.commit("a")
    recorder = Recorder()
    async with (
        serve(recorder, application="app", coordinator=coordinator, id="s1") as running,
        AsyncExitStack() as ends,
    ):
        assert running.address == ""
        for host in ("alpha", "beta"):
            world.candidate = candidate(host, 0)
            world.settings["attach_listen"] = f"127.0.0.1:{free_port()}"
            publisher = await ends.enter_async_context(world.publisher())
            await eventually(lambda publisher=publisher: is_connected(publisher), f"{host} is dialled")  # type: ignore[misc]
        await eventually(lambda: recorder.acked, "the owner delivers")
        assert len(await coordinator.attach_points("app")) == 2
        world.application(connect="subscriber")
        entries = world.coordination.entries
        await eventually(lambda: not any(key[0] == "attach" for key in entries), "they announce nothing any more")
    assert recorder.keys == [b"a"]


def is_connected(publisher: Publisher) -> bool:
    return any(stream.connected for stream in publisher.assigner.streams())


# --- tokens


def give(world: World, *tokens: AccessToken, application: str = "app") -> None:
    """The tokens of the application are these from now on."""
    world.coordination.tokens[application] = tokens
    world.coordination.signal.notify()


@pytest.fixture
async def by_token(world: World, authority: Authority) -> str:
    """A publisher with TLS listens for tokens too. Returns the file of its authority: all that the subscriber has."""
    await _trusted(authority, world)
    world.settings["token_listen"] = "127.0.0.1:0"
    world.application()
    world.commit("a")
    return str(authority.ca)


async def at_token_address(publisher: Publisher) -> str:
    await eventually(lambda: publisher.listener.token_address, "it listens")
    return publisher.listener.token_address


async def test_a_token_is_enough_and_its_successor_goes_on_without_a_pause(world: World, by_token: str) -> None:
    (first, kept), (second, other) = new_token(0.0, 0.0), new_token(0.0, 0.0)
    world.settings |= {"grace_period": 2.0, "handler_timeout": 2.0}
    give(world, kept)
    recorder, again = Recorder(), Recorder()
    async with world.publisher() as publisher:
        address = await at_token_address(publisher)
        async with attached(address, recorder, tls=by_token, publishers=["db1"], token=first) as running:
            await eventually(lambda: recorder.acked, "the datamarker")
            give(world, kept, other)
            async with attached(address, again, id="s2", tls=by_token, publishers=["db1"], token=second):
                give(world, other)
                await eventually(lambda: not running.flows(), "its flow is taken away")
                world.commit("b")
                await eventually(lambda: again.keys == [b"b"], "the subscriber with the new token has it")
    assert recorder.keys == [b"a"]


@pytest.mark.parametrize("how", ["revoked", "expires"])
async def test_a_stream_ends_with_its_token(
    world: World, by_token: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    token, kept = new_token(0.0, 0.0)
    give(world, kept)
    recorder = Recorder()
    async with world.publisher() as publisher:
        address = await at_token_address(publisher)
        async with attached(address, recorder, tls=by_token, publishers=["db1"], token=token) as running:
            await eventually(lambda: recorder.acked, "the datamarker")
            caplog.clear()
            give(world, *([] if how == "revoked" else [AccessToken(kept.hash, 0.0, 1.0)]))
            await eventually(lambda: not running.flows(), "its flow is taken away")
            (stream,) = publisher.assigner.streams()
            await eventually(lambda: stream.problem.code == "token-refused", "operators see why")
            await eventually(
                lambda: any(
                    one.name == "subscriber_sdk" and "[token-refused]" in one.message for one in caplog.records
                ),
                "the subscriber is told too",
            )


async def test_without_tls_a_token_admits_another_user_of_this_host(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attach_service, "_user_of", lambda peer, address: 12345)
    token, kept = new_token(0.0, 0.0)
    give(world, kept)
    world.application()
    world.commit("a")
    recorder = Recorder()
    async with world.publisher() as publisher:
        async with attached(publisher, recorder):
            await eventually(lambda: "[not-permitted]" in caplog.text, "without a token it is refused")
        async with attached(publisher, recorder, token=token):
            await eventually(lambda: recorder.acked, "with one it is served")


async def test_a_publisher_without_the_name_sees_no_token(
    world: World, by_token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[object] = []

    async def listens(self: AttachService, requests: object, context: Any) -> None:
        calls.append(context.invocation_metadata())

    monkeypatch.setattr(AttachService, "attach", listens)
    async with world.publisher() as publisher:
        address = await at_token_address(publisher)
        async with attached(address, Recorder(), tls=by_token, publishers=["db2"], token=new_token(0.0, 0.0)[0]):
            await eventually(lambda: "may not push" in caplog.text, "it is refused")
    assert calls == []


async def test_where_certificates_are_demanded_a_token_alone_is_not_enough(
    world: World, by_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    token, kept = new_token(0.0, 0.0)
    give(world, kept)
    async with (
        world.publisher() as publisher,
        attached(publisher, Recorder(), tls=by_token, publishers=["db1"], token=token),
    ):
        await eventually(lambda: "token_listen" in caplog.text, "it says where to dial")


async def test_where_tokens_are_taken_one_is_demanded(
    world: World, authority: Authority, by_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate is not asked for there, so the subscriber has proven nothing."""
    tls = await asyncio.to_thread(authority.issue, "s1")
    async with world.publisher() as publisher:
        address = await at_token_address(publisher)
        async with attached(address, Recorder(), tls=tls, publishers=["db1"]):
            await eventually(lambda: "[certificate-refused]" in caplog.text, "it is refused")


async def test_a_token_is_not_sent_beyond_this_host_without_tls() -> None:
    with pytest.raises(ConfigError) as refused:
        async with serve(Recorder(), application="app", dial=["192.0.2.1:1"], insecure=True, token="wormhole_x"):
            pass
    assert refused.value.code == "token-refused"


async def test_a_token_that_came_without_tls_from_another_host_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attach_service, "host_of", lambda peer: "192.0.2.1")
    token, kept = new_token(0.0, 0.0)
    give(world, kept)
    world.application()
    async with world.publisher() as publisher, attached(publisher, Recorder(), token=token):
        await eventually(lambda: "[token-refused]" in caplog.text, "it is refused")
