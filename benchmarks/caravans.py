"""Measures the costs and gains of caravans (shared readers of a log): the paper's experiment, the caps, and fairness.

* :func:`catch_up`: ten flows whose datamarkers lie evenly over a backlog, with 1, 2, 5 and 10 caravans, the change
  buffer minimal and at its default: bytes read per byte of log (read amplification), and the time until each flow has
  caught up.
* :func:`under_load`: the same ten while a writer commits at a steady rate: what the readers took in the worst second,
  and the latency of a live flow with and without them.
* :func:`frozen`: one subscriber process is stopped with SIGSTOP: the latency of the others with and without that.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import subprocess
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import free_ports, line, memory_peak_mib, program, scratch, tell
from wormhole.admin.admin_service import describe
from wormhole.config import load
from wormhole.model.errors import StreamBroken

__all__ = ["CatchUp", "Frozen", "UnderLoad", "backlog", "catch_up", "frozen", "under_load"]

FLOWS = 10
SIZE = 2500
MIB = 1 << 20
MINIMAL_BUFFER = (
    "4MiB"  # the change buffer "off": some segments for each of ten caravans, without which nothing could be sent
)
_OPEN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """``amplification``: bytes read per byte of log between the first marker and the end.

    Times in seconds, one for each flow.
    """

    caravans: int
    amplification: float
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """Milliseconds of the live flow alone and while others catch up; bytes of the worst second, of one reader and of
    all, per byte of the cap.
    """

    p99_alone_ms: float
    p99_ms: float
    p50_alone_ms: float
    p50_ms: float
    worst_second_of_one: float
    worst_second_of_all: float
    caught_up_mib: float


@dataclass(frozen=True, slots=True)
class Frozen:
    """Milliseconds of the flows that are not frozen, without and with a frozen one; the publisher's memory (MiB)."""

    p99_alone_ms: float
    p99_ms: float
    publisher_peak_mib: float


def configuration(
    folder: Path, ports: Sequence[int], starts: Sequence[str], caravans: str, change_buffer: str = "64MiB"
) -> Path:
    """One application for each port, each with a start of its own."""
    text = [
        "version = 1",
        "[coordinator]",
        "static = true",
        "[publisher]",
        f'state_dir = "{folder}/state"',
        f'admin_listen = "127.0.0.1:{free_ports(1)[0]}"',
        f'change_buffer = "{change_buffer}"',
        "[datasets.bench]",
        f"caravans = {{ {caravans} }}",
        "[datasets.bench.copies.main.logs.db]",
        f'source = "rocksdb://{folder}/store"',
    ]
    for number, (port, start) in enumerate(zip(ports, starts, strict=True)):
        text += [f"[applications.app{number}]", 'dataset = "bench"', f'start = "{start}"']
        text += [f"[applications.app{number}.subscribers]", f's = "127.0.0.1:{port}"']
    path = folder / "bench.toml"
    path.write_text("\n".join(text))
    return path


@contextmanager
def backlog(size: int, rate: float = 0.0, seconds: float = 0.0) -> Iterator[tuple[Path, subprocess.Popen[str], int]]:
    """A folder with a store whose log holds ``size`` bytes, its writer, and the number of updates in it. Told ``go``,
    the writer goes on at ``rate`` updates a second for ``seconds``.
    """
    count = size // SIZE
    with scratch() as folder:
        words = ["--count", str(count), "--size", str(SIZE), "--rate", str(rate), "--seconds", str(seconds)]
        with program("benchmarks.store", f"{folder}/store", *words) as writer:
            line(writer)
            yield folder, writer, count


def _opened(config: Path, live: int, flows: int) -> None:
    """Wait until all ``flows`` travel and the first ``live`` of them with the lead.

    Raises ``RuntimeError`` when that takes too long.
    """
    address = load(config).publisher.admin_listen
    until = time.monotonic() + _OPEN_TIMEOUT_S
    while time.monotonic() < until:
        time.sleep(0.1)
        try:
            told = {flow.flow: flow for flow in describe(address).flows}
        except StreamBroken:
            continue
        names = [f"app{number}/db" for number in range(flows)]
        if all(name in told and told[name].caravan for name in names) and all(
            told[name].state == "live" for name in names[:live]
        ):
            return
    raise RuntimeError(f"the flows of the benchmark did not open within {_OPEN_TIMEOUT_S:g} s")


def _evenly(folder: Path, count: int) -> tuple[list[str], list[int]]:
    """Starts of the flows, evenly over the log, and how many updates each has at least before it."""
    [log] = (folder / "store").glob("*.log")
    size = log.stat().st_size
    starts = ["earliest", *(f"1/{int(log.stem)}/{size * i // FLOWS}" for i in range(1, FLOWS))]
    return starts, [count - count * i // FLOWS - 10 for i in range(FLOWS)]


def _result(subscriber: subprocess.Popen[str], publisher: subprocess.Popen[str]) -> dict[str, Any]:
    """What the subscriber prints in the end. Raises ``RuntimeError`` when the publisher ends before."""
    assert subscriber.stdout is not None
    while not select.select([subscriber.stdout], [], [], 1.0)[0]:
        if publisher.poll() is not None:
            raise RuntimeError(f"the publisher ended with {publisher.returncode}")
    told: dict[str, Any] = json.loads(line(subscriber))
    return told


def _ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(30)


def catch_up(folder: Path, count: int, caravans: int, change_buffer: str, rate_mib: float) -> CatchUp:
    """One run over a log of ``count`` updates that was written beforehand; each caravan reads at most ``rate_mib``
    MiB/s.
    """
    shutil.rmtree(folder / "state", ignore_errors=True)
    starts, counts = _evenly(folder, count)
    ports = free_ports(FLOWS)
    caps = f'max = {caravans}, max_read_rate = "{round(rate_mib * 1024)}KiB/s"'
    config = configuration(folder, ports, starts, caps, change_buffer)
    words = ["--mode", "transport", "--ports", ",".join(map(str, ports)), "--counts", ",".join(map(str, counts))]
    with program("benchmarks.subscriber", *words) as subscriber:
        line(subscriber)
        with program("benchmarks.metered", str(config), str(folder / "reads.json")) as publisher:
            result = _result(subscriber, publisher)
            _ended(publisher)
    reads = json.loads((folder / "reads.json").read_text())
    begin = min(result["first"])
    written = sum(path.stat().st_size for path in (folder / "store").glob("*.log"))
    return CatchUp(caravans, sum(size for _, _, size in reads) / written, [at - begin for at in result["last"]])


def under_load(size: int, rate: float, seconds: float, one_mib: float, total_mib: float) -> UnderLoad:
    """A live flow at ``rate`` updates a second, alone and then with ten others that catch up from a backlog of ``size``
    bytes.
    """
    alone, _, _ = _live(size, rate, seconds, others=False, one_mib=one_mib, total_mib=total_mib)
    loaded, reads, begin = _live(size, rate, seconds, others=True, one_mib=one_mib, total_mib=total_mib)
    within = [(at, reader, bytes_) for at, reader, bytes_ in reads if at >= begin]
    readers = {reader for _, reader, _ in reads}
    one = max(worst_second([(at, bytes_) for at, number, bytes_ in reads if number == reader]) for reader in readers)
    every = worst_second([(at, bytes_) for at, _, bytes_ in reads])
    return UnderLoad(
        _quantile(alone, 0.99),
        _quantile(loaded, 0.99),
        _quantile(alone, 0.5),
        _quantile(loaded, 0.5),
        one / (one_mib * MIB),
        every / (total_mib * MIB),
        sum(bytes_ for _, _, bytes_ in within) / MIB,
    )


def _live(
    size: int, rate: float, seconds: float, *, others: bool, one_mib: float, total_mib: float
) -> tuple[list[float], list[tuple[float, int, int]], float]:
    with backlog(size, rate, seconds) as (folder, writer, count), ExitStack() as stack:
        late, _ = _evenly(folder, count)
        starts = ["latest", *(late if others else [])]
        ports = free_ports(len(starts))
        caps = f'max = 4, max_read_rate = "{one_mib:g}MiB/s", max_total_read_rate = "{total_mib:g}MiB/s"'
        config = configuration(folder, ports, starts, caps)
        words = ["--mode", "latency", "--ports", str(ports[0]), "--counts", str(int(rate * seconds))]
        live = stack.enter_context(program("benchmarks.subscriber", *words))
        line(live)
        if others:
            endless = ["--counts", str(1 << 40), "--first", "1"]
            words = ["--mode", "transport", "--ports", ",".join(map(str, ports[1:])), *endless]
            line(stack.enter_context(program("benchmarks.subscriber", *words)))
        publisher = stack.enter_context(program("benchmarks.metered", str(config), str(folder / "reads.json")))
        _opened(config, 1, len(ports))
        begin = time.monotonic()
        tell(writer, "go")
        delays = _result(live, publisher)["delays_ns"][0]
        _ended(publisher)
        return [delay / 1e6 for delay in delays], json.loads((folder / "reads.json").read_text()), begin


def frozen(rate: float, seconds: float, applications: int = 5) -> Frozen:
    """Live flows at ``rate`` updates a second; in the second run one more application, whose process is stopped all the
    time.
    """
    alone, _ = _beside_frozen(rate, seconds, applications, freeze=False)
    beside, peak = _beside_frozen(rate, seconds, applications, freeze=True)
    return Frozen(_quantile(alone, 0.99), _quantile(beside, 0.99), peak)


def _beside_frozen(rate: float, seconds: float, applications: int, *, freeze: bool) -> tuple[list[float], float]:
    with backlog(SIZE, rate, seconds) as (folder, writer, _), ExitStack() as stack:
        ports = free_ports(applications + 1)
        config = configuration(folder, ports, ["latest"] * len(ports), "max = 4")
        count = str(int(rate * seconds))
        words = ["--mode", "latency", "--ports", ",".join(map(str, ports[:-1])), "--counts", count]
        subscriber = stack.enter_context(program("benchmarks.subscriber", *words))
        line(subscriber)
        words = ["--mode", "transport", "--ports", str(ports[-1]), "--counts", count, "--first", str(applications)]
        other = stack.enter_context(program("benchmarks.subscriber", *words))
        line(other)
        publisher = stack.enter_context(program("benchmarks.publisher", str(config)))
        _opened(config, len(ports), len(ports))
        if freeze:
            os.kill(other.pid, signal.SIGSTOP)
        try:
            tell(writer, "go")
            delays = [delay / 1e6 for one in _result(subscriber, publisher)["delays_ns"] for delay in one]
        finally:
            if freeze:
                os.kill(other.pid, signal.SIGCONT)
        return delays, memory_peak_mib(publisher.pid)


def worst_second(reads: Sequence[tuple[float, int]]) -> int:
    """The most bytes that were read within any second."""
    ordered = sorted(reads)
    times = [at for at, _ in ordered]
    sums = [0]
    for _, size in ordered:
        sums.append(sums[-1] + size)
    return max((sums[bisect_right(times, at + 1.0)] - sums[i] for i, at in enumerate(times)), default=0)


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)] if values else math.nan
