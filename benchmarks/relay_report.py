"""The tables of :mod:`benchmarks.relay`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import relay
from benchmarks.cases import scratch
from benchmarks.peers.binlog import Shape
from benchmarks.relay import Delays, Delivered, Recorded
from wormholectl.show.printer import print_table, print_text

__all__ = ["relay_report"]

_THROUGHPUT: Final = 0.9
_P99: Final = 1.2
_CATCH_UP: Final = 1.0


def relay_report(
    runs: int, *, scale: float, seconds: float, shapes: Sequence[str] = (), only: str = ""
) -> dict[str, Any]:
    """Every figure of ``make bench CASE=relay``. ``scale``: part of the rows; ``shapes``: names, and ``latency`` for
    the latency alone; ``only``: names of servers.
    """
    kinds = [kind for kind in relay.KINDS if not only or kind in only]
    chosen = [shape for shape in relay.SHAPES if not shapes or shape.name in shapes]
    told: dict[str, Any] = {"throughput": [], "latency": []}
    rows: list[Sequence[str]] = []
    limits: list[Sequence[str]] = []
    for kind in kinds:
        for shape in chosen:
            smaller = relay.smaller(shape, scale)
            print_text(f"  {kind}, {smaller.title}: filling a server ...", flush=True)
            with relay.opened(kind, smaller) as log:
                for compression in relay.COMPRESSIONS:
                    pairs = _pairs(runs, log, compression)
                    rows.append(_row(kind, smaller, compression, *pairs))
                    told["throughput"].append(_figures(kind, smaller, compression, *pairs))
                limits += _limits(kind, smaller, log)
    if rows:
        columns: tuple[str, ...] = (
            "server, rows", "compression", "rows/s without", "recording, of that: median (least - most), aim 0.9",
            "catch-up from the relay, times as fast as from the server, aim 1",
            "disk, of the log's bytes", "publisher s: without, recording, from the relay", "server s: the same",
        )  # fmt: skip
        print_table(columns, rows, "", "A relay while it records, and when a flow reads it; in pairs, medians")
        print_table(("server, rows", "what", "functions with most samples"), limits, "", "What limits")
    if not shapes or "latency" in shapes:
        delays = [_latency(kind, runs, seconds) for kind in kinds]
        columns = ("server", "p50 ms: without, with", "p99 ms: without, with", "p99, of that without, aim 1.2")
        title = f"{relay.RATE} writes a second of 1 KB to the callback, in pairs, medians"
        print_table(columns, [_delay_row(*one) for one in delays], "", title)
        told["latency"] = [
            {"kind": kind, "without": [asdict(one) for one in without], "with": [asdict(one) for one in with_]}
            for kind, without, with_ in delays
        ]
    return told


def _pairs(runs: int, log: relay.Log, compression: str) -> tuple[list[Delivered], list[Recorded], list[Delivered]]:
    without: list[Delivered] = []
    recording: list[Recorded] = []
    again: list[Delivered] = []
    for run in range(runs):
        print_text(f"  {log.kind}, {compression}: run {run + 1} of {runs} ...", flush=True)
        with scratch() as folder:
            without.append(relay.delivered(log))
            recording.append(relay.recorded(log, folder, compression))
            again.append(relay.from_relay(log, folder, compression))
    return without, recording, again


def _row(
    kind: str,
    shape: Shape,
    compression: str,
    without: Sequence[Delivered],
    recording: Sequence[Recorded],
    again: Sequence[Delivered],
) -> list[str]:
    cost = [one.delivered.rows_per_s / base.rows_per_s for one, base in zip(recording, without, strict=True)]
    gain = [one.rows_per_s / base.rows_per_s for one, base in zip(again, without, strict=True)]
    each = (without, [one.delivered for one in recording], again)
    return [
        f"{kind}, {shape.title}",
        compression,
        f"{statistics.median(one.rows_per_s for one in without):,.0f}",
        _judged(cost, _THROUGHPUT, statistics.median(cost) >= _THROUGHPUT),
        _judged(gain, _CATCH_UP, statistics.median(gain) >= _CATCH_UP),
        f"{statistics.median(one.disk_bytes / one.log_bytes for one in recording):.2f}",
        ", ".join(f"{statistics.median(one.publisher_cpu_s for one in some):.1f}" for some in each),
        ", ".join(f"{statistics.median(one.server_cpu_s for one in some):.1f}" for some in each),
    ]


def _judged(ratios: Sequence[float], aim: float, met: bool) -> str:
    spread = f"{statistics.median(ratios):.2f}  ({min(ratios):.2f} - {max(ratios):.2f})"
    return f"{spread}, aim {aim:g} {'met' if met else 'MISSED'}"


def _figures(
    kind: str,
    shape: Shape,
    compression: str,
    without: Sequence[Delivered],
    recording: Sequence[Recorded],
    again: Sequence[Delivered],
) -> dict[str, Any]:
    return {
        "kind": kind,
        "shape": shape.name,
        "rows": shape.rows,
        "compression": compression,
        "without": [asdict(one) for one in without],
        "recording": [asdict(one) for one in recording],
        "from_relay": [asdict(one) for one in again],
    }


def _limits(kind: str, shape: Shape, log: relay.Log) -> list[Sequence[str]]:
    """One run more of each, under a profiler, which no figure is of."""
    found: list[Sequence[str]] = []
    with scratch() as folder:
        profile = folder / "stacks.txt"
        ways: dict[str, Callable[[], object]] = {
            "recording": lambda: relay.recorded(log, folder, "zstd", profile),
            "from the relay": lambda: relay.from_relay(log, folder, "zstd", profile),
        }
        for what, run in ways.items():
            run()
            named = "; ".join(f"{name} {part:.0%}" for name, part in relay.frames(_copy(profile)))
            found.append((f"{kind}, {shape.title}", what, named))
    return found


def _copy(profile: Path) -> Path:
    """The profile, so that the next run may write its own."""
    return profile.rename(profile.with_suffix(".read"))


def _latency(kind: str, runs: int, seconds: float) -> tuple[str, list[Delays], list[Delays]]:
    without: list[Delays] = []
    with_: list[Delays] = []
    with relay.delays(kind, seconds) as once:
        for run in range(runs):
            print_text(f"  {kind}, latency: run {run + 1} of {runs} ...", flush=True)
            without.append(once(False))
            with_.append(once(True))
    return kind, without, with_


def _delay_row(kind: str, without: Sequence[Delays], with_: Sequence[Delays]) -> list[str]:
    ratios = [one.p99_ms / base.p99_ms for one, base in zip(with_, without, strict=True)]
    return [
        kind,
        ", ".join(f"{statistics.median(one.p50_ms for one in some):.1f}" for some in (without, with_)),
        ", ".join(f"{statistics.median(one.p99_ms for one in some):.1f}" for some in (without, with_)),
        _judged(ratios, _P99, statistics.median(ratios) <= _P99),
    ]
