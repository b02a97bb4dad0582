"""Reads the definitions of a database's tables: columns, keys and other unique columns or expressions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from datastores.sqlite.database import Connection, is_of_schema
from datastores.sqlite.sql_text import quoted
from datastores.sqlite.values import type_of
from wormhole.model.schema import Column, Schema

__all__ = ["OURS", "Table", "Unique", "load_tables", "schema_version"]

OURS: Final = "wormhole_"
_PIECE: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[(),]|\w+|.""", re.DOTALL
)
_DIRECTION: Final = re.compile(r"\s+(?:ASC|DESC)\s*$", re.IGNORECASE)
_COLLATE: Final = re.compile(r"\s+COLLATE\s+\S+\s*$", re.IGNORECASE)
_BUILT_IN: Final = {"BINARY", "NOCASE", "RTRIM"}
_EXPRESSION: Final = -2


@dataclass(frozen=True, slots=True)
class Unique:
    """A uniqueness rule. ``parts``: the names of columns, or the texts of expressions, each with its collation; their
    values are unique together. ``where``: the condition of the rows that the rule is for; empty: all rows.
    """

    parts: tuple[tuple[str, bool, str], ...]
    where: str

    @property
    def columns_only(self) -> bool:
        """Whether the rule has neither an expression nor a condition."""
        return not self.where and not any(expression for _, expression, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Table:
    """``key``: the positions of the primary key's columns. ``unique``: the other uniqueness rules, and the key's if two
    spellings of a key can be equal. ``refused``: why changes cannot be recorded; empty: they can. ``nullable``: the key
    may hold NULL. ``declared``: the declared types. ``required``: the columns with NOT NULL.
    """

    name: str
    schema: Schema
    key: tuple[int, ...]
    unique: tuple[Unique, ...]
    refused: str
    nullable: bool
    declared: tuple[str, ...]
    required: frozenset[str]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(column.name for column in self.schema.key)


def schema_version(connection: Connection) -> int:
    """A number that changes with every change of the schema."""
    return int(connection.execute("PRAGMA schema_version").fetchone()[0])


def load_tables(connection: Connection) -> dict[str, Table]:
    """The ordinary tables by name, without SQLite's own and the product's."""
    listed = connection.execute(
        "SELECT l.name, l.wr, l.strict FROM pragma_table_list l JOIN sqlite_schema s ON s.name = l.name "
        "AND s.type = 'table' WHERE l.schema = 'main' AND l.type = 'table' ORDER BY l.name"
    ).fetchall()
    return {
        name: _table(connection, name, bool(without_rowid), bool(strict))
        for name, without_rowid, strict in listed
        if not name.startswith(("sqlite_", OURS))
    }


def _table(connection: Connection, name: str, without_rowid: bool, strict: bool) -> Table:
    rows = connection.execute('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', (name,))
    found = [row for row in rows.fetchall() if row[4] != 1]
    columns = tuple(Column(column, type_of(declared, strict)) for column, declared, *_ in found)
    ordered = sorted((pk, i) for i, (_, _, _, pk, _) in enumerate(found) if pk)
    key = tuple(i for _, i in ordered)
    indexes = _indexes(connection, name)
    # A key without an index is the rowid.
    of_key = next((unique for origin, unique in indexes if origin == "pk"), None)
    types = [columns[i].type for i in key]
    loose = of_key is not None and (
        any(collation != "BINARY" for _, _, collation in of_key.parts)
        or not {"int", "text", "double"}.issuperset(types)
    )
    unique = [one for origin, one in indexes if origin != "pk"]
    if of_key is not None and loose:
        unique.append(of_key)
    schema = Schema(name, tuple(columns[i] for i in key), columns)
    nullable = of_key is not None and not without_rowid and not all(found[i][2] for i in key)
    declared = tuple(row[1] for row in found)
    refused = _refusal(connection, schema, [one for _, one in indexes], [declared[i] for i in key])
    required = frozenset(row[0] for row in found if row[2])
    return Table(name, schema, key, tuple(unique), refused, nullable, declared, required)


def _refusal(connection: Connection, schema: Schema, unique: Sequence[Unique], key: Sequence[str]) -> str:
    if not schema.key:
        return "it has no primary key, and VACUUM may change its rowids"
    if not all(key):
        return "a column of its primary key has no declared type"
    for one in unique:
        for _, _, collation in one.parts:
            if collation.upper() not in _BUILT_IN:
                return f"its collation {collation} is the application's own"
    try:
        connection.execute(f"SELECT * FROM {quoted(schema.table)} LIMIT 0")
    except sqlite3.OperationalError as error:
        if not is_of_schema(error):
            raise
        return f"its rows cannot be read: {error}"
    return ""


def _indexes(connection: Connection, table: str) -> list[tuple[str, Unique]]:
    """The unique indexes, each with its origin (``pk``, ``u``, ``c``)."""
    listed = connection.execute(
        "SELECT l.name, l.origin, l.partial, s.sql FROM pragma_index_list(?) l "
        "LEFT JOIN sqlite_schema s ON s.type = 'index' AND s.name = l.name WHERE l.\"unique\" ORDER BY l.name",
        (table,),
    )
    return [(origin, _unique(connection, name, sql)) for name, origin, _, sql in listed.fetchall()]


def _unique(connection: Connection, name: str, sql: str | None) -> Unique:
    texts, where = _parts_of(sql) if sql else ([], "")
    rows = connection.execute(
        "SELECT seqno, cid, name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", (name,)
    )
    parts = [
        (texts[place] if cid == _EXPRESSION else column, cid == _EXPRESSION, collation)
        for place, cid, column, collation in rows.fetchall()
    ]
    return Unique(tuple(parts), where)


def _pieces(sql: str) -> Iterator[tuple[str, int]]:
    """The tokens of a statement, each with the number of open parentheses around it."""
    depth = 0
    for found in _PIECE.finditer(sql):
        piece: Any = found[0]
        depth -= piece == ")"
        yield piece, depth
        depth += piece == "("


def _parts_of(sql: str) -> tuple[list[str], str]:
    """The texts of an index's columns or expressions, and its condition; empty: it has none."""
    parts, where, inside, after = [""], "", False, False
    for piece, depth in _pieces(sql):
        if after:
            where += piece
        elif inside and depth == 0 and piece == ")":
            inside, after = False, True
        elif inside and depth == 1 and piece == ",":
            parts.append("")
        elif inside:
            parts[-1] += piece
        elif piece == "(" and depth == 0:
            inside = True
    where = where.strip()
    return [_COLLATE.sub("", _DIRECTION.sub("", part)).strip() for part in parts], where[len("WHERE") :].strip()
