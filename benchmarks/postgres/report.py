"""``make bench CASE=postgres``: the table, a shape at a time, and the aims with what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import BenchmarkError
from benchmarks.peers.binlog import Shape, marks
from benchmarks.peers.builds import built
from benchmarks.peers.figures import Figures, figures, ratio, spread
from benchmarks.peers.measure import Run, run
from benchmarks.postgres.readers import FLOOR, OURS, POSTGRES_BUILDS, SECOND, SOURCES, WalReader, every_reader
from benchmarks.postgres.wal import SHAPES, Wal, filled
from wormholectl.show.printer import print_table, print_text

__all__ = ["AIM", "Measured", "measured", "postgres_report", "verdicts"]

AIM: Final = 0.7
"""What our rate must be of the floor's, for rows of 100 B."""
_SMALL: Final = 1000

Measured = dict[str, Figures | str]
"""By reader: its figures, or why there are none."""


def postgres_report(runs: int, *, scale: float, shapes: Sequence[str], only: str, build: Path) -> list[dict[str, Any]]:
    """Every shape of ``shapes`` (none: all). ``only``: of the readers those whose name contains one of these words
    (separated by commas).
    """
    build = build.absolute()  # some tools build in the folder of the sources
    missing = {}
    for name, commands in POSTGRES_BUILDS.items():
        print_text(f"  building {name} ...", flush=True)
        missing[name] = built(name, build / name, commands, SOURCES / name)
    words = [word for word in only.lower().split(",") if word]
    readers = [
        reader
        for reader in every_reader(build, missing)
        if not words or any(word in reader.name.lower() for word in words)
    ]
    told = []
    for shape in SHAPES:
        if shapes and shape.name not in shapes:
            continue
        left = marks(shape, [reader.divisor for reader in readers], scale)
        print_text(f"  {shape.title}: filling a server with {left[0]:,} rows ...", flush=True)
        with filled(shape, left) as wal:
            found = measured(readers, shape, wal, runs, scale)
        _print_shape(shape, readers, found)
        figures_ = {name: {"missing": one} if isinstance(one, str) else asdict(one) for name, one in found.items()}
        told.append({"shape": shape.title, "readers": figures_})
    return told


def measured(readers: Sequence[WalReader], shape: Shape, wal: Wal, runs: int, scale: float) -> Measured:
    """Rounds in which each reader reads N rows and then 2N. One that fails is left out of later rounds."""
    rounds: dict[str, list[tuple[Run, Run]]] = {reader.name: [] for reader in readers}
    failed = {reader.name: f"not built: {reader.missing}" for reader in readers if reader.missing}
    for number in range(runs):
        print_text(f"  {shape.title}: round {number + 1} of {runs} ...", flush=True)
        for reader in readers:
            if reader.name in failed:
                continue
            large, small = marks(shape, [reader.divisor], scale)
            try:
                rounds[reader.name].append((_run(reader, wal, small), _run(reader, wal, large)))
            except (BenchmarkError, OSError) as error:
                failed[reader.name] = f"failed: {error}"
    return {name: failed.get(name) or figures(pairs) for name, pairs in rounds.items()}


def _run(reader: WalReader, wal: Wal, rows: int) -> Run:
    place = wal.places[rows]
    programs = partial(reader.programs, wal)
    with wal.slots(place):
        return run(programs, wal.environment(place), place.expected, reads_values=reader.reads_values)


def _print_shape(shape: Shape, readers: Sequence[WalReader], found: Measured) -> None:
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
