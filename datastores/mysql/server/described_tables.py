"""Reads the definitions of a server's tables, from which models are generated. :func:`describe` queries the server;
the rest is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.server.address import Address
from datastores.mysql.server.bounded_connection import MOST_LISTING_BYTES
from datastores.mysql.server.connection import connect, query, reading_answers
from datastores.mysql.server.table_names import OWN_DATABASES, show_all
from datastores.mysql.sql_text import quoted
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition

__all__ = ["describe", "parse_members"]

_TIMEOUT_S: Final = 60.0  # seconds; a server with many tables opens each of them
_TABLES: Final = (
    "SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name FROM information_schema.TABLES "
    "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN %s ORDER BY 1, 2"
)
_COLUMNS: Final = (
    "SELECT COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS declared, IS_NULLABLE AS nullable, "
    "COLUMN_KEY AS mark, CHARACTER_SET_NAME AS charset, GENERATION_EXPRESSION AS made FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"})
_CONTENT: Final = {
    **dict.fromkeys(_INTEGERS, Content.INTEGER),
    "decimal": Content.DECIMAL,
    "float": Content.FLOAT,
    "double": Content.FLOAT,
    "date": Content.DATE,
    "datetime": Content.DATETIME,
    "timestamp": Content.MOMENT,
    "time": Content.DURATION,
    "json": Content.JSON,
    "enum": Content.ENUM,
    "set": Content.SET,
}
_MEMBER: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED: Final = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
# MariaDB's JSON is a LONGTEXT with this check.
_JSON_CHECK: Final = re.compile(r"^ *`((?:[^`]|``)+)` longtext\b.* CHECK \(json_valid\(`\1`\)\),?$", re.MULTILINE)


def describe(address: Address, wanted: Callable[[str], bool]) -> list[TableDefinition]:
    """The ``wanted`` tables that the account can see, without the system's databases.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    with closing(connect(address)) as connection, reading_answers("the server's tables"):
        show_all(connection)
        found = query(connection, _TABLES, (OWN_DATABASES,), within_s=_TIMEOUT_S, most_bytes=MOST_LISTING_BYTES)
        names = [(str(row["db"]), str(row["name"])) for row in found]
        return [_table(connection, *name) for name in names if wanted(".".join(name))]


def _table(connection: Connection[Any], database: str, name: str) -> TableDefinition:
    columns = query(connection, _COLUMNS, (database, name))
    indexes = query(connection, f"SHOW INDEX FROM {quoted(database)}.{quoted(name)}")
    row_end = {str(row["name"]) for row in columns if str(row["made"] or "").upper() == "ROW END"}
    json = frozenset[str]()
    if any(row["type"] == "longtext" for row in columns):
        shown = query(connection, f"SHOW CREATE TABLE {quoted(database)}.{quoted(name)}")
        json = frozenset(column.replace("``", "`") for column in _JSON_CHECK.findall(str(shown[0]["Create Table"])))
    return TableDefinition(
        f"{database}.{name}",
        _key(indexes, {str(row["name"]) for row in columns if row["mark"] == "PRI"}, row_end),
        tuple(_column(row, is_json=str(row["name"]) in json) for row in columns),
    )


def _key(indexes: Sequence[Mapping[str, Any]], marked: AbstractSet[str], row_end: AbstractSet[str]) -> tuple[str, ...]:
    """The columns of the key that the server logs, in the key's order.

    It is the primary key, or the first unique index whose columns are all NOT NULL and without a prefix. ``marked``:
    the columns that the server marks as the key's. ``indexes``: in the server's order, which lists this key before
    other indexes of the same columns.
    """
    found: dict[str, list[str]] = {}
    for row in indexes:
        found.setdefault(str(row["Key_name"]), []).append(str(row["Column_name"]))
    keys = (tuple(name for name in names if name not in row_end) for names in found.values())
    return next((key for key in keys if marked >= set(key)), ())


def _column(row: Mapping[str, Any], *, is_json: bool) -> ColumnDefinition:
    declared = str(row["type"]).lower()
    content = _CONTENT.get(declared, Content.BYTES if row["charset"] is None else Content.TEXT)
    if is_json:
        content = Content.JSON
    members = parse_members(str(row["declared"])) if content in {Content.ENUM, Content.SET} else ()
    return ColumnDefinition(str(row["name"]), content, str(row["nullable"]) == "YES", members)


def parse_members(declared: str) -> tuple[str, ...]:
    """The members in a declaration such as ``enum('a','it''s')``."""
    return tuple(_ESCAPED.sub(_unescaped, text) for text in _MEMBER.findall(declared))


def _unescaped(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPES.get(found[1], found[1])
