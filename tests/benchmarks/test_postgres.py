"""The benchmark of PostgreSQL's log: what it says of its aims, and the readers that need no toolchain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.binlog import marks
from benchmarks.peers.figures import Figures
from benchmarks.peers.rounds import Measured, measured
from benchmarks.postgres.readers import FLOOR, OURS, every_reader
from benchmarks.postgres.report import bench, verdicts
from benchmarks.postgres.wal import SHAPES, filled


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
