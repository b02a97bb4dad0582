"""Stores the keys that a flow knows to exist in the source, table by table, in a private SQLite database. It is in a
temporary file, so that a large table needs little memory. The file disappears with the process.

Changes that are delivered again after a rollback are applied again, with the same result: the last change of each key
decides.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

__all__ = ["KnownKeys"]

_CACHE_KIB: Final = 4096
_TABLES: Final = """
CREATE TABLE known (number INTEGER, key BLOB, PRIMARY KEY (number, key)) WITHOUT ROWID;
CREATE TEMP TABLE asked (key BLOB);
"""
_MISSING: Final = """
SELECT key FROM asked WHERE NOT EXISTS (SELECT 1 FROM known WHERE number = ? AND known.key = asked.key)
"""


class KnownKeys:
    """The stored keys, as bytes. Methods block, and raise :class:`sqlite3.Error` if the file cannot be written."""

    def __init__(self) -> None:
        self._open: sqlite3.Connection | None = None
        self._numbers: dict[str, int] = {}  # each table's number; a table gets a new number when it is emptied
        self._last = 0

    def apply(self, table: str, present: dict[bytes, bool], *, emptied: bool = False) -> None:
        """Store keys that exist from now on (true), and remove keys that no longer exist (false). ``emptied``: remove
        all keys of the table first."""
        if emptied:
            self._numbers.pop(table, None)
        number = self._number(table)
        database = self._database
        database.execute("BEGIN")
        added, removed = (
            [(number, key) for key, there in present.items() if there is which] for which in (True, False)
        )
        if added:
            database.executemany("INSERT OR IGNORE INTO known VALUES (?, ?)", added)
        if removed and not emptied:
            database.executemany("DELETE FROM known WHERE number = ? AND key = ?", removed)
        database.execute("COMMIT")

    def missing(self, table: str, keys: Sequence[bytes]) -> set[bytes]:
        """The ``keys`` that are not stored as existing."""
        database = self._database
        database.execute("BEGIN")
        database.executemany("INSERT INTO asked VALUES (?)", [(key,) for key in keys])
        found = {key for (key,) in database.execute(_MISSING, (self._number(table),))}
        database.execute("DELETE FROM asked")
        database.execute("COMMIT")
        return found

    def close(self) -> None:
        """Remove everything."""
        if self._open is not None:
            self._open.close()

    @property
    def _database(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._open.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._open.execute("PRAGMA journal_mode = OFF")
            self._open.executescript(_TABLES)
        return self._open

    def _number(self, table: str) -> int:
        number = self._numbers.get(table)
        if number is None:
            self._last += 1
            number = self._numbers[table] = self._last
        return number
