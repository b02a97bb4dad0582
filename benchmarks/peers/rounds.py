"""Rounds: every reader reads the same log in turn, a shape at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.cases import BenchmarkError
from benchmarks.peers.binlog import Shape, marks
from benchmarks.peers.builds import Commands, built
from benchmarks.peers.figures import Figures, figures
from benchmarks.peers.measure import Run
from benchmarks.peers.reader import Reader
from wormholectl.show.printer import print_text

__all__ = ["Bench", "Measured", "chosen", "measured", "shown"]

P = TypeVar("P")
L = TypeVar("L")

Measured = dict[str, Figures | str]
"""By reader: its figures, or why there are none."""


@dataclass(frozen=True)
class Bench(Generic[P, L]):
    """A log and its readers. ``filled``: a server whose log holds the rows of a shape, with the marks of
    :func:`~benchmarks.peers.binlog.marks`; ``run``: one reader over this many rows; ``show``: prints a shape's table.
    """

    readers: Sequence[Reader[P]]
    shapes: Sequence[Shape]
    filled: Callable[[Shape, Sequence[int]], AbstractContextManager[L]]
    run: Callable[[Reader[P], L, int], Run]
    show: Callable[[Shape, Sequence[Reader[P]], Measured], None]


def chosen(
    readers: Sequence[Reader[P]], words: str, builds: dict[str, Commands], sources: Path, target: Path
) -> list[Reader[P]]:
    """The readers whose name contains one of these words (separated by commas; none: all), with what they need
    built, or why it is missing.
    """
    wanted = [word for word in words.lower().split(",") if word]
    found = [reader for reader in readers if not wanted or any(word in reader.name.lower() for word in wanted)]
    missing = {}
    for name in dict.fromkeys(name for reader in found for name in reader.needs):
        print_text(f"  building {name} ...", flush=True)
        missing[name] = built(name, target / name, builds[name], sources / name)
    return [replace(reader, missing="; ".join(filter(None, map(missing.get, reader.needs)))) for reader in found]


def shown(bench: Bench[P, L], names: Sequence[str], runs: int, scale: float) -> list[dict[str, Any]]:
    """Measure and print the shapes with these ``names`` (none: all); the figures again for JSON."""
    done = []
    for shape in bench.shapes:
        if names and shape.name not in names:
            continue
        left = marks(shape, [reader.divisor for reader in bench.readers], scale)
        print_text(f"  {shape.title}: filling a server with {left[0]:,} rows ...", flush=True)
        with bench.filled(shape, left) as log:
            found = measured(bench, shape, log, runs, scale)
        bench.show(shape, bench.readers, found)
        figures_ = {name: {"missing": one} if isinstance(one, str) else asdict(one) for name, one in found.items()}
        done.append({"shape": shape.title, "readers": figures_})
    return done


def measured(bench: Bench[P, L], shape: Shape, log: L, runs: int, scale: float) -> Measured:
    """Rounds in which each reader reads N rows and then 2N. One that fails is left out of later rounds."""
    rounds: dict[str, list[tuple[Run, Run]]] = {reader.name: [] for reader in bench.readers}
    failed = {reader.name: f"not built: {reader.missing}" for reader in bench.readers if reader.missing}
    for number in range(runs):
        print_text(f"  {shape.title}: round {number + 1} of {runs} ...", flush=True)
        for reader in bench.readers:
            if reader.name in failed:
                continue
            large, small = marks(shape, [reader.divisor], scale)
            try:
                rounds[reader.name].append((bench.run(reader, log, small), bench.run(reader, log, large)))
            except (BenchmarkError, OSError) as error:
                failed[reader.name] = f"failed: {error}"
    return {name: failed.get(name) or figures(pairs) for name, pairs in rounds.items()}
