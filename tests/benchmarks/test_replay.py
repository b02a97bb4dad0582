"""What the benchmark of mass replay counts and how it tells it; its runs are for ``make bench CASE=replay``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import replay_report as module
from benchmarks.parquet import read
from benchmarks.replay import configuration, entries
from benchmarks.replay_report import break_even, draw
from benchmarks.store import _numbers
from tests.support.archives import put, tx, write_archive
from wormhole.config import load


def test_its_configuration_is_accepted(tmp_path: Path) -> None:
    config = load(configuration(tmp_path, 7401, 7402))
    archive = config.datasets["bench"].archive
    assert archive is not None
    assert archive.application in config.applications


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


def test_ratios_are_taken_run_by_run_and_the_picture_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def replayed(push_s: float) -> dict[str, float]:
        return {"updates": 1000, "push_s": push_s, "whole_s": push_s + 2, "command_s": push_s + 10, "ended": 0.0}

    archived = {"seconds": 3.0, "log_bytes": 100, "archive_bytes": 40, "files": 4, "cpu_s": 2.0, "peak_mib": 70.0}
    speed: dict[str, Any] = {
        "case": "1,000 of 100 B",
        "updates": 1000,
        "bytes": 115_000,
        "archived": [archived] * 3,
        "catch_up": [{"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 8.0}],
        "reader": [{"arrow_s": 0.5, "objects_s": 5.0}] * 3,
        "replay": {"local[2]": [replayed(4.0), replayed(2.0), replayed(4.0)]},
    }
    shares = [
        {
            "handler_us": us,
            "log": [replayed(4.0 + us)] * 3,
            "latest": [
                {"share": 0.33, "keys": 670, "runs": [replayed(6.0 + us), replayed(9.0 + us), replayed(5.0 + us)]},
                {"share": 0.99, "keys": 10, "runs": [replayed(1.0)]},
            ],
        }
        for us in (0, 20)
    ]
    module._print_archives([speed])
    module._print_speeds([speed])
    module._print_shares(shares)
    text = capsys.readouterr().out
    [row] = [row for row in text.splitlines() if "replay, local[2]" in row]
    assert re.split(r" {2,}", row)[2:] == ["250", "0", "1.00", "1.25", "6.0", "14.0"]
    assert "0.40" in text, "the archive's share of the log"
    [row] = [row for row in text.splitlines() if "latest: 33%" in row]
    assert re.split(r" {2,}", row)[1:] == ["670", "8.0 (x 0.8)", "28.0 (x 0.9)"]
    assert "an idle handler: `latest` is faster from 59% repeated on" in text
    assert "a handler of 20 us: `latest` is faster from 38% repeated on" in text
    draw(shares, tmp_path / "replay.png", 1000)
    assert (tmp_path / "replay.png").read_bytes().startswith(b"\x89PNG")
