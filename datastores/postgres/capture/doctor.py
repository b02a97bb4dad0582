"""``wormholectl doctor`` for a PostgreSQL database whose changes triggers record. It only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from datastores.postgres.capture.session import OLDEST_VERSION, LogState, installed, read_state
from datastores.postgres.capture.triggers import TableState, read_tables, troubles
from datastores.postgres.capture.url import SCHEME
from datastores.postgres.doctor.examination import way_findings
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, connect
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import UnsupportedLog
from wormhole.model.findings import Finding, LogGrowth, Report, SeenTable, Severity

__all__ = ["check"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM
_TIMEOUT_S: Final = 60.0
_INSTALL: Final = "run `wormholectl capture install`, which prints its SQL and asks"
_NEAR: Final = 0.8
_SHOWN: Final = 5


def check(address: Address, schema: str) -> Report:
    """Examine the database for a publisher that uses this account.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the database cannot be reached, and
    :class:`~wormhole.model.errors.UsageError` for a wrong account or certificate.
    """
    connection = connect(address, timeout_s=_TIMEOUT_S)
    try:
        version = connection.version
        tables = read_tables(connection, schema)
        facts = {
            "server": f"PostgreSQL {version // 10000}.{version % 10000}",
            "account": address.user,
            "schema": schema,
        }
        report = Report(f"{SCHEME}://{address}", facts)
        report.tables += [SeenTable(one.schema, one.table, one.key_columns, one.estimate) for one in tables if one.root]
        report.growth = LogGrowth(unknown="the changes are in a table, whose bound `wormholectl capture show` has")
        report.findings += _version(version)
        report.findings += _room(connection, address, schema)
        report.findings += _triggers(connection, schema, tables)
        report.findings += _keys(tables)
        report.findings += way_findings(connection, address)
    finally:
        connection.close()
    return report


def _version(version: int) -> Iterator[Finding]:
    if version < OLDEST_VERSION:
        yield Finding(
            "version",
            PROBLEM,
            f"PostgreSQL {version // 10000} is too old to record changes",
            "nothing can be read",
            f"upgrade it to {OLDEST_VERSION // 10000} or later",
        )


def _room(connection: Connection, address: Address, schema: str) -> Iterator[Finding]:
    try:
        with installed(address, schema):
            state = read_state(connection, schema)
    except UnsupportedLog as error:
        yield Finding("triggers", PROBLEM, error.message, "nothing can be read", error.hint or "", error.code)
        yield from _rights(connection, address)
        return
    yield _bound(state)


def _bound(state: LogState) -> Finding:
    needed = state.bytes - state.free_bytes
    used, most = needed >> 20, state.most_bytes >> 20
    if state.stopped:
        return Finding(
            "change_table",
            PROBLEM,
            f"changes are not recorded: the change table reached its bound of {most} MiB",
            "flows report a loss",
            "see which flow is furthest behind (`wormholectl flows`)",
        )
    what = f"the change table takes {state.bytes >> 20} MiB, and {used} of at most {most} MiB are still needed"
    if needed <= _NEAR * state.most_bytes:
        return Finding("change_table", OK, what)
    return Finding(
        "change_table",
        WARN,
        what,
        "at the bound nothing more is recorded, and flows report a loss",
        "see which flow is furthest behind (`wormholectl flows`)",
    )


def _rights(connection: Connection, address: Address) -> Iterator[Finding]:
    rows = connection.query("SELECT has_database_privilege(current_database(), 'CREATE')")
    if rows != [("t",)]:
        grant = f"GRANT CREATE ON DATABASE {quote_identifier(address.database)} TO {quote_identifier(address.user)};"
        yield Finding(
            "rights",
            PROBLEM,
            f"{address.user} may not create a schema in the database",
            "`wormholectl capture install` fails",
            f"give it:\n{grant}",
        )


def _triggers(connection: Connection, schema: str, tables: Sequence[TableState]) -> Iterator[Finding]:
    for problem in troubles(connection, schema):
        yield Finding("triggers", PROBLEM, problem.text, "changes would be lost", problem.hint, problem.code)
    recorded = [one.name for one in tables if one.rows and one.root and not (one.lacks_rows or one.lacks_truncates)]
    others = [one.name for one in tables if not one.rows and one.root and not one.obstacle]
    obstacles = [f"{one.name} ({one.obstacle})" for one in tables if one.obstacle and not one.rows]
    if recorded:
        yield Finding("triggers", OK, f"the changes of {_named(recorded)} are recorded")
    if others:
        yield Finding(
            "left_out",
            WARN,
            f"the changes of {_named(others)} are not recorded",
            "they never arrive",
            _INSTALL,
        )
    if obstacles:
        yield Finding(
            "left_out",
            WARN,
            f"the changes of {_named(obstacles)} cannot be recorded",
            "they never arrive",
            "let the owner of the tables run `wormholectl capture install`",
        )


def _keys(tables: Sequence[TableState]) -> Iterator[Finding]:
    without = [one.name for one in tables if one.rows and one.root and not one.key_columns]
    if without:
        yield Finding(
            "primary_key",
            WARN,
            f"{_named(without)} have no primary key that is checked at once",
            "their updates have no key, and their existing rows cannot be read",
            "add a primary key",
        )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} others" if len(names) > _SHOWN else shown
