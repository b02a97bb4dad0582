"""What was delivered, by window, as it is stored."""

from __future__ import annotations

import json

import pytest

from wormhole.audit.delivery_counts import KEPT_LIVES, KEPT_WINDOWS, DeliveryCounts, RangeKind
from wormhole.audit.window_counts import DELAY_LIMITS_S, Mismatch, ProcessedCount, WindowCounts, place_numbers
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally

# --- What is kept of what was delivered and processed


NOW = 10_000 * WINDOW_S + 30.0
WINDOW = 9_999


def at(offset: int) -> LogPosition:
    return LogPosition(1, 2, offset)


@pytest.fixture
def counts() -> DeliveryCounts:
    return DeliveryCounts()


def window(counts: DeliveryCounts, number: int = WINDOW, filter_hash: str = "f") -> WindowCounts:
    return counts.windows[filter_hash, number]


def test_what_was_acknowledged_is_counted_with_its_delay_and_the_range_grows(counts: DeliveryCounts) -> None:
    counts.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    counts.acknowledged("f", at(10), at(20), {WINDOW: Tally(1, 2**64 - 1)}, NOW + 1000)
    assert window(counts).delivered == Tally(3, 6)
    late = [0] * (len(DELAY_LIMITS_S) + 1)
    late[3], late[6] = 2, 1  # 30 s: up to 60; 1030 s: up to 3600
    assert window(counts).delays == late
    assert sum(window(counts, 0).delays) == 0
    assert counts.ranges[RangeKind.COUNTED] == {"f": [(at(0), at(20))]}
    assert (counts.counted_to("f"), counts.counted_to("g")) == (at(20), None)


def test_a_range_that_is_left_out_stays_left_out_and_a_rewind_adds_nothing_before_it(counts: DeliveryCounts) -> None:
    counts.acknowledged("f", at(0), at(10), {}, NOW)
    counts.acknowledged("f", at(30), at(40), {}, NOW)
    counts.acknowledged("f", at(5), at(35), {}, NOW)
    counts.acknowledged("f", at(35), at(50), {}, NOW)
    assert counts.ranges[RangeKind.COUNTED] == {"f": [(at(0), at(10)), (at(30), at(50))]}


def test_an_acknowledgement_that_adds_nothing_changes_no_page(counts: DeliveryCounts) -> None:
    counts.acknowledged("f", at(0), at(10), {}, NOW)
    assert counts.changed(NOW)
    counts.acknowledged("f", at(10), at(10), {}, NOW)
    assert not counts.changed(NOW)
    counts.acknowledged("f", at(10), at(11), {}, NOW)
    assert counts.changed(NOW)


def test_only_what_is_more_than_was_known_of_a_life_is_processed(counts: DeliveryCounts) -> None:
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(10, 1, 9)}, NOW) == {WINDOW: 11}
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(12, 2, 20)}, NOW) == {WINDOW: 3}
    assert counts.reported("f", 6, {WINDOW: ProcessedCount(4)}, NOW) == {WINDOW: 4}
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(13, 2, 20)}, NOW) == {WINDOW: 1}
    kept = window(counts)
    assert (kept.processed, kept.set_aside, kept.aside_hash) == (17, 2, 20)


def test_a_life_goes_on_under_another_filter(counts: DeliveryCounts) -> None:
    counts.reported("f", 5, {WINDOW: ProcessedCount(10)}, NOW)
    assert counts.reported("g", 5, {WINDOW: ProcessedCount(15)}, NOW) == {WINDOW: 5}
    assert (window(counts).processed, window(counts, filter_hash="g").processed) == (10, 5)


def test_as_many_lives_are_remembered_as_epochs_may_pass_before_one_is_renewed(counts: DeliveryCounts) -> None:
    for life in range(1, KEPT_LIVES + 1):
        counts.reported("f", life, {WINDOW: ProcessedCount(10)}, NOW)
    assert counts.reported("f", 1, {WINDOW: ProcessedCount(11)}, NOW) == {WINDOW: 1}
    assert counts.reported("f", KEPT_LIVES + 1, {WINDOW: ProcessedCount(1)}, NOW) == {WINDOW: 1}
    assert len(window(counts).lives) == KEPT_LIVES


def test_what_is_processed_and_not_acknowledged_goes_down_with_the_datamarker(counts: DeliveryCounts) -> None:
    counts.processed_unacknowledged("f", WINDOW, 5, NOW)
    counts.processed_unacknowledged("f", WINDOW, 3, NOW)
    assert window(counts).unacknowledged == 5
    counts.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7)}, NOW, at(30))
    assert window(counts).unacknowledged == 3
    read = DeliveryCounts(counts.changed(NOW))
    read.acknowledged("f", at(10), at(30), {}, NOW, at(30))
    assert window(DeliveryCounts(read.changed(NOW))).unacknowledged == 0, "nothing behind it was ever sent"


def test_counts_that_begin_anew_in_one_life_are_all_new(counts: DeliveryCounts) -> None:
    counts.reported("f", 5, {WINDOW: ProcessedCount(10)}, NOW)
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(2)}, NOW) == {WINDOW: 2}


def test_a_parked_update_that_was_delivered_after_all_is_set_aside_no_more(counts: DeliveryCounts) -> None:
    counts.reported("f", 5, {WINDOW: ProcessedCount(1, 1, 9)}, NOW)
    counts.parked_delivered("f", WINDOW, 9, NOW)
    assert (window(counts).set_aside, window(counts).aside_hash) == (0, 0)


def test_stored_and_read_again_it_goes_on_where_it_was(counts: DeliveryCounts) -> None:
    counts.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    counts.reported("f", 2**63, {WINDOW: ProcessedCount(10, 1, 2**64 - 1, 4)}, NOW)
    counts.mismatch("f", WINDOW, mismatch(0, 10), NOW)
    stored = counts.changed(NOW)
    assert set(stored) == {"f.9999", "f.0", "ranges"}
    assert counts.changed(NOW) == {}
    read = DeliveryCounts(stored)
    assert not read.unreadable
    assert (read.windows, read.ranges) == (counts.windows, counts.ranges)
    assert read.reported("f", 2**63, {WINDOW: ProcessedCount(11, 1, 2**64 - 1, 4)}, NOW) == {WINDOW: 1}


def test_counts_with_a_damaged_page_begin_anew() -> None:
    kept = WindowCounts(processed=3, lives={5: ProcessedCount(3)}).to_bytes()
    counts = DeliveryCounts({"f.1": b"{", "f.x": b"[]", "ranges": b"[1]", "f.9999": kept})
    assert sorted(counts.unreadable) == ["f.1", "f.x", "ranges"]
    assert not counts.windows
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(4)}, NOW) == {WINDOW: 1}  # the last reports are still known
    assert {name: bool(data) for name, data in counts.changed(NOW).items()} == {
        "f.1": False, "f.x": False, "ranges": True, "f.9999": True
    }  # fmt: skip


def test_after_a_week_a_page_goes_and_nothing_so_old_is_counted(counts: DeliveryCounts) -> None:
    counts.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    counts.changed(NOW)
    later = NOW + KEPT_WINDOWS * WINDOW_S
    counts.acknowledged("f", at(10), at(20), {WINDOW: Tally(1, 1)}, later)
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(1)}, later) == {WINDOW: 1}
    assert counts.changed(later)["f.9999"] == b""
    assert [window for _, window, _ in counts.select(0, None)] == [0]


@pytest.mark.parametrize(("first", "last", "expected"), [(0, None, [3, 4, 5]), (4, None, [4, 5]), (0, 4, [3, 4])])
def test_windows_are_chosen(first: int, last: int | None, expected: list[int]) -> None:
    counts = DeliveryCounts()
    counts.acknowledged("f", at(0), at(10), {window: Tally(1, 1) for window in (5, 3, 4)}, 6 * WINDOW_S)
    assert [window for _, window, _ in counts.select(first, last)] == expected


def mismatch(begin: int, end: int, lacks: int = 1) -> Mismatch:
    return Mismatch(at(begin), at(end), 10, 10 - lacks, lacks, at(begin))


def test_mismatches_are_bounded_and_none_is_forgotten(counts: DeliveryCounts) -> None:
    for number in range(25):
        counts.mismatch("f", WINDOW, mismatch(10 * number, 10 * number + 10), NOW)
    kept = window(counts).mismatches
    assert (len(kept), sum(one.missing for one in kept), sum(one.first for one in kept)) == (20, 25, 25)
    assert (kept[0].begin, kept[0].end, kept[-1].begin) == (at(0), at(60), at(240))


def test_a_mismatch_is_repaired_when_all_of_its_range_was_redelivered_and_processed(
    counts: DeliveryCounts,
) -> None:
    counts.acknowledged("f", at(0), at(30), {}, NOW)
    counts.mismatch("f", WINDOW, mismatch(10, 20), NOW)
    for begin, end, lacking in ((12, 40, ()), (0, 15, ()), (15, 18, ()), (18, 30, (WINDOW,)), (30, 40, ())):
        counts.redelivered("f", at(begin), at(end), lacking)
        assert not window(counts).mismatches[0].is_repaired
    read = DeliveryCounts(counts.changed(NOW))
    read.redelivered("f", at(18), at(30), (0,))
    (found,) = window(DeliveryCounts(read.changed(NOW))).mismatches
    assert (found.is_repaired, found.missing, str(found)) == (
        True,
        1,
        "between 1/2/10 and 1/2/20: 10 updates were sent, 9 were processed or set aside",
    )


def test_partial_ranges_are_kept_and_their_callbacks_are_counted_apart(
    counts: DeliveryCounts,
) -> None:
    counts.partially_delivered("f", at(30), at(40))
    counts.partially_delivered("f", at(40), at(40))
    counts.partially_delivered("f", at(40), at(50))
    counts.partially_delivered("f", at(10), at(35))
    counts.partially_delivered("f", at(60), at(70))
    assert counts.reported("f", 5, {WINDOW: ProcessedCount(10, 1, 9)}, NOW, partial=True) == {WINDOW: 11}
    counts.reported("f", 5, {WINDOW: ProcessedCount(12, 1, 9)}, NOW)
    read = DeliveryCounts(counts.changed(NOW))
    assert read.ranges[RangeKind.PARTIAL] == {"f": [(at(10), at(50)), (at(60), at(70))]}
    assert (read.ranges[RangeKind.COUNTED], read.counted_to("f")) == ({}, None)
    assert (window(read).partial, window(read).processed, window(read).set_aside) == (11, 2, 0)


def test_what_a_replay_delivered_a_second_time_is_known_as_far_as_it_was_counted(counts: DeliveryCounts) -> None:
    counts.redelivered("f", at(0), at(10))
    assert counts.ranges[RangeKind.REDELIVERED] == {}
    counts.acknowledged("f", at(0), at(30), {}, NOW)
    counts.redelivered("f", at(10), at(20))
    counts.redelivered("f", at(20), at(50))
    counts.redelivered("f", at(50), at(60))
    assert DeliveryCounts(counts.changed(NOW)).ranges[RangeKind.REDELIVERED] == {"f": [(at(10), at(30))]}


# --- A page of delivery counts is stored and read again, and what is none is refused


BEGIN, MIDDLE, END = (LogPosition(1, 2, offset) for offset in (0, 5, 9))


def mismatch_between(
    begin: LogPosition = BEGIN, end: LogPosition = END, redelivered_to: LogPosition = BEGIN
) -> Mismatch:
    return Mismatch(begin, end, sent=7, processed=5, first=1, redelivered_to=redelivered_to)


@pytest.mark.parametrize("what", [b"{", b"[]", b"{}", b"7", json.dumps([1] * 12).encode()])
def test_what_is_no_page_is_refused(what: bytes) -> None:
    with pytest.raises(ValueError, match="no page of delivery counts"):
        WindowCounts.from_bytes(what)


def test_a_page_of_other_delays_is_refused() -> None:
    stored = json.loads(WindowCounts().to_bytes())
    stored[5] = [0]
    with pytest.raises(ValueError, match="1 delays"):
        WindowCounts.from_bytes(json.dumps(stored).encode())


def test_a_mismatch_is_repaired_with_its_last_update() -> None:
    assert not mismatch_between(redelivered_to=MIDDLE).is_repaired
    assert mismatch_between(redelivered_to=END).is_repaired


def test_two_mismatches_as_one_are_as_wide_as_both_and_not_repaired() -> None:
    both = mismatch_between(end=MIDDLE, redelivered_to=MIDDLE).joined(mismatch_between(begin=MIDDLE))
    assert (both.begin, both.end, both.sent, both.missing, both.first) == (BEGIN, END, 14, 4, 2)
    assert not both.is_repaired
    assert str(both).endswith("14 updates were sent, 10 were processed or set aside")


def test_a_place_is_its_numbers() -> None:
    assert LogPosition(*place_numbers(END)) == END
