"""The table of :mod:`benchmarks.mysql`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import mysql
from benchmarks.mysql import Case, Peers, Rate
from wormholectl.show.printer import print_table, print_text

__all__ = ["mysql_report"]


def mysql_report(runs: int, *, quick: bool, profile: Callable[[str], Path | None]) -> list[dict[str, Any]]:
    """Every case, as ``make bench CASE=mysql`` prints it; ``profile``: where the flame graph of a case's publisher
    goes.
    """
    title = "MariaDB's binlog to one subscriber's on_updates, which reads every value; medians"
    columns = (
        "case", "rows/s", "transport alone", "on_arrow (of transport alone, of rows/s)",
        "transactions/s", "MB/s", "x mysql-replication", "of the raw copy's time",
        "publisher s", "subscriber s", "peak MiB",
    )  # fmt: skip
    shown: list[Sequence[str]] = []
    told = []
    for number, case in enumerate(mysql.CASES):
        if quick:
            case = replace(case, transactions=max(1, case.transactions // 10), sample=case.sample // 10)
        print_text(f"  {case.name}: filling a server ...", flush=True)
        with mysql.filled_server(case) as server:
            ours: list[Rate] = []
            counted: list[Rate] = []
            columnar: list[Rate] = []
            theirs: list[Peers] = []
            for run in range(runs):
                print_text(f"  {case.name}: run {run + 1} of {runs} ...", flush=True)
                ours.append(mysql.publisher(server, case, profile=profile(f"mysql-{number}")))
                counted.append(mysql.publisher(server, case, "transport"))
                columnar.append(mysql.publisher(server, case, "values as columns"))
                theirs.append(mysql.peers(server, case))
        shown.append(_row(case, ours, counted, columnar, theirs))
        told.append(
            {
                "case": case.name,
                "rows": case.rows,
                "values_read": [asdict(one) for one in ours],
                "transport_alone": [asdict(one) for one in counted],
                "on_arrow": [asdict(one) for one in columnar],
                "peers": [asdict(one) for one in theirs],
            }
        )
    print_table(columns, shown, "", title)
    return told


def _row(
    case: Case, ours: Sequence[Rate], counted: Sequence[Rate], columnar: Sequence[Rate], theirs: Sequence[Peers]
) -> list[str]:
    seconds = statistics.median(one.streaming_s for one in ours)
    peer = statistics.median(one.replication_rows_per_s for one in theirs)
    transport_s, columns_s = (statistics.median(one.streaming_s for one in ones) for ones in (counted, columnar))
    raw_s = statistics.median(one.raw_s for one in theirs)
    return [
        case.name,
        f"{case.rows / seconds:,.0f}",
        f"{case.rows / transport_s:,.0f}",
        f"{case.rows / columns_s:,.0f}  ({transport_s / columns_s:.2f}, {seconds / columns_s:.2f})",
        f"{case.transactions / seconds:,.0f}",
        f"{theirs[0].log_bytes / seconds / 1e6:.0f}",
        f"{case.rows / seconds / peer:.0f}  ({peer:,.0f} rows/s)",
        f"{seconds / raw_s:.1f}  ({raw_s:.2f} s)",
        f"{statistics.median(one.publisher_cpu_s for one in ours):.1f}",
        f"{statistics.median(one.subscriber_cpu_s for one in ours):.1f}",
        f"{max(one.publisher_peak_mib for one in ours):.0f}",
    ]
