"""Keeps the tables that a reader meets in the log: their schemas and shards.

Every table map in the log describes its columns (``binlog_row_metadata=FULL``). So rows are read with the columns that
the table had when they were written, however far behind the reader is. Shards: the whole log, one per database
(``log.database``), one per table (``log.database.table``), or N by the hash of the primary key. With N shards, a table
without a key has its own shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol

from datastores.common.encode.piece import ALL_SHARDS, HASHED
from datastores.mysql.decode.lexer import Name
from datastores.mysql.decode.name_folding import fold, fold_newest
from datastores.mysql.decode.table_map import OLD_TEMPORAL, Layout, TableMap, parse_table_map, schema_of
from datastores.mysql.server.catalog import Catalog, Keys
from datastores.mysql.server.table_definitions import (
    Describe,
    has_hashes,
    row_end_candidates,
    row_end_of,
    with_old_digits,
    without_hashes,
)
from wormhole.model.errors import DecodeError, UnsupportedLog
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding, hash_shards, shard_of_table

__all__ = ["METADATA_HINT", "TableSink", "Tables", "shard_name"]

METADATA_HINT: Final = (
    "`wormholectl doctor` shows whether binlog_row_metadata is FULL now, and how to set it; what was logged before "
    "cannot be read: name the table in skip_tables and restart the publisher, or start the application anew behind it, "
    "from a copy of the table"
)


_MOST_HELD: Final = 64 << 20  # the most bytes of tables' descriptions: 14,000 tables of ten columns
_TABLE_COST: Final = 2 << 10  # measured bytes of memory for a table, and for each byte of its map
_BYTE_COST: Final = 16


class TableSink(Protocol):
    """The part of the encoder that this module uses."""

    def add_table(
        self,
        table_id: int,
        body: bytes,
        layout: Layout | None,
        schema: int,
        shard: int,
        row_end: int = -1,
        maybe: tuple[int, ...] = (),
    ) -> None:
        """Register a table map."""
        ...


def shard_name(log: str, sharding: Sharding, database: str, table: str) -> str:
    """The shard of a table that is not split by the hash of its key."""
    if sharding.by == "log":
        return log
    of_database = shard_of_table(log, database)
    return of_database if sharding.by == "database" else shard_of_table(of_database, table)


class Tables:
    """``schemas`` and ``shards`` are the arguments of `runs_of`. ``broken``: by table id, the shards that halt and why
    the table's rows cannot be read. ``skipped``: tables whose rows are skipped and break no shard; ``database.*``: a
    whole database. ``catalog``: the tables that subscribers may know, shared by all readers. ``history``:
    system-versioned tables whose rows are delivered as logged, with those of their history. ``describe``: reads from
    the server the facts that table maps lack; ``None``: they lack none."""

    def __init__(
        self,
        log: str,
        sharding: Sharding,
        skipped: frozenset[str] = frozenset(),
        history: frozenset[str] = frozenset(),
        *,
        catalog: Catalog,
        mariadb: bool,
        describe: Describe | None = None,
    ) -> None:
        self.catalog = catalog
        self.schemas: list[Schema] = []
        self.shards: dict[int, str] = {}
        self.broken: dict[int, tuple[tuple[str, ...], DecodeError]] = {}
        self._log = log
        self._sharding = sharding
        self._skipped = frozenset(map(fold, skipped)) if catalog.folds else skipped
        self._history = frozenset(map(fold, history)) if catalog.folds else history
        self._describe = describe
        self._mariadb = mariadb
        self._schema_ordinals: dict[Schema, int] = {}
        self._shard_ordinals: dict[str, int] = {}
        self._held = 0
        self._keys: dict[tuple[str, str], frozenset[str] | None] = {}
        self._listed: tuple[Keys, LogPosition] | None = None
        if sharding.by == "hash":
            for shard in hash_shards(log, sharding.count):
                self._shard(shard)
        elif sharding.by == "log":
            self._shard(log)

    def learn(self, body: bytes, sink: TableSink, logged_s: int) -> None:
        """Add a table map that ``sink`` does not know, logged at ``logged_s`` (seconds since 1970).

        Raises :class:`DecodeError` for broken bytes, :class:`UnsupportedLog` for a transaction with more tables than
        fit into memory, and the errors of ``describe``.
        """
        known = len(self.schemas) + len(self.broken)
        self._learn(body, sink, logged_s)
        if len(self.schemas) + len(self.broken) > known:
            self._held += _TABLE_COST + _BYTE_COST * len(body)
        if self._held > 2 * _MOST_HELD:
            raise UnsupportedLog(
                f"one transaction changes {len(self.schemas)} tables, more than fit into memory",
                hint="is the server the database? if it is, start the application anew behind the transaction, from "
                "a copy of the tables",
            )

    @property
    def full(self) -> bool:
        """Whether the descriptions take so much memory that a new reader should begin without them."""
        return self._held > _MOST_HELD

    def _learn(self, body: bytes, sink: TableSink, logged_s: int) -> None:
        table = parse_table_map(body, self._mariadb)
        self.catalog.note(table.database, table.table, bool(table.key) if table.has_names else None)
        if table.has_names:
            columns = frozenset(fold_newest(table.columns[at].name) for at in table.key)
            self._keys[table.database, table.table] = columns
        if self.skips(table.database, table.table):
            self.broken[table.table_id] = ((), DecodeError(f"{table.name} is left out by skip_tables"))
            sink.add_table(table.table_id, body, None, self._schema(Schema(table.name, (), ())), 0)
            return
        if not table.has_names:
            error = DecodeError(
                f"the log does not name the columns of {table.name}: binlog_row_metadata was not FULL when it "
                "was written",
                hint=METADATA_HINT,
                tables=(table.name,),
            )
            self._break(table, body, sink, error)
            return
        try:
            table, row_end, maybe = self._asked(table, logged_s)
        except DecodeError as error:
            self._break(table, body, sink, error)
            return
        self.broken.pop(table.table_id, None)
        schema = self._schema(schema_of(table))
        if self._sharding.by == "hash" and table.key:
            shard = HASHED
        else:
            shard = self._shard(shard_name(self._log, self._sharding, table.database, table.table))
        sink.add_table(table.table_id, body, Layout(table), schema, shard, row_end, maybe)

    def _break(self, table: TableMap, body: bytes, sink: TableSink, error: DecodeError) -> None:
        """Break the shards of a table with unreadable rows. The break occurs at its first row."""
        shard = self._shard(shard_name(self._log, self._sharding, table.database, table.table))
        # Whether the table has a key may be unknown. With a hash, every shard may then lack rows of it.
        hashed = self.names_of(HASHED) if self._sharding.by == "hash" else []
        self.broken[table.table_id] = ((*hashed, self.shards[shard]), error)
        sink.add_table(table.table_id, body, None, self._schema(Schema(table.name, (), ())), shard)

    def _asked(self, table: TableMap, logged_s: int) -> tuple[TableMap, int, tuple[int, ...]]:
        """The table with the facts that only the server has: digits of old temporal columns, hidden columns, and the
        key without ROW END. Returns it with the position of ROW END (-1: none), and the columns that may be ROW END if
        that is unknown."""
        if self._describe is None:
            return table, -1, ()
        old = any(column.type in OLD_TEMPORAL for column in table.columns)
        name = fold(table.name) if self.catalog.folds else table.name
        candidates = () if name in self._history else row_end_candidates(table)
        hashes = has_hashes(table)
        if not old and not candidates and not hashes:
            return table, -1, ()
        definition = self._describe(table.database, table.table)
        if hashes:
            table = without_hashes(table, definition)
        if old:
            table = with_old_digits(table, definition, logged_s)
        row_end, maybe = row_end_of(table, candidates, definition)
        if row_end >= 0:
            table = replace(table, key=tuple(column for column in table.key if column != row_end))
        return table, row_end, maybe

    def know_keys(self, keys: Keys, end: LogPosition) -> None:
        """Record the keys that the server listed before its log ended at ``end``, after this reader's beginning."""
        self._listed = keys, end

    def key_of(self, database: str, table: str, place: LogPosition) -> frozenset[str] | None:
        """The folded names of the columns of the table's key, as last read or listed before ``place``; ``None``:
        neither since the reader began, nor since :meth:`forget_key`.

        A list may be later than a statement before its end. MySQL may have removed a dropped column from a key, which
        then looks as if it never had the column.
        """
        name = database, table
        if name not in self._keys and self._listed is not None and place >= self._listed[1]:
            parts = self._listed[0].get(name)
            return None if parts is None else frozenset(parts)
        return self._keys.get(name)

    def forget_key(self, database: str, table: str) -> None:
        """Drop the table's known key, because the table may have another one from now on."""
        self._keys[database, table] = None

    def barrier(self, database: str, table: str) -> tuple[int, int]:
        """Ordinals of schema and shard for a barrier of the table. A barrier has no values. Its schema has no columns,
        so it is the same wherever reading began."""
        schema = self._schema(Schema(f"{database}.{table}", (), ()))
        keyed, keyless = self.catalog.keys(database, table)
        own = None
        if self._sharding.by != "hash" or keyless:
            own = self._shard(shard_name(self._log, self._sharding, database, table))
        # A table that had a key only at times has rows in both kinds of shards.
        return schema, ALL_SHARDS if own is None or (self._sharding.by == "hash" and keyed) else own

    def shards_of(self, database: str, table: str) -> list[str]:
        """The shards that hold the table's rows."""
        shard = self.barrier(database, table)[1]
        names = self.names_of(shard)
        if shard == ALL_SHARDS and self.catalog.keys(database, table)[1]:
            names.append(shard_name(self._log, self._sharding, database, table))
        return names

    def skips(self, database: str, table: str) -> bool:
        """Whether the table's updates are skipped."""
        if not self._skipped:
            return False
        if self.catalog.folds:
            database, table = fold(database), fold(table)
        return f"{database}.{table}" in self._skipped or f"{database}.*" in self._skipped

    def losing(self, database: str, table: str, *, exists: bool = True) -> list[tuple[str, str]]:
        """The tables that lose their rows with this one, by the names that subscribers know. An empty ``table``: all
        tables of the database.

        ``exists``: see :meth:`Catalog.spelled`.
        """
        names = [(database, name) for name in self.catalog.of_database(database)] if not table else [(database, table)]
        return [self.catalog.spelled(*name, exists=exists) for name in names if not self.skips(*name)]

    def possible(self, unread: Iterable[Name]) -> list[tuple[str, str]]:
        """The known tables that the names in ``unread`` may mean."""
        found: dict[tuple[str, str], None] = {}
        for database, table in unread:
            if database is not None:
                found.update(dict.fromkeys(name for name in self.losing(database, "")))
            else:
                found.update(
                    dict.fromkeys(
                        name
                        for name in self.catalog.all()
                        if (table is None or name[1] == table) and not self.skips(*name)
                    )
                )
        return list(found)

    def names_of(self, shard: int) -> list[str]:
        """The names of the shards of an ordinal, which may also be `HASHED` or `ALL_SHARDS`."""
        if shard in (HASHED, ALL_SHARDS):
            return [self.shards[k] for k in range(self._sharding.count)] or list(self.shards.values())
        return [self.shards[shard]]

    def _schema(self, schema: Schema) -> int:
        ordinal = self._schema_ordinals.setdefault(schema, len(self.schemas))
        if ordinal == len(self.schemas):
            self.schemas.append(schema)
        return ordinal

    def _shard(self, name: str) -> int:
        ordinal = self._shard_ordinals.setdefault(name, len(self._shard_ordinals))
        self.shards[ordinal] = name
        return ordinal
