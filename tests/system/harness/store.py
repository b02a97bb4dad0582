"""A store and its journal, as the writer has them open; one module for each kind of store implements the rest.

The journal is written ahead (`tests.system.harness.truth`), so each store must tell, whenever it is opened, what it
holds.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.system.harness.truth import Content, Journal

Operation = tuple[str, bytes, bytes | None]
"""Table, key, value or ``None`` to delete."""


class Store(ABC):
    """The store and its journal, which stands for the truth. A subclass calls :meth:`settle` when it is open."""

    def __init__(self, journal: Path) -> None:
        self._past = journal.read_text().splitlines() if journal.exists() else []
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.number = 0

    @property
    @abstractmethod
    def sequence(self) -> int:
        """The store's number of its last change (RocksDB) or transaction (servers)."""

    @property
    def where(self) -> tuple[int, ...]:
        """Two places of the log, where its places do not say the numbers: the commit of the last change lies between
        them."""
        return ()

    @abstractmethod
    def changes(self, operations: list[Operation]) -> list[Content]:
        """What the log will say of them; empty when they change nothing."""

    @abstractmethod
    def apply(self, operations: list[Operation]) -> bool:
        """Commit; whether it happened."""

    @abstractmethod
    def flush(self) -> None:
        """Let the log go on in another file, and do what else its owner may do to a log."""

    @abstractmethod
    def state(self) -> dict[str, dict[str, str]]:
        """Everything that the store holds: ``{table: {key: digest}}``."""

    def bulk(self, rows: int, size: int) -> None:
        """Two transactions of one statement each: so many rows come, empty, and one UPDATE gives each of them so
        many bytes."""
        raise NotImplementedError(f"{type(self).__name__} has no statements")

    def close(self) -> None:
        """Close the store."""
        os.close(self._journal)

    def settle(self) -> None:
        """Find out what became of the commit that was under way when the last writer was killed."""
        past = Journal()
        past.read(self._past)
        self.number = len(past.commits)
        if past.open is not None:
            self._said(past.open.number, self.sequence >= past.open.sequence)
            self.number = past.open.number + 1
        elif past.commits:
            self.number = past.commits[-1].number + 1

    def commit(self, operations: list[Operation]) -> None:
        """One commit, journalled before and after."""
        changes = self.changes(operations)
        if changes:
            self.intend(changes)
            self.confirm(self.apply(operations))

    def intend(self, changes: list[Content]) -> None:
        """The next commit will be this."""
        self._write(["i", self.number, self.sequence + 1, changes, time.monotonic()])

    def confirm(self, happened: bool) -> None:
        """What became of it."""
        self._said(self.number, happened)
        self.number += 1

    def _said(self, number: int, happened: bool) -> None:
        self._write(["ok", number, *self.where] if happened else ["no", number])

    def _write(self, entry: list[object]) -> None:
        os.write(self._journal, (json.dumps(entry, separators=(",", ":")) + "\n").encode())
