"""An operator removes records of the relay: what flows would lose is told first, and what was done is in the
history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from publisher.flows.refused_error import RefusedError
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, history, served
from wormhole.model.position import LogPosition
from wormhole.ports.log_source import RelayStatus, SourceStatus
from wormhole.wire.v1 import admin_pb2


def asked(keep_bytes: int = 0, *, preview: bool = False) -> admin_pb2.TrimRelayRequest:
    return admin_pb2.TrimRelayRequest(who="maria@ops", preview=preview, keep_bytes=keep_bytes)


class Relayed:
    """The source of a publisher, with a relay that holds the log from the flow's datamarker on."""

    def __init__(self, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
        (flow,) = publisher.assigner.flows.values()
        begin, end = flow.delivery.marker, publisher.log.source.latest()
        between = publisher.log.watch.between(begin.order, end.order)
        assert between
        behind = LogPosition(begin.order.incarnation, begin.order.file, begin.order.offset + 1)
        stretch = (begin.order, end.order)
        self.relay: RelayStatus | None = RelayStatus(
            "hold", begin, end, end.order, (stretch,), behind, between // 2, between, 1 << 30, 1, False, 0
        )
        self.trimmed: list[int] = []
        status = publisher.log.source.status
        self.verb = operated(replace(publisher, relay=self)).relay

        def relayed() -> SourceStatus:
            found = status()
            found.relay = self.relay
            return found

        monkeypatch.setattr(publisher.log.source, "status", relayed)

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> None:
        pass

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        pass

    def trim(self, keep_bytes: int) -> None:
        self.trimmed.append(keep_bytes)
        assert self.relay is not None
        self.relay = replace(self.relay, bytes=min(self.relay.bytes, keep_bytes), held=None)


async def test_what_flows_would_lose_is_told_and_then_it_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.application()
    world.commit("a", "b", "c")
    async with world.publisher() as publisher:
        await served(publisher)
        source = Relayed(publisher, monkeypatch)
        assert source.relay is not None
        taken = source.relay.bytes
        preview = await source.verb.trim(asked(preview=True), "")
        assert [*preview.losing] == [FLOW]
        assert preview.before == preview.after
        assert not (await source.verb.trim(asked(taken + 1, preview=True), "")).losing, "what it needs stays"
        held = source.relay
        assert held.begin is not None
        source.relay = replace(held, held=held.begin.order)
        assert not (await source.verb.trim(asked(preview=True), "")).losing, "the datastore has it from there"
        source.relay = held
        assert source.trimmed == []
        reply = await source.verb.trim(asked(), "")
        assert (reply.before.bytes, reply.after.bytes, [*reply.losing]) == (taken, 0, [FLOW])
        assert source.trimmed == [0]
        assert history(world)[-1] == ("maria@ops", "relay trim", publisher.served.log)
        assert not (await source.verb.trim(asked(preview=True), "")).losing, "the datastore has it all"


async def test_a_log_without_a_relay_is_refused(world: World) -> None:
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        await served(publisher)
        with pytest.raises(RefusedError, match="this log has no relay"):
            await operated(publisher).relay.trim(asked(), "")
