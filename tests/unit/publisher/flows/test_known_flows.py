"""A marker store that lost a record does not make a flow look new."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from publisher.flows.known_flows import FormerHolder, KnownFlows
from tests.support.clocks import ScriptedClock
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import FlowRecord, LogGroup

FLOW = ("app", "db1")


def record(epoch: int) -> FlowRecord:
    return FlowRecord("publisher", "s1", epoch, "live")


@pytest.fixture
async def coordinator() -> MemoryCoordinator:
    coordinator = MemoryCoordinator(MemoryWorld())
    await coordinator.start()
    return coordinator


async def test_both_witnesses_are_asked_and_the_higher_epoch_counts(
    tmp_path: Path, coordinator: MemoryCoordinator
) -> None:
    path = tmp_path / "flows.json"
    assert await KnownFlows(coordinator, path).epoch_after(FLOW) is None
    known = KnownFlows(coordinator, path)
    await known.note({FLOW: record(0)})
    assert not path.exists(), "nobody has had it yet"
    await known.note({FLOW: record(7)})
    assert await coordinator.flows() == {FLOW: record(7)}
    alone = MemoryCoordinator(MemoryWorld())
    await alone.start()
    by_file = await KnownFlows(alone, path).epoch_after(FLOW)
    by_coordination = await KnownFlows(coordinator, tmp_path / "other.json").epoch_after(FLOW)
    assert by_file == by_coordination == 107, "above what may have been raised since the last note"
    await coordinator.write_flows({FLOW: record(30)})
    assert await KnownFlows(coordinator, path).epoch_after(FLOW) == 130
    assert await KnownFlows(coordinator, path).epoch_after(("app", "db1.new")) is None


async def test_an_epoch_that_fell_behind_what_was_seen_is_raised(
    tmp_path: Path, coordinator: MemoryCoordinator
) -> None:
    known = KnownFlows(coordinator, tmp_path / "flows.json")
    await known.note({FLOW: record(7)})
    assert await known.epoch_beyond(FLOW, 7) is None
    assert await known.epoch_beyond(FLOW, 8) is None, "what was raised since the last note"
    assert await known.epoch_beyond(FLOW, 6) == 107
    assert await known.epoch_beyond(("app", "db1.new"), 0) is None


async def test_what_was_forgotten_on_purpose_is_new(tmp_path: Path, coordinator: MemoryCoordinator) -> None:
    known = KnownFlows(coordinator, tmp_path / "flows.json")
    await known.note({FLOW: record(7), ("app", "db1.t"): record(3)})
    assert await known.epoch_after(FLOW) == 107
    await known.forget(FLOW)
    assert await known.epoch_after(FLOW) is None
    again = KnownFlows(coordinator, tmp_path / "flows.json")
    assert await again.epoch_after(FLOW) is None
    assert await again.epoch_after(("app", "db1.t")) == 103


async def test_one_that_stands_by_knows_what_the_owner_served_when_coordination_lost_it(
    tmp_path: Path, coordinator: MemoryCoordinator
) -> None:
    owner, path, left = KnownFlows(coordinator, tmp_path / "owner.json"), tmp_path / "flows.json", ("app", "db1.left")
    await owner.note({FLOW: record(7), left: record(3), ("app", "db2"): record(5), ("others", "db1"): record(9)})
    for _ in range(2):
        known = KnownFlows(coordinator, path, includes=lambda shard: shard.startswith("db1"))
        await known.follow(["app", "new"])
        await owner.forget(left)
    wiped = MemoryCoordinator(MemoryWorld())
    await wiped.start()
    stands_by = KnownFlows(wiped, path)
    await stands_by.follow(["app"])
    assert await stands_by.epoch_after(FLOW) == 107
    assert await stands_by.epoch_after(left) is None
    assert await stands_by.epoch_after(("app", "db2")) is None
    assert await stands_by.epoch_after(("others", "db1")) is None, "another application's"


async def test_each_application_is_asked_once_for_the_flows_of_the_log(
    tmp_path: Path, coordinator: MemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, flows = [], coordinator.flows

    async def counting(
        applications: Collection[str] | None = None, includes: Callable[[str], bool] = bool
    ) -> Mapping[tuple[str, str], FlowRecord]:
        found = await flows(applications, includes)
        asked.append((applications, sorted(found)))
        return found

    monkeypatch.setattr(coordinator, "flows", counting)
    other = ("second", "db1.t")
    await coordinator.write_flows(dict.fromkeys([FLOW, ("app", "db2"), other, ("third", "db1")], record(7)))
    known = KnownFlows(coordinator, tmp_path / "flows.json", includes=LogGroup("shop", "main", "db1").includes)
    for flow in (FLOW, other, FLOW, ("app", "db1.new"), other):
        assert await known.epoch_after(flow) == (None if flow == ("app", "db1.new") else 107)
        assert (await known.former_holder(flow) is None) == (flow == ("app", "db1.new"))
    assert asked == [(["app"], [FLOW]), (["second"], [other])]
    await known.forget(FLOW)
    assert await known.epoch_after(FLOW) is None
    assert asked[2:] == [(["app"], [FLOW])], "the other application's are as they were"


async def test_a_store_that_is_not_meant_to_last_has_no_witness(coordinator: MemoryCoordinator) -> None:
    known = KnownFlows(coordinator)
    await known.note({FLOW: record(7)})
    assert await known.epoch_after(FLOW) is None
    assert await coordinator.flows() == {FLOW: record(7)}


async def test_a_file_that_cannot_be_written_holds_nothing_up(
    tmp_path: Path, coordinator: MemoryCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    known = KnownFlows(coordinator, tmp_path / "gone" / "flows.json")
    await known.note({FLOW: record(7)})
    assert "cannot be written" in caplog.text
    assert await coordinator.flows() == {FLOW: record(7)}


async def test_where_an_earlier_publisher_had_a_flow_is_asked_once(
    tmp_path: Path, coordinator: MemoryCoordinator
) -> None:
    clock = ScriptedClock(50.0)
    other = ("app", "db1.t")
    await coordinator.write_flows({FLOW: record(7), other: FlowRecord("publisher", "", 3, "unassigned")})
    known = KnownFlows(coordinator, tmp_path / "flows.json", clock.clock)
    assert await known.former_holder(FLOW) == FormerHolder("s1", 50.0)
    assert await known.former_holder(other) is None, "it was released"
    clock.now = 90.0
    await known.note({FLOW: record(8), other: FlowRecord("me", "s2", 4, "live")})
    await known.forget(other)
    assert await known.epoch_after(FLOW) == 108, "asked anew"
    assert await known.former_holder(FLOW) == FormerHolder("s1", 50.0), "a handler of then ends no later"
    assert await known.former_holder(other) is None, "this publisher has it there, no earlier one"


async def test_without_a_witness_nobody_had_it(coordinator: MemoryCoordinator) -> None:
    await coordinator.write_flows({FLOW: record(7)})
    assert await KnownFlows(coordinator).former_holder(FLOW) is None
