"""The schema of updates: names and types of their values. A stream sends it once; updates refer to it by its hash.

The id of a schema is the same on every stream, after every restart and in the archive, because it is a hash of the
schema's canonical bytes: the protobuf serialization of :class:`~wormhole.wire.v1.schema_pb2.Schema` with fields in
ascending order and no unknown fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from wormhole.wire.v1 import schema_pb2

__all__ = ["Column", "Schema", "free_names", "schema_id"]


@dataclass(frozen=True, slots=True)
class Column:
    """One named value.

    ``type`` is one of bytes, text, int, uint, double, bool, decimal, entries and hash. ``hash``: text that replaces a
    value hidden by a mask.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Table name, key columns and other columns, in the order of an update's values.

    ``id`` is the first eight bytes, big endian, of the SHA-256 of ``canonical``. ``names``: the names of ``columns``.
    """

    table: str
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    canonical: bytes = field(init=False, repr=False, compare=False)
    id: int = field(init=False, repr=False, compare=False)
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        message = schema_pb2.Schema(table=self.table)
        for source, target in ((self.key, message.key), (self.columns, message.columns)):
            for column in source:
                target.add(name=column.name, type=column.type)
        canonical = message.SerializeToString(deterministic=True)
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "id", schema_id(canonical))
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))

    @classmethod
    def from_canonical(cls, canonical: bytes) -> Schema:
        """Inverse of ``canonical``. Raises ``google.protobuf.message.DecodeError`` for other bytes."""
        return _remembered(canonical) if len(canonical) <= _REMEMBERED_BYTES else _parse(canonical)


def schema_id(canonical: bytes) -> int:
    """The id of the schema with these canonical bytes. The bytes may be arbitrary, from a peer."""
    return int.from_bytes(hashlib.sha256(canonical).digest()[:8], "big")


def free_names(names: Iterable[str]) -> dict[str, str]:
    """A name for each column that does not collide in SQL tables, by the column's own name.

    SQL ignores case, and names that begin with ``_`` are reserved for the product. A reserved name, or a name that is
    taken, gets an ``_`` at its end.
    """
    shown: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        free = f"{name}_" if name.startswith("_") else name
        while free.lower() in taken:
            free += "_"
        taken.add(free.lower())
        shown[name] = free
    return shown


def _parse(canonical: bytes) -> Schema:
    message = schema_pb2.Schema.FromString(canonical)
    return Schema(
        message.table,
        tuple(Column(c.name, c.type) for c in message.key),
        tuple(Column(c.name, c.type) for c in message.columns),
    )


# Peers name schemas too, so the remembered schemas are bounded by number and by size.
_REMEMBERED_BYTES: Final = 4096
_remembered = lru_cache(maxsize=256)(_parse)
