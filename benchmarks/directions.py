"""Compares the two directions of a connection: the publisher dials the subscriber, or the subscriber the publisher.

    python -m benchmarks.directions [RUNS]

Throughput is measured with a log that was written beforehand, and all values are read. Latency is the time from the
scheduled write to the callback, at 1,000 updates of 1 KB per second.
"""

from __future__ import annotations

import statistics
import sys
from typing import Final

from benchmarks.cases import filled_store, throughput
from benchmarks.latency import Load, latency
from benchmarks.machine import load
from wormholectl.show.printer import print_table

__all__ = ["main"]

_SIZES: Final = ((100, 1_000_000), (2500, 200_000))
_LOAD: Final = Load(applications=1, rate=1000, size=1000, seconds=5)
_COLUMNS: Final = ("case", "publisher dials", "subscriber dials", "ratio of medians", "ratios of pairs")


def main() -> None:
    """See the module."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    pairs: dict[str, list[tuple[float, float]]] = {}
    for size, count in _SIZES:
        with filled_store(count, size, 1) as folder:
            for _ in range(runs):
                one, other = (throughput(folder, "values", count, size, dials=dials) for dials in (False, True))
                pairs.setdefault(f"{size} B, updates/s", []).append((one.updates_per_s, other.updates_per_s))
                used = (side.publisher_cpu_s + side.subscriber_cpu_s for side in (one, other))
                pairs.setdefault(f"{size} B, processor s", []).append((next(used), next(used)))
    for _ in range(runs):
        calls = (latency(_LOAD, dials=dials) for dials in (False, True))
        pairs.setdefault("1,000/s, p99 ms", []).append((next(calls).p99_ms, next(calls).p99_ms))
    rows = []
    for name, found in pairs.items():
        dialled, dialling = (statistics.median(pair[side] for pair in found) for side in (0, 1))
        ratios = " ".join(f"{b / a:.2f}" for a, b in found)
        rows.append((name, f"{dialled:,.1f}", f"{dialling:,.1f}", f"{dialling / dialled:.2f}", ratios))
    print_table(_COLUMNS, rows, "", f"{runs} pairs, load {load():.1f}")


if __name__ == "__main__":
    main()
