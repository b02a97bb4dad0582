"""The table of :mod:`benchmarks.latency`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.latency import Latency, Load, latency
from benchmarks.machine import Machine
from wormholectl.show.printer import print_table, print_text

__all__ = ["latency_report"]

_LOADS: Final = (
    # applications, updates a second, bytes, p99 that is wanted in ms
    (1, 100, 2500, None),
    (1, 2000, 2500, None),
    (20, 2000, 2500, 15),
    (40, 1000, 2500, 30),
    (100, 200, 1000, 50),
)
_COLUMNS: Final = (
    "load",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "wanted",
    "publisher cores",
    "subscriber cores",
    "us a delivery",
    "messages/s",
    "updates a batch",
    "switches/s",
    "load",
)


def _spread(values: Sequence[float], digits: int = 1) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"


def _row(name: str, wanted: int | None, runs: Sequence[Latency]) -> Sequence[str]:
    def middle(of: Callable[[Latency], float]) -> float:
        return statistics.median(map(of, runs))

    return (
        name,
        _spread([r.p50_ms for r in runs]),
        _spread([r.p99_ms for r in runs]),
        f"{max(r.worst_ms for r in runs):.1f}",
        "" if wanted is None else str(wanted),
        f"{middle(lambda r: r.publisher_cores):.2f}",
        f"{middle(lambda r: r.subscriber_cores):.2f}",
        f"{middle(lambda r: r.publisher_us):.1f} + {middle(lambda r: r.subscriber_us):.1f}",
        f"{middle(lambda r: r.messages_per_s):,.0f}",
        f"{middle(lambda r: r.updates_per_batch):.1f}",
        f"{middle(lambda r: r.publisher_switches_per_s):,.0f} + {middle(lambda r: r.subscriber_switches_per_s):,.0f}",
        f"{middle(lambda r: r.load):.1f}",
    )


def latency_report(
    runs: int, seconds: float, profile: Callable[[str], Path | None], only: int | None = None
) -> list[dict[str, Any]]:
    """What ``make bench CASE=latency`` prints; the figures again for JSON. ``only``: that many applications."""
    loads = [one for one in _LOADS if only in (None, one[0])]
    found: list[list[Latency]] = [[] for _ in loads]
    filtered: list[Latency] = []
    for run in range(runs):  # interleaved, so that a slow minute of the machine meets all of them
        for (applications, rate, size, _), figures in zip(loads, found, strict=True):
            print_text(f"  {applications} applications at {rate}/s: run {run + 1} of {runs} ...", flush=True)
            name = f"latency-{applications}-{rate}"
            figures.append(latency(Load(applications, rate, size, seconds), profile(name)))
        if only is None:
            print_text(f"  1 application and 20 that keep a twentieth each: run {run + 1} of {runs} ...", flush=True)
            filtered.append(latency(Load(1, 2000, 2500, seconds, filtered=20), profile("latency-filtered")))
    title = "Latency from the scheduled write to the callback, open loop; median (min - max)"
    shown = [
        _row(f"{applications} x {rate:,}/s of {size:,} B", wanted, figures)
        for (applications, rate, size, wanted), figures in zip(loads, found, strict=True)
    ]
    if filtered:
        shown.append(_row("1 and 20 filtered x 2,000/s of 2,500 B", None, filtered))
    print_table(_COLUMNS, shown, "", title)
    rows: list[dict[str, Any]] = [
        {"applications": applications, "rate": rate, "size": size, "runs": [asdict(one) for one in figures]}
        for (applications, rate, size, _), figures in zip(loads, found, strict=True)
    ]
    if filtered:
        alone = next(figures for load, figures in zip(loads, found, strict=True) if load[:2] == (1, 2000))
        cores = statistics.median(one.publisher_cores for one in alone)
        added = [(one.publisher_cores - cores) / 20 * 100 for one in filtered]
        print_text(f"publisher CPU per added application that keeps 1/20: {_spread(added, 2)} % of a core")
        rows.append({"filtered": 20, "percent_of_a_core_each": added, "runs": [asdict(one) for one in filtered]})
    return rows


def main() -> None:
    """``python -m benchmarks.latency_report``: the table alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--applications", type=int, help="only the loads with that many applications")
    arguments = parser.parse_args()
    print_text(str(Machine.current()))
    latency_report(arguments.runs, arguments.seconds, lambda name: None, arguments.applications)


if __name__ == "__main__":
    main()
