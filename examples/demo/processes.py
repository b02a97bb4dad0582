"""The demo's processes: each ends with its owner, whatever ends the owner (:mod:`wormhole.host.process_guard`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wormhole.host import process_guard
from wormhole.model.errors import Fatal

__all__ = ["DemoError", "Events", "Process"]

ROOT = Path(__file__).resolve().parent.parent.parent
Events = Callable[[str, Mapping[str, Any]], None]
"""Called with the process's name and the event that it printed."""

_LINE_LIMIT = 1 << 20
_END_TIMEOUT_S = 5.0


class DemoError(Fatal):
    """The demo cannot go on: a process of it ended by itself, or did not do its part in time."""


class Process:
    """One guarded Python process. ``remove``: the folder that goes if the owner is killed (empty: none).

    Its standard output and error are one stream: lines that are JSON objects are events, all others go to ``log``.
    """

    def __init__(self, name: str, arguments: Sequence[str], log: Path, events: Events, remove: str = "") -> None:
        self.name = name
        self.pid = 0
        self.ended = asyncio.Event()
        self._arguments = arguments
        self._log = log
        self._events = events
        self._remove = remove
        self._guard: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._last: deque[str] = deque(maxlen=5)

    async def start(self) -> None:
        """Start it; returns when it has a process id. Raises :class:`DemoError`."""
        guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), self._remove]
        # A session of its own: Ctrl-C in a terminal reaches the demo only, which then ends its processes in order.
        self._guard = await asyncio.create_subprocess_exec(
            *guard,
            sys.executable,
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        self.pid = int((await self._guard.stdout.readline()).strip() or 0)
        self._reader = asyncio.create_task(self._read(self._guard), name=f"read {self.name}")
        if not self.pid:
            raise DemoError(f"{self.name} did not start: {self.last_words()}")

    async def finish(self) -> int:
        """Wait until it ends by itself; its exit status."""
        await self.ended.wait()
        assert self._guard is not None
        return await self._guard.wait()

    def kill(self) -> None:
        """``kill -9`` of this one process."""
        os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this one process."""
        os.kill(self.pid, number)

    def last_words(self) -> str:
        """The end of what it printed, for an error message."""
        return " | ".join(self._last) or "(it printed nothing)"

    async def end(self) -> None:
        """Ask it to end, then make sure; idempotent."""
        guard, reader = self._guard, self._reader
        if guard is None:
            return
        if not self.ended.is_set():  # else the guard is about to end, and a signal to it would race with its reaping
            with contextlib.suppress(ProcessLookupError):
                guard.terminate()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await guard.wait()
        except TimeoutError:
            guard.kill()  # the kernel then ends the process too
            await guard.wait()
        if reader is not None:
            await reader

    async def _read(self, guard: asyncio.subprocess.Process) -> None:
        assert guard.stderr is not None
        try:
            with self._log.open("a") as log:
                async for raw in guard.stderr:
                    line = raw.decode(errors="replace").rstrip("\n")
                    event = _event(line)
                    if event is not None:
                        self._events(self.name, event)
                        continue
                    self._last.append(line)
                    log.write(f"{line}\n")
                    log.flush()
        finally:
            self.ended.set()


def _event(line: str) -> Mapping[str, Any] | None:
    if not line.startswith('{"event"'):
        return None
    try:
        found: dict[str, Any] = json.loads(line)  # as it begins, nothing else can follow
    except ValueError:
        return None
    return found
