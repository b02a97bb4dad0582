"""What a datastore is told that it may delete while a relay holds it."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from caravan.log_map import LogMap
from publisher.relay import filler
from publisher.relay.files import Stretch
from publisher.relay.hold import Hold
from tests.support.eventually import until
from tests.support.relay_disk import FakeDisk, Survives
from tests.support.relay_scene import RelayScene, keys_of, scene_with
from tests.support.relayed_harness import HOLD
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader

LOG = LogMap([(1, 10_000)])


def at(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def marker(offset: int, read_from: int | None = None) -> Datamarker:
    return Datamarker(at(offset), str(offset), at(offset if read_from is None else read_from))


def stretch(begin: int, end: int, synced: Datamarker | None) -> Stretch:
    return Stretch(marker(begin), marker(end), synced)


@pytest.mark.parametrize(
    ("oldest", "held", "lose", "expected"),
    [
        # the budget covers what is kept
        (950, [stretch(0, 1000, marker(1000))], True, 950),
        # everything is synced; what is synced begins at its anchor
        (100, [stretch(0, 1000, marker(990, 985))], True, 985),
        # nothing is synced yet, or nothing behind the place
        (100, [stretch(0, 1000, None)], True, 100),
        (600, [stretch(0, 1000, marker(500))], True, 600),
        # a hole behind the place: what the datastore alone has is kept, unless its disk comes first
        (100, [stretch(0, 500, marker(500)), stretch(600, 1000, marker(1000))], False, 500),
        (100, [stretch(0, 500, marker(500)), stretch(600, 1000, marker(1000))], True, 1000),
        (100, [stretch(0, 900, marker(900)), stretch(950, 1000, marker(1000))], True, 900),
        # the relay lost what the place needs
        (100, [stretch(300, 1000, marker(1000))], False, 100),
        (100, [stretch(300, 1000, marker(1000))], True, 1000),
        (100, [], True, 100),
    ],
)
def test_what_is_released(oldest: int, held: list[Stretch], lose: bool, expected: int) -> None:
    hold = Hold(100, lose=lose)
    assert hold.point(at(oldest), at(1000), held, LOG, behind=False) == (at(expected), False)


def test_where_bytes_cannot_be_counted_the_relay_is_counted_on() -> None:
    end = LogPosition(2, 1, 50)
    held = [stretch(0, 1000, marker(900))]
    assert Hold(100, lose=False).point(at(100), end, held, LogMap(), behind=True) == (at(900), False)


@pytest.mark.parametrize("lose", [True, False])
def test_what_the_relay_cannot_take_is_given_up_once_it_lost_a_whole_budget(lose: bool) -> None:
    hold, held = Hold(100, lose=lose), [stretch(0, 1000, marker(1000))]
    for end, place in ((1200, 1000), (1290, 1000), (1150, 1000), (1250, 1000), (1251, 1151), (1300, 1200)):
        point = hold.point(at(500), at(end), held, LOG, behind=True)
        assert point == ((at(place), place > 1000) if lose else (at(1000), False))
    assert hold.point(at(500), at(1500), held, LOG, behind=False) == (at(1000), False), "it is being recorded"


def test_a_hole_where_another_incarnation_begins_is_not_jumped_over() -> None:
    after = [replace(one, order=replace(one.order, incarnation=2)) for one in (marker(1001), marker(2000))]
    held = [stretch(0, 1000, marker(1000)), Stretch(after[0], after[1], replace(after[1], read_from=after[1].order))]
    for behind in (True, False):
        assert Hold(100, lose=True).point(at(500), after[1].order, held, LOG, behind=behind) == (at(1000), False)


def test_a_filler_that_gets_nearer_loses_nothing() -> None:
    hold = Hold(100, lose=True)
    for tip, end in ((1000, 9000), (4000, 9500), (8000, 9900), (9950, 9990), (9960, 9999)):
        held = [stretch(0, tip, marker(tip))]
        assert hold.point(at(500), at(end), held, LOG, behind=True) == (at(tip), False)


# --- with files -------------------------------------------------------------------------------------------------------


@scene_with(HOLD, by_hand=True)
def test_only_what_is_synced_is_released(scene: RelayScene) -> None:
    lead = scene.lead(5)
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.start
    assert scene.relay.held is None
    scene.synced()
    first = scene.relay.tip
    scene.recorded(lead, 5)
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == first
    assert scene.relay.held == first.order
    assert len(scene.read(scene.open()).updates) == 10
    scene.source.release(scene.relay.tip.order)
    assert scene.memory.earliest() == scene.relay.tip
    assert scene.relay.held is None


@scene_with(HOLD, by_hand=True)
def test_nothing_is_released_while_nobody_shows_that_the_log_is_the_same(scene: RelayScene) -> None:
    lead = scene.lead(5)
    scene.synced()
    lead.close()
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.start


@scene_with(HOLD, by_hand=True)
def test_after_a_start_nothing_is_released_before_the_log_was_compared(scene: RelayScene) -> None:
    scene.lead(5)
    scene.synced()
    scene.restart()
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.start
    scene.open(scene.relay.tip)
    until(lambda: scene.relay.synced is not None, "what another process wrote is not synced")
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.relay.tip


@scene_with(HOLD, by_hand=True)
def test_what_cannot_be_synced_is_not_released_and_read_again(scene: RelayScene) -> None:
    lead = scene.lead(5)
    scene.disk.break_down("sync", errno.EIO)
    scene.time.now += 2
    scene.recorded(lead, 5)
    scene.wait_for(lambda: scene.relay.problem, "the disk's error is not told")
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.start
    scene.disk.work()
    scene.time.now += 6
    scene.recorded(lead, 1)
    scene.wait_for(scene.catches_up, "it is not read again")
    assert len(scene.read(scene.open()).updates) == 11


@scene_with(replace(HOLD, budget=64 << 10, on_full="keep_slot", compress=False), by_hand=True)
def test_a_full_relay_that_keeps_the_slot_stops_and_goes_on_when_there_is_room(scene: RelayScene) -> None:
    scene.source.release(scene.start.order)
    lead = scene.open()
    for _ in range(100):
        scene.recorded(lead, 1, 1000)
    scene.synced()
    assert "the relay is full" in scene.relay.problem.text
    scene.source.release(scene.start.order)
    stands = scene.relay.tip
    assert scene.memory.earliest().order <= stands.order
    assert len(scene.read(scene.open()).updates) == 100
    scene.source.release(scene.memory.latest().order)
    scene.recorded(lead, 1)
    scene.wait_for(scene.catches_up, "nothing is recorded")
    assert not scene.relay.problem


@scene_with(HOLD, by_hand=True)
def test_a_flow_is_found_where_the_log_was_given_up_under_the_reader_that_records(scene: RelayScene) -> None:
    slow, fast = scene.open(), scene.open()
    scene.recorded(slow, 5)
    place = scene.put(5)
    fast.read(1 << 20, 0.0)  # in one piece, so that it is ahead of what is recorded
    scene.source.release(place.order)
    scene.put(5)
    (gap,) = scene.read(slow).gaps
    assert gap.last_missing == "10"
    scene.wait_for(scene.catches_up, "nothing is recorded behind the gap")
    scene.synced()
    fast.close()
    scene.source.release(place.order)
    assert scene.memory.earliest() == scene.relay.tip
    assert scene.read(scene.open(place)).keys() == keys_of(10, 5)


@scene_with(HOLD, by_hand=True)
def test_a_flow_is_found_where_the_log_was_given_up_under_the_one_that_fills_a_hole(
    scene: RelayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filler, "_READ_BYTES", 1)
    place = scene.put(5)
    fills, goes_on = threading.Event(), threading.Event()

    def wait(segment: Segment) -> Segment:
        if threading.current_thread().name == "relay-filler":
            fills.set()
            goes_on.wait()
        return segment

    scene.store.change = wait
    flow = scene.open(place)
    place = scene.put(1)
    scene.read(flow)
    fills.wait()
    scene.source.release(place.order)
    scene.put(1)
    goes_on.set()

    def is_filled() -> bool:
        return scene.relay.tip is not None and scene.relay.tip.order >= place.order

    scene.wait_for(is_filled, "nothing is recorded behind the gap")
    scene.synced()
    scene.source.release(place.order)
    flow.close()
    assert scene.read(scene.open(place)).keys() == keys_of(6, 1)


@scene_with(HOLD, by_hand=True)
def test_who_reads_the_datastore_goes_on_in_the_relay_where_that_log_was_given_up(scene: RelayScene) -> None:
    lead, flow = scene.open(), scene.open()
    scene.recorded(lead, 5)
    scene.synced()
    scene.source.release(scene.start.order)
    assert scene.memory.earliest() == scene.relay.tip
    assert not flow.reads_files
    read = scene.read(flow)
    assert (read.keys(), read.gaps) == (keys_of(0, 5), [])


@pytest.mark.parametrize("opened", [False, True], ids=["one that waited", "one that is opened"])
@scene_with(HOLD, by_hand=True)
def test_what_is_written_and_released_while_the_log_is_opened_is_not_lost(
    scene: RelayScene, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, flow = scene.open(), scene.open()
    place = scene.recorded(lead, 5)
    scene.read(flow)
    hangs = scene.gate()
    scene.put(5)
    scene.read(lead)
    assert flow.read(1 << 20, 0.0) is None
    open_log = scene.store.open

    def slowly(marker: Datamarker) -> LogReader:
        hangs.set()
        scene.synced()
        scene.source.release(place.order)
        return open_log(marker)

    monkeypatch.setattr(scene.store, "open", slowly)
    scene.time.now += 6
    read = scene.read(scene.open(place) if opened else flow)
    assert (read.keys(), read.gaps) == (keys_of(5, 5), [])
    assert scene.memory.earliest() == scene.relay.tip


@pytest.mark.parametrize("survives", [Survives.NOTHING, Survives.NAMES, Survives.TORN])
def test_nothing_is_released_that_a_loss_of_power_takes(survives: Survives) -> None:
    """Before each operation of the disk: from then on it does nothing."""
    operation, lost = 0, True
    while lost:
        disk = FakeDisk()
        disk.fails = partial(_fails_from, disk, operation)
        scene = RelayScene(replace(HOLD, on_full="keep_slot"), by_hand=True, disk=disk)
        lead = scene.open()
        for _ in range(6):
            scene.recorded(lead, 2, 3000)
            scene.time.now += 2
            scene.flush()
            scene.source.release(scene.start.order)
        lost = disk.operations == operation
        found = disk.after_power_loss(survives)
        scene.source.stop()
        again = RelayScene(HOLD, memory=scene.memory, disk=found)
        ids = again.read(again.open(scene.start)).ids()
        again.close()
        assert ids == [f"mem:{n}:0" for n in range(1, 13)], f"power lost at operation {operation}"
        operation += 1
    assert operation > 12


def _fails_from(disk: FakeDisk, first: int, operation: str, path: Path) -> OSError | None:
    changes = operation in ("create", "write", "truncate", "sync", "unlink", "sync_folder")
    return disk.error(errno.EIO) if changes and disk.operations >= first else None
