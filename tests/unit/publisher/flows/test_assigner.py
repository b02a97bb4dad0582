"""Who receives what, decided over streams and a clock that the test moves; `test_publisher.py` has the same over
gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest

from caravan.fleet import Fleet
from publisher.flows import assigner as module
from publisher.flows.assigner import Assigner, Patience
from publisher.flows.assignment import assign
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from publisher.push.stream import Dialer, StreamEvents, SubscriberStream
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.eventually import eventually
from tests.support.markers import marker
from wormhole.config import ApplicationConfig
from wormhole.coordination.port import SubscriberInfo
from wormhole.filters import Filter
from wormhole.model.errors import CoordinationLost, MarkerStoreError, WormholeError
from wormhole.ports.dead_letters import DeadLetter
from wormhole.ports.marker_store import FlowKey

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


class Stream:
    """Stands in for a :class:`SubscriberStream`: connects when the test says so, and notes what it is told."""

    def __init__(self, desk: Desk, info: SubscriberInfo) -> None:
        self.desk, self.info = desk, info
        self.connected = self.left = self.leaving = self.vacant = False
        self.parks = True
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
        self.desk.told.append(f"assign {flow.shard} to {self.info.id} in {flow.epoch}")

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

    def may_assign(self) -> bool:
        return self.contact

    def may_send(self) -> bool:
        return True

    def sole(self) -> bool:
        return True


class Desk:
    """An assigner and what is around it. ``told``: everything that it did, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ScriptedClock()
        self.told: list[str] = []
        self.present = Present()
        self.dialled: list[Stream] = []
        self.settle_failure: WormholeError | None = None
        self.record_failure: WormholeError | None = None
        self.parked: dict[FlowKey, tuple[DeadLetter, ...]] = {}
        self.store = Store(self.told)
        monkeypatch.setattr(module, "SubscriberStream", self._stream)
        self.assigner = Assigner(
            self.store,
            cast("Fleet", None),
            cast("Dialer", None),
            cast("StreamEvents", None),
            Patience(GRACE, HANDLER),
            self.present,
            self._settle,
            self._record,
            self._prepare,
            self.clock.clock,
        )

    def _stream(self, info: SubscriberInfo, *parts: object) -> Stream:
        self.dialled.append(Stream(self, info))
        return self.dialled[-1]

    async def _settle(self) -> None:
        self.told.append("settle")
        if self.settle_failure is not None:
            raise self.settle_failure

    async def _record(self, flows: Collection[PublisherFlow]) -> None:
        self.told.extend(f"record {flow.shard} in {flow.epoch}" for flow in flows)
        if self.record_failure is not None:
            raise self.record_failure

    async def _prepare(self, flow: PublisherFlow) -> None:
        flow.parks_now(self.parked.get(flow.key, ()))

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

    async def at(self, name: str, *shards: str, **settings: Any) -> tuple[Stream, list[PublisherFlow]]:
        """Where most tests begin: the subscriber is connected and has the shards."""
        self.application(**settings)
        flows = [self.flow(shard) for shard in shards]
        self.registered(name)
        self.stream(name).connects()
        await self.round()
        assert self.stream(name).flows == flows
        return self.stream(name), flows


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    desk = Desk(monkeypatch)
    yield desk
    await desk.assigner.close(0)


# --- the four steps


async def test_a_move_is_revoke_release_settle_epoch_assign(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    assert desk.told == ["settle", "epoch a", "record a in 1", "assign a to s1 in 1"]
    desk.told.clear()
    desk.registered("s1", "s2")
    desk.stream("s2").connects()
    desk.application(pin={"a": "s2"})
    assert await desk.round() == ["revoke a at s1: moves to s2"]
    assert flow.state(frozenset()) is PublisherFlowState.OPENING
    assert await desk.round() == [], "not asked twice, not given before it is released"
    first.releases(flow)
    assert await desk.round() == ["settle", "epoch a", "record a in 2", "assign a to s2 in 2"]
    assert (flow.subscriber, flow.epoch, flow.releasing) == ("s2", 2, False)


async def test_who_has_its_shard_is_left_alone(desk: Desk) -> None:
    await desk.at("s1", "a")
    desk.clock.now += 1e6
    assert await desk.round() == []


async def test_many_flows_are_settled_once_and_spread_as_computed(desk: Desk) -> None:
    desk.application()
    shards = [f"s{number}" for number in range(300)]
    for shard in shards:
        desk.flow(shard)
    desk.registered("s1", "s2", "s3")
    for name in ("s1", "s2", "s3"):
        desk.stream(name).connects()
    done = await desk.round()
    assert done.count("settle") == 1
    wanted = assign(shards, {"s1": 1.0, "s2": 1.0, "s3": 1.0})
    found = {flow.shard: name for name in ("s1", "s2", "s3") for flow in desk.stream(name).flows}
    assert found == wanted
    assert await desk.round() == []


async def test_a_shard_that_appears_or_goes_is_seen(desk: Desk) -> None:
    stream, [flow] = await desk.at("s1", "a")
    other = desk.flow("b")
    assert "assign b to s1 in 1" in await desk.round()
    assert stream.flows == [flow, other]


async def test_the_deciding_task_wakes_by_every_change_and_by_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.01)
    desk.application()
    desk.flow("a")
    running = asyncio.create_task(desk.assigner.run())
    try:
        desk.registered("s1", "s2")
        desk.stream("s1").connects()
        desk.stream("s2").connects()
        await eventually(lambda: desk.stream("s1").flows or desk.stream("s2").flows, "given")
        holder = next(stream for stream in desk.dialled if stream.flows)
        holder.breaks("gone")
        desk.clock.now += GRACE + 1
        other = next(stream for stream in desk.dialled if stream is not holder)
        await eventually(lambda: other.flows, "moved when its time was over")
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# --- who vanishes


async def two(desk: Desk) -> tuple[Stream, Stream, PublisherFlow]:
    """s1 has MINE, s2 is there too."""
    first, [flow] = await desk.at("s1", MINE)
    desk.registered("s1", "s2")
    desk.stream("s2").connects()
    assert await desk.round() == []
    return first, desk.stream("s2"), flow


async def test_a_subscriber_that_leaves_gives_its_shards_up_at_once(desk: Desk) -> None:
    first, _, _ = await two(desk)
    first.leaves()
    assert f"assign {MINE} to s2 in 2" in await desk.round()


@pytest.mark.parametrize(
    ("vacant", "patience"), [(True, GRACE), (False, GRACE + HANDLER)], ids=["nobody listens", "no answer"]
)
@pytest.mark.parametrize("listed", [True, False])
async def test_a_broken_stream_keeps_its_shards_while_it_may_come_back(
    desk: Desk, vacant: bool, patience: float, listed: bool
) -> None:
    first, second, flow = await two(desk)
    first.breaks("broken", vacant=vacant)
    if not listed:
        desk.assigner.subscribers("app", [second.info])
    desk.clock.now += patience - 1
    assert await desk.round() == []
    assert (flow.subscriber, flow.cause) == ("s1", "waiting for s1")
    desk.clock.now += 2
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    assert flow.subscriber == "s2"


async def test_one_that_comes_back_in_time_goes_on(desk: Desk) -> None:
    first, _, _ = await two(desk)
    first.breaks("broken")
    desk.clock.now += GRACE - 1
    await desk.round()
    first.connects()
    assert await desk.round() == ["settle", f"epoch {MINE}", f"record {MINE} in 2", f"assign {MINE} to s1 in 2"]


async def test_one_whose_entry_went_and_that_is_still_connected_is_asked_first(desk: Desk) -> None:
    first, second, flow = await two(desk)
    desk.assigner.subscribers("app", [second.info])
    desk.clock.now += GRACE - 1
    assert await desk.round() == []
    desk.clock.now += 2
    assert await desk.round() == [f"revoke {MINE} at s1: moves to s2"]
    first.releases(flow)
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    await first.ended.wait()
    assert desk.streams() == [second]


async def test_one_that_gives_back_unasked_is_leaving_and_gets_nothing_more(desk: Desk) -> None:
    """While a handler of its other shard still runs it would give back whatever it got, as fast as it came."""
    first, second, flow = await two(desk)
    first.releases(flow)
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    second.releases(flow)
    assert await desk.round() == []
    first.connects()
    assert f"assign {MINE} to s1 in 3" in await desk.round(), "it came back"


async def test_a_shard_whose_holder_was_lost_does_not_move_before_its_handler_can_have_ended(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    desk.registered("s1", "s2")
    desk.stream("s2").connects()
    first.breaks("broken", vacant=False)
    desk.application(pin={"a": "s2"})
    assert await desk.round() == []
    assert "a handler may still run at s1" in flow.cause
    desk.clock.now += GRACE + HANDLER + 1
    assert "assign a to s2 in 2" in await desk.round()


async def test_a_lost_holder_that_is_back_is_asked_before_its_shard_moves(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", "a", pin={"a": "s1"})
    desk.registered("s1", "s2")
    desk.stream("s2").connects()
    first.breaks("broken", vacant=False)
    desk.application(pin={"a": "s2"})
    first.connects()
    assert "assign a to s1 in 2" in await desk.round()
    assert await desk.round() == ["revoke a at s1: moves to s2"]
    first.releases(flow)
    assert "assign a to s2 in 3" in await desk.round()


async def test_an_entry_that_comes_back_in_time_changes_nothing(desk: Desk) -> None:
    first, second, _ = await two(desk)
    desk.assigner.subscribers("app", [second.info])
    desk.clock.now += GRACE - 1
    desk.registered("s1", "s2")
    desk.clock.now += GRACE
    assert await desk.round() == []
    assert desk.dialled == [first, second]


async def test_the_last_one_is_not_given_up_however_long_it_cannot_be_reached(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.breaks("no route", vacant=False)
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert flow.cause == "waiting for s1"
    desk.assigner.subscribers("app", [])
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert flow.cause == "no subscriber is there"
    await first.ended.wait()
    assert desk.streams() == []


async def test_a_restart_under_the_same_name_is_another_stream(desk: Desk) -> None:
    first, _, flow = await two(desk)
    desk.told.clear()
    desk.registered("s1", "s2", started=2.0)
    assert desk.told[0] == "hang up on s1: the subscriber was restarted"
    again = desk.stream("s1")
    assert again is not first
    assert await desk.round() == []
    again.connects()
    assert f"assign {MINE} to s1 in 2" in await desk.round()
    assert flow.subscriber == "s1"
    await first.ended.wait()
    assert again.flows == [flow], "the end of the former stream took the flow away"


async def test_a_handler_that_gave_up_stands_until_a_new_life_and_says_why(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    first.flows.clear()
    desk.assigner.halt(cast("SubscriberStream", first), flow, "no such user")
    assert await desk.round() == []
    first.breaks("broken")
    await desk.round()
    first.connects()
    assert await desk.round() == []
    assert (flow.state(frozenset()), flow.cause) == (PublisherFlowState.HELD, "halted: no such user")
    first.life = object()
    assert f"assign {MINE} to s1 in 2" in await desk.round()


# --- who is asked and does not answer


async def test_a_hand_over_that_is_never_answered_ends_with_the_connection(desk: Desk) -> None:
    first, second, flow = await two(desk)
    desk.application(pin={MINE: "s2"})
    await desk.round()
    desk.clock.now += GRACE + HANDLER - 1
    desk.assigner.revoke(cast("SubscriberStream", first), flow, "its filter changed")  # asked again: no more time
    desk.told.clear()
    assert await desk.round() == []
    desk.clock.now += 2
    done = await desk.round()
    assert done[0] == f"hang up on s1: it did not let go of app/{MINE} in time"
    assert f"assign {MINE} to s2 in 2" in [*done, *await desk.round()]
    assert second.flows == [flow]


async def test_what_is_asked_of_nobody_is_not_waited_for(desk: Desk) -> None:
    """A filter changed while the stream was broken: the next connection has let go of nothing, and must not be hung
    up on."""
    first, [flow] = await desk.at("s1", MINE)
    first.breaks("broken")
    desk.told.clear()
    desk.assigner.revoke(cast("SubscriberStream", first), flow, "its filter changed")
    assert (desk.told, flow.releasing) == ([], False)
    first.connects()
    await desk.round()
    desk.clock.now += 1e6
    assert await desk.round() == []
    assert first.flows == [flow]


async def test_an_application_that_comes_back_waits_for_what_its_subscribers_still_hold(desk: Desk) -> None:
    first, [former] = await desk.at("s1", MINE)
    del desk.assigner.flows[former.key]
    desk.assigner.revoke(cast("SubscriberStream", first), former, "the application is no longer configured")
    flow = desk.flow(MINE)
    assert await desk.round() == [], "the shard would be at two handlers"
    desk.clock.now += GRACE + HANDLER + 1
    assert (await desk.round())[0] == f"hang up on s1: it did not let go of app/{MINE} in time"
    first.connects()
    await desk.round()
    assert first.flows == [flow]


@pytest.mark.parametrize("back", [False, True], ids=["before the application is back", "after it is back"])
async def test_a_handler_of_an_application_that_was_gone_for_a_moment_is_waited_for(desk: Desk, back: bool) -> None:
    first, [former] = await desk.at("s1", MINE)
    desk.registered("s1", "s2")
    desk.stream("s2").connects()
    await desk.round()
    del desk.assigner.flows[former.key]
    desk.assigner.revoke(cast("SubscriberStream", first), former, "the application is no longer configured")
    if back:
        desk.flow(MINE)
    first.breaks("broken", vacant=False)
    if not back:
        desk.flow(MINE)
    desk.application(pin={MINE: "s2"})
    await desk.round()
    assert desk.stream("s2").flows == [], "two handlers would work on the shard"
    desk.clock.now += GRACE + HANDLER + 1
    await desk.round()
    assert desk.stream("s2").flows == [desk.assigner.flows[former.key]]


# --- who may receive it


async def test_who_is_not_allowed_is_not_dialled_and_told_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.application(allow=["s1"])
    with caplog.at_level(logging.ERROR):
        desk.registered("s1", "stranger")
        desk.registered("s1", "stranger")
        desk.registered("s1", "stranger", started=2.0)
    assert [stream.info.id for stream in desk.dialled] == ["s1", "s1"]
    [record] = caplog.records
    assert "subscriber stranger is not in the allow list of app" in record.getMessage()


async def test_a_changed_allow_list_counts_at_once(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE)
    desk.registered("s1", "s2")
    desk.application(allow=["s2"])
    assert await desk.round() == [f"revoke {MINE} at s1: moves to s2"]
    first.releases(flow)
    desk.stream("s2").connects()
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    await first.ended.wait()
    desk.application()
    assert desk.stream("s1") is not first, "allowed again: dialled again"


async def test_one_that_is_no_longer_allowed_and_does_not_answer_is_dropped(desk: Desk) -> None:
    first, [_] = await desk.at("s1", MINE)
    desk.application(allow=["s2"])
    assert await desk.round() == [f"revoke {MINE} at s1: no subscriber is there"]
    desk.clock.now += GRACE + HANDLER + 1
    await desk.round()
    await desk.round()
    await first.ended.wait()
    assert desk.streams() == []


async def test_a_pin_is_obeyed_and_a_pin_to_nobody_waits(desk: Desk) -> None:
    first, [flow] = await desk.at("s1", MINE, pin={MINE: "s1"})
    desk.application(pin={MINE: "elsewhere"})
    assert await desk.round() == [f"revoke {MINE} at s1: no subscriber is there"]
    first.releases(flow)
    assert await desk.round() == []
    assert flow.cause == "no subscriber is there"


async def test_subscribers_of_an_unknown_application_are_nobodys(desk: Desk) -> None:
    desk.registered("s1")
    assert desk.dialled == []
    flow = PublisherFlow("nobody", MINE, Filter.parse(None), marker(1), marker(1).order)
    assert desk.assigner.stream_of(flow) is None


# --- what goes wrong


async def test_nothing_moves_without_contact(desk: Desk) -> None:
    first, second, _ = await two(desk)
    desk.present.contact = False
    desk.application(pin={MINE: "s2"})
    assert await desk.round() == []
    first.breaks("broken")
    desk.clock.now += 1e6
    assert await desk.round() == []
    desk.present.contact = True
    assert f"assign {MINE} to s2 in 2" in await desk.round()
    assert second.flows


async def test_contact_that_goes_between_two_of_many_stops_the_rest(desk: Desk) -> None:
    desk.application()
    for shard in "abc":
        desk.flow(shard)
    desk.registered("s1")
    desk.stream("s1").connects()

    def raise_epoch(flow: FlowKey, above: int = 0) -> int:
        desk.present.contact = False
        return 1

    desk.store.raise_epoch = raise_epoch  # type: ignore[method-assign]
    await desk.round()
    assert desk.stream("s1").flows == []
    del desk.store.raise_epoch
    desk.present.contact = True
    await desk.round()
    assert len(desk.stream("s1").flows) == 3


@pytest.mark.parametrize("at", ["settle", "epoch"])
async def test_a_store_that_fails_is_tried_again_and_told_once(
    desk: Desk, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    desk.application()
    flows = [desk.flow(shard) for shard in "abc"]
    desk.registered("s1")
    desk.stream("s1").connects()
    failure = MarkerStoreError("the disk is full", hint="make space")
    if at == "settle":
        desk.settle_failure = failure
    else:
        desk.store.failure = failure
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            done = await desk.round()
            assert len([step for step in done if step.startswith("epoch")]) <= 1, "each of many waited for the store"
    [record] = caplog.records
    assert "3 flows cannot be given" in record.getMessage()
    assert "make space" in record.getMessage()
    assert {flow.cause for flow in flows} == {"the disk is full"}
    desk.settle_failure = desk.store.failure = None
    await desk.round()
    assert desk.stream("s1").flows == flows


async def test_nothing_is_given_away_in_an_epoch_that_could_not_be_recorded(desk: Desk) -> None:
    desk.application()
    flows = [desk.flow(shard) for shard in "abc"]
    desk.registered("s1")
    desk.stream("s1").connects()
    desk.record_failure = CoordinationLost("ZooKeeper does not answer")
    await desk.round()
    assert desk.stream("s1").flows == []
    assert {flow.cause for flow in flows} == {"ZooKeeper does not answer"}
    desk.record_failure = None
    done = await desk.round()
    assert desk.stream("s1").flows == flows
    assert [step for step in done if step.startswith("assign")] == [f"assign {shard} to s1 in 2" for shard in "abc"]


@pytest.mark.parametrize("at", ["epoch", "letters"])
async def test_what_is_damaged_of_one_flow_holds_that_flow_only(
    desk: Desk, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    desk.application()
    held, *others = (desk.flow(shard) for shard in "abc")
    damage = MarkerStoreError("/markers/a holds no valid datamarker", flow="app/a")
    ask = desk.store.raise_epoch if at == "epoch" else desk.assigner._prepare

    def broken(about: FlowKey | PublisherFlow, *above: int) -> Any:
        if about in (held, held.key):
            raise damage
        return ask(about, *above)  # type: ignore[arg-type]

    if at == "epoch":
        desk.store.raise_epoch = broken  # type: ignore[method-assign, assignment]
    else:
        desk.assigner._prepare = broken
    desk.registered("s1")
    desk.stream("s1").connects()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await desk.round()
    assert desk.stream("s1").flows == others
    assert held.cause == "/markers/a holds no valid datamarker (flow app/a)"
    assert bool(held.lost_record) is (at == "epoch")
    [record] = caplog.records
    assert record.getMessage().startswith("app/a is held")


async def test_a_flow_whose_datamarker_is_missing_is_held_and_the_others_go(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deleted its record: to begin it anywhere would be a silent gap."""
    desk.application()
    held, other = desk.flow("a"), desk.flow("b")
    desk.store.forget(held.key)
    desk.registered("s1")
    desk.stream("s1").connects()
    with caplog.at_level(logging.ERROR):
        await desk.round()
        await desk.round()
    assert desk.stream("s1").flows == [other]
    assert held.state(frozenset()) is PublisherFlowState.HELD
    assert str(held.lost_record).startswith(
        "its datamarker is missing in the marker store (flow app/a). Next: `wormholectl "
    )
    [record] = caplog.records
    assert "app/a is held" in record.getMessage()


@pytest.mark.parametrize("change", ["the stream broke", "the application went", "the publisher stops"])
async def test_what_changes_while_the_epoch_is_raised_is_looked_at_again(desk: Desk, change: str) -> None:
    desk.application()
    flow = desk.flow(MINE)
    desk.registered("s1")
    stream = desk.stream("s1")
    stream.connects()
    raising = MemoryMarkerStore.raise_epoch

    def raise_epoch(flow: FlowKey, above: int = 0) -> int:
        match change:
            case "the stream broke":
                stream.connected = False
            case "the application went":
                desk.assigner.flows.clear()
            case _:
                desk.assigner._stopping = True
        return raising(desk.store, flow)

    desk.store.raise_epoch = raise_epoch  # type: ignore[method-assign]
    await desk.round()
    assert (stream.flows, flow.epoch) == ([], 0)


async def test_an_outage_of_coordination_is_no_failure_of_the_assigner(desk: Desk) -> None:
    desk.application()
    flow = desk.flow(MINE)
    desk.registered("s1")
    desk.stream("s1").connects()
    desk.store.failure = CoordinationLost("ZooKeeper is away")
    await desk.round()
    assert flow.cause == "ZooKeeper is away"


# --- the end


async def test_close_asks_for_everything_and_waits(desk: Desk) -> None:
    first, [a, b] = await desk.at("s1", "a", "b")
    desk.told.clear()
    closing = asyncio.create_task(desk.assigner.close(10.0))
    await eventually(lambda: a.releasing and b.releasing, "asked")
    assert desk.told == [f"revoke {shard} at s1: the publisher stops" for shard in "ab"]
    first.releases(a)
    assert await desk.round() == [], "given again while stopping"
    assert not first.ended.is_set()
    first.releases(b)
    await closing
    assert first.ended.is_set()


async def test_close_does_not_wait_longer_than_it_is_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    first, _ = await desk.at("s1", "a")
    with caplog.at_level(logging.WARNING):
        await desk.assigner.close(0.02)
    assert first.ended.is_set()
    assert "subscribers still work on some flows" in caplog.text


async def test_a_second_signal_hangs_up_without_waiting(desk: Desk) -> None:
    first, _ = await desk.at("s1", "a")
    closing = asyncio.create_task(desk.assigner.close(60.0))
    await eventually(lambda: "revoke a at s1: the publisher stops" in desk.told, "asked")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await first.ended.wait()


async def test_close_waits_for_streams_that_were_replaced(desk: Desk) -> None:
    await desk.at("s1", "a")
    former = desk.stream("s1")
    desk.registered("s1", started=2.0)
    await desk.assigner.close(0.02)
    assert former.ended.is_set()
