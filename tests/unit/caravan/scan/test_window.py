"""What is noted of the segments that the lead reads beside a chunk, and what spoils the chunk."""

from __future__ import annotations

from dataclasses import replace

from caravan.scan.window import ScanWindow
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder


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
