"""``python -m tests.system.harness.comparing SETTINGS``: the application of :mod:`tests.system.harness.copying`, which
can compare what it holds, and whose file keeps the key of every row that anything wrote.

Keys are text. Settings are those of the other one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from subscriber_sdk import Key, KeyRange
from tests.system.harness.copying import Copying, main, opened
from wormhole.model.values import Value

__all__ = ["fill", "touched"]

_LOG = """
CREATE TABLE IF NOT EXISTS touched (key TEXT);
CREATE TRIGGER IF NOT EXISTS inserted AFTER INSERT ON rows BEGIN INSERT INTO touched VALUES (NEW.key); END;
CREATE TRIGGER IF NOT EXISTS updated AFTER UPDATE ON rows BEGIN INSERT INTO touched VALUES (NEW.key); END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON rows BEGIN INSERT INTO touched VALUES (OLD.key); END;
"""


def fill(path: Path, table: str, rows: Iterator[tuple[str, str]]) -> None:
    """Make the copy of a table, as if it had been received."""
    with closing(opened(path)) as database:
        database.execute("BEGIN")
        database.executemany("INSERT INTO rows VALUES (?, ?, 0, ?)", ((table, key, value) for key, value in rows))
        database.execute("COMMIT")
        database.executescript(_LOG)


def touched(path: Path) -> set[str]:
    """The keys of the rows that were written since :func:`fill`, however that came about."""
    with closing(sqlite3.connect(path, timeout=30)) as database:
        return {key for (key,) in database.execute("SELECT key FROM touched")}


class Comparing(Copying):
    """Keeps one column of each row."""

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, value FROM rows WHERE name = ? AND key IN ({marks})"
        found = self._database.execute(query, (table, *(key[0] for key in keys)))
        return {(key,): {"value": value} for key, value in found}

    async def on_verify_keys(self, table: str, shard: str) -> Any:
        for (key,) in self._database.execute("SELECT key FROM rows WHERE name = ?", (table,)).fetchall():
            yield (key,)

    async def on_range(self, keys: KeyRange) -> None:
        gone = [(keys.table, key[0], keys.generation) for key in keys.keys - keys.except_keys]
        self._database.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND generation < ?", gone)


if __name__ == "__main__":
    main(Comparing)
