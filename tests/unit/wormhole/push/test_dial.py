from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
import pytest

from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.errors import ProtocolError, StreamBroken
from wormhole.push.dial import DialledLine, Peer, broken, check_user
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize("tls", [True, False])
def test_who_cannot_be_reached_is_reported_with_where_it_was_dialled_from(tls: bool) -> None:
    why = broken(
        failed(grpc.StatusCode.UNAVAILABLE, "refused"),
        Peer("h:1", cast("Trust | None", "any") if tls else None, here="over there"),
        "s1",
    )
    assert isinstance(why, StreamBroken)
    assert why.message == "h:1 cannot be reached (refused)"
    assert why.hint is not None
    assert "dialled from over there" in why.hint
    assert ("certificates" in why.hint and "'s1'" in why.hint) is tls


def test_another_server_at_the_address_does_not_pass_by_itself() -> None:
    why = broken(failed(grpc.StatusCode.UNIMPLEMENTED, ""), Peer("h:1"), "s1")
    assert isinstance(why, ProtocolError)
    assert (why.code, why.text) == ("address-taken", "h:1 is no Wormhole subscriber")
    assert why.hint == "check the `advertise` address of 's1'"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (failed(grpc.StatusCode.INTERNAL, "odd"), "the connection to h:1 ended: internal: odd"),
        (grpc.RpcError("what"), "the connection to h:1 ended: error: what"),
        (
            failed(grpc.StatusCode.INTERNAL, "Internal error from Core"),
            "the connection to h:1 ended while a message was written to it",
        ),
    ],
)
def test_anything_else_is_a_connection_that_ended(error: Exception, told: str) -> None:
    why = broken(error, Peer("h:1"), "s1")
    assert (type(why), why.message) == (StreamBroken, told)


@pytest.mark.parametrize("code", grpc.StatusCode)
@pytest.mark.parametrize("details", ["", "odd", "Internal error from Core"])
def test_every_end_of_a_connection_has_a_next_step(code: grpc.StatusCode, details: str) -> None:
    why = broken(failed(code, details), Peer("h:1"), "s1")
    assert why.hint
    assert "h:1" in why.message
    assert "from Core" not in str(why)


async def test_the_stream_carries_messages_both_ways() -> None:
    async with scripted_subscriber("cache", "s1") as subscriber:
        line = DialledLine(Peer(subscriber.address), "s1")
        call = await line.open()
        hello = push_pb2.Hello(min_version=3, max_version=3, application="cache", subscriber="s1")
        message = push_pb2.PublisherMessage(frames=[push_pb2.PublisherFrame(hello=hello)])
        await call.write(message.SerializeToString())
        await subscriber.hears("hello")
        (answer,) = push_pb2.SubscriberMessage.FromString(await call.read()).frames
        assert answer.welcome.subscriber == "s1"
        await line.close()


@pytest.mark.parametrize(
    ("address", "user", "strange"),
    [
        ("127.0.0.1:7000", 7, True),
        ("localhost:7000", 7, True),
        ("[::1]:7000", 7, True),
        ("127.0.0.1:7000", 8, False),
        ("127.0.0.1:7000", None, False),  # listed in a file, or of an earlier release
        ("192.0.2.1:7000", 7, False),  # another host, whose table is not here
    ],
)
def test_who_answers_on_this_host_is_the_user_that_registered_or_root(
    address: str, user: int | None, strange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wormhole.push.dial.end_uids", lambda addresses, port: frozenset({0, 8}))
    told = "is served by user 8, and the subscriber that registered it runs as user 7: it gets nothing [address-taken]"
    with pytest.raises(StreamBroken) if strange else nullcontext() as caught:
        check_user(Peer(address, user=user))
    assert (caught is not None and f"{address} {told}" in str(caught.value)) is strange


def test_a_system_without_the_table_says_nothing_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(addresses: object, port: int) -> frozenset[int]:
        raise PermissionError

    monkeypatch.setattr("wormhole.push.dial.end_uids", missing)
    check_user(Peer("127.0.0.1:7000", user=7))
