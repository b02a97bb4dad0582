"""``python -m tests.system.harness.writer SETTINGS``: owns a RocksDB with default options and writes to it, journalled.

Settings: ``path``, ``journal``, ``tables`` (column families beside ``default``), ``seed``, ``rate`` (commits per second while running).
Commands come as lines on standard input and are answered by one line of JSON each:

``go``, ``pause``          write at the rate, or not
``flush``                  flush every table: RocksDB then deletes its log
``sequence``               the store's number of the last change
``state``                  the whole store: ``{table: {key: digest}}``
``fill COMMITS BYTES``     so many commits of one value each at once
``huge VALUES BYTES``      one commit of so many values
``stop``                   close the store and leave
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rocksdict

from tests.system.harness.child import settings
from tests.system.harness.truth import Content, Journal, digest

__all__ = ["Store", "main"]

Operation = tuple[str, bytes, bytes | None]
"""Table, key, value or ``None`` to delete."""


class Store:
    """The database and its journal, which stands for the truth."""

    def __init__(self, path: Path, journal: Path, tables: Iterable[str]) -> None:
        raw = rocksdict.Options(raw_mode=True)
        there = path.exists() and [name for name in rocksdict.Rdict.list_cf(str(path)) if name != "default"]
        self._db = rocksdict.Rdict(
            str(path), raw, column_families={name: rocksdict.Options(raw_mode=True) for name in there or ()}
        )
        self._families: dict[str, Any] = {"default": self._db}
        for name in tables:
            known = there and name in there
            self._families[name] = (
                self._db.get_column_family(name)
                if known
                else self._db.create_column_family(name, rocksdict.Options(raw_mode=True))
            )
        self._handles = {name: self._db.get_column_family_handle(name) for name in self._families}
        known_lines = journal.read_text().splitlines() if journal.exists() else []
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        past = Journal()
        past.read(known_lines)
        self.number = len(past.commits)
        if past.open is not None:
            # Killed between intent and word of success: the store says which it was.
            happened = self.sequence >= past.open.sequence
            self._write(["ok" if happened else "no", past.open.number])
            self.number = past.open.number + 1
        elif past.commits:
            self.number = past.commits[-1].number + 1

    @property
    def sequence(self) -> int:
        """The store's number of the last change."""
        found: int = self._db.latest_sequence_number()
        return found

    def commit(self, operations: list[Operation]) -> None:
        """One commit, journalled before and after."""
        changes = [
            Content("delete" if value is None else "upsert", table, key.hex(), "" if value is None else digest(value))
            for table, key, value in operations
        ]
        self._write(["i", self.number, self.sequence + 1, changes])
        if len(operations) == 1:
            ((table, key, value),) = operations
            if value is None:
                del self._families[table][key]
            else:
                self._families[table][key] = value
        else:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for table, key, value in operations:
                if value is None:
                    batch.delete(key, self._handles[table])
                else:
                    batch.put(key, value, self._handles[table])
            self._db.write(batch)
        self._write(["ok", self.number])
        self.number += 1

    def flush(self) -> None:
        """Flush every table."""
        for family in self._families.values():
            family.flush()

    def state(self) -> dict[str, dict[str, str]]:
        """Everything that the store holds."""
        return {
            name: {key.hex(): digest(value) for key, value in family.items()} for name, family in self._families.items()
        }

    def close(self) -> None:
        """Close the store."""
        self._handles.clear()
        for family in self._families.values():
            family.close()
        os.close(self._journal)

    def _write(self, entry: list[object]) -> None:
        os.write(self._journal, (json.dumps(entry, separators=(",", ":")) + "\n").encode())


def _operations(chance: random.Random, number: int, tables: list[str]) -> list[Operation]:
    """A commit as applications make them: mostly one change, sometimes a batch over several tables, rarely a large one."""
    kind = chance.random()
    count = 1 if kind < 0.6 else chance.randint(2, 8) if kind < 0.995 else 400
    found: list[Operation] = []
    for index in range(count):
        key = f"key-{chance.randrange(600):04d}".encode()
        if chance.random() < 0.15:
            found.append((chance.choice(tables), key, None))
            continue
        size = chance.randint(0, 200) if chance.random() < 0.95 else chance.randint(1_000, 20_000)
        found.append((chance.choice(tables), key, f"{number}:{index}:".encode() + chance.randbytes(size)))
    return found


def main() -> None:
    """Serve commands until ``stop`` or the end of input."""
    given = settings()
    tables = ["default", *given["tables"]]
    store = Store(Path(given["path"]), Path(given["journal"]), given["tables"])
    chance = random.Random(f"{given['seed']}/{store.number}")
    pause = 1.0 / given["rate"]
    running, due = False, time.monotonic()
    print(json.dumps({"ready": store.sequence}), flush=True)
    while True:
        wait = max(0.0, due - time.monotonic()) if running else None
        if select.select([sys.stdin], [], [], wait)[0]:
            command, *arguments = sys.stdin.readline().split() or ["stop"]
            answer: object = None
            match command:
                case "go" | "pause":
                    running, due = command == "go", time.monotonic()
                case "flush":
                    store.flush()
                case "sequence":
                    answer = store.sequence
                case "state":
                    answer = store.state()
                case "fill":
                    for number in range(int(arguments[0])):
                        store.commit([("default", f"fill-{number:08d}".encode(), os.urandom(int(arguments[1])))])
                case "huge":
                    value = os.urandom(int(arguments[1]))
                    store.commit([("default", f"huge-{i:08d}".encode(), value) for i in range(int(arguments[0]))])
                case "stop":
                    store.close()
            print(json.dumps({command: answer}), flush=True)
            if command == "stop":
                return
        if running and time.monotonic() >= due:
            store.commit(_operations(chance, store.number, tables))
            due += pause


if __name__ == "__main__":
    main()
