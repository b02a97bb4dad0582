"""Existing rows as the test kit delivers them: the rows and keys of a chunk, and the frame that ends the chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subscriber_sdk.backfill import Key
from subscriber_sdk.testing.changes import Change
from wormhole.model.errors import UsageError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op, Value
from wormhole.wire.rows import column_type, decode_row, encode_row, op_of, values_of
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["as_key", "chunk_end", "key_of", "key_schema", "read_rows"]

_PORTABLE = frozenset({"int", "uint", "bytes"})


def as_key(key: Value | Key) -> Key:
    """The key as a tuple. A key of one column may be given as its value."""
    return key if isinstance(key, tuple) else (key,)


def key_of(row: Change) -> Key:
    """The key of a row."""
    return values_of(decode_row(row.row).key)


def read_rows(table: str, rows: Iterable[Change]) -> list[Change]:
    """The rows of a chunk. Raises :class:`~wormhole.model.errors.UsageError` for a row that is not a READ of
    ``table``."""
    found = list(rows)
    for row in found:
        op = op_of(decode_row(row.row))
        if op is not Op.READ or row.schema.table != table:
            raise UsageError(f"{op.value} of {row.schema.table}: build rows of {table} with read(...)")
    return found


def key_schema(table: str, rows: Sequence[Change], keys: Sequence[Key], known: Schema | None) -> Schema:
    """The table with the key columns of ``rows``, or else of ``known``, or else with the names that :func:`update`
    gives."""
    if rows:
        return Schema(table, rows[0].schema.key, ())
    if known is not None:
        return Schema(table, known.key, ())
    values = keys[0] if keys else (0,)
    names = ("id",) if len(values) == 1 else tuple(f"key{i}" for i in range(1, len(values) + 1))
    return Schema(table, tuple(map(Column, names, map(column_type, values))), ())


def chunk_end(
    schema: Schema,
    *,
    after: Key | None,
    until: Key | None,
    keys: Sequence[Key],
    except_keys: Sequence[Key],
    narrowed: bool,
    rows: int,
) -> push_pb2.ChunkEnd:
    """The frame after a chunk, without flow and epoch. It names no range if only the database knows the order of the
    keys, as a publisher's frame does.
    """
    frame = push_pb2.ChunkEnd(schema=schema.id, narrowed=narrowed, rows=rows, alone=map(_row_key, keys))
    if not keys and all(column.type in _PORTABLE for column in schema.key):
        frame.portable = True
        if after is not None:
            frame.after.CopyFrom(_row_key(after))
        if until is not None:
            frame.until.CopyFrom(_row_key(until))
        getattr(frame, "except").extend(map(_row_key, except_keys))
    return frame


def _row_key(key: Key) -> update_pb2.RowKey:
    return update_pb2.RowKey(values=decode_row(encode_row(Op.READ, key)).key)
