"""Reads the rows that the tables hold now. A snapshot gives both a chunk's rows and their place in the log."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from google.protobuf.message import DecodeError as WireError

from datastores.sqlite import triggers
from datastores.sqlite.changes import not_installed
from datastores.sqlite.database import Connection, connect, snapshot, understood
from datastores.sqlite.reader import shard_of_values
from datastores.sqlite.sql_text import quoted
from datastores.sqlite.tables import Table, load_tables
from datastores.sqlite.triggers import CHANGES
from datastores.sqlite.url import Address
from datastores.sqlite.values import RowEncoder, from_key
from wormhole.model.errors import ProtocolError, SourceUnavailable, UnreadableTable
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.sharding import shard_of_table
from wormhole.model.values import Value
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable
from wormhole.wire.rows import decode_key, encode_key
from wormhole.wire.v1 import update_pb2

__all__ = ["SqliteTables"]

_BETWEEN: Final = 100  # rows between two checks of the time limit


class SqliteTables:
    """Implements :class:`~wormhole.ports.table_source.TableSource`."""

    def __init__(self, address: Address, options: SourceOptions) -> None:
        self._path = address.path
        self._options = options
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._fingerprints: dict[str, str] = {}  # the fingerprints last returned to the caller

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """See the port. The number of rows is unknown."""
        with self._reading() as connection:
            tables = load_tables(connection)
            installation = triggers.load_installation(connection, tables)
            captured = {} if installation is None else installation.working
            found = [self._scanned(table, name in captured) for name, table in tables.items() if wanted(name)]
        self._fingerprints.update((one.name, one.fingerprint) for one in found)
        return found

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port."""
        deadline = time.monotonic() + limits.seconds
        with self._reading() as connection:
            found, high = self._look(connection, table, not_before)
            conditions, values = self._bounds(found, after, until)
            encoder = RowEncoder(found.schema, found.key, self._options.max_update_bytes)
            chunk, size = Chunk(found.schema, {}, str(high), None, True), 0
            for row in connection.execute(_select(found, conditions, _order(found)), values):
                full = len(chunk.rows) >= limits.rows or size >= limits.bytes
                if full or (len(chunk.rows) % _BETWEEN == 0 and chunk.rows and time.monotonic() > deadline):
                    chunk.done = False
                    break
                key, update = self._encoded(found, encoder, row)
                chunk.rows[key] = update
                chunk.last = key
                size += len(update)
        return chunk

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""
        with self._reading() as connection:
            found, high = self._look(connection, table, not_before)
            encoder = RowEncoder(found.schema, found.key, self._options.max_update_bytes)
            chunk = Chunk(found.schema, {}, str(high), None, True)
            columns = " AND ".join(f"{name} = ?" for name in _names(found))
            unclear = []
            for key in sorted(set(keys)):
                row = connection.execute(_select(found, [columns], ""), self._stored(found, key)).fetchone()
                if row is None:
                    continue
                spelled, update = self._encoded(found, encoder, row)
                if spelled == key:
                    chunk.rows[key] = update
                    chunk.last = key
                else:
                    unclear.append(key)
            chunk.unclear = unclear
        return chunk

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        with self._reading() as connection:
            found, _ = self._look(connection, table, None)
            conditions, values = self._bounds(found, after, None)
            names = ", ".join(_names(found))
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            sql = f"SELECT {names} FROM {quoted(table)}{where}{_order(found)} LIMIT 1 OFFSET ?"
            row = connection.execute(sql, (*values, rows - 1)).fetchone()
            return None if row is None else encode_key(RowEncoder(found.schema, found.key, 0).key(row))

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port."""
        return int(marker.delivered or 0) >= int(high)

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        with self._reading() as connection:
            found = load_tables(connection).get(table)
        try:
            return found is not None and not self._wrong(found, decode_key(key))
        except (WireError, ProtocolError):
            return False

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        sharding, log = self._options.sharding, self._options.log
        if sharding.by == "hash":
            return shard_of_values(log, update_pb2.RowKey.FromString(key).values, sharding.count)
        return shard_of_table(log, table) if sharding.by == "table" else log

    def interrupt(self) -> None:
        """See the port."""
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()

    def close(self) -> None:
        """See the port."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Open a snapshot on a new connection, which sees a file that was replaced."""
        connection = connect(self._path)
        with self._lock:
            self._connection = connection
        try:
            with understood(self._path), snapshot(connection):
                yield connection
        except SourceUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise SourceUnavailable("reading existing rows was interrupted", hint="a retry follows") from cause
            raise
        finally:
            self.close()

    def _look(self, connection: Connection, table: str, not_before: Datamarker | None) -> tuple[Table, int]:
        """The table, and the number of the last change in the snapshot."""
        tables = load_tables(connection)
        installation = triggers.load_installation(connection, tables)
        if installation is None:
            raise not_installed(self._path)
        found = tables.get(table)
        if found is None:
            raise UnreadableTable(
                f"there is no table {table} any more",
                hint="nothing, if it was dropped on purpose",
                code="table-unknown",
            )
        scanned = self._scanned(found, table in installation.working)
        if problem := scanned.refused:
            raise UnreadableTable(f"{table}: {problem.text}", hint=problem.hint, code=problem.code)
        if self._fingerprints.get(table, scanned.fingerprint) != scanned.fingerprint:
            raise SourceUnavailable(f"the key of {table} is another one now", hint="the table begins again")
        (high,) = connection.execute(f"SELECT max(seq) FROM {CHANGES}").fetchone()
        if not_before is not None and int(high or 0) < int(not_before.delivered or 0):
            raise SourceUnavailable(
                f"the change {not_before.delivered} is not in {self._path}, which ends at {high}",
                hint="a retry follows; the file may have been replaced",
            )
        return found, int(high or 0)

    def _scanned(self, table: Table, captured: bool) -> ScannedTable:
        refused = NO_PROBLEM
        if table.refused:
            refused = Problem(table.refused, "give it a primary key", code="key-missing")
        elif not captured:
            hint = f"wormholectl capture install sqlite://{self._path} --tables '{table.name}'"
            refused = Problem("its changes are not recorded, or not all of them", hint, code="objects-missing")
        key = [(table.schema.columns[i], table.declared[i]) for i in table.key]
        return ScannedTable(
            table.name,
            None,
            refused,
            ", ".join(f"{column.name} {column.type} {declared}" for column, declared in key),
            columns=() if refused else table.schema.names,
        )

    def _encoded(self, table: Table, encoder: RowEncoder, row: Sequence[Any]) -> tuple[bytes, bytes]:
        values = encoder.values(row)
        if wrong := encoder.wrong(encoder.key_of(values)):
            raise UnreadableTable(
                f"{table.name} has a row without a usable key: {wrong}",
                hint="correct the row: no update could name it",
                code="key-missing",
            )
        return encoder.read(values)

    def _wrong(self, table: Table, key: Sequence[Value]) -> str:
        if len(key) != len(table.key):
            return "it has another number of columns"
        return RowEncoder(table.schema, table.key, 0).wrong(key)

    def _stored(self, table: Table, key: bytes) -> list[Any]:
        """A key's values in SQL. Raises :class:`UnreadableTable` if it does not fit the table's present key."""
        values = decode_key(key)
        if wrong := self._wrong(table, values):
            raise UnreadableTable(
                f"{table.name}: a key of the backfill does not fit the present key: {wrong}",
                hint="start the table's backfill again",
            )
        return from_key(values)

    def _bounds(self, table: Table, after: bytes | None, until: bytes | None) -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        values: list[Any] = []
        names = ", ".join(_names(table))
        marks = ", ".join("?" * len(table.key))
        for key, operator in ((after, ">"), (until, "<=")):
            if key is not None:
                conditions.append(f"({names}) {operator} ({marks})")
                values += self._stored(table, key)
        return conditions, values


def _names(table: Table) -> list[str]:
    return [quoted(name) for name in table.key_columns]


def _order(table: Table) -> str:
    return f" ORDER BY {', '.join(_names(table))}"


def _select(table: Table, conditions: Sequence[str], order: str) -> str:
    columns = ", ".join(quoted(name) for name in table.schema.names)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {columns} FROM {quoted(table.name)}{where}{order}"
