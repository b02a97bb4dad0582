"""The statements on the table ``wormhole_marker``, in the dialect of each kind of database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "INSERT",
    "MARK",
    "MYSQL",
    "OPEN",
    "POSTGRES",
    "READ",
    "SQLITE",
    "STORE",
    "UNMARK",
    "UPDATE",
    "Dialect",
    "Values",
    "pyformat",
]

Values = Mapping[str, "str | bytes | int | None"]

READ: Final = "SELECT epoch, version, move, marker, open, letters FROM wormhole_marker WHERE flow = :flow"
INSERT: Final = """
INSERT INTO wormhole_marker (flow, application, dataset, log, shard, epoch, version, move, marker, open, letters)
VALUES (:flow, :application, :dataset, :log, :shard, :epoch, :version, :move, :marker, :open, :letters)
"""
UPDATE: Final = """
UPDATE wormhole_marker SET epoch = :epoch, version = :version, move = :move, marker = :marker, letters = :letters
WHERE flow = :flow
"""
OPEN: Final = """
UPDATE wormhole_marker SET open = :nonce
WHERE flow = :flow AND epoch = :epoch AND version = :version AND open IS NULL
"""
STORE: Final = """
UPDATE wormhole_marker SET version = version + 1, marker = :marker, letters = :letters, open = NULL
WHERE flow = :flow AND epoch = :epoch AND version = :version AND open = :nonce
"""
# A savepoint ends with its transaction. So its release proves that the handler did not end the transaction.
MARK: Final = "SAVEPOINT wormhole"
UNMARK: Final = "RELEASE SAVEPOINT wormhole"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The statements for one kind of database.

    ``create``: makes the table. ``engine``: returns the table's storage engine in one row, no row without a table;
    ``engines``: the engines that have transactions. ``locking``: the suffix by which ``READ`` locks the row.
    ``connected``: statements that bound the waits of a connection; ``begun``: of a transaction. Both may contain
    ``seconds`` and ``milliseconds``. ``alone``: locks out other transactions that make the table; empty: `IF NOT
    EXISTS` is enough.
    """

    name: str
    create: str
    engine: str
    engines: frozenset[str]
    locking: str = ""
    connected: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    alone: str = ""

    def bounds(self, statements: tuple[str, ...], timeout: float) -> list[str]:
        """The statements, for waits of ``timeout`` seconds."""
        return [one.format(seconds=max(1, round(timeout)), milliseconds=round(timeout * 1000)) for one in statements]


_CREATE: Final = """
CREATE TABLE IF NOT EXISTS wormhole_marker (
    flow {key} PRIMARY KEY,
    application {text} NOT NULL, dataset {text} NOT NULL, log {text} NOT NULL, shard {text} NOT NULL,
    epoch BIGINT NOT NULL, version BIGINT NOT NULL, move BIGINT NOT NULL,
    marker {bytes} NOT NULL, open {bytes}, letters {bytes} NOT NULL
)
""".strip()

# Local to the transaction, so that a pooler in transaction mode does not pass them on.
_LOCAL_BOUNDS: Final = (
    "SELECT set_config('lock_timeout', '{milliseconds}', true), "
    "set_config('statement_timeout', '{milliseconds}', true), "
    "set_config('idle_in_transaction_session_timeout', '{milliseconds}', true)"
)
POSTGRES: Final = Dialect(
    "PostgreSQL",
    _CREATE.format(key="BYTEA", text="TEXT", bytes="BYTEA"),
    "SELECT 'heap' WHERE to_regclass('wormhole_marker') IS NOT NULL",
    frozenset({"heap"}),
    " FOR UPDATE",
    begun=(_LOCAL_BOUNDS,),
    alone="SELECT pg_advisory_xact_lock(hashtext('wormhole_marker'))",
)
MYSQL: Final = Dialect(
    "MySQL",
    _CREATE.format(key="BINARY(32)", text="TEXT CHARACTER SET utf8mb4", bytes="MEDIUMBLOB") + " ENGINE = InnoDB",
    "SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'wormhole_marker'",
    frozenset({"InnoDB", "RocksDB", "ndbcluster"}),
    " FOR UPDATE",
    connected=("SET SESSION innodb_lock_wait_timeout = {seconds}, wait_timeout = {seconds}",),
)
SQLITE: Final = Dialect(
    "SQLite",
    _CREATE.format(key="BLOB", text="TEXT", bytes="BLOB"),
    "SELECT 'SQLite' FROM sqlite_master WHERE type = 'table' AND name = 'wormhole_marker'",
    frozenset({"SQLite"}),
    connected=("PRAGMA busy_timeout = {milliseconds}",),
)

_NAMED: Final = re.compile(r":([a-z]+)\b")


def pyformat(sql: str) -> str:
    """The statement with its parameters as ``%(name)s``."""
    return _NAMED.sub(r"%(\1)s", sql)
