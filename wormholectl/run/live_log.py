"""Merges the output of several processes into one log. Each line begins with the name of its process, which is coloured
on a terminal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from wormhole.model.visible import visible

__all__ = ["LiveLog"]

_EVERY_S: Final = 0.2
_AT_ONCE: Final = 64 << 10
_LONGEST_LINE: Final = 4 << 10
_WAITING: Final = 1000
_COLOURS: Final = (36, 33, 35, 32, 34, 31)


class _File:
    """One growing file. It may be emptied and grow again."""

    def __init__(self, path: Path, place: int) -> None:
        self._path = path
        self._place = place
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """The new whole lines. One call returns a limited number of them."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._place:
                    self._place, self._rest = 0, b""
                file.seek(self._place)
                data = file.read(_AT_ONCE)
        except OSError:
            return
        self._place += len(data)
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        for line in whole:
            yield line[:_LONGEST_LINE].decode(errors="replace")


class LiveLog(logging.Handler):
    """Shows new lines of the ``*.log`` files in ``folder``, and log records of this process under the name ``name``.

    A slow reader of the output never delays the process. It misses lines, and their number is shown.
    """

    def __init__(self, folder: Path, name: str, output: TextIO | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._name = name
        self._output = sys.stdout if output is None else output
        self._colours: dict[str, int] | None = {} if self._output.isatty() and not os.environ.get("NO_COLOR") else None
        self._files: dict[Path, _File] = {}
        self._own: deque[str] = deque()
        self._missed = 0
        self._width = len(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a log record of this process."""
        self.say(self.format(record))

    def say(self, text: str) -> None:
        """Queue a text of this process to be shown."""
        if len(self._own) >= _WAITING:
            self._missed += 1
        else:
            self._own.append(text)

    async def run(self) -> None:
        """Show lines until cancelled. Then show the remaining lines."""
        await asyncio.to_thread(self._look, fresh=False)
        try:
            while True:
                # A thread writes, because a stopped terminal must not stop the monitor.
                with suppress(OSError):  # a full disk or a closed pipe: later lines may be shown again
                    await asyncio.to_thread(self._show)
                await asyncio.sleep(_EVERY_S)
        finally:
            await asyncio.to_thread(self._show)

    def _look(self, *, fresh: bool) -> None:
        if not self._folder.exists():
            return
        for path in sorted(self._folder.glob("*.log")):
            if path not in self._files:
                self._files[path] = _File(path, 0 if fresh else path.stat().st_size)

    def _show(self) -> None:
        self._look(fresh=True)
        lines = [(path.stem, line) for path, file in self._files.items() for line in file.lines()]
        own, missed = [self._own.popleft() for _ in range(len(self._own))], self._missed
        if missed:
            self._missed -= missed
            own.append(f"({missed} lines were left out: this output does not take them)")
        lines += [(self._name, line) for text in own for line in text.splitlines()]
        for name, line in lines:
            self._width = max(self._width, len(name))
            self._output.write(f"{self._prefix(name)}{visible(line)}\n")
        if lines:
            self._output.flush()

    def _prefix(self, name: str) -> str:
        text = f"{name:<{self._width}} | "
        if self._colours is None:
            return text
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        return f"\033[{colour}m{text}\033[0m"
