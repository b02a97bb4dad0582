"""A running publisher obeys new caps without a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import pytest

from caravan.backfill.boundaries import MemoryBoundaries
from caravan.fleet import CaravanEventKind, Fleet, FleetEvents
from publisher.flows.configured_limits import ConfiguredLimits, limits_of
from publisher.flows.row_scans import RowScans
from tests.integration.publisher.conftest import World
from tests.support.clocks import ScriptedClock
from tests.support.eventually import eventually
from wormhole.config import CaravanCaps, DatasetConfig, ExistingRows
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import ConfigChange, HistoryEntry
from wormhole.model.errors import ConfigError, UsageError
from wormhole.ports.table_source import TableSource

MIB = 1 << 20


def dataset(caps: CaravanCaps, name: str = "shop") -> DatasetConfig:
    copies = {"main": {"logs": {"log": {"source": "rocksdb:///none"}}}}
    return DatasetConfig(name=name, caravans=caps, copies=copies)  # type: ignore[arg-type]


async def store(world: World, change: DatasetConfig | None, name: str = "shop") -> None:
    client = MemoryCoordinator(world.coordination)
    await client.start()
    seen = (await client.configuration()).version
    await client.publish(ConfigChange(seen, {name: change}, {}), HistoryEntry(1.0, "eve", "config apply", name))


def test_no_cap_is_no_limit() -> None:
    limits = limits_of(CaravanCaps(max=3, max_read_rate=MIB), 5)
    assert (limits.caravans, limits.read_rate, limits.total_read_rate, limits.buffer_bytes) == (3, MIB, 0, 5)


async def test_a_running_publisher_obeys_what_is_applied(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.application()
    async with world.publisher() as publisher:
        fleet = publisher.log.fleet
        before = fleet.limits
        await store(world, dataset(CaravanCaps(max=2, max_read_rate=MIB, max_total_read_rate=2 * MIB)))
        await eventually(lambda: fleet.limits.caravans == 2, "the new caps")
        assert (fleet.limits.read_rate, fleet.total_cap.rate, fleet.limits.buffer_bytes) == (
            MIB,
            2 * MIB,
            before.buffer_bytes,
        )
        assert fleet.governor.limits is fleet.limits
        told = (
            "caps of dataset shop: at most 4 caravans, any rate each, any rate in all -> at most 2 caravans, "
            "1MiB/s each, 2MiB/s in all"
        )
        assert told in caplog.text
        assert [(event.kind, event.what) for event in fleet.history if event.caravan == 0] == [
            (CaravanEventKind.LIMITS_CHANGED, told)
        ]
        await store(world, dataset(CaravanCaps()), "other")
        await store(world, None)
        await store(world, dataset(CaravanCaps(max=2)))
        await eventually(lambda: not fleet.total_cap.rate, "the caps after that")
        assert fleet.limits.caravans == 2, "a dataset that is configured no longer keeps its caps"


async def test_what_cannot_be_followed_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = MemoryCoordinator(world.coordination)
    await client.start()
    await store(world, dataset(CaravanCaps(max=1)))
    watch = client.watch_datasets
    broken = True

    def once() -> AsyncIterator[Mapping[str, DatasetConfig]]:
        nonlocal broken
        if broken:
            broken = False
            raise ConfigError("no permission")
        return watch()

    monkeypatch.setattr(client, "watch_datasets", once)
    fleet = Fleet(
        world.source, limits_of(CaravanCaps(), MIB), FleetEvents(lambda *_: None, lambda *_: None), lambda: 0.0
    )
    scans = RowScans(fleet, _none, MemoryBoundaries(), ExistingRows(), ScriptedClock().clock)
    following = asyncio.create_task(
        ConfiguredLimits(client, dataset(CaravanCaps()), fleet, scans, ScriptedClock().clock).run()
    )
    await eventually(lambda: fleet.limits.caravans == 1, "the caps at the second try")
    await client.stop()
    await following


def _none() -> TableSource:
    raise UsageError("there are no tables")
