"""Reads in one snapshot the changes that the triggers recorded, and the rows that changed.

SQLite has one writer, and a snapshot ends between two commits. So the changes between two snapshots are whole
transactions. The publisher delivers them as one transaction.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datastores.sqlite import triggers
from datastores.sqlite.database import Connection, connect, snapshot, understood
from datastores.sqlite.record import Place, Row
from datastores.sqlite.sql_text import quoted
from datastores.sqlite.tables import Table, load_tables, schema_version
from datastores.sqlite.triggers import CHANGES, GAP, WRITTEN, Installation
from datastores.sqlite.values import RowEncoder
from wormhole.model.errors import UsageError
from wormhole.model.values import Op

__all__ = ["Changes", "Shown", "not_installed"]

_PRUNED_AT_ONCE: Final = 10_000


def not_installed(path: Path) -> UsageError:
    """The error for a database without our tables."""
    return UsageError(
        f"nothing records the changes of {path}",
        hint=f"wormholectl capture install sqlite://{path} --all",
        code="objects-missing",
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """The change table in a snapshot, from a place on. ``low`` and ``top``: its first and its last change. ``gaps``:
    the first and the last gap, where changes were not recorded. ``full``: the triggers do not record now.
    """

    low: Place
    top: Place
    gaps: tuple[int, int] | None
    full: bool


class Changes:
    """A connection that reads changes. Used by one thread at a time. ``write``: changes may be deleted.

    Every call raises :class:`~wormhole.model.errors.SourceUnavailable` or
    :class:`~wormhole.model.errors.UsageError`.
    """

    def __init__(self, path: Path, max_update_bytes: int, *, write: bool) -> None:
        self._path = path
        self._most = max_update_bytes
        self._write = write
        self._connection: Connection | None = None
        self._file = (0, 0)
        self._seen = -1
        self._version = -1
        self._tables: Mapping[str, Table] = {}
        self._installation: Installation | None = None
        self._sql: dict[int, tuple[str, RowEncoder]] = {}

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def changed(self) -> bool:
        """Whether the database may have changed since the last :meth:`shown`."""
        if self._connection is None or not self._is_same_file():
            return True
        with understood(self._path):
            return self._data_version(self._connection) != self._seen

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables of the last snapshot."""
        return self._tables

    @contextmanager
    def shown(self, after: int) -> Iterator[tuple[Installation, Shown]]:
        """Open one snapshot for the block. Yields the installation, and the change table from ``after`` on."""
        connection = self._opened()
        with understood(self._path):
            self._seen = self._data_version(connection)
            with snapshot(connection):
                installation = self._look(connection)
                yield installation, self._shown(connection, installation, after)

    def proof(self, seq: int) -> int | None:
        """The proof of a change in the present snapshot; ``None``: the snapshot does not have the change."""
        row = self._opened().execute(f"SELECT proof FROM {CHANGES} WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else int(row[0])

    def is_empty(self, table: str) -> bool:
        """Whether a table has no row in the present snapshot."""
        return self._opened().execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1").fetchone() is None

    def rows(self, installation: Installation, after: int, until: int) -> Iterator[Row]:
        """The updates after the change ``after`` up to ``until``, with the rows of the present snapshot."""
        numbers = self._opened().execute(
            f"SELECT DISTINCT tab FROM {CHANGES} WHERE seq > ? AND seq <= ? AND tab", (after, until)
        )
        found = [
            self._rows_of(number, table, after, until)
            for (number,) in numbers.fetchall()
            if (table := self._tables.get(installation.tables.get(number, ""))) is not None and table.schema.key
        ]
        for _, row in heapq.merge(*found, key=lambda one: one[0]) if len(found) != 1 else found[0]:
            yield row

    def check_writable(self) -> None:
        """Check that changes can be deleted."""
        with self._writing() as connection:  # a transaction begins even if it cannot write
            connection.execute(f"DELETE FROM {CHANGES} WHERE seq < 0")

    def prune(self, before: int) -> bool:
        """Delete some of the changes before ``before``. Returns whether more are left."""
        with self._writing() as connection:
            (low,) = connection.execute(f"SELECT min(seq) FROM {CHANGES}").fetchone()
            connection.execute(f"DELETE FROM {CHANGES} WHERE seq < ?", (min(before, low + _PRUNED_AT_ONCE),))
            return int(low) + _PRUNED_AT_ONCE < before

    def note(self) -> None:
        """Add an entry without a change to the change table, so that a new place exists."""
        with self._writing() as connection:
            connection.execute(f"INSERT INTO {CHANGES} (tab, op) VALUES (0, 0)")

    def unblock(self, before: int) -> None:
        """Let full triggers record again: note the gap, and delete the changes before ``before``."""
        with self._writing() as connection:
            connection.execute(f"INSERT INTO {CHANGES} (tab, op) VALUES (0, ?)", (GAP,))
            connection.execute(f"DELETE FROM {CHANGES} WHERE seq < ?", (before,))

    # --- inside ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A short transaction that writes."""
        connection = self._opened()
        with understood(self._path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _is_same_file(self) -> bool:
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _opened(self) -> Connection:
        if self._connection is not None and not self._connection.in_transaction and not self._is_same_file():
            self.close()
        if self._connection is None:
            with suppress(OSError):
                found = os.stat(self._path)
                self._file = (found.st_dev, found.st_ino)
            self._connection = connect(self._path, write=self._write)
            self._version = self._seen = -1
        return self._connection

    @staticmethod
    def _data_version(connection: Connection) -> int:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def _look(self, connection: Connection) -> Installation:
        version = schema_version(connection)
        if version != self._version:
            self._tables = load_tables(connection)
            self._installation = triggers.load_installation(connection, self._tables)
            self._sql.clear()
            self._version = version
        if self._installation is None:
            raise not_installed(self._path)
        return self._installation

    @staticmethod
    def _shown(connection: Connection, installation: Installation, after: int) -> Shown:
        ends = connection.execute(
            f"SELECT seq, proof, at FROM {CHANGES} WHERE seq IN ((SELECT min(seq) FROM {CHANGES}), "
            f"(SELECT max(seq) FROM {CHANGES})) ORDER BY seq"
        ).fetchall()
        if not ends:
            raise UsageError(
                f"the table {CHANGES} is empty, which a publisher never leaves it",
                hint="run `wormholectl capture remove URL` and `wormholectl capture install URL`, then "
                "`wormholectl verify APP/SHARD`",
                code="log-diverged",
            )
        low, top = Place(*ends[0]), Place(*ends[-1])
        first, last, at = connection.execute(
            f"SELECT min(CASE WHEN op = {GAP} THEN seq END), max(CASE WHEN op = {GAP} THEN seq END), max(at) "
            f"FROM {CHANGES} WHERE seq > ?",
            (after,),
        ).fetchone()
        full = top.seq - low.seq >= installation.max_changes
        return Shown(low, Place(top.seq, top.proof, at or top.at), None if first is None else (first, last), full)

    def _rows_of(self, number: int, table: Table, after: int, until: int) -> Iterator[tuple[int, Row]]:
        sql, encoder = self._query(number, table)
        width = len(table.key)
        schema = table.schema
        for seq, written, *found in self._opened().execute(sql, (after, until, number)):
            if found[width]:
                if written:
                    values = encoder.values(found[width + 1 :])
                    key = encoder.key_of(values)
                    wrong = encoder.wrong(key)
                    yield seq, (schema, b"" if wrong else encoder.row(Op.UPSERT, key, values), wrong)
                continue
            key = encoder.key(found[:width])
            wrong = encoder.wrong(key)
            if not wrong:
                yield seq, (schema, encoder.gone(key), "")
            elif written or None not in key:  # a row with NULL in its key was never delivered
                yield seq, (schema, b"", wrong)

    def _query(self, number: int, table: Table) -> tuple[str, RowEncoder]:
        known = self._sql.get(number)
        if known is None:
            keys = [(quoted(name), f"k{n}") for n, name in enumerate(table.key_columns, 1)]
            stored = ", ".join(k for _, k in keys)
            same = " AND ".join(f"t.{name} = c.{k} AND t.{name} = c.{k} COLLATE BINARY" for name, k in keys)
            columns = ", ".join(f"t.{quoted(name)}" for name in table.schema.names)
            sql = (
                f"SELECT c.s, c.w, {', '.join(f'c.{k}' for _, k in keys)}, t.{keys[0][0]} IS NOT NULL, {columns} "
                f"FROM (SELECT max(seq) AS s, max(op = {WRITTEN}) AS w, {stored} FROM {CHANGES} "
                f"WHERE seq > ? AND seq <= ? AND tab = ? GROUP BY {stored}) c "
                f"LEFT JOIN {quoted(table.name)} t ON {same} ORDER BY c.s"
            )
            known = self._sql[number] = sql, RowEncoder(table.schema, table.key, self._most)
        return known
