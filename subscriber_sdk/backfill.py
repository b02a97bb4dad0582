"""The reports of a backfill (a read of existing rows) that a range of keys, or a table, was read to its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wormhole.model.errors import ProtocolError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Value
from wormhole.wire.bounds import MOST_FRAME_BYTES, MOST_KEYS, check_count, check_name
from wormhole.wire.rows import values_of
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["Key", "KeyRange", "ScanEnd", "check_chunk_end", "check_scan_end", "key_range"]

Key = tuple[Value, ...]
"""Values of a table's key columns, as ``Update.key`` has them."""

_KINDS: Final = {
    "bytes": ("bytes",),
    "text": ("text",),
    "int": ("int", "uint"),
    "uint": ("int", "uint"),
    "double": ("double",),
    "bool": ("bool",),
    "decimal": ("decimal", "text"),
}
"""By the type of a key column, the kinds of value that the column may have."""
_PORTABLE: Final = frozenset({"bytes", "int", "uint"})


@dataclass(slots=True, frozen=True)
class KeyRange:
    """A range of keys of a table. Every existing row with a key in the range was delivered to the shard.

    If the application holds a row of the shard with a key in the range, and did not receive it in this ``generation``,
    the row no longer exists. ``key in range`` is false for keys that the range does not decide about (``except_keys``).

    ``columns``: names of the key's columns. ``after``: the exclusive lower bound; ``None``: the range begins with the
    table's first key. ``until``: the inclusive upper bound; ``None``: the range ends with the table's last key. Bounds
    are integers or bytes, which Python and the database sort alike. ``keys``: if not empty, the range is these single
    keys, of any type, and has no bounds. ``except_keys``: keys that changes touched while the rows were read (the
    application received these changes), and keys whose updates are parked. ``rows``: the number of READ updates that
    the publisher sent for the range.
    """

    table: str
    shard: str
    epoch: int
    generation: int
    columns: tuple[str, ...]
    after: Key | None = None
    until: Key | None = None
    keys: frozenset[Key] = frozenset()
    except_keys: frozenset[Key] = frozenset()
    rows: int = 0

    def __contains__(self, key: object) -> bool:
        """Whether the range decides about a key (a tuple as ``Update.key``): its row exists only if it was received."""
        if not isinstance(key, tuple) or len(key) != len(self.columns):
            raise TypeError(f"{key!r} is no key of {self.table}: a tuple of {', '.join(self.columns)} is expected")
        if key in self.except_keys:
            return False
        if self.keys:
            return key in self.keys
        return (self.after is None or key > self.after) and (self.until is None or key <= self.until)


@dataclass(slots=True, frozen=True)
class ScanEnd:
    """Every row of a table in the shard that the application's filter selects was delivered in ``generation``.

    If the application holds a row of the table in this shard, and did not receive it in this generation or a later one
    (``Update.generation``), as a READ update or as a change, the row no longer exists. Exceptions are ``except_keys``,
    the keys whose updates are parked. ``rows``: the number of READ updates of the table that the publisher sent in
    the generation.
    """

    table: str
    shard: str
    epoch: int
    generation: int
    except_keys: frozenset[Key] = frozenset()
    rows: int = 0


def check_chunk_end(frame: push_pb2.ChunkEnd, schema: Schema) -> None:
    """Check that a frame is a range of the schema's table. Raises :class:`~wormhole.model.errors.ProtocolError`, which
    names the wrong field.
    """
    if (size := frame.ByteSize()) > MOST_FRAME_BYTES:
        raise ProtocolError(f"chunk_end: {size} bytes; at most {MOST_FRAME_BYTES} are taken")
    if not schema.key:
        raise ProtocolError(f"chunk_end.schema: {schema.table} has no key")
    if frame.portable:
        for column in schema.key:
            if column.type not in _PORTABLE:
                raise ProtocolError(f"chunk_end.portable: key column {column.name} is {column.type}, not int or bytes")
    check_count(_except(frame), MOST_KEYS, "chunk_end.except")
    check_count(frame.alone, MOST_KEYS, "chunk_end.alone")
    ends = [
        _key(f"chunk_end.{name}", getattr(frame, name), schema) if frame.HasField(name) else None
        for name in ("after", "until")
    ]
    for name, rows in (("except", _except(frame)), ("alone", frame.alone)):
        for row in rows:
            _key(f"chunk_end.{name}", row, schema)
    after, until = ends
    if frame.alone and (frame.portable or after is not None or until is not None):
        raise ProtocolError("chunk_end.alone: single keys and a range in one frame")
    if frame.portable and after is not None and until is not None and not after < until:
        raise ProtocolError(f"chunk_end.until: {until!r:.100} is not above chunk_end.after")


def check_scan_end(frame: push_pb2.ScanEnd, generation: int) -> None:
    """Check that a frame is from the flow's ``generation``. Raises :class:`~wormhole.model.errors.ProtocolError`, which
    names the wrong field.
    """
    if not check_name(frame.table, "scan_end.table"):
        raise ProtocolError("scan_end.table: empty")
    if frame.generation != generation:
        raise ProtocolError(f"scan_end.generation: {frame.generation}; the flow was assigned in {generation}")


def key_range(
    frame: push_pb2.ChunkEnd, schema: Schema, *, shard: str, epoch: int, generation: int, parked: Iterable[Key]
) -> KeyRange | None:
    """The range of a checked frame. ``None`` if nothing can be concluded from the frame: the backfill has a filter of
    its own, or only the database knows the order of the keys.

    ``parked``: keys of the table whose updates are parked.
    """
    if frame.narrowed or not (frame.portable or frame.alone):
        return None
    except_keys = [*(values_of(row.values) for row in _except(frame)), *parked]
    return KeyRange(
        schema.table,
        shard,
        epoch,
        generation,
        tuple(column.name for column in schema.key),
        values_of(frame.after.values) if frame.HasField("after") else None,
        values_of(frame.until.values) if frame.HasField("until") else None,
        frozenset(values_of(row.values) for row in frame.alone),
        frozenset(except_keys),
        frame.rows,
    )


def _except(frame: push_pb2.ChunkEnd) -> list[update_pb2.RowKey]:
    rows: list[update_pb2.RowKey] = getattr(frame, "except")  # a keyword of Python
    return rows


def _key(where: str, row: update_pb2.RowKey, schema: Schema) -> Key:
    if row.whole or row.table not in {"", schema.table}:
        raise ProtocolError(f"{where}: no key of {schema.table}")
    if len(row.values) != len(schema.key):
        raise ProtocolError(f"{where}: {len(row.values)} values for the {len(schema.key)} columns of the key")
    for value, column in zip(row.values, schema.key, strict=True):
        _check_value(where, value, column)
    try:
        return values_of(row.values)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: {error.message}") from error


def _check_value(where: str, value: update_pb2.Value, column: Column) -> None:
    kind = value.WhichOneof("kind")
    if kind not in _KINDS.get(column.type, ()):
        raise ProtocolError(f"{where}: {kind or 'nothing'} for column {column.name}, which is {column.type}")
