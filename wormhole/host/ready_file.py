"""The file in which a serving publisher writes its addresses:
``<state_dir>/<dataset>/<copy>/<log>/publisher.json``.

The file is valid only while the process that wrote it lives. A process id alone does not identify that process, because
ids are used again.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from wormhole.model.errors import ConfigError
from wormhole.model.record import Count, Host, ProcessId, StoredRecord, Word
from wormhole.model.replace_file import replace_file

__all__ = ["ReadyFile", "process_started", "read_ready", "ready_path", "remove_ready", "write_ready"]

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """The addresses of a publisher.

    ``started``: start of the process, in clock ticks since the machine's start. ``admin``, ``http``: ``host:port``,
    empty for none. ``config``: :func:`wormhole.config.one_log.digest` of its configuration.
    """

    pid: int
    started: int
    admin: str
    http: str
    version: str
    config: str


class _StoredReady(StoredRecord):
    pid: ProcessId
    started: Count
    admin: Host
    http: Host
    version: Word
    config: Word


def ready_path(state_dir: Path, dataset: str, copy: str, log: str) -> Path:
    """The path of the file of a log's publisher."""
    return state_dir / dataset / copy / log / "publisher.json"


def write_ready(path: Path, ready: ReadyFile) -> None:
    """Write the file in one step, readable by all users. Blocks. Raises ``OSError``."""
    replace_file(path, json.dumps(_StoredReady.fields_of(ready)), sync=False, opener=_readable)


def _readable(path: str, flags: int) -> int:
    handle = os.open(path, flags)
    os.fchmod(handle, 0o644)  # whatever the umask is
    return handle


def read_ready(path: Path) -> ReadyFile | None:
    """The content that a live publisher wrote. Blocks.

    ``None`` if there is no such file, its content is not valid, or its process has ended.
    """
    try:
        ready = ReadyFile(**_StoredReady.read(path.read_bytes(), str(path)).fields())
    except (OSError, ConfigError):
        return None
    return ready if process_started(ready.pid) == ready.started else None


def remove_ready(path: Path) -> None:
    """Remove the file at a graceful end. Blocks."""
    with contextlib.suppress(OSError):
        path.unlink()


def process_started(pid: int) -> int | None:
    """When the process began, in clock ticks since the machine's start. Together with its id this identifies the
    process.

    ``None`` when there is no such process, or only its zombie.
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain any characters; the fields after it do not.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
