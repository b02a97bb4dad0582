"""``make bench CASE=peers``: the table, a shape at a time, and the targets with what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import BenchmarkError
from benchmarks.peers.binlog import SHAPES, Binlog, Shape, filled, marks
from benchmarks.peers.builds import BUILDS, SOURCES, built
from benchmarks.peers.figures import Figures, figures, ratio, spread
from benchmarks.peers.measure import Run, run
from benchmarks.peers.reader import BinlogReader
from benchmarks.peers.readers import DEBEZIUM_JSON, GO_JSON, OURS, every_reader
from wormholectl.show.printer import print_table, print_text

__all__ = ["TARGETS", "measured", "peers_report", "print_shape", "verdicts"]

TARGETS: Final[Mapping[str, Mapping[str, float]]] = {
    GO_JSON: {"S1": 1.5, "S2": 1.0, "S3": 1.5, "S4": 1.0},
    DEBEZIUM_JSON: dict.fromkeys(("S1", "S2", "S3", "S4"), 5.0),
}
"""What the values-read figure must be, in multiples of a peer's in the same rounds."""

Measured = dict[str, Figures | str]
"""By reader: its figures, or why there are none."""


def peers_report(runs: int, *, scale: float, shapes: Sequence[str], only: str, build: Path) -> list[dict[str, Any]]:
    """Every shape of ``shapes`` (none: all), as ``make bench CASE=peers`` prints it. ``only``: of the readers those
    whose name contains one of these words (separated by commas).
    """
    build = build.absolute()  # some tools build in the folder of the sources
    words = [word for word in only.lower().split(",") if word]
    readers = [
        reader for reader in every_reader(build) if not words or any(word in reader.name.lower() for word in words)
    ]
    missing = {}
    for name in dict.fromkeys(name for reader in readers for name in reader.needs):
        print_text(f"  building {name} ...", flush=True)
        missing[name] = built(name, build / name, BUILDS[name], SOURCES / name)
    readers = [replace(reader, missing="; ".join(filter(None, map(missing.get, reader.needs)))) for reader in readers]
    told = []
    for shape in SHAPES:
        if shapes and shape.name not in shapes:
            continue
        left = marks(shape, [reader.divisor for reader in readers], scale)
        print_text(f"  {shape.title}: filling a server with {left[0]:,} rows ...", flush=True)
        with filled(shape, left) as binlog:
            found = measured(readers, shape, binlog, runs, scale)
        print_shape(shape, readers, found)
        told.append({"shape": shape.title, "readers": {name: _told(one) for name, one in found.items()}})
    return told


def measured(readers: Sequence[BinlogReader], shape: Shape, binlog: Binlog, runs: int, scale: float) -> Measured:
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
                rounds[reader.name].append((_run(reader, binlog, small), _run(reader, binlog, large)))
            except (BenchmarkError, OSError) as error:
                failed[reader.name] = f"failed: {error}"
    return {name: failed.get(name) or figures(pairs) for name, pairs in rounds.items()}


def _run(reader: BinlogReader, binlog: Binlog, rows: int) -> Run:
    mark = binlog.marks[rows]
    programs = partial(reader.programs, binlog, mark)
    return run(programs, binlog.environment(mark), mark.expected, reads_values=reader.reads_values)


def print_shape(shape: Shape, readers: Sequence[BinlogReader], found: Measured) -> None:
    """The table of one shape, and what of the targets is met."""
    columns = ("reader", "rows/s", "processor us a row", "ours, of it", "with the bytes it")
    ours = found.get(OURS)
    rows = []
    for reader in readers:
        one = found[reader.name]
        if isinstance(one, str):
            rows.append((reader.name, one, "", "", reader.does))
            continue
        times = spread(ratio(ours, one), 2) if isinstance(ours, Figures) else ""
        rows.append((reader.name, spread(one.rows_per_s), spread(one.us_a_row, 1), times, reader.does))
    print_table(columns, rows, "", f"{shape.title}; rows/s from the first row to the last; median (min - max)")
    for text in verdicts(shape.name, found):
        print_text(text)


def verdicts(shape: str, found: Measured) -> list[str]:
    """One sentence for each target of the shape whose figures are there."""
    ours = found.get(OURS)
    said = []
    for peer, targets in TARGETS.items():
        theirs = found.get(peer)
        if isinstance(ours, Figures) and isinstance(theirs, Figures):
            times = statistics.median(ratio(ours, theirs))
            verdict = "met" if times >= targets[shape] else "MISSED"
            said.append(f"{shape}: values read, {times:.2f} x {peer}; target {targets[shape]:g}, {verdict}")
    return said


def _told(one: Figures | str) -> dict[str, Any]:
    return {"missing": one} if isinstance(one, str) else asdict(one)
