"""Handles statements in the log: barriers for tables that lose rows, and savepoints of the open transaction."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Final

from datastores.mysql.decode.altered_rows import altered_tables
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.lexer import Dialect, Name
from datastores.mysql.decode.rare_events import Query
from datastores.mysql.decode.statement import Kind, Statement, classify
from datastores.mysql.log.tables import Tables
from wormhole.model.errors import DecodeError, UnsupportedLog
from wormhole.model.position import LogPosition

__all__ = ["Statements"]

_log = logging.getLogger(__name__)

_SHOWN: Final = 200
_ROW_FORMAT: Final = (
    "SET GLOBAL binlog_format = ROW, also in the server's configuration, and let every session that set it reconnect; "
    "what was logged as statements cannot be read: start the application anew behind it, from a copy of the tables"
)
# Kinds of statements that their beginning alone determines.
_WHOLE_BY_BEGINNING: Final = frozenset({Kind.DML})
_RENAMES: Final = frozenset({Kind.RENAME_TABLE, Kind.ROWS_REPLACED})
_ROUTINE: Final = re.compile(
    r"\s*(?:CREATE|ALTER)\b[^(;]*?\b(?:PROCEDURE|FUNCTION|TRIGGER|EVENT|VIEW|PACKAGE)\b", re.IGNORECASE
)


class Statements:
    """The statements of one walk through a log. ``mariadb``: whether MariaDB wrote it."""

    def __init__(self, encoder: Encoder, tables: Tables, *, mariadb: bool) -> None:
        self._encoder = encoder
        self._tables = tables
        self._mariadb = mariadb
        self._of = (-1, 0)  # the transaction to which the next two fields belong
        self._savepoints: dict[str, int] = {}  # the number of updates before each savepoint
        self._barriers: list[tuple[int, int]] = []
        self._replaced: dict[str, LogPosition] = {}

    def read(self, query: Query, *, alone: bool, cut: bool = False) -> Statement:
        """Classify the statement, and record the tables that it creates.

        ``alone``: it is a transaction by itself. ``cut``: only its beginning is available, so it may have more
        effects."""
        catalog = self._tables.catalog
        dialect = Dialect(self._mariadb, query.sql_mode, query.spaces, catalog.folds)
        statement = classify(query.sql, query.database, dialect)
        for database, table in statement.made:
            # A name that equals a known one only on newer servers is recorded too, because it may be another table.
            name = catalog.spelled(database, table, exists=False)
            catalog.note(*name)
            self._tables.forget_key(*name)
        if cut and statement.kind not in _WHOLE_BY_BEGINNING and not _ROUTINE.match(query.sql[:_SHOWN]):
            return replace(statement, unread=((None, None),))
        if statement.kind is Kind.DELETE_ALL:
            by_server = alone if self._mariadb else query.databases is None
            return replace(statement, kind=Kind.TRUNCATE if by_server else Kind.DML)
        return statement

    def remove_rows(self, statement: Statement) -> None:
        """Encode barriers for the tables that lose rows."""
        encoder = self._encoder
        if encoder.suppress:
            return
        self._enter()
        exists = statement.kind is not Kind.DROP_TABLE  # a DROP may have IF EXISTS; the server generates its names
        for lost in statement.tables:
            for database, table in self._tables.losing(*lost, exists=exists):
                barrier = self._tables.barrier(database, table)
                self._barriers.append(barrier)
                encoder.truncate(*barrier)

    def note_replaced(self, statement: Statement, query: Query, place: LogPosition) -> None:
        """Record the tables whose rows a statement at ``place`` changes without logging them: tables that get a new
        name, and an altered table."""
        names = set(statement.made) if statement.kind in _RENAMES else set()
        catalog = self._tables.catalog
        dialect = Dialect(self._mariadb, query.sql_mode, query.spaces, catalog.folds)

        def keyless(*name: str) -> bool:
            return catalog.keys(*catalog.spelled(*name))[1]

        def key(*name: str) -> frozenset[str] | None:
            return self._tables.key_of(*catalog.spelled(*name), place)

        for name in names.union(altered_tables(query.sql, query.database, dialect, keyless, key)):
            database, table = catalog.spelled(*name)
            self._tables.forget_key(database, table)
            if not self._encoder.suppress and not self._tables.skips(database, table):
                self._replaced[f"{database}.{table}"] = place

    def take_replaced(self) -> dict[str, LogPosition]:
        """The tables recorded by :meth:`note_replaced` since the last call."""
        found, self._replaced = self._replaced, {}
        return found

    def rolled_back(self) -> None:
        """Encode the transaction's barriers again after its rows were dropped. Removed tables stay removed: MariaDB
        logs the DROP of a failed CREATE OR REPLACE TABLE ... SELECT in the transaction that it rolls back."""
        self._enter()
        for barrier in self._barriers:
            self._encoder.truncate(*barrier)

    def unread(self, statement: Statement, sql: str) -> tuple[set[str], DecodeError] | None:
        """The shards that may lack a barrier because a name in ``statement`` is unreadable, and the reason; ``None``:
        the name cannot mean a known table."""
        where = {database for database, _ in statement.unread}
        place = "" if None in where else f" in the database {', '.join(sorted(map(str, where)))}"
        shown = _printable(sql)
        missing = self._missing(
            statement.unread,
            f"a statement removes rows of a table{place} whose name cannot be read: {shown}",
            "find out which table it is and bring the application's copy of it up to date",
        )
        if missing is None and not self._encoder.suppress:
            _log.warning("a statement with a name that cannot be read concerns no known table%s: %s", place, shown)
        return missing

    def changed(self, query: Query, *, prepared: bool) -> tuple[set[str], DecodeError] | None:
        """The result of :meth:`unread` for a statement that changes rows and is logged as text. ``prepared``: its
        transaction is being prepared.

        Raises :class:`UnsupportedLog` if the changed tables cannot be bounded. The text lacks the tables that triggers,
        functions and views change. Only the server's list of databases includes them.
        """
        if self._encoder.suppress:
            return None
        shown = _printable(query.sql)
        if query.databases is None or prepared:
            raise UnsupportedLog(f"a change is logged as a statement, not as rows: {shown}", hint=_ROW_FORMAT)
        where = ", ".join(query.databases)
        missing = self._missing(
            tuple((database, None) for database in query.databases),
            f"{self.open_name} changes tables of {where} by statements that are logged as such, not as rows: {shown}",
            "have the session that ran it log rows (binlog_format = ROW), and bring the application's copies of these "
            "tables up to date",
        )
        if missing is None:
            _log.warning("a change that is logged as a statement, not as rows, concerns no known table: %s", shown)
        return missing

    def lost_xa(self, sql: str) -> tuple[set[str], DecodeError] | None:
        """The result of :meth:`unread` for the commit of an XA transaction whose name is unreadable."""
        return self._missing(
            ((None, None),),
            f"the name of a committed XA transaction cannot be read: {_printable(sql)}",
            "find out what it changed and bring the application's copy up to date",
        )

    def savepoint(self, statement: Statement) -> tuple[set[str], DecodeError] | None:
        """Apply a statement about a savepoint. If a transaction made changes that cannot be undone, MariaDB logs its
        rollback to a savepoint together with the undone updates.

        Returns the shards that may hold undone updates, and the reason, for an unknown savepoint. Raises
        :class:`DecodeError` if a part of the undone updates was already returned.
        """
        encoder, name = self._encoder, statement.savepoint
        self._enter()
        if statement.kind is Kind.SAVEPOINT:
            self._savepoints[name] = encoder.tx_updates
        elif name not in self._savepoints:
            return self._missing(
                ((None, None),),
                f"the transaction {self.open_name} goes back to the savepoint {name!r}, which it never set",
                "find out what it undid and bring the application's copy up to date",
            )
        elif encoder.back_to(self._savepoints[name]):
            raise DecodeError(
                f"the transaction {self.open_name} went back to the savepoint {name!r}, and a part of what "
                "that undid was delivered",
                hint="MariaDB logs such a transaction when it also made a temporary table or changed one without "
                "transactions: repair the application's data, then start it anew behind this place",
            )
        return None

    @property
    def open_name(self) -> str:
        """The id of the open transaction."""
        encoder = self._encoder
        return f"{encoder.sources.names[encoder.source]}:{encoder.number}"

    # --- inside ------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        now = (self._encoder.source, self._encoder.number)
        if self._of != now:
            self._of = now
            self._savepoints.clear()
            self._barriers.clear()

    def _missing(self, names: tuple[Name, ...], what: str, find: str) -> tuple[set[str], DecodeError] | None:
        tables = self._tables.possible(names)
        if not tables or self._encoder.suppress:
            return None
        update_id = f"{self.open_name}:{self._encoder.tx_updates}"
        error = DecodeError(
            what,
            hint=f"{find}; then `wormholectl flows skip APP/SHARD --update {update_id}` for each flow that is held "
            "here, or name the tables "
            "(`database.*` for all of one) in skip_tables of the log and restart the publisher",
            tables=tuple(f"{database}.{table}" for database, table in tables),
            update_id=update_id,
            code="statement-unreadable",
        )
        return {shard for name in tables for shard in self._tables.shards_of(*name)}, error


def _printable(sql: str) -> str:
    return (
        "".join(
            f"\\x{ord(character) - 0xDC00:02x}" if 0xDC00 <= ord(character) <= 0xDCFF else character
            for character in sql[:_SHOWN]
        )
        .encode("utf-8", "backslashreplace")
        .decode()
    )
