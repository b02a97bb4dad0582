"""The table ``wormhole_unverified``, which lists targets whose rows may lack values until a later backfill has
ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sinks.sql.database import Database
from sinks.sql.schema import Dialect, TableName

__all__ = ["Unverified", "all_unverified", "create"]

_TEXT: Final = {
    Dialect.MYSQL: "TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    Dialect.MARIADB: "TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
}


@dataclass(frozen=True, slots=True)
class Unverified:
    """The rows of one source table in a target. ``owner``: application and dataset."""

    target: TableName
    owner: str
    table: str

    def note(self, database: Database, connection: Any, generation: int) -> None:
        """Mark the rows as unverified in every shard of the owner, until a backfill of a later ``generation`` ends."""
        self._forget(database, connection, "")
        sql = "INSERT INTO wormhole_unverified (name, owner, source, shard, generation) SELECT %s, %s, %s, shard, %s "
        sql += "FROM wormhole_marker WHERE application = %s AND dataset = %s"
        application, _, dataset = self.owner.partition("/")
        database.run(connection, sql, [*self._names, generation, application, dataset])

    def note_in(self, database: Database, connection: Any, shard: str, generation: int) -> None:
        """Mark the rows as unverified in one shard, until a backfill of a later ``generation`` ends."""
        self._forget(database, connection, " AND shard = %s", shard)
        sql = "INSERT INTO wormhole_unverified (name, owner, source, shard, generation) VALUES (%s, %s, %s, %s, %s)"
        database.run(connection, sql, [*self._names, shard, generation])

    def is_noted(self, database: Database, connection: Any, shard: str, generation: int = 0) -> bool:
        """Whether the rows are unverified in this shard until a backfill after ``generation``."""
        if not database.has(connection, "wormhole_unverified"):
            return False
        sql = "SELECT 1 FROM wormhole_unverified WHERE name = %s AND owner = %s AND source = %s AND shard = %s "
        sql += "AND generation >= %s"
        return bool(database.run(connection, sql, [*self._names, shard, generation]))

    def scanned(self, database: Database, connection: Any, shard: str, generation: int) -> None:
        """Remove the mark of earlier generations, because a backfill has ended in this shard."""
        if database.has(connection, "wormhole_unverified"):
            self._forget(database, connection, " AND shard = %s AND generation < %s", shard, generation)

    @property
    def _names(self) -> list[str]:
        return [str(self.target), self.owner, self.table]

    def _forget(self, database: Database, connection: Any, more: str, *values: Any) -> None:
        sql = f"DELETE FROM wormhole_unverified WHERE name = %s AND owner = %s AND source = %s{more}"  # noqa: S608
        database.run(connection, sql, [*self._names, *values])


def create(dialect: Dialect) -> str:
    """The statement that makes the table if it is missing."""
    columns = ", ".join(
        f"{name} {_TEXT.get(dialect, 'TEXT')} NOT NULL" for name in ("name", "owner", "source", "shard")
    )
    engine = " ENGINE = InnoDB" if dialect.is_mysql else ""
    return f"CREATE TABLE IF NOT EXISTS wormhole_unverified ({columns}, generation BIGINT NOT NULL){engine}"


def all_unverified(database: Database, connection: Any) -> list[tuple[Any, ...]]:
    """The rows (target, owner, source table, number of unverified shards) of all unverified targets."""
    if not database.has(connection, "wormhole_unverified"):
        return []
    sql = "SELECT name, owner, source, count(*) FROM wormhole_unverified GROUP BY name, owner, source ORDER BY name"
    return database.run(connection, sql)
