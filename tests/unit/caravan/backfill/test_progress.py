"""What a flow's backfill still needs, and its bytes in the datamarker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import (
    MOST_BYTES,
    BackfillRequest,
    FinishedTable,
    FlowBackfill,
    Renewal,
    Unconfirmed,
)
from tests.support.present import present
from wormhole.filters import Filter
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema
from wormhole.model.segment import ChunkRange

REQUEST = BackfillRequest(1)


def boundaries(*keys: tuple[int, bytes], list_id: int = 7) -> Boundaries:
    return Boundaries(list_id, "", dict(keys))


def chunk(
    begin: int, end: int, table: str = "t", *, again: tuple[bytes, ...] = (), alone: tuple[bytes, ...] = ()
) -> ChunkRange:
    schema = Schema(table, (), ())
    return ChunkRange(table, schema, None, None, begin, end, LogPosition(1, 1, 0), again=again, alone=alone)


def offered(*tables: str, request: BackfillRequest = REQUEST) -> FlowBackfill:
    progress = FlowBackfill(request, "f")
    progress.offer((table, boundaries((10, b"10"), (20, b"20"))) for table in tables or ("t",))
    return progress


def restarted(progress: FlowBackfill, *lists: tuple[str, Boundaries]) -> FlowBackfill:
    """As another process finds it in the datamarker; the lists are those of that."""
    again = FlowBackfill.resume(progress.request, progress.to_bytes(), "f")
    again.offer(lists)
    return again


@pytest.fixture
def progress() -> FlowBackfill:
    return offered()


def test_everything_is_needed_first_and_nothing_when_every_range_was_taken(progress: FlowBackfill) -> None:
    assert progress.tables == ["t"]
    for begin, end in ((START, 10), (20, END)):
        assert progress.needs(chunk(begin, end))
        assert progress.finishes(chunk(begin, end), 3) == ()
        progress.took(chunk(begin, end), 3)
    assert not progress.needs(chunk(START, 10))
    assert not progress.needs(chunk(20, END))
    assert progress.ranges("t") == [(10, 20)]
    assert progress.finishes(chunk(10, 20), 1) == (FinishedTable("t", 7),)
    progress.took(chunk(10, 20), 1)
    assert progress.finished
    assert progress.finished_tables() == (FinishedTable("t", 7),)
    assert progress.rows == 7


def test_the_tables_that_somebody_wrote_out() -> None:
    own = Filter.parse('table in ("a", "b") or table matches "c*"', ("shop.users", "shop.order*"))
    where = Filter.parse('table == "d" and x == 1')
    assert set(BackfillRequest(1, ("e", "f?"), where).named(own)) == {"a", "b", "d", "e", "shop.users"}


def test_goes_on_from_its_bytes() -> None:
    progress = offered("s", "t")
    progress.took(chunk(START, 10), 3)
    progress.took(chunk(START, END, "s"), 2)
    progress.took(chunk(10, 20, again=(b"k",)), 1)
    again = restarted(progress, *((table, boundaries((10, b"10"), (20, b"20"))) for table in ("s", "t")))
    assert again.tables == ["t"]
    assert again.ranges("t") == [(20, END)]
    assert list(again.again("t")) == [b"k"]
    assert again.rows == 6
    again.took(chunk(20, END), 1)
    assert again.finishes(chunk(0, 0, alone=(b"k",)), 1) == (FinishedTable("t", 6),)


def test_a_finished_one_stays_finished(progress: FlowBackfill) -> None:
    progress.took(chunk(START, END), 3)
    again = FlowBackfill.resume(REQUEST, progress.to_bytes(), "f")
    assert again.finished
    again.offer([("t", boundaries())])
    assert again.finished


@pytest.mark.parametrize(
    ("request_", "filter_hash", "data"),
    [
        (BackfillRequest(2), "f", None),
        (REQUEST, "g", None),
        (REQUEST, "f", b""),
        (REQUEST, "f", b"\x01"),
        (REQUEST, "f", b"\x01another version"),
        (REQUEST, "f", b"\xff" * 40),
    ],
)
def test_starts_again_for_another_generation_filter_or_bytes(
    request_: BackfillRequest,
    filter_hash: str,
    data: bytes | None,
    progress: FlowBackfill,
) -> None:
    progress.took(chunk(START, 10), 3)
    again = FlowBackfill.resume(request_, progress.to_bytes() if data is None else data, filter_hash)
    again.offer([("t", boundaries((10, b"10")))])
    assert again.ranges("t") == [(START, END)]
    assert again.rows == 0


def test_a_table_starts_again_when_its_list_is_an_older_copy() -> None:
    """A folder that was restored: other keys come behind those that the older list has."""
    newer = boundaries((10, b"10"))
    number = present(newer.place(10, END, b"20"))
    newer.add(number, b"20")
    progress = FlowBackfill(REQUEST, "f")
    progress.offer([("t", newer)])
    progress.took(chunk(START, 10), 3)
    progress.took(chunk(10, number), 3)
    older = boundaries((10, b"10"))
    other = present(older.place(10, END, b"25"))
    assert other != number
    older.add(other, b"25")
    for known in (boundaries((10, b"10")), older):
        assert restarted(progress, ("t", known)).ranges("t") == [(START, END)]


def test_another_type_of_key_asks_for_another_generation() -> None:
    """Rows that the application holds by keys of the former type are older than none of the new ones' generation."""
    for begun in (chunk(START, 10), chunk(START, END)):
        progress = offered("s", "t")
        progress.took(begun, 3)
        again = restarted(progress, ("s", boundaries()), ("t", Boundaries(8, "varchar")))
        assert again.renewal == Renewal("the type or the collation of the key of t changed")
        assert not again.needs(chunk(10, 20))
        assert not again.finished


def test_that_it_has_to_begin_anew_survives() -> None:
    progress = offered("s", "t")
    progress.replaced("t", LogPosition(1, 1, 7))
    progress.replaced("t", LogPosition(1, 1, 9))
    assert progress.renewal == Renewal("rows of t changed, and the log does not have them", LogPosition(1, 1, 9))
    again = FlowBackfill.resume(REQUEST, progress.to_bytes(), "f")
    assert again.renewal == Renewal("rows of t changed, and the log does not have them")
    assert FlowBackfill.resume(BackfillRequest(2), progress.to_bytes(), "f").renewal is None


def test_a_table_that_was_not_there_is_looked_up_when_it_gets_its_name() -> None:
    progress = offered("s")
    progress.replaced("t", LogPosition(1, 1, 7))
    assert progress.renewal is None
    assert not progress.offered


def test_finished_tables_keep_their_rows_over_a_restart() -> None:
    progress = offered("s", "t")
    progress.took(chunk(START, END, "s"), 5)
    again = restarted(progress, ("s", boundaries()), ("t", boundaries()))
    assert again.finished_tables() == (FinishedTable("s", 5),)


def test_ranges_are_widened_to_what_the_list_still_has(progress: FlowBackfill) -> None:
    progress.took(chunk(START, 10), 3)
    progress.took(chunk(20, END), 3)
    thinned = boundaries((20, b"20"))
    thinned.id = 9
    progress.renumber("t", thinned, 7)
    assert progress.ranges("t") == [(START, 20)]


def test_a_key_is_read_again_some_times_and_then_reported(progress: FlowBackfill) -> None:
    progress.took(chunk(START, END, again=(b"k",)), 0)
    for _ in range(9):
        assert progress.needs(chunk(0, 0, alone=(b"k",)))
        assert not progress.finished
        progress.took(chunk(0, 0, alone=(b"k",), again=(b"k",)), 0)
    assert progress.finishes(chunk(0, 0, alone=(b"k",), again=(b"k",)), 0) == ()
    progress.took(chunk(0, 0, alone=(b"k",), again=(b"k",)), 0)
    assert progress.finished
    assert progress.finished_tables() == (FinishedTable("t", 0, unread=1),)


def test_too_many_keys_to_read_again_become_their_range(progress: FlowBackfill) -> None:
    progress.took(chunk(START, 10), 0)
    progress.took(chunk(20, END), 0)
    progress.took(chunk(10, 20, again=tuple(b"%d" % i for i in range(2000))), 0)
    assert not list(progress.again("t"))
    assert progress.ranges("t") == [(10, 20)]


def test_keys_of_another_flow_are_not_taken_over(progress: FlowBackfill) -> None:
    progress.took(chunk(START, 10, again=(b"k",)), 0)
    progress.took(chunk(0, 0, alone=(b"k", b"x"), again=(b"x",)), 1)
    assert not list(progress.again("t"))


def test_bytes_stay_within_their_bound_and_never_claim_more_than_was_taken() -> None:
    progress = FlowBackfill(REQUEST, "f")
    numbers = list(range(1000, 10_001_000, 1000))
    known = boundaries(*((number, b"k%d" % number) for number in numbers))
    names = [f"table_{i:04}" for i in range(3000)]
    progress.offer((name, known) for name in names)
    for i in range(0, len(numbers) - 1, 2):
        progress.took(chunk(numbers[i], numbers[i + 1], names[0], again=(b"x" * 900,) if i < 200 else ()), 1)
    for name in names[1:2900]:
        progress.took(chunk(START, END, name), 1)
    data = progress.to_bytes()
    assert len(data) <= MOST_BYTES
    again = FlowBackfill.resume(REQUEST, data, "f")
    again.offer((name, known) for name in names)
    assert set(progress.tables) <= set(again.tables)
    assert len(again.tables) < 2000
    for name in progress.tables:
        for begin, end in progress.ranges(name):
            assert any(low <= begin and end <= high for low, high in again.ranges(name))


def test_a_refused_table_is_needed_no_longer_and_a_paused_flow_takes_nothing() -> None:
    progress = offered("s", "t")
    progress.refuse("s", Problem("no key"))
    assert progress.tables == ["t"]
    assert progress.refused == {"s": Problem("no key")}
    progress.paused = True
    assert not progress.needs(chunk(START, END))


def test_a_narrowed_request_finishes_tables_of_which_nothing_follows() -> None:
    progress = offered(request=BackfillRequest(1, where=Filter.parse("a == 1")))
    assert progress.finishes(chunk(START, END), 1) == ()
    progress.took(chunk(START, END), 1)
    assert progress.finished


def test_which_tables_are_wanted() -> None:
    own = Filter.parse(None, ("shop.*",))
    assert BackfillRequest(1).wanted(own)("shop.a")
    assert not BackfillRequest(1).wanted(own)("other.a")
    narrow = BackfillRequest(1, ("shop.a", "other.b")).wanted(own)
    assert [narrow(name) for name in ("shop.a", "shop.b", "other.b")] == [True, False, False]
    both = BackfillRequest(1, where=Filter.parse("a == 1")).narrow(own)
    assert "a == 1" in str(both.normal) or both.hash not in (own.hash, Filter.parse("a == 1").hash)


def verified() -> FlowBackfill:
    """A verification of which every row was sent."""
    progress = offered(request=BackfillRequest(1, verify=True))
    progress.took(chunk(START, END), 3)
    assert progress.finished
    return progress


def test_a_verification_begins_anew_and_its_datamarkers_differ() -> None:
    progress = offered(request=BackfillRequest(1, verify=True))
    before = progress.to_bytes()
    progress.took(chunk(START, 10), 0)
    after = progress.to_bytes()
    assert before != after, "an ack of the one is no ack of the other"
    again = FlowBackfill.resume(BackfillRequest(1, verify=True), after, "f")
    assert (again.offered, again.rows, again.tables) == (False, 0, [])
    again.offer([("t", boundaries((10, b"10"), (20, b"20")))])
    assert again.ranges("t") == [(START, END)]
    backfill = FlowBackfill.resume(BackfillRequest(1), after, "f")
    assert not backfill.offered, "nor does a backfill take it for its own"


def test_named_keys_are_read_once_and_the_table_finishes_behind_the_last() -> None:
    progress = verified()
    progress.confirm("t", [b"a", b"b", b"c"])
    assert (list(progress.named("t")), progress.finished) == ([b"a", b"b", b"c"], False)
    assert not progress.needs(chunk(0, 0, alone=(b"x",)))
    progress.offer([("t", Boundaries(8, ""))])
    assert progress.ranges("t") == [], "another list makes no difference to keys"
    first = replace(chunk(0, 0, alone=(b"a",), again=(b"a",)), left_out=(b"a",))
    assert progress.finishes(first, 0) == ()
    progress.took(first, 0)
    last = replace(chunk(0, 0, alone=(b"b", b"c", b"x"), again=(b"x",)), left_out=(b"x", b"c"), shards={b"c": "other"})
    assert progress.needs(last)
    assert progress.finishes(last, 1) == (FinishedTable("t", 4),)
    progress.took(last, 1)
    assert progress.finished
    assert progress.unconfirmed("t") == Unconfirmed(foreign=1, changed=1)


def test_keys_are_named_of_a_finished_table_only() -> None:
    progress = verified()
    progress.confirm("u", [b"a"])
    assert progress.finished
    progress.refuse("t", Problem("gone"))
    progress.confirm("t", [b"a"])
    progress.confirm("t", [b"b"])
    assert list(progress.named("t")) == [b"a"]


def test_a_truncated_table_is_compared_from_its_beginning_unless_it_is_finished() -> None:
    progress = verified()
    progress.begin_again("t")
    assert progress.finished, "it was compared as it was"
    progress.confirm("t", [b"a"])
    progress.begin_again("t")
    assert (progress.ranges("t"), list(progress.named("t"))) == ([(START, END)], [])


def test_rows_that_were_sent_of_a_table_before_it_was_refused_are_known(progress: FlowBackfill) -> None:
    progress.took(chunk(START, 10), 3)
    progress.refuse("t", Problem("it was dropped"))
    assert progress.rows_of("t") == 3
