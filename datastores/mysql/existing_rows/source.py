"""The tables of a MySQL or MariaDB server as a source of existing rows."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from datastores.common.kept_state import state_of
from datastores.mysql.decode.name_folding import fold
from datastores.mysql.existing_rows.definition import (
    Definition,
    Listed,
    creation,
    no_privilege,
    read_definition,
)
from datastores.mysql.existing_rows.exact_keys import cannot_be_asked_for, is_same, last_exact, literals_of
from datastores.mysql.existing_rows.key_order import equal, is_moment, up_to
from datastores.mysql.existing_rows.reading import Reading
from datastores.mysql.existing_rows.server import Server, ask_server, prepare_session
from datastores.mysql.existing_rows.skipping import key_behind
from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.log.tables import shard_name
from datastores.mysql.server.address import Address, parse
from datastores.mysql.server.bounded_connection import MOST_LISTING_BYTES
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import connect, query, reading_answers, server_text, translating
from datastores.mysql.server.table_names import OWN_DATABASES
from wormhole.model.errors import ChunkUnavailable, SourceUnavailable, UnreadableTable, UsageError, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.sharding import shard_of_hash
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable
from wormhole.wire.v1 import update_pb2

__all__ = ["MySqlTables"]

_log = logging.getLogger(__name__)

_TABLES: Final = (
    "SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, TABLE_TYPE AS kind, ENGINE AS engine, TABLE_ROWS AS amount, "
    "AVG_ROW_LENGTH AS row_bytes FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') "
)
_ALL: Final = _TABLES + "AND TABLE_SCHEMA NOT IN %s"
_ONE: Final = _TABLES + "AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_KIND: Final = "SELECT TABLE_TYPE AS kind FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_LISTING_S: Final = 60.0
_TRIES: Final = 3
_MOST_SECONDS: Final = 64.0
_KEYS_AT_ONCE: Final = 200
_MOST_INEXACT: Final = 100_000
_WIDER: Final = 16

_GONE: Final = frozenset({1049, 1051, 1146, 1932})
_DENIED: Final = frozenset({1044, 1142, 1143})
_ALTERED: Final = frozenset({1054, 1176, 1412, 1072})
"""The definition that the statement was made from is no longer the table's."""


class _AlteredError(Exception):
    """The table was altered while its rows were read: they are read again."""


class MySqlTables:
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the server that ``url`` names.

    A chunk's ``high`` is the text of a place: incarnation, file and offset.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url = url
        self._options = options
        self._state_dir = options.state_dir / "mysql"
        self._address: Address | None = None
        self._connection: Connection[Any] | None = None
        self._server: Server | None = None
        self._definitions: dict[str, Definition] = {}
        self._described: dict[str, str] = {}  # fingerprints that the caller was given last
        self._row_bytes: dict[str, int] = {}
        self._shards: dict[str, str] = {}  # by table, where it has one
        self._seconds: dict[str, float] = {}  # tables whose chunks took too long, and the time they get
        self._interrupted = threading.Event()
        self._checked = 0  # the incarnation whose server this one is

    # --- the port ------------------------------------------------------------------------------------------------

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> list[ScannedTable]:
        """See the port."""
        self._interrupted.clear()
        with self._connected() as (connection, server), reading_answers("the server's tables"):
            rows = query(connection, _ALL, (OWN_DATABASES,), within_s=_LISTING_S, most_bytes=MOST_LISTING_BYTES)
            listed = [one for one in map(_listed, rows) if wanted(one.name)]
            defined = [self._define(connection, server, one) for one in listed]
            self._described.update((one.listed.name, one.fingerprint) for one in defined)
            found = [self._scanned(one) for one in defined]
            names = {table.name for table in found}
            others = dict.fromkeys((*self._logged(), *named))
            hidden = [name for name in others if name not in names and all(name.partition(".")) and wanted(name)]
            found += [table for name in hidden for table in self._hidden(connection, server, name)]
        return sorted(found, key=lambda table: table.name)

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port."""

        def read(reading: Reading) -> None:
            key = reading.definition.key
            end = "" if until is None else up_to(key, _literals(reading.definition, until))
            reading.run(None if after is None else _literals(reading.definition, after), end)

        bounded = replace(limits, seconds=max(limits.seconds, self._seconds.get(table, 0.0)))
        reading, high = self._read(table, bounded, not_before, read)
        if reading.timed_out and not reading.rows:
            self._seconds[table] = min(_MOST_SECONDS, 2 * bounded.seconds)
            raise ChunkUnavailable(
                f"{table}: the server found no row within {bounded.seconds:g} s and ended the query",
                hint=f"it is tried again with {self._seconds[table]:g} s; look for a lock on the table (LOCK TABLES, "
                "ALTER TABLE), and for a transaction that keeps deleted rows from being purged",
            )
        self._seconds.pop(table, None)
        last = self._end(reading, until)
        if last is None and reading.rows and not reading.done:
            if limits.rows >= _MOST_INEXACT:
                raise UnreadableTable(
                    f"{table}: {len(reading.rows)} keys in a row hold bytes that are no characters of their column's "
                    "character set, so that nothing can be read behind them",
                    hint="correct these values, or make a key of other columns the primary one",
                )
            wider = replace(limits, rows=_MOST_INEXACT, bytes=_WIDER * limits.bytes)
            return self.chunk(table, after, until, wider, not_before)
        done = reading.done or (until is not None and last == until)
        return Chunk(reading.definition.schema, reading.rows, str(high), last, done)

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""

        def read(reading: Reading) -> None:
            definition = reading.definition
            for begin in range(0, len(keys), _KEYS_AT_ONCE):
                some = [_literals(definition, key) for key in keys[begin : begin + _KEYS_AT_ONCE]]
                reading.run_keys(f"({' OR '.join(equal(definition.key, one) for one in some)})")

        reading, high = self._read(table, ChunkLimits(), not_before, read)
        if reading.timed_out:
            raise ChunkUnavailable(
                f"{table}: the server ended the query for {len(keys)} rows", hint="it is tried again"
            )
        self._check_missing(reading, keys)
        asked = set(keys)
        # By the collation another spelling of a key is the same row: it has a key of its own in the log.
        rows = {key: update for key, update in reading.rows.items() if key in asked}
        unclear = self._respelled(reading.definition, asked.difference(rows), reading.rows.keys() - asked)
        return Chunk(reading.definition.schema, rows, str(high), next(reversed(rows), None), True, unclear)

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        self._interrupted.clear()
        with self._connected() as (connection, server):
            definition = self._definition(connection, server, table)
            self._check_key(definition)
            literals = None if after is None else _literals(definition, after)
            try:
                return key_behind(connection, server.snapshots, definition, literals, rows)
            except WormholeError:
                raise
            except Exception as error:
                known = self._known(error, definition, server)
                if isinstance(known, UnreadableTable):
                    raise known from None
                if known:
                    raise SourceUnavailable(f"{table} is being altered", hint="it is tried again") from None
                with translating(f"keys of {table}", connection):
                    raise

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port. No marker of another incarnation ever does."""
        place = LogPosition.parse(high)
        return marker.order.incarnation == place.incarnation and marker.order >= place

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        self._interrupted.clear()
        with self._connected() as (connection, server):
            definition = self._definition(connection, server, table)
            try:
                literals_of(definition, key)
            except (ValueError, LookupError, OverflowError):
                return False
            values = update_pb2.RowKey.FromString(key).values
            if not all(map(is_moment, definition.key, values)):
                return False
            return not (any(definition.coded_key) and cannot_be_asked_for(connection, definition, key))

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        sharding = self._options.sharding
        if sharding.by != "hash":
            known = self._shards.get(table)
            if known is None:
                known = self._shards[table] = shard_name(self._options.log, sharding, *table.split(".", 1))
            return known
        values = update_pb2.RowKey.FromString(key).values
        if len(values) == 1 and values[0].WhichOneof("kind") == "bytes":
            hashed = values[0].bytes
        else:
            hashed = b"".join(value.SerializeToString() for value in values)
        return shard_of_hash(self._options.log, hashed, sharding.count)

    def interrupt(self) -> None:
        """See the port: the connection is cut, and the server ends the statement by itself soon."""
        self._interrupted.set()
        connection: Any = self._connection
        raw = getattr(connection, "_sock", None)
        if raw is not None:
            with suppress(OSError):
                # Not the TLS layer's, which another thread is using.
                socket.socket.shutdown(raw, socket.SHUT_RDWR)

    def close(self) -> None:
        """See the port."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    # --- reading -------------------------------------------------------------------------------------------------

    def _read(
        self, table: str, limits: ChunkLimits, not_before: Datamarker, read: Callable[[Reading], None]
    ) -> tuple[Reading, LogPosition]:
        """``read`` in one snapshot, with the table's definition as it is in it."""
        self._interrupted.clear()
        for _ in range(_TRIES):
            try:
                return self._read_once(table, limits, not_before, read)
            except _AlteredError:
                self._definitions.pop(table, None)
        raise SourceUnavailable(f"{table} is altered again and again", hint="it is tried again")

    def _read_once(
        self, table: str, limits: ChunkLimits, not_before: Datamarker, read: Callable[[Reading], None]
    ) -> tuple[Reading, LogPosition]:
        with self._connected() as (connection, server):
            self._check_server(server, not_before)
            definition = self._definition(connection, server, table)
            self._check_key(definition)
            high = server.snapshots.begin(connection, not_before, self._wait)
            most = min(self._options.max_update_bytes, server.most_packet)
            row_bytes = self._row_bytes.get(table) or definition.listed.row_bytes
            reading = Reading(connection, server.snapshots, definition, most, limits, row_bytes)
            try:
                read(reading)
                if reading.timed_out and not reading.rows:
                    query(connection, "ROLLBACK")
                elif not reading.cut:
                    _check_unaltered(connection, definition)
                    query(connection, "COMMIT")
            except (WormholeError, _AlteredError):
                raise
            except Exception as error:
                if known := self._known(error, definition, server):
                    raise known from None
                with _ending_chunk(table, connection):
                    raise
        if reading.cut:
            self._drop()  # which ends the transaction
            with self._connected() as (connection, server):
                _check_unaltered(connection, definition)
        if reading.rows:
            self._row_bytes[table] = reading.row_bytes
        return reading, high

    def _end(self, reading: Reading, until: bytes | None) -> bytes | None:
        """The last key that the next chunk can begin behind; rows after it are left to that one, if there is one."""
        keys = list(reading.rows)
        if not keys or keys[-1] == until:
            return keys[-1] if keys else None
        with self._connected() as (connection, _):
            count = last_exact(connection, reading.definition, keys, reading.raw_keys)
        if not reading.done and count:
            for key in keys[count:]:
                del reading.rows[key]
        return keys[count - 1] if count else None

    def _check_missing(self, reading: Reading, keys: Sequence[bytes]) -> None:
        """Rows that were not found are not there."""
        if not any(reading.definition.coded_key):
            return
        with self._connected() as (connection, _):
            for key in keys:
                if key not in reading.rows and cannot_be_asked_for(connection, reading.definition, key):
                    raise UnreadableTable(
                        f"{reading.definition.listed.name}: a key holds bytes that are no characters of its column's "
                        "character set, or another character's: its row cannot be asked for",
                        hint="correct these values, or make a key of other columns the primary one",
                    )

    def _respelled(self, definition: Definition, missing: Collection[bytes], others: Collection[bytes]) -> list[bytes]:
        """Which of the missing keys are one of the other rows' for the server."""
        if not missing or not others:
            return []
        with self._connected() as (connection, _):
            return [key for key in missing if is_same(connection, definition, key, others)]

    def _definition(self, connection: Connection[Any], server: Server, table: str) -> Definition:
        found = self._definitions.get(table)
        if found is None:
            database, _, name = table.partition(".")
            rows = query(connection, _ONE, (database, name))
            if not rows:
                raise self._missing(connection, server, table)
            with reading_answers(f"the definition of {table}"):
                found = self._define(connection, server, _listed(rows[0]))
            if found.refused:
                raise UnreadableTable(found.refused.text, hint=found.refused.hint, code=found.refused.code)
            self._definitions[table] = found
        return found

    def _missing(self, connection: Connection[Any], server: Server, table: str) -> UnreadableTable:
        """Why the server does not list a table."""
        for hidden in self._hidden(connection, server, table):
            return UnreadableTable(hidden.refused.text, hint=hidden.refused.hint, code=hidden.refused.code)
        return _gone(table)

    def _check_key(self, definition: Definition) -> None:
        """The keys of the caller are in the order that the key has now."""
        table = definition.listed.name
        if self._described.get(table, definition.fingerprint) != definition.fingerprint:
            del self._definitions[table]
            raise SourceUnavailable(
                f"{table}: its key is another one than when its backfill began", hint="the table begins again"
            )

    def _define(self, connection: Connection[Any], server: Server, listed: Listed) -> Definition:
        refused = server.refused or self._left_out(listed)
        try:
            found = read_definition(connection, listed, server.account)
        except UsageError:  # SHOW CREATE TABLE is for those who may read all of the table
            found = Definition(listed, refused=no_privilege(listed.database, listed.table, server.account))
        return found if found.refused or not refused else replace(found, refused=refused)

    def _left_out(self, listed: Listed) -> Problem:
        if "." in listed.database or "." in listed.table:
            return Problem(
                f"{listed.name}: the database or the table has a dot in its name, and another table may have this name",
                "rename it, or copy its rows some other way",
                code="table-unreadable",
            )
        folded = fold(listed.name)
        if any(fold(name) in (folded, fold(f"{listed.database}.*")) for name in self._options.skip_tables):
            return Problem(
                f"{listed.name} is in skip_tables: nothing of it is delivered",
                "take it out of skip_tables",
                code="table-left-out",
            )
        if any(fold(name) == folded for name in self._options.history_tables):
            return Problem(
                f"{listed.name} is in history_tables: its history is delivered row by row, which a backfill does not "
                "read",
                "take it out of history_tables to deliver its current rows",
                code="table-left-out",
            )
        return Problem()

    def _known(self, error: Exception, definition: Definition, server: Server) -> Exception | None:
        """What an error of the driver says of the table; ``None``: nothing."""
        number = server_text(error)[0] if isinstance(error, pymysql.MySQLError) else 0
        listed = definition.listed
        if number in _ALTERED:
            return _AlteredError()
        if number in _GONE:
            return _gone(listed.name)
        if number in _DENIED:
            problem = no_privilege(listed.database, listed.table, server.account)
            return UnreadableTable(problem.text, hint=problem.hint, code=problem.code)
        return None

    # --- the server ----------------------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[tuple[Connection[Any], Server]]:
        """A connection outside any transaction; after an error it is closed, so that none stays open."""
        try:
            if self._connection is None or not self._connection.open or self._server is None:
                self.close()
                self._connection, self._server = self._connect()
            yield self._connection, self._server
        except BaseException as error:
            self._drop()
            if isinstance(error, WormholeError) and self._interrupted.is_set():
                raise SourceUnavailable("reading existing rows was interrupted", hint="it is tried again") from error
            raise

    def _connect(self) -> tuple[Connection[Any], Server]:
        if self._address is None:
            login = self._options.login
            self._address = parse(
                self._url, password_file=login.password_file, my_cnf=login.user_files, prompt=login.prompt
            )
        connection = connect(self._address)
        try:
            server = ask_server(connection)
            prepare_session(connection, server)
        except BaseException:
            connection.close()
            raise
        if self._server is not None and self._server.identity != server.identity:
            self._definitions.clear()
        self._checked = 0
        return connection, server

    def _check_server(self, server: Server, not_before: Datamarker) -> None:
        """This server's log is the one that ``not_before`` is a place of."""
        wanted = not_before.order.incarnation
        if self._checked == wanted:
            return
        incarnations = Incarnations(state_of(self._options, self._state_dir))
        known = incarnations.known(server.identity)
        if incarnations.current == wanted and (known is None or not known.current):
            raise SourceUnavailable(
                f"{self._address} is the server {server.identity}, and the log is read from another one",
                hint="it is tried again; a publisher's log and its tables have to come from one server",
            )
        self._checked = wanted

    def _drop(self) -> None:
        """Give the connection up at once; what the server was doing over it ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            driver: Any = connection
            driver._force_close()

    def _wait(self, seconds: float) -> None:
        if self._interrupted.wait(seconds):
            raise SourceUnavailable("reading existing rows was interrupted", hint="it is tried again")

    # --- lists ---------------------------------------------------------------------------------------------------

    def _scanned(self, definition: Definition) -> ScannedTable:
        listed = definition.listed
        return ScannedTable(
            listed.name,
            listed.rows,
            definition.refused,
            definition.fingerprint,
            definition.portable,
            tuple(column.name for column in definition.schema.columns),
        )

    def _logged(self) -> list[str]:
        """The tables that the log's readers met."""
        return [".".join(name) for name in Catalog(self._state_dir / "tables.jsonl").all()]

    def _hidden(self, connection: Connection[Any], server: Server, name: str) -> list[ScannedTable]:
        """A table of the log that the server does not list: it was dropped, or the account may not see it."""
        database, _, table = name.partition(".")
        if query(connection, _KIND, (database, table)):
            return []  # a view
        try:
            creation(connection, database, table)
        except UsageError:
            problem = no_privilege(database, table, server.account)
            text = f"{problem.text}, or see whether it is there"
            return [ScannedTable(name, refused=Problem(text, problem.hint, code=problem.code))]
        except SourceUnavailable:
            raise
        except WormholeError:
            pass
        return []


def _listed(row: dict[str, Any]) -> Listed:
    return Listed(
        str(row["db"]),
        str(row["name"]),
        str(row["kind"]),
        str(row["engine"] or ""),
        None if row["amount"] is None else int(row["amount"]),
        int(row["row_bytes"] or 0),
    )


def _check_unaltered(connection: Connection[Any], definition: Definition) -> None:
    """The rows that were read have the columns of ``definition``: the transaction that read them keeps it so."""
    if creation(connection, definition.listed.database, definition.listed.table) != definition.created:
        raise _AlteredError


@contextmanager
def _ending_chunk(table: str, connection: Connection[Any]) -> Iterator[None]:
    """Errors of the driver become ours: of what broke while rows came, less may be read."""
    try:
        with translating(f"rows of {table}", connection):
            yield
    except SourceUnavailable as error:
        raise ChunkUnavailable(error.problem.text, hint=error.problem.hint) from None


def _literals(definition: Definition, key: bytes) -> list[str]:
    try:
        return literals_of(definition, key)
    except (ValueError, LookupError) as error:
        raise UnreadableTable(
            f"{definition.listed.name}: a key of the backfill is none of the table's as it is now ({error!s:.200})",
            hint="start the table's backfill again",
        ) from error


def _gone(table: str) -> UnreadableTable:
    return UnreadableTable(
        f"there is no table {table} any more: it was dropped or renamed",
        hint="nothing, or start a backfill of the name that it has now",
        code="table-unknown",
    )
