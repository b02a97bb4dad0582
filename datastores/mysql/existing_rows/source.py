"""The tables of a MySQL or MariaDB server as a source of existing rows, for backfills."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from datastores.common.existing_rows.tables import AlteredError, SqlTables, gone
from datastores.common.kept_state import state_of
from datastores.mysql.decode.name_folding import fold
from datastores.mysql.existing_rows.definition import (
    Definition,
    Listed,
    creation,
    no_privilege,
    read_definition,
)
from datastores.mysql.existing_rows.exact_keys import cannot_be_asked_for, is_same, last_exact
from datastores.mysql.existing_rows.key_order import KEY_SQL, is_moment, literals_of
from datastores.mysql.existing_rows.reading import Reading, key_behind
from datastores.mysql.existing_rows.server import Server, ask_server, prepare_session
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
_MOST_INEXACT: Final = 100_000
_WIDER: Final = 16

_GONE: Final = frozenset({1049, 1051, 1146, 1932})
_DENIED: Final = frozenset({1044, 1142, 1143})
_ALTERED: Final = frozenset({1054, 1176, 1412, 1072})
"""The errors of a statement whose table was altered since its definition was read."""
_REFUSALS: Final = _GONE | _DENIED | _ALTERED


_Session = tuple["Connection[Any]", Server]


class MySqlTables(SqlTables[_Session, Definition, Reading]):
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the server that ``url`` names.

    The ``high`` of a chunk is a place as text: incarnation, file and offset.
    """

    _SLOW_HINT = (
        "look for a lock on the table (LOCK TABLES, ALTER TABLE), and for a transaction that keeps deleted rows from "
        "being purged"
    )

    def __init__(self, url: str, options: SourceOptions) -> None:
        super().__init__(url, options, "mysql")
        self._address: Address | None = None
        self._identity = ""  # the server from which the definitions were read
        self._shards: dict[str, str] = {}  # the shard of each table that has a single one

    # --- the port ------------------------------------------------------------------------------------------------

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> list[ScannedTable]:
        """See the port."""
        self._interruption.clear()
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
        found = super().chunk(table, after, until, limits, not_before)
        if found.last is not None or not found.rows or found.done:
            return found
        if limits.rows >= _MOST_INEXACT:
            raise UnreadableTable(
                f"{table}: {len(found.rows)} keys in a row hold bytes that are no characters of their column's "
                "character set, so that nothing can be read behind them",
                hint="correct these values, or make a key of other columns the primary one",
            )
        return self.chunk(
            table, after, until, replace(limits, rows=_MOST_INEXACT, bytes=_WIDER * limits.bytes), not_before
        )

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        self._interruption.clear()
        with self._connected() as (connection, server):
            definition = self._definition((connection, server), table)
            try:
                literals_of(definition.key, key)
            except (ValueError, LookupError, OverflowError):
                return False
            values = update_pb2.RowKey.FromString(key).values
            if not all(map(is_moment, definition.key, values)):
                return False
            return not (any(definition.coded_key) and cannot_be_asked_for(connection, definition, key))

    def interrupt(self) -> None:
        """See the port. The connection is cut, so the server soon ends the statement."""
        super().interrupt()
        session = self._session
        raw = session and getattr(session[0], "_sock", None)
        if raw is not None:
            with suppress(OSError):
                # The plain socket's method, because another thread is using the TLS layer.
                socket.socket.shutdown(raw, socket.SHUT_RDWR)

    # --- reading -------------------------------------------------------------------------------------------------

    def _shard_name(self, table: str) -> str:
        known = self._shards.get(table)
        if known is None:
            known = self._shards[table] = shard_name(self._options.log, self._options.sharding, *table.split(".", 1))
        return known

    def _read_once(
        self,
        session: _Session,
        table: str,
        limits: ChunkLimits,
        not_before: Datamarker,
        read: Callable[[Reading], None],
    ) -> tuple[Reading, LogPosition]:
        connection, server = session
        self._check_server(server, not_before)
        definition = self._definition(session, table)
        self._check_key(definition)
        high = server.snapshots.begin(connection, not_before, self._interruption.wait)
        most = min(self._options.max_update_bytes, server.most_packet)
        row_bytes = self._row_bytes.get(table) or definition.listed.row_bytes
        reading = Reading(connection, server.snapshots, definition, most, limits, row_bytes)
        read(reading)
        if reading.timed_out and not reading.rows:
            query(connection, "ROLLBACK")
        elif not reading.cut:
            _check_unaltered(connection, definition)
            query(connection, "COMMIT")
        else:
            self.close(at_once=True)  # ends the transaction
            with self._connected() as (another, _):
                _check_unaltered(another, definition)
        return reading, high

    def _skip(self, session: _Session, definition: Definition, after: bytes | None, rows: int) -> bytes | None:
        connection, server = session
        literals = None if after is None else KEY_SQL.literals(definition, after)
        try:
            return key_behind(connection, server.snapshots, definition, literals, rows)
        except Exception as error:
            if _number(error) in _REFUSALS:
                raise
            with translating(f"keys of {definition.name}", connection):  # a smaller chunk would not help
                raise

    def _last(self, reading: Reading, until: bytes | None) -> bytes | None:
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
        if not any(reading.definition.coded_key):
            return
        with self._connected() as (connection, _):
            for key in keys:
                if key not in reading.rows and cannot_be_asked_for(connection, reading.definition, key):
                    raise UnreadableTable(
                        f"{reading.definition.name}: a key holds bytes that are no characters of its column's "
                        "character set, or another character's: its row cannot be asked for",
                        hint="correct these values, or make a key of other columns the primary one",
                    )

    def _same_rows(self, definition: Definition, missing: Collection[bytes], others: Collection[bytes]) -> list[bytes]:
        with self._connected() as (connection, _):
            return [key for key in missing if is_same(connection, definition, key, others)]

    def _definition(self, session: _Session, table: str) -> Definition:
        connection, server = session
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
        """The error for a table that the server does not list."""
        for hidden in self._hidden(connection, server, table):
            return UnreadableTable(hidden.refused.text, hint=hidden.refused.hint, code=hidden.refused.code)
        return gone(table)

    def _define(self, connection: Connection[Any], server: Server, listed: Listed) -> Definition:
        refused = server.refused or self._left_out(listed)
        try:
            found = read_definition(connection, listed, server.account)
        except UsageError:  # SHOW CREATE TABLE requires SELECT on the whole table
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

    @contextmanager
    def _refusing(self, table: str, session: _Session) -> Iterator[None]:
        connection, server = session
        try:
            yield
        except (WormholeError, AlteredError):
            raise
        except Exception as error:
            number = _number(error)
            if number in _ALTERED:
                raise AlteredError from None
            if number in _GONE:
                raise gone(table) from None
            if number in _DENIED:
                database, _, name = table.partition(".")
                problem = no_privilege(database, name, server.account)
                raise UnreadableTable(problem.text, hint=problem.hint, code=problem.code) from None
            with _ending_chunk(table, connection):
                raise

    # --- the server ----------------------------------------------------------------------------------------------

    def _is_open(self, session: _Session) -> bool:
        return session[0].open

    def _close(self, session: _Session, at_once: bool) -> None:
        driver: Any = session[0]
        if at_once:
            driver._force_close()
        elif driver.open:
            driver.close()

    def _connect(self) -> _Session:
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
        if self._identity != server.identity:
            self._definitions.clear()
        self._identity = server.identity
        self._checked = 0
        return connection, server

    def _check_server(self, server: Server, not_before: Datamarker) -> None:
        """Check that ``not_before`` is in this server's log."""
        wanted = not_before.order.incarnation
        if self._checked == wanted:
            return
        incarnations = Incarnations(state_of(self._options, self._state_dir))
        known = incarnations.known(server.identity)
        if incarnations.current == wanted and (known is None or not known.current):
            raise SourceUnavailable(
                f"{self._address} is the server {server.identity}, and the log is read from another one",
                hint="a retry follows; a publisher's log and its tables have to come from one server",
            )
        self._checked = wanted

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
        """The tables that readers found in the log."""
        return [".".join(name) for name in Catalog(self._state_dir / "tables.jsonl").all()]

    def _hidden(self, connection: Connection[Any], server: Server, name: str) -> list[ScannedTable]:
        """A table in the log that the server does not list, because it was dropped or is hidden from the account."""
        database, _, table = name.partition(".")
        if query(connection, _KIND, (database, table)):
            return []  # the name is a view's
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
    """Check that the rows read have the columns of ``definition``. Their open transaction prevents a later change."""
    if creation(connection, definition.listed.database, definition.listed.table) != definition.created:
        raise AlteredError


def _number(error: Exception) -> int:
    """The number of a server's error; 0: the error is not a server's."""
    return server_text(error)[0] if isinstance(error, pymysql.MySQLError) else 0


@contextmanager
def _ending_chunk(table: str, connection: Connection[Any]) -> Iterator[None]:
    """Translate the driver's errors in the block. After an error while rows arrive, a smaller chunk may succeed."""
    try:
        with translating(f"rows of {table}", connection):
            yield
    except SourceUnavailable as error:
        raise ChunkUnavailable(error.problem.text, hint=error.problem.hint) from None
