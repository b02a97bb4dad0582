"""Samples the processor seconds of the processes that a benchmark started, by kind of process."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["Processor", "between", "kind_of", "processor"]

_EVERY_S: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KINDS: Final = (
    ("benchmarks.publisher", "publisher"),
    ("benchmarks.replayed", "subscriber"),
    ("pyspark.daemon", "Python workers"),
    ("pyspark/daemon.py", "Python workers"),
    ("deploy.master.Master", "Spark's daemons"),
    ("deploy.worker.Worker", "Spark's daemons"),
    ("java", "JVM"),
    ("benchmarks.replayer", "driver"),
    ("benchmarks.unpusher", "driver"),
)
"""What of a command line says what a process is, the first that is found."""
_THREADS: Final = (
    ("C1 Comp", "JVM: compilers"),
    ("C2 Comp", "JVM: compilers"),
    ("GC ", "JVM: collector"),
    ("G1 ", "JVM: collector"),
    ("Executor task", "JVM: tasks"),
    ("stdout writer", "JVM: tasks"),
)
"""How the JVM's threads are called. They are a part of what it uses, and what an ended one used is not in it."""


def kind_of(command: str) -> str:
    """What the process with this command line is."""
    return next((kind for word, kind in _KINDS if word in command), "other")


class Processor:
    """What was used up to each moment at which it was looked at. Of a process that ended, what it had used when it was
    seen last.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, Mapping[str, float]]] = []
        self._last: dict[tuple[int, str], Mapping[str, float]] = {}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Take a sample."""
        with self._lock:
            self._last.update(_used(os.getpid()))
            total: dict[str, float] = {}
            for used in self._last.values():
                for kind, seconds in used.items():
                    total[kind] = total.get(kind, 0.0) + seconds
            self._samples.append((time.monotonic(), total))

    def used(self, begin: float, end: float) -> dict[str, float]:
        """Seconds of a processor by kind between two moments (monotonic)."""
        return between(self._samples, begin, end)


@contextmanager
def processor() -> Iterator[Processor]:
    """Samples are taken as long as the block lasts."""
    found, ended = Processor(), threading.Event()

    def keep() -> None:
        found.look()
        while not ended.wait(_EVERY_S):
            found.look()

    thread = threading.Thread(target=keep, name="processor", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def between(samples: Sequence[tuple[float, Mapping[str, float]]], begin: float, end: float) -> dict[str, float]:
    """What came between two moments, each taken to lie evenly between two samples; what is outside all of them is
    left out.
    """
    first, last = _at(samples, begin), _at(samples, end)
    return {kind: max(0.0, used - first.get(kind, 0.0)) for kind, used in last.items()}


def _at(samples: Sequence[tuple[float, Mapping[str, float]]], moment: float) -> Mapping[str, float]:
    after = bisect_right(samples, moment, key=lambda one: one[0])
    if after == 0 or after == len(samples):
        return samples[min(after, len(samples) - 1)][1]
    (then, before), (later, behind) = samples[after - 1], samples[after]
    share = (moment - then) / (later - then)
    return {kind: before.get(kind, 0.0) + share * (used - before.get(kind, 0.0)) for kind, used in behind.items()}


def _used(root: int) -> dict[tuple[int, str], Mapping[str, float]]:
    """Seconds by kind of every process below this one; a number may come again, so its start is part of the key."""
    found: dict[tuple[int, str], Mapping[str, float]] = {}
    for pid in _below(root):
        with suppress(OSError):  # it may end meanwhile
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            kind = kind_of(command)
            _, fields = _stat(f"/proc/{pid}/stat")
            used = {kind: _seconds(fields)}
            if kind == "JVM":
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    name, of_thread = _stat(f"{thread}/stat")
                    group = next((group for begin, group in _THREADS if name.startswith(begin)), "JVM: other")
                    used[group] = used.get(group, 0.0) + _seconds(of_thread)
            found[pid, fields[19]] = used
    return found


def _seconds(fields: Sequence[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                children.setdefault(int(_stat(f"{entry}/stat")[1][1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _stat(path: str) -> tuple[str, list[str]]:
    """A process's or thread's name, and the fields of its ``stat`` behind it."""
    name, _, rest = Path(path).read_text().partition("(")[2].rpartition(")")
    return name, rest.split()
