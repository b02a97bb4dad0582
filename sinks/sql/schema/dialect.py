"""The dialects of SQL, and names in them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Dialect", "TableName", "quoted"]


class Dialect(StrEnum):
    """One dialect of SQL. The value is its name in messages and URLs."""

    POSTGRES = "postgresql"
    MYSQL = "mysql"
    MARIADB = "mariadb"
    SQLITE = "sqlite"
    DUCKDB = "duckdb"

    @property
    def is_mysql(self) -> bool:
        """Whether the dialect is MySQL's or MariaDB's."""
        return self in (Dialect.MYSQL, Dialect.MARIADB)


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a target table. ``schema``: PostgreSQL's and DuckDB's schema, or MySQL's database; ``None``: that of
    the connection. SQLite has no schemas.
    """

    schema: str | None
    table: str

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def quoted(self, dialect: Dialect) -> str:
        """The name in a statement."""
        parts = (self.table,) if self.schema is None else (self.schema, self.table)
        return ".".join(quoted(part, dialect) for part in parts)


def quoted(name: str, dialect: Dialect) -> str:
    """The name in quotes for a statement. The name may have any characters."""
    mark = "`" if dialect.is_mysql else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"
