"""The publisher as its subscribers and stores see it; memory parts around it, gRPC for real."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from caravan.fleet import CaravanEventKind
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from publisher.push.stream import SubscriberStream
from tests.integration.publisher.conftest import World, world_of_either_direction
from tests.integration.publisher.receiving import KEY, keys, taken
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import FlowRecord, PublisherInfo
from wormhole.model.errors import DecodeError, SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import MarkerWrite
from wormhole.push import session
from wormhole.wire.markers import marker_from_message

world = world_of_either_direction
once = pytest.mark.parametrize("world", [False], indirect=True)
"""Which side dials makes no difference here."""


async def test_an_update_is_delivered_acknowledged_and_stored(world: World) -> None:
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        assign = await taken(s1)
        assert (assign.epoch, assign.shard, assign.replayed) == (1, "log.t", False)
        batch = await s1.hears("batch")
        assert keys(s1, batch) == [b"a"]
        await s1.processed(batch)
        offered = await s1.hears("datamarker")
        assert marker_from_message(offered.datamarker.marker) == marker
        assert world.markers.records[KEY].marker != marker  # offered is not acknowledged
        await s1.acks(offered)
        await eventually(lambda: world.markers.records[KEY].marker == marker, "stored")
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.durable == marker, "told")
        await eventually(lambda: flow.state(publisher.states.lead_flows()) is PublisherFlowState.LIVE, "at the lead")


@once
async def test_one_reader_serves_flows_that_stopped_a_moment_ago(world: World, s1: ScriptedSubscriber) -> None:
    world.application()
    world.commit("a")
    async with world.publisher():
        await world.register(s1)
        await taken(s1)
        await s1.processed(batch := await s1.hears("batch"))
        await s1.acks(await s1.hears("datamarker"))
        assert keys(s1, batch) == [b"a"]
    world.commit("b")
    async with world.publisher() as publisher:
        await taken(s1)
        assert keys(s1, await s1.hears("batch")) == [b"b"]
        opened = [event for event in publisher.log.fleet.history if event.kind is CaravanEventKind.STARTED]
        assert len(opened) == 1, opened


@once
async def test_a_log_whose_end_is_not_known_is_asked_again_for_any_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [SourceUnavailable("away"), DecodeError("nonsense"), UnsupportedLog("no binlog"), UsageError("denied")]
    found = world.source.latest
    seen: list[str] = []

    def latest() -> Datamarker:
        seen.append(publisher.log.fleet.trouble)
        if reasons:
            raise reasons.pop(0)
        return found()

    monkeypatch.setattr(world.source, "latest", latest)
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await eventually(lambda: not reasons, "each was met")
        world.application()
        await world.register(s1)
        await taken(s1)
        assert keys(s1, await s1.hears("batch")) == [b"a"]
    assert [trouble.rpartition(": ")[2] for trouble in seen[:5]] == [
        "",
        "away [source-unavailable]",
        "nonsense [log-undecodable]",
        "no binlog [log-unsupported]",
        "denied [wrong-request]",
    ]


@once
@pytest.mark.usefixtures("first")
async def test_progress_alone_is_never_stored(world: World) -> None:
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await world.register(s1)
            assign = await taken(s1)
            batch = await s1.hears("batch")
            await s1.processed(batch)
            await s1.hears("datamarker")
            await s1.releases(assign)
        assert world.markers.records[KEY].marker.order.offset == 0
        async with world.publisher():
            assert (await taken(s1)).replayed
            again = await s1.hears("batch")
            assert keys(s1, again) == [b"a"]
            assert again.batch.replayed


async def test_a_graceful_stop_offers_what_was_sent_since_the_last_datamarker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next start would repeat it, although it was processed."""
    monkeypatch.setattr(session, "MARKER_EVERY_S", 1.0 * FAST)
    world.settings["stop_timeout"] = 30.0
    world.application()
    world.commit("a")
    stop = asyncio.Event()

    async def serve() -> None:
        async with world.publisher():
            await stop.wait()

    async with scripted_subscriber("app", "s1") as s1:
        serving = asyncio.create_task(serve())
        await world.register(s1)
        assign = await taken(s1)
        await s1.processed(await s1.hears("batch"))
        await s1.acks(await s1.hears("datamarker"))
        last = world.commit("b")
        await s1.processed(await s1.hears("batch"))
        stop.set()  # long before the next one is due
        offered = await s1.hears("datamarker")
        assert marker_from_message(offered.datamarker.marker) == last
        await s1.hears("revoke")
        await s1.acks(offered)
        await s1.releases(assign)
        await serving
        assert world.markers.records[KEY].marker == last


@once
async def test_the_flow_record_names_the_subscriber_before_it_gets_the_flow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should this publisher die right after the assignment, the next one has to know where a handler may run."""
    right, found = SubscriberStream.assign, []

    def assign(self: SubscriberStream, flow: PublisherFlow, *, yields: bool) -> None:
        record = world.coordination.flows[flow.key]
        found.append((self.info.id, record.subscriber, record.epoch))
        right(self, flow, yields=yields)

    monkeypatch.setattr(SubscriberStream, "assign", assign)
    world.application(pin={"log.t": "s1"})
    world.commit("a")
    async with (
        scripted_subscriber("app", "s1") as s1,
        scripted_subscriber("app", "s2") as s2,
        world.publisher() as publisher,
    ):
        await world.register(s1)
        first = await taken(s1)
        await world.register(s2)
        await s2.hears("hello")
        await publisher.states.note(publisher.assigner.flows.values())
        world.application(pin={"log.t": "s2"})
        await s1.hears_later("revoke")
        await s1.releases(first)
        await s2.hears("assign")
    assert found == [("s1", "s1", 1), ("s2", "s2", 2)]


async def test_a_stop_reports_what_was_released_while_it_is_registered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner of the log waits for nobody then."""
    world.settings["stop_timeout"] = 120.0 * FAST
    world.application()
    world.commit("a")
    right, registered = MemoryCoordinator.write_flows, []

    async def write_flows(self: MemoryCoordinator, records: Mapping[tuple[str, str], FlowRecord]) -> None:
        registered.append(any(isinstance(entry, PublisherInfo) for entry in world.coordination.entries.values()))
        await right(self, records)

    monkeypatch.setattr(MemoryCoordinator, "write_flows", write_flows)
    stop = asyncio.Event()

    async def serve() -> None:
        async with world.publisher():
            await stop.wait()

    async with scripted_subscriber("app", "s1") as s1:
        serving = asyncio.create_task(serve())
        await world.register(s1)
        assign = await taken(s1)
        assert world.coordination.flows[KEY].subscriber == "s1"
        stop.set()
        await s1.hears_later("revoke")
        await s1.releases(assign)
        await serving
    record = world.coordination.flows[KEY]
    assert (record.subscriber, record.epoch, record.state) == ("", 1, "unassigned")
    assert registered
    assert all(registered)


@pytest.mark.usefixtures("first")
async def test_a_stop_still_names_a_subscriber_that_released_nothing(world: World, s1: ScriptedSubscriber) -> None:
    async with world.publisher():
        await world.register(s1)
        await taken(s1)
    assert world.coordination.flows[KEY].subscriber == "s1"


@once
@pytest.mark.parametrize(
    ("markers", "lease_s", "waits"),
    [("zookeeper", 4.0, True), ("zookeeper", math.inf, False), ("local", 4.0, False)],
    ids=["others may own the log", "nothing expires", "its own markers"],
)
async def test_the_next_owner_gives_a_flow_first_to_where_a_handler_may_run(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, markers: str, lease_s: float, waits: bool
) -> None:
    monkeypatch.setattr(MemoryCoordinator, "lease_s", lambda self: lease_s)
    world.settings["markers"] = markers
    world.witness = tmp_path / "flows.json"
    world.application(pin={"log.t": "s1"})
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, scripted_subscriber("app", "s2") as s2:
        async with world.publisher():
            await world.register(s1)
            await taken(s1)
        world.application(pin={"log.t": "s2"})
        await world.register(s2)
        async with world.publisher():
            if waits:
                again = await taken(s1)
                await s1.hears_later("revoke")
                assert s2.heard_nothing(but="hello")
                await s1.releases(again)
            else:
                await s1.hears("hello")
            assert (await s2.hears_later("assign")).assign.epoch == (3 if waits else 2)
            assert waits or s1.heard_nothing()


@once
@pytest.mark.usefixtures("first")
async def test_a_former_holder_is_waited_for_as_long_as_a_handler_can_run(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MemoryCoordinator, "lease_s", lambda self: 4.0)
    world.settings["markers"] = "zookeeper"
    world.witness = tmp_path / "flows.json"
    world.coordination.flows[KEY] = FlowRecord("former", "s9", 0, "live")
    before = world.clock.monotonic()
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        flow = publisher.assigner.flows[KEY]
        begun = flow.holding.held_until - 4.0 - world.settings["handler_timeout"]
        assert before <= begun <= world.clock.monotonic()
        assert flow.holding.subscriber == "s9"
        await eventually(lambda: "a handler may still run at s9" in flow.cause, "waits")


async def test_a_subscriber_that_never_releases_is_hung_up_on(world: World) -> None:
    world.settings |= {"grace_period": 6.0, "handler_timeout": 6.0}
    world.application(pin={"log.t": "s1"})
    world.commit("a")
    async with (
        scripted_subscriber("app", "s1") as s1,
        scripted_subscriber("app", "s2") as s2,
        world.publisher() as publisher,
    ):
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        await world.register(s2)
        await s2.hears("hello")
        world.application(pin={"log.t": "s2"})
        await s1.hears_later("revoke")
        assign = await s2.hears("assign")
        assert assign.assign.epoch == 2
        await s2.accepts(assign)
        assert keys(s2, await s2.hears("batch")) == [b"a"]
        # It is dialled again, holds nothing, and no forgotten flow of it slows a caravan down.
        await s1.hears("hello")
        travelling = [flow for caravan in publisher.log.fleet.caravans.values() for flow in caravan.flows]
        assert travelling == [publisher.assigner.flows[KEY].delivery.caravan_flow]


@once
@pytest.mark.usefixtures("first", "assign")
async def test_a_restarted_subscriber_gets_its_shard_in_a_new_epoch(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await s1.hears("batch")
    async with scripted_subscriber("app", "s1") as again:
        await world.leaves(s1)
        await world.register(again, started=2.0)
        assign = await taken(again)
        assert assign.epoch == 2
        assert keys(again, await again.hears("batch")) == [b"a"]
        travelling = [flow for caravan in publisher.log.fleet.caravans.values() for flow in caravan.flows]
        assert travelling == [publisher.assigner.flows[KEY].delivery.caravan_flow]


@pytest.mark.usefixtures("first", "assign")
async def test_a_broken_stream_goes_on_in_a_new_epoch(world: World, s1: ScriptedSubscriber) -> None:
    await s1.hears("batch")
    s1.hang_up()
    await eventually(lambda: s1.connections == 2, "dialled again")
    assign = await taken(s1)
    assert (assign.epoch, assign.replayed) == (2, True)
    assert keys(s1, await s1.hears("batch")) == [b"a"]


@once
async def test_a_newer_epoch_in_the_store_takes_the_flow_away(world: World) -> None:
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.processed(await s1.hears("batch"))
        offered = await s1.hears("datamarker")
        publisher.records.store.raise_epoch(KEY)  # another publisher takes it
        await s1.acks(offered)
        revoke = await s1.hears("revoke")
        assert "was refused by the marker store" in revoke.revoke.cause
        assert world.markers.records[KEY].marker != marker


@once
async def test_a_datamarker_that_is_acknowledged_again_is_not_stored_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle flow is offered the same one every ten seconds; a thousand of them would keep the store busy."""
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.processed(await s1.hears("batch"))
        await s1.acks(await s1.hears("datamarker"))
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.delivery.has_stored(flow.delivery.marker, flow.holding.epoch), "stored")
        publisher.records.acked(flow, flow.holding.epoch, flow.delivery.marker)
        assert publisher.records.markers.waiting == 0
        end = world.commit("b")
        publisher.records.acked(flow, flow.holding.epoch, end)
        assert publisher.records.markers.waiting == 1


# --- where flows begin


@once
async def test_a_shard_born_later_begins_at_its_first_update(world: World) -> None:
    world.application(start="latest")
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await taken(s1)
        world.commit("n", table="new")
        assign = await s1.hears_later("assign")
        assert assign.assign.shard == "log.new"
        await s1.accepts(assign)
        batch = await s1.hears_later("batch")
        assert keys(s1, batch) == [b"n"]


@once
async def test_a_shard_born_while_no_publisher_ran_misses_nothing(world: World) -> None:
    world.application(start="latest")
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await world.register(s1)
            assign = await taken(s1)
            await s1.releases(assign)
        world.commit("n", table="new")
        async with world.publisher():
            await s1.hears("hello")
            for _ in range(2):
                await s1.accepts(await s1.hears_later("assign"))
            assert keys(s1, await s1.hears_later("batch")) == [b"n"]


@once
@pytest.mark.usefixtures("first")
async def test_a_marker_that_the_application_has_ahead_of_ours_is_taken_over(world: World) -> None:
    have = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher():
            await world.register(s1)
            await s1.hears("hello")
            await s1.accepts(await s1.hears("assign"))
            await s1.processed(await s1.hears_later("batch"))
            await s1.hears_later("datamarker")  # stored by the application, and not acknowledged any more
        world.commit("c")
        async with world.publisher():
            await s1.hears_later("hello")
            await s1.accepts(await s1.hears_later("assign"), have=have)
            assert keys(s1, await s1.hears_later("batch")) == [b"c"]
            await eventually(lambda: world.markers.records[KEY].marker == have, "stored")


@once
@pytest.mark.usefixtures("first")
async def test_a_marker_of_an_application_whose_publisher_was_put_back_is_taken_over(world: World) -> None:
    """The store remembers nothing of it; the log proves the place."""
    have = world.commit("b")
    world.commit("c")
    async with scripted_subscriber("app", "s1") as s1, world.publisher():
        await world.register(s1)
        await s1.hears("hello")
        await s1.accepts(await s1.hears("assign"), have=have)
        assert keys(s1, await s1.hears("batch")) == [b"c"]
        await eventually(lambda: world.markers.records[KEY].marker == have, "stored")


@once
async def test_a_marker_that_the_application_has_behind_ours_rewinds_in_a_new_epoch(world: World) -> None:
    world.application()
    have = world.commit("a")
    stored = world.commit("b")
    async with scripted_subscriber("app", "s1") as s1:
        async with world.publisher() as publisher:
            await eventually(lambda: KEY in world.markers.records, "registered")
            publisher.records.store.store([MarkerWrite(KEY, 0, stored)])
        async with world.publisher():
            await world.register(s1)
            await s1.hears("hello")
            first = await s1.accepts(await s1.hears("assign"), have=have)
            assert marker_from_message(first.marker) == stored
            await s1.hears("revoke")
            assert world.markers.records[KEY].marker == have
            await s1.releases(first)
            second = await s1.accepts(await s1.hears("assign"), have=have)
            assert second.epoch > first.epoch + 1
            assert marker_from_message(second.marker) == have
            batch = await s1.hears("batch")
            assert keys(s1, batch) == [b"b"]
            assert batch.batch.replayed
