"""Figures of this process from the kernel, for the gauges that publisher and monitor share."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessFigures", "process_figures"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Memory that the process holds, processor time of all its threads so far, and open file descriptors.

    ``None``: there is no /proc.
    """

    resident_bytes: int | None
    cpu_seconds: float
    open_files: int | None


def process_figures() -> ProcessFigures:
    """The present figures. Reads files of /proc: call it in a thread."""
    try:
        memory = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
        files = len(os.listdir("/proc/self/fd")) - 1  # without the descriptor of the listing
    except OSError:
        return ProcessFigures(None, time.process_time(), None)
    return ProcessFigures(memory, time.process_time(), files)
