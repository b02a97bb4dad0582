"""Rounds of a scan, and the window of each chunk."""

from __future__ import annotations

from dataclasses import replace

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FlowBackfill
from caravan.scan.rounds import NextRows, Taker, next_work
from caravan.scan.window import ScanWindow
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange, Segment
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

# --- Which rows are read next


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


# --- What is noted of the segments that the lead reads beside a chunk, and what spoils the chunk


def place(offset: int, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, 1, offset)


def marker(offset: int) -> Datamarker:
    return Datamarker(place(offset), str(offset), place(offset))


def log(begin: int, end: int, table: str = "t", number: int = 0, *, ends: bool = True) -> Segment:
    builder = RunsBuilder()
    builder.begin("mem", number or end, 0, place(begin))
    builder.add(("s",), Schema(table, (Column("id", "int"),), ()), encode_row(Op.INSERT, (1,)))
    if ends:
        builder.end(place(end))
    return Segment(place(begin), place(end if ends else begin), builder.take(), marker(end) if ends else None, 1)


def window(*segments: Segment, budget: int = 10_000) -> ScanWindow:
    found = ScanWindow("t", marker(0), budget)
    for segment in segments:
        found.note(segment)
    return found


def test_keeps_the_runs_of_the_table_only() -> None:
    found = window(log(0, 1), log(1, 2, "u"), log(2, 3))
    assert found.segments == 3
    assert len(found.pieces) == 2
    assert not found.spoiled


def test_over_the_budget_it_is_spoiled() -> None:
    found = window(*(log(i, i + 1) for i in range(10)), budget=1000)
    assert found.over_budget
    assert found.spoiled
    assert not found.pieces
    assert not window(*(log(i, i + 1, "u") for i in range(10)), budget=1000).spoiled


def test_a_gap_another_history_and_an_undecodable_change_spoil_it() -> None:
    gap = LogGap(LossKind.NOT_LOGGED, "1", "2", "lost")
    assert "missing" in window(replace(log(0, 1), gap=gap)).spoiled
    later = replace(log(0, 1), end=place(0, 2), begin=place(0, 2))
    assert "history" in window(later).spoiled
    assert "decoded" in window(replace(log(0, 1), broken={"s": DecodeError("bad")})).spoiled
    assert "decoded" in window(replace(log(0, 1), broken={"s": DecodeError("bad", tables=("t",))})).spoiled
    assert not window(replace(log(0, 1), broken={"s": DecodeError("bad", tables=("u",))})).spoiled


def test_a_transaction_that_was_rolled_back_spoils_it() -> None:
    begun = log(0, 1, number=7, ends=False)
    assert not window(begun, log(0, 1, number=7)).spoiled
    assert "rolled back" in window(begun, log(0, 1, number=8)).spoiled
