"""Tables and the picture of :mod:`benchmarks.replay`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import replay
from benchmarks.cases import scratch
from benchmarks.replay import Replayed, Replayer
from benchmarks.spark_cluster import cluster
from wormholectl.show.printer import print_table, print_text

__all__ = ["break_even", "draw", "replay_report"]

Profile = Callable[[str], Path | None]

_SIZES: Final = {100: 1_000_000, 2500: 200_000}
"""Bytes of a value, and updates."""
_REPEATED: Final = (0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.99)
_HANDLERS_US: Final = (0, 20, 100)
"""Microseconds that a handler works on an update."""
_SHARE_UPDATES, _SHARE_SIZE = 200_000, 100
_WORKERS: Final = 2
_CLUSTER: Final = f"cluster, {_WORKERS} workers"


def replay_report(runs: int, *, quick: bool, picture: Path, profile: Profile) -> dict[str, Any]:
    """Everything, as ``make bench CASE=replay`` prints it; the figures again for JSON."""
    scale = 10 if quick else 1
    with scratch() as folder, replay.replayer(folder, "local[2]", profile=profile("replay-local-2")) as local:
        speeds = _speeds(local, runs, scale, profile)
        _print_archives(speeds)
        _print_speeds(speeds)
        shares = _shares(local, _SHARE_UPDATES // scale, runs)
    _print_shares(shares)
    draw(shares, picture, _SHARE_UPDATES // scale)
    print_text(f"picture: {picture}")
    return {"speeds": speeds, "latest": shares}


def _speeds(local: Replayer, runs: int, scale: int, profile: Profile) -> list[dict[str, Any]]:
    with ExitStack() as stack:

        def folder() -> Path:
            return stack.enter_context(scratch())

        started = stack.enter_context(cluster(folder(), _WORKERS))
        one = stack.enter_context(replay.replayer(folder(), "local[1]", profile=profile("replay-local-1")))
        far = replay.replayer(folder(), started.master, started.environment, profile("replay-cluster"))
        masters = {"local[1]": one, "local[2]": local, _CLUSTER: stack.enter_context(far)}
        with replay.world(1000, 100, 1000) as world:
            for name, by in masters.items():
                first = world.replay(by, "log")
                print_text(f"  a command that starts Spark, on {name}: {first.command_s:.1f} s", flush=True)
        return [_speed(size, count // scale, runs, masters, profile) for size, count in _SIZES.items()]


def _speed(size: int, count: int, runs: int, masters: Mapping[str, Replayer], profile: Profile) -> dict[str, Any]:
    """Archive, catch-up, a plain reader, and the replay on each master, one after the other, ``runs`` times."""
    name = f"{count:,} of {size} B"
    archived, taken, read = [], [], []
    replays: dict[str, list[Replayed]] = {master: [] for master in masters}
    for run in range(runs):
        print_text(f"  {name}: run {run + 1} of {runs}: log, archive, catch-up ...", flush=True)
        with replay.world(count, size, count, profile(f"archiver-{size}")) as world:
            archived.append(world.archived)
            taken.append(world.taken)
            read.append(world.read())
            for master, by in masters.items():
                print_text(f"  {name}: run {run + 1} of {runs}: replay on {master} ...", flush=True)
                replays[master].append(world.replay(by, "log"))
    return {
        "case": name,
        "updates": count,
        "bytes": count * (size + 15),
        "archived": [asdict(one) for one in archived],
        "catch_up": [asdict(one) for one in taken],
        "reader": [asdict(one) for one in read],
        "replay": {master: [asdict(one) for one in found] for master, found in replays.items()},
    }


def _shares(local: Replayer, count: int, runs: int) -> list[dict[str, Any]]:
    """By what a handler works: ``log``, which pushes as much whatever the keys, and ``latest`` by the share of updates
    that go to a key which had one before.
    """
    found: list[dict[str, Any]] = [{"handler_us": us, "log": [], "latest": []} for us in _HANDLERS_US]
    for share in _REPEATED:
        keys = round(count * (1 - share))
        with replay.world(count, _SHARE_SIZE, keys) as world:
            for one in found:
                print_text(f"  {share:.0%} repeated, a handler of {one['handler_us']} us ...", flush=True)
                taken = [world.replay(local, "latest", one["handler_us"]) for _ in range(runs)]
                one["latest"].append({"share": share, "keys": keys, "runs": [asdict(each) for each in taken]})
                if len(one["log"]) < runs:
                    one["log"].append(asdict(world.replay(local, "log", one["handler_us"])))
    return found


def _median(ones: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(statistics.median(one[name] for one in ones))


def _print_archives(speeds: Sequence[Mapping[str, Any]]) -> None:
    title = "The archiver over a log written beforehand; medians"
    columns = ("case", "updates/s", "MB/s", "of catch-up's time", "archive / log", "files", "CPU s", "peak MiB")
    shown: list[Sequence[str]] = []
    for one in speeds:
        seconds = _median(one["archived"], "seconds")
        pairs = zip(one["archived"], one["catch_up"], strict=True)
        times = [archived["seconds"] / catch_up["seconds"] for archived, catch_up in pairs]
        shown.append(
            (
                one["case"],
                f"{one['updates'] / seconds:,.0f}",
                f"{one['bytes'] / seconds / 1e6:.0f}",
                f"{statistics.median(times):.1f}",
                f"{statistics.median(a['archive_bytes'] / a['log_bytes'] for a in one['archived']):.2f}",
                f"{_median(one['archived'], 'files'):.0f}",
                f"{_median(one['archived'], 'cpu_s'):.1f}",
                f"{max(a['peak_mib'] for a in one['archived']):.0f}",
            )
        )
    print_table(columns, shown, "", title)


def _print_speeds(speeds: Sequence[Mapping[str, Any]]) -> None:
    title = (
        f"Replay of {replay.SHARDS} shards to one subscriber's batch callback, mode log; medians. Whole: from "
        "the first flow held; the command finds a Spark that runs"
    )
    columns = ("case", "by", "updates/s", "MB/s", "x catch-up", "x rows as objects", "whole s", "command s")
    shown: list[Sequence[str]] = []
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
            shown.append(
                (
                    one["case"] if not number else "",
                    name,
                    f"{updates / middle:,.0f}",
                    f"{size / middle / 1e6:.0f}",
                    _times(catch_up, seconds),
                    _times(objects, seconds),
                    whole_s,
                    command_s,
                )
            )
    print_table(columns, shown, "", title)


def _times(others: Sequence[float], ours: Sequence[float]) -> str:
    """How many times as fast, run by run."""
    return f"{statistics.median(a / b for a, b in zip(others, ours, strict=True)):.2f}"


def _print_shares(shares: Sequence[Mapping[str, Any]]) -> None:
    title = "The last change of each key against every change; seconds from the first flow held, local[2]; medians"
    columns = ("updates to keys that had one", "updates", *(_handler(one) for one in shares))
    shown: list[Sequence[str]] = []
    every = [_median(one["log"], "whole_s") for one in shares]
    shown.append(("log: any", f"{shares[0]['log'][0]['updates']:,}", *(f"{log_s:.1f}" for log_s in every)))
    for rows in zip(*(one["latest"] for one in shares), strict=True):
        seconds = [_median(row["runs"], "whole_s") for row in rows]
        told = [f"{latest_s:.1f} (x {log_s / latest_s:.1f})" for latest_s, log_s in zip(seconds, every, strict=True)]
        shown.append((f"latest: {rows[0]['share']:.0%}", f"{rows[0]['keys']:,}", *told))
    print_table(columns, shown, "", title)
    for one, log_s in zip(shares, every, strict=True):
        share = break_even([(row["share"], log_s, _median(row["runs"], "whole_s")) for row in one["latest"]])
        print_text(
            f"{_handler(one)}: "
            + (
                "`latest` is faster at none of these shares"
                if share is None
                else f"`latest` is faster from {share:.0%} repeated on: {1 - share:.2f} keys per update"
            )
        )


def _handler(one: Mapping[str, Any]) -> str:
    return f"a handler of {one['handler_us']} us" if one["handler_us"] else "an idle handler"


def break_even(points: Sequence[tuple[float, float, float]]) -> float | None:
    """From which share on ``latest`` stays faster. ``points``: share, seconds of ``log``, seconds of ``latest``, by
    share; between two of them the lines cross where a straight one does. ``None``: nowhere.
    """
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
    """Seconds of both modes against the share of repeated keys, for each handler: figure 16 of the paper on Databus."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(shares), figsize=(4.0 * len(shares), 3.6), layout="constrained", squeeze=False)
    for axes, one in zip(panels[0], shares, strict=True):
        at = [100 * row["share"] for row in one["latest"]]
        log_s = _median(one["log"], "whole_s")
        axes.plot(at, [log_s] * len(at), "--", color="tab:blue", label="mode log")
        latest_s = [_median(row["runs"], "whole_s") for row in one["latest"]]
        axes.plot(at, latest_s, "o-", color="tab:orange", label="mode latest")
        axes.set_title(_handler(one), fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel(f"seconds for {count:,} updates of {_SHARE_SIZE} B")
    panels[0][0].legend(fontsize=8)
    figure.supxlabel("% of the updates go to a key that had one before", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
