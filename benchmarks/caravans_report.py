"""Tables and the picture of :mod:`benchmarks.caravans`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import caravans
from benchmarks.caravans import CatchUp
from wormholectl.show.printer import print_table, print_text

__all__ = ["caravans_report"]

_COUNTS = (1, 2, 5, 10)
_BUFFERS = {"off": caravans.MINIMAL_BUFFER, "on": "64MiB"}


def caravans_report(runs: int, *, quick: bool, size_mb: int, rate_mib: float, picture: Path) -> dict[str, Any]:
    """Everything, as ``make bench CASE=caravans`` prints it. ``size_mb``: the backlog of the paper's experiment."""
    results = _catch_up(size_mb, rate_mib)
    draw(results, picture, size_mb, rate_mib)
    print_text(f"picture: {picture}")
    seconds = 5.0 if quick else 20.0
    loaded = [
        caravans.under_load(200_000_000 if quick else 1_000_000_000, 1000, seconds, one_mib=8, total_mib=16)
        for _ in range(runs)
    ]
    _print_loaded(loaded)
    beside = [caravans.frozen(1000, 5.0 if quick else 60.0) for _ in range(1 if quick else min(runs, 2))]
    _print_frozen(beside)
    return {
        "size_mb": size_mb,
        "rate_mib": rate_mib,
        "catch_up": {name: [asdict(one) for one in told] for name, told in results.items()},
        "under_load": [asdict(one) for one in loaded],
        "frozen": [asdict(one) for one in beside],
    }


def _catch_up(size_mb: int, rate_mib: float) -> dict[str, list[CatchUp]]:
    title = (
        f"{caravans.FLOWS} flows over a backlog of {size_mb / 1000:g} GB, each caravan at most {rate_mib:g} "
        "MiB/s: bytes read per byte of log, and seconds until "
        "each flow had caught up"
    )
    columns = ("change buffer", "max caravans", "amplification", "median s", "longest s")
    shown: list[Sequence[str]] = []
    results: dict[str, list[CatchUp]] = {name: [] for name in _BUFFERS}
    with caravans.backlog(size_mb * 1_000_000) as (folder, _, count):
        for name, change_buffer in _BUFFERS.items():
            for number in _COUNTS:
                print_text(f"  change buffer {name}, {number} caravans ...", flush=True)
                one = caravans.catch_up(folder, count, number, change_buffer, rate_mib)
                results[name].append(one)
                shown.append(
                    (
                        f"{name} ({change_buffer})",
                        str(number),
                        f"{one.amplification:.2f}",
                        f"{statistics.median(one.seconds):.1f}",
                        f"{max(one.seconds):.1f}",
                    )
                )
    print_table(columns, shown, "", title)
    return results


def _print_loaded(results: Sequence[caravans.UnderLoad]) -> None:
    title = (
        "A live flow at 1,000/s of 2.5 KB while ten others catch up; at most 8 MiB/s for one reader, 16 MiB/s for all"
    )
    columns = ("p50 ms alone", "p50 ms", "p99 ms alone", "p99 ms", "worst second: one", "all", "read MiB")
    shown = [
        (
            f"{one.p50_alone_ms:.1f}",
            f"{one.p50_ms:.1f}",
            f"{one.p99_alone_ms:.1f}",
            f"{one.p99_ms:.1f} ({one.p99_ms / one.p99_alone_ms:.2f}x)",
            f"{one.worst_second_of_one:.1%} of the cap",
            f"{one.worst_second_of_all:.1%} of the cap",
            f"{one.caught_up_mib:.0f}",
        )
        for one in results
    ]
    print_table(columns, shown, "", title)


def _print_frozen(results: Sequence[caravans.Frozen]) -> None:
    title = "Five live flows at 1,000/s of 2.5 KB beside a subscriber stopped with SIGSTOP all the time"
    columns = ("p99 ms alone", "p99 ms", "publisher peak MiB")
    shown = [
        (
            f"{one.p99_alone_ms:.1f}",
            f"{one.p99_ms:.1f} ({one.p99_ms / one.p99_alone_ms:.2f}x)",
            f"{one.publisher_peak_mib:.0f}",
        )
        for one in results
    ]
    print_table(columns, shown, "", title)


def draw(results: Mapping[str, Sequence[CatchUp]], path: Path, size_mb: int, rate_mib: float) -> None:
    """Amplification and time to catch up against the number of caravans."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for (name, told), colour in zip(results.items(), ("tab:blue", "tab:orange"), strict=True):
        counts = [one.caravans for one in told]
        left.plot(counts, [one.amplification for one in told], "o-", color=colour, label=f"change buffer {name}")
        for style, word, pick in (("o-", "median", statistics.median), ("s--", "last", max)):
            right.plot(counts, [pick(one.seconds) for one in told], style, color=colour, label=f"{word}, buffer {name}")
    for axes, title in ((left, "bytes read / bytes of log"), (right, "seconds until a flow had caught up")):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("most caravans")
        axes.set_xticks(list(_COUNTS))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(
        f"{caravans.FLOWS} flows evenly over a backlog of {size_mb / 1000:g} GB, {rate_mib:g} MiB/s per caravan",
        fontsize=11,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
