"""The record: the log's transactions, in an SQLite file in the publisher's folder.

A snapshot of the database shows only the present rows. So the publisher records the changes that it finds in a snapshot
as one transaction, with the rows' images. All readers read the record. It is the same for each reader and after each
restart.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datastores.sqlite.database import understood
from wormhole.model.schema import Column, Schema

__all__ = ["Place", "Record", "Recorded", "Row"]

_TABLES: Final = """\
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS schemas (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS transactions (
    seq INTEGER PRIMARY KEY, begins INTEGER NOT NULL, proof INTEGER NOT NULL, at INTEGER NOT NULL,
    bytes INTEGER NOT NULL, gap_first TEXT NOT NULL, gap_last TEXT NOT NULL, replaced TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS updates (
    seq INTEGER, nr INTEGER, schema INTEGER NOT NULL, row BLOB NOT NULL, problem TEXT NOT NULL, PRIMARY KEY (seq, nr)
) WITHOUT ROWID;"""
_ROWS_AT_ONCE: Final = 1_000

Row = tuple[Schema, bytes, str]
"""A schema, an encoded update, and the problem if the update could not be encoded."""


@dataclass(frozen=True, slots=True)
class Place:
    """A transaction's end: its last change's number, proof (random, identifies a history) and time (ms since 1970)."""

    seq: int
    proof: int
    at: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A transaction. ``begins``: the number of the last change before it. ``gap``: the first and the last missing
    change before it; empty: none is missing. ``replaced``: the tables whose changes may be incomplete.
    """

    place: Place
    begins: int
    gap: tuple[str, str]
    replaced: tuple[str, ...]


class Record:
    """The record's file. Used by one thread at a time; other threads open their own. ``size``: bytes of the updates.

    Every call raises :class:`~wormhole.model.errors.SourceUnavailable` if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with understood(path):
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_TABLES)
            (self.size,) = self._database.execute("SELECT coalesce(sum(bytes), 0) FROM transactions").fetchone()
        self._schemas: dict[Schema, int] = {}
        self._numbered: dict[int, Schema] = {}

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def identity(self) -> str:
        """The identity of the database whose log is recorded; empty: nothing is recorded yet."""
        return self._about("identity", "")

    def begin(self) -> Place:
        """Where the record begins."""
        return Place(*json.loads(self._about("begin", "[0, 0, 0]")))

    def begin_anew(self, identity: str, place: Place) -> None:
        """Delete all transactions, and begin at ``place`` of the database ``identity``."""
        with self._transaction():
            self._database.execute("DELETE FROM transactions")
            self._database.execute("DELETE FROM updates")
            self._keep("identity", identity)
            self._keep("captured", "null")
            self._keep("fork", str(place.seq))
            self._keep_begin(place)
        self.size = 0

    def end(self) -> Place:
        """Where the record ends."""
        with understood(self._path):
            row = self._database.execute("SELECT seq, proof, at FROM transactions ORDER BY seq DESC LIMIT 1").fetchone()
        return self.begin() if row is None else Place(*row)

    def captured(self) -> dict[str, int] | None:
        """The tables whose triggers were in place at the end of the record, with their numbers in the change table.
        ``None``: nothing was recorded yet.
        """
        found: dict[str, int] | None = json.loads(self._about("captured", "null"))
        return found

    def add(self, transaction: Recorded, rows: Iterable[Row], captured: Mapping[str, int]) -> None:
        """Record a transaction that begins at the record's end. ``captured``: the new result of :meth:`captured`."""
        seq, size = transaction.place.seq, 0
        with self._transaction():
            self._keep("captured", json.dumps(dict(captured)))
            some: list[tuple[int, int, int, bytes, str]] = []
            for nr, (schema, row, problem) in enumerate(rows):
                some.append((seq, nr, self._number_of(schema), row, problem))
                size += len(row)
                if len(some) == _ROWS_AT_ONCE:
                    self._put(some)
            self._put(some)
            self._database.execute(
                "INSERT INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    seq,
                    transaction.begins,
                    transaction.place.proof,
                    transaction.place.at,
                    size,
                    *transaction.gap,
                    json.dumps(transaction.replaced),
                ),
            )
        self.size += size

    def cut(self, after: int) -> None:
        """Delete the transactions after ``after``, which the database has lost."""
        with self._transaction():
            self._keep("fork", str(after))
            self._database.execute("DELETE FROM transactions WHERE seq > ?", (after,))
            self._database.execute("DELETE FROM updates WHERE seq > ?", (after,))
        self._measure()

    def drop(self, until: int) -> None:
        """Delete the transactions that end at ``until`` or before it."""
        with self._transaction():
            row = self._database.execute(
                "SELECT seq, proof, at FROM transactions WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (until,)
            ).fetchone()
            if row is not None:
                self._keep_begin(Place(*row))
                self._database.execute("DELETE FROM transactions WHERE seq <= ?", (row[0],))
                self._database.execute("DELETE FROM updates WHERE seq <= ?", (row[0],))
        self._measure()

    def trim(self, budget: int) -> None:
        """Delete the oldest transactions until the rest have at most ``budget`` bytes. The last transaction is kept."""
        while self.size > budget:
            with understood(self._path):
                found = self._database.execute("SELECT seq FROM transactions ORDER BY seq LIMIT 2").fetchall()
            if len(found) < 2:
                return
            self.drop(found[0][0])

    def sync(self) -> None:
        """Write the record to the disk, so that it survives a loss of power."""
        with understood(self._path):
            self._database.execute("PRAGMA wal_checkpoint").fetchall()

    def places(self) -> Iterator[Place]:
        """The ends of the transactions, newest first, then the beginning of the record."""
        with understood(self._path):
            found = self._database.execute("SELECT seq, proof, at FROM transactions ORDER BY seq DESC").fetchall()
        yield from (Place(*row) for row in found)
        yield self.begin()

    def next(self, after: int) -> Recorded | None:
        """The first transaction that ends after ``after``."""
        with understood(self._path):
            row = self._database.execute(
                "SELECT seq, proof, at, begins, gap_first, gap_last, replaced FROM transactions WHERE seq > ? "
                "ORDER BY seq LIMIT 1",
                (after,),
            ).fetchone()
        if row is None:
            return None
        seq, proof, at, begins, first, last, replaced = row
        return Recorded(Place(seq, proof, at), begins, (first, last), tuple(json.loads(replaced)))

    def rows(self, seq: int, first: int) -> Iterator[tuple[int, Schema, bytes, str]]:
        """The rows of the transaction that ends at ``seq``, with their numbers, from number ``first`` on."""
        with understood(self._path):
            for nr, schema, row, problem in self._database.execute(
                "SELECT nr, schema, row, problem FROM updates WHERE seq = ? AND nr >= ? ORDER BY nr", (seq, first)
            ):
                yield nr, self._schema(schema), row, problem

    def tables(self) -> frozenset[str]:
        """The tables that had an update at any time."""
        with understood(self._path):
            found = self._database.execute("SELECT content FROM schemas").fetchall()
        return frozenset(json.loads(content)[0] for (content,) in found)

    def fork(self) -> int:
        """The last change that the database kept when it lost later ones; 0: it never lost any."""
        return int(self._about("fork", "0"))

    # --- inside ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with understood(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                    self._schemas.clear()

    def _about(self, name: str, otherwise: str) -> str:
        with understood(self._path):
            row = self._database.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return otherwise if row is None else str(row[0])

    def _keep(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    def _keep_begin(self, place: Place) -> None:
        self._keep("begin", json.dumps([place.seq, place.proof, place.at]))

    def _measure(self) -> None:
        with understood(self._path):
            (self.size,) = self._database.execute("SELECT coalesce(sum(bytes), 0) FROM transactions").fetchone()

    def _put(self, some: list[tuple[int, int, int, bytes, str]]) -> None:
        self._database.executemany("INSERT INTO updates VALUES (?, ?, ?, ?, ?)", some)
        some.clear()

    def _number_of(self, schema: Schema) -> int:
        number = self._schemas.get(schema)
        if number is None:
            content = json.dumps(
                [schema.table, [[c.name, c.type] for c in schema.key], [[c.name, c.type] for c in schema.columns]]
            )
            self._database.execute("INSERT OR IGNORE INTO schemas (content) VALUES (?)", (content,))
            (number,) = self._database.execute("SELECT id FROM schemas WHERE content = ?", (content,)).fetchone()
            self._schemas[schema] = number
        return number

    def _schema(self, number: int) -> Schema:
        schema = self._numbered.get(number)
        if schema is None:
            (content,) = self._database.execute("SELECT content FROM schemas WHERE id = ?", (number,)).fetchone()
            table, key, columns = json.loads(content)
            schema = Schema(table, tuple(Column(*c) for c in key), tuple(Column(*c) for c in columns))
            self._numbered[number] = schema
        return schema
