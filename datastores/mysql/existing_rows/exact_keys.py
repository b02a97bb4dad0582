"""Checks whether an update's key, written in SQL, selects exactly that key's row.

A key in the log is text in UTF-8. Bytes that are no characters of their column's character set become ``?`` there. Such
a key cannot select its row, so no chunk may begin after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.existing_rows.definition import Definition
from datastores.mysql.existing_rows.key_order import literal, literals_of
from datastores.mysql.existing_rows.result_rows import Row
from datastores.mysql.server.connection import query
from wormhole.wire.v1 import update_pb2

__all__ = ["cannot_be_asked_for", "is_exact", "is_same", "last_exact"]

_AMBIGUOUS: Final = {"?", "\\"}
"""Characters whose bytes are ambiguous: bytes that are no character, and a second backslash of sjis and ujis."""


def is_exact(connection: Connection[Any], definition: Definition, key: bytes, raw: Row | None) -> bool:
    """Whether the key in SQL has exactly the row's values. ``raw``: the server's bytes of the values; ``None``: no
    value's text is ambiguous (`Definition.coded_key`).

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    try:
        literals = literals_of(definition.key, key)
    except (ValueError, LookupError):
        return False
    if raw is None:
        return True
    asked = [
        f"CAST({text} AS BINARY) = x'{(value or b'').hex()}'"
        for text, value, coded in zip(literals, raw, definition.coded_key, strict=True)
        if coded
    ]
    return bool(query(connection, f"SELECT {' AND '.join(asked)} AS same")[0]["same"])


def cannot_be_asked_for(connection: Connection[Any], definition: Definition, key: bytes) -> bool:
    """Whether a row may have this key although a query by the key finds no row.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    values = update_pb2.RowKey.FromString(key).values
    for column, value, coded in zip(definition.key, values, definition.coded_key, strict=True):
        if not coded:
            continue
        if _AMBIGUOUS & set(value.text):
            return True
        asked = f"CAST(CONVERT({literal(column, value)} USING utf8mb4) AS BINARY) = x'{value.text.encode().hex()}'"
        if not query(connection, f"SELECT {asked} AS same")[0]["same"]:
            return True
    return False


def is_same(connection: Connection[Any], definition: Definition, key: bytes, others: Iterable[bytes]) -> bool:
    """Whether the server regards ``key`` as equal to one of ``others``.

    Raises :class:`~wormhole.model.errors.WormholeError`, and ``ValueError`` if one of them does not fit the table's
    key.
    """
    asked = literals_of(definition.key, key)
    pairs = (zip(asked, literals_of(definition.key, other), strict=True) for other in others)
    same = [" AND ".join(f"{left} = {right}" for left, right in pair) for pair in pairs]
    return any(query(connection, f"SELECT {one} AS same")[0]["same"] for one in same)


def last_exact(
    connection: Connection[Any], definition: Definition, keys: list[bytes], raw_keys: Mapping[bytes, Row]
) -> int:
    """The number of keys up to the last key after which a chunk may begin; 0: there is none."""
    count = len(keys)
    while count and not is_exact(connection, definition, keys[count - 1], raw_keys.get(keys[count - 1])):
        count -= 1
    return count
