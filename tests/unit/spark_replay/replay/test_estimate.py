"""The share of keys; what Spark counts is tested with the frames (``test_frames``)."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from spark_replay.replay.estimate import Estimate, Sketch, _hashes
from tests.unit.spark_replay.replay.test_keyed import ALSO, as_in_files
from tests.unit.spark_replay.replay.test_latest import OLD, Change
from wormhole.values import Op


@pytest.mark.parametrize(("updates", "keys", "share"), [(100, 25, 0.25), (7, 7, 1.0), (100, 102, 1.0), (0, 0, 1.0)])
def test_keys_per_update_are_never_more_than_one(updates: int, keys: int, share: float) -> None:
    assert Estimate("a", updates, 0, keys).distinct == share


@pytest.mark.parametrize("keys", [0, 1, 4095, 4096, 50_000])
def test_a_sketch_knows_how_many_keys_there_are_in_little_memory(keys: int) -> None:
    found, half = Sketch(), Sketch()
    for first in range(0, keys, 1000):
        batch = [blake2b(b"%d" % key, digest_size=8).digest() for key in range(first, min(keys, first + 1000))]
        (half if first % 2000 else found).add(int.from_bytes(one) for one in [*batch, *batch])
    found.add(half.hashes)
    assert len(found.hashes) == min(keys, 4096)
    assert found.count == (keys if keys < 4096 else pytest.approx(keys, rel=0.05))


def test_a_key_counts_once_in_each_table() -> None:
    changes = [Change(Op.UPDATE, id_, {"a": 1, "b": 1}, schema=schema) for id_ in (1, 2, 1) for schema in (OLD, ALSO)]
    [batch] = as_in_files(changes, [])
    assert len(set(_hashes(batch))) == 4
