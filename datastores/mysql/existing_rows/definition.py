"""A table's definition for a backfill: its columns, its key, and why its rows may be unreadable in chunks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.charsets import codec_of_charset, is_reversible
from datastores.mysql.existing_rows.key_order import ORDERED, PORTABLE, KeyColumn
from datastores.mysql.existing_rows.values import Entry, entry_of_kind
from datastores.mysql.server.connection import query
from datastores.mysql.server.described_tables import parse_members
from datastores.mysql.sql_text import account_name, quoted, sql_name
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Column, Schema

__all__ = ["Definition", "Listed", "creation", "definition_of", "no_privilege", "read_definition"]

_COLUMNS: Final = (
    "SELECT COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS declared, COLUMN_KEY AS mark, "
    "CHARACTER_SET_NAME AS charset, COLLATION_NAME AS collation, GENERATION_EXPRESSION AS made, PRIVILEGES AS allowed "
    "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_ENGINE: Final = "innodb"
_VERSIONED: Final = "SYSTEM VERSIONED"
_ROW_ENDS: Final = ("row_start", "row_end")
"""The columns that MariaDB adds to a system-versioned table that declares none. Only the log has them."""
_ORDERED_INDEXES: Final = ("BTREE", "")
_LONG: Final = frozenset({"mediumblob", "longblob", "mediumtext", "longtext", "json"})
_GEOMETRIES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection"}
    | {"geometrycollection"}
)
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+(?= |$)")
_NOTHING: Final = Schema("", (), ())
_SCHEMA_TYPES: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "int"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time", "enum", "set", "json"), "text"),
    "bit": "uint",
    "float": "double",
    "double": "double",
    "decimal": "decimal",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A table in the server's list. ``rows``: the server's estimate. ``row_bytes``: the average size of a row."""

    database: str
    table: str
    kind: str
    engine: str
    rows: int | None = None
    row_bytes: int = 0

    @property
    def name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's columns and key. ``created``: the result of `creation`. ``index``: the name of the key's index.
    ``entries`` and ``asked``: for each column its encoder and its expression in a SELECT. ``coded_key``: for each
    column of the key, whether different bytes may have the same text. ``long``: columns whose values may exceed an
    update's limit. ``refused``: why the rows cannot be read; then only the names are valid.
    """

    listed: Listed
    created: str = ""
    schema: Schema = _NOTHING
    key: tuple[KeyColumn, ...] = ()
    key_positions: tuple[int, ...] = ()
    index: str = ""
    asked: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    coded_key: tuple[bool, ...] = ()
    long: tuple[str, ...] = ()
    fingerprint: str = ""
    refused: Problem = NO_PROBLEM

    @property
    def name(self) -> str:
        """``database.table``."""
        return self.listed.name

    @property
    def portable(self) -> bool:
        """Whether the keys are ordered as integers or bytes."""
        return bool(self.key) and all(c.kind in PORTABLE and not c.descending for c in self.key)


def creation(connection: Connection[Any], database: str, table: str) -> str:
    """The statement that creates the present table. If two statements are equal, the table was not altered in between.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    rows = query(connection, f"SHOW CREATE TABLE {sql_name(database, table)}")
    return _COUNTER.sub("", str(rows[0].get("Create Table", "")))


def read_definition(connection: Connection[Any], listed: Listed, account: str) -> Definition:
    """Read the definition from the server. ``account``: the publisher's account, for a GRANT.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    created = creation(connection, listed.database, listed.table)
    rows = query(connection, _COLUMNS, (listed.database, listed.table))
    indexes = query(connection, f"SHOW INDEX FROM {sql_name(listed.database, listed.table)}")
    return definition_of(listed, created, rows, indexes, account)


def definition_of(
    listed: Listed, created: str, rows: Sequence[Mapping[str, Any]], indexes: Sequence[Mapping[str, Any]], account: str
) -> Definition:
    """The definition in the server's answers."""
    if any("select" not in str(row["allowed"]).lower().split(",") for row in rows) or not rows:
        return Definition(listed, refused=no_privilege(listed.database, listed.table, account))
    names = [str(row["name"]) for row in rows]
    row_end = next((str(row["name"]) for row in rows if str(row["made"] or "").upper() == "ROW END"), "")
    index, parts = _index(indexes, {str(row["name"]) for row in rows if row["mark"] == "PRI"}, row_end)
    by_name = {str(row["name"]): row for row in rows}
    key = tuple(_key_column(by_name[str(part["Column_name"])], part) for part in parts)
    refused = _refusal(listed, key, parts)
    if refused:
        return Definition(listed, refused=refused)
    columns = [_column(row) for row in rows]
    codecs = [_codec(row) for row in rows]
    compressed = ["compressed" in str(row["declared"]).lower() for row in rows]
    kinds = [str(row["type"]).lower() for row in rows]
    if listed.kind == _VERSIONED and not row_end:
        names += _ROW_ENDS
        columns += [Column(name, "text") for name in _ROW_ENDS]
        codecs += ["", ""]
        kinds += ["timestamp", "timestamp"]
        compressed += [False, False]
    positions = tuple(names.index(column.name) for column in key)
    return Definition(
        listed,
        created,
        Schema(listed.name, tuple(columns[position] for position in positions), tuple(columns)),
        key,
        positions,
        index,
        tuple(_asked(name, kind) for name, kind in zip(names, kinds, strict=True)),
        tuple(
            entry_of_kind(kind, codec, compressed=packed)
            for kind, codec, packed in zip(kinds, codecs, compressed, strict=True)
        ),
        tuple(
            bool(column.charset) and not is_reversible(codecs[at]) for column, at in zip(key, positions, strict=True)
        ),
        tuple(quoted(name) for name, kind in zip(names, kinds, strict=True) if kind in _LONG | _GEOMETRIES),
        _fingerprint(key, [str(by_name[column.name]["declared"]) for column in key]),
    )


def no_privilege(database: str, table: str, account: str) -> Problem:
    """The problem if the account may not read the table."""
    user, _, host = account.rpartition("@")
    return Problem(
        f"{database}.{table}: the account {account} may not read its rows",
        f"GRANT SELECT ON {sql_name(database, table)} TO {account_name(user, host)};",
        code="account-lacks-rights",
    )


def _refusal(listed: Listed, key: Sequence[KeyColumn], parts: Sequence[Mapping[str, Any]]) -> Problem:
    name, alter = listed.name, f"ALTER TABLE {sql_name(listed.database, listed.table)}"
    if listed.engine.lower() != _ENGINE:
        return Problem(
            f"{name}: its engine {listed.engine or 'unknown'} has no snapshots of which the place in the log is known",
            f"{alter} ENGINE = InnoDB;",
            code="table-unreadable",
        )
    if not key:
        return Problem(
            f"{name} has no primary key, and no unique one whose columns are all NOT NULL: its rows cannot be read in "
            "chunks",
            f"{alter} ADD COLUMN my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY; or make a column that "
            "is unique already the key",
            code="key-missing",
        )
    for column, part in zip(key, parts, strict=True):
        if part.get("Sub_part") is not None:
            return Problem(
                f"{name}: its key has the first {part['Sub_part']} characters or bytes of {column.name}, which do not "
                "order the rows",
                "make a key of whole columns the primary one",
                code="key-missing",
            )
        unordered = column.kind not in ORDERED or str(part.get("Index_type", "")).upper() not in _ORDERED_INDEXES
        if unordered or _unordered_members(column):
            return Problem(
                f"{name}: its key's column {column.name} ({column.kind}) cannot be ordered",
                "make a key of other columns the primary one",
                code="key-missing",
            )
    return NO_PROBLEM


def _unordered_members(column: KeyColumn) -> bool:
    """Whether a member's name does not determine its number, by which the server orders. The error value also has the
    empty name, and the server lists ``?`` for characters beyond the basic plane."""
    return any(not name or "?" in name for name in column.members)


def _index(indexes: Sequence[Mapping[str, Any]], marked: set[str], row_end: str) -> tuple[str, list[Mapping[str, Any]]]:
    """The index of the log's key, whose columns the server marks, and the index's parts without ROW END."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in indexes:
        if str(row["Column_name"]) not in (row_end, *_ROW_ENDS) or str(row["Column_name"]) in marked - {row_end}:
            found.setdefault(str(row["Key_name"]), []).append(row)
    for name, parts in found.items():
        if marked >= {str(part["Column_name"]) for part in parts} and not int(parts[0]["Non_unique"]):
            return name, parts
    return "", []


def _key_column(row: Mapping[str, Any], part: Mapping[str, Any]) -> KeyColumn:
    kind = str(row["type"]).lower()
    members = parse_members(str(row["declared"])) if kind == "enum" else ()
    text = kind in ("char", "varchar")
    return KeyColumn(
        str(row["name"]),
        kind,
        str(row["charset"] or "") if text else "",
        str(row["collation"] or "") if text else "",
        members,
        str(part.get("Collation") or "A") == "D",
    )


def _column(row: Mapping[str, Any]) -> Column:
    kind = str(row["type"]).lower()
    type_ = _SCHEMA_TYPES.get(kind)
    if type_ is None:
        type_ = "text" if _codec(row) else "bytes"
    elif kind == "bigint" and "unsigned" in str(row["declared"]).lower():
        type_ = "uint"
    return Column(str(row["name"]), type_)


def _codec(row: Mapping[str, Any]) -> str:
    return codec_of_charset(str(row["charset"])) or "" if row["charset"] else ""


def _asked(name: str, kind: str) -> str:
    """A column's expression in a SELECT. The text of a FLOAT has only six digits, and that of a DOUBLE(20,4) four
    decimals. Converted to DOUBLE, both have all digits.
    """
    return f"CAST({quoted(name)} AS DOUBLE)" if kind in {"float", "double"} else quoted(name)


def _fingerprint(key: Sequence[KeyColumn], declared: Sequence[str]) -> str:
    parts = [
        f"{column.name}\0{type_}\0{column.collation}\0{column.descending}"
        for column, type_ in zip(key, declared, strict=True)
    ]
    return hashlib.sha256("\1".join(parts).encode()).hexdigest()[:32]
