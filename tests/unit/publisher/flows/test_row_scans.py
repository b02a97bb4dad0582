"""The rate of a scan that several backfills share."""

from __future__ import annotations

import pytest

from caravan.backfill.boundaries import MemoryBoundaries
from caravan.fleet import Fleet, FleetEvents
from datastores.memory.source import MemorySource
from publisher.flows.configured_limits import limits_of
from publisher.flows.row_scans import RowScans
from tests.support.clocks import ScriptedClock
from wormhole.config import CaravanCaps, ExistingRows
from wormhole.model.errors import UsageError
from wormhole.model.sharding import Sharding
from wormhole.ports.table_source import TableSource

MIB = 1 << 20
KIB = 1 << 10


def _none() -> TableSource:
    raise UsageError("there are no tables")


@pytest.fixture
def scans() -> RowScans:
    source = MemorySource(log="log", sharding=Sharding("table"))
    fleet = Fleet(source, limits_of(CaravanCaps(), MIB), FleetEvents(lambda *_: None, lambda *_: None), lambda: 0.0)
    return RowScans(fleet, _none, MemoryBoundaries(), ExistingRows(rate=8 * MIB), ScriptedClock().clock)


def test_a_backfills_rate_holds_from_its_first_chunk(scans: RowScans) -> None:
    assert scans.rate == 8 * MIB
    scans.want(16 * KIB)
    assert scans.rate == 16 * KIB, "before anybody looks at the backfills again"


def test_the_highest_rate_of_those_who_share_a_scan_holds(scans: RowScans) -> None:
    scans.want(MIB)
    scans.want(16 * KIB)
    assert scans.rate == MIB
    scans.want(0)
    assert scans.rate == 8 * MIB, "one was asked for with the configured rate"


def test_a_rate_ends_with_its_backfills(scans: RowScans) -> None:
    scans.want(64 * MIB)
    scans.keep(False)
    scans.want(16 * KIB)
    assert scans.rate == 16 * KIB
