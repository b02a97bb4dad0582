"""What each benchmark measures with, prints and configures; its loads are for ``make bench``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import caravans, existing_rows, many_flows, operate, replay
from benchmarks.existing_rows import quantile
from benchmarks.machine import Machine, processor
from benchmarks.operate import imported, resident_mb
from benchmarks.parquet import read
from benchmarks.peers.binlog import Shape, marks
from benchmarks.peers.figures import Figures
from benchmarks.peers.rounds import Measured, measured
from benchmarks.postgres.readers import FLOOR, OURS, every_reader
from benchmarks.postgres.report import bench, verdicts
from benchmarks.postgres.wal import SHAPES, filled
from benchmarks.relay import frames, smaller
from benchmarks.replay import entries
from benchmarks.replay_report import break_even
from benchmarks.store import _numbers
from tests.support.archives import put, tx, write_archive
from wormhole.config import load

# --- machine: what the output says about the machine ---


def test_the_processor_is_the_model_that_the_kernel_names() -> None:
    assert processor("processor\t: 0\nmodel name\t: One @ 3.1 GHz\nmodel name\t: Other\n") == "One @ 3.1 GHz"
    assert processor("processor\t: 0\n") == "unknown processor"


def test_cores_load_and_priority_are_named() -> None:
    text = str(Machine.current())
    assert text.startswith(f"{os.cpu_count()} cores (")
    assert "load " in text
    program = "from benchmarks.machine import Machine; print(Machine.current())"
    command = ["nice", "-n", "19", sys.executable, "-c", program]
    assert "normal (nice 19) priority" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


# --- existing rows ---


def test_a_quantile_is_a_value_and_of_nothing_is_none() -> None:
    assert quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert quantile(range(100), 0.99) == 99
    assert quantile([], 0.99) != quantile([], 0.99)


# --- operate ---


def test_memory_is_in_megabytes_and_the_anonymous_part_is_a_part() -> None:
    resident, anonymous = resident_mb(os.getpid())
    assert 5 < anonymous < resident < 5000
    bare = imported("")
    assert 3 < bare.resident_mb < resident
    assert bare.seconds > 0


# --- relay: what the benchmark of the relay prints; its runs are for ``make bench CASE=relay`` ---


_STACKS = """\
thread (0x1): "MainThread";run (a.py:1);poll (b.py:2) 6
thread (0x1): "MainThread";run (a.py:1);decode (c.py:3) 3
thread (0x2): "relay";write (d.py:4) 1
"""


def test_a_smaller_shape_has_whole_transactions() -> None:
    assert smaller(Shape("S", 100, 500, 2600), 0.5).rows == 1000
    assert smaller(Shape("S", 100, 500, 600), 0.1).rows == 500


def test_a_profile_names_what_is_on_the_processor(tmp_path: Path) -> None:
    profile = tmp_path / "stacks.txt"
    profile.write_text(_STACKS)
    assert frames(profile, 2) == [("poll (b.py:2)", 0.6), ("decode (c.py:3)", 0.3)]
    profile.write_text("")
    assert frames(profile) == []


# --- replay ---


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


# --- configurations: the configuration that each benchmark writes is accepted ---


_SERVER: Any = SimpleNamespace(url="mariadb://wormhole@127.0.0.1:3306/", password_file="/nonexistent/password")


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: caravans.configuration(folder, [7401, 7402], ["latest", "1/4/100"], "max = 2", "1MiB"),
        lambda folder: existing_rows.configuration(folder, _SERVER, [7401, 7402], existing_rows.UNLIMITED),
        lambda folder: many_flows.configuration(folder, "127.0.0.1:2181/bench", 12, "zookeeper"),
        lambda folder: operate.configuration(folder, 7480, 7401, [f'source = "rocksdb://{folder}/store"']),
        lambda folder: replay.configuration(folder, 7401, 7402),
    ],
    ids=["caravans", "existing rows", "many flows", "operate", "replay"],
)
def test_it_is_accepted(write: Callable[[Path], Path], tmp_path: Path) -> None:
    assert load(write(tmp_path)).applications


# --- postgres ---


def test_the_aim_is_for_small_rows_and_the_others_are_compared_by_their_best() -> None:
    floor, ours, slower = (Figures((rate, rate), ()) for rate in (100.0, 71.0, 50.0))
    found: Measured = {
        FLOOR: floor,
        OURS: ours,
        "slow": slower,
        "fast": replace(ours, rows_per_s=(70.0, 80.0)),
        "none": "failed",
    }
    assert verdicts(SHAPES[0], found) == [
        "S1: 0.71 of pg_recvlogical's rows/s; aim 0.7, met",
        f"S1: {OURS}: 0.95 x fast; NOT ahead",
    ]
    assert verdicts(SHAPES[1], {FLOOR: floor, OURS: ours, "slow": slower}) == [f"S2: {OURS}: 1.42 x slow; ahead of all"]
    assert "MISSED" in verdicts(SHAPES[2], {FLOOR: floor, OURS: slower})[0]


@pytest.mark.soak
def test_readers_without_a_toolchain_read_everything() -> None:
    shape = replace(SHAPES[0], rows=2000)
    readers = [one for one in every_reader(Path("build/postgres")) if one.name in (FLOOR, OURS)]
    with filled(shape, marks(shape, [1], 1.0)) as wal:
        found = measured(bench(readers), shape, wal, 1, 1.0)
    assert {name: one for name, one in found.items() if isinstance(one, str)} == {}
    ours = found[OURS]
    assert isinstance(ours, Figures)
    assert min(ours.peak_mib) > 10
