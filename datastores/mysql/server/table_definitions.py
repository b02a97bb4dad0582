"""Reads from the server the facts that a MariaDB table map lacks.

There are three such facts: the ROW END column of a system-versioned table, the digits of the fraction of a TIME,
DATETIME or TIMESTAMP of the format before 10.1.2, and the hash columns that no SELECT shows. The server describes the
present table, but the log was written earlier. So an answer is used only if the table cannot have been different then.
The decisions are pure; only :func:`ask` does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.table_map import LONGLONG, OLD_TEMPORAL, TIMESTAMP2, TableMap
from datastores.mysql.server.connection import query
from datastores.mysql.sql_text import sql_name
from wormhole.model.errors import DecodeError

__all__ = [
    "Definition",
    "Describe",
    "ask",
    "has_hashes",
    "row_end_candidates",
    "row_end_of",
    "with_old_digits",
    "without_hashes",
]

_TABLE: Final = (
    "SELECT TABLE_TYPE AS kind, UNIX_TIMESTAMP(CREATE_TIME) AS created FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_COLUMNS: Final = (
    "SELECT COLUMN_NAME AS name, DATETIME_PRECISION AS digits, GENERATION_EXPRESSION AS made FROM "
    "information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_IMPLICIT: Final = ("row_start", "row_end")
_MICROSECONDS: Final = 6
_HASH: Final = re.compile(r"DB_ROW_HASH_[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Definition:
    """The server's present table. ``columns``: digits of the fraction by name, in order, without columns that the
    server added for system versioning. ``row_end``: the column declared as ROW END. ``created_s``: when the table got
    its present form, seconds since 1970; ``None``: unknown."""

    versioned: bool
    columns: Mapping[str, int | None]
    row_end: str = ""
    created_s: int | None = None


Describe = Callable[[str, str], Definition | None]
"""Returns the server's definition of a table in a database; ``None``: it does not exist, or is hidden."""


def ask(connection: Connection[Any], database: str, table: str) -> Definition | None:
    """The server's definition of a table. Raises :class:`~wormhole.model.errors.WormholeError`."""
    found = query(connection, _TABLE, (database, table))
    if not found:
        return None
    columns = query(connection, _COLUMNS, (database, table))
    if not columns:
        return None
    created = found[0]["created"]
    return Definition(
        str(found[0]["kind"]) == "SYSTEM VERSIONED",
        {str(row["name"]): None if row["digits"] is None else int(row["digits"]) for row in columns},
        next((str(row["name"]) for row in columns if str(row["made"] or "").upper() == "ROW END"), ""),
        None if created is None else int(created),
    )


def row_end_candidates(table: TableMap) -> tuple[int, ...]:
    """The columns that may be ROW END if the table is system-versioned; empty: none can be.

    ROW START and ROW END are two columns TIMESTAMP(6) NOT NULL. If there is a primary key, it contains ROW END, usually
    as its last column. But the columns of a period ``WITHOUT OVERLAPS`` come after it, and a key declared with ROW END
    has it where it was declared. Tables that are versioned by transaction id are logged as statements.
    """
    moments = [
        i
        for i, column in enumerate(table.columns)
        if column.type == TIMESTAMP2 and column.meta == _MICROSECONDS and not column.nullable
    ]
    if len(moments) < 2:
        return ()
    return tuple(i for i in moments if not table.key or i in table.key)


def row_end_of(
    table: TableMap, candidates: tuple[int, ...], definition: Definition | None
) -> tuple[int, tuple[int, ...]]:
    """The position of the table's ROW END (-1: none, or unknown), and the columns that may be ROW END if it is
    unknown."""
    if not candidates:
        return -1, ()
    names = [column.name for column in table.columns if not column.hidden]
    if definition is not None and definition.versioned:
        if definition.row_end in names:
            position = names.index(definition.row_end)
            return (position, ()) if position in candidates else (-1, ())
    elif definition is not None and names == list(definition.columns):
        return -1, ()  # never versioned: dropping the versioning would have dropped columns, and none is missing
    if tuple(names[-2:]) == _IMPLICIT and len(names) - 1 in candidates:
        return len(names) - 1, ()
    return -1, candidates


def has_hashes(table: TableMap) -> bool:
    """Whether the last column may be a hash that MariaDB keeps for a UNIQUE index on a TEXT or another long value."""
    last = table.columns[-1]
    return last.type == LONGLONG and last.unsigned and _HASH.fullmatch(last.name) is not None


def without_hashes(table: TableMap, definition: Definition | None) -> TableMap:
    """The table with its hash columns hidden. These are the last columns whose names are of the server's form and that
    the server does not list. A listed column with such a name is the user's own.
    """
    columns = list(table.columns)
    listed = definition.columns if definition is not None else {}
    at = len(columns)
    while at > 1 and has_hashes(replace(table, columns=tuple(columns[:at]))) and columns[at - 1].name not in listed:
        at -= 1
        columns[at] = replace(columns[at], hidden=True)
    return replace(table, columns=tuple(columns))


def with_old_digits(table: TableMap, definition: Definition | None, logged_s: int) -> TableMap:
    """The table with the digits of its TIME, DATETIME and TIMESTAMP columns of the old format. ``logged_s``: when the
    table map was logged, in seconds since 1970.

    Raises :class:`DecodeError` if the digits are unknown.
    """
    old = [i for i, column in enumerate(table.columns) if column.type in OLD_TEMPORAL]
    names = [column.name for column in table.columns if column.name and not column.hidden]
    digits = {} if definition is None else dict(definition.columns)
    known = bool(names) and all(name in digits for name in names)
    if known and not any(digits[table.columns[i].name] for i in old):
        return table
    unchanged = (
        known and definition is not None and definition.created_s is not None and definition.created_s < logged_s
    )
    if not unchanged:
        raise DecodeError(
            f"{table.name} has TIME, DATETIME or TIMESTAMP columns of the format before MariaDB 10.1.2, and "
            "the log does not "
            f"show how many digits their fractions had at that time: {', '.join(names[i] for i in old if names)}",
            hint="SET GLOBAL mysql56_temporal_format = ON; "
            f"ALTER TABLE {sql_name(table.database, table.table)} FORCE; what was logged before "
            "cannot be read: name the table in skip_tables and restart the publisher, or start the application anew "
            "behind it, from a copy of the table. The publisher's account needs SELECT on the table",
            tables=(table.name,),
        )
    columns = list(table.columns)
    for i in old:
        columns[i] = replace(columns[i], meta=digits[columns[i].name] or 0)
    return replace(table, columns=tuple(columns))
