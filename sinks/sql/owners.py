"""The table ``wormhole_sink``: which sink fills a target, so that no other one does."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sinks.sql.database import Database
from sinks.sql.schema import TableName, actual
from wormhole.model.errors import TargetRefused

__all__ = ["Owner", "claimed", "is_claimed", "targets"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who fills a target. ``owner``: application and dataset; ``source``: what of the dataset."""

    target: TableName
    owner: str
    source: str

    @property
    def key(self) -> bytes:
        """The key of the entry: a hash, which no collation can make equal for two targets."""
        return sha256(f"{self.target.schema or ''}\0{self.target.table}".encode()).digest()


def is_claimed(database: Database, connection: Any, owner: Owner) -> bool:
    """Whether the target has its entry. Raises :class:`~wormhole.model.errors.TargetRefused` if that is another's."""
    if not _there(database, connection):
        return False
    found = database.run(connection, "SELECT owner, source FROM wormhole_sink WHERE target = %s", [owner.key])
    if not found:
        return False
    if found[0] != (owner.owner, owner.source):
        raise TargetRefused(
            f"{owner.target} is filled from {found[0][1]} by {found[0][0]}, not from {owner.source} by {owner.owner}",
            hint="give one of them another target (`table`), or share it (`merge`); if the first is gone for ever, "  # noqa: S608
            f"delete the table and DELETE FROM wormhole_sink WHERE name = '{owner.target}'",
        )
    return True


def claimed(database: Database, connection: Any, owner: Owner) -> None:
    """Enter the owner unless there is one."""
    if not is_claimed(database, connection, owner):
        sql = "INSERT INTO wormhole_sink (target, name, owner, source) VALUES (%s, %s, %s, %s)"
        database.run(connection, sql, [owner.key, str(owner.target), owner.owner, owner.source])


def targets(database: Database, connection: Any) -> list[tuple[Any, ...]]:
    """Name, owner and source of each target."""
    if not _there(database, connection):
        return []
    return database.run(connection, "SELECT name, owner, source FROM wormhole_sink ORDER BY name")


def _there(database: Database, connection: Any) -> bool:
    def run(sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        return database.run(connection, sql, values)

    return actual(run, TableName(None, "wormhole_sink"), database.dialect) is not None
