"""Statements for databases that take the rows of a statement column by column, as arrays (PostgreSQL, DuckDB)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from sinks.sql.database import Columns, Data, Database, Own, Scope
from sinks.sql.schema import TargetColumn, TargetTable

__all__ = ["Arrays"]


class Arrays(Database):
    """Writes rows from a derived table ``d``, whose column names are reserved, so that no target has them."""

    _from: ClassVar[str] = ""
    """The table expression from which the expressions of :meth:`_column` read."""

    def __init__(self) -> None:
        self._left_out: dict[str, int] = {}  # by target the number of tries to leave out

    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool) -> None:
        names = [*(column.name for column in columns), *own]
        listed = ", ".join(map(self.quoted, names))
        sql = f"INSERT INTO {self.named(table.name)} ({listed}) SELECT d.*{', %s' * len(own)}"
        sql += f" FROM {self._data(columns)}"
        if table.key:
            rest = (name for name in names if name not in table.key)
            sets = ", ".join(f"{c} = EXCLUDED.{c}" for c in map(self.quoted, rest))
            sql += f" ON CONFLICT ({', '.join(map(self.quoted, table.key))}) DO UPDATE SET {sets}"
        self.run(connection, sql, [*own.values(), *self._given(connection, columns, data)])

    def patch(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, scope: Scope) -> int:
        sets = [f"{self.quoted(name)} = %s" for name in own]
        sets += [f"{self.quoted(c.name)} = {_name(i)}" for i, c in enumerate(columns) if c.name not in table.key]
        keys = [column for column in columns if column.name in table.key]
        sql = f"UPDATE {self.named(table.name)} SET {', '.join(sets)} FROM {self._data(columns)}"  # noqa: S608
        sql += f" WHERE {self._same(keys)} AND {scope.text}"
        return self.change(connection, sql, [*own.values(), *self._given(connection, columns, data), *scope.values])

    def delete(self, connection: Any, table: TargetTable, columns: Columns, data: Data, scope: Scope) -> None:
        sql = f"DELETE FROM {self.named(table.name)} USING {self._data(columns)} WHERE {self._same(columns)}"  # noqa: S608
        self.run(connection, f"{sql} AND {scope.text}", [*self._given(connection, columns, data), *scope.values])

    def rows(
        self, connection: Any, table: TargetTable, columns: Columns, data: Data, wanted: Columns, scope: Scope
    ) -> list[tuple[Any, ...]]:
        sql = f"SELECT {self.listed(wanted)} FROM {self.named(table.name)} JOIN {self._data(columns)}"  # noqa: S608
        sql += f" ON {self._same(columns)}"
        given = self._given(connection, columns, data)
        return self.run(connection, f"{sql} WHERE {scope.text}", [*given, *scope.values])

    @abstractmethod
    def _column(self, column: TargetColumn, place: int) -> str:
        """The expression for the values of a column, which is the statement's column number ``place``. It is not cast
        to a type with a length, because the cast would truncate values.
        """

    @abstractmethod
    def _given(self, connection: Any, columns: Columns, data: Data) -> list[Any]:
        """Pass the columns of values to the database. Returns the parameters of the statement."""

    def _tries(self, target: str) -> bool:
        """Whether to try the faster statement for new rows. After a failure the next tries are left out, because all
        rows of a repeated backfill exist already.
        """
        if left := self._left_out.get(target, 0):
            self._left_out[target] = left - 1
        return not left

    def _data(self, columns: Columns) -> str:
        listed = ", ".join(f"{self._column(column, i)} AS {_name(i)}" for i, column in enumerate(columns))
        return f"(SELECT {listed}{self._from}) AS d"

    def _same(self, columns: Columns) -> str:
        return " AND ".join(f"{self.quoted(column.name)} = {_name(i)}" for i, column in enumerate(columns))


def _name(place: int) -> str:
    return f"_wormhole_d{place}"
