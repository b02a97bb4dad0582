"""What was committed: the writer's journal, read back. Pure: lines in, commits out.

The journal is written ahead, so that it knows the truth whenever the writer dies: ``["i", n, sequence, ops, at]``
before commit ``n``, ``["ok", n]`` after it (with two places of the log, between which it lies, where the store knows
it so), and ``["no", n]`` when the store, opened anew, turns out not to hold it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Content(NamedTuple):
    """What one update says. ``value``: digest of the value, empty for a delete."""

    op: str
    table: str
    key: str
    value: str


@dataclass(slots=True)
class Commit:
    """One commit: ``sequence`` is the store's number of its first change, and ``step`` the distance to that of the
    next.

    RocksDB numbers changes (1), a server transactions (0). ``where``: see `tests.system.harness.store.Store`. ``at``:
    ``time.monotonic()`` of the writer before it began; 0.0: not noted.
    """

    number: int
    sequence: int
    changes: tuple[Content, ...]
    step: int = 1
    where: tuple[int, ...] = ()
    at: float = 0.0

    @property
    def last(self) -> int:
        """The store's number of its last change."""
        return self.sequence + self.step * (len(self.changes) - 1)


def digest(value: bytes) -> str:
    """A value as logs and journals write it."""
    return f"{len(value)}:{zlib.crc32(value):08x}"


Sharder = Callable[[Content], str]


def by_table(log: str) -> Sharder:
    """``shard_by = "table"``."""
    return lambda change: f"{log}.{change.table}"


def by_hash(log: str, count: int) -> Sharder:
    """``shard_by = {hash = count}``: CRC-32 of the key, as documented."""
    return lambda change: f"{log}.{zlib.crc32(bytes.fromhex(change.key)) % count}of{count}"


class Journal:
    """Commits in order. ``open``: the last one, while its outcome is unknown. ``step``: see `Commit`."""

    def __init__(self, step: int = 1) -> None:
        self._step = step
        self.commits: list[Commit] = []
        self.open: Commit | None = None

    def read(self, lines: Iterable[str]) -> list[Commit]:
        """Take further lines; returns the commits that are certain since."""
        known = len(self.commits)
        for line in lines:
            match json.loads(line):
                case ["i", number, sequence, changes, *at]:
                    if self.open is not None:
                        raise AssertionError(f"the journal never says what became of commit {self.open.number}")
                    contents = tuple(Content(*change) for change in changes)
                    self.open = Commit(number, sequence, contents, self._step, at=at[0] if at else 0.0)
                case ["ok", number, *where] if self.open is not None and self.open.number == number:
                    self.open.where = tuple(where)
                    self.commits.append(self.open)
                    self.open = None
                case ["no", number] if self.open is not None and self.open.number == number:
                    self.open = None
                case other:
                    raise AssertionError(f"the journal says {other!r}")
        return self.commits[known:]

    def state(self, wanted: Callable[[Content], bool] = lambda _: True) -> dict[tuple[str, str], str]:
        """What is held after the certain commits by who applies those changes that it wants: (table, key) to digest."""
        found: dict[tuple[str, str], str] = {}
        for commit in self.commits:
            for change in commit.changes:
                if not wanted(change):
                    continue
                if change.op == "delete":
                    found.pop((change.table, change.key), None)
                else:
                    found[change.table, change.key] = change.value
        return found
