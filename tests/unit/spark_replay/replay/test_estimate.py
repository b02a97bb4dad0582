"""The share of keys; what Spark counts is tested with the frames (``test_frames``)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from spark_replay.frames import ShardFiles
from spark_replay.replay.estimate import Estimate, Sketch, _hashes, estimate, is_small
from tests.support.archives import CUSTOMERS, manifest_of, marker_at, put, row, tx, write_archive
from tests.unit.spark_replay.replay.test_keyed import ALSO, as_in_files
from tests.unit.spark_replay.replay.test_latest import KEYLESS, OLD, Change
from wormhole.model.errors import ArchiveError
from wormhole.model.values import Op


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


def test_each_change_of_a_table_without_a_key_counts_as_a_key(tmp_path: Path) -> None:
    changes = [Change(Op.INSERT, 1, {"a": 1, "b": 1}, schema=schema) for schema in (KEYLESS, OLD, OLD, KEYLESS)]
    [batch] = as_in_files(changes, [])
    assert len(set(_hashes(batch))) == 1
    visits = replace(CUSTOMERS, table="shop.visits", key=())
    visit = replace(row(Op.INSERT, (1, "Ann", "Rome", 10), schema=visits), key=())
    store = write_archive(tmp_path / "archive", {"a": [[tx(visit), tx(visit)], [tx(visit, *[put(b"k", b"v")] * 3)]]})
    (found,) = estimate(None, store, [ShardFiles("a", manifest_of(store).files)]).values()
    assert (found.updates, found.keys) == (6, 4)


def test_a_small_range_is_looked_through_without_spark(tmp_path: Path) -> None:
    store = write_archive(
        tmp_path / "archive",
        {"a": [[tx(put(b"k1", b"v")), tx(put(b"k2", b"v"))], [tx(put(b"k1", b"w"), put(b"k3", b"w"))]]},
    )
    manifest = manifest_of(store)
    chosen = [ShardFiles("a", manifest.files, marker_at(1), marker_at(3))]
    assert is_small(chosen)
    assert not is_small([replace(chosen[0], files=(replace(manifest.files[0], raw=1 << 30),))])
    (found,) = estimate(None, store, chosen).values()
    assert (found.updates, found.keys) == (3, 3)
    Path(store.data_path("a", manifest.files[0].name)).unlink()
    with pytest.raises(ArchiveError, match=manifest.files[0].name):
        estimate(None, store, chosen)
