"""What the demo prints: lines of a story with the time, a table, one line of JSON.

Never more than fits a screen or two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.demo.checker import Verdict, percentile

__all__ = ["MOST_LINES", "WIDTH", "Story", "short_shards", "table"]

WIDTH = 100
MOST_LINES = 60
_FOR_THE_END = 18
"""Lines kept free for the table and what follows it."""
_FOR_EVENTS = 12
"""Lines kept free for what happens, when only progress is printed."""


class Story:
    """Prints lines of at most 100 columns, at most 60 of them in all; ``out`` is standard output unless given."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stdout
        self._began = time.monotonic()
        self.lines = 0

    def say(self, text: str) -> None:
        """Something happened."""
        if self.lines < MOST_LINES - _FOR_THE_END:
            self._line(f"{self._time()}  {text}")

    def progress(self, text: str) -> None:
        """Nothing happened, but all goes on; left out when lines get short."""
        if self.lines < MOST_LINES - _FOR_THE_END - _FOR_EVENTS:
            self._line(f"{self._time()}  {text}")

    def end(self, text: str) -> None:
        """A line without time, after the story."""
        if self.lines < MOST_LINES:
            self._line(text)

    def show(self, what: Table) -> None:
        """The table."""
        console = Console(file=self._out, width=WIDTH)
        with console.capture() as capture:
            console.print(what)
        for line in capture.get().splitlines():
            if line.strip():
                self.lines += 1
                print(line.rstrip(), file=self._out, flush=True)

    def _line(self, text: str) -> None:
        self.lines += 1
        print(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…", file=self._out, flush=True)

    def _time(self) -> str:
        minutes, seconds = divmod(time.monotonic() - self._began, 60)
        return f"{int(minutes):02}:{seconds:04.1f}"


def short_shards(shards: Iterable[str]) -> str:
    """``db1.(0 2)of8`` for ``db1.0of8`` and ``db1.2of8``, or ``all 8 shards`` when that is what they are."""
    names = sorted(set(shards))
    if not names:
        return "no shard"
    log, _, rest = names[0].partition(".")
    count = rest.rpartition("of")[2]
    if count == str(len(names)):
        return f"all {count} shards"
    numbers = " ".join(name.partition(".")[2].partition("of")[0] for name in names)
    return f"{log}.({numbers})of{count}"


def table(verdicts: Sequence[Verdict], slow: frozenset[str]) -> Table:
    """One row for each application."""
    found = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    found.add_column("application")
    headings = ("updates", "received", "duplicates", "lost", "order violations", "p50 ms", "p99 ms", "p99 all")
    for heading in headings:
        found.add_column(heading, justify="right")
    for verdict in verdicts:
        name = f"{verdict.application} (slow)" if verdict.application in slow else verdict.application
        found.add_row(
            name,
            f"{verdict.updates:,}",
            f"{verdict.received:,}",
            f"{verdict.duplicates:,}",
            f"{len(verdict.lost):,}",
            f"{len(verdict.violations):,}",
            f"{percentile(verdict.steady, 0.5):,.1f}",
            f"{percentile(verdict.steady, 0.99):,.1f}",
            f"{percentile(verdict.latencies, 0.99):,.1f}",
        )
    return found
