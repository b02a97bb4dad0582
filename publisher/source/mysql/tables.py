"""The tables that a reader meets: their schemas and the shards that they belong to.

Every table map in the log says what its columns are (``binlog_row_metadata=FULL``), so that rows are read with the columns of
their own time, however far behind the reader is. Shards: the whole log, one per database (``log.database``), one per table
(``log.database.table``) or N by the hash of the primary key; with those, a table without a key is a shard of its own.
"""

from __future__ import annotations

from typing import Final, Protocol

from wormhole.decode.mysql.layout import Layout, parse_table_map, schema_of
from wormhole.decode.piece import ALL_SHARDS, HASHED
from wormhole.errors import DecodeError
from wormhole.schema import Schema
from wormhole.sharding import Sharding, shard_of_table

__all__ = ["METADATA_HINT", "TableSink", "Tables", "shard_name"]

METADATA_HINT: Final = (
    "SET PERSIST binlog_row_metadata = FULL; FLUSH BINARY LOGS (MariaDB: SET GLOBAL, and in its configuration); what was logged before "
    "cannot be read: name the table in skip_tables and restart the publisher, or start the application anew behind it, from a copy of "
    "the table"
)


class TableSink(Protocol):
    """What of the encoder is needed here."""

    def add_table(self, table_id: int, body: bytes, layout: Layout | None, schema: int, shard: int) -> None:
        """Make a table map known."""
        ...


def shard_name(log: str, sharding: Sharding, database: str, table: str) -> str:
    """The shard of a table that is not hashed."""
    if sharding.by == "log":
        return log
    of_database = shard_of_table(log, database)
    return of_database if sharding.by == "database" else shard_of_table(of_database, table)


class Tables:
    """``schemas`` and ``shards`` are what `runs_of` takes; ``broken`` says of a table id which shards
    stand and why its rows cannot be read. ``skipped``: names of tables whose rows are passed over and break nothing.
    ``keyless``: (database, table) of those that are known beforehand to have no key."""

    def __init__(
        self,
        log: str,
        sharding: Sharding,
        skipped: frozenset[str] = frozenset(),
        keyless: frozenset[tuple[str, str]] = frozenset(),
        *,
        mariadb: bool,
    ) -> None:
        self.schemas: list[Schema] = []
        self.shards: dict[int, str] = {}
        self.broken: dict[int, tuple[tuple[str, ...], DecodeError]] = {}
        self._log = log
        self._sharding = sharding
        self._skipped = skipped
        self._mariadb = mariadb
        self._schema_ordinals: dict[Schema, int] = {}
        self._shard_ordinals: dict[str, int] = {}
        self._names: dict[str, set[str]] = {}
        self._keyless = set(keyless)
        if sharding.by == "hash":
            for k in range(sharding.count):
                self._shard(f"{log}.{k}of{sharding.count}")
        elif sharding.by == "log":
            self._shard(log)

    def learn(self, body: bytes, sink: TableSink) -> None:
        """A table map that ``sink`` does not know. Raises :class:`DecodeError` for broken bytes."""
        table = parse_table_map(body, self._mariadb)
        self._names.setdefault(table.database, set()).add(table.table)
        if table.name in self._skipped:
            self.broken[table.table_id] = ((), DecodeError(f"{table.name} is left out by skip_tables"))
            sink.add_table(table.table_id, body, None, self._schema(Schema(table.name, (), ())), 0)
            return
        if not table.has_names:
            shard = self._shard(shard_name(self._log, self._sharding, table.database, table.table))
            # Whether it has a key is not told either: with a hash every shard may have lost rows of it.
            hashed = self.names_of(HASHED) if self._sharding.by == "hash" else []
            self.broken[table.table_id] = (
                (*hashed, self.shards[shard]),
                DecodeError(
                    f"the log does not name the columns of {table.name}: binlog_row_metadata was not FULL when it was written",
                    hint=METADATA_HINT,
                ),
            )
            sink.add_table(table.table_id, body, None, self._schema(Schema(table.name, (), ())), shard)
            return
        self.broken.pop(table.table_id, None)
        schema = self._schema(schema_of(table))
        if self._sharding.by == "hash" and table.key:
            self._keyless.discard((table.database, table.table))
            shard = HASHED
        else:
            self._keyless.add((table.database, table.table))
            shard = self._shard(shard_name(self._log, self._sharding, table.database, table.table))
        sink.add_table(table.table_id, body, Layout(table), schema, shard)

    def barrier(self, database: str, table: str) -> tuple[int, int]:
        """Ordinals of schema and shard for a barrier of that table. The schema has no columns: a barrier carries no values, and this
        way it is the same wherever reading began."""
        schema = self._schema(Schema(f"{database}.{table}", (), ()))
        if self._sharding.by == "hash" and (database, table) not in self._keyless:
            return schema, ALL_SHARDS
        return schema, self._shard(shard_name(self._log, self._sharding, database, table))

    def skips(self, database: str, table: str) -> bool:
        """Whether nothing of that table is handed on."""
        return f"{database}.{table}" in self._skipped

    def names_of(self, shard: int) -> list[str]:
        """The shards that an ordinal stands for, which may be `HASHED` or `ALL_SHARDS`."""
        if shard in (HASHED, ALL_SHARDS):
            return [self.shards[k] for k in range(self._sharding.count)] or list(self.shards.values())
        return [self.shards[shard]]

    def of_database(self, database: str) -> list[str]:
        """The database's tables that this reader has met."""
        return sorted(self._names.get(database, ()))

    def _schema(self, schema: Schema) -> int:
        ordinal = self._schema_ordinals.setdefault(schema, len(self.schemas))
        if ordinal == len(self.schemas):
            self.schemas.append(schema)
        return ordinal

    def _shard(self, name: str) -> int:
        ordinal = self._shard_ordinals.setdefault(name, len(self._shard_ordinals))
        self.shards[ordinal] = name
        return ordinal
