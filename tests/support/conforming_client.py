"""A client of the conformance kit (docs/conformance.md) as a subscriber of a real publisher."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually

__all__ = ["Client", "client"]


class Client:
    """A process of the client, and what it printed (docs/conformance.md)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []

    async def read(self) -> None:
        """Read to the end of its output."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(json.loads(line))

    async def tell(self, **line: Any) -> None:
        """Write one line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        await self._process.stdin.drain()

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines with this event."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def ids(self) -> list[str]:
        """The ids of the updates."""
        return [line["id"] for line in self.of("update")]

    async def stop(self) -> None:
        """Stop gracefully."""
        await self.tell(stop=True)
        await eventually(lambda: self.of("end"), "its end")


@asynccontextmanager
async def client(command: Sequence[str | Path], dial: str, **case: Any) -> AsyncIterator[Client]:
    """A process of ``command`` that dials the publisher, and is killed at the end. ``case``: what differs from the
    usual fields of a case.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    told = Client(process)
    reading = asyncio.create_task(told.read())
    try:
        sizes = {"credit": 65536, "max_frame": 1 << 20, "max_body": 1 << 21}
        retry = {"max_attempts": 3, "first_wait_ms": 1}
        await told.tell(
            **{
                "case": "c",
                "dial": dial,
                "application": "app",
                "id": "s1",
                "data_loss": "halt",
                **sizes,
                **retry,
                **case,
            }
        )
        yield told
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading
