"""What a publisher does by time; what it lets the source delete is never what a restart would need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from publisher.publisher import Publisher
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.model.errors import ConfigError, CoordinationLost
from wormhole.model.position import LogPosition
from wormhole.wire.markers import marker_from_message


async def test_log_is_kept_until_a_stored_marker_has_passed_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[LogPosition] = []
    monkeypatch.setattr(world.source, "release", released.append)
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        with monkeypatch.context() as outage:

            def away(self: MemoryMarkerStore, writes: object) -> tuple[()]:
                raise CoordinationLost("the store is away")

            await world.register(s1)
            await s1.hears("hello")
            outage.setattr(MemoryMarkerStore, "store", away)
            await s1.accepts(await s1.hears("assign"))
            await s1.processed(await s1.hears("batch"))
            await s1.acks(await s1.hears("datamarker"))
            flow = publisher.assigner.flows["app", "log.t"]
            await eventually(lambda: flow.delivery.marker == marker, "the ack")
            await publisher.housekeeping.release()
            assert released[-1] < marker.order, "acknowledged, but not stored: a restart would begin before it"
        await publisher.records.markers.flush()
        assert flow.delivery.durable == marker
        await publisher.housekeeping.release()
        assert released[-1] == marker.order


async def test_log_is_kept_for_a_datamarker_that_is_sent_and_not_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would begin at it if its acknowledgement is stored meanwhile."""
    released: list[LogPosition] = []
    monkeypatch.setattr(world.source, "release", released.append)
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        flows = publisher.assigner.flows
        await eventually(lambda: bool(flows and publisher.log.fleet.caravans), "as configured")
        flow = flows["app", "log.t"]
        flow.acked(replace(flow.delivery.durable, order=LogPosition(1, 9, 0), read_from=LogPosition(1, 0, 7)))
        await publisher.housekeeping.release()
    assert released == [LogPosition(1, 0, 7)]


async def test_log_is_kept_for_an_application_that_is_gone_from_the_configuration(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that cannot be read, or a slip that is mended in a moment, must not cost it what it has not received."""
    released: list[LogPosition] = []
    monkeypatch.setattr(world.source, "release", released.append)
    world.application()
    world.application("other", start="latest")
    world.commit("a")

    async def restarted_or_not(publisher: Publisher, gone: bool) -> None:
        flows = publisher.assigner.flows
        await eventually(
            lambda: (
                ("other", "log.t") in flows and (("app", "log.t") in flows) != gone and publisher.log.fleet.caravans
            ),
            "as configured",
        )

    async with world.publisher() as publisher:
        await restarted_or_not(publisher, False)
        del world.coordination.applications["app"]
        world.coordination.signal.notify()
        await restarted_or_not(publisher, True)
        await publisher.housekeeping.release()
    async with world.publisher() as publisher:
        await restarted_or_not(publisher, True)
        await publisher.housekeeping.release()
        needed = world.markers.records["app", "log.t"].marker.read_from
        assert released == [needed, needed]
        world.application()
        await restarted_or_not(publisher, False)
        other = publisher.assigner.flows["app", "log.t"]
        other.delivery.durable = world.source.latest()
        await publisher.housekeeping.release()
        assert released[-1] > needed, "it is told by its own flows again"


async def test_an_application_that_was_gone_for_a_moment_goes_on_behind_what_it_acknowledged(world: World) -> None:
    """Its flow was still at the subscriber: the ack moves the marker from which the next epoch begins, or log that was
    given back would be asked for again."""
    world.application()
    marker = world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await s1.hears("hello")
        assign = await s1.accepts(await s1.hears("assign"))
        await s1.processed(await s1.hears("batch"))
        offered = await s1.hears("datamarker")
        config = world.coordination.applications.pop("app")
        world.coordination.signal.notify()
        await s1.hears_later("revoke")
        world.coordination.applications["app"] = config
        world.coordination.signal.notify()
        await eventually(lambda: ("app", "log.t") in publisher.assigner.flows, "configured again")
        await s1.acks(offered)
        await s1.releases(assign)
        again = await s1.hears("assign")
        assert marker_from_message(again.assign.marker) == marker
        flow = publisher.assigner.flows["app", "log.t"]
        assert flow.delivery.marker == marker


async def test_what_only_operators_look_at_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[object] = []

    async def write_flows(self: MemoryCoordinator, records: object) -> None:
        written.append(records)
        raise ConfigError("access is refused")

    monkeypatch.setattr(MemoryCoordinator, "write_flows", write_flows)
    world.application()
    async with world.publisher():
        await eventually(lambda: len(written) > 3, "it goes on")
    assert caplog.text.count("the state of the flows is not reported") == 1
