"""The database port for MySQL, MariaDB and SQLite, through SQLAlchemy. Rows are sent by the driver's bulk method."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, repeat
from typing import Any, Final

from sqlalchemy import Connection, event

from sinks.sql.database import Columns, Data, Database, Own, Scope
from sinks.sql.schema import Dialect, TargetTable
from sinks.sql.texts import Form, texts
from subscriber_sdk.transactional.sqlalchemy import SqlAlchemyStore
from subscriber_sdk.transactional.store import Session

__all__ = ["MySql", "Sqlite"]

_PORTION: Final = 500  # the most keys in one statement
_STATEMENT: Final = 1 << 20  # the most characters of one statement
_IN_STATEMENTS: Final = Form((("\\", "\\\\"), ("'", "\\'"), ("%", "%%")), "'{}'", "x'{}'", zero=True)
_MARKS: Final = re.compile(r"%([s%])")


class _Rows(Database):
    """The statements that these databases have in common."""

    def upsert(
        self, connection: Connection, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool
    ) -> None:
        names = [*(column.name for column in columns), *own]
        into = f"INSERT INTO {self.named(table.name)} ({', '.join(map(self.quoted, names))}) VALUES "  # noqa: S608
        rest = self._or_replace(table.key, [name for name in names if name not in table.key]) if table.key else ""
        self._insert(connection, into, [*names], [*data, *map(repeat, own.values())], rest)

    def _insert(
        self, connection: Connection, into: str, names: Sequence[str], columns: Sequence[Any], rest: str
    ) -> None:
        self._many(connection, f"{into}({', '.join(['%s'] * len(names))}){rest}", columns)

    def patch(
        self, connection: Connection, table: TargetTable, columns: Columns, data: Data, own: Own, scope: Scope
    ) -> int:
        count = len([column for column in columns if column.name in table.key])
        names = [*(column.name for column in columns[count:]), *own]
        keys = " AND ".join(f"{self.quoted(column.name)} = %s" for column in columns[:count])
        sql = f"UPDATE {self.named(table.name)} SET {self.assigned(names)} WHERE {keys} AND {scope.text}"  # noqa: S608
        values = [*data[count:], *map(repeat, own.values()), *data[:count], *map(repeat, scope.values)]
        return self._many(connection, sql, values)

    def delete(self, connection: Connection, table: TargetTable, columns: Columns, data: Data, scope: Scope) -> None:
        for portion in self._portions(columns, data, scope):
            self.run(connection, f"DELETE FROM {self.named(table.name)} WHERE {portion.text}", portion.values)  # noqa: S608

    def rows(
        self, connection: Connection, table: TargetTable, columns: Columns, data: Data, wanted: Columns, scope: Scope
    ) -> list[tuple[Any, ...]]:
        sql = f"SELECT {self.listed(wanted)} FROM {self.named(table.name)} WHERE "  # noqa: S608
        found: list[tuple[Any, ...]] = []
        for portion in self._portions(columns, data, scope):
            found += self.run(connection, sql + portion.text, portion.values)
        return found

    def run(self, connection: Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        result = connection.exec_driver_sql(self._marked(sql), tuple(values))
        return [tuple(row) for row in result] if result.returns_rows else []

    def change(self, connection: Connection, sql: str, values: Sequence[Any] = ()) -> int:
        return connection.exec_driver_sql(self._marked(sql), tuple(values)).rowcount

    def _many(self, connection: Connection, sql: str, columns: Sequence[Any]) -> int:
        rows = list(zip(*columns, strict=False))  # not strict, because the sink's own values repeat endlessly
        return connection.exec_driver_sql(self._marked(sql), rows).rowcount

    def _portions(self, columns: Columns, data: Data, scope: Scope) -> Iterator[Scope]:
        """Conditions for rows with these keys, for several statements."""
        keys = list(zip(*data, strict=True))
        names = [self.quoted(column.name) for column in columns]
        for begin in range(0, len(keys), _PORTION):
            portion = keys[begin : begin + _PORTION]
            if len(names) == 1:
                text = f"{names[0]} IN ({', '.join(['%s'] * len(portion))})"
            else:  # not every database uses an index for a list of tuples
                one = " AND ".join(f"{name} = %s" for name in names)
                text = " OR ".join([f"({one})"] * len(portion))
            yield Scope.all([Scope(text, tuple(value for key in portion for value in key)), scope])

    def _marked(self, sql: str) -> str:
        """The statement with the driver's parameter marks."""
        return sql

    @abstractmethod
    def _or_replace(self, key: Sequence[str], names: Sequence[str]) -> str:
        """The end of an INSERT that replaces the columns of a row that exists."""


class _Store(SqlAlchemyStore):
    """``connected``: called with each new connection."""

    def __init__(self, url: str, connected: Callable[[Connection], None]) -> None:
        super().__init__(url)
        self._connected = connected

    async def connect(self) -> Session[Connection]:
        session = await super().connect()
        self._connected(session.connection)
        return session


class MySql(_Rows):
    """The port for MySQL and MariaDB. The first connection shows which of them the server is."""

    dialect = Dialect.MYSQL
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BINARY(32) PRIMARY KEY, name TEXT CHARACTER SET utf8mb4 "
        "NOT NULL, owner TEXT CHARACTER SET utf8mb4 NOT NULL, source TEXT CHARACTER SET utf8mb4 NOT NULL) "
        "ENGINE = InnoDB"
    )
    lock_bounds = ("SET SESSION lock_wait_timeout = 3", "SELECT GET_LOCK('wormhole_sink', 3)")

    def __init__(self, url: str, password: Callable[[], str | None]) -> None:
        self._portion = _STATEMENT
        store = self.store = _Store(f"mysql+pymysql://{url.partition('://')[2]}", self._connected)

        @event.listens_for(store._engine, "do_connect")
        def _(dialect: Any, record: Any, arguments: Any, parameters: dict[str, Any]) -> None:
            if (given := password()) is not None:
                parameters["password"] = given

        # A value that does not fit is an error. A zero date, and the number 0 in an AUTO_INCREMENT column, are stored.
        modes = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
        forms = f"SET SESSION sql_mode = '{modes}', time_zone = '+00:00'"
        isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"  # shards do not lock each other's gaps
        store.dialect = replace(store.dialect, connected=(*store.dialect.connected, forms, isolation))

    def _connected(self, connection: Connection) -> None:
        self.dialect = Dialect.MARIADB if connection.dialect.is_mariadb else Dialect.MYSQL  # type: ignore[attr-defined]
        ((packet,),) = self.run(connection, "SELECT @@max_allowed_packet")
        connection.rollback()
        self.largest = packet // 2 - 4096  # each byte of a value may get a backslash
        self._portion = min(_STATEMENT, packet // 8)  # a character may have four bytes

    def _insert(
        self, connection: Connection, into: str, names: Sequence[str], columns: Sequence[Any], rest: str
    ) -> None:
        """Insert the rows as text, in statements that are short enough for the server."""
        count = len(columns[0])
        shown = [
            texts(name, list(islice(values, count)), _IN_STATEMENTS)
            for name, values in zip(names, columns, strict=True)
        ]
        rows: list[str] = []
        size = 0
        for row in map(",".join, zip(*shown, strict=True)):
            size += len(row)
            if rows and size > self._portion:
                self.run(connection, f"{into}({'),('.join(rows)}){rest}")
                rows, size = [], len(row)
            rows.append(row)
        self.run(connection, f"{into}({'),('.join(rows)}){rest}")

    def _or_replace(self, key: Sequence[str], names: Sequence[str]) -> str:
        return f" ON DUPLICATE KEY UPDATE {', '.join(f'{c} = VALUES({c})' for c in map(self.quoted, names))}"


class Sqlite(_Rows):
    """See the port."""

    dialect = Dialect.SQLITE
    sink_table = (
        "CREATE TABLE IF NOT EXISTS wormhole_sink (target BLOB PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, "
        "source TEXT NOT NULL)"
    )

    def __init__(self, url: str) -> None:
        self.store = SqlAlchemyStore(url)

    def _or_replace(self, key: Sequence[str], names: Sequence[str]) -> str:
        sets = ", ".join(f"{c} = excluded.{c}" for c in map(self.quoted, names))
        return f" ON CONFLICT ({', '.join(map(self.quoted, key))}) DO UPDATE SET {sets}"

    def _marked(self, sql: str) -> str:
        return _MARKS.sub(lambda mark: "?" if mark[1] == "s" else "%", sql)
