"""Generates and runs the SQL that creates or removes the objects that record changes."""

from __future__ import annotations

import fnmatch
import secrets
from collections.abc import Sequence
from typing import Final

from datastores.postgres.capture import statements
from datastores.postgres.capture.session import in_use
from datastores.postgres.capture.triggers import TableState, read_tables
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, ServerError, connect
from datastores.postgres.sql_text import quote_identifier, quote_literal, sql_name
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.ports.datastore import ServerObjects

__all__ = ["MOST_BYTES", "find", "run"]

MOST_BYTES: Final = 4 << 30
"""The bound of the change table's size."""
_LOCK_S: Final = 3
_MAKES_S: Final = 60
_LOCKED: Final = "55P03"
_DENIED: Final = "42501"


def find(address: Address, schema: str, tables: Sequence[str] = ()) -> ServerObjects:
    """The existing and the missing objects. ``tables``: patterns of table names (``schema.table``) to record, besides
    the tables that are already recorded. Raises :class:`~wormhole.model.errors.UsageError` for a pattern that no table
    matches, and for objects of another program.
    """
    connection = connect(address)
    try:
        there = _existing(connection, schema)
        known = read_tables(connection, schema)
        missing = _missing_objects(connection, address, schema, there)
        wanted = _wanted(known, tables)
        for one in wanted:
            if not one.obstacle:
                # Row triggers are created on the partitioned table, and PostgreSQL adds them to its partitions.
                rows = one.lacks_rows and one.root
                missing += statements.attach(
                    schema, sql_name(one.schema, one.table), rows=rows, truncates=one.lacks_truncates
                )
                if one.lacks_rows and not one.root:
                    missing += _enable(one)
        left_out = ", ".join(f"{one.name} ({one.obstacle})" for one in wanted if one.obstacle)
        publisher = _publisher(connection, schema)
        return ServerObjects(
            tuple(missing),
            (statements.detach(schema),) if there else (),
            publisher,
            publisher,
            "changes that flows have not received are removed with the schema, and no datamarker leads on"
            * bool(there),
            left_out=f"not recorded: {left_out}" if left_out else "",
            tables=tuple((one.name, _state(one)) for one in known),
        )
    finally:
        connection.close()


def run(address: Address, wanted: Sequence[str]) -> None:
    """Run the statements in order. A statement waits only seconds for a lock, because writers wait behind it. Raises
    :class:`~wormhole.model.errors.SourceUnavailable` with the statements that were not run.
    """
    connection = connect(address)
    try:
        connection.query(f"SET lock_timeout = '{_LOCK_S}s'")
        for number, statement in enumerate(wanted):
            try:
                connection.query(statement, timeout_s=_MAKES_S)
            except ServerError as error:
                hint = {
                    _LOCKED: "a transaction uses the table; run these when it has ended",
                    _DENIED: f"GRANT CREATE ON DATABASE {quote_identifier(address.database)} TO "
                    f"{quote_identifier(address.user)}; or let the owner of the tables run these",
                }.get(error.sqlstate, "correct that, and run these")
                raise SourceUnavailable(
                    error.message, hint="\n".join((f"{hint}:", *wanted[number:])), code="objects-missing"
                ) from None
    finally:
        connection.close()


def _existing(connection: Connection, schema: str) -> set[str]:
    """The names of the objects in the schema; the schema's own name is empty."""
    name = quote_literal(schema)
    rows = connection.query(
        f"SELECT '' FROM pg_namespace WHERE nspname = {name} UNION ALL "  # noqa: S608
        f"SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {name} "
        f"UNION ALL SELECT p.proname || '()' FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        f"WHERE n.nspname = {name}"
    )
    return {str(one) for (one,) in rows}


def _missing_objects(connection: Connection, address: Address, schema: str, there: set[str]) -> list[str]:
    tables, functions = statements.tables(schema), statements.functions(schema)
    own = {"", *tables, *(f"{name}()" for name in functions)}
    others = connection.query(
        "SELECT DISTINCT n.nspname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n "  # noqa: S608
        f"ON n.oid = p.pronamespace WHERE t.tgname = {quote_literal(statements.TRIGGER)} AND "
        f"n.nspname <> {quote_literal(schema)}"
    )
    if others:
        raise UsageError(
            f"{address}: triggers record changes in the schema {others[0][0]} already",
            hint=f"write ?schema={others[0][0]} behind the URL, or run `wormholectl capture remove` with it first",
            code="log-shared",
        )
    if there and "capture" not in there and not there <= own:
        raise UsageError(
            f"{address}: the schema {schema} is in use by something else",
            hint="write ?schema=NAME behind the URL, with a name that is free",
            code="log-shared",
        )
    made = [] if there else [f"CREATE SCHEMA {quote_identifier(schema)};"]
    made += [statement for name, statement in tables.items() if name not in there]
    lacking = [statement for name, statement in functions.items() if f"{name}()" not in there]
    made += lacking
    s = quote_identifier(schema)
    if "capture" not in there or not connection.query(f"SELECT FROM {s}.capture"):
        made.append(statements.capture_row(schema, secrets.token_hex(8), MOST_BYTES))
    return made


def _wanted(known: Sequence[TableState], patterns: Sequence[str]) -> list[TableState]:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in known):
            raise UsageError(
                f"no table of the database is called {pattern}", hint="give it as schema.table", code="table-unknown"
            )

    def root(one: TableState) -> str:
        return f"{one.root_schema}.{one.root_table}"

    recorded = {root(one) for one in known if one.rows or one.truncates}
    meant = {root(one) for one in known for pattern in patterns if fnmatch.fnmatchcase(root(one), pattern)} | recorded
    return [one for one in known if root(one) in meant]


def _publisher(connection: Connection, schema: str) -> str:
    """The process that reads the changes now, in words; empty: none does."""
    rows = connection.query(
        "SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.database = "  # noqa: S608
        f"(SELECT oid FROM pg_database WHERE datname = current_database()) AND {in_use(schema)} LIMIT 1"
    )
    return "".join(f"a publisher or a tail reads the changes (process {pid})" for (pid,) in rows)


def _state(one: TableState) -> str:
    if one.obstacle:
        return one.obstacle
    if one.lacks_rows and one.lacks_truncates:
        return "disabled" if one.rows or one.truncates else "not captured"
    if one.lacks_rows or one.lacks_truncates:
        return f"captured without its {'changes of rows' if one.lacks_rows else 'TRUNCATE'}"
    return "captured"


def _enable(one: TableState) -> list[str]:
    table = sql_name(one.schema, one.table)
    return [f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {quote_identifier(statements.TRIGGER)};"] if one.rows else []
