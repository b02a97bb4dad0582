"""Runs the tested client: a process that reads cases and prints its events as lines (docs/conformance.md)."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from conformance.ledger import Breach

__all__ = ["ClientProcess"]

_LONGEST_LINE: Final = 1 << 28
_END_S: Final = 5.0


class ClientProcess:
    """The client's process, started by ``command`` when a case needs it. ``heard``: called with each line of the
    running case."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.heard: Callable[[Mapping[str, Any] | Breach], None] = lambda line: None

    async def say(self, line: Mapping[str, Any]) -> None:
        """Write a line to the client, which is started if it does not run."""
        if "case" in line and (self._process is None or self._process.returncode is not None):
            await self.close()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LONGEST_LINE
            )
            self._reading = asyncio.create_task(self._read(self._process))
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        with suppress(ConnectionError):  # the reader of its output reports the end of the process
            await self._process.stdin.drain()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                found = json.loads(line)
                found["event"]
            except (ValueError, KeyError, TypeError):
                self.heard(Breach(f"printed a line that is no event: {line[:200]!r}"))
                continue
            self.heard(found)
        self.heard({"event": "exit", "code": await process.wait()})

    async def close(self, *, kill: bool = False) -> int | None:
        """End the client. Returns its exit code; ``None`` if it had to be killed."""
        process, self._process = self._process, None
        if process is None:
            return 0
        code = None
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                code = await asyncio.wait_for(process.wait(), 0 if kill else _END_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reading is not None:
            await self._reading
        return code
