"""Tables and the picture of :mod:`benchmarks.replay_scale`, of what was measured so far."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import scratch
from benchmarks.replay_scale import Plan, executors_of, measure, read_points
from wormholectl.show.printer import print_table, print_text

__all__ = ["add_options", "draw", "replay_scale_report"]

Profile = Callable[[str], Path | None]
Rows = Sequence[Mapping[str, Any]]

_KINDS: Final = ("Python workers", "JVM", "subscriber", "publisher", "driver")
_THREADS: Final = ("JVM: compilers", "JVM: collector", "JVM: tasks", "JVM: other")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is to be measured of the case ``replay_scale``."""
    usual = Plan(50_000_000)
    group = parser.add_argument_group("replay_scale")
    group.add_argument("--updates", type=int, help=f"in the archive ({usual.updates}, with --quick 200000)")
    group.add_argument("--size", type=int, default=usual.size, help="bytes of a value")
    group.add_argument("--keys", type=float, default=usual.keys, help="different keys for each update")
    group.add_argument("--shards", default=",".join(map(str, usual.shards)))
    group.add_argument("--modes", default=",".join(usual.modes))
    group.add_argument("--masters", default=",".join(usual.masters), help="local[N], cluster[N]")
    group.add_argument("--parts", default=",".join(usual.parts), help='"no push": all but the push')
    group.add_argument("--minutes", type=float, default=1e6, help="after which no further point is begun")
    group.add_argument(
        "--points", default="build/bench/replay-scale.jsonl", help="appended to; what it has is left out"
    )
    group.add_argument("--archives", default="", help="where archives are kept for another run; none: they are removed")
    group.add_argument("--scale-picture", default="build/bench/replay-executors.svg", help="where the picture goes")


def replay_scale_report(runs: int, arguments: argparse.Namespace, profile: Profile) -> list[dict[str, Any]]:
    """Measure what the options say and the file of points lacks; print and draw all that it has then."""
    plan = Plan(
        updates=arguments.updates or (200_000 if arguments.quick else 50_000_000),
        size=arguments.size,
        keys=arguments.keys,
        shards=tuple(map(int, arguments.shards.split(","))),
        modes=tuple(arguments.modes.split(",")),
        masters=tuple(arguments.masters.split(",")),
        parts=tuple(arguments.parts.split(",")),
        runs=runs,
    )
    path = Path(arguments.points)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        archives = Path(arguments.archives) if arguments.archives else stack.enter_context(scratch())
        measure(plan, path, archives, time.monotonic() + 60 * arguments.minutes, profile)
    rows = read_points(path)
    if rows:
        show(rows)
        draw(rows, Path(arguments.scale_picture))
        print_text(f"picture: {arguments.scale_picture}; points: {path}")
    return rows


def show(rows: Rows) -> None:
    """Every figure as a median, with the least and the greatest; and the growth from one executor to two."""
    for (updates, size), same in _by(rows, "updates", "size").items():
        _show_speeds(same, f"{updates:,} updates of {size} B")
        _show_processor(same, f"{updates:,} updates of {size} B")


def _show_speeds(rows: Rows, what: str) -> None:
    columns = ("shards", "what", "by", "runs", "updates/s", "of catch-up", "of columns", "of objects", "growth", "load")
    shown: list[Sequence[str]] = []
    for (shards,), same in _by(rows, "shards").items():
        beside = [row for row in same if row["point"]["part"] == "beside"]
        others = {
            "catch-up": [_rate(row["catch_up"], "seconds") for row in beside],
            "columns": [_rate(row["reader"], "arrow_s") for row in beside],
            "objects": [_rate(row["reader"], "objects_s") for row in beside],
        }
        names = {"catch-up": "a caravan", "columns": "pyarrow, columns", "objects": "pyarrow, rows as objects"}
        for kind, rates in others.items():
            if rates:
                shown.append((str(shards), names[kind], "one process", str(len(rates)), _spread(rates), *[""] * 5))
        found = _by([row for row in same if row["point"]["by"]], "part", "mode", "by")
        for (part, mode, by), runs in found.items():
            rates = [_rate(row, "seconds") for row in runs]
            middle = statistics.median(rates)
            one = found.get((part, mode, f"{by.partition('[')[0]}[1]"))
            shown.append(
                (
                    str(shards),
                    mode if part == "push" else f"{mode}, {part}",
                    by,
                    str(len(rates)),
                    _spread(rates),
                    *(f"{middle / statistics.median(other):.2f}" if other else "" for other in others.values()),
                    "" if one is None or one is runs else f"x {middle / _median_rate(one):.2f}",
                    f"{statistics.median(row['load'] for row in runs):.1f}",
                )
            )
    print_table(
        columns, shown, "", f"{what}: updates of the range per second, from the first held flow; median (spread)"
    )


def _show_processor(rows: Rows, what: str) -> None:
    columns = ("shards", "what", "by", "cores busy", *_KINDS, *_THREADS)
    shown: list[Sequence[str]] = []
    found = _by([row for row in rows if row["point"]["by"]], "shards", "part", "mode", "by")
    for (shards, part, mode, by), runs in found.items():
        used = [_median([row["processor"].get(kind, 0.0) / row["seconds"] for row in runs]) for kind in _KINDS]
        threads = [_median([row["processor"].get(kind, 0.0) / row["seconds"] for row in runs]) for kind in _THREADS]
        name = mode if part == "push" else f"{mode}, {part}"
        shown.append((str(shards), name, by, f"{sum(used):.2f}", *(f"{one:.2f}" for one in (*used, *threads))))
    print_table(columns, shown, "", f"{what}: cores that each kind of process keeps busy")


def draw(rows: Rows, path: Path) -> None:
    """Updates per second against executors, a panel for each number of shards, of the largest archive."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "wormhole"  # the same picture of the same figures
    from matplotlib import pyplot as plt

    (updates, size), rows = max(_by(rows, "updates", "size").items())
    panels = _by(rows, "shards")
    figure, many = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.8), layout="constrained", squeeze=False)
    most = 1
    for axes, ((shards,), same) in zip(many[0], panels.items(), strict=True):
        for (part, mode, kind), line in _lines(same).items():
            at, rates = zip(*sorted(line.items()), strict=True)
            most = max(most, *at)
            colour = "tab:blue" if mode == "log" else "tab:orange"
            style = {"push": "o-", "no push": "o:"}[part] if kind == "local" else "s--"
            name = ("" if part == "push" else ", all but the push") + ("" if kind == "local" else ", a cluster")
            axes.plot(at, [rate / 1000 for rate in rates], style, color=colour, label=f"{mode}{name}")
        beside = [_rate(row["catch_up"], "seconds") for row in same if row["point"]["part"] == "beside"]
        if beside:
            axes.axhline(statistics.median(beside) / 1000, color="gray", linewidth=1, label="catch-up by a caravan")
        axes.set_title(f"{shards} shards", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in many[0]:
        axes.set_xticks(range(1, most + 1))
    many[0][0].set_ylabel("thousand updates/s")
    many[0][-1].legend(fontsize=7)
    figure.supxlabel(f"executors of one core; {updates:,} updates of {size} B", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _lines(rows: Rows) -> dict[tuple[str, str, str], dict[int, float]]:
    """By part, mode and kind of master: updates per second by executors."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for (part, mode, by), runs in _by([row for row in rows if row["point"]["by"]], "part", "mode", "by").items():
        found.setdefault((part, mode, by.partition("[")[0]), {})[executors_of(by)] = _median_rate(runs)
    return found


def _by(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Rows by what these fields of their points are, in the order in which they came."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row["point"][name] for name in names), []).append(row)
    return found


def _rate(row: Mapping[str, Any], seconds: str) -> float:
    return float(row["updates"] / row[seconds])


def _median_rate(rows: Rows) -> float:
    return _median([_rate(row, "seconds") for row in rows])


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _spread(rates: Sequence[float]) -> str:
    middle = f"{statistics.median(rates):,.0f}"
    return middle if len(rates) < 2 else f"{middle}  ({min(rates):,.0f} - {max(rates):,.0f})"
