"""Which rows are read next."""

from __future__ import annotations

from dataclasses import replace

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FlowBackfill
from caravan.scan.rounds import NextRows, Taker, next_work
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema
from wormhole.model.segment import ChunkRange


def test_a_number_of_a_list_that_was_replaced_is_not_read_from() -> None:
    """The key of a table changed, and its list was begun anew, while the scan was in the middle of it."""
    lists = {"t": Boundaries(2, "other")}
    backfill = FlowBackfill(BackfillRequest(1), "f")
    backfill.offer(lists.items())
    assert next_work([Taker(backfill)], lists, "t", 7 << 64) == NextRows("t", START, END)


def test_keys_that_subscribers_named_are_read_by_themselves_and_last() -> None:
    lists = {"t": Boundaries(2, "")}
    taker = Taker(FlowBackfill(BackfillRequest(1, verify=True), "f"))
    taker.backfill.offer(lists.items())
    everything = ChunkRange("t", Schema("t", (), ()), None, None, START, END, LogPosition(1, 1, 0))
    taker.backfill.took(everything, 0)
    keys = [b"%d" % number for number in range(700)]
    taker.backfill.confirm("t", keys)
    taker.backfill.read_again("t", b"again")
    assert next_work([taker], lists, "t", START) == NextRows("t", alone=(b"again",))
    taker.backfill.took(replace(everything, end=START, alone=(b"again",)), 1)
    work = next_work([taker], lists, "t", START)
    assert work == NextRows("t", alone=tuple(keys[:500]), named=True)
    coming = Taker(taker.backfill, (replace(everything, end=START, alone=work.alone),))
    assert next_work([coming], lists, "t", START) == NextRows("t", alone=tuple(keys[500:]), named=True)


def taken(*tables: str) -> tuple[FlowBackfill, dict[str, Boundaries]]:
    lists = {table: Boundaries(1, "", {5: b"5"}) for table in tables}
    backfill = FlowBackfill(BackfillRequest(1), "f")
    backfill.offer(lists.items())
    return backfill, lists


def test_after_a_chunk_in_vain_another_table_comes_first() -> None:
    backfill, lists = taken("a", "b", "c")
    takers = [Taker(backfill)]
    assert next_work(takers, lists, "b", START) == NextRows("b", START, 5)
    assert next_work(takers, lists, "b", START, failed=True) == NextRows("c", START, 5)
    assert next_work(takers, lists, "c", START, failed=True) == NextRows("a", START, 5)
    alone, one = taken("b")
    assert next_work([Taker(alone)], one, "b", START, failed=True) == NextRows("b", START, 5)


def test_what_is_needed_again_of_a_table_comes_after_the_others() -> None:
    """A table that is truncated faster than it is read holds up no other one."""
    backfill, lists = taken("a", "b")
    takers = [Taker(backfill)]
    assert next_work(takers, lists, "a", 5) == NextRows("a", 5, END)
    assert next_work(takers, lists, "a", END) == NextRows("b", START, 5)
    assert next_work(takers, lists, "b", END) == NextRows("a", START, 5)
    backfill.refuse("b", Problem("gone"))
    assert next_work(takers, lists, "a", END) == NextRows("a", START, 5)
