"""Measures one publisher with many flows: the time to assign them, their cost at rest, and their effect on latency.

A hashed dataset over one RocksDB has any number of flows, all for one application with one subscriber. A private
ZooKeeper coordinates.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cases import cpu_s, line, program, scratch, tell
from benchmarks.operate import resident_mb
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

__all__ = ["Delays", "Rest", "Run", "Starts", "configuration", "many_flows"]

_LOOK_S: Final = 2.0
_MOST_AT_REST: Final = 50
"""Requests to ZooKeeper in two seconds: datamarkers are stored once a second."""
_VALUE: Final = 100
"""Bytes of each update's value."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds from a process's start until the subscriber was told of every flow."""

    publisher: float
    """The start of a publisher that never ran: it registers the flows."""
    subscriber: float
    """The publisher runs, and no subscriber did."""
    publisher_again: float
    """After ``kill -9``, from its datamarkers."""
    publisher_cpu_s: float
    """Processor time of the first start."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is written: percent of one core, the requests that ZooKeeper received per second from everybody, and the
    publisher's resident megabytes."""

    publisher_percent: float
    subscriber_percent: float
    requests_per_s: float
    publisher_mb: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from the scheduled write to the callback, and shares of one core meanwhile."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    publisher_cores: float
    subscriber_cores: float


@dataclass(frozen=True, slots=True)
class Run:
    """One publisher with this many flows. ``delays``: ``None`` where nothing was written."""

    flows: int
    starts: Starts
    rest: Rest
    delays: Delays | None


def configuration(folder: Path, zookeeper: str, flows: int, markers: str) -> Path:
    """``flows`` shards of one store, for one application. ``markers``: where datamarkers are kept."""
    path = folder / "bench.toml"
    path.write_text(
        "\n".join(
            (
                "version = 1",
                "[coordinator]",
                f'zookeeper = "{zookeeper}"',
                "[publisher]",
                f'markers = "{markers}"',
                f'state_dir = "{folder}/state"',
                "[datasets.bench]",
                f"shard_by = {{ hash = {flows} }}",
                "[datasets.bench.copies.main.logs.db]",
                f'source = "rocksdb://{folder}/store"',
                "[applications.app]",
                'dataset = "bench"',
                'start = "latest"',
            )
        )
    )
    return path


def many_flows(
    flows: int, markers: str, *, rest_s: float, rate: float = 0.0, load_s: float = 0.0, settle: bool = True
) -> Run:
    """One run with this many flows. ``rest_s``: seconds to watch while nothing is written. ``rate``: updates a second
    for ``load_s`` seconds, 0: none. ``settle``: what a start leaves to do is not counted as rest."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        zookeeper = EmbeddedZooKeeper()
        zookeeper.start()
        stack.callback(zookeeper.close)
        # The first write makes the log, which stays open as long as its application.
        load_words = ("--rate", str(rate), "--seconds", str(load_s), "--size", str(_VALUE))
        writer = stack.enter_context(program("benchmarks.store", f"{folder}/store", "--count", "1", *load_words))
        line(writer)
        config = configuration(folder, f"{zookeeper.hosts}/bench", flows, markers)
        asyncio.run(publish_config(load(config)))
        words = ("benchmarks.flow_subscriber", f"{zookeeper.hosts}/bench", str(flows))
        with program(*words) as subscriber:
            line(subscriber)
            with _publisher(config) as killed:
                first, cpu = _assigned(subscriber) - killed.began, cpu_s(killed.process.pid)
                killed.process.send_signal(signal.SIGKILL)
                killed.process.wait()
            publisher = stack.enter_context(_publisher(config))
            again = _assigned(subscriber) - publisher.began
            _leave(subscriber)
        began = time.monotonic()
        subscriber = stack.enter_context(program(*words))
        line(subscriber)
        starts = Starts(first, _assigned(subscriber) - began, again, cpu)
        pids = (publisher.process.pid, subscriber.pid)
        if settle:
            _await_first_markers(subscriber, zookeeper.hosts)
        rest = _rest(zookeeper.hosts, pids, rest_s)
        return Run(flows, starts, rest, _delays(writer, subscriber, pids) if rate else None)


@dataclass(frozen=True, slots=True)
class _Publisher:
    process: subprocess.Popen[str]
    began: float


@contextmanager
def _publisher(config: Path) -> Iterator[_Publisher]:
    began = time.monotonic()
    with program("benchmarks.publisher", str(config)) as process:
        yield _Publisher(process, began)


def _leave(subscriber: subprocess.Popen[str]) -> None:
    """It withdraws its registration: a killed one's would stay as long as its session."""
    assert subscriber.stdin is not None
    subscriber.stdin.close()
    subscriber.wait()


def _assigned(subscriber: subprocess.Popen[str]) -> float:
    """When the subscriber had been told of every flow."""
    return float(line(subscriber))


def _await_first_markers(subscriber: subprocess.Popen[str], zookeeper: str) -> None:
    """Until the first datamarker of each flow, which comes ten seconds after its start, was processed and is stored:
    what a start leaves to do is no rest. The publisher is not asked, because its answer would be in its memory.
    """
    tell(subscriber, "marked")
    line(subscriber)
    requests = -_MOST_AT_REST
    while (now := _requests(zookeeper)) - requests >= _MOST_AT_REST:
        requests = now
        time.sleep(_LOOK_S)


def _rest(zookeeper: str, pids: Sequence[int], seconds: float) -> Rest:
    before, requests, began = [cpu_s(pid) for pid in pids], _requests(zookeeper), time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    used = [(cpu_s(pid) - earlier) / lasted * 100 for pid, earlier in zip(pids, before, strict=True)]
    return Rest(used[0], used[1], (_requests(zookeeper) - requests) / lasted, resident_mb(pids[0])[0])


def _delays(writer: subprocess.Popen[str], subscriber: subprocess.Popen[str], pids: Sequence[int]) -> Delays:
    before, began = [cpu_s(pid) for pid in pids], time.monotonic()
    tell(writer, "go")
    line(writer)
    lasted = time.monotonic() - began
    used = [(cpu_s(pid) - earlier) / lasted for pid, earlier in zip(pids, before, strict=True)]
    tell(subscriber, "report")
    delays = sorted(float(delay) for delay in line(subscriber).split())
    return Delays(statistics.median(delays), delays[int(len(delays) * 0.99)], delays[-1], used[0], used[1])


def _requests(zookeeper: str) -> int:
    """How many packets the server has received; its own answer to ``srvr``."""
    host, _, port = zookeeper.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as asking:
        asking.sendall(b"srvr")
        told = b"".join(iter(lambda: asking.recv(1 << 16), b"")).decode()
    return int(next(row.partition(":")[2] for row in told.splitlines() if row.startswith("Received:")))
