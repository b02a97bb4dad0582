"""Requests of a mass replay as they are read and answered: who may ask what, and what is no request."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from publisher.flows.refused_error import RefusedError
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

Status = grpc.StatusCode


def asked(
    what: str, *, flow: str = FLOW, replay: str = "r1", ticket: str = "", **fields: Any
) -> admin_pb2.ReplayRequest:
    request = admin_pb2.ReplayRequest(flow=flow, replay=replay, ticket=ticket)
    getattr(request, what).SetInParent()
    for name, value in fields.items():
        setattr(getattr(request, what), name, value)
    return request


def nobody() -> str:
    raise RefusedError(Status.UNAUTHENTICATED, "a change needs the host's token")


@pytest.mark.usefixtures("first")
async def test_the_credential_is_asked_for_where_the_ticket_does_not_speak(world: World, publisher: Publisher) -> None:
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    requests = operated(publisher).replays
    begin = asked("begin", mode=admin_pb2.LOG, who="maria@ops")
    for request in (begin, asked("cancel")):
        with pytest.raises(RefusedError) as caught:
            await requests.replay(request, nobody)
        assert caught.value.status is Status.UNAUTHENTICATED
    assert world.markers.records[KEY].control.replay is None
    reply = await requests.replay(begin, lambda: "ops.example")
    assert reply.replay.who == "maria@ops (certificate ops.example)"
    assert (await requests.replay(asked("renew", ticket=reply.ticket), nobody)).replay.replay == "r1"
    for what in ("open", "renew", "advance", "park", "cancel"):
        with pytest.raises(RefusedError) as caught:
            await requests.replay(asked(what, ticket="wrong"), nobody)
        assert caught.value.status is Status.UNAUTHENTICATED
    stored = str(world.markers.records[KEY].control)
    assert reply.ticket not in stored
    assert (await requests.replay(asked("cancel", ticket=reply.ticket), nobody)).reaches


@pytest.mark.usefixtures("first")
async def test_a_preview_changes_nothing(world: World, publisher: Publisher) -> None:
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    reply = await operated(publisher).replays.replay(asked("begin", preview=True), lambda: "")
    assert (reply.ticket, reply.reaches, reply.HasField("replay")) == ("", True, False)
    assert reply.flow.flow == FLOW
    assert world.markers.records[KEY].control.replay is None
    world.source.set_reachable(False)
    assert not (await operated(publisher).replays.replay(asked("begin", preview=True), lambda: "")).reaches
    assert not world.coordination.history


async def test_what_is_no_request_is_refused(world: World) -> None:
    world.application()
    ahead = marker_to_message(world.commit("a"))
    good: dict[str, Any] = {"mode": admin_pb2.LOG}
    wrong = [
        (asked("begin", flow="app", **good), Status.INVALID_ARGUMENT),
        (asked("begin", flow="app/log.u", **good), Status.NOT_FOUND),
        (asked("begin", replay="", **good), Status.INVALID_ARGUMENT),
        (asked("begin"), Status.INVALID_ARGUMENT),
        (asked("begin", lease_s=0.1, **good), Status.INVALID_ARGUMENT),
        (asked("begin", lease_s=float("nan"), **good), Status.INVALID_ARGUMENT),
        (asked("begin", where="x" * 20_000, **good), Status.INVALID_ARGUMENT),
        (asked("advance", progress=b"x" * 5000), Status.INVALID_ARGUMENT),
        (asked("finish"), Status.INVALID_ARGUMENT),
        (admin_pb2.ReplayRequest(flow=FLOW, replay="r1"), Status.INVALID_ARGUMENT),
        (asked("renew"), Status.FAILED_PRECONDITION),
        (asked("park"), Status.FAILED_PRECONDITION),
    ]
    no_place = asked("begin", **good)
    no_place.begin.until.delivered = "7"
    beyond = asked("begin", **good)
    beyond.begin.begin.CopyFrom(ahead)
    wrong += [(no_place, Status.INVALID_ARGUMENT), (beyond, Status.INVALID_ARGUMENT)]
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        for request, code in wrong:
            with pytest.raises(RefusedError) as caught:
                await operated(publisher).replays.replay(request, lambda: "")
            assert caught.value.status is code, request
        assert world.markers.records[KEY].control.replay is None


@pytest.mark.usefixtures("first")
async def test_a_flow_that_is_not_served_yet_is_no_wrong_request(world: World, publisher: Publisher) -> None:
    """After a restart the log may not be back yet: who has the flow asks again."""
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    world.source.set_reachable(False)
    world.application("other")
    await eventually(lambda: "other" in publisher.applications.unserved, "seen")
    requests, codes = operated(publisher).replays, []
    for name in ("other", "nobody"):
        with pytest.raises(RefusedError) as caught:
            await requests.replay(asked("renew", flow=FLOW.replace("app", name)), nobody)
        codes.append(caught.value.status)
    assert codes == [Status.UNAVAILABLE, Status.NOT_FOUND]


@pytest.mark.usefixtures("first")
async def test_a_former_owner_of_the_log_replays_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    monkeypatch.setattr(publisher.ownership, "ours", lambda: False)
    with pytest.raises(RefusedError, match="another publisher") as caught:
        await operated(publisher).replays.replay(asked("begin", mode=admin_pb2.LOG), lambda: "")
    assert caught.value.status is Status.FAILED_PRECONDITION
