"""Runs the cases: each starts fresh processes in a temporary folder and ends them by their own handles."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "BenchmarkError",
    "Throughput",
    "configuration",
    "cpu_s",
    "free_ports",
    "line",
    "memory_peak_mib",
    "profiler",
    "program",
    "raw_mb_per_s",
    "scratch",
    "tell",
    "throughput",
    "values_read",
]

_TIMEOUT_S = 180.0


class BenchmarkError(Exception):
    """A run that is no figure: rows or values are missing, or a program of it failed."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run: updates and megabytes of log per second, CPU seconds and peak memory (MiB) of the publisher."""

    updates_per_s: float
    mb_per_s: float
    publisher_cpu_s: float
    subscriber_cpu_s: float
    publisher_peak_mib: float


def free_ports(count: int) -> list[int]:
    """Ports on which no process listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def program(
    *words: str, profile: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python module as a process, ended when the block ends; ``profile``: where its flame graph goes, or with the
    ending ``.txt`` its stacks and how often each was seen; ``environment``: more of it."""
    with _process([sys.executable, "-m", *words], profile, environment) as process:
        yield process


@contextmanager
def _process(
    command: Sequence[str], profile: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    watching = None if profile is None else profiler(process.pid, profile)
    try:
        yield process
    finally:
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        _end(process, process.terminate)
        if process.stdout is not None:
            process.stdout.close()
        if watching is not None:
            _end(watching, lambda: None)  # it writes its picture when what it watches has ended


def profiler(pid: int, picture: Path, *, below: bool = False) -> subprocess.Popen[str]:
    """Watches a process until that ends; ``picture``: as in :func:`program`. ``below``: and the Python processes that
    it starts.
    """
    spy = Path(sys.executable).with_name("py-spy")
    kind = ["--format", "raw", *([] if below else ["--gil"])] if picture.suffix == ".txt" else ["--native"]
    kind += ["--subprocesses"] if below else []
    options = [*kind, "--rate", "200", "--threads", "-o", str(picture), "--pid", str(pid)]
    return subprocess.Popen([spy, "record", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)


def _end(process: subprocess.Popen[str], ask: Callable[[], None]) -> None:
    ask()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints. Raises ``RuntimeError`` when it ends instead."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError(f"a process of the benchmark ended: {process.args!r}")
    return text.strip()


def tell(process: subprocess.Popen[str], text: str) -> None:
    """Write a line to the process."""
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def memory_peak_mib(pid: int) -> float:
    """``VmHWM`` of a process."""
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def configuration(
    folder: Path,
    ports: list[int],
    start: str,
    filters: dict[int, str] | None = None,
    log: str = "",
    publisher: str = "",
    app: str = "",
    attach: str = "",
) -> Path:
    """A configuration without ZooKeeper: one application per port.

    ``log``: the log's keys, else the store in ``folder`` is tailed. ``publisher``, ``app``: further keys of the
    publisher and of each application. ``attach``: where subscribers dial the publisher; empty: it dials them.
    """
    text = [
        "version = 1",
        "[coordinator]",
        "static = true",
        "[publisher]",
        f'state_dir = "{folder}/state"',
        publisher,
        f'attach_listen = "{attach}"' if attach else "",
        "[datasets.bench.copies.main.logs.db]",
        log or f'source = "rocksdb://{folder}/store"',
    ]
    for number, port in enumerate(ports):
        text += [f"[applications.app{number}]", 'dataset = "bench"', f'start = "{start}"', app]
        where = (filters or {}).get(number)
        text += [f"where = '{where}'"] if where else []
        if attach:
            text += ['connect = "publisher"']
        else:
            text += [f"[applications.app{number}.subscribers]", f's = "127.0.0.1:{port}"']
    path = folder / "bench.toml"
    path.write_text("\n".join(text))
    return path


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="wormhole-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def filled_store(count: int, size: int, per_batch: int) -> Iterator[Path]:
    """A folder with a store whose log holds ``count`` updates and whose writer stays alive."""
    with scratch() as folder:
        words = ("--count", str(count), "--size", str(size), "--per-batch", str(per_batch))
        with program("benchmarks.store", f"{folder}/store", *words) as writer:
            line(writer)
            yield folder


def throughput(
    folder: Path,
    mode: str,
    count: int,
    size: int,
    profile: Path | None = None,
    *,
    dials: bool = False,
    command: Sequence[str] = (),
) -> Throughput:
    """One subscriber receives a log that was written beforehand. ``dials``: it dials the publisher. ``command``: a
    subscriber in another language, which is given the publisher's address and ``count``; empty: the one in Python.
    """
    shutil.rmtree(folder / "state", ignore_errors=True)
    ports = free_ports(1)
    attach = f"127.0.0.1:{ports[0]}" if dials else ""
    config = configuration(folder, ports, "earliest", attach=attach)
    words = ("--mode", mode, "--counts", str(count), "--ports", str(ports[0]), "--dial", attach)
    python = (sys.executable, "-m", "benchmarks.subscriber", *words)
    with _process((*command, attach, str(count)) if command else python) as subscriber:
        line(subscriber)
        with program("benchmarks.publisher", str(config), profile=profile) as publisher:
            result: dict[str, Any] = json.loads(line(subscriber))
            # A store's key is a column beside the value, and not in `update.after`.
            values_read(result, mode, count * (2 if mode == "values as columns" else 1))
            seconds = result["seconds"][0]
            return Throughput(
                count / seconds,
                count * (size + 15) / seconds / 1e6,
                cpu_s(publisher.pid),
                result["cpu_s"],
                memory_peak_mib(publisher.pid),
            )


def values_read(result: dict[str, Any], mode: str, expected: int) -> None:
    """Check what the subscriber reported. Raises :class:`BenchmarkError` when it was to read values and missed some."""
    read = sum(result["values"])
    if "values" in mode and read != expected:
        raise BenchmarkError(f"the subscriber read {read} values of {expected}")


def raw_mb_per_s(total: int, message: int) -> float:
    """gRPC alone: megabytes per second in messages of ``message`` bytes."""
    port = free_ports(1)[0]
    with program("benchmarks.raw", "receive", str(port), str(total)) as receiver:
        line(receiver)
        with program("benchmarks.raw", "send", str(port), str(total), str(message)):
            return total / float(line(receiver)) / 1e6
