"""Starts, finds and signals the processes of publishers and sinks. These outlive a monitor, and the next monitor adopts
them.

A process is identified by its process id and start time, and is held by a pidfd. So a signal never reaches another
process that got the same id later. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from monitor.state import LogKey, ProcessKey, SinkKey
from wormhole.host.ready_file import process_started

__all__ = ["FoundProcess", "Process", "adopt", "command", "find", "run_file", "sink_command", "start"]

_PROC: Final = Path("/proc")


def run_file(folder: Path, key: ProcessKey, digest: str) -> Path:
    """The configuration file of a publisher, or the ready file of a sink. Its name identifies the process, because the
    command line contains it.
    """
    return folder / f"{str(key).replace('/', '.')}.{digest}.json"


def command(file: Path, key: LogKey) -> list[str]:
    """The command line of one log's publisher. ``-P`` prevents imports from the working directory."""
    return [sys.executable, "-P", "-m", "wormholectl", "publisher", "run", "-c", str(file), "--log", str(key)]


def sink_command(file: Path, key: SinkKey, config: Path, coordinator: str) -> list[str]:
    """The command line of one sink of the file ``config``. ``coordinator``: see
    :class:`~monitor.desired_sinks.DesiredSink`.
    """
    program = [sys.executable, "-P", "-m", "wormholectl", "sink", "run", key.name, "-c", str(config)]
    return [*program, "--coordinator", coordinator, "--http", "127.0.0.1:0", "--ready-file", str(file)]


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A live publisher or sink that a former monitor started."""

    key: ProcessKey
    digest: str
    pid: int
    started: int


def find(folder: Path) -> list[FoundProcess]:
    """Every live publisher and sink of this user whose file (:func:`run_file`) is in ``folder``, oldest first. Blocks.

    Processes of other users are ignored, because any user can run a process with such a command line.
    """
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid != os.geteuid():
                    continue
                arguments = (entry / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
            except OSError:  # the process has ended meanwhile
                continue
            one = _read(arguments, folder, int(entry.name))
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: one.started)


def _read(arguments: Sequence[str], folder: Path, pid: int) -> FoundProcess | None:
    options = dict(pairwise(arguments))
    key: ProcessKey
    if "--ready-file" in options:
        key, file = SinkKey(options.get("run", "")), Path(options["--ready-file"])
    else:
        parts = options.get("--log", "").split("/")
        if "-c" not in options or len(parts) != 3:
            return None
        key, file = LogKey(*parts), Path(options["-c"])
    if file.parent != folder:
        return None
    digest = file.stem.rpartition(".")[2]
    started = process_started(pid)
    if file != run_file(folder, key, digest) or started is None:
        return None
    return FoundProcess(key, digest, pid, started)


class Process:
    """A live process, by its pidfd, which :meth:`wait` closes."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle

    def __repr__(self) -> str:
        return f"<Process {self.pid}>"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    async def wait(self) -> int | None:
        """Wait until the process ends, and reap it. Returns its exit status, negative for a signal; ``None`` if it is
        the child of another process.

        If this call is cancelled, it closes the pidfd and leaves the process running.
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
        ended = os.waitid(os.P_PIDFD, handle, os.WEXITED)
    except ChildProcessError:
        return None
    assert ended is not None  # without WNOHANG
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def start(arguments: list[str], output: Path, environment: Mapping[str, str]) -> Process:
    """Start a program in a new session, and append its output to a file. Blocks briefly. Raises ``OSError``.

    It spawns without a plain fork, which is not safe in a process with gRPC's threads.
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
        return Process(pid, os.pidfd_open(pid))  # the id of a child is not reused before it is reaped
    except OSError:  # too many open files: the process could not be supervised
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def adopt(found: FoundProcess) -> Process | None:
    """Adopt a process that another monitor started; ``None`` if it has ended. Blocks briefly."""
    try:
        handle = os.pidfd_open(found.pid)
    except OSError:
        return None
    if process_started(found.pid) != found.started:
        os.close(handle)
        return None
    return Process(found.pid, handle)
