"""The tables of :mod:`benchmarks.existing_rows`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import existing_rows
from benchmarks.cases import scratch
from benchmarks.existing_rows import UNLIMITED, WRITES_PER_S, Backfill, Copy
from wormhole.config import ExistingRows
from wormhole.model.units import format_size
from wormholectl.show.printer import print_table, print_text

__all__ = ["existing_rows_report"]

_P99_TIMES: Final = 1.5
_READ_TIMES: Final = 1.1
_ROWS_PER_S: Final = 50_000
_ALONE, _DEFAULT, _UNLIMITED, _THREE = (
    "no backfill",
    f"at the default rate, {format_size(ExistingRows().rate)}/s",
    "unlimited",
    "unlimited, 3 applications",
)
_SELECT, _PIPE = "SELECT * through the driver", "mariadb-dump | mariadb"


def existing_rows_report(runs: int, *, quick: bool, rows: int, profile: Callable[[str], Path | None]) -> dict[str, Any]:
    """What ``make bench CASE=existing_rows`` prints; the figures again for JSON. ``rows``: the number of rows of the
    table; ``profile``: where the flame graph of a backfill's publisher goes.
    """
    backfills: dict[str, list[Backfill]] = {name: [] for name in (_ALONE, _DEFAULT, _UNLIMITED, _THREE)}
    copies: dict[str, list[Copy]] = {name: [] for name in (_SELECT, _PIPE)}
    print_text(f"  filling a table of {rows:,} rows ...", flush=True)
    with existing_rows.filled_server(rows) as server:
        size = existing_rows.row_bytes(server, rows)
        with scratch() as folder:
            budget = existing_rows.budget_mib(existing_rows.configuration(folder, server, [1]))
        # About as long as a backfill at the default rate: the change buffer fills meanwhile.
        alone_s = max(5.0 if quick else 20.0, rows / _ROWS_PER_S)
        # Applications, rate, and the name of the flame graph.
        forms = {_ALONE: (0, "", ""), _DEFAULT: (1, "", "existing-rows-default")}
        forms |= {_UNLIMITED: (1, UNLIMITED, "existing-rows"), _THREE: (3, UNLIMITED, "")}
        for run in range(runs):
            for name, (applications, rate, picture) in forms.items():
                print_text(f"  {name}: run {run + 1} of {runs} ...", flush=True)
                watched = profile(picture) if picture else None
                one = existing_rows.backfill(server, rows, applications, rate, seconds=alone_s, profile=watched)
                backfills[name].append(one)
            for name, copy in ((_SELECT, existing_rows.select_all), (_PIPE, existing_rows.pipe)):
                print_text(f"  {name}: run {run + 1} of {runs} ...", flush=True)
                copies[name].append(copy(server, rows))
    _print_rates(rows, size, backfills, copies)
    _print_latency(backfills)
    _print_limits(backfills, budget)
    return {
        "rows": rows,
        "row_bytes": size,
        "budget_mib": budget,
        "backfills": {name: [asdict(one) for one in ones] for name, ones in backfills.items()},
        "copies": {name: [asdict(one) for one in ones] for name, ones in copies.items()},
    }


def _print_rates(rows: int, size: float, backfills: dict[str, list[Backfill]], copies: dict[str, list[Copy]]) -> None:
    title = (
        f"{rows:,} existing rows of {size:.0f} B under {WRITES_PER_S:,} writes/s, to a batch callback that reads the "
        "values; median (min - max)"
    )
    columns = ("what", "rows/s", "MB/s", "of the pipe", "of SELECT *", "server cores", "publisher cores")
    peers = [statistics.median(one.rows_per_s for one in copies[name]) for name in (_PIPE, _SELECT)]
    shown: list[Sequence[str]] = []
    for name in (_DEFAULT, _UNLIMITED, _THREE):
        ones = backfills[name]
        cores = f"{statistics.median(one.publisher_cores for one in ones):.2f}"
        shown.append(_rate(name, [one.rows_per_s for one in ones], size, peers, ones, cores))
    for name, found in copies.items():
        shown.append(_rate(name, [one.rows_per_s for one in found], size, peers, found, ""))
    print_table(columns, shown, "", title)
    ratio = statistics.median(one.rows_per_s for one in backfills[_UNLIMITED]) / peers[0]
    print_text(f"rows/s, unlimited, of the pipe's: {ratio:.2f}, aim 1 {_verdict(ratio >= 1)}")


def _rate(
    name: str, rates: Sequence[float], size: float, peers: Sequence[float], ones: Sequence[Backfill | Copy], cores: str
) -> list[str]:
    middle = statistics.median(rates)
    server = f"{statistics.median(one.server_cores for one in ones):.2f}"
    ratios = [f"{middle / peer:.2f}" for peer in peers]
    return [name, _spread(rates), f"{middle * size / 1e6:.1f}", *ratios, server, cores]


def _print_latency(backfills: dict[str, list[Backfill]]) -> None:
    title = f"The live flow beside it, {WRITES_PER_S:,} writes/s: from the scheduled write; median (min - max)"
    columns = ("what", "p50 ms", "p99 ms", "of no backfill's", "p99 ms to the server's answer", "mark")
    alone = statistics.median(one.p99_ms for one in backfills[_ALONE])
    shown: list[Sequence[str]] = []
    for name, ones in backfills.items():
        times = statistics.median(one.p99_ms for one in ones) / alone
        mark = f"<= {_P99_TIMES} {_verdict(times <= _P99_TIMES)}" if name == _DEFAULT else ""
        spreads = [_spread([one.p50_ms for one in ones], 1), _spread([one.p99_ms for one in ones], 1)]
        shown.append((name, *spreads, f"{times:.2f}", _spread([one.write_p99_ms for one in ones], 1), mark))
    print_table(columns, shown, "", title)


def _print_limits(backfills: dict[str, list[Backfill]], budget: float) -> None:
    title = "Memory of the publisher, and rows that the server read for it"
    columns = ("what", "peak MiB", "above no backfill's", "rows read / rows of the table", "mark")
    alone = max(one.peak_mib for one in backfills[_ALONE])
    shown: list[Sequence[str]] = []
    for name, ones in backfills.items():
        if name == _ALONE:
            shown.append((name, f"{alone:.0f}", "", "", ""))
            continue
        more = max(one.peak_mib for one in ones) - alone
        read = statistics.median(one.read_per_row for one in ones)
        mark = f"<= {budget:.0f} MiB {_verdict(more <= budget)}, <= {_READ_TIMES} {_verdict(read <= _READ_TIMES)}"
        shown.append((name, f"{alone + more:.0f}", f"{more:.0f}", f"{read:.3f}", mark))
    print_table(columns, shown, "", title)


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f}  ({low:,.{digits}f} - {high:,.{digits}f})"


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"
