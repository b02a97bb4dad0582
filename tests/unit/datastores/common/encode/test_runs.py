"""Splitting columns over shards, in both forms; the property test compares with a model."""

from __future__ import annotations

from array import array
from types import ModuleType

from datastores.common.encode.piece import ALL_SHARDS, Piece
from tests.support.hot import hot_module
from wormhole.model.schema import Column, Schema

runs = hot_module("datastores.common.encode.runs")

SCHEMAS = [Schema(f"t{i}", (Column("key", "bytes"),), (Column("value", "bytes"),)) for i in range(3)]
NAMES = {0: "a", 1: "b", 2: "c"}


def piece(shard_of: list[int], tx_end: list[int], transactions: int, schema_of: tuple[int, ...] = (0,)) -> Piece:
    n = len(shard_of)
    return Piece(
        bytes(range(3 * n)),
        array("I", range(3, 3 * n + 1, 3)),
        array("I", schema_of),
        array("I", shard_of),
        array("Q", range(10, 10 + transactions)),
        array("Q", range(100, 100 + transactions)),
        array("I", tx_end),
    )


def test_one_shard_takes_the_columns_as_they_are(runs: ModuleType) -> None:
    p = piece([0], [1], 1, (2,))
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 4, set())
    assert list(found) == ["a"]
    run = found["a"]
    assert run.blob is p.blob
    assert (run.schemas, run.schema_index.tolist(), run.first_index) == ((SCHEMAS[2],), [], 4)
    assert (run.tx_file.tolist(), run.tx_committed_at_us.tolist()) == ([7], [5])


def test_the_end_of_a_transaction_reaches_shards_that_had_earlier_pieces(runs: ModuleType) -> None:
    p = piece([0, 0], [2], 1)
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 9, {0, 2})
    assert set(found) == {"a", "c"}
    assert (found["c"].updates, found["c"].tx_number.tolist(), found["c"].tx_end.tolist()) == (0, [10], [0])
    assert found["a"].indexes.tolist() == [9, 10]


def test_a_barrier_goes_to_every_known_shard(runs: ModuleType) -> None:
    p = piece([0, ALL_SHARDS, 1], [3], 1, (0, 1, 0))
    found = runs.runs_of(p, NAMES, SCHEMAS, ("src",), 7, array("q", [5]), 0, set())
    assert {name: run.indexes.tolist() for name, run in found.items()} == {"a": [0, 1], "b": [1, 2], "c": [1]}
    assert found["c"].schemas == (SCHEMAS[1],)
    assert found["b"].blob == p.blob[3:]
    assert found["a"].schema_index.tolist() == [0, 1]


def test_the_shards_of_the_transaction_that_goes_on(runs: ModuleType) -> None:
    assert runs.open_shards(piece([0, 1, 2], [1], 2), [0, 1, 2]) == {1, 2}
    assert runs.open_shards(piece([0, 1], [2], 1), [0, 1, 2]) == set()
    assert runs.open_shards(piece([0, ALL_SHARDS], [], 1), [0, 1, 2]) == {0, 1, 2}


def test_each_transaction_keeps_its_source(runs: ModuleType) -> None:
    p = piece([0, 1, 0], [1, 2, 3], 3)
    p.tx_source = array("I", [0, 1, 1])
    found = runs.runs_of(p, NAMES, SCHEMAS, ("s", "t"), 7, array("q", [5, 6, 7]), 0, set())
    assert {name: (run.sources, run.tx_source.tolist()) for name, run in found.items()} == {
        "a": (("s", "t"), [0, 1]),
        "b": (("s", "t"), [1]),
    }
    p.shard_of = array("I", [0])
    assert runs.runs_of(p, NAMES, SCHEMAS, ("s", "t"), 7, array("q", [5, 6, 7]), 0, set())["a"].tx_source.tolist() == [
        0,
        1,
        1,
    ]
