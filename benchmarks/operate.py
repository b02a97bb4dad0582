"""Measures the cost of operation on a host: the start of a publisher, an idle monitor, and the time of a command.

A real monitor runs real publishers. Each figure has a limit from the same run: an interpreter that imports the same
modules and does nothing else.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import cpu_s, free_ports, line, program, scratch
from benchmarks.store import open_store
from wormhole.config import load
from wormhole.host import process_guard
from wormhole.host.ready_file import process_started

__all__ = [
    "MODULES",
    "Host",
    "Imported",
    "Log",
    "Rest",
    "Start",
    "at_rest",
    "command_seconds",
    "configuration",
    "help_seconds",
    "host",
    "imported",
    "rocksdb_log",
    "starts",
]

MODULES: Final = {
    "publisher": "wormholectl.app wormhole.config.check wormhole.host.logs publisher.daemon uvloop",
    "monitor": "wormholectl.app wormhole.host.logs monitor.daemon",
    "flows": "wormholectl.app wormholectl.show.lists wormholectl.show.flows wormhole.admin.admin_service "
    "wormhole.coordination",
    "SDK": "subscriber_sdk",
    "nothing": "",
}
"""What each process has imported when it is up: the limit of what its own work can bring."""

_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02
_SETTLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Log:
    """One log. ``keys``: its lines in the configuration. ``write``: commits one update."""

    keys: str
    write: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the process's start to its first update in the subscriber's callback."""

    first: float
    """The start of a publisher that never ran: it registers its flows and begins where the application asks."""
    again: float
    """After ``kill -9``, from its datamarkers, with an update waiting."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What one process takes at rest: percent of one core, resident megabytes, and those of them that no file backs."""

    cpu_percent: float
    resident_mb: float
    anonymous_mb: float


@dataclass(frozen=True, slots=True)
class Imported:
    """An interpreter that imports modules and ends: seconds from its start to its end, resident megabytes before it."""

    seconds: float
    resident_mb: float


def resident_mb(pid: int | str) -> tuple[float, float]:
    """Megabytes (of 1,000,000 bytes) that a process holds in memory, and those of them that no file backs."""
    rows = dict(row.split(":", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(rows[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "RssAnon"))  # type: ignore[return-value]


def configuration(folder: Path, page: int, subscriber: int, logs: Sequence[str]) -> Path:
    """One application with one subscriber reads all ``logs`` (each the lines of its table) from their beginning; no
    ZooKeeper."""
    text = [
        "version = 1",
        "[coordinator]",
        "static = true",
        "[publisher]",
        f'state_dir = "{folder}/state"',
        "[monitor]",
        f'listen = "127.0.0.1:{page}"',
        'stop_timeout = "10s"',
        # The benchmark ends publishers itself, and waits for each.
        'restart = {first_wait = "100ms", crashes = 1000, within = "60s"}',
    ]
    for number, log in enumerate(logs):
        text += [f"[datasets.bench.copies.main.logs.db{number}]", log]
    text += ["[applications.app0]", 'dataset = "bench"', 'start = "earliest"']
    text += ["[applications.app0.subscribers]", f's = "127.0.0.1:{subscriber}"']
    path = folder / "bench.toml"
    path.write_text("\n".join(text))
    return path


@contextmanager
def rocksdb_log(folder: Path) -> Iterator[Log]:
    """A small store with one update in it, kept open as its application would."""
    store = open_store(str(folder))
    try:
        store[b"first"] = b"value"
        yield Log(f'source = "rocksdb://{folder}"', lambda: store.put(b"next", b"value"))
    finally:
        store.close()


class Host:
    """A monitor, its publishers and a subscriber of theirs."""

    def __init__(self, path: Path, page: int, pid: int, subscriber: subprocess.Popen[str]) -> None:
        self.path = path
        self.pid = pid
        self._page = page
        self._subscriber = subscriber

    def publishers(self) -> list[dict[str, Any]]:
        """What the monitor's page says of them; none while it does not listen yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self._page, timeout=5)
        try:
            connection.request("GET", "/api/status")
            told: list[dict[str, Any]] = json.loads(connection.getresponse().read())["publishers"]
        except ConnectionError:
            return []
        finally:
            connection.close()
        return told

    def until_running(self, count: int) -> list[int]:
        """Process ids of the publishers, once ``count`` of them answer the monitor."""
        for found in self._watched():
            if len(found) == count and all(one["phase"] == "running" and one["answered"] for one in found):
                return [one["pid"] for one in found]
        raise AssertionError

    def _watched(self) -> Iterator[list[dict[str, Any]]]:
        until = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until:
            yield self.publishers()
            time.sleep(_POLL_S)
        raise RuntimeError(f"the publishers of the benchmark do not come up: {self.publishers()}")

    def started(self, previous: int = 0) -> tuple[int, float]:
        """The only publisher's process other than ``previous``, and when it began."""
        for found in self._watched():
            pid: int = found[0]["pid"] or 0 if found else 0
            ticks = process_started(pid) if pid and pid != previous else None
            if ticks is not None:
                return pid, ticks / os.sysconf("SC_CLK_TCK")
        raise AssertionError

    def arrival(self, after: float) -> float:
        """When the first update came after that time."""
        while (at := float(line(self._subscriber))) < after:
            pass
        return at

    @contextmanager
    def page_open(self) -> Iterator[None]:
        """Somebody looks at the page: reads its stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self._page)
        connection.request("GET", "/api/events")
        response = connection.getresponse()
        over = False

        def read() -> None:
            try:
                while response.readline():
                    pass
            except (OSError, ValueError, AttributeError):
                if not over:
                    raise

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield
            if not reader.is_alive():
                raise RuntimeError("the page's stream ended while it was watched")
        finally:
            over = True
            if connection.sock is not None:
                connection.sock.close()
            response.close()


@contextmanager
def host(folder: Path, logs: Sequence[Log], profile: Path | None = None) -> Iterator[Host]:
    """A monitor that runs a publisher for each log, until the block ends; ``profile``: where its publishers' flame
    graph goes."""
    with ExitStack() as stack:
        page, port = free_ports(2)
        path = configuration(folder, page, port, [log.keys for log in logs])
        load(path)  # a mistake in it is ours: better told here than by a monitor that ends
        subscriber = stack.enter_context(program("benchmarks.arrivals", str(port)))
        line(subscriber)
        guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), ""]
        monitor = [sys.executable, "-m", "wormholectl", "monitor", "run", "-c", str(path), "--log-level", "error"]
        with subprocess.Popen([*guard, *monitor], stdout=subprocess.PIPE, text=True) as process:
            pid = int(line(process))
            try:
                yield Host(path, page, pid, subscriber)
            finally:
                os.kill(pid, signal.SIGTERM)
                process.wait(_TIMEOUT_S)


def starts(log: Callable[[Path], Any], runs: int) -> list[Start]:
    """The starts of ``runs`` publishers, each new and then killed. ``log``: makes one in a folder."""
    found = []
    for _ in range(runs):
        with scratch() as folder, log(folder / "store") as one, host(folder, [one]) as running:
            pid, began = running.started()
            first = running.arrival(began) - began
            running.until_running(1)
            time.sleep(1.5)  # so long that its datamarker is stored: nothing tells when
            os.kill(pid, signal.SIGKILL)
            one.write()
            _, began = running.started(pid)
            found.append(Start(first, running.arrival(began) - began))
    return found


def at_rest(publishers: int, seconds: float) -> dict[str, Rest]:
    """A monitor of so many publishers of RocksDBs in which nothing is written: alone, with its page open, and one of
    the publishers."""
    with scratch() as folder, ExitStack() as stack:
        logs = [stack.enter_context(rocksdb_log(folder / f"store{number}")) for number in range(publishers)]
        with host(folder, logs) as running:
            pids = running.until_running(publishers)
            time.sleep(_SETTLE_S)
            alone, *each = _watch([running.pid, *pids], seconds)
            with running.page_open():
                watched = _watch([running.pid], seconds)[0]
            one = Rest(*(statistics.median(getattr(rest, name) for rest in each) for name in Rest.__slots__))
            return {"monitor": alone, "monitor, page open": watched, "publisher, each": one}


def _watch(pids: Sequence[int], seconds: float) -> list[Rest]:
    before, began = [cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    used = [cpu_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    return [Rest(cpu / lasted * 100, *resident_mb(pid)) for pid, cpu in zip(pids, used, strict=True)]


def command_seconds(runs: int) -> list[float]:
    """How long ``wormholectl flows`` takes for a host with one publisher, from its start to its end."""
    with scratch() as folder, rocksdb_log(folder / "store") as log, host(folder, [log]) as running:
        running.until_running(1)
        words = [sys.executable, "-m", "wormholectl", "flows", "-c", str(running.path)]
        return [_seconds(words) for _ in range(runs)]


def help_seconds(runs: int) -> list[float]:
    """How long ``wormholectl --help`` takes, from its start to its end."""
    return [_seconds([sys.executable, "-m", "wormholectl", "--help"]) for _ in range(runs)]


def _seconds(words: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


_IMPORTING: Final = """\
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(open("/proc/self/status").read())
"""


def imported(modules: str) -> Imported:
    """The limit: an interpreter that imports ``modules``, names with spaces between them."""
    began = time.monotonic()
    told = subprocess.run(
        [sys.executable, "-c", _IMPORTING, *modules.split()], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    seconds = time.monotonic() - began
    kib = next(int(row.split()[1]) for row in told.splitlines() if row.startswith("VmRSS:"))
    return Imported(seconds, kib * 1024 / 1e6)
