"""What is kept of what was delivered and processed."""

from __future__ import annotations

import pytest

from wormhole.audit.book_page import DELAY_LIMITS_S, Counted, Page, Problem
from wormhole.audit.books import KEPT_LIVES, KEPT_WINDOWS, Books
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally

NOW = 10_000 * WINDOW_S + 30.0
WINDOW = 9_999


def at(offset: int) -> LogPosition:
    return LogPosition(1, 2, offset)


def page(books: Books, window: int = WINDOW, filter_hash: str = "f") -> Page:
    return books.pages[filter_hash, window]


def test_what_was_acknowledged_is_counted_with_its_delay_and_the_range_grows() -> None:
    books = Books()
    books.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    books.acknowledged("f", at(10), at(20), {WINDOW: Tally(1, 2**64 - 1)}, NOW + 1000)
    assert page(books).delivered == Tally(3, 6)
    late = [0] * (len(DELAY_LIMITS_S) + 1)
    late[3], late[6] = 2, 1  # 30 s: up to 60; 1030 s: up to 3600
    assert page(books).delays == late
    assert sum(page(books, 0).delays) == 0
    assert books.ranges == {"f": [(at(0), at(20))]}
    assert (books.counted_to("f"), books.counted_to("g")) == (at(20), None)


def test_a_range_that_is_left_out_stays_left_out_and_a_rewind_adds_nothing_before_it() -> None:
    books = Books()
    books.acknowledged("f", at(0), at(10), {}, NOW)
    books.acknowledged("f", at(30), at(40), {}, NOW)
    books.acknowledged("f", at(5), at(35), {}, NOW)
    books.acknowledged("f", at(35), at(50), {}, NOW)
    assert books.ranges == {"f": [(at(0), at(10)), (at(30), at(50))]}


def test_only_what_is_more_than_was_known_of_a_life_is_processed() -> None:
    books = Books()
    assert books.told("f", 5, {WINDOW: Counted(10, 1, 9)}, NOW) == {WINDOW: 11}
    assert books.told("f", 5, {WINDOW: Counted(12, 2, 20)}, NOW) == {WINDOW: 3}
    assert books.told("f", 6, {WINDOW: Counted(4)}, NOW) == {WINDOW: 4}
    assert books.told("f", 5, {WINDOW: Counted(13, 2, 20)}, NOW) == {WINDOW: 1}
    told = page(books)
    assert (told.processed, told.set_aside, told.aside_hash) == (17, 2, 20)


def test_a_life_goes_on_under_another_filter() -> None:
    books = Books()
    books.told("f", 5, {WINDOW: Counted(10)}, NOW)
    assert books.told("g", 5, {WINDOW: Counted(15)}, NOW) == {WINDOW: 5}
    assert (page(books).processed, page(books, filter_hash="g").processed) == (10, 5)


def test_as_many_lives_are_remembered_as_epochs_may_pass_before_one_is_renewed() -> None:
    books = Books()
    for life in range(1, KEPT_LIVES + 1):
        books.told("f", life, {WINDOW: Counted(10)}, NOW)
    assert books.told("f", 1, {WINDOW: Counted(11)}, NOW) == {WINDOW: 1}
    assert books.told("f", KEPT_LIVES + 1, {WINDOW: Counted(1)}, NOW) == {WINDOW: 1}
    assert len(page(books).lives) == KEPT_LIVES


def test_what_may_have_run_unheard_is_known_by_its_life_until_that_tells() -> None:
    books = Books()
    books.cut_off("f", 5, {WINDOW: 3, 0: 0}, NOW)
    books.cut_off("f", 6, {WINDOW: 4}, NOW)
    assert page(books).unheard == {5: 3, 6: 4}
    assert ("f", 0) not in books.pages
    again = Books(books.changed(NOW))
    again.heard(5, [])
    again.heard(7, [])
    assert page(Books(again.changed(NOW))).unheard == {6: 4}
    for life in range(10, 50):
        again.cut_off("f", life, {WINDOW: 1}, NOW)
    assert (len(page(again).unheard), sum(page(again).unheard.values())) == (KEPT_LIVES + 1, 44)


def test_what_nobody_tells_is_known_by_its_epoch_until_who_had_it_comes_back() -> None:
    books = Books()
    books.all_heard_to(2)
    books.silent_in(3, "f", at(10), at(30))
    books.silent_in(4, "f", at(10), at(10))
    books.silent_in(5, "f", at(10), at(40))
    books.all_heard_to(6)
    again = Books(books.changed(NOW))
    assert (again.silent, again.heard_to) == ({3: ("f", (at(10), at(30))), 5: ("f", (at(10), at(40)))}, 6)
    again.heard(9, [3, 6])
    assert Books(again.changed(NOW)).silent == {5: ("f", (at(10), at(40)))}


def test_what_was_done_ahead_of_the_datamarker_goes_down_as_that_follows() -> None:
    books = Books()
    books.processed_ahead("f", WINDOW, 5, NOW)
    books.processed_ahead("f", WINDOW, 3, NOW)
    assert page(books).ahead == 5
    books.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7)}, NOW, at(30))
    assert page(books).ahead == 3
    again = Books(books.changed(NOW))
    again.acknowledged("f", at(10), at(30), {}, NOW, at(30))
    assert page(Books(again.changed(NOW))).ahead == 0, "nothing behind it was ever sent"


def test_counts_that_begin_anew_in_one_life_are_all_new() -> None:
    books = Books()
    books.told("f", 5, {WINDOW: Counted(10)}, NOW)
    assert books.told("f", 5, {WINDOW: Counted(2)}, NOW) == {WINDOW: 2}


def test_a_parked_update_that_was_delivered_after_all_is_set_aside_no_more() -> None:
    books = Books()
    books.told("f", 5, {WINDOW: Counted(1, 1, 9)}, NOW)
    books.delivered_again("f", WINDOW, 9, NOW)
    assert (page(books).set_aside, page(books).aside_hash) == (0, 0)


def test_stored_and_read_again_it_goes_on_where_it_was() -> None:
    books = Books()
    books.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    books.told("f", 2**63, {WINDOW: Counted(10, 1, 2**64 - 1, 4)}, NOW)
    books.problem("f", WINDOW, problem(0, 10), NOW)
    stored = books.changed(NOW)
    assert set(stored) == {"f.9999", "f.0", "ranges"}
    assert books.changed(NOW) == {}
    again = Books(stored)
    assert not again.unreadable
    assert (again.pages, again.ranges) == (books.pages, books.ranges)
    assert again.told("f", 2**63, {WINDOW: Counted(11, 1, 2**64 - 1, 4)}, NOW) == {WINDOW: 1}


def test_books_with_a_damaged_page_begin_anew() -> None:
    books = Books(
        {"f.1": b"{", "f.x": b"[]", "ranges": b"[1]", "f.9999": Page(processed=3, lives={5: Counted(3)}).to_bytes()}
    )
    assert sorted(books.unreadable) == ["f.1", "f.x", "ranges"]
    assert not books.pages
    assert books.told("f", 5, {WINDOW: Counted(4)}, NOW) == {WINDOW: 1}  # what was told before is known still
    assert {name: bool(data) for name, data in books.changed(NOW).items()} == {
        "f.1": False, "f.x": False, "ranges": True, "f.9999": True
    }  # fmt: skip


def test_after_a_week_a_page_goes_and_nothing_so_old_is_booked() -> None:
    books = Books()
    books.acknowledged("f", at(0), at(10), {WINDOW: Tally(2, 7), 0: Tally(1, 1)}, NOW)
    books.changed(NOW)
    later = NOW + KEPT_WINDOWS * WINDOW_S
    books.acknowledged("f", at(10), at(20), {WINDOW: Tally(1, 1)}, later)
    assert books.told("f", 5, {WINDOW: Counted(1)}, later) == {WINDOW: 1}
    assert books.changed(later)["f.9999"] == b""
    assert [window for _, window, _ in books.select(0, None)] == [0]


@pytest.mark.parametrize(("first", "last", "expected"), [(0, None, [3, 4, 5]), (4, None, [4, 5]), (0, 4, [3, 4])])
def test_windows_are_chosen(first: int, last: int | None, expected: list[int]) -> None:
    books = Books()
    books.acknowledged("f", at(0), at(10), {window: Tally(1, 1) for window in (5, 3, 4)}, 6 * WINDOW_S)
    assert [window for _, window, _ in books.select(first, last)] == expected


def problem(begin: int, end: int, lacks: int = 1) -> Problem:
    return Problem(at(begin), at(end), 10, 10 - lacks, lacks, at(begin))


def test_problems_are_bounded_and_none_is_forgotten() -> None:
    books = Books()
    for number in range(25):
        books.problem("f", WINDOW, problem(10 * number, 10 * number + 10), NOW)
    kept = page(books).problems
    assert (len(kept), sum(one.missing for one in kept), sum(one.first for one in kept)) == (20, 25, 25)
    assert (kept[0].begin, kept[0].end, kept[-1].begin) == (at(0), at(60), at(240))


def test_a_problem_is_repaired_when_all_of_its_range_was_delivered_again_with_every_callback() -> None:
    books = Books()
    books.acknowledged("f", at(0), at(30), {}, NOW)
    books.problem("f", WINDOW, problem(10, 20), NOW)
    for begin, end, lacking in ((12, 40, ()), (0, 15, ()), (15, 18, ()), (18, 30, (WINDOW,)), (30, 40, ())):
        books.delivered_again_between("f", at(begin), at(end), lacking)
        assert not page(books).problems[0].is_repaired
    again = Books(books.changed(NOW))
    again.delivered_again_between("f", at(18), at(30), (0,))
    (found,) = page(Books(again.changed(NOW))).problems
    assert (found.is_repaired, found.missing, str(found)) == (
        True,
        1,
        "between 1/2/10 and 1/2/20: 10 updates were sent, 9 were processed or set aside",
    )


def test_where_only_a_part_was_delivered_is_kept_and_what_was_told_of_it_is_no_processing() -> None:
    books = Books()
    books.delivered_partly("f", at(30), at(40))
    books.delivered_partly("f", at(40), at(40))
    books.delivered_partly("f", at(40), at(50))
    books.delivered_partly("f", at(10), at(35))
    books.delivered_partly("f", at(60), at(70))
    assert books.told("f", 5, {WINDOW: Counted(10, 1, 9)}, NOW, partly=True) == {WINDOW: 11}
    books.told("f", 5, {WINDOW: Counted(12, 1, 9)}, NOW)
    again = Books(books.changed(NOW))
    assert again.partly == {"f": [(at(10), at(50)), (at(60), at(70))]}
    assert (again.ranges, again.counted_to("f")) == ({}, None)
    assert (page(again).partly, page(again).processed, page(again).set_aside) == (11, 2, 0)


def test_what_a_replay_delivered_a_second_time_is_known_as_far_as_it_was_counted() -> None:
    books = Books()
    books.delivered_again_between("f", at(0), at(10))
    assert books.again == {}
    books.acknowledged("f", at(0), at(30), {}, NOW)
    books.delivered_again_between("f", at(10), at(20))
    books.delivered_again_between("f", at(20), at(50))
    books.delivered_again_between("f", at(50), at(60))
    assert Books(books.changed(NOW)).again == {"f": [(at(10), at(30))]}
