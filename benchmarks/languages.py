"""Compares the Go, TypeScript and Python libraries: updates per second of a subscriber that reads all values.

    python -m benchmarks.languages [RUNS]

Each subscriber dials a publisher whose log was written beforehand, and takes several updates in one call. Go and Node
have to be installed. All three run directly after each other, so that a busy machine changes the ratios only a little.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cases import filled_store, scratch, throughput
from benchmarks.machine import load
from scripts.clients import built_go, built_typescript
from wormholectl.show.printer import print_table

__all__ = ["main"]

_SIZES: Final = ((100, 1_000_000), (2500, 200_000))
_COLUMNS: Final = ("case", "Python", "Go", "TypeScript", "Go to Python", "TypeScript to Python")


def main() -> None:
    """See the module."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with scratch() as built:
        rows = [row for size, count in _SIZES for row in _rows(_commands(built), size, count, runs)]
    print_table(_COLUMNS, rows, "", f"medians of {runs} runs, load {load():.1f}")


def _commands(folder: Path) -> Mapping[str, Sequence[str]]:
    """The subscriber of each language; empty: the one of the benchmarks."""
    go, typescript = folder / "updaterate", folder / "typescript"
    if not go.exists():
        built_go("updaterate", folder)
        built_typescript(typescript)
    return {"Python": (), "Go": (str(go),), "TypeScript": ("node", str(typescript / "build/test/programs/rate.js"))}


def _rows(commands: Mapping[str, Sequence[str]], size: int, count: int, runs: int) -> list[tuple[str, ...]]:
    """A row of updates for each second, and one of updates for each second of a processor."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with filled_store(count, size, 1) as folder:
        for _ in range(runs):
            for name, command in commands.items():
                one = throughput(folder, "values", count, size, dials=True, command=command)
                found[name].append((one.updates_per_s, count / one.subscriber_cpu_s))
    rows = []
    for number, what in enumerate(("updates/s", "updates per processor second")):
        python, *others = (statistics.median(run[number] for run in found[name]) for name in commands)
        figures = [f"{figure:,.0f}" for figure in (python, *others)]
        rows.append((f"{size} B, {what}", *figures, *(f"{other / python:.2f}" for other in others)))
    return rows


if __name__ == "__main__":
    main()
