"""Signed requests to a real server: order, ids, and what each answer means."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sinks.port import Sink
from sinks.records import subscriber as subscriber_module
from sinks.webhook import receiver as receiver_module
from sinks.webhook import writer as writer_module
from sinks.webhook.kind import KIND
from sinks.webhook.receiver import Receiver
from sinks.webhook.settings import WebhookSettings
from subscriber_sdk import HandlerFailed, RetryPolicy
from subscriber_sdk.testing import Kit, KitFlow, update
from subscriber_sdk.testing import kit as kit_module
from subscriber_sdk.testing.changes import Change
from tests.support.certificates import Authority
from tests.support.webhook_receiver import SECRET, Request, WebhookReceiver, answers_badly
from wormhole.model.errors import TargetRefused, TargetUnavailable, UsageError, WormholeError
from wormhole.model.findings import Severity

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
QUICK = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.001)
Attach = Callable[..., KitFlow]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit tries a receiver that stays away a hundred times, which takes real time with sockets."""
    monkeypatch.setattr(kit_module, "_AWAY", 6)


@pytest.fixture
def receiver(wormhole_kit: Kit) -> Iterator[WebhookReceiver]:
    found = wormhole_kit.run(WebhookReceiver().start())
    yield found
    wormhole_kit.run(found.stop())


@pytest.fixture
def opened(wormhole_kit: Kit, tmp_path: Path) -> Iterator[Callable[..., Sink]]:
    """Opens sinks with the receiver's secret."""
    sinks: list[Sink] = []

    def one(url: str, *, secret: str = SECRET, **more: Any) -> Sink:
        (tmp_path / "secret").write_text(f"{secret}\n", encoding="latin-1")
        (tmp_path / "secret").chmod(0o600)
        given = {"url": url, "secret_file": str(tmp_path / "secret"), **more}
        sinks.append(KIND.open("hook", WebhookSettings.model_validate(given)))
        return sinks[-1]

    yield one
    for sink in sinks:
        wormhole_kit.run(sink.close())


@pytest.fixture
def attach(wormhole_kit: Kit, opened: Callable[..., Sink], receiver: WebhookReceiver) -> Attach:
    """Attaches a sink of the receiver, or of another URL."""

    def flow(url: str = "", *, on_failure: Any = "halt", shard: str = "shop", **more: Any) -> KitFlow:
        sink = opened(url or receiver.url, **more)
        return wormhole_kit.attach(sink.subscriber, on_failure=on_failure, shard=shard, retry=QUICK)

    return flow


def row(key: int, text: str = "") -> Change:
    return update("shop.orders", key=key, after={"text": text})


def failure(flow: KitFlow, *changes: Change) -> WormholeError:
    """What a commit of the changes fails with."""
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(*changes)
    assert isinstance(failed.value.__cause__, WormholeError)
    return failed.value.__cause__


# --- what is sent


def test_records_arrive_signed_with_ids_and_are_acknowledged(attach: Attach, receiver: WebhookReceiver) -> None:
    flow = attach()
    flow.commit(row(1, "é"), row(2))
    flow.commit(row(3))
    two, one = receiver.requests
    assert two.ids == ["hook/shop/test:1:0/0", "hook/shop/test:1:1/0"]
    assert (one.id, one.ids) == ("hook/shop/test:2:0/0", ["hook/shop/test:2:0/0"])
    assert two.id.startswith("batch/")
    assert (two.body["type"], two.body["application"], two.body["shard"], two.body["epoch"]) == (
        "updates",
        "hook",
        "shop",
        1,
    )
    first = two.body["data"][0]
    assert (first["table"], first["key"], first["value"]["after"]) == ("shop.orders", [1], {"text": "é"})
    assert flow.datamarker == flow.end


def test_an_id_has_no_full_stop_and_only_ascii(attach: Attach, receiver: WebhookReceiver) -> None:
    attach(shard="db1.a/é", application="a.b").commit(row(1))
    assert receiver.requests[0].id == "a%2Eb/db1%2Ea%2F%C3%A9/test:1:0/0"


def test_ids_are_equal_after_a_crash_and_others_after_a_move(attach: Attach, receiver: WebhookReceiver) -> None:
    flow = attach()
    begin = flow.datamarker
    flow.commit(row(1), row(2))
    flow.crash_and_redeliver()
    first, again = receiver.requests
    assert (first.id, first.ids) == (again.id, again.ids)
    assert first.body["epoch"] < again.body["epoch"]
    flow.move(begin)
    moved = receiver.requests[-1]
    assert moved.keys == [1, 2]
    assert {moved.id, *moved.ids}.isdisjoint({first.id, *first.ids})


def test_two_sinks_of_one_receiver_have_ids_of_their_own(attach: Attach, receiver: WebhookReceiver) -> None:
    for name in ("one", "other"):
        flow = attach(application=name)
        flow.commit(row(1), row(2))
        assert flow.datamarker == flow.end
    first, second = receiver.requests
    assert first.keys == second.keys == [1, 2]
    assert {first.id, *first.ids}.isdisjoint({second.id, *second.ids})


def test_batches_are_bounded_in_records_and_in_bytes(attach: Attach, receiver: WebhookReceiver) -> None:
    attach(batch_records=2).commit(*(row(key) for key in range(5)))
    assert [request.keys for request in receiver.requests] == [[0, 1], [2, 3], [4]]
    receiver.requests.clear()
    attach(batch_size="8KiB", shard="other").commit(*(row(key, "x" * size) for key, size in enumerate((1, 9000, 1, 1))))
    assert [request.keys for request in receiver.requests] == [[0], [1], [2, 3]]


@pytest.mark.parametrize("lines", [[SECRET, OTHER], [OTHER, SECRET]])
def test_two_secrets_sign_each_request(attach: Attach, receiver: WebhookReceiver, lines: list[str]) -> None:
    attach(secret="\n".join(lines)).commit(row(1))
    assert receiver.requests[0].keys == [1]


def test_a_secret_is_replaced_without_a_restart(attach: Attach, receiver: WebhookReceiver, tmp_path: Path) -> None:
    flow = attach()
    flow.commit(row(1))
    (tmp_path / "secret").write_text(f"{OTHER}\n")
    receiver.secret = OTHER
    flow.commit(row(2))
    assert [request.keys for request in receiver.requests] == [[1], [2]]


def test_a_half_written_secret_file_is_waited_for(attach: Attach, receiver: WebhookReceiver, tmp_path: Path) -> None:
    flow = attach()
    (tmp_path / "secret").write_text(OTHER[:9])
    error = failure(flow, row(1))
    assert isinstance(error, TargetUnavailable)
    assert OTHER[6:9] not in str(error)


# --- what an answer means


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 501, 503, 504])
def test_a_receiver_that_is_away_gets_the_same_ids_again(
    attach: Attach, receiver: WebhookReceiver, status: int
) -> None:
    receiver.statuses = [status] * 3  # more than there are attempts
    flow = attach()
    flow.commit(row(1), row(2))
    assert len({request.id for request in receiver.requests}) == 1
    assert (len(receiver.requests), flow.datamarker, flow.halted) == (4, flow.end, None)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((status, "target-refused") for status in (300, 301, 302, 303, 307, 308, 404, 405, 410, 415, 451)),
        (401, "login-refused"),
        (403, "login-refused"),
    ],
)
def test_what_an_operator_has_to_change_halts_the_flow(
    attach: Attach, receiver: WebhookReceiver, status: int, code: str
) -> None:
    receiver.statuses = [status]
    receiver.headers = {"Location": "/elsewhere"}
    error = failure(attach(), row(1))
    assert isinstance(error, TargetRefused)
    assert (error.code, len(receiver.requests)) == (code, 1)
    assert error.hint


def test_an_expired_secret_halts_the_flow(attach: Attach, receiver: WebhookReceiver) -> None:
    error = failure(attach(secret=OTHER), row(1))
    assert (error.code, receiver.requests) == ("login-refused", [])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_only_the_refused_record_of_a_batch_is_parked(attach: Attach, receiver: WebhookReceiver, status: int) -> None:
    taken: list[int] = []

    async def answer(request: Request, _: web.Request) -> web.Response:
        if 5 in request.keys:
            return web.Response(status=status)
        taken.extend(request.keys)
        return web.Response(status=200)

    receiver.answer = answer
    flow = attach(on_failure="park")
    flow.commit(*(row(key) for key in range(8)))
    assert flow.parked == ["test:1:5"]
    assert flow.datamarker == flow.end
    assert list(dict.fromkeys(taken)) == [0, 1, 2, 3, 4, 6, 7]
    flow.commit(row(8), row(9))
    assert receiver.requests[-1].keys == ([9] if status == 413 else [8, 9])


def test_the_search_for_a_refused_record_takes_several_attempts_of_a_slow_receiver(
    attach: Attach, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: Request, _: web.Request) -> web.Response:
        return web.Response(status=422 if 5 in request.keys else 200)

    receiver.answer = answer
    monkeypatch.setattr(writer_module, "_SEARCH_S", -1.0)
    flow = attach(on_failure="park")
    flow.commit(*(row(key) for key in range(8)))
    assert (flow.parked, flow.datamarker) == (["test:1:5"], flow.end)
    assert len({request.body["epoch"] for request in receiver.requests}) > 2


def test_the_search_goes_on_beside_another_shard(
    attach: Attach, receiver: WebhookReceiver, opened: Callable[..., Sink], wormhole_kit: Kit
) -> None:
    sink = opened(receiver.url)
    searched, other = (wormhole_kit.attach(sink.subscriber, shard=shard, retry=QUICK) for shard in ("one", "two"))
    receiver.statuses = [400, 410]
    failure(searched, row(1), row(2), row(3), row(4))
    other.commit(row(1), row(2), row(3))
    searched.assign()
    other.commit(row(4), row(5), row(6))
    assert [request.keys for request in receiver.requests[2:]] == [[1, 2], [3], [1, 2], [3, 4], [4, 5, 6]]


def test_a_limit_that_the_receiver_shows_is_kept(attach: Attach, receiver: WebhookReceiver) -> None:
    statuses: list[int] = []

    async def answer(_: Request, given: web.Request) -> web.Response:
        statuses.append(413 if (given.content_length or 0) > 6000 else 200)
        return web.Response(status=statuses[-1])

    receiver.answer = answer
    flow = attach()
    for refused in (True, False):
        statuses.clear()
        flow.commit(*(row(key, "x" * 1000) for key in range(8)))
        assert (413 in statuses, flow.datamarker) == (refused, flow.end)


def test_a_pause_that_the_receiver_asks_for_is_kept(
    attach: Attach, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "_WAIT_S", 0.001)
    receiver.statuses, receiver.headers = [429], {"Retry-After": "3600"}
    error = failure(attach(), row(1))
    assert isinstance(error, TargetUnavailable)
    assert "asked for a pause" in str(error)
    assert len(receiver.requests) == 1


def test_a_pause_is_bounded(
    attach: Attach, receiver: WebhookReceiver, wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "_LONGEST_PAUSE", 0.05)
    receiver.statuses, receiver.headers = [503], {"Retry-After": "9" * 5000}
    flow = attach()
    began = wormhole_kit.now
    flow.commit(row(1))
    assert (len(receiver.requests), flow.datamarker) == (2, flow.end)
    assert wormhole_kit.now - began >= 0.05


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0", 0), ("7", 7), ("301", 300), ("9" * 99, 300), ("-5", 0), ("²", 0), ("soon", 0), ("", 0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300),
        ("Mon, 06 Nov 1995 08:49:37 GMT", 0),
    ],
)
def test_a_header_of_a_pause(text: str, seconds: float) -> None:
    assert receiver_module._pause(text) == seconds


# --- receivers that misbehave


def test_an_answer_after_the_deadline_does_not_count(attach: Attach, receiver: WebhookReceiver) -> None:
    again = asyncio.Event()

    async def answer(_: Request, __: web.Request) -> web.Response:
        if len(receiver.requests) > 1:
            again.set()
        await again.wait()
        return web.Response(status=200)

    receiver.answer = answer
    flow = attach(timeout="50ms")
    flow.commit(row(1))
    assert len({request.id for request in receiver.requests}) == 1
    assert (len(receiver.requests) > 1, flow.datamarker) == (True, flow.end)


def test_a_huge_answer_is_not_read(attach: Attach, receiver: WebhookReceiver, wormhole_kit: Kit) -> None:
    cut = asyncio.Event()
    sent = 0

    async def answer(_: Request, given: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(given)
        try:
            for _number in range(100):
                await response.write(b"x" * (1 << 20))
                sent += 1
        finally:
            cut.set()
        return response

    receiver.answer = answer
    flow = attach()
    flow.commit(row(1))
    assert flow.datamarker == flow.end
    wormhole_kit.run(cut.wait())
    assert sent < 50


def test_a_body_that_does_not_end_delays_and_does_not_fail(attach: Attach, receiver: WebhookReceiver) -> None:
    async def answer(_: Request, given: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(given)
        await response.write(b"x")
        await asyncio.Event().wait()
        return response

    receiver.answer = answer
    flow = attach(timeout="50ms")
    flow.commit(row(1))
    assert (len(receiver.requests), flow.datamarker) == (1, flow.end)


async def _nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await writer.drain()


def _sends(data: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    async def first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return first


async def _slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    await reader.read()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte at a time, for longer than the deadline."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
        writer.write(bytes([byte]))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read()
                return  # the sink hung up


async def _endless_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: " + b"x" * 4000 + b"\r\n")
        await writer.drain()


async def _too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    await reader.read()


def test_an_answer_before_the_body_was_read(attach: Attach, wormhole_kit: Kit) -> None:
    server = answers_badly(_too_large, reads=False)
    url, heads = wormhole_kit.run(server.__aenter__())
    flow = attach(url, on_failure="park")
    flow.commit(row(1, "x" * (3 << 20)))
    assert (len(heads), flow.parked, flow.datamarker) == (1, ["test:1:0"], flow.end)
    wormhole_kit.run(server.__aexit__(None, None, None))


@pytest.mark.parametrize(
    ("first", "requests"),
    [
        (_nothing, 2),
        (_sends(b"HTTP/1.1 200"), 2),
        (_sends(b"HTTP/1.1 200 OK\r\nContent-Le"), 2),
        (_sends(b"\x16\x03\x01 garbage\r\n\r\n"), 2),
        (_sends(b"HTTP/1.1 999999 OK\r\n\r\n"), 2),
        (_sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"), 2),
        (_slow_head, 2),
        (_endless_head, 2),
        (_sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), 1),
        (_sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz"), 1),
        (_sends(b"HTTP/1.0 200 OK\r\n\r\nto the end"), 1),
        (_sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nmore than that"), 2),
        (_sends(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), 2),
        (_sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n"), 2),
        (_drip, 2),
    ],
    ids=[
        "closes",
        "line",
        "head",
        "garbage",
        "status",
        "header",
        "slow",
        "endless",
        "half",
        "encoding",
        "http-1.0",
        "longer",
        "negative",
        "chunk",
        "drip",
    ],
)
def test_only_a_whole_head_is_an_answer(attach: Attach, wormhole_kit: Kit, first: Any, requests: int) -> None:
    server = answers_badly(first)
    url, heads = wormhole_kit.run(server.__aenter__())
    flow = attach(url, timeout="200ms")
    flow.commit(row(1))
    assert (len(heads), flow.datamarker) == (requests, flow.end)
    wormhole_kit.run(server.__aexit__(None, None, None))


def test_a_receiver_that_is_down_is_waited_for(attach: Attach, receiver: WebhookReceiver, wormhole_kit: Kit) -> None:
    wormhole_kit.run(receiver.stop())
    assert isinstance(failure(attach(), row(1)), TargetUnavailable)


def test_what_a_slow_receiver_accepted_is_not_sent_again(
    attach: Attach, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_module, "_TURN_S", 0.0)  # only the first request of a callback begins in time
    flow = attach(batch_records=1)
    flow.commit(row(1), row(2), row(3))
    assert [(request.keys, request.body["epoch"]) for request in receiver.requests] == [([1], 1), ([2], 2), ([3], 3)]
    assert flow.datamarker == flow.end


def test_the_time_of_a_callback_is_that_of_all_its_writes(
    attach: Attach, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that was held in a file is written in portions."""
    monkeypatch.setattr(subscriber_module, "_TURN_S", 0.0)
    flow = attach(batch_records=1, hold_memory="1KiB")
    flow.commit(*(row(key, "x" * 600_000) for key in (1, 2, 3)))
    assert [(request.keys, request.body["epoch"]) for request in receiver.requests] == [([1], 1), ([2], 2), ([3], 3)]
    assert flow.datamarker == flow.end


def test_a_parked_update_between_confirmed_records(attach: Attach, receiver: WebhookReceiver) -> None:
    """A change of a key makes three records of Debezium. The last one is refused. What follows fails once."""
    taken: list[Any] = []
    away = [503]

    async def answer(request: Request, _: web.Request) -> web.Response:
        (item,) = request.body["data"]
        if item["value"] and (item["value"]["after"] or {}).get("text") == "poison":
            return web.Response(status=422)
        if "test:1:3" in item["id"] and away:
            return web.Response(status=away.pop())
        taken.append((item["id"].split("/")[2], item["value"] and item["value"]["op"]))
        return web.Response(status=204)

    receiver.answer = answer
    flow = attach(on_failure="park", batch_records=1, envelope="debezium")
    moved = update("shop.orders", key=3, old_key=2, before={"text": ""}, after={"text": "poison"})
    flow.commit(row(1), moved, row(4), row(5))
    assert flow.parked == ["test:1:1"]
    assert flow.datamarker == flow.end
    assert list(dict.fromkeys(id_ for id_, _ in taken)) == [f"test:1:{number}" for number in range(4)]
    assert [op for id_, op in taken if id_ == "test:1:1"] == ["d", None]


def test_a_receiver_that_knows_a_higher_epoch_keeps_a_replaced_process_away(
    attach: Attach, receiver: WebhookReceiver, opened: Callable[..., Sink]
) -> None:
    newest = 0
    taken: list[int] = []

    async def answer(request: Request, _: web.Request) -> web.Response:
        nonlocal newest
        if request.body["epoch"] < newest:
            return web.Response(status=409)
        newest = request.body["epoch"]
        taken.extend(request.keys)
        return web.Response(status=204)

    receiver.answer = answer
    flow = attach()
    flow.commit(row(1))
    replaced = flow.hand_over(opened(receiver.url).subscriber)
    flow.commit(row(2))
    assert isinstance(failure(replaced, row(3)), TargetUnavailable)
    flow.commit(row(4))
    assert taken == [1, 2, 4]


def test_another_owner_between_two_epochs_voids_what_was_accepted(attach: Attach, receiver: WebhookReceiver) -> None:
    """It may have sent older records since."""
    flow = attach(batch_records=1)
    receiver.statuses = [200, 410]
    failure(flow, row(1), row(2))
    flow.epoch += 1
    flow.assign()
    assert [request.keys for request in receiver.requests] == [[1], [2], [1], [2]]


def test_a_move_voids_what_was_accepted(attach: Attach, receiver: WebhookReceiver) -> None:
    flow = attach(batch_records=1)
    receiver.statuses = [200, 410]
    begin = flow.datamarker
    failure(flow, row(1), row(2))
    flow.move(begin)
    assert [request.keys for request in receiver.requests] == [[1], [2], [1], [2]]


# --- TLS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def served(kit: Kit, authority: Authority, **more: Any) -> WebhookReceiver:
    files = authority.issue("receiver", **more)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return kit.run(WebhookReceiver().start(context=context))


@pytest.mark.parametrize(
    ("more", "trusted", "why"),
    [
        ({}, False, "self-signed|unable to get"),
        ({"hosts": False}, True, "mismatch"),
        ({"days": (-2, -1)}, True, "expired"),
    ],
    ids=["authority", "host", "expired"],
)
@pytest.mark.allow_error_log("asyncio logs the handshake that fails")
def test_a_certificate_that_is_not_trusted_gets_nothing(
    attach: Attach, wormhole_kit: Kit, authority: Authority, tmp_path: Path, more: Any, trusted: bool, why: str
) -> None:
    receiver = served(wormhole_kit, authority, **more)
    ca = authority if trusted else Authority(tmp_path / "other", "other")
    error = failure(attach(receiver.url, ca_file=str(ca.ca)), row(1))
    assert isinstance(error, TargetUnavailable)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(str(error))
    assert receiver.requests == []
    wormhole_kit.run(receiver.stop())


def test_an_authority_of_ones_own_whose_file_is_read_again(
    attach: Attach, wormhole_kit: Kit, authority: Authority, tmp_path: Path
) -> None:
    receiver = served(wormhole_kit, authority)
    ca = Authority(tmp_path / "other", "other").ca
    flow = attach(receiver.url, ca_file=str(ca))
    failure(flow, row(1))
    ca.write_bytes(authority.ca.read_bytes())
    flow.assign()
    assert receiver.requests[0].keys == [1]
    wormhole_kit.run(receiver.stop())


# --- what is never shown


@pytest.mark.parametrize("status", [500, 401, 302, 422])
def test_neither_secret_nor_row_nor_token_is_logged(
    attach: Attach, receiver: WebhookReceiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    async def answer(_: Request, given: web.Request) -> web.Response:
        return web.Response(status=status, text=(await given.text()) + SECRET, reason="Mr Smith")

    receiver.answer = answer
    caplog.set_level(logging.DEBUG)
    error = failure(attach(), row(1, "Mr Smith"))
    shown = f"{error} {error.hint} {caplog.text}"
    assert f"answers {status}" in shown
    assert not [text for text in (SECRET[6:], "Smith", "unguessable", "/hook") if text in shown]


def test_a_cookie_is_not_sent_back(attach: Attach, receiver: WebhookReceiver) -> None:
    async def answer(_: Request, given: web.Request) -> web.Response:
        assert not given.cookies
        return web.Response(status=204, headers={"Set-Cookie": "a=b; Path=/"})

    receiver.answer = answer
    flow = attach(receiver.url.replace("127.0.0.1", "localhost"))
    flow.commit(row(1))
    flow.commit(row(2))
    assert len(receiver.requests) == 2


# --- settings


def settings(**given: Any) -> WebhookSettings:
    return WebhookSettings.model_validate({"url": "https://host/", "secret_file": "/secret", **given})


@pytest.mark.parametrize(
    "url",
    [
        *("https:/path", "https://", "https://host:0/", "https://host:x/", "https://me@host/", "https://host/#a"),
        *("https://ho st/", "https://host/\n", "http://10.0.0.1/", "http://example.org/", "http://localhost.org/"),
    ],
)
def test_a_url_that_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        settings(url=url)


def test_http_is_for_this_host_unless_allowed() -> None:
    for host in ("localhost", "127.0.0.1:80", "127.9.9.9", "[::1]:8080"):
        assert settings(url=f"http://{host}/?a=b").shown == f"http://{host}"
    assert settings(url="http://10.0.0.1/", insecure=True).shown == "http://10.0.0.1"


@pytest.mark.parametrize("given", [{"timeout": "16s"}, {"batch_records": 0}, {"batch_size": "0"}, {"secret_file": ""}])
def test_settings_have_bounds(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        settings(**given)


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", SECRET[6:], "whsec_", "whsec_c2hvcnQ=", "whsec_" + "A" * 100, "whsec_*" + SECRET[6:], "whsec_\xff"),
        *(f"{SECRET}\n{OTHER}\n{SECRET}", f"{SECRET}\nx", f"{SECRET}{' ' * 5000}"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_named_without_its_text(opened: Callable[..., Sink], text: str) -> None:
    with pytest.raises(UsageError, match="one or two lines, each whsec_") as error:
        opened("https://host/", secret=text)
    assert SECRET[6:] not in str(error.value)


def test_keys_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="password_file"):
        KIND.open("hook", settings(password_file="/password"))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        KIND.open("hook", settings(secret_file=str(tmp_path / "missing")))
    with pytest.raises(TargetUnavailable, match="file for TLS"):
        asyncio.run(Receiver(settings(ca_file=str(tmp_path / "missing"))).trust())


# --- what `wormholectl sink check` finds


def findings(kit: Kit, sink: Sink) -> dict[str, Severity]:
    return {finding.check: finding.severity for finding in kit.run(sink.examine()).findings}


@pytest.mark.parametrize(
    ("status", "severity", "code"),
    [
        (200, Severity.OK, ""),
        (404, Severity.PROBLEM, "target-refused"),
        (401, Severity.PROBLEM, "login-refused"),
        (400, Severity.WARN, "record-refused"),
    ],
)
def test_a_check_sends_a_signed_request_without_records(
    opened: Callable[..., Sink],
    receiver: WebhookReceiver,
    wormhole_kit: Kit,
    status: int,
    severity: Severity,
    code: str,
) -> None:
    receiver.statuses = [status]
    (found,) = wormhole_kit.run(opened(receiver.url).examine()).findings
    assert (found.check, found.severity, found.known_code) == ("target_answer", severity, code)
    (request,) = receiver.requests
    assert (request.ids, request.id.split("/")[0]) == ([], "check")


def test_a_check_names_a_secret_that_others_read(
    opened: Callable[..., Sink], receiver: WebhookReceiver, wormhole_kit: Kit, tmp_path: Path
) -> None:
    sink = opened(receiver.url)
    (tmp_path / "secret").chmod(0o644)
    assert findings(wormhole_kit, sink) == {"target_secret": Severity.WARN, "target_answer": Severity.OK}


@pytest.mark.parametrize(("days", "severity"), [(20, Severity.OK), (13, Severity.WARN)])
def test_a_check_shows_when_the_certificate_ends(
    opened: Callable[..., Sink], authority: Authority, wormhole_kit: Kit, days: int, severity: Severity
) -> None:
    receiver = served(wormhole_kit, authority, days=(-1, days))
    sink = opened(receiver.url, ca_file=str(authority.ca))
    assert findings(wormhole_kit, sink) == {"target_certificate": severity, "target_answer": Severity.OK}
    wormhole_kit.run(receiver.stop())


def test_a_check_of_a_receiver_that_cannot_be_reached(
    opened: Callable[..., Sink], receiver: WebhookReceiver, wormhole_kit: Kit
) -> None:
    wormhole_kit.run(receiver.stop())
    with pytest.raises(TargetUnavailable, match="cannot be reached"):
        wormhole_kit.run(opened(receiver.url).examine())
