"""``make bench``: every figure with its spread and, where there is one, its ratio to raw gRPC in the same run.

``--quick`` for a look, ``--only CASE`` for one case; ``PROFILE=1`` writes a flame graph of the publisher for each case
into ``build/bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import cases
from benchmarks.caravans_report import caravans_report
from benchmarks.existing_rows_report import existing_rows_report
from benchmarks.latency_report import latency_report
from benchmarks.machine import Machine, load
from benchmarks.many_flows_report import many_flows_report
from benchmarks.mysql_report import mysql_report
from benchmarks.operate_report import operate_report
from benchmarks.peers.report import peers_report
from benchmarks.postgres.report import postgres_report
from benchmarks.postgres.slots_behind import slots_report
from benchmarks.relay_report import relay_report
from benchmarks.replay_report import replay_report
from benchmarks.replay_scale_report import add_options, replay_scale_report
from wormholectl.show.printer import print_table, print_text

_OUT = Path("build/bench")
_CASES = ("throughput", "latency", "caravans", "mysql", "existing_rows", "operate", "many_flows", "replay",
          "replay_scale", "peers", "postgres", "postgres_slots", "relay")  # fmt: skip
_MODES = {
    "values": "values read in on_updates",
    "single values": "values read in on_update",
    "values as columns": "values as columns in on_arrow",
    "transport": "transport alone (a count)",
}
_MESSAGE = 256 << 10  # what a batch is; raw gRPC carries messages of the same size


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f}  ({low:,.{digits}f} - {high:,.{digits}f})"


def _profile(name: str) -> Path | None:
    if not os.environ.get("PROFILE"):
        return None
    return _OUT / f"{name}.svg"


def _repeat(runs: int, label: str, once: Callable[[], Any]) -> list[Any]:
    results = []
    for run in range(runs):
        print_text(f"  {label}: run {run + 1} of {runs} ...", flush=True)
        results.append(once())
    return results


def throughput(runs: int, scale: float) -> list[dict[str, Any]]:
    """A log written beforehand, to one subscriber, which reads the values or only counts."""
    title = "Throughput: a log written beforehand, one publisher, one subscriber; median (min - max)"
    columns = ("case", "updates/s", "MB/s", "of raw gRPC", "publisher s", "subscriber s", "peak MiB")
    shown: list[Sequence[str]] = []
    rows = []
    for size, count, per_batch, modes in (
        (100, 2_000_000, 1, ("values", "single values", "values as columns", "transport")),
        (100, 2_000_000, 10, ("values", "values as columns", "transport")),
        (2500, 400_000, 1, ("values", "single values", "values as columns", "transport")),
    ):
        total = int(count * scale)
        with cases.filled_store(total, size, per_batch) as folder:
            for mode in modes:
                name = f"{size} B, {per_batch} per transaction, {_MODES[mode]}"

                def once(
                    folder: Path = folder, mode: str = mode, total: int = total, size: int = size, name: str = name
                ) -> tuple[cases.Throughput, float]:
                    profile = _profile(f"throughput-{size}-{mode.replace(' ', '-')}")
                    return (
                        cases.throughput(folder, mode, total, size, profile),
                        cases.raw_mb_per_s(total * (size + 40), _MESSAGE),
                    )

                results = _repeat(runs, name, once)
                ours = [r[0] for r in results]
                ratios = [r[0].mb_per_s / r[1] for r in results]
                shown.append(
                    (
                        name,
                        _spread([r.updates_per_s for r in ours]),
                        _spread([r.mb_per_s for r in ours]),
                        _spread(ratios, 2),
                        f"{statistics.median(r.publisher_cpu_s for r in ours):.1f}",
                        f"{statistics.median(r.subscriber_cpu_s for r in ours):.1f}",
                        f"{max(r.publisher_peak_mib for r in ours):.0f}",
                    )
                )
                rows.append(
                    {
                        "case": name,
                        "updates": total,
                        "updates_per_s": [r.updates_per_s for r in ours],
                        "mb_per_s": [r.mb_per_s for r in ours],
                        "raw_grpc_mb_per_s": [r[1] for r in results],
                        "publisher_peak_mib": [r.publisher_peak_mib for r in ours],
                    }
                )
    print_table(columns, shown, "", title)
    return rows


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--runs", type=int, help="3, and for the peers 5")
    parser.add_argument("--quick", action="store_true", help="one run, a tenth of the data")
    parser.add_argument("--only", choices=_CASES)
    parser.add_argument("--rows", type=int, help="rows of the table of existing rows (200000, with --quick 50000)")
    parser.add_argument("--backlog", type=int, help="megabytes of the caravans' backlog (2000, with --quick 200)")
    parser.add_argument("--caravan-rate", type=float, default=24, help="MiB/s that each caravan may read")
    parser.add_argument("--shapes", default="", help="of the peers', postgres and relay: S1,S2,S3,S4, all by default")
    parser.add_argument(
        "--readers", default="", help="of the same cases: words of their names (relay: its servers), all by default"
    )
    parser.add_argument("--picture", default=str(_OUT / "caravans.png"), help="where the caravans' picture goes")
    parser.add_argument("--replay-picture", default=str(_OUT / "replay-latest.png"), help="where the replay's goes")
    add_options(parser)
    parser.add_argument("--json", default=str(_OUT / "bench.json"), help="where the figures go")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))  # what was started, too
    _OUT.mkdir(parents=True, exist_ok=True)
    machine = Machine.current()
    print_text(str(machine))
    usual = 5 if arguments.only in ("peers", "postgres") else 3
    runs, scale, seconds = (arguments.runs or 1, 0.1, 4.0) if arguments.quick else (arguments.runs or usual, 1.0, 10.0)
    started = time.time()
    result: dict[str, Any] = {
        "machine": asdict(machine),
        "versions": {
            name: version(name) for name in ("grpcio", "protobuf", "pyarrow", "pyspark", "rocksdict", "uvloop")
        },
        "runs": runs,
    }
    if arguments.only in (None, "throughput"):
        result["throughput"] = throughput(runs, scale)
    if arguments.only in (None, "latency"):
        result["latency"] = latency_report(runs, seconds, _profile)
    if arguments.only in (None, "caravans"):
        result["caravans"] = caravans_report(
            runs,
            quick=arguments.quick,
            size_mb=arguments.backlog or (200 if arguments.quick else 2000),
            rate_mib=arguments.caravan_rate,
            picture=Path(arguments.picture),
        )
    if arguments.only in (None, "mysql"):
        result["mysql"] = mysql_report(runs, quick=arguments.quick, profile=_profile)
    if arguments.only in (None, "existing_rows"):
        rows = arguments.rows or (50_000 if arguments.quick else 200_000)
        result["existing_rows"] = existing_rows_report(runs, quick=arguments.quick, rows=rows, profile=_profile)
    if arguments.only in (None, "operate"):
        result["operate"] = operate_report(runs, quick=arguments.quick)
    if arguments.only in (None, "many_flows"):
        result["many_flows"] = many_flows_report(runs, quick=arguments.quick)
    if arguments.only in (None, "replay"):
        result["replay"] = replay_report(
            runs, quick=arguments.quick, picture=Path(arguments.replay_picture), profile=_profile
        )
    if arguments.only == "replay_scale":
        result["replay_scale"] = replay_scale_report(runs, arguments, _profile)
    # These build programs of other languages, so they are for who asks.
    shapes = [name for name in arguments.shapes.split(",") if name]
    if arguments.only == "peers":
        build = Path("build/peers")
        result["peers"] = peers_report(runs, scale=scale, shapes=shapes, only=arguments.readers, build=build)
    if arguments.only == "postgres":
        build = Path("build/postgres")
        result["postgres"] = postgres_report(runs, scale=scale, shapes=shapes, only=arguments.readers, build=build)
    if arguments.only == "postgres_slots":
        result["postgres_slots"] = slots_report(quick=arguments.quick)
    if arguments.only == "relay":
        result["relay"] = relay_report(runs, scale=scale, seconds=seconds, shapes=shapes, only=arguments.readers)
    result["load_at_the_end"] = load()
    result["seconds"] = time.time() - started
    Path(arguments.json).write_text(json.dumps(result, indent=1))
    print_text(f"figures: {arguments.json}")


if __name__ == "__main__":
    main()
