"""Certificates that are replaced, expired, revoked, of another authority or half-written, over real gRPC and HTTPS.

The attacker holds a certificate that was good once, or one that another authority signed. Every refusal names the
certificate with its date or its issuer, and nothing that was refused receives or sends one update.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from aiohttp import web

from subscriber_sdk import serve
from subscriber_sdk.metrics import samples
from subscriber_sdk.runner import Running
from tests.integration.test_sdk_grpc import Recorder
from tests.support.certificates import Authority
from tests.support.dialled import Dialler, dialled
from tests.support.eventually import PATIENCE_S, patience
from tests.support.ports import free_port
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.config import TlsFiles
from wormhole.host import peer_check
from wormhole.host.http_server import serve as serve_http
from wormhole.host.peer_check import checked_credentials, examine, explain
from wormhole.host.tls import target_options
from wormhole.host.trust import Trust
from wormhole.model.errors import StreamBroken
from wormhole.push.dial import DialledLine, Peer
from wormhole.wire.v1 import push_pb2

OFTEN_S = 0.01
"""How often the tests' processes look at their files."""


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    return await asyncio.to_thread(Authority, tmp_path / "ours")


@pytest.fixture
async def other(tmp_path: Path) -> Authority:
    return await asyncio.to_thread(Authority, tmp_path / "theirs", "other-ca")


async def trusting(tls: TlsFiles) -> Trust:
    return await asyncio.to_thread(lambda: Trust(tls, look_s=OFTEN_S))


async def changed(change: Callable[[], Any]) -> Any:
    """Change files, and let the time between two looks at them pass."""
    done = await asyncio.to_thread(change)
    await asyncio.sleep(2 * OFTEN_S)
    return done


def replace_files(tls: TlsFiles, by: TlsFiles) -> None:
    for name in ("cert", "key", "ca"):
        getattr(tls, name).write_bytes(getattr(by, name).read_bytes())


@asynccontextmanager
async def subscriber(tls: TlsFiles) -> AsyncIterator[tuple[Recorder, Running]]:
    recorder = Recorder()
    options: dict[str, Any] = {"tls": tls, "publishers": ["db1"], "listen": f"127.0.0.1:{free_port()}"}
    async with serve(recorder, application="app", id="one", **options) as running:
        assert running._door.trust is not None
        running._door.trust.look_s = OFTEN_S
        yield recorder, running


async def goodbye(publisher: Dialler) -> push_pb2.Goodbye:
    return (await publisher.next("goodbye")).goodbye


# -- replaced


async def test_a_subscriber_takes_replaced_certificates_and_an_authority_without_a_restart(
    authority: Authority, other: Authority
) -> None:
    mine = await asyncio.to_thread(authority.issue, "one")
    old, new = await asyncio.to_thread(authority.issue, "db1"), await asyncio.to_thread(other.issue, "db1")
    async with subscriber(mine) as (recorder, running), dialled(running.address, old) as before:
        await before.open()
        await changed(lambda: replace_files(mine, other.issue("one")))
        async with dialled(running.address, new) as after:
            await after.open(shard="t")
            await after.push(1, 7)
            await after.next("ack")
        with pytest.raises(grpc.aio.AioRpcError):
            async with dialled(running.address, old) as outdated:
                await outdated.open(epoch=2)
        await before.push(1, 8)  # who was let in goes on
        await before.next("ack")
        assert {7, 8} <= set(recorder.heard)
        assert running._door.trust is not None
        assert running._door.trust.reloads.loaded == 1


async def test_a_half_written_pair_leaves_the_old_one_in_use_and_is_reported_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    mine, publisher = await asyncio.to_thread(authority.issue, "one"), await asyncio.to_thread(authority.issue, "db1")
    async with subscriber(mine) as (_, running):
        trust = running._door.trust
        assert trust is not None
        whole = await asyncio.to_thread(mine.key.read_bytes)
        foreign = await asyncio.to_thread((await asyncio.to_thread(authority.issue, "else")).key.read_bytes)
        for wrong, why in (
            (whole[:20], "holds no PEM"),
            (whole[:90], "is incomplete"),
            (foreign, "is not the private key of"),
        ):
            await changed(partial(mine.key.write_bytes, wrong))
            for _ in range(3):
                async with dialled(running.address, publisher) as stream:
                    await stream.open()
                await asyncio.sleep(2 * OFTEN_S)
            assert [why in record.getMessage() for record in caplog.records if "[tls]" in record.getMessage()] == [True]
            caplog.clear()
        assert (trust.reloads.loaded, trust.reloads.refused) == (0, 3)
        told = {(one.metric.name, *one.labels[2:]): one.value for one in await asyncio.to_thread(samples, running)}
        assert told["wormhole_subscriber_certificate_reloads_total", "refused"] == 3
        ends = told["wormhole_subscriber_certificate_end_time_seconds", "cert"]
        assert ends == trust.held.own.not_after.timestamp()
        with caplog.at_level(logging.INFO):
            await changed(lambda: mine.key.write_bytes(whole))
            async with dialled(running.address, publisher) as stream:
                await stream.open()
        assert trust.reloads.loaded == 0, "the pair that was in use all the time is no news"


async def test_an_expired_pair_does_not_replace_one_that_is_good(authority: Authority) -> None:
    tls = await asyncio.to_thread(authority.issue, "one")
    trust = await trusting(tls)
    before = trust.held
    await changed(lambda: authority.issue("one", days=(-9, -2)))
    assert await asyncio.to_thread(trust.current) is before
    await changed(lambda: authority.issue("one"))
    assert await asyncio.to_thread(trust.current) is not before


# -- revoked


async def test_a_revoked_publisher_pushes_nothing_and_its_open_stream_ends(authority: Authority) -> None:
    publisher, honest = await asyncio.to_thread(authority.issue, "db1"), None
    crl = await asyncio.to_thread(authority.revoke)
    mine = await asyncio.to_thread(lambda: authority.issue("one", crl=crl))
    async with subscriber(mine) as (recorder, running), dialled(running.address, publisher) as stream:
        await stream.open()
        await changed(lambda: authority.revoke(publisher.cert))
        said = await goodbye(stream)
        assert said.reason == push_pb2.Goodbye.NOT_ALLOWED
        assert "CN=db1" in said.message
        assert "was revoked on 20" in said.message
        async with dialled(running.address, publisher) as again:
            await again.send(push_pb2.PublisherFrame(hello=push_pb2.Hello(min_version=3, max_version=3)))
            assert "was revoked on 20" in (await goodbye(again)).message
        honest = await asyncio.to_thread(lambda: authority.issue("db1", file="db1-second"))
        async with dialled(running.address, honest) as good:
            await good.open(epoch=2)
            await good.push(1, 9, epoch=2)
            await good.next("ack")
        assert [one for one in recorder.heard if isinstance(one, int)] == [9]


async def test_a_revoked_subscriber_is_not_dialled_and_its_open_stream_ends(authority: Authority) -> None:
    crl = await asyncio.to_thread(authority.revoke)
    theirs = await asyncio.to_thread(authority.issue, "app-1")
    publisher = await trusting(await asyncio.to_thread(lambda: authority.issue("db1", crl=crl)))
    credentials = (await trusting(theirs)).server_credentials()
    async with scripted_subscriber("app", "app-1", credentials=credentials) as stranger:
        line = DialledLine(Peer(stranger.address, publisher), "app-1")
        await line.open()
        ending = asyncio.create_task(line.until_refused())
        await changed(lambda: authority.revoke(theirs.cert))
        async with patience():
            with pytest.raises(StreamBroken, match="the certificate CN=app-1"):
                await ending
        with pytest.raises(StreamBroken, match=r"CN=app-1 .*was revoked on 20"):
            await DialledLine(Peer(stranger.address, publisher), "app-1").open()
        await line.close()


async def test_the_certificate_that_was_checked_is_the_only_one_that_is_spoken_to(authority: Authority) -> None:
    """An attacker with the key of a revoked certificate may forward the check to the new owner of the name, and answer
    the second connection itself."""
    stolen, renewed = await asyncio.to_thread(
        lambda: (authority.issue("app-1", file="stolen"), authority.issue("app-1", file="renewed"))
    )
    crl = await asyncio.to_thread(authority.revoke, stolen.cert)
    publisher = await trusting(await asyncio.to_thread(lambda: authority.issue("db1", crl=crl)))
    good, bad = (await trusting(renewed)).server_credentials(), (await trusting(stolen)).server_credentials()
    async with (
        scripted_subscriber("app", "app-1", credentials=good) as owner,
        scripted_subscriber("app", "app-1", credentials=bad) as thief,
    ):
        credentials, peer = await checked_credentials(owner.address, publisher)
        assert peer is not None
        for address, reached in ((owner.address, True), (thief.address, False)):
            async with grpc.aio.secure_channel(address, credentials, options=target_options("app-1")) as channel:
                call: Any = channel.stream_stream("/wormhole.wire.v1.Subscriber/Push")()
                hello = push_pb2.Hello(min_version=3, max_version=3, application="app", subscriber="app-1")
                message = push_pb2.PublisherMessage(frames=[push_pb2.PublisherFrame(hello=hello)])
                try:
                    await call.write(message.SerializeToString())
                    answered = await call.read() is not grpc.aio.EOF
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    answered = False
                assert answered is reached


# -- expired, foreign, of another name: what is said


async def test_a_server_that_is_refused_is_named_with_its_date_or_issuer(
    authority: Authority, other: Authority
) -> None:
    publisher = await trusting(await asyncio.to_thread(authority.issue, "db1"))

    def all_three() -> list[TlsFiles]:
        foreign = other.issue("app-1", file="foreign").model_copy(update={"ca": authority.ca})
        return [
            authority.issue("app-1", file="expired", days=(-9, -2)),
            authority.issue("app-1", file="early", days=(2, 9)),
            foreign,
            authority.issue("app-2"),
        ]

    expired, early, foreign, named = await asyncio.to_thread(all_three)
    for tls, text in (
        (expired, r"CN=app-1 .*expired on 20\d\d-\d\d-\d\d \d\d:\d\d UTC"),
        (early, r"CN=app-1 .*is valid only from 20\d\d"),
        (foreign, r"CN=app-1 .*is issued by CN=other-ca, and is not accepted"),
        (named, r"CN=app-2 .*has the names app-2, localhost, 127.0.0.1, not 'app-1'"),
    ):
        async with scripted_subscriber("app", "app-1", credentials=(await trusting(tls)).server_credentials()) as there:
            line = DialledLine(Peer(there.address, publisher), "app-1")
            call = await line.open()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            why = await line.why_ended(caught.value, welcomed=False)
            await line.close()
            with pytest.raises(StreamBroken, match=text):
                raise why


async def test_a_refused_client_learns_what_is_wrong_with_its_certificate(
    authority: Authority, other: Authority
) -> None:
    server = await trusting(await asyncio.to_thread(authority.issue, "app-1"))

    def both() -> tuple[TlsFiles, TlsFiles]:
        foreign = other.issue("db1", file="foreign").model_copy(update={"ca": authority.ca})
        return authority.issue("db1", file="expired", days=(-9, -2)), foreign

    expired, foreign = await asyncio.to_thread(both)
    async with scripted_subscriber("app", "app-1", credentials=server.server_credentials()) as there:
        for tls, text in ((expired, "expired on 20"), (foreign, "is issued by CN=other-ca, which is not in tls.ca")):
            mine = await trusting(tls)
            why = await explain(there.address, "app-1", mine)
            assert why.startswith(f"{there.address} refuses our certificate")
            assert "CN=db1" in why
            assert text in why


async def test_an_outdated_revocation_list_admits_no_peer(authority: Authority) -> None:
    crl = await asyncio.to_thread(lambda: authority.revoke(hours=(-3, -1)))
    publisher = await asyncio.to_thread(authority.issue, "db1")
    mine = await asyncio.to_thread(lambda: authority.issue("one", crl=crl))
    async with subscriber(mine) as (_, running), dialled(running.address, publisher) as stream:
        assert "tls.crl is out of date: the list of CN=test-ca" in (await goodbye(stream)).message
    dialling = await trusting(await asyncio.to_thread(lambda: authority.issue("db2", crl=crl)))
    server = (await trusting(await asyncio.to_thread(authority.issue, "app-1"))).server_credentials()
    async with scripted_subscriber("app", "app-1", credentials=server) as there:
        with pytest.raises(StreamBroken, match=r"tls\.crl is out of date"):
            await examine(there.address, dialling)


# -- HTTP


async def test_http_refuses_a_revoked_client_on_a_connection_that_it_keeps(authority: Authority) -> None:
    crl = await asyncio.to_thread(authority.revoke)
    server = await trusting(await asyncio.to_thread(lambda: authority.issue("h1", crl=crl)))
    client = await asyncio.to_thread(authority.issue, "prometheus")
    asking = await trusting(client)

    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    app.add_routes([web.get("/", hello)])
    running = await serve_http(app, "0.0.0.0:0", trust=server)
    address = f"https://127.0.0.1:{running.address.rpartition(':')[2]}/"
    try:
        context = await asyncio.to_thread(asking.context, ssl.PROTOCOL_TLS_CLIENT)
        async with aiohttp.ClientSession() as session:
            async with session.get(address, ssl=context) as answer:
                assert await answer.text() == "here"
            await changed(lambda: authority.revoke(client.cert))
            await asyncio.to_thread(server.current)
            async with session.get(address, ssl=context) as answer:
                assert answer.status == 403
                assert "CN=prometheus" in (said := await answer.text())
                assert "was revoked on 20" in said
    finally:
        await running.close()


async def test_http_uses_replaced_files_and_its_client_refuses_a_revoked_server(authority: Authority) -> None:
    tls = await asyncio.to_thread(authority.issue, "h1")
    server = await trusting(tls)
    crl = await asyncio.to_thread(authority.revoke, tls.cert)
    asking = await trusting(await asyncio.to_thread(lambda: authority.issue("h2", crl=crl)))
    running = await serve_http(web.Application(), "0.0.0.0:0", trust=server)
    address = f"https://127.0.0.1:{running.address.rpartition(':')[2]}/"
    try:
        context = await asyncio.to_thread(asking.context, ssl.PROTOCOL_TLS_CLIENT)
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError, match=r"CN=h1 .*was revoked on 20"):
                await session.get(address, ssl=context)
            await changed(lambda: authority.issue("h1"))
            async with patience():
                while True:
                    try:
                        async with session.get(address, ssl=context) as answer:
                            assert answer.status == 404
                        break
                    except aiohttp.ClientError:
                        await asyncio.sleep(OFTEN_S)
    finally:
        await running.close()


async def test_peers_that_say_nothing_take_no_thread(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default executor has a thread or two for each core, and stores of datamarkers use it."""
    monkeypatch.setattr(peer_check, "_TIMEOUT_S", 600.0)
    trust = await trusting(await asyncio.to_thread(authority.issue, "db1"))
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        looks = [asyncio.create_task(explain(address, "app-1", trust)) for _ in range(100)]
        opened = await asyncio.wait_for(asyncio.to_thread(lambda: [silent.accept() for _ in looks]), PATIENCE_S)
        assert not any(look.done() for look in looks)
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        for connection, _ in opened:
            connection.close()
