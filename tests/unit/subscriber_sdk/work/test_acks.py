"""Finished work becomes progress without gaps; what is held is enough for a rollback, or known not to be."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from subscriber_sdk.testing import marker_at
from subscriber_sdk.work.acks import BatchItem, FlowLog, Item, MarkerItem, RangeItem, ScanEndItem
from wormhole.model.schema import Schema


def batch(number: int, size: int = 10) -> BatchItem:
    return BatchItem(number, False, bytes(size))


def marker(number: int) -> MarkerItem:
    return MarkerItem(marker_at(number))


def filled(*items: Item, hold: int = 1000) -> FlowLog:
    log = FlowLog(hold)
    for item in items:
        log.append(item)
    return log


def taken(log: FlowLog) -> list[Item]:
    items = []
    while (item := log.take()) is not None:
        items.append(item)
    return items


def test_the_ends_of_existing_rows_come_in_order_and_keep_what_follows_unfinished() -> None:
    ended = RangeItem(b"", Schema("t", (), ())), ScanEndItem("t", 1)
    log = filled(rows := batch(1), *ended, last := marker(1))
    assert log.take() is rows
    log.finish(rows)
    unfinished = [log.unfinished]
    for item in ended:
        assert log.take() is item
        unfinished.append(log.unfinished)
        log.passed()
        unfinished.append(log.unfinished)
    assert unfinished == [False, True, False, True, False], "no datamarker behind one that runs may be acknowledged"
    assert log.take() is last
    assert log.rollback()
    assert taken(log) == [rows, *ended, last]


def test_a_datamarker_is_passed_over_only_where_another_waits_behind_batches() -> None:
    one, two, first, last = batch(1), batch(2), marker(1), marker(2)
    log = filled(first, one, two, last)
    assert [log.take(over=True), log.take(over=True), log.take(over=True)] == [one, two, last]
    assert filled(first, one, last).take() is first
    assert filled(first, one, ScanEndItem("t", 1), last).take(over=True) is first
    assert filled(first, one).take(over=True) is first


def test_batches_that_wait_are_taken_together() -> None:
    numbered = [batch(number) for number in range(1, 8)]
    first = numbered[0]

    def together(*behind: Item, over: bool = False) -> list[int]:
        log = filled(first, *behind)
        assert log.take() is first
        taken = [item.number for item in log.take_together(first, over=over)]
        assert log.rollback()
        assert len(log) == 1 + len(behind) - (len(taken) > 1 and over)
        return taken

    two, three = numbered[1:3]
    assert together(two, three) == [1, 2, 3]
    assert together(two, marker(2), three, marker(3)) == [1, 2]
    assert together(two, marker(2), three, marker(3), over=True) == [1, 2, 3]
    assert together(two, ScanEndItem("t", 1), three) == [1, 2]
    assert together(BatchItem(2, True, b""), three) == [1]
    assert together(BatchItem(2, False, b"", unfinished=True), three) == [1]
    assert together(two, batch(3, 256 << 10)) == [1, 2]
    first.unfinished = True
    assert together(two, three) == [1]


def test_progress_rises_only_without_a_gap() -> None:
    one, two, three = batch(1), batch(2), batch(3)
    log = filled(one, two, three)
    taken(log)
    assert log.finish(two) is None
    assert log.finish(one) == 2
    assert log.finish(three) == 3


def test_of_adjoining_markers_the_newest_stays() -> None:
    log = filled(batch(1), marker(1), marker(2), batch(2), marker(3))
    assert [i.marker.delivered for i in taken(log) if isinstance(i, MarkerItem)] == ["2", "3"]


def test_of_markers_that_were_left_unacknowledged_the_newest_stays() -> None:
    log = filled(one := batch(1), marker(1))
    taken(log)
    log.finish(one)
    for number in range(2, 5):
        log.append(marker(number))
        taken(log)
    assert log.rollback()
    assert [i.marker.delivered for i in taken(log) if isinstance(i, MarkerItem)] == ["4"]


def test_a_rollback_brings_back_what_was_not_acknowledged() -> None:
    one, first, two, three = batch(1), marker(1), batch(2), batch(3)
    log = filled(one, first, two, three)
    log.take()
    log.finish(one)
    log.take()
    log.acknowledge(first)
    log.take()
    log.finish(two)
    assert log.rollback()
    assert taken(log) == [two, three]
    assert not two.finished


def test_progress_is_not_reported_twice() -> None:
    one = batch(1)
    log = filled(one)
    log.take()
    assert log.finish(one) == 1
    log.rollback()
    log.take()
    assert log.finish(one) is None


def test_bytes_that_wait_and_that_are_held_for_a_rollback_are_counted() -> None:
    log, item = FlowLog(1000), batch(1, 40)
    counted = [(log.waiting_bytes, log.held_bytes)]
    for step in (lambda: log.append(item), log.take, lambda: log.finish(item), log.rollback):
        step()
        counted.append((log.waiting_bytes, log.held_bytes))
    assert counted == [(0, 0), (40, 0), (0, 0), (0, 104), (40, 0)]


def test_past_the_bound_the_oldest_goes_and_a_rollback_is_impossible() -> None:
    items = [batch(n, 40) for n in range(1, 4)]
    log = filled(*items, hold=100)
    for item in items:
        log.take()
        log.finish(item)
    assert log.held_bytes <= 100
    assert not log.rollback()


def test_an_acknowledgement_makes_it_whole_again() -> None:
    items = [batch(n, 80) for n in range(1, 3)]
    end, after = marker(1), batch(3)
    log = filled(*items, end, after, hold=100)
    for item in items:
        log.take()
        log.finish(item)
    log.take()
    log.acknowledge(end)
    log.take()
    assert log.rollback()
    assert taken(log) == [after]


def test_a_batch_that_runs_is_never_dropped() -> None:
    one, two = batch(1, 500), batch(2, 500)
    log = filled(one, two, hold=100)
    taken(log)
    log.finish(two)
    assert log.whole
    log.finish(one)
    assert not log.whole


def test_dropping_forgets_everything() -> None:
    log = filled(batch(1), batch(2), batch(3))
    log.take()
    assert log.drop_waiting() == 2
    assert log.take() is None
    assert log.rollback()
    assert log.take() is None


@given(st.permutations(range(1, 8)), st.integers(0, 7))
def test_progress_never_passes_unfinished_work(order: list[int], until: int) -> None:
    items = {n: batch(n) for n in range(1, 8)}
    log = filled(*items.values())
    taken(log)
    done: set[int] = set()
    told = 0
    for number in order[:until]:
        done.add(number)
        told = log.finish(items[number]) or told
        assert all(n in done for n in range(1, told + 1))
        assert told + 1 not in done
