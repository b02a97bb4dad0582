"""Publishers' processes: started to outlive the monitor, found again by the next one, waited for whoever their parent
is.

A process is told apart by its number and its start, and held by a pidfd, so a signal never reaches a stranger that got
the number later. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monitor.state import LogKey
from wormhole.host.ready_file import process_started

__all__ = ["Found", "Process", "adopt", "command", "find", "run_file", "start"]

_PROC: Final = Path("/proc")


def run_file(folder: Path, key: LogKey, digest: str) -> Path:
    """The configuration file of a publisher. It stands in the process's command line, which so says what runs."""
    return folder / f"{key.dataset}.{key.copy}.{key.log}.{digest}.json"


def command(file: Path, key: LogKey) -> list[str]:
    """What runs one log's publisher. ``-P``: the working directory is no place to import from."""
    return [sys.executable, "-P", "-m", "wormholectl", "publisher", "run", "-c", str(file), "--log", str(key)]


@dataclass(frozen=True, slots=True)
class Found:
    """A live publisher of a monitor that is gone."""

    key: LogKey
    digest: str
    pid: int
    started: int


def find(folder: Path) -> list[Found]:
    """Every live publisher of ours whose configuration file is in ``folder``, oldest first. Blocks.

    Anybody on this host can run something with such a command line: what another user runs is no publisher of ours.
    """
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid != os.geteuid():
                    continue
                arguments = (entry / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
            except OSError:  # gone meanwhile
                continue
            one = _read(arguments, folder, int(entry.name))
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: one.started)


def _read(arguments: Sequence[str], folder: Path, pid: int) -> Found | None:
    if "-c" not in arguments[:-1] or "--log" not in arguments[:-1]:
        return None
    file, log = Path(arguments[arguments.index("-c") + 1]), arguments[arguments.index("--log") + 1]
    parts = log.split("/")
    if file.parent != folder or len(parts) != 3:
        return None
    key, digest = LogKey(*parts), file.stem.rpartition(".")[2]
    started = process_started(pid)
    if file != run_file(folder, key, digest) or started is None:
        return None
    return Found(key, digest, pid, started)


class Process:
    """A live process, by its pidfd, which :meth:`wait` closes."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle

    def __repr__(self) -> str:
        return f"<Process {self.pid}>"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that ended meanwhile is passed over."""
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    async def wait(self) -> int | None:
        """Wait for its end and reap it. Its exit status, negative for a signal; ``None`` when it is somebody else's
        child.

        Cancelled, it leaves the process alone and lets go of it.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        handle = self._handle
        try:
            await ended.wait()
            return _reap(handle)
        finally:
            loop.remove_reader(handle)
            self._handle = -1
            os.close(handle)


def _reap(handle: int) -> int | None:
    try:
        told = os.waitid(os.P_PIDFD, handle, os.WEXITED)
    except ChildProcessError:
        return None
    if told is None:
        return None
    return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status


def start(arguments: list[str], output: Path, environment: Mapping[str, str]) -> Process:
    """Start a program in a session of its own, its output appended to a file. Blocks for a moment. Raises ``OSError``.

    Not a fork: a copy of a process with gRPC's threads would have to be mended first.
    """
    pid = os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    try:
        return Process(pid, os.pidfd_open(pid))  # our child: its number is not used again before we reap it
    except OSError:  # too many open files: nobody could look after it
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def adopt(found: Found) -> Process | None:
    """Hold a process that another started; ``None`` when it ended meanwhile. Blocks for a moment."""
    try:
        handle = os.pidfd_open(found.pid)
    except OSError:
        return None
    if process_started(found.pid) != found.started:
        os.close(handle)
        return None
    return Process(found.pid, handle)
