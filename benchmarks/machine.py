"""Describes the machine on which a benchmark ran, because its figures mean nothing without the machine."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

from wormhole.host.compiled import compiled_modules, hot_modules

__all__ = ["Machine", "load", "processor"]

_POLICIES: Final = {os.SCHED_OTHER: "normal", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}


@dataclass(frozen=True, slots=True)
class Machine:
    """``processor``: its model. ``memory_gib``: the memory of the machine. ``priority``: the priority of the
    benchmark's processes, which inherit it. ``hot``: the form of the hot modules. ``load``: the load of the last
    minute, when the benchmark began.
    """

    cores: int
    processor: str
    memory_gib: float
    kernel: str
    python: str
    grpcio: str
    protobuf: str
    hot: str
    priority: str
    load: float

    @classmethod
    def current(cls) -> Self:
        """This one, now."""
        return cls(
            cores=os.cpu_count() or 1,
            processor=processor(Path("/proc/cpuinfo").read_text()),
            memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
            kernel=platform.release(),
            python=platform.python_version(),
            grpcio=version("grpcio"),
            protobuf=version("protobuf"),
            hot=_hot(),
            priority=_priority(),
            load=load(),
        )

    def __str__(self) -> str:
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_gib:.0f} GiB, kernel {self.kernel}, Python "
            f"{self.python}, grpcio {self.grpcio}, protobuf {self.protobuf}, hot modules {self.hot}; {self.priority} "
            f"priority, load {self.load:.1f} at the start"
        )


def load() -> float:
    """The machine's load of the last minute, this program's own processes included."""
    return round(os.getloadavg()[0], 2)


def processor(cpuinfo: str) -> str:
    """The model that ``/proc/cpuinfo`` names."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown processor"


def _hot() -> str:
    compiled, hot = compiled_modules(), hot_modules()
    if compiled == hot:
        return "compiled"
    return f"partly compiled: {', '.join(compiled)}" if compiled else "INTERPRETED"


def _priority() -> str:
    policy = _POLICIES.get(os.sched_getscheduler(0), "REAL-TIME")
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return policy if not nice else f"{policy} (nice {nice})"
