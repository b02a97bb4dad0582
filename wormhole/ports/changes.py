"""Encodes changes given as Python values, and assigns them to shards, for the memory source and the test kit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from wormhole.model.schema import Column, Schema
from wormhole.model.sharding import Sharding, hash_shards, shard_of_hash, shard_of_table
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, column_type, encode_row

__all__ = ["Change", "ChangeEncoder", "ChangeTuple", "EncodedChange", "Key", "named_values"]

Columns = Mapping[str, Value] | None
Key = Value | tuple[Value, ...] | Mapping[str, Value]
"""One value, a tuple of values, or values by column name. An empty tuple: no key."""
ChangeTuple = tuple[Op, str, Key] | tuple[Op, str, Key, Columns] | tuple[Op, str, Key, Columns, Columns]
"""The short form of :class:`Change`."""

_BARRIERS = frozenset({Op.TRUNCATE, Op.DELETE_RANGE})


class Change(NamedTuple):
    """One change to commit.

    A single key column is named ``key``, several ``key1``, ``key2``, … unless names are given."""

    op: Op
    table: str
    key: Key = ()
    after: Columns = None
    before: Columns = None
    old_key: Key = ()
    key_end: Key = ()


class EncodedChange(NamedTuple):
    """An update's bytes, its schema and its shards: one, or several for a barrier (TRUNCATE, DELETE_RANGE)."""

    shards: tuple[str, ...]
    schema: Schema
    row: bytes


class ChangeEncoder:
    """Encodes changes for one log. It remembers each table's columns, so that the schema of a delete has them too.

    ``max_update_bytes``: larger updates are encoded without their values; ``None``: there is no limit.
    """

    def __init__(self, log: str, sharding: Sharding, max_update_bytes: int | None = None) -> None:
        self._log = log
        self._sharding = sharding
        self._max_update_bytes = max_update_bytes
        self._schemas: dict[str, Schema] = {}

    def shards(self) -> frozenset[str]:
        """The one shard of the log, all hash shards, or those of the tables seen so far."""
        match self._sharding.by:
            case "log":
                return frozenset({self._log})
            case "hash":
                return frozenset(hash_shards(self._log, self._sharding.count))
            case _:
                return frozenset(self._shard_of_table(table) for table in self._schemas)

    def encode(self, change: Change) -> list[EncodedChange]:
        """Returns one update, or two if the key moved to another shard: a delete in the old one and an insert in the
        new one.
        """
        schema = self._schema(change)
        _, key = named_values(change.key)
        _, old_key = named_values(change.old_key)
        _, key_end = named_values(change.key_end)
        after, before = _in_order(schema, change.after), _in_order(schema, change.before)
        shards = self.shards_of(change.op, change.table, key)
        old_shards = self.shards_of(change.op, change.table, old_key) if old_key else shards
        if old_shards != shards:
            return [
                EncodedChange(old_shards, schema, self.encode_row(Op.DELETE, old_key, before=before)),
                EncodedChange(shards, schema, self.encode_row(Op.INSERT, key, after=after)),
            ]
        row = self.encode_row(change.op, key, after=after, before=before, old_key=old_key, key_end=key_end)
        return [EncodedChange(shards, schema, row)]

    def alter(self, table: str, *, without: Collection[str] = (), key: Sequence[Column] = ()) -> Schema:
        """Change the table's columns: drop those in ``without``, and replace the key if ``key`` is given. Returns the
        new schema.
        """
        known = self._schemas[table]
        left = tuple(column for column in known.columns if column.name not in without)
        schema = self._schemas[table] = Schema(table, tuple(key) or known.key, left)
        return schema

    def encode_row(
        self,
        op: Op,
        key: tuple[Value, ...],
        *,
        after: Sequence[Value] = (),
        before: Sequence[Value] = (),
        old_key: tuple[Value, ...] = (),
        key_end: tuple[Value, ...] = (),
    ) -> bytes:
        """One update's bytes, with the values in schema order. An update that is too large has no values."""
        row = encode_row(op, key, after=after, before=before, old_key=old_key, key_end=key_end)
        if self._max_update_bytes is None or len(row) <= self._max_update_bytes:
            return row
        return encode_row(op, key, old_key=old_key, key_end=key_end, too_large=True)

    def schema(self, table: str) -> Schema:
        """The schema of a table that had changes already."""
        return self._schemas[table]

    def shard_of(self, table: str, key: tuple[Value, ...]) -> str:
        """The shard of a row."""
        return self.shards_of(Op.READ, table, key)[0]

    def shards_of(self, op: Op, table: str, key: tuple[Value, ...]) -> tuple[str, ...]:
        """The shards of an update: one, or for a barrier every shard that may hold its rows."""
        match self._sharding.by:
            case "log":
                return (self._log,)
            case "hash" if op in _BARRIERS:
                return hash_shards(self._log, self._sharding.count)
            case "hash" if key:
                if len(key) == 1 and isinstance(key[0], bytes):
                    data = key[0]
                else:
                    data = b"".join(v.SerializeToString() for v in Row.FromString(encode_row(op, key)).key)
                return (shard_of_hash(self._log, data, self._sharding.count),)
            case _:
                return (self._shard_of_table(table),)

    def _schema(self, change: Change) -> Schema:
        known = self._schemas.get(change.table)
        types = {c.name: c.type for c in (known.columns if known else ())}
        for columns in (change.before, change.after):
            for name, value in (columns or {}).items():
                if value is None or value is UNAVAILABLE:
                    types.setdefault(name, column_type(value))
                else:
                    types[name] = column_type(value)
        names, values = named_values(change.key)
        key = tuple(Column(n, column_type(v)) for n, v in zip(names, values, strict=True))
        columns_now = tuple(Column(n, t) for n, t in types.items())
        schema = Schema(change.table, key or (known.key if known else ()), columns_now)
        self._schemas[change.table] = schema
        return schema

    def _shard_of_table(self, table: str) -> str:
        return shard_of_table(self._log, table.split(".")[0] if self._sharding.by == "database" else table)


def named_values(key: Key) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """Names and values of a key's columns."""
    if isinstance(key, Mapping):
        return tuple(map(str, key)), tuple(key.values())
    values = key if isinstance(key, tuple) else (key,)
    names = ("key",) if len(values) == 1 else tuple(f"key{i + 1}" for i in range(len(values)))
    return names, values


def _in_order(schema: Schema, columns: Columns) -> tuple[Value, ...]:
    return () if columns is None else tuple(columns.get(c.name, UNAVAILABLE) for c in schema.columns)
