"""``make bench CASE=peers``: the table, a shape at a time, and the targets with what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.binlog import SHAPES, Binlog, Shape, filled
from benchmarks.peers.builds import BUILDS, SOURCES
from benchmarks.peers.figures import Figures, ratio, spread
from benchmarks.peers.measure import Run, run
from benchmarks.peers.reader import BinlogReader, Programs
from benchmarks.peers.readers import DEBEZIUM_JSON, GO_JSON, OURS, every_reader
from benchmarks.peers.rounds import Bench, Measured, chosen, shown
from wormholectl.show.printer import print_table, print_text

__all__ = ["TARGETS", "bench", "peers_report", "verdicts"]

TARGETS: Final[Mapping[str, Mapping[str, float]]] = {
    GO_JSON: {"S1": 1.5, "S2": 1.0, "S3": 1.5, "S4": 1.0},
    DEBEZIUM_JSON: dict.fromkeys(("S1", "S2", "S3", "S4"), 5.0),
}
"""What the values-read figure must be, in multiples of a peer's in the same rounds."""


def peers_report(runs: int, *, scale: float, shapes: Sequence[str], only: str, build: Path) -> list[dict[str, Any]]:
    """Every shape of ``shapes`` (none: all), as ``make bench CASE=peers`` prints it. ``only``: the readers whose name
    contains one of these words (separated by commas).
    """
    build = build.absolute()  # some tools build in the folder of the sources
    readers = chosen(every_reader(build), only, BUILDS, SOURCES, build)
    return shown(bench(readers), shapes, runs, scale)


def bench(readers: Sequence[BinlogReader]) -> Bench[Programs, Binlog]:
    """These readers over binlogs of MariaDB."""
    return Bench(readers, SHAPES, filled, _run, _show)


def _run(reader: BinlogReader, binlog: Binlog, rows: int) -> Run:
    mark = binlog.marks[rows]
    programs = partial(reader.programs, binlog, mark)
    return run(programs, binlog.environment(mark), mark.expected, reads_values=reader.reads_values)


def _show(shape: Shape, readers: Sequence[BinlogReader], found: Measured) -> None:
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
