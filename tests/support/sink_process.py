"""``wormholectl sink run`` as a process, with a configuration of one sink."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT

__all__ = ["running_sink", "sink_config"]

_CONFIG: Final = """
version = 1

[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop"

[applications.{name}]
dataset = "shop"
start = "latest"
subscribers = {{ one = "{listen}" }}

[sinks.{name}]
{settings}
"""


def sink_config(folder: Path, name: str, listen: str, settings: str) -> Path:
    """A file with the sink ``name``, whose subscriber listens at ``listen``. ``settings``: lines of its table."""
    config = folder / "shop.toml"
    config.write_text(_CONFIG.format(name=name, listen=listen, settings=settings))
    return config


@contextlib.asynccontextmanager
async def running_sink(
    config: Path, *options: str, log: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The sink of the file. It is killed at the end. ``log``: gets what it writes to standard error."""
    command = (sys.executable, "-m", "wormholectl", "sink", "run", "-c", os.fspath(config), *options)
    with contextlib.nullcontext() if log is None else log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=stderr)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
