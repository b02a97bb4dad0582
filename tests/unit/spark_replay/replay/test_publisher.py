from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from spark_replay.replay.publisher import Reach, ReplayClient, TicketLostError
from tests.support.archives import marker_at
from tests.support.ports import free_port
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from tests.support.state_folders import TOKEN, local_admin
from wormhole.model.errors import EpochRefused, ReplayError, StreamBroken, UsageError
from wormhole.wire.v1 import admin_pb2


def test_a_replay_from_begin_to_finish(tmp_path: Path) -> None:
    with (
        local_admin(tmp_path) as (local, target),
        replay_publisher(ScriptedReplay(marker_at(1)), target=target) as script,
    ):
        with ReplayClient(Reach(script.reach), "cache/a", "r", local=local) as client:
            assert client.begin(admin_pb2.BeginReplay(preview=True)).flow.flow == "cache/a"
            assert client.ticket == ""
            client.begin(admin_pb2.BeginReplay())
            assert client.ticket == "t"
            opened = client.open().opened
            client.advance(opened.epoch, marker_at(4), updates=3, size=9)
            assert client.renew().replay.updates == 3
            assert not client.finish(opened.epoch, marker_at(4)).HasField("replay")
            client.cancel("me@here")
        assert script.asked == ["begin", "begin", "open", "advance", "renew", "finish", "cancel"]
        assert script.marker == marker_at(4)
        assert script.tokens == [f"Bearer {TOKEN}"] * 3, "only begin and cancel carry it"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.ABORTED, EpochRefused),
        (grpc.StatusCode.UNAUTHENTICATED, TicketLostError),
        (grpc.StatusCode.INVALID_ARGUMENT, UsageError),
        (grpc.StatusCode.NOT_FOUND, UsageError),
        (grpc.StatusCode.FAILED_PRECONDITION, ReplayError),
        (grpc.StatusCode.UNIMPLEMENTED, ReplayError),
        (grpc.StatusCode.UNAVAILABLE, StreamBroken),
    ],
)
def test_each_refusal_says_whose_move_it_is(code: grpc.StatusCode, kind: type[Exception]) -> None:
    with replay_publisher(ScriptedReplay(marker_at(1))) as script:
        script.refuses["renew"] = [Refused(code, "it is so", "do that")]
        with ReplayClient(Reach(script.reach), "cache/a", "r") as client, pytest.raises(kind) as caught:
            client.renew()
    assert caught.value.hint  # type: ignore[attr-defined]
    assert caught.value.flow == "cache/a"  # type: ignore[attr-defined]


def test_a_publisher_that_is_not_there_may_come_back() -> None:
    with ReplayClient(Reach(f"127.0.0.1:{free_port()}"), "cache/a", "r") as client:
        with pytest.raises(StreamBroken, match="does not answer"):
            client.renew()


def test_a_call_on_what_another_thread_closed_may_be_made_again() -> None:
    with (
        replay_publisher(ScriptedReplay(marker_at(1))) as script,
        ReplayClient(Reach(script.reach), "cache/a", "r") as client,
    ):
        client.renew()
        assert client._channel is not None
        client._channel.close()
        with pytest.raises(StreamBroken, match="was let go"):
            client.renew()
