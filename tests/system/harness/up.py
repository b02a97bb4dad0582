"""``wormholectl up`` of one log, with the commands that a person would type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.support.command_line import run
from tests.support.eventually import PATIENCE_S
from tests.support.marked import MARK, marked
from wormhole.host.ready_file import read_ready, ready_path

__all__ = ["Up"]


class Up:
    """Nothing runs at first; :meth:`close` kills what does. ``source``: TOML lines of the log."""

    def __init__(self, folder: Path, source: str) -> None:
        self.file, self.mark = folder / "shop.toml", uuid.uuid4().hex
        self.folder = folder / ".wormhole" / "shop"
        self.file.write_text(f"""
version = 1
[monitor]
listen = "127.0.0.1:0"
[datasets.shop.copies.main.logs.db1]
{source}
[applications.cache]
dataset = "shop"
start = "earliest"
""")

    def does(self, *arguments: str) -> tuple[int, str]:
        """Run a command within the test; returns its exit code, and what it printed."""
        code, out, err = run(*arguments)
        return code, out + err

    def _starts(self, *arguments: str) -> tuple[int, str]:
        """Run a command as a process with the mark, which what it starts inherits."""
        done = subprocess.run(
            [sys.executable, "-m", "wormholectl", *arguments],
            env={**os.environ, MARK: self.mark},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            umask=0,  # what is created is private all the same
        )
        return done.returncode, done.stdout + done.stderr

    def up(self) -> tuple[int, str]:
        """Start it, in the background."""
        return self._starts("up", "-f", str(self.file), "--detach")

    def down(self) -> tuple[int, str]:
        """Stop it."""
        return self.does("down", "-f", str(self.file))

    def record(self) -> dict[str, Any]:
        """What it has noted of itself."""
        found: dict[str, Any] = json.loads((self.folder / "up.json").read_text())
        return found

    def publisher(self) -> int | None:
        """The process that serves the log."""
        ready = read_ready(ready_path(self.folder / "state", "shop", "main", "db1"))
        return None if ready is None else ready.pid

    def close(self) -> None:
        """Kill all that it started."""
        for pid in marked(self.mark):
            os.kill(pid, signal.SIGKILL)
