"""Counts and checksum of updates."""

from __future__ import annotations

from array import array
from random import Random
from types import ModuleType
from typing import Any

from tests.support.hot import hot_module
from tests.support.present import present
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run
from wormhole.model.values import Op
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.tally import WINDOW_S

tally = hot_module("wormhole.wire.tally")

SCHEMA = Schema("users", (Column("key", "bytes"),), (Column("value", "bytes"),))
ROW = encode_row(Op.UPSERT, (b"k",), after=(b"v",))
US = WINDOW_S * 1_000_000


def one_by_one(tally: ModuleType, run: Run, kept: list[int] | None = None) -> dict[int, Any]:
    """What the tally has to be, from the parsed body, update by update."""
    body = build_body(run, 1, kept)
    if body is None:
        return {}
    parsed = parse_body(body.data)
    found: dict[int, Any] = {}
    for i in range(len(parsed.updates)):
        tx = parsed.transaction_of(i)
        source, number = parsed.transaction_id(tx).rsplit(":", 1)
        one = {
            tally.window_of(parsed.committed_at_us(tx)): tally.Tally(
                1, tally.update_hash(source, int(number), parsed.index_of(i))
            )
        }
        tally.added(found, one)
    return found


def random_runs(random: Random) -> list[Run]:
    """Runs of two shards with cut transactions, several sources and several windows."""
    builder, offset = RunsBuilder(), 0
    runs: list[Run] = []
    for _ in range(random.randrange(1, 8)):
        source, at = random.choice(["rocks", "3e11fa47"]), random.choice([0, 5, US, 7 * US])
        builder.begin(source, random.randrange(2**64), at, LogPosition(1, 2, offset))
        for _ in range(random.randrange(4)):
            builder.add(random.choice([["x"], ["x", "y"], ["y"]]), SCHEMA, ROW)
            if random.random() < 0.2:
                runs += builder.take().values()
        offset += 10
        builder.end(LogPosition(1, 2, offset))
    return [*runs, *builder.take().values()]


def test_the_hash_stays_what_it_is(tally: ModuleType) -> None:
    # Books and archives keep it: whoever changes it makes them differ for ever.
    assert tally.update_hash("rocks", 42, 0) == 0xC832_4AA7_B1B3_23D1
    assert tally.update_hash("3e11fa47-71ca-11e1-9e33-c80aa9429562", 7, 3) == 0xD7AF_86B0_2888_45E4
    assert tally.update_hash("rocks", -1, 5) == tally.update_hash("rocks", 2**64 - 1, 5)


def test_windows_are_ten_minutes_of_commit_time(tally: ModuleType) -> None:
    assert [tally.window_of(at) for at in (0, US - 1, US, -1)] == [0, 0, 1, -1]


def test_runs_bodies_and_rows_tally_alike(tally: ModuleType) -> None:
    random = Random(7)
    for _ in range(200):
        for run in random_runs(random):
            expected = one_by_one(tally, run)
            assert tally.tally_run(run) == expected
            kept = [i for i in range(run.updates) if random.random() < 0.5]
            body = build_body(run, 1, kept)
            if body is None:
                continue
            assert body.tallies == one_by_one(tally, run, kept)
            parsed = parse_body(body.data)
            txs = [parsed.transaction_of(i) for i in range(len(parsed.updates))]
            ids = [parsed.transaction_id(tx).rsplit(":", 1) for tx in txs]
            signed = [int(n) - 2**64 if int(n) >= 2**63 else int(n) for _, n in ids]
            indexes = [parsed.index_of(i) for i in range(len(txs))]
            times = [parsed.committed_at_us(tx) or None for tx in txs]
            assert tally.tally_rows([s for s, _ in ids], signed, indexes, times) == one_by_one(tally, run, kept)


def test_one_entry_is_used_for_all_sources_and_times(tally: ModuleType) -> None:
    spelled = tally.tally_columns(
        ["a", "b"], array("I", [1, 1]), array("Q", [3, 4]), array("q", [US, US]), array("I", [1, 3]), array("I"), 0, 3
    )
    packed = tally.tally_columns(
        ["a", "b"], array("I", [1]), array("Q", [3, 4]), array("q", [US]), array("I", [1, 3]), array("I"), 0, 3
    )
    expected = sum(tally.update_hash("b", *one) for one in ((3, 0), (4, 0), (4, 1))) % 2**64
    assert spelled == packed == {1: tally.Tally(3, expected)}


def test_what_is_missing_is_what_is_left(tally: ModuleType) -> None:
    whole = {0: tally.Tally(2, 2**64 - 1), 5: tally.Tally(1, 9)}
    assert tally.total(whole) == tally.Tally(3, 8)
    assert tally.total(whole).minus(tally.Tally(2, 2**64 - 1)) == tally.Tally(1, 9)
    tally.added(whole, {5: tally.Tally(1, 2), 6: tally.Tally(1, 1)})
    assert whole == {0: tally.Tally(2, 2**64 - 1), 5: tally.Tally(2, 11), 6: tally.Tally(1, 1)}


def test_a_body_of_one_window_is_marked(tally: ModuleType) -> None:
    random = Random(9)
    for run in [run for _ in range(50) for run in random_runs(random)]:
        body = present(build_body(run, 1))
        parsed = parse_body(body.data)
        assert parsed.window == (next(iter(body.tallies)) if len(body.tallies) == 1 else None)
        assert parse_body(parsed.to_bytes()).window == parsed.window
