"""The database port for PostgreSQL, through psycopg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from sinks.sql.arrays import Arrays
from sinks.sql.database import Columns, Data, Own
from sinks.sql.failures import database_error
from sinks.sql.schema import Dialect, TargetColumn, TargetTable
from sinks.sql.texts import Form, texts
from subscriber_sdk.transactional.psycopg import PsycopgSession, PsycopgStore
from wormhole.model.errors import TargetUnavailable

__all__ = ["Postgres"]

_COPIED: Final = 50  # the fewest rows for a COPY; for fewer rows its savepoint takes longer than it saves
_LEFT_OUT: Final = 100  # tries of COPY that are left out after a failure
_IN_ARRAYS: Final = Form((("\\", "\\\\"), ('"', '\\"')), '"{}"', r'"\\x{}"')
_IN_LINES: Final = Form((("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")), "{}", r"\\x{}", r"\N")

_FORMS = (
    ", set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true), "
    "set_config('IntervalStyle', 'postgres', true), set_config('extra_float_digits', '1', true)"
)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A COPY whose rows the server inserts while the sink prepares the next ones.

    ``into``: the table with its columns. ``again``: a function that inserts the same rows by a statement. ``copy``: the
    COPY, whose end waits for the server.
    """

    into: str
    again: Callable[[], None]
    copy: ExitStack = field(default_factory=ExitStack)


class _Connection(psycopg.Connection[Any]):
    """A connection with an open COPY. psycopg holds its lock during a COPY, so another statement would wait for ever.
    Call :meth:`Postgres.settle` before it."""

    ahead: _Ahead | None = None


class _Session(PsycopgSession[psycopg.Connection[Any]]):
    @property
    def failed(self) -> bool:
        return self._driver.ahead is None and super().failed

    async def rollback(self) -> None:
        ahead, self._driver.ahead = self._driver.ahead, None
        if ahead is not None:
            with suppress(psycopg.Error):
                ahead.copy.close()
        await super().rollback()


class _Store(PsycopgStore):
    """``password``: called for each new connection; returns ``None`` without one."""

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        super().__init__(url)
        self._password = password
        # These settings are part of the statement that bounds the waits, so that a transaction needs no further one.
        (bounds,) = self.dialect.begun
        self.dialect = replace(self.dialect, begun=(bounds + _FORMS,))

    def _parameters(self, conninfo: str) -> dict[str, Any]:
        password = self._password()
        return {**super()._parameters(conninfo), **({} if password is None else {"password": password})}

    def _open(self, conninfo: str) -> _Connection:
        return _Connection.connect(**self._parameters(conninfo))

    def _session(self, connection: Any) -> _Session:
        return _Session(connection)


class Postgres(Arrays):
    """See the port."""

    dialect = Dialect.POSTGRES
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BYTEA PRIMARY KEY, name TEXT NOT NULL, "
        "owner TEXT NOT NULL, source TEXT NOT NULL)"
    )
    lock_bounds = ("SET LOCAL lock_timeout = '3s'", "SELECT pg_advisory_xact_lock(hashtext('wormhole_sink'))")

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        super().__init__()
        self.store = _Store(url, password)

    def run(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._executed(connection, sql, values)
        return cursor.fetchall() if cursor.description else []

    def lacks(self, connection: Any) -> str:
        found = "to_regclass('wormhole_marker') IS NOT NULL OR has_schema_privilege(current_schema(), 'CREATE')"
        names = "quote_ident(coalesce(current_schema(), 'public')), quote_ident(current_user)"
        rows = self.run(connection, f"SELECT {names} WHERE ({found}) IS NOT TRUE")
        return "".join(f"GRANT CREATE ON SCHEMA {schema} TO {account}" for schema, account in rows)

    def change(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> int:
        changed: int = self._executed(connection, sql, values).rowcount
        return changed

    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool) -> None:
        names = [*(column.name for column in columns), *own]
        into = f"{self.named(table.name)} ({', '.join(map(self.quoted, names))})"
        if table.key and not (new and len(data[0]) >= _COPIED and self._tries(into)):
            super().upsert(connection, table, columns, data, own, new=new)
            return
        lines = _lines(columns, data, own)
        if not table.key:
            self.settle(connection)
            with self._copy(connection, into) as copy:
                copy.write(lines)
            return
        self._executed(connection, "SAVEPOINT wormhole_copy", ())
        again = partial(super().upsert, connection, table, columns, data, own, new=False)
        connection.ahead = ahead = _Ahead(into, again)
        ahead.copy.enter_context(self._copy(connection, into)).write(lines)

    def settle(self, connection: Any) -> None:
        """Wait for the open COPY, which takes half the time of an upsert. If one of the rows exists, the COPY wrote
        nothing, and a statement writes the rows."""
        ahead, connection.ahead = connection.ahead, None
        if ahead is None:
            return
        try:
            ahead.copy.close()
        except psycopg.Error:
            if connection.closed:
                raise
            self._executed(connection, "ROLLBACK TO SAVEPOINT wormhole_copy", ())
            self._left_out[ahead.into] = _LEFT_OUT
            try:
                ahead.again()
            except psycopg.Error as error:  # the rows of an earlier batch, which is delivered again
                raise TargetUnavailable(database_error(error, ahead.into.partition(" ")[0]).message) from None
        self._executed(connection, "RELEASE SAVEPOINT wormhole_copy", ())

    def _copy(self, connection: Any, into: str) -> AbstractContextManager[psycopg.Copy]:
        copy: AbstractContextManager[psycopg.Copy] = connection.cursor().copy(
            f"COPY {into.replace('%%', '%')} FROM STDIN".encode()
        )
        return copy

    def _column(self, column: TargetColumn, place: int) -> str:
        return f"unnest(%s::{column.cast}[])"

    def _given(self, connection: Any, columns: Columns, data: Data) -> list[Any]:
        shown = (texts(column.name, values, _IN_ARRAYS) for column, values in zip(columns, data, strict=True))
        return [f"{{{','.join(values)}}}" for values in shown]

    def _executed(self, connection: _Connection, sql: str, values: Sequence[Any]) -> Any:
        self.settle(connection)
        return connection.cursor(row_factory=tuple_row).execute(sql.encode(), values)


def _lines(columns: Columns, data: Data, own: Own) -> str:
    """The rows in the text format of COPY."""
    shown = [texts(column.name, values, _IN_LINES) for column, values in zip(columns, data, strict=True)]
    stamp = "\t".join(text for name, value in own.items() for text in texts(name, [value], _IN_LINES))
    return "\n".join(map("\t".join, zip(*shown, repeat(stamp, len(data[0])), strict=True))) + "\n"
