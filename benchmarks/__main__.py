"""``make bench``: every figure with its spread and, where there is one, its ratio to raw gRPC in the same run.

``--quick`` for a look, ``--only throughput|latency|caravans|mysql|operate|replay``; ``PROFILE=1`` writes a flame graph
of the publisher for each case into ``build/bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import cases
from benchmarks.caravans_report import caravans_report
from benchmarks.mysql_report import mysql_report
from benchmarks.operate_report import operate_report
from benchmarks.replay_report import replay_report
from wormhole.host.compiled import compiled_modules, hot_modules
from wormholectl.show.printer import print_table, print_text

_OUT = Path("build/bench")
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
    """A log written beforehand, to one subscriber."""
    title = "Throughput: a log written beforehand, one publisher, one subscriber; median (min - max)"
    columns = ("case", "updates/s", "MB/s", "of raw gRPC", "publisher s", "subscriber s", "peak MiB")
    shown: list[Sequence[str]] = []
    rows = []
    for size, count, per_batch, modes in (
        (100, 2_000_000, 1, ("batch", "single")),
        (100, 2_000_000, 10, ("batch",)),
        (2500, 400_000, 1, ("batch", "single")),
    ):
        total = int(count * scale)
        with cases.filled_store(total, size, per_batch) as folder:
            for mode in modes:
                name = f"{size} B, {per_batch} per transaction, {mode} callback"

                def once(
                    folder: Path = folder, mode: str = mode, total: int = total, size: int = size, name: str = name
                ) -> tuple[cases.Throughput, float]:
                    profile = _profile(f"throughput-{size}-{mode}")
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


def latency(runs: int, seconds: float) -> list[dict[str, Any]]:
    """Open loop at 2,000 updates a second of 2.5 KB."""
    title = "Latency from the scheduled write to the callback: 2,000/s of 2.5 KB, open loop; median (min - max)"
    columns = ("applications", "p50 ms", "p99 ms", "worst ms", "publisher cores", "subscriber cores", "peak MiB")
    shown: list[Sequence[str]] = []
    rows: list[dict[str, Any]] = []
    cores = []
    for applications in (1, 10, 20, 40):

        def once(applications: int = applications) -> cases.Latency:
            return cases.latency(applications, 2000, 2500, seconds, _profile(f"latency-{applications}"))

        results = _repeat(runs, f"{applications} applications", once)
        shown.append(
            (
                str(applications),
                _spread([r.p50_ms for r in results], 1),
                _spread([r.p99_ms for r in results], 1),
                _spread([r.worst_ms for r in results], 1),
                _spread([r.publisher_cores for r in results], 2),
                _spread([r.subscriber_cores for r in results], 2),
                f"{max(r.publisher_peak_mib for r in results):.0f}",
            )
        )
        cores.append(statistics.median(r.publisher_cores for r in results))
        rows.append(
            {
                "applications": applications,
                "p50_ms": [r.p50_ms for r in results],
                "p99_ms": [r.p99_ms for r in results],
                "publisher_cores": [r.publisher_cores for r in results],
                "publisher_peak_mib": [r.publisher_peak_mib for r in results],
            }
        )
    print_table(columns, shown, "", title)
    print_text(f"publisher CPU per added subscriber: {(cores[-1] - cores[0]) / 39 * 100:.2f} % of a core")

    def filtered() -> cases.Latency:
        return cases.latency(1, 2000, 2500, seconds, _profile("latency-filtered"), filtered=20)

    results = _repeat(runs, "1 application and 20 that keep a twentieth each", filtered)
    added = [(r.publisher_cores - cores[0]) / 20 * 100 for r in results]
    print_text(f"publisher CPU per added subscriber that keeps 1/20: {_spread(added, 2)} % of a core")
    rows.append({"filtered": 20, "percent_of_a_core_each": added, "p99_ms": [r.p99_ms for r in results]})
    return rows


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one run, a tenth of the data")
    parser.add_argument("--only", choices=("throughput", "latency", "caravans", "mysql", "operate", "replay"))
    parser.add_argument("--backlog", type=int, help="megabytes of the caravans' backlog (2000, with --quick 200)")
    parser.add_argument("--caravan-rate", type=float, default=24, help="MiB/s that each caravan may read")
    parser.add_argument("--picture", default=str(_OUT / "caravans.png"), help="where the caravans' picture goes")
    parser.add_argument("--replay-picture", default=str(_OUT / "replay-latest.png"), help="where the replay's goes")
    parser.add_argument("--json", default=str(_OUT / "bench.json"), help="where the figures go")
    arguments = parser.parse_args()
    _OUT.mkdir(parents=True, exist_ok=True)
    compiled, hot = compiled_modules(), hot_modules()
    form = (
        "compiled" if compiled == hot else "INTERPRETED" if not compiled else f"partly compiled: {', '.join(compiled)}"
    )
    print_text(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, grpcio {version('grpcio')}, "
        f"protobuf {version('protobuf')}, hot modules {form}"
    )
    runs, scale, seconds = (1, 0.1, 4.0) if arguments.quick else (arguments.runs, 1.0, 10.0)
    started = time.time()
    result: dict[str, Any] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            name: version(name) for name in ("grpcio", "protobuf", "pyarrow", "pyspark", "rocksdict", "uvloop")
        },
        "compiled": list(compiled),
        "runs": runs,
    }
    if arguments.only in (None, "throughput"):
        result["throughput"] = throughput(runs, scale)
    if arguments.only in (None, "latency"):
        result["latency"] = latency(runs, seconds)
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
    if arguments.only in (None, "operate"):
        result["operate"] = operate_report(runs, quick=arguments.quick)
    if arguments.only in (None, "replay"):
        result["replay"] = replay_report(
            runs, quick=arguments.quick, picture=Path(arguments.replay_picture), profile=_profile
        )
    result["seconds"] = time.time() - started
    Path(arguments.json).write_text(json.dumps(result, indent=1))
    print_text(f"figures: {arguments.json}")


if __name__ == "__main__":
    main()
