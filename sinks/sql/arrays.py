"""Rows of databases that take all of a statement's rows as one array for each column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from sinks.sql.database import Columns, Data, Database, Own, Scope
from sinks.sql.schema import TargetColumn, TargetTable

__all__ = ["Arrays"]


class Arrays(Database):
    """The rows of a statement are a table ``d``. The names of its columns are none of a target, which are reserved."""

    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool) -> None:
        names = [*(column.name for column in columns), *own]
        listed = ", ".join(map(self.quoted, names))
        sql = f"INSERT INTO {self.named(table.name)} ({listed}) SELECT d.*{', %s' * len(own)}"
        sql += f" FROM {self._data(columns)}"
        if table.key:
            rest = (name for name in names if name not in table.key)
            sets = ", ".join(f"{c} = EXCLUDED.{c}" for c in map(self.quoted, rest))
            sql += f" ON CONFLICT ({', '.join(map(self.quoted, table.key))}) DO UPDATE SET {sets}"
        self.run(connection, sql, [*own.values(), *map(self._values, columns, data)])

    def patch(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, scope: Scope) -> int:
        sets = [f"{self.quoted(name)} = %s" for name in own]
        sets += [f"{self.quoted(c.name)} = {_name(i)}" for i, c in enumerate(columns) if c.name not in table.key]
        keys = [column for column in columns if column.name in table.key]
        sql = f"UPDATE {self.named(table.name)} SET {', '.join(sets)} FROM {self._data(columns)}"  # noqa: S608
        sql += f" WHERE {self._same(keys)} AND {scope.text}"
        return self.change(connection, sql, [*own.values(), *map(self._values, columns, data), *scope.values])

    def delete(self, connection: Any, table: TargetTable, columns: Columns, data: Data, scope: Scope) -> None:
        sql = f"DELETE FROM {self.named(table.name)} USING {self._data(columns)} WHERE {self._same(columns)}"  # noqa: S608
        self.run(connection, f"{sql} AND {scope.text}", [*map(self._values, columns, data), *scope.values])

    def rows(
        self, connection: Any, table: TargetTable, columns: Columns, data: Data, wanted: Columns, scope: Scope
    ) -> list[tuple[Any, ...]]:
        sql = f"SELECT {self.listed(wanted)} FROM {self.named(table.name)} JOIN {self._data(columns)}"  # noqa: S608
        sql += f" ON {self._same(columns)}"
        return self.run(connection, f"{sql} WHERE {scope.text}", [*map(self._values, columns, data), *scope.values])

    @abstractmethod
    def _array(self, column: TargetColumn) -> str:
        """The expression that takes a column's values. A cast to a type with a length would cut them."""

    def _values(self, column: TargetColumn, values: Sequence[Any]) -> Any:
        """What the driver gets for a column's values."""
        return values

    def _data(self, columns: Columns) -> str:
        listed = ", ".join(f"unnest({self._array(column)}) AS {_name(i)}" for i, column in enumerate(columns))
        return f"(SELECT {listed}) AS d"

    def _same(self, columns: Columns) -> str:
        return " AND ".join(f"{self.quoted(column.name)} = {_name(i)}" for i, column in enumerate(columns))


def _name(place: int) -> str:
    return f"_wormhole_d{place}"
