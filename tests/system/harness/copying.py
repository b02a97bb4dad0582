"""``python -m tests.system.harness.copying SETTINGS``: an application that keeps a copy of tables in SQLite, each row
with the generation that it was received in.

Settings: ``application``, ``copy`` (the file), ``options`` (of `subscriber_sdk.run`).
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from subscriber_sdk import ScanEnd, Subscriber, Update, run
from tests.system.harness.child import settings

__all__ = ["Copying", "copied", "main", "opened", "reads"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (name TEXT, key TEXT, generation INTEGER, value TEXT, PRIMARY KEY (name, key));
CREATE TABLE IF NOT EXISTS reads (id TEXT PRIMARY KEY)
"""


def opened(path: Path) -> sqlite3.Connection:
    """The copy, made if there is none, for writing."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    database.execute("PRAGMA synchronous = OFF")  # a process is killed here, and no machine
    database.executescript(_SCHEMA)
    return database


def copied(path: Path, table: str) -> dict[str, str]:
    """The copy of a table: the second column by the first."""
    return dict(_asked(path, "SELECT key, value FROM rows WHERE name = ?", table))


def reads(path: Path) -> int:
    """How many READ updates came, each counted once."""
    return int(next(iter(_asked(path, "SELECT count(*) FROM reads")), (0,))[0])


def _asked(path: Path, query: str, *arguments: str) -> list[Any]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as database:
        try:
            return database.execute(query, arguments).fetchall()
        except sqlite3.OperationalError:  # the tables are made in a moment
            return []


class Copying(Subscriber):
    """Writes every row as it comes."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._database = opened(Path(given["copy"]))

    async def on_updates(self, updates: Any) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        for update in updates:
            self._apply(update)
        self._database.execute("COMMIT")

    def _apply(self, update: Update) -> None:
        table = update.table
        if update.op.value == "read":
            self._database.execute("INSERT OR IGNORE INTO reads VALUES (?)", (update.id,))
        if update.old_key is not None:
            self._database.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, str(update.old_key[0])))
        key = str(update.key[0])
        if update.after is None:
            self._database.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, key))
        else:
            row = (table, key, update.generation, str(update.after["value"]))
            self._database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", row)

    async def on_scan_end(self, end: ScanEnd) -> None:
        self._database.execute("DELETE FROM rows WHERE name = ? AND generation < ?", (end.table, end.generation))


def main(kind: type[Copying] = Copying) -> None:
    """Receive until SIGTERM."""
    given = settings()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(kind(given), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
