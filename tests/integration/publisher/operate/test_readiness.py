"""Alive but stuck shows, and a slow subscriber is not the publisher's fault."""

from __future__ import annotations

import pytest

from publisher.flows.progress import Progress
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.support.eventually import eventually
from wormhole.model.errors import Diverged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.conditions import STUCK_S


async def _ready(publisher: Publisher) -> None:
    await eventually(
        lambda: operated(publisher).readiness.found().ready and publisher.log.fleet.lead is not None,
        "it is ready",
    )


@pytest.mark.usefixtures("first")
async def test_it_is_ready_once_the_configuration_is_known_although_nobody_subscribes(
    world: World, publisher: Publisher
) -> None:
    assert operated(publisher).readiness.found().reasons == ("it is starting: what is configured was not read yet",)
    await _ready(publisher)


async def test_a_log_that_grows_unread_is_reported_with_the_place(world: World, publisher: Publisher) -> None:
    await _ready(publisher)
    publisher.log.progress = Progress()
    for second, behind in enumerate((0, 10, 20)):
        publisher.log.progress.measured(LogPosition(1, 1, 0), behind, float(second))
    assert operated(publisher).readiness.at(0.9 + STUCK_S).ready
    (reason,) = operated(publisher).readiness.at(1.0 + STUCK_S).reasons
    assert reason.startswith("the log shop/main/log grows and nothing of it was read for 15 s: the reader is at ")
    assert "wormholectl doctor" in reason


async def test_a_log_that_cannot_be_reached_is_reported_with_the_cause(world: World) -> None:
    world.source.set_reachable(False)
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.log.progress.stuck_s(publisher.clock.monotonic()) is not None, "it is seen")
        (reason,) = operated(publisher).readiness.at(publisher.clock.monotonic() + STUCK_S).reasons
        assert reason.startswith("the log shop/main/log has had no reader for ")
        world.source.set_reachable(True)
        await _ready(publisher)


async def test_a_log_without_an_end_is_reported_by_a_publisher_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def latest() -> Datamarker:
        raise Diverged("it went back")

    with monkeypatch.context() as broken:
        broken.setattr(world.source, "latest", latest)
        async with world.publisher() as publisher:
            await eventually(lambda: publisher.log.fleet.trouble, "it is seen")
            reasons = operated(publisher).readiness.found().reasons
            assert ["it went back" in reason for reason in reasons] == [True]
            broken.undo()
            await _ready(publisher)


async def test_what_cannot_be_stored_and_what_must_not_be_sent_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    await _ready(publisher)
    publisher.records.markers.problem = "the disk is full. Next: make room"
    monkeypatch.setattr(publisher.ownership, "may_send", lambda: False)
    lease, markers = operated(publisher).readiness.found().reasons
    assert "beyond the lease" in lease
    assert markers == "datamarkers cannot be stored: the disk is full. Next: make room"
