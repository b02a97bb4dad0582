"""The port of a target database, and the statements that all databases have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from sinks.sql.schema import Dialect, TableName, TargetColumn, TargetTable, actual, quoted, selected
from subscriber_sdk.transactional import Store

__all__ = ["DELETED", "GENERATION", "SHARD", "Database", "Own", "Scope"]

SHARD: Final = "_wormhole_shard"
GENERATION: Final = "_wormhole_generation"
DELETED: Final = "_wormhole_deleted"

Own = Mapping[str, Any]
"""Values of the sink's own columns, by name."""
Columns = Sequence[TargetColumn]
Data = Sequence[Sequence[Any]]
"""The values column by column. All columns have the same number of values."""


_LISTED: Final = (
    "SELECT table_type <> 'VIEW' FROM information_schema.tables WHERE table_schema = {} AND table_name = %s"
)
_THERE: Final = {
    Dialect.POSTGRES: "SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = to_regclass(%s)",
    Dialect.MYSQL: _LISTED.format("DATABASE()"),
    Dialect.MARIADB: _LISTED.format("DATABASE()"),
    Dialect.SQLITE: "SELECT type = 'table' FROM sqlite_master WHERE name = %s",
    Dialect.DUCKDB: _LISTED.format("current_schema() AND table_catalog = current_database()"),
}
"""By dialect, the query whether the object with a name is a table."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A condition of a statement. ``text``: SQL with ``%s`` for each of the ``values``. Names in it contain no
    ``%``."""

    text: str
    values: tuple[Any, ...] = ()

    @classmethod
    def all(cls, scopes: Iterable[Scope]) -> Scope:
        """Every one of them."""
        found = list(scopes)
        text = " AND ".join(f"({scope.text})" for scope in found)
        return cls(text or "1 = 1", tuple(value for scope in found for value in scope.values))


class Database(ABC):
    """One kind of database. Statements have ``%s`` for values, and each ``%`` in a name is doubled. Methods raise what
    the driver raises.
    """

    dialect: Dialect
    """The dialect, which is known after the first connection."""
    store: Store[Any]
    """Opens the connections for the shards' transactions."""
    largest: int | None = None
    """The most bytes of an update that the database certainly accepts. Known after the first connection."""

    sink_table: ClassVar[str]
    """The statement that makes the table ``wormhole_sink`` if it is missing."""
    lock_bounds: ClassVar[tuple[str, ...]] = ()
    """Statements before DDL: they bound the wait for locks, and let only one transaction run DDL at a time."""

    @abstractmethod
    def run(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement. Returns its rows; no rows for a statement that has no result."""

    def table(self, connection: Any, name: TableName) -> TargetTable | None:
        """See :func:`~sinks.sql.schema.catalogue.actual`."""
        return actual(partial(self.run, connection), name, self.dialect)

    def has(self, connection: Any, own: str) -> bool:
        """Whether the sink's own table of this name exists. Raises :class:`~wormhole.model.errors.TargetRefused` if an
        object that is not a table has the name.
        """
        found = self.run(connection, _THERE[self.dialect], [own])
        return bool(found) and (bool(found[0][0]) or self.table(connection, TableName(None, own)) is not None)

    def lacks(self, connection: Any) -> str:
        """The statement that gives the account the missing right to make the first table; empty if the account has the
        right, or if only a try can show whether it has.
        """
        return ""

    @abstractmethod
    def change(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement. Returns how many rows its condition selected."""

    def settle(self, connection: Any) -> None:  # noqa: B027 - most databases do not work ahead
        """Wait until the rows of every earlier call are written. Raises the errors of these calls."""

    @abstractmethod
    def upsert(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, *, new: bool) -> None:
        """Insert rows, or replace these columns of rows whose keys exist. Rows of a table without a key are always
        inserted. ``new``: whether probably none of the rows exists.
        """

    @abstractmethod
    def patch(self, connection: Any, table: TargetTable, columns: Columns, data: Data, own: Own, scope: Scope) -> int:
        """Replace columns of rows with these keys that are in ``scope``. ``columns`` begins with the key's columns.
        Returns how many of the rows exist.
        """

    @abstractmethod
    def delete(self, connection: Any, table: TargetTable, columns: Columns, data: Data, scope: Scope) -> None:
        """Delete the rows with these keys that are in ``scope``."""

    @abstractmethod
    def rows(
        self, connection: Any, table: TargetTable, columns: Columns, data: Data, wanted: Columns, scope: Scope
    ) -> list[tuple[Any, ...]]:
        """The ``wanted`` columns of the rows with these keys that are in ``scope``."""

    def quoted(self, name: str) -> str:
        """A column's name in a statement."""
        return quoted(name, self.dialect).replace("%", "%%")

    def listed(self, columns: Columns) -> str:
        """The list of columns of a SELECT, in the form for :func:`~sinks.sql.schema.values.reader`."""
        return ", ".join(selected(column, self.dialect).replace("%", "%%") for column in columns)

    def named(self, name: TableName) -> str:
        """A table's name in a statement."""
        return name.quoted(self.dialect).replace("%", "%%")

    def assigned(self, names: Iterable[str]) -> str:
        """The assignments of an UPDATE, with a parameter for each name."""
        return ", ".join(f"{self.quoted(name)} = %s" for name in names)

    def equal(self, values: Mapping[str, Any]) -> Scope:
        """The condition for rows with these values, by the columns' names."""
        return Scope.all(Scope(f"{self.quoted(name)} = %s", (value,)) for name, value in values.items())

    def above(self, key: Sequence[str], last: Sequence[Any]) -> Scope:
        """The condition for rows with a larger key than ``last``, in a form for which every database uses its index."""
        first = self.quoted(key[0])
        if len(key) == 1:
            return Scope(f"{first} > %s", tuple(last))
        rest = self.above(key[1:], last[1:])
        return Scope(f"{first} >= %s AND ({first} > %s OR ({rest.text}))", (last[0], last[0], *rest.values))
