"""Tables and the picture of :mod:`benchmarks.replay`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import replay
from benchmarks.cases import scratch
from benchmarks.replay import Replayed, World
from benchmarks.spark_cluster import Cluster, cluster

__all__ = ["break_even", "draw", "replay_report"]

Profile = Callable[[str], Path | None]

_SIZES: Final = {100: 1_000_000, 2500: 200_000}
"""Bytes of a value, and updates."""
_REPEATED: Final = (0.33, 0.5, 0.67, 0.8, 0.9, 0.99)
_SHARE_UPDATES, _SHARE_SIZE = 1_000_000, 100
_WORKERS: Final = 2


def replay_report(console: Console, runs: int, *, quick: bool, picture: Path, profile: Profile) -> dict[str, Any]:
    """Everything, as ``make bench CASE=replay`` prints it; the figures again for JSON."""
    scale = 10 if quick else 1
    speeds = [_speed(console, size, count // scale, runs, profile) for size, count in _SIZES.items()]
    _print_archives(console, speeds)
    _print_speeds(console, speeds)
    shares = _shares(console, _SHARE_UPDATES // scale, runs, profile)
    _print_shares(console, shares)
    draw(shares, picture, _SHARE_UPDATES // scale)
    console.print(f"picture: {picture}")
    return {"speeds": speeds, "latest": shares}


def _speed(console: Console, size: int, count: int, runs: int, profile: Profile) -> dict[str, Any]:
    """Archive, catch-up, a plain reader, and the replay on each master, ``runs`` times, each time one after the other."""
    name = f"{count:,} of {size} B"
    archived, taken, read = [], [], []
    replays: dict[str, list[Replayed]] = {"local[1]": [], "local[2]": [], f"cluster, {_WORKERS} workers": []}
    for run in range(runs):
        console.print(f"  {name}: run {run + 1} of {runs}: log, archive, catch-up ...", style="dim")
        with replay.world(count, size, count, profile(f"archiver-{size}")) as world:
            archived.append(world.archived)
            taken.append(world.taken)
            read.append(world.read())
            for master, found in replays.items():
                console.print(f"  {name}: run {run + 1} of {runs}: replay on {master} ...", style="dim")
                found.append(_on(world, "log", master, profile(f"replay-{size}-{master.partition(',')[0]}")))
    return {
        "case": name,
        "updates": count,
        "bytes": count * (size + 15),
        "archived": [asdict(one) for one in archived],
        "catch_up": [asdict(one) for one in taken],
        "reader": [asdict(one) for one in read],
        "replay": {master: [asdict(one) for one in found] for master, found in replays.items()},
    }


def _on(world: World, mode: str, master: str, profile: Path | None) -> Replayed:
    with ExitStack() as stack:
        if master.startswith("local"):
            return world.replay(mode, master, replay.here(world.folder), profile)
        started: Cluster = stack.enter_context(cluster(stack.enter_context(scratch()), _WORKERS))
        return world.replay(mode, started.master, started.environment, profile)


def _shares(console: Console, count: int, runs: int, profile: Profile) -> list[dict[str, Any]]:
    """``latest`` against ``log`` by the share of updates that go to a key that had one before."""
    found = []
    for share in _REPEATED:
        keys = round(count * (1 - share))
        with replay.world(count, _SHARE_SIZE, keys) as world:
            pairs: dict[str, list[Replayed]] = {"log": [], "latest": []}
            for run in range(runs):
                for mode, ones in pairs.items():
                    console.print(f"  {share:.0%} repeated: run {run + 1} of {runs}: {mode} ...", style="dim")
                    ones.append(_on(world, mode, "local[2]", profile(f"{mode}-{share:.0%}")))
        found.append({"share": share, "keys": keys, **{m: [asdict(one) for one in ones] for m, ones in pairs.items()}})
    return found


def _median(ones: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(statistics.median(one[name] for one in ones))


def _print_archives(console: Console, speeds: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="The archiver over a log written beforehand; medians")
    for column in ("case", "updates/s", "MB/s", "of catch-up's time", "archive / log", "files", "CPU s", "peak MiB"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for one in speeds:
        seconds = _median(one["archived"], "seconds")
        table.add_row(
            one["case"],
            f"{one['updates'] / seconds:,.0f}",
            f"{one['bytes'] / seconds / 1e6:.0f}",
            f"{statistics.median(a['seconds'] / c['seconds'] for a, c in zip(one['archived'], one['catch_up'], strict=True)):.1f}",
            f"{statistics.median(a['archive_bytes'] / a['log_bytes'] for a in one['archived']):.2f}",
            f"{_median(one['archived'], 'files'):.0f}",
            f"{_median(one['archived'], 'cpu_s'):.1f}",
            f"{max(a['peak_mib'] for a in one['archived']):.0f}",
        )
    console.print(table)


def _print_speeds(console: Console, speeds: Sequence[Mapping[str, Any]]) -> None:
    table = Table(
        title=f"Replay of {replay.SHARDS} shards to one subscriber's batch callback, mode log; medians. Whole: from the first flow held; the command starts a JVM too"
    )
    for column in ("case", "by", "updates/s", "MB/s", "x catch-up", "x rows as objects", "whole s", "command s"):
        table.add_column(column, justify="left" if column in ("case", "by") else "right")
    for one in speeds:
        updates, size = one["updates"], one["bytes"]
        catch_up = [c["seconds"] for c in one["catch_up"]]
        objects = [r["objects_s"] for r in one["reader"]]
        rows: list[tuple[str, list[float], str, str]] = [
            ("a caravan (catch-up)", catch_up, "", ""),
            ("one process, pyarrow, columns", [r["arrow_s"] for r in one["reader"]], "", ""),
            ("one process, pyarrow, rows as objects", objects, "", ""),
        ]
        for master, found in one["replay"].items():
            whole, command = _median(found, "whole_s"), _median(found, "command_s")
            rows.append((f"replay, {master}", [r["push_s"] for r in found], f"{whole:.1f}", f"{command:.1f}"))
        for number, (name, seconds, whole_s, command_s) in enumerate(rows):
            middle = statistics.median(seconds)
            table.add_row(
                one["case"] if not number else "",
                name,
                f"{updates / middle:,.0f}",
                f"{size / middle / 1e6:.0f}",
                _times(catch_up, seconds),
                _times(objects, seconds),
                whole_s,
                command_s,
            )
    console.print(table)


def _times(others: Sequence[float], ours: Sequence[float]) -> str:
    """How many times as fast, run by run."""
    return f"{statistics.median(a / b for a, b in zip(others, ours, strict=True)):.2f}"


def _print_shares(console: Console, shares: Sequence[Mapping[str, Any]]) -> None:
    table = Table(
        title="The last change of each key against every change; seconds from the first flow held, local[2]; medians"
    )
    for column in ("updates to keys that had one", "keys", "log s", "latest s", "log / latest", "latest: push s"):
        table.add_column(column, justify="right")
    for one in shares:
        table.add_row(
            f"{one['share']:.0%}",
            f"{one['keys']:,}",
            f"{_median(one['log'], 'whole_s'):.1f}",
            f"{_median(one['latest'], 'whole_s'):.1f}",
            f"{statistics.median(a['whole_s'] / b['whole_s'] for a, b in zip(one['log'], one['latest'], strict=True)):.2f}",
            f"{_median(one['latest'], 'push_s'):.1f}",
        )
    console.print(table)
    found = break_even(
        [(one["share"], _median(one["log"], "whole_s"), _median(one["latest"], "whole_s")) for one in shares]
    )
    console.print(
        "`latest` is faster at none of these shares"
        if found is None
        else f"`latest` is faster from {found:.0%} repeated on: {1 - found:.2f} keys per update"
    )


def break_even(points: Sequence[tuple[float, float, float]]) -> float | None:
    """From which share on ``latest`` stays faster. ``points``: share, seconds of ``log``, seconds of ``latest``, by share; between two of them
    the lines cross where a straight one does. ``None``: nowhere."""
    found: float | None = None
    before: tuple[float, float] | None = None
    for share, log_s, latest_s in points:
        ahead = log_s - latest_s
        if ahead <= 0:
            found = None
        elif found is None:
            found = share if before is None else before[0] + (share - before[0]) * -before[1] / (ahead - before[1])
        before = share, ahead
    return found


def draw(shares: Sequence[Mapping[str, Any]], path: Path, count: int) -> None:
    """Seconds of both modes against the share of repeated keys: figure 16 of the paper on Databus."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    at = [100 * one["share"] for one in shares]
    for mode, colour in (("log", "tab:blue"), ("latest", "tab:orange")):
        axes.plot(at, [_median(one[mode], "whole_s") for one in shares], "o-", color=colour, label=f"mode {mode}")
    axes.set_xlabel("% of the updates go to a key that had one before")
    axes.set_title(f"Seconds until {count:,} updates of {_SHARE_SIZE} B were replayed, two cores", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
