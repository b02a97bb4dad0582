"""Measures the latency from the scheduled write to the callback, and the processor time of a delivery. Updates are
written at a steady rate, for many applications whose subscribers run in one process.
"""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
import zlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import (
    BenchmarkError,
    configuration,
    cpu_s,
    free_ports,
    line,
    memory_peak_mib,
    program,
    scratch,
    tell,
)
from benchmarks.machine import load as load_of_machine
from benchmarks.store import key_of

__all__ = ["Latency", "Load", "latency", "switches"]

_STARTED_S: Final = 60.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` updates a second of ``size`` bytes, for ``seconds``, to each of ``applications``. ``filtered`` more of
    them (at most 20) keep a twentieth of the keys each, every one another.
    """

    applications: int
    rate: float
    size: int
    seconds: float
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """One run. ``*_ms``: from the scheduled write to the callback. ``*_cores``: processor time per second.
    ``messages_per_s``: gRPC messages that the publisher wrote, to all subscribers together. ``updates_per_batch``: of
    one flow. ``*_switches_per_s``: how often a thread of the process waited for something. ``load``: mean number of
    processes of the machine that ran or wanted to, over the minute before.
    """

    p50_ms: float
    p99_ms: float
    worst_ms: float
    publisher_cores: float
    subscriber_cores: float
    publisher_us: float
    subscriber_us: float
    messages_per_s: float
    updates_per_batch: float
    acks_per_s: float
    publisher_switches_per_s: float
    subscriber_switches_per_s: float
    publisher_peak_mib: float
    load: float


def switches(pid: int) -> int:
    """How often the threads of a process gave up the processor by themselves; those that ended count no more."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for row in status.read_text().splitlines():
            if row.startswith("voluntary_ctxt_switches:"):
                found += int(row.split()[1])
    return found


@dataclass(frozen=True, slots=True)
class _Moment:
    at: float
    cpu: tuple[float, float]
    switches: tuple[int, int]
    metrics: Counter[str]


def _moment(publisher: int, subscriber: int, port: int) -> _Moment:
    pids = (publisher, subscriber)
    return _Moment(
        time.monotonic(),
        (cpu_s(publisher), cpu_s(subscriber)),
        (switches(pids[0]), switches(pids[1])),
        _metrics(port),
    )


def _metrics(port: int) -> Counter[str]:
    """The publisher's samples, summed over their labels."""
    found: Counter[str] = Counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        for row in answer.read().decode().splitlines():
            if not row.startswith("#"):
                name, _, value = row.rpartition(" ")
                found[name.partition("{")[0]] += float(value)  # type: ignore[assignment]
    return found


def _await_flows(port: int, count: int) -> None:
    """Until that many flows travel."""
    until = time.monotonic() + _STARTED_S
    while time.monotonic() < until:
        try:
            if _metrics(port)["wormhole_caravan_flows"] >= count:
                return
        except OSError:  # it does not listen yet
            pass
        time.sleep(_LOOK_S)
    raise BenchmarkError(f"not all of {count} flows travel after {_STARTED_S:g} s")


def latency(load: Load, profile: Path | None = None, *, dials: bool = False) -> Latency:
    """Open loop: a write is due at its time whether or not earlier ones were late. ``profile``: where the publisher's
    flame graph goes. ``dials``: the subscribers dial the publisher.

    All subscribers live in one process, so that the machine's cores are not shared with as many interpreters.
    """
    with scratch() as folder, ExitStack() as stack:
        store = (f"{folder}/store", "--rate", f"{load.rate}", "--seconds", f"{load.seconds}", "--size", f"{load.size}")
        writer = stack.enter_context(program("benchmarks.store", *store))
        line(writer)
        *ports, http, attached = free_ports(load.applications + load.filtered + 2)
        attach = f"127.0.0.1:{attached}" if dials else ""
        filters = {load.applications + k: f"hash(key) % 20 == {k}" for k in range(load.filtered)}
        page = f'http_listen = "127.0.0.1:{http}"'
        config = configuration(folder, ports, "latest", filters, publisher=page, attach=attach)
        count = int(load.rate * load.seconds)
        kept = Counter(zlib.crc32(key_of(i)) % 20 for i in range(count))
        counts = [count] * load.applications + [kept[k] for k in range(load.filtered)]
        words = ("--mode", "latency", "--counts", ",".join(map(str, counts)), "--ports", ",".join(map(str, ports)))
        where = ("--dial", attach)
        subscriber = stack.enter_context(program("benchmarks.subscriber", *words, *where))
        line(subscriber)
        publisher = stack.enter_context(program("benchmarks.publisher", str(config), profile=profile))
        _await_flows(http, len(ports))
        machine_load = load_of_machine()
        before = _moment(publisher.pid, subscriber.pid, http)
        tell(writer, "go")
        result: dict[str, Any] = json.loads(line(subscriber))
        after = _moment(publisher.pid, subscriber.pid, http)
        delays = sorted(delay / 1e6 for one in result["delays_ns"] for delay in one)
        return _figures(delays, before, after, sum(counts), memory_peak_mib(publisher.pid), machine_load)


def _figures(
    delays: list[float], before: _Moment, after: _Moment, deliveries: int, peak_mib: float, load: float
) -> Latency:
    elapsed = after.at - before.at
    publisher_s, subscriber_s = (b - a for a, b in zip(before.cpu, after.cpu, strict=True))
    publisher_switches, subscriber_switches = (b - a for a, b in zip(before.switches, after.switches, strict=True))

    def counted(name: str) -> float:
        return after.metrics[name] - before.metrics[name]

    return Latency(
        p50_ms=statistics.median(delays),
        p99_ms=delays[int(len(delays) * 0.99)],
        worst_ms=delays[-1],
        publisher_cores=publisher_s / elapsed,
        subscriber_cores=subscriber_s / elapsed,
        publisher_us=publisher_s / deliveries * 1e6,
        subscriber_us=subscriber_s / deliveries * 1e6,
        messages_per_s=counted("wormhole_push_messages_total") / elapsed,
        updates_per_batch=deliveries / max(1.0, counted("wormhole_push_batches_total")),
        acks_per_s=counted("wormhole_push_acks_total") / elapsed,
        publisher_switches_per_s=publisher_switches / elapsed,
        subscriber_switches_per_s=subscriber_switches / elapsed,
        publisher_peak_mib=peak_mib,
        load=load,
    )
