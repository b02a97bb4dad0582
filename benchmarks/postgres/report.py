"""``make bench CASE=postgres``: the table, a shape at a time, and the aims with what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.binlog import Shape
from benchmarks.peers.figures import Figures, ratio, spread
from benchmarks.peers.measure import Run, run
from benchmarks.peers.rounds import Bench, Measured, chosen, shown
from benchmarks.postgres.readers import (
    FLOOR,
    OURS,
    POSTGRES_BUILDS,
    SECOND,
    SOURCES,
    Programs,
    WalReader,
    every_reader,
)
from benchmarks.postgres.wal import SHAPES, Wal, filled
from wormholectl.show.printer import print_table, print_text

__all__ = ["AIM", "bench", "postgres_report", "verdicts"]

AIM: Final = 0.7
"""What our rate must be of the floor's, for rows of 100 B."""
_SMALL: Final = 1000


def postgres_report(runs: int, *, scale: float, shapes: Sequence[str], only: str, build: Path) -> list[dict[str, Any]]:
    """Every shape of ``shapes`` (none: all). ``only``: the readers whose name contains one of these words
    (separated by commas).
    """
    build = build.absolute()  # some tools build in the folder of the sources
    readers = chosen(every_reader(build), only, POSTGRES_BUILDS, SOURCES, build)
    return shown(bench(readers), shapes, runs, scale)


def bench(readers: Sequence[WalReader]) -> Bench[Programs, Wal]:
    """These readers over the logs of a PostgreSQL."""
    return Bench(readers, SHAPES, filled, _run, _show)


def _run(reader: WalReader, wal: Wal, rows: int) -> Run:
    place = wal.places[rows]
    programs = partial(reader.programs, wal)
    with wal.slots(place):
        return run(programs, wal.environment(place), place.expected, reads_values=reader.reads_values)


def _show(shape: Shape, readers: Sequence[WalReader], found: Measured) -> None:
    columns = ("reader", "rows/s", "of the floor", "processor us a row", "peak MiB", "with the bytes it")
    floor = found.get(FLOOR)
    rows = []
    for reader in readers:
        one = found[reader.name]
        if isinstance(one, str):
            rows.append((reader.name, one, "", "", "", reader.does))
            continue
        share = spread(ratio(one, floor), 2) if isinstance(floor, Figures) else ""
        memory = f"{max(one.peak_mib):.0f}"
        rows.append((reader.name, spread(one.rows_per_s), share, spread(one.us_a_row, 2), memory, reader.does))
    print_table(columns, rows, "", f"{shape.title}; rows/s from the first row to the last; median (min - max)")
    for text in verdicts(shape, found):
        print_text(text)


def verdicts(shape: Shape, found: Measured) -> list[str]:
    """One sentence for each aim of the shape whose figures are there."""
    measured_ = {name: one for name, one in found.items() if isinstance(one, Figures)}
    ours, floor = measured_.get(OURS), measured_.get(FLOOR)
    said = []
    if ours is not None and floor is not None and shape.size < _SMALL:
        share = statistics.median(ratio(ours, floor))
        verdict = "met" if share >= AIM else "MISSED"
        said.append(f"{shape.name}: {share:.2f} of pg_recvlogical's rows/s; aim {AIM:g}, {verdict}")
    others = {name: one for name, one in measured_.items() if name not in (FLOOR, OURS, SECOND)}
    for mine in (OURS, SECOND):
        if mine in measured_ and others:
            times = {name: statistics.median(ratio(measured_[mine], one)) for name, one in others.items()}
            nearest = min(times, key=lambda name: times[name])
            verdict = "ahead of all" if times[nearest] > 1 else "NOT ahead"
            said.append(f"{shape.name}: {mine}: {times[nearest]:.2f} x {nearest}; {verdict}")
    return said
