"""What the benchmark of mass replay counts and how it tells it; its runs are for ``make bench CASE=replay``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parquet import read
from benchmarks.replay import entries
from benchmarks.replay_report import break_even
from benchmarks.store import _numbers
from tests.support.archives import put, tx, write_archive


def test_every_key_comes_and_the_rest_are_repeats() -> None:
    assert list(_numbers(5, 5)) == [0, 1, 2, 3, 4]
    numbers = _numbers(120, 100)
    assert len(numbers) == 120
    assert set(numbers) == set(range(100))
    assert list(numbers) == list(_numbers(120, 100)), "each run measures the same log"


def test_a_plain_reader_sees_every_row(tmp_path: Path) -> None:
    shards = {"a": [[tx(put(b"1", b"v")), tx(put(b"2", b"v"))]], "b": [[tx(put(b"3", b"v"))]]}
    store = write_archive(tmp_path / "archive", shards)
    named = entries(store)
    assert [(shard, entry.rows) for shard, entry in named] == [("a", 2), ("b", 1)]
    files = [store.data_path(shard, entry.name) for shard, entry in named]
    assert read(files, objects=False)[0] == read(files, objects=True)[0] == 3


@pytest.mark.parametrize(
    ("points", "share"),
    [
        ([(0.2, 1.0, 3.0), (0.4, 2.0, 2.0), (0.6, 3.0, 1.0)], 0.4),
        ([(0.2, 1.0, 3.0), (0.6, 3.0, 1.0)], 0.4),
        ([(0.2, 2.0, 1.0), (0.6, 3.0, 1.0)], 0.2),
        ([(0.2, 1.0, 2.0), (0.6, 1.0, 2.0)], None),
        ([(0.2, 2.0, 1.0), (0.4, 1.0, 2.0), (0.6, 2.0, 1.0)], 0.5),
    ],
)
def test_from_where_on_latest_is_faster(points: list[tuple[float, float, float]], share: float | None) -> None:
    assert break_even(points) == (None if share is None else pytest.approx(share))
