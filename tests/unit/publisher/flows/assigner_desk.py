"""An assigner over streams and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from caravan.fleet import Fleet
from publisher.flows import assigner as module
from publisher.flows.assigner import Assigner, Timeouts
from publisher.flows.assignment import assign
from publisher.push.attached import AttachedSubscribers
from publisher.push.flow import PublisherFlow
from publisher.push.stream import Dialer, StreamEvents, SubscriberStream
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.markers import marker
from wormhole.config import ApplicationConfig
from wormhole.coordination.port import SubscriberInfo
from wormhole.filters import Filter
from wormhole.model.errors import MarkerStoreError, WormholeError
from wormhole.ports.dead_letters import DeadLetter
from wormhole.ports.marker_store import FlowKey
from wormhole.wire.v1 import push_pb2

GRACE, HANDLER = 5.0, 60.0
BOTH = {"s1": 1.0, "s2": 1.0}


MINE = next(shard for shard in map(str, range(100)) if assign([shard], BOTH)[shard] == "s1")
"""A shard that belongs to s1 for as long as it takes part."""


class Store(MemoryMarkerStore):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told = told
        self.failure: WormholeError | None = None
        self.open()

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        self.told.append(f"epoch {flow[1]}")
        if self.failure is not None:
            raise self.failure
        return super().raise_epoch(flow, above)

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        """One by one, so that a test replaces :meth:`raise_epoch` alone."""
        epochs = {}
        for flow, above in flows.items():
            try:
                epochs[flow] = self.raise_epoch(flow, above)
            except KeyError:
                continue
            except MarkerStoreError as error:
                if error.flow is None:
                    raise
        return epochs


class Stream:
    """Stands in for a :class:`SubscriberStream`: connects when the test says so, and notes what it is told."""

    def __init__(self, desk: Desk, info: SubscriberInfo) -> None:
        self.desk, self.info = desk, info
        self.identity = info.id
        self.connected = self.left = self.leaving = self.vacant = False
        self.life = object()
        self.since = desk.clock.now
        self.flows: list[PublisherFlow] = []
        self.ended = asyncio.Event()

    # -- what the assigner does

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.breaks("closed")
            self.ended.set()

    def assign(self, flow: PublisherFlow, *, yields: bool) -> None:
        self.flows.append(flow)
        self.desk.told.append(f"assign {flow.shard} to {self.info.id} in {flow.holding.epoch}")

    def revoke(self, flow: PublisherFlow, cause: str) -> None:
        self.desk.told.append(f"revoke {flow.shard} at {self.info.id}: {cause}")

    def hang_up(self, cause: str) -> None:
        self.desk.told.append(f"hang up on {self.info.id}: {cause}")
        self.breaks(cause)

    # -- what a subscriber does

    def breaks(self, cause: str, *, vacant: bool = True) -> None:
        if self.connected:
            self.since = self.desk.clock.now
        self.connected, self.vacant = False, vacant
        lost, self.flows = self.flows, []
        self.desk.assigner.ended(cast("SubscriberStream", self), lost, cause)

    def connects(self) -> None:
        self.connected, self.left, self.leaving, self.vacant = True, False, False, False
        self.desk.assigner.changed()

    def releases(self, flow: PublisherFlow) -> None:
        self.flows.remove(flow)
        self.desk.assigner.released(cast("SubscriberStream", self), flow)

    def leaves(self) -> None:
        self.left = True
        self.breaks("leaving")


@dataclass
class Present:
    contact: bool = True

    def ours(self) -> bool:
        return True

    def may_assign(self) -> bool:
        return self.contact

    def may_send(self) -> bool:
        return True

    def sole(self) -> bool:
        return True


class Desk:
    """An assigner and what is around it. ``told``: everything that it did, in order. ``recorded``: shards, with the
    subscribers that their records named when these were written for the assigner.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ScriptedClock()
        self.told: list[str] = []
        self.present = Present()
        self.dialled: list[Stream] = []
        self.settle_failure: WormholeError | None = None
        self.record_failure: WormholeError | None = None
        self.recorded: list[tuple[str, str]] = []
        self.parked: dict[FlowKey, tuple[DeadLetter, ...]] = {}
        self.store = Store(self.told)
        monkeypatch.setattr(module, "SubscriberStream", self._stream)
        self.assigner = Assigner(
            self.store,
            cast("Fleet", None),
            Dialer(push_pb2.Hello(), None, AttachedSubscribers(0.0)),
            Timeouts(GRACE, HANDLER),
            self.present,
            self.clock.clock,
        )
        self.assigner.join(cast("StreamEvents", None), self)

    def _stream(self, info: SubscriberInfo, *parts: object) -> Stream:
        self.dialled.append(Stream(self, info))
        return self.dialled[-1]

    async def settle(self) -> None:
        self.told.append("settle")
        if self.settle_failure is not None:
            raise self.settle_failure

    async def note(self, flows: Collection[PublisherFlow]) -> None:
        self.told.extend(f"record {flow.shard} in {flow.holding.epoch}" for flow in flows)
        self.recorded.extend((flow.shard, flow.recorded) for flow in flows)
        if self.record_failure is not None:
            raise self.record_failure

    async def read(self, flows: Collection[PublisherFlow]) -> None:
        assert all(flow.holding.epoch for flow in flows), "read before their epochs were raised"

    async def prepare(self, flow: PublisherFlow) -> None:
        flow.parking.found(self.parked.get(flow.key, ()))

    def application(self, name: str = "app", **settings: Any) -> None:
        self.assigner.application(ApplicationConfig(name=name, dataset="shop", start="latest", **settings))

    def flow(self, shard: str, application: str = "app") -> PublisherFlow:
        flow = PublisherFlow(application, shard, Filter.parse(None), marker(1), marker(1).order)
        self.store.register(flow.key, marker(1), "latest")
        self.assigner.flows[flow.key] = flow
        return flow

    def registered(self, *names: str, started: float = 1.0) -> None:
        infos = [SubscriberInfo("app", name, f"host:{number}", 1.0, started) for number, name in enumerate(names)]
        self.assigner.subscribers("app", infos)

    def streams(self) -> list[Stream]:
        return cast("list[Stream]", self.assigner.streams())

    def stream(self, name: str) -> Stream:
        """The present stream to the subscriber."""
        return next(stream for stream in reversed(self.dialled) if stream.info.id == name)

    async def round(self) -> list[str]:
        """One round of :meth:`Assigner.run`; returns what was done in it."""
        before = len(self.told)
        for app in tuple(self.assigner._applications.values()):
            await self.assigner._decide(app)
        return self.told[before:]

    def before(self, name: str, *shards: str, **settings: Any) -> list[PublisherFlow]:
        """The subscriber is connected, and nothing is decided yet."""
        self.application(**settings)
        flows = [self.flow(shard) for shard in shards]
        self.joins(name)
        return flows

    def joins(self, name: str, *others: str) -> Stream:
        """The subscriber is registered beside others, and connects."""
        self.registered(*others, name)
        self.stream(name).connects()
        return self.stream(name)

    async def at(self, name: str, *shards: str, **settings: Any) -> tuple[Stream, list[PublisherFlow]]:
        """Where most tests begin: the subscriber is connected and has the shards."""
        flows = self.before(name, *shards, **settings)
        await self.round()
        assert self.stream(name).flows == flows
        return self.stream(name), flows


async def two(desk: Desk) -> tuple[Stream, Stream, PublisherFlow]:
    """s1 has MINE, s2 is there too."""
    first, [flow] = await desk.at("s1", MINE)
    second = desk.joins("s2", "s1")
    assert await desk.round() == []
    return first, second, flow
