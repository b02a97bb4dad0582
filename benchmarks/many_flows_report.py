"""The tables of :mod:`benchmarks.many_flows`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from benchmarks.many_flows import Run, many_flows
from wormholectl.show.printer import print_table, print_text

__all__ = ["many_flows_report"]

_SHARDS: Final = 1024
_IDLE: Final = 1000
_RATE: Final = 500.0

_ASSIGNED_S: Final = 2.0
_REST_PERCENT: Final = 3.0
_TIMES_ONE: Final = 1.5
_IDLE_STARTED_S: Final = 3.0
_IDLE_PERCENT: Final = 5.0
_IDLE_REQUESTS: Final = 20.0
_FLOW_KB: Final = 16.0


def many_flows_report(runs: int, *, quick: bool) -> dict[str, Any]:
    """What ``make bench CASE=many_flows`` prints; the figures again for JSON."""
    rest_s, load_s = (5.0, 5.0) if quick else (15.0, 15.0)
    found: dict[str, list[Run]] = {"one": [], "shards": [], "idle": []}
    for number in range(runs):
        print_text(f"  run {number + 1} of {runs} ...", flush=True)
        found["one"].append(many_flows(1, "local", rest_s=rest_s, rate=_RATE, load_s=load_s))
        found["shards"].append(many_flows(_SHARDS, "local", rest_s=rest_s, rate=_RATE, load_s=load_s))
        found["idle"].append(many_flows(_IDLE, "zookeeper", rest_s=rest_s))
    _print(found["one"], found["shards"], found["idle"])
    return {name: [asdict(run) for run in ones] for name, ones in found.items()}


def _print(one: Sequence[Run], shards: Sequence[Run], idle: Sequence[Run]) -> None:
    title = "Many flows of one RocksDB to one subscriber; median (min - max)"
    columns = ("what", "1 flow", f"{_SHARDS:,} flows", f"{_IDLE:,} flows, markers in ZooKeeper", "mark")
    all_runs = (one, shards, idle)

    def row(what: str, value: Callable[[Run], float], digits: int, *marks: tuple[Sequence[Run], float]) -> list[str]:
        figures = [_spread([value(run) for run in runs], digits) for runs in all_runs]
        return [what, *figures, ", ".join(_mark(statistics.median(map(value, runs)), most) for runs, most in marks)]

    shown = [
        row("s, publisher's start to assigned", lambda run: run.starts.publisher, 2),
        row("s, the same after kill -9", lambda run: run.starts.publisher_again, 2),
        row(
            "s, subscriber's start to assigned",
            lambda run: run.starts.subscriber,
            2,
            (shards, _ASSIGNED_S),
            (idle, _IDLE_STARTED_S),
        ),
        row("processor s of the publisher's first start", lambda run: run.starts.publisher_cpu_s, 2),
        row(
            "% of a core at rest, publisher",
            lambda run: run.rest.publisher_percent,
            1,
            (shards, _REST_PERCENT),
            (idle, _IDLE_PERCENT),
        ),
        row("% of a core at rest, subscriber", lambda run: run.rest.subscriber_percent, 1),
        row("requests/s to ZooKeeper at rest", lambda run: run.rest.requests_per_s, 1, (idle, _IDLE_REQUESTS)),
        row("resident MB of the publisher", lambda run: run.rest.publisher_mb, 1),
        _per_flow(one, shards, idle),
    ]
    print_table(columns, shown, "", title)
    _print_delays(one, shards)


def _per_flow(one: Sequence[Run], shards: Sequence[Run], idle: Sequence[Run]) -> list[str]:
    bare = statistics.median(run.rest.publisher_mb for run in one)
    per_flow = [
        statistics.median((run.rest.publisher_mb - bare) * 1000 / (run.flows - 1) for run in runs)
        for runs in (shards, idle)
    ]
    marks = [_mark(value, _FLOW_KB) for value in per_flow]
    return ["KB of it for each flow beyond one", "", *(f"{value:.1f}" for value in per_flow), ", ".join(marks)]


def _print_delays(one: Sequence[Run], shards: Sequence[Run]) -> None:
    title = f"From the scheduled write to the callback, {_RATE:g} updates/s of 100 B; median (min - max)"
    columns = ("flows", "p50 ms", "p99 ms", "worst ms", "publisher cores", "subscriber cores", "mark")
    rows: list[list[str]] = []
    alone = statistics.median(run.delays.p99_ms for run in one if run.delays is not None)
    for runs in (one, shards):
        delays = [run.delays for run in runs if run.delays is not None]
        p99 = statistics.median(delay.p99_ms for delay in delays)
        figures = [
            _spread([getattr(delay, name) for delay in delays], digits)
            for name, digits in (
                ("p50_ms", 1),
                ("p99_ms", 1),
                ("worst_ms", 1),
                ("publisher_cores", 2),
                ("subscriber_cores", 2),
            )
        ]
        mark = "" if runs is one else f"{p99 / alone:.2f} times one flow's p99: {_mark(p99 / alone, _TIMES_ONE)}"
        rows.append([f"{runs[0].flows:,}", *figures, mark])
    print_table(columns, rows, "", title)


def _mark(value: float, most: float) -> str:
    return f"< {most:g} {'met' if value < most else 'MISSED'}"


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f}  ({low:.{digits}f} - {high:.{digits}f})"
