"""The sink of NATS JetStream with real servers: what is stored, in which order, and what is said when nothing can be.

What every kind has to do is in `tests/contract/sinks/test_nats.py`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import re
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.js.api import PubAck
from nats.js.client import JetStreamContext

from sinks.nats import connection
from sinks.nats.kind import KIND
from sinks.nats.settings import NatsSettings
from sinks.port import Sink
from subscriber_sdk import HandlerFailed, RetryPolicy
from subscriber_sdk.testing import Change, Kit, KitFlow, body_of, frames, kit, marker_at, update
from tests.support.certificates import Authority
from tests.support.dialled import Dialler, dialled
from tests.support.eventually import patience
from tests.support.nats_server import NatsServer, stored
from tests.support.ports import free_port
from tests.support.sink_process import running_sink, sink_config
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.findings import Severity

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

Opened = Callable[..., Sink]


@pytest.fixture
def opened(wormhole_kit: Kit) -> Iterator[Opened]:
    """Opens sinks, which are closed at the end."""
    sinks: list[Sink] = []

    def opened(url: str, stream: str, **more: Any) -> Sink:
        sinks.append(sink := KIND.open(stream, NatsSettings.model_validate({"url": url, **more})))
        return sink

    yield opened
    for sink in sinks:
        wormhole_kit.run(sink.close())


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit waits in real time while a connection is open."""
    monkeypatch.setattr(kit, "_LOOK", 0.2)


@pytest.fixture
def stream() -> str:
    """The name of a stream that is not there."""
    return f"s{uuid.uuid4().hex[:12]}"


@pytest.fixture
def killed() -> Iterator[NatsServer]:
    """A server that the test kills."""
    with NatsServer() as server:
        yield server


def row(key: int, text: str = "") -> Change:
    return update("shop.orders", key=key, after={"text": text})


def attached(wormhole_kit: Kit, sink: Sink, *, parks: bool = False) -> KitFlow:
    retry = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.01)
    return wormhole_kit.attach(sink.subscriber, retry=retry, on_failure="park" if parks else "halt")


def found(server: NatsServer, stream: str) -> list[str]:
    """The ids of the updates that the stream holds, in order."""
    return [json.loads(message.data or b"")["id"] for message in asyncio.run(stored(server, stream))]


def refused(wormhole_kit: Kit, sink: Sink) -> TargetRefused:
    """The error that halts a flow at its first update."""
    with pytest.raises(HandlerFailed) as failed:
        attached(wormhole_kit, sink).commit(row(1))
    assert isinstance(failed.value.__cause__, TargetRefused), f"{failed.value.__cause__!r}"
    return failed.value.__cause__


async def asked(server: NatsServer, subject: str, body: str = "") -> Any:
    client = await server.connect()
    try:
        return json.loads((await client.request(subject, body.encode(), timeout=5)).data)
    finally:
        await client.close()


@pytest.mark.parametrize("atomic", [True, False])
def test_a_repetition_within_the_window_is_dropped(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, atomic: bool
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    flow = attached(wormhole_kit, opened(nats_server.url, stream))
    for number in range(5):
        flow.commit(*(row(key) for key in range(number + 1)))
    flow.crash_and_redeliver(4, subscriber=opened(nats_server.url, stream).subscriber)
    flow.commit(row(1))
    ids = [f"test:{number}:{index}" for number in range(1, 6) for index in range(number)]
    assert found(nats_server, stream) == [*ids, "test:6:0"]


@pytest.mark.parametrize("atomic", [True, False])
def test_two_sinks_of_one_stream_are_no_duplicates_of_each_other(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, atomic: bool
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    one, other = (
        wormhole_kit.attach(opened(nats_server.url, stream).subscriber, application=name) for name in ("one", "other")
    )
    one.commit(row(1), row(2))
    other.commit(row(3), row(4))
    for flow in (one, other):
        flow.crash_and_redeliver(1, subscriber=opened(nats_server.url, stream).subscriber)
    one.commit(row(5))
    documents = [json.loads(message.data or b"") for message in asyncio.run(stored(nats_server, stream))]
    assert [document["key"] for document in documents] == [[1], [2], [3], [4], [5]]
    assert [document["id"] for document in documents] == [*("test:1:0", "test:1:1") * 2, "test:2:0"]


@pytest.mark.parametrize("atomic", [True, False])
async def test_two_processes_of_one_sink_store_each_record_once(
    nats_server: NatsServer, tmp_path: Path, stream: str, atomic: bool
) -> None:
    """The second one has a copy of the configuration, with another port, and its publisher has read nothing yet."""
    transactions = 100
    await asyncio.to_thread(nats_server.make_stream, name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    folder, listens = tmp_path / "copy", [f"127.0.0.1:{free_port()}" for _ in range(2)]
    folder.mkdir()
    lines = f'url = "{nats_server.url}"\nstream = "{stream}"'
    configs = [sink_config(at, "lines", listen, lines) for at, listen in zip((tmp_path, folder), listens, strict=True)]

    async def push(publisher: Dialler, first: int, last: int) -> None:
        for number in range(first, last + 1):
            body = body_of([row(number % 7), row(number % 5)], number=number)
            await publisher.send(
                frames.schema(row(0).schema),
                frames.batch(1, 1, number, body),
                frames.datamarker(1, 1, marker_at(number)),
            )
        while int((await publisher.next("ack")).ack.marker.delivered) < last:
            pass

    async with (
        running_sink(configs[0]),
        running_sink(configs[1]),
        dialled(listens[0], wait=True) as older,
        dialled(listens[1], wait=True) as newer,
    ):
        await older.open("lines", heartbeat_ms=60_000)
        await newer.open("lines", heartbeat_ms=60_000)
        await push(older, 1, transactions // 2)  # the newer one is assigned, and sent nothing
        await asyncio.gather(push(older, transactions // 2 + 1, transactions), push(newer, 1, transactions))
    held = [json.loads(message.data or b"")["id"] for message in await stored(nats_server, stream)]
    assert held == [f"test:{number}:{index}" for number in range(1, transactions + 1) for index in (0, 1)]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_publisher_that_takes_over_at_an_older_place_repeats_nothing(
    nats_server: NatsServer, tmp_path: Path, stream: str, atomic: bool
) -> None:
    """It stored a datamarker less than the former one, which goes on for a while."""
    last, behind = 100, 30
    await asyncio.to_thread(nats_server.make_stream, name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    listen = f"127.0.0.1:{free_port()}"
    config = sink_config(tmp_path, "lines", listen, f'url = "{nats_server.url}"\nstream = "{stream}"')

    async def push(publisher: Dialler, epoch: int, first: int, last: int) -> None:
        for number in range(first, last + 1):
            body = body_of([row(number % 7), row(number % 5)], number=number)
            batch = frames.batch(1, epoch, number - behind * (epoch - 1), body)
            await publisher.send(frames.schema(row(0).schema), batch, frames.datamarker(1, epoch, marker_at(number)))

    async def acknowledged(publisher: Dialler, number: int) -> None:
        while int((await publisher.next("ack")).ack.marker.delivered) < number:
            pass

    async with (
        running_sink(config),
        dialled(listen, wait=True) as former,
        dialled(listen, wait=True) as present,
    ):
        await former.open("lines", heartbeat_ms=60_000)
        await push(former, 1, 1, last // 2)
        await acknowledged(former, last // 2)
        await present.send(frames.hello("lines", "one", heartbeat_ms=60_000, publisher="test/other/log@localhost:2"))
        await present.next("welcome")
        await push(former, 1, last // 2 + 1, last // 2 + 10)
        await present.send(frames.assign(1, 2, "lines", "s", marker_at(behind)))
        await present.next("accepted")
        with contextlib.suppress(grpc.RpcError):  # its stream may be over
            await push(former, 1, last // 2 + 11, last)
        await push(present, 2, behind + 1, last)
        await acknowledged(present, last)
    held = [json.loads(message.data or b"")["id"] for message in await stored(nats_server, stream)]
    assert held == [f"test:{number}:{index}" for number in range(1, last + 1) for index in (0, 1)]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_record_that_is_known_longer_than_one_before_it_is_stored_behind_it(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, atomic: bool
) -> None:
    """The window has passed for the first of two records that come again, and not for the second."""
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)

    async def publish() -> None:
        client = await nats_server.connect()
        headers = {"Nats-Msg-Id": "test/test/shop/0/test:1:1"}
        await client.jetstream().publish(f"{stream}.shop.orders", b'{"id":"test:1:1"}', headers=headers)
        await client.close()

    asyncio.run(publish())
    flow = attached(wormhole_kit, opened(nats_server.url, stream))
    flow.commit(row(1), row(1), row(1))
    assert found(nats_server, stream) == ["test:1:1", "test:1:0", "test:1:1", "test:1:2"]
    flow.crash_and_redeliver(1, subscriber=opened(nats_server.url, stream).subscriber)
    assert found(nats_server, stream)[-3:] == ["test:1:0", "test:1:1", "test:1:2"]


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("at", ["sent", "half", "stored"])
def test_the_server_is_killed_while_records_are_published(
    killed: NatsServer,
    wormhole_kit: Kit,
    opened: Opened,
    stream: str,
    atomic: bool,
    at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it reads any of them, after some of them, and after it stored them and before the sink knows that."""
    killed.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    flow = attached(wormhole_kit, opened(killed.url, stream))
    flow.commit(row(1))
    publish, publish_stored = Client.publish, JetStreamContext.publish
    left = {"sent": 0, "half": 2, "stored": 10**9}[at]

    async def sends(self: Client, *arguments: Any, **more: Any) -> None:
        nonlocal left
        if left == 0:
            killed.kill()
        left -= 1
        await publish(self, *arguments, **more)

    async def stores(self: JetStreamContext, *arguments: Any, **more: Any) -> PubAck:
        answer = await publish_stored(self, *arguments, **more)
        if at == "stored":
            killed.kill()
            raise ConnectionResetError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Client, "publish", sends)
        patch.setattr(JetStreamContext, "publish", stores)
        with pytest.raises(HandlerFailed) as failed:
            flow.commit(*(row(key) for key in range(5)))
        assert isinstance(failed.value.__cause__, TargetUnavailable)
    killed.start()
    flow.assign()
    flow.commit(row(2))
    assert found(killed, stream) == ["test:1:0", *(f"test:2:{index}" for index in range(5)), "test:3:0"]


async def test_a_call_ends_with_its_connection(
    killed: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TIMEOUT_S", 3600.0)
    await asyncio.to_thread(killed.make_stream, name=stream, subjects=[f"{stream}.>"])
    servers = connection.Servers(stream, NatsSettings(url=killed.url))
    connected = await servers.connected()
    os.kill(killed.pid, signal.SIGSTOP)
    call = asyncio.ensure_future(connected.publish(connection.Message(f"{stream}.a", "1", b"{}")))
    await asyncio.sleep(0)
    await asyncio.to_thread(killed.kill)
    async with patience():
        with pytest.raises(TargetUnavailable, match="connection closed"):
            await call
    await servers.close()


async def test_an_attempt_to_connect_is_one_for_all_and_bounded(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shards wait for servers that accept connections and say nothing."""
    monkeypatch.setattr(connection, "_CONNECT_S", 3600)
    monkeypatch.setattr(connection, "_CONNECT_ALL_S", 0.2)
    greeted = 0

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(says_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        servers = connection.Servers(stream, NatsSettings(url=f"nats://127.0.0.1:{port},127.0.0.1:{port}"))
        async with patience():
            failed = await asyncio.gather(*(servers.connected() for _ in range(20)), return_exceptions=True)
        assert {type(error) for error in failed} == {TargetUnavailable}
        assert greeted == 1
        await servers.close()


async def test_a_sink_may_be_closed_while_it_connects(stream: str) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        servers = connection.Servers(stream, NatsSettings(url=f"nats://127.0.0.1:{port}"))
        waiting = asyncio.ensure_future(servers.connected())
        await asyncio.sleep(0)
        async with patience():
            await servers.close()
            with pytest.raises(asyncio.CancelledError):
                await waiting


def test_a_server_that_does_not_answer_gets_another_connection(
    killed: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(connection, "_CONNECT_S", 0.05)
    killed.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=True)
    sink = opened(killed.url, stream)
    flow = attached(wormhole_kit, sink)
    flow.commit(row(1))
    os.kill(killed.pid, signal.SIGSTOP)
    with pytest.raises(HandlerFailed, match="does not answer") as failed:
        flow.commit(row(2), row(3))
    assert isinstance(failed.value.__cause__, TargetUnavailable)
    with pytest.raises(TargetUnavailable):
        wormhole_kit.run(sink.examine())
    os.kill(killed.pid, signal.SIGCONT)
    monkeypatch.undo()
    flow.assign()
    assert found(killed, stream) == ["test:1:0", "test:2:0", "test:2:1"]


def test_a_stream_that_is_missing_is_made_as_the_message_says(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    sink = opened(nats_server.url, stream)
    report = wormhole_kit.run(sink.examine())
    assert report.severity is Severity.PROBLEM
    error = refused(wormhole_kit, sink)
    assert error.message == f"{nats_server.url} has no stream {stream}"
    (command,) = re.findall(r"nats req '(\S+)' '(.*)'", error.hint or "")
    assert report.findings[0].next_step == error.hint
    assert "error" not in asyncio.run(asked(nats_server, *command))
    flow = attached(wormhole_kit, sink)
    flow.commit(row(1), row(2))
    assert found(nats_server, stream) == ["test:1:0", "test:1:1"]
    assert wormhole_kit.run(sink.examine()).severity is not Severity.PROBLEM


def test_a_stream_that_is_deleted_halts_its_flow_until_it_is_back(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=True)
    flow = attached(wormhole_kit, opened(nats_server.url, stream))
    flow.commit(row(1))
    asyncio.run(asked(nats_server, f"$JS.API.STREAM.DELETE.{stream}"))
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(2), row(3))
    assert "backfill start" in (getattr(failed.value.__cause__, "hint", None) or "")
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"])
    flow.assign()
    flow.commit(row(4))
    assert found(nats_server, stream) == ["test:2:0", "test:2:1", "test:3:0"]


def test_an_older_copy_of_a_stream_halts_its_flow_once(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    """What it has confirmed since is acknowledged, and not published again."""
    with NatsServer() as server:
        server.make_stream(name="changes", subjects=["changes.>"], allow_atomic=True)
        flow = attached(wormhole_kit, opened(server.url, "changes"))
        flow.commit(row(1))
        server.stop()
        shutil.copytree(server.data, tmp_path / "older")
        server.start()
        flow.commit(row(2), row(3))
        flow.revoke()
        flow.assign()
        server.kill()
        shutil.rmtree(server.data)
        shutil.copytree(tmp_path / "older", server.data)
        server.start()
        with pytest.raises(HandlerFailed) as failed:
            flow.commit(row(4))
        assert isinstance(failed.value.__cause__, TargetRefused)
        assert "backfill start" in (failed.value.__cause__.hint or "")
        flow.assign()
        assert found(server, "changes") == ["test:1:0", "test:3:0"]


def test_a_subject_that_no_stream_has_is_refused(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.users.>"])
    error = refused(wormhole_kit, opened(nats_server.url, stream))
    assert f"does not have the subjects {stream}.>" in error.message


def test_a_subject_of_another_stream_is_refused(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.users.>"])
    nats_server.make_stream(name=f"{stream}-2", subjects=[f"{stream}.shop.>"])
    error = refused(wormhole_kit, opened(nats_server.url, stream))
    assert f"another stream than {stream}" in error.message


def test_a_stream_that_acknowledges_nothing_is_refused(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], no_ack=True)
    assert "acknowledges nothing" in refused(wormhole_kit, opened(nats_server.url, stream)).message


@pytest.mark.parametrize("atomic", [True, False])
def test_a_full_stream_is_waited_for(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, atomic: bool
) -> None:
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic, max_msgs=2, discard="new")
    flow = attached(wormhole_kit, opened(nats_server.url, stream))
    with pytest.raises(HandlerFailed, match="is full: maximum messages exceeded") as failed:
        flow.commit(row(1), row(2), row(3))
    assert isinstance(failed.value.__cause__, TargetUnavailable)
    assert found(nats_server, stream) == ["test:1:0", "test:1:1"]
    asyncio.run(asked(nats_server, f"$JS.API.STREAM.PURGE.{stream}"))
    flow.assign()
    assert found(nats_server, stream) == ["test:1:2"]
    assert flow.datamarker == flow.end


@pytest.mark.parametrize("atomic", [True, False])
def test_a_record_that_the_server_does_not_take_is_parked(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str, atomic: bool
) -> None:
    """A server ends the connection of a client that sends more than it takes."""
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=atomic)
    flow = attached(wormhole_kit, opened(nats_server.url, stream, subject="{stream}.{table}.{key}"), parks=True)
    flow.commit(row(1), row(2, "x" * (1 << 20)), row(3))
    flow.commit(update("shop.orders", key="é" * 400, after={"text": ""}), row(4))
    assert flow.parked == ["test:1:1", "test:2:0"]
    assert found(nats_server, stream) == ["test:1:0", "test:1:2", "test:2:1"]
    assert [message.subject for message in asyncio.run(stored(nats_server, stream))] == [
        f"{stream}.shop.orders.{key}" for key in (1, 3, 4)
    ]


def test_a_batch_of_many_records_keeps_their_order(
    nats_server: NatsServer, wormhole_kit: Kit, opened: Opened, stream: str
) -> None:
    """More than one batch may have, and more bytes."""
    nats_server.make_stream(name=stream, subjects=[f"{stream}.>"], allow_atomic=True)
    flow = attached(wormhole_kit, opened(nats_server.url, stream))
    flow.commit(*(row(key) for key in range(1005)), *(row(key, "x" * 600_000) for key in range(4)))
    assert found(nats_server, stream) == [f"test:1:{index}" for index in range(1009)]


@pytest.mark.parametrize(
    ("more", "severity", "found"),
    [
        ({}, Severity.OK, "takes the records"),
        ({"subjects": ["{0}.users.>"]}, Severity.PROBLEM, "may not have every subject of {0}.>"),
        ({"sealed": True}, Severity.PROBLEM, "is sealed"),
        ({"duplicate_window": 0.5}, Severity.WARN, "duplicates is 0.5 s"),
        ({"allow_atomic": False}, Severity.WARN, "no atomic batches"),
        ({"storage": "memory"}, Severity.WARN, "before they are on a disk"),
        ({"retention": "interest"}, Severity.WARN, "only for the consumers"),
        ({"max_bytes": 1 << 20}, Severity.WARN, "deletes its oldest"),
        ({"max_age": 3600.0, "discard": "new"}, Severity.WARN, "deletes its oldest"),
        ({"max_msgs": 9, "discard": "new"}, Severity.OK, "takes the records"),
    ],
)
def test_what_of_a_stream_matters_is_reported(
    nats_server: NatsServer,
    wormhole_kit: Kit,
    opened: Opened,
    stream: str,
    more: dict[str, Any],
    severity: Severity,
    found: str,
) -> None:
    subjects = [text.format(stream) for text in more.get("subjects", ["{0}.>"])]
    settings = {"allow_atomic": True, **more, "subjects": subjects}
    sealed = settings.pop("sealed", False)
    nats_server.make_stream(name=stream, **settings)
    if sealed:
        body = json.dumps({**settings, "name": stream, "sealed": True})
        asyncio.run(asked(nats_server, f"$JS.API.STREAM.UPDATE.{stream}", body))
    report = wormhole_kit.run(opened(nats_server.url, stream).examine())
    assert report.severity is severity
    (finding,) = report.findings
    assert found.format(stream) in finding.what
    assert bool(finding.because and finding.next_step) is (severity is not Severity.OK)
    limits = {"max_bytes": "1MiB in all", "max_age": "3600 s old", "max_msgs": "9 messages"}
    assert report.facts["limits"] == next((text for name, text in limits.items() if name in more), "none")
    assert report.facts["copies"] == f"1, each in {more.get('storage', 'file')}"


USERS = """
authorization {
  users: [
    { user: admin, password: open }
    { user: "a b", password: "open ü" }
    { user: few, password: open, permissions: { publish: ["$JS.API.>"], subscribe: ["_INBOX.>"] } }
    { user: none, password: open, permissions: { publish: ["x"], subscribe: ["_INBOX.>"] } }
  ]
}
"""


def test_a_login_is_a_user_with_a_password_and_rights(
    wormhole_kit: Kit, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TIMEOUT_S", 0.5)
    password = tmp_path / "password"
    with NatsServer(lines=USERS) as server:

        def login(user: str, text: str) -> Sink:
            password.write_text(text)
            return opened(server.url.replace("//", f"//{user}@"), "changes", password_file=password)

        wrong = refused(wormhole_kit, login("admin", "wrong secret"))
        assert (wrong.code, "secret" in f"{wrong} {wrong.hint}") == ("login-refused", False)
        assert refused(wormhole_kit, opened(server.url, "changes")).code == "login-refused"
        assert refused(wormhole_kit, login("none", "open")).code == "account-lacks-rights"

        async def make() -> None:
            client = await server.connect(user="admin", password="open")
            await client.jetstream().add_stream(name="changes", subjects=["changes.>"])
            await client.close()

        asyncio.run(make())
        assert refused(wormhole_kit, login("few", "open")).code == "account-lacks-rights"
        flow = attached(wormhole_kit, login("a%20b", "open ü\n"))
        flow.commit(row(1))
        assert flow.datamarker == flow.end


def test_a_token_is_a_password_without_a_user(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with NatsServer(lines='authorization { token: "open" }') as server:
        for text, code in (("wrong", "login-refused"), ("open", "target-refused")):
            token.write_text(text)
            error = refused(wormhole_kit, opened(server.url, "changes", password_file=token))
            assert error.code == code
        assert "has no stream" in error.message


class Key:
    """A key of NATS. ``kind``: the first letter of its public half."""

    def __init__(self, kind: str) -> None:
        prefix = {"O": 14, "A": 0, "U": 20}[kind] << 3
        self._key = Ed25519PrivateKey.generate()
        self.public = self._text(bytes([prefix]) + self._key.public_key().public_bytes_raw())
        self.seed = self._text(bytes([18 << 3 | prefix >> 5, (prefix & 31) << 3]) + self._key.private_bytes_raw())

    def jwt(self, subject: str, **claims: Any) -> str:
        """A JWT about ``subject``."""
        body = {"jti": subject, "iat": 1_700_000_000, "iss": self.public, "name": "n", "sub": subject, "nats": claims}
        parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
            for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)
        ]
        signature = base64.urlsafe_b64encode(self._key.sign(b".".join(parts))).rstrip(b"=")
        return b".".join([*parts, signature]).decode()

    @staticmethod
    def _text(data: bytes) -> str:
        checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
        return base64.b32encode(checked).rstrip(b"=").decode()


def test_a_user_may_have_a_key(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    seed, known = tmp_path / "seed", Key("U")
    with NatsServer(lines=f"authorization {{ users: [ {{ nkey: {known.public} }} ] }}") as server:
        for key, code in ((Key("U"), "login-refused"), (known, "target-refused")):
            seed.write_text(f"{key.seed}\n")
            error = refused(wormhole_kit, opened(server.url, "changes", credentials_file=seed))
            assert error.code == code
        assert "has no stream" in error.message


def test_a_user_may_have_a_key_and_a_jwt(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    operator, system, account, user = Key("O"), Key("A"), Key("A"), Key("U")
    limits = dict.fromkeys(["subs", "data", "payload", "conn", "leaf", "imports", "exports", "mem_storage",
                            "disk_storage", "streams", "consumer"], -1)  # fmt: skip
    accounts = {
        key.public: operator.jwt(key.public, type="account", version=2, limits={**given, "wildcards": True})
        for key, given in ((system, {name: -1 for name in limits if "storage" not in name}), (account, limits))
    }
    preloaded = ", ".join(f"{name}: {text}" for name, text in accounts.items())
    lines = f"""
operator: {operator.jwt(operator.public, type="operator", version=2)}
system_account: {system.public}
resolver: MEMORY
resolver_preload: {{ {preloaded} }}
"""
    unlimited = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}
    credentials = tmp_path / "user.creds"
    credentials.write_text(f"""-----BEGIN NATS USER JWT-----
{account.jwt(user.public, **unlimited)}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{user.seed}
------END USER NKEY SEED------
""")
    with NatsServer(lines=lines) as server:
        error = refused(wormhole_kit, opened(server.url, "changes", credentials_file=credentials))
        assert "has no stream" in error.message
        credentials.write_text(credentials.read_text().replace(user.seed, Key("U").seed))
        error = refused(wormhole_kit, opened(server.url, "changes", credentials_file=credentials))
        assert error.code == "login-refused"


def test_tls_checks_both_certificates(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "other-ca")
    host, client = ours.issue("nats"), ours.issue("sink")
    lines = f'tls {{ cert_file: "{host.cert}", key_file: "{host.key}", ca_file: "{ours.ca}", verify: true }}'
    with NatsServer(lines=lines) as server:
        url = server.url.replace("nats://", "tls://")
        own = {"cert_file": client.cert, "key_file": client.key}
        missing = refused(wormhole_kit, opened(url, "changes", ca_file=ours.ca, **own))
        assert "has no stream" in missing.message
        with pytest.raises(HandlerFailed) as failed:
            attached(wormhole_kit, opened(url, "changes", ca_file=theirs.ca, **own)).commit(row(1))
        assert isinstance(cause := failed.value.__cause__, TargetUnavailable)
        assert cause.code == "certificate-refused"


def test_nothing_is_sent_to_a_server_without_tls(wormhole_kit: Kit, opened: Opened, tmp_path: Path) -> None:
    """Whoever is between the sink and the server may change the server's greeting."""
    password = tmp_path / "password"
    password.write_text("secret")
    received: list[bytes] = []

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","headers":true,"max_payload":1048576,"auth_required":true}\r\n')
        with contextlib.suppress(ConnectionError):
            received.append(await reader.read(1000))
        writer.close()

    async def examined() -> Any:
        server = await asyncio.start_server(greets, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        report = await opened(f"tls://me@127.0.0.1:{port}", "changes", password_file=password).examine()
        server.close()
        await server.wait_closed()
        return report

    report = wormhole_kit.run(examined())
    assert "offers no encryption" in report.findings[0].what
    assert received == [b""]
