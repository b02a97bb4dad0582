"""The table ``wormhole_sink``, which records the sink that fills each target, so that no other sink fills it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sinks.sql.database import Database
from sinks.sql.schema import Dialect, TableName
from wormhole.model.errors import TargetRefused

__all__ = ["Owner", "claimed", "is_claimed", "targets"]

_PLACES: Final = {
    Dialect.POSTGRES: "SELECT current_schema()",
    Dialect.DUCKDB: "SELECT current_schema()",
    Dialect.MYSQL: "SELECT DATABASE()",
    Dialect.MARIADB: "SELECT DATABASE()",
}
_IGNORING_CASE: Final = frozenset({Dialect.SQLITE, Dialect.DUCKDB})


@dataclass(frozen=True, slots=True)
class Owner:
    """The sink that fills a target. ``owner``: application and dataset; ``source``: the log and table, or tables."""

    target: TableName
    owner: str
    source: str


def is_claimed(database: Database, connection: Any, owner: Owner) -> bool:
    """Whether the target has the owner's entry. Raises :class:`~wormhole.model.errors.TargetRefused` if the entry names
    another owner."""
    if not database.has(connection, "wormhole_sink"):
        return False
    key = _entry(database, connection, owner.target)
    found = database.run(connection, "SELECT owner, source, name FROM wormhole_sink WHERE target = %s", [key])
    if not found:
        return False
    if found[0][:2] != (owner.owner, owner.source):
        raise TargetRefused(
            f"{owner.target} is filled from {found[0][1]} by {found[0][0]}, not from {owner.source} by {owner.owner}",
            hint="give one of them another target (`table`), or share it (`merge`); if the first is gone for ever, "  # noqa: S608
            f"delete the table and DELETE FROM wormhole_sink WHERE name = '{found[0][2]}'",
        )
    return True


def claimed(database: Database, connection: Any, owner: Owner) -> bool:
    """Enter the owner unless the target has an entry. Returns whether it had one."""
    if is_claimed(database, connection, owner):
        return True
    sql = "INSERT INTO wormhole_sink (target, name, owner, source) VALUES (%s, %s, %s, %s)"
    key = _entry(database, connection, owner.target)
    database.run(connection, sql, [key, str(owner.target), owner.owner, owner.source])
    return False


def targets(database: Database, connection: Any) -> list[tuple[Any, ...]]:
    """The rows (name, owner, source) of all targets."""
    if not database.has(connection, "wormhole_sink"):
        return []
    return database.run(connection, "SELECT name, owner, source FROM wormhole_sink ORDER BY name")


def _entry(database: Database, connection: Any, target: TableName) -> bytes:
    """The key of a target's entry: a hash of its whole name, so that no collation makes the keys of two targets
    equal."""
    schema, place = target.schema, _PLACES.get(database.dialect)
    if place is None:
        schema = ""
    elif schema is None:
        ((schema,),) = database.run(connection, place)
    name = f"{schema}\0{target.table}"
    return sha256((name.lower() if _ignores_case(database, connection) else name).encode()).digest()


def _ignores_case(database: Database, connection: Any) -> bool:
    """Whether names that differ only in case mean the same table."""
    if not database.dialect.is_mysql:
        return database.dialect in _IGNORING_CASE
    ((folds,),) = database.run(connection, "SELECT @@lower_case_table_names")
    return bool(folds)
