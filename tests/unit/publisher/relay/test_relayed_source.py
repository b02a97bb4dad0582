"""Who reads the datastore and who the relay, and who records."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.relay import filler, recorder
from publisher.relay.cursor import Gone
from publisher.relay.lead import lead_start
from publisher.relay.tip import Proof
from tests.support.present import present
from tests.support.relay_scene import FOLDER, RelayScene, both, keys_of, scene_with
from tests.support.relayed_harness import CACHE, HOLD, LITTLE
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, SourceUnavailable
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, PurgedInside
from wormhole.ports.testing.reading import Read, read_until

# --- reading ----------------------------------------------------------------------------------------------------------


@both()
def test_ten_that_are_behind_lead_to_one_reader_of_the_datastore(scene: RelayScene) -> None:
    lead = scene.lead(50)
    behind = [scene.open() for _ in range(10)]
    for reader in behind:
        assert scene.read(reader).keys() == keys_of(0, 50)
    assert scene.store.opened == 1
    assert scene.relay.readers == 10
    scene.recorded(lead, 1)
    for reader in behind:
        assert scene.read(reader).keys() == keys_of(50, 1)
    assert scene.store.opened == 1


def test_a_place_that_is_not_written_yet_is_waited_for(scene: RelayScene) -> None:
    lead = scene.lead(5)
    opens = scene.gate()
    marker = scene.put(5)
    assert scene.read(lead, marker).updates
    scene.put(5)
    scene.read(lead)
    threading.Timer(0.05, opens.set).start()
    assert scene.read(scene.open(marker)).keys() == keys_of(10, 5)
    assert scene.store.opened == 1


def test_readers_that_wait_at_the_tip_agree_on_one_when_the_recording_one_ends(scene: RelayScene) -> None:
    lead = scene.lead(5)
    waiting = [scene.open() for _ in range(5)]
    came: list[list[object]] = []
    threads = [threading.Thread(target=lambda one=one: came.append(scene.read(one, end).keys())) for one in waiting]
    end = scene.put(1)
    lead.close()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert came == [keys_of(0, 6)] * 5
    assert scene.store.opened == 2
    assert len(scene.store.readers) == 1


def test_who_reads_the_datastore_goes_on_in_the_relay_where_that_begins(scene: RelayScene) -> None:
    scene.put(5)
    lead = scene.open(scene.memory.latest())
    scene.recorded(lead, 5)
    late = scene.open()
    read = Read()
    for _ in range(10):
        if (segment := late.read(40, 0.0)) is not None:
            read.add(segment)
    assert read.keys() == keys_of(0, 10)
    assert late.reads_files
    assert scene.store.opened == 2
    assert len(scene.store.readers) == 1


@scene_with(by_hand=True)
def test_one_that_records_and_is_not_read_holds_up_nobody(scene: RelayScene) -> None:
    slow = scene.open()
    scene.recorded(slow, 5)
    other = scene.open(scene.memory.latest())
    scene.put(1)
    assert other.read(1 << 20, 0.0) is None
    scene.time.now += 0.6
    assert scene.read(other).keys() == keys_of(5, 1)
    assert scene.read(slow).keys() == keys_of(5, 1), "the slow one does not record any more, and misses nothing"
    assert scene.recorded(other) == scene.relay.tip


@scene_with(by_hand=True)
def test_a_disk_that_hangs_holds_up_nobody(scene: RelayScene) -> None:
    lead = scene.lead(5)
    behind = scene.open()
    assert scene.read(behind).keys() == keys_of(0, 5)
    opens = scene.gate()
    scene.put(5)
    assert scene.read(lead).keys() == keys_of(5, 5)
    assert behind.read(1 << 20, 0.0) is None
    scene.time.now += 6
    assert scene.read(behind).keys() == keys_of(5, 5)
    opens.set()


@both()
def test_who_reads_on_at_the_tip_when_the_recording_reader_ends_records_and_proves_the_relay(scene: RelayScene) -> None:
    behind = scene.open()
    scene.recorded(behind, 5)
    ahead = scene.open(scene.put(5))
    scene.put(1)
    scene.read(ahead)
    scene.read(behind)
    opened = scene.store.opened
    behind.close()
    scene.recorded(ahead, 1)
    assert scene.relay.tip == scene.memory.latest()
    assert scene.source.recorder.proof is Proof.ONE, "else nobody is served, and in hold nothing is released"
    assert scene.read(scene.open()).keys() == keys_of(0, 12)
    assert scene.store.opened == opened, "there was no hole to be filled"


@both()
def test_what_is_read_before_the_log_was_compared_is_recorded_too(scene: RelayScene) -> None:
    scene.put(5)
    lead = scene.open(replace(scene.memory.latest(), anchor=None))  # a server says no more of where its log ends
    behind = scene.open()
    scene.read(behind)
    behind.close()
    scene.put(3)
    scene.read(lead)
    scene.wait_for(scene.catches_up, "what was read at the tip is not recorded")
    assert scene.relay.stretches == ((scene.start.order, scene.memory.latest().order),)


@both()
def test_a_restart_goes_on_where_the_relay_ends(scene: RelayScene) -> None:
    scene.lead(5)
    scene.restart()
    scene.put(5)
    start = lead_start(scene.source)
    assert start == scene.relay.tip
    scene.recorded(scene.open(start))
    assert len(scene.relay.stretches) == 1
    assert scene.read(scene.open()).keys() == keys_of(0, 11)


@both()
def test_only_in_hold_the_lead_begins_at_the_end_of_a_relay_that_is_far_behind(scene: RelayScene) -> None:
    scene.lead(5)
    tip = scene.relay.tip
    for _ in range(3):
        scene.put(1, 30 << 20)
    assert (lead_start(scene.source) == tip) is (scene.settings.mode == "hold")


# --- holes ------------------------------------------------------------------------------------------------------------


@scene_with(queue_bytes=20_000)
def test_a_full_queue_costs_the_relay_a_hole_and_the_reader_nothing(scene: RelayScene) -> None:
    lead = scene.lead(1)
    opens = scene.gate()
    scene.put(100, 1000)
    assert scene.read(lead, max_bytes=1000).keys() == keys_of(1, 100)
    opens.set()
    scene.flush()
    scene.recorded(lead, 1)
    assert len(scene.relay.stretches) == 2
    assert scene.read(scene.open()).keys() == keys_of(0, 102), "what the relay lacks is read from the datastore"


@scene_with(HOLD, queue_bytes=20_000)
def test_in_hold_a_hole_is_filled_and_then_one_reader_is_left(scene: RelayScene) -> None:
    lead = scene.lead(1)
    opens = scene.gate()
    scene.put(100, 1000)
    scene.read(lead, max_bytes=1000)
    opens.set()
    scene.flush()
    scene.put(1)
    scene.read(lead)
    scene.wait_for(scene.catches_up, "the hole stays")
    scene.wait_for(lambda: len(scene.store.readers) == 1, "the filler reads on")
    opened = scene.store.opened
    behind = scene.open(scene.memory.latest())
    assert behind.read(1 << 20, 0.0) is None
    scene.recorded(lead, 1)
    assert scene.relay.tip == scene.memory.latest()
    assert len(scene.relay.stretches) == 1
    assert scene.read(behind).keys() == keys_of(102, 1)
    assert scene.read(scene.open()).keys() == keys_of(0, 103)
    assert scene.store.opened == opened


@scene_with(HOLD, queue_bytes=20_000)
def test_in_hold_a_hole_that_the_datastore_cannot_decode_is_passed_over(scene: RelayScene) -> None:
    lead = scene.lead(1)
    opens = scene.gate()
    scene.put(100, 1000)
    scene.read(lead, max_bytes=1000)

    def fail(segment: Segment) -> Segment:
        if threading.current_thread().name == "relay-filler":
            raise DecodeError("an unknown event")
        return segment

    scene.store.change = fail
    opens.set()
    scene.flush()

    def goes_on() -> bool:
        scene.put(1)
        scene.read(lead)
        return scene.catches_up()

    scene.wait_for(goes_on, "nothing is recorded behind the hole")
    assert len(scene.relay.stretches) == 2
    assert scene.read(scene.open()).keys() == keys_of(0, scene.written), "the hole is read from the datastore"


@scene_with(HOLD)
def test_in_hold_a_hole_is_filled_after_an_unexpected_error(
    scene: RelayScene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filler, "_REST_S", 0.01)
    errors = [RuntimeError("unforeseen")]
    scene.put(5)
    lead = scene.open(scene.memory.latest())

    def fail(segment: Segment) -> Segment:
        if errors and threading.current_thread().name == "relay-filler":
            raise errors.pop()
        return segment

    scene.store.change = fail
    scene.recorded(lead, 1)
    scene.wait_for(scene.catches_up, "the hole stays")
    assert not errors
    assert "please report" in caplog.text


@scene_with(HOLD)
def test_in_hold_a_relay_that_is_empty_begins_where_the_datastores_log_does(scene: RelayScene) -> None:
    scene.put(50)
    lead = scene.open(scene.memory.latest())
    scene.put(1)
    scene.read(lead)
    scene.wait_for(scene.catches_up, "the log is not recorded")
    scene.recorded(lead, 1)
    scene.wait_for(lambda: len(scene.store.readers) == 1, "the filler reads on")
    assert scene.relay.begin.order == scene.start.order
    assert len(scene.relay.stretches) == 1


@both()
def test_what_could_not_be_decoded_is_not_recorded(scene: RelayScene) -> None:
    lead = scene.lead(1)
    error = DecodeError("an unknown type")
    scene.store.change = lambda segment: replace(segment, broken={"a": error})
    behind = scene.put(1)
    scene.read(lead)
    scene.store.change = lambda segment: segment
    scene.recorded(lead, 1)
    assert scene.relay.stretches[-1][0] == behind.order
    assert len(scene.relay.stretches) == 2
    assert len(scene.store.readers) == 1
    assert scene.read(scene.open()).keys() == keys_of(0, 3)


def test_a_loss_ends_at_the_next_place_that_is_still_there(scene: RelayScene) -> None:
    scene.lead(5)
    scene.restart()
    scene.put(5)
    scene.memory.purge()
    scene.put(1)
    begins = [scene.memory.earliest(), scene.put(1)]

    def earliest() -> Datamarker:
        if len(begins) == 2:
            scene.memory.purge(begins[1])
            return begins.pop(0)
        return begins[0]

    behind = scene.open()
    scene.store.earliest = earliest  # type: ignore[attr-defined]
    read = scene.read(behind)
    assert read.keys() == keys_of(0, 5)
    scene.put(1)
    assert scene.read(behind).keys() == keys_of(12, 1)
    assert [(gap.first_missing, gap.last_missing, gap.behind) for gap in read.gaps] == [("6", "12", "12")]


def test_a_datastore_that_cannot_be_read_where_it_says_that_it_begins_is_not_asked_for_ever(scene: RelayScene) -> None:
    scene.lead(5)
    scene.restart()
    behind = scene.open()
    begin = scene.put(5)
    scene.put(5)
    scene.memory.purge()
    scene.store.earliest = lambda: begin  # type: ignore[attr-defined]
    assert behind.read(1 << 20, 0.0) is not None
    with pytest.raises(PositionPurged):
        behind.read(1 << 20, 0.0)


# --- the history ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lead(scene: RelayScene) -> LogReader:
    return scene.open()


@both()
def test_the_relay_of_another_log_is_not_read_and_goes_when_there_is_more(scene: RelayScene, lead: LogReader) -> None:
    kept = scene.recorded(lead, 5)
    marker = scene.recorded(lead, 5)
    behind = scene.open()
    scene.memory.restore(kept)
    scene.put(6)
    with pytest.raises(Diverged):
        scene.read(lead)
    lead.close()
    with pytest.raises(Diverged):
        scene.open(marker)
    assert scene.relay.tip == marker, "nothing is removed for an address that leads elsewhere for a moment"
    with pytest.raises(SourceUnavailable):
        behind.read(1 << 20, 0.0)
    assert scene.read(scene.open(kept)).keys() == keys_of(10, 6)
    scene.wait_for(scene.catches_up, "nothing is recorded")
    scene.wait_for(lambda: len(scene.relay.stretches) == 1, "the other log is still there")
    assert scene.read(scene.open(kept)).keys() == keys_of(10, 6)


@both()
def test_who_reads_a_restored_datastore_does_not_go_on_in_the_files_of_before(
    scene: RelayScene, lead: LogReader
) -> None:
    kept = scene.recorded(lead, 5)
    scene.recorded(lead, 5)
    scene.memory.restore(kept)
    scene.put(6)
    lead.close()
    assert scene.read(scene.open(), max_bytes=40).keys() == [*keys_of(0, 5), *keys_of(10, 6)]


def test_files_of_another_log_are_not_read_until_they_are_removed(scene: RelayScene, lead: LogReader) -> None:
    kept = scene.recorded(lead, 5)
    scene.recorded(lead, 5)
    scene.memory.restore(kept)
    scene.put(6)
    lead.close()
    opens = scene.gate("unlink")
    try:
        assert scene.open(kept).read(40, 0.0), "this one begins the relay anew, and the disk hangs"
        assert scene.source.earliest() == scene.start
        assert not scene.open().reads_files
        assert scene.read(scene.open(), max_bytes=40).keys() == [*keys_of(0, 5), *keys_of(10, 6)]
    finally:
        opens.set()


def test_an_anchor_that_differs_is_for_the_datastore_to_judge(scene: RelayScene) -> None:
    lead = scene.lead(5)
    marker = scene.relay.tip
    assert marker.anchor is not None
    for _ in range(2):
        for one in (marker, scene.read(scene.open(), marker, 1).markers[0]):
            assert one.anchor is not None
            forged = replace(one, anchor=replace(one.anchor, checksum=one.anchor.checksum ^ 1))
            with pytest.raises(Diverged):
                scene.open(forged)
        lead.close()  # the second time nobody records


def test_a_datastore_that_does_not_answer_is_unavailable(scene: RelayScene) -> None:
    lead = scene.lead(5)
    behind = scene.open()
    lead.close()
    scene.memory.set_reachable(False)
    assert behind.read(1 << 20, 0.0) is not None
    with pytest.raises(SourceUnavailable):
        behind.read(1 << 20, 0.0)
    scene.memory.set_reachable(True)
    scene.put(1)
    assert scene.read(behind).keys() == keys_of(5, 1)


def test_what_only_the_relay_has_is_read_and_then_the_loss_is_told(scene: RelayScene) -> None:
    scene.lead(5)
    tip = scene.relay.tip
    scene.restart()
    scene.put(5)
    scene.memory.purge()
    scene.put(1)
    read = scene.read(scene.open())
    assert read.keys() == [*keys_of(0, 5), *keys_of(10, 1)]
    assert [(gap.kind, gap.first_missing, gap.last_missing) for gap in read.gaps] == [(LossKind.PURGED, "6", "10")]
    with pytest.raises(PurgedInside) as caught:
        scene.open(tip)
    assert caught.value.resume == scene.memory.earliest()
    assert (caught.value.first_missing, caught.value.last_missing) == ("6", "10")


def test_a_loss_ends_where_the_relay_begins(scene: RelayScene) -> None:
    first = scene.put(5)
    begin = scene.put(5)
    lead = scene.open(begin)
    scene.recorded(lead, 5)
    scene.memory.purge()
    assert scene.source.earliest() == begin
    assert scene.source.status().oldest == begin.order
    with pytest.raises(PurgedInside) as caught:
        scene.open(first)
    assert caught.value.resume == begin
    assert (caught.value.first_missing, caught.value.last_missing) == ("6", "10")
    assert scene.read(scene.open(begin)).keys() == keys_of(10, 5)


def test_places_that_only_the_relay_has_are_located(scene: RelayScene, lead: LogReader) -> None:
    markers = [scene.recorded(lead, 5) for _ in range(3)]
    times = [scene.start.committed_at_us, *(marker.committed_at_us for marker in markers)]
    scene.memory.purge()
    source = scene.source
    assert source.locate("earliest") == source.earliest() == scene.start
    assert source.locate(str(markers[0].order)) == markers[0]
    assert source.locate(f"seq:{markers[2].delivered}") == markers[2]
    assert source.locate(str(replace(markers[0].order, offset=markers[0].order.offset + 1))) == markers[0]
    for marker, at in zip(markers, times[1:], strict=True):
        assert source.locate_time(at).committed_at_us <= at
        assert source.locate_time(at).order <= marker.order
    with pytest.raises(PositionPurged):
        source.locate("seq:2")
    with pytest.raises(PositionPurged):
        source.locate_time(-1)


# --- disks ------------------------------------------------------------------------------------------------------------


@both(by_hand=True)
def test_a_disk_that_cannot_be_written_is_told_and_read_past(scene: RelayScene) -> None:
    lead = scene.lead(5)
    scene.disk.break_down("write", errno.EROFS)
    scene.recorded(lead, 5)
    assert "Read-only file system" in scene.relay.problem.text
    assert scene.source.status().problems
    assert scene.read(scene.open()).keys() == keys_of(0, 10)
    scene.disk.work()
    scene.time.now += 6
    scene.recorded(lead, 1)
    scene.wait_for(scene.catches_up, "nothing is recorded")
    assert not scene.relay.problem
    assert scene.read(scene.open()).keys() == keys_of(0, 11)
    if scene.settings.mode == "hold":
        assert len(scene.relay.stretches) == 1


@scene_with(replace(CACHE, budget=64 << 10, compress=False))
def test_a_disk_that_is_full_before_the_budget_is_takes_the_oldest_file(scene: RelayScene) -> None:
    scene.disk.capacity = 30_000
    lead = scene.open()
    for _ in range(40):
        scene.recorded(lead, 1, 1000)
    assert scene.relay.begin.order > scene.start.order
    assert scene.relay.tip == scene.memory.latest()
    assert not scene.relay.problem


def test_a_folder_that_cannot_be_opened_leaves_a_cache_without_its_relay(scene: RelayScene) -> None:
    scene.disk.break_down("lock", errno.EROFS)
    scene.restart()
    scene.put(5)
    assert scene.read(scene.open()).keys() == keys_of(0, 5)
    assert "Read-only file system" in scene.relay.problem.text
    assert not scene.relay.stretches
    scene.settings = HOLD
    with pytest.raises(SourceUnavailable):
        scene.restart()


def test_a_relay_that_was_turned_off_is_read_until_nobody_needs_it(scene: RelayScene) -> None:
    scene.lead(5)
    tip = scene.relay.tip
    scene.memory.purge(tip)
    scene.settings = replace(CACHE, mode="off")
    scene.restart()
    scene.put(5)
    scene.source.release(scene.start.order)
    reader = scene.open()
    assert lead_start(scene.source) == scene.memory.latest()
    assert scene.read(reader).keys() == keys_of(0, 10)
    scene.flush()
    assert scene.relay.tip == tip
    scene.source.release(tip.order)
    assert not scene.relay.stretches
    scene.recorded(reader, 1)
    assert not scene.relay.stretches


def test_a_damaged_file_is_a_hole(scene: RelayScene) -> None:
    lead = scene.lead(5)
    behind = scene.open()
    scene.disk.content("relay-00000000000000000001.wrf")[-3] ^= 1
    assert scene.read(behind).keys() == keys_of(0, 5), "its reader goes on with the datastore's log"
    scene.recorded(lead, 1)
    scene.recorded(lead, 1)
    assert scene.read(scene.open()).keys() == keys_of(0, 7)
    assert scene.relay.tip == scene.memory.latest()


# --- files that go while they are read --------------------------------------------------------------------------------


def small_files(scene: RelayScene, lead: LogReader, count: int) -> None:
    """Record transactions, one or two to a file where the budget is ``LITTLE``, in which seven have room."""
    for _ in range(count):
        scene.recorded(lead, 1, 1500)


@both(budget=LITTLE, compress=False)
@pytest.mark.parametrize("begun", [False, True], ids=["before", "within"])
def test_whose_file_goes_reads_on_where_the_log_is(scene: RelayScene, begun: bool, lead: LogReader) -> None:
    small_files(scene, lead, 6)
    behind = scene.open()
    assert scene.relay.begin == scene.start
    read = Read(last_end=scene.start.order)
    if begun:
        segment = present(behind.read(1 << 20, 0.0))
        read.add(segment)
    scene.source.trim(LITTLE // 2)
    assert scene.relay.begin.order > scene.start.order, "the files that it reads are gone"
    assert scene.relay.readers == 1
    read_until(behind, scene.memory.latest().order, max_bytes=1, into=read)
    assert read.keys() == keys_of(0, 6)
    assert not read.gaps
    assert behind.reads_files, "it goes on in the files once it comes to them"


@both()
def test_at_the_end_of_the_only_file_that_goes_a_reader_waits_for_what_is_recorded(scene: RelayScene) -> None:
    lead = scene.lead(5)
    behind = scene.open()
    scene.read(behind)
    scene.source.trim(1)
    assert scene.relay.begin == scene.memory.latest()
    opened = scene.store.opened
    scene.recorded(lead, 1)
    assert scene.read(behind).keys() == keys_of(5, 1)
    assert scene.store.opened == opened


@both()
def test_a_transaction_in_pieces_is_read_to_its_end_though_its_file_goes(scene: RelayScene, lead: LogReader) -> None:
    scene.put_large(100, 100)
    scene.put(1)
    whole = scene.read(lead, max_bytes=1000)
    scene.flush()
    behind = scene.open()
    read = Read(last_end=scene.start.order)
    segment = present(behind.read(1 << 20, 0.0))
    assert segment.marker is None
    read.add(segment)
    scene.source.trim(0)
    read_until(behind, scene.memory.latest().order, into=read)
    assert read.ids() == whole.ids()


def test_damage_inside_a_transaction_is_told_to_who_has_a_part_of_it(scene: RelayScene, lead: LogReader) -> None:
    scene.put_large(100, 100)
    whole = scene.read(lead, max_bytes=1000)
    scene.flush()
    behind = scene.open()
    scene.disk.content("relay-00000000000000000001.wrf")[-3] ^= 1
    with pytest.raises(Gone):
        scene.read(behind)
    assert scene.read(scene.open()).ids() == whole.ids()


@scene_with(replace(HOLD, budget=LITTLE, slot_budget=0, compress=False))
def test_what_only_a_file_had_that_goes_is_told_as_lost_up_to_what_is_there(
    scene: RelayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_SYNC_S", 0.0)
    lead = scene.open()
    scene.source.release(scene.start.order)
    small_files(scene, lead, 2)
    behind = scene.open()
    for _ in range(10):
        small_files(scene, lead, 1)
        scene.wait_for(lambda: not scene.relay.unsynced_bytes, "it is not synced")
        scene.source.release(scene.start.order)
    begin = scene.relay.begin
    assert scene.start.order < begin.order < scene.memory.earliest().order
    read = scene.read(behind)
    assert read.keys() == keys_of(int(begin.delivered), 12 - int(begin.delivered))
    assert [(gap.kind, gap.first_missing, gap.last_missing, gap.behind) for gap in read.gaps] == [
        (LossKind.PURGED, "1", begin.delivered, begin.delivered)
    ]


def test_what_the_datastore_gave_up_since_the_relay_has_it_again_is_read_there(scene: RelayScene) -> None:
    scene.lead(5)
    behind = scene.open()
    scene.source.trim(0)
    open_now = scene.store.open

    def open_later(marker: Datamarker) -> LogReader:
        scene.store.open = open_now  # type: ignore[method-assign]
        scene.recorded(scene.open(), 1)
        scene.memory.purge()
        return open_now(marker)

    scene.store.open = open_later  # type: ignore[method-assign]
    read = scene.read(behind)
    assert read.keys() == keys_of(0, 6)
    assert not read.gaps


@scene_with(replace(HOLD, budget=LITTLE, compress=False))
def test_a_file_that_turns_out_to_be_damaged_when_it_has_to_go_goes_alone(scene: RelayScene, lead: LogReader) -> None:
    scene.source.release(scene.start.order)
    small_files(scene, lead, 7)
    first, second, *_ = sorted(name for name in scene.disk.names(FOLDER) if name.endswith(".wrf"))
    scene.disk.content(first)[600] ^= 1
    small_files(scene, lead, 1)
    names = scene.disk.names(FOLDER)
    assert first not in names
    assert second in names, "there is room for it now"


def test_whose_file_goes_is_unavailable_at_a_place_that_the_datastore_no_longer_has(
    scene: RelayScene, lead: LogReader
) -> None:
    kept = scene.recorded(lead, 5)
    scene.recorded(lead, 5)
    behind = scene.open()
    scene.read(behind)
    scene.memory.restore(kept)
    scene.source.trim(0)
    with pytest.raises(SourceUnavailable, match="is not in this log"):
        behind.read(1 << 20, 0.0)


def test_whose_file_goes_because_the_log_is_another_one_is_unavailable(scene: RelayScene, lead: LogReader) -> None:
    kept = scene.recorded(lead, 5)
    scene.recorded(lead, 5)
    behind = scene.open()

    def restore(operation: str, path: Path) -> None:
        if operation == "open":
            scene.disk.work()
            scene.memory.restore(kept)
            scene.put(6)
            lead.close()
            scene.read(scene.open(kept))
            scene.flush()

    scene.disk.fails = restore
    with pytest.raises(SourceUnavailable, match="turned out to be of another log"):
        behind.read(1 << 20, 0.0)


@scene_with(replace(CACHE, budget=LITTLE, compress=False))
def test_a_place_is_located_though_a_file_goes_meanwhile(scene: RelayScene, lead: LogReader) -> None:
    small_files(scene, lead, 5)
    fifth = scene.relay.tip
    small_files(scene, lead, 1)
    scene.memory.purge()

    def trim_while_read(keep_bytes: int) -> None:
        def trim(operation: str, path: Path) -> None:
            if operation == "read":
                scene.disk.work()
                scene.source.trim(keep_bytes)

        scene.disk.fails = trim

    trim_while_read(LITTLE // 2)
    assert scene.source.locate_time(fifth.committed_at_us) == fifth
    assert scene.relay.begin.order > scene.start.order, "the file that was read first is gone"
    trim_while_read(0)
    with pytest.raises(PositionPurged):
        scene.source.locate(str(fifth.order))


def test_trimming_that_the_disk_refuses_is_told(scene: RelayScene) -> None:
    scene.lead(5)
    scene.disk.break_down("unlink", errno.EROFS)
    with pytest.raises(SourceUnavailable):
        scene.source.trim(0)


def test_nothing_is_recorded_behind_what_may_be_of_another_log(scene: RelayScene, lead: LogReader) -> None:
    kept = scene.recorded(lead, 5)
    scene.recorded(lead, 5)
    scene.memory.restore(kept)  # the lead has not noticed
    scene.put(8)
    other = scene.open(scene.memory.latest())
    scene.put(1)
    scene.read(other)
    lead.close()
    for _ in range(3):
        scene.put(1)
        scene.read(other)
    scene.flush()
    assert scene.read(scene.open()).keys() == [*keys_of(0, 5), *keys_of(10, 12)]


def test_a_closed_reader_ends_and_records_no_more(scene: RelayScene) -> None:
    lead = scene.lead(5)
    waiting: LogReader = scene.open(scene.memory.latest())
    threading.Timer(0.05, waiting.close).start()
    assert waiting.read(1 << 20, 86_400.0) is None
    lead.close()
    assert lead.read(1 << 20, 0.0) is None
    assert not scene.store.readers
