"""The triggers that record the keys of changed rows, and the tables that they write to.

A trigger records only keys, and the reader reads the row later. A trigger of the application may change the same row
before ours runs, so an image that ours took could be older than the row.

When REPLACE deletes rows, SQLite runs no DELETE trigger unless the application sets ``recursive_triggers``. So a BEFORE
trigger records the keys of the rows that conflict with the new row. An UPDATE that changes a key records the former
key. Both kinds of keys are candidates: a delete is sent only if no row has the key any more.

The triggers run in the application's own SQLite library. So they use only features that SQLite has had for 15 years.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from datastores.sqlite.database import Connection, is_of_schema
from datastores.sqlite.sql_text import quote_literal, quoted
from datastores.sqlite.tables import Table, Unique
from wormhole.model.errors import UsageError

__all__ = ["CHANGES", "GAP", "GONE", "WRITTEN", "Installation", "create", "drop", "load_installation", "run"]

CHANGES: Final = "wormhole_change"
_TABLES: Final = "wormhole_table"
_ABOUT: Final = "wormhole_capture"
WRITTEN: Final = 1
"""The operation of a row that was inserted or updated."""
GONE: Final = 2
"""The operation of a key whose row was deleted, or may have been deleted."""
GAP: Final = 3
"""The operation of a gap: the change table was full, and the triggers did not record."""
_FORM: Final = "1"
_NAME: Final = re.compile(r"wormhole_(\d+)_(?:insert|update|delete|insert_keys|update_keys)")
_KEY_COLUMN: Final = re.compile(r"k\d+")
_IDS: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Installation:
    """The product's triggers and tables in a database.

    ``identity``: random, made at the installation. ``incarnation``: the second of the installation. ``max_changes``:
    the number of recorded changes at which the triggers stop. ``tables``: the present name, by number, of each table
    whose changes were ever recorded. ``captured``: the number, by name, of each table that has our triggers. ``stale``:
    the tables among these whose triggers are outdated. ``triggers``: the names of all our triggers. ``width``: the
    number of columns for keys.
    """

    identity: str
    incarnation: int
    max_changes: int
    tables: Mapping[int, str]
    captured: Mapping[str, int]
    stale: frozenset[str]
    triggers: tuple[str, ...]
    width: int

    @property
    def working(self) -> dict[str, int]:
        """The numbers, by name, of the tables whose changes are all recorded."""
        return {name: number for name, number in self.captured.items() if name not in self.stale}


def load_installation(connection: Connection, tables: Mapping[str, Table]) -> Installation | None:
    """The installation in the database; ``None``: nothing is installed."""
    try:
        about = dict(connection.execute(f"SELECT name, value FROM {_ABOUT}").fetchall())
        known = dict(connection.execute(f"SELECT id, name FROM {_TABLES} ORDER BY id").fetchall())
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({CHANGES})")]
    except sqlite3.OperationalError as error:
        if not is_of_schema(error):
            raise
        return None
    if about.get("form") != _FORM or not columns:
        return None
    found: dict[str, dict[str, str]] = {}
    numbers: dict[str, int] = {}
    for name, table, sql in connection.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger'"):
        if (ours := _NAME.fullmatch(name)) is not None:
            found.setdefault(table, {})[name] = sql
            numbers[table] = known_as = int(ours[1])
            if known_as in known:
                known[known_as] = table
    most = int(about["max_changes"])
    stale = {
        name
        for name, triggers in found.items()
        if name not in tables or triggers != _triggers(tables[name], numbers[name], most)
    }
    return Installation(
        about["identity"],
        int(about["incarnation"]),
        most,
        known,
        {name: number for name, number in numbers.items() if name in tables},
        frozenset(stale),
        tuple(sorted(name for triggers in found.values() for name in triggers)),
        sum(1 for name in columns if _KEY_COLUMN.fullmatch(name)),
    )


def create(
    installation: Installation | None, tables: Mapping[str, Table], wanted: Callable[[str], bool], max_changes: int
) -> list[str]:
    """The statements that capture the ``wanted`` tables and those that were captured before.

    The list is empty if nothing is missing.
    """
    before = {} if installation is None else {name: number for number, name in installation.tables.items()}
    chosen = [table for name, table in tables.items() if not table.refused and (wanted(name) or name in before)]
    most = max_changes if installation is None else installation.max_changes
    statements: list[str] = [] if installation is not None or not chosen else _base(max_changes)
    width = max((len(table.key) for table in chosen), default=0)
    has = 0 if installation is None else installation.width
    if chosen and installation is None:
        statements.insert(0, _change_table(width))
    else:
        statements += [f"ALTER TABLE {CHANGES} ADD COLUMN k{n};" for n in range(has + 1, width + 1)]
    for table in chosen:
        captured = installation is not None and table.name in installation.captured
        if installation is not None and captured and table.name not in installation.stale:
            continue
        if installation is not None and captured:
            number = installation.captured[table.name]
            statements += [f"DROP TRIGGER {quoted(name)};" for name in installation.triggers if _number(name) == number]
        new = secrets.randbelow(_IDS) + 1
        statements.append(f"INSERT INTO {_TABLES} (id, name) VALUES ({new}, {quote_literal(table.name)});")
        statements += [f"{sql};" for sql in _triggers(table, new, most).values()]
    return statements


def drop(installation: Installation) -> list[str]:
    """The statements that remove all our triggers and tables."""
    return [
        *(f"DROP TRIGGER {quoted(name)};" for name in installation.triggers),
        *(f"DROP TABLE {quoted(name)};" for name in (CHANGES, _TABLES, _ABOUT)),
    ]


def run(connection: Connection, statements: Sequence[str]) -> None:
    """Run the statements in one transaction. Raises :class:`sqlite3.Error` and :class:`UsageError`."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            if not sqlite3.complete_statement(statement):
                raise UsageError(f"this is no statement: {statement}", hint="run the statements that were printed")
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _change_table(width: int) -> str:
    keys = "".join(f", k{n}" for n in range(1, width + 1))
    # A time is in milliseconds since 1970. A proof is a random number, by which histories of the database differ.
    return (
        f"CREATE TABLE {CHANGES} (seq INTEGER PRIMARY KEY, tab INTEGER NOT NULL, op INTEGER NOT NULL, "
        "at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), "
        f"proof INTEGER NOT NULL DEFAULT (random()){keys});"
    )


def _base(max_changes: int) -> list[str]:
    about = {
        "form": _FORM,
        "identity": secrets.token_hex(8),
        "incarnation": str(int(time.time())),
        "max_changes": str(max_changes),
    }
    values = ", ".join(f"('{name}', '{value}')" for name, value in about.items())
    return [
        f"CREATE TABLE {_TABLES} (id INTEGER PRIMARY KEY, name TEXT NOT NULL);",
        f"CREATE TABLE {_ABOUT} (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
        f"INSERT INTO {_ABOUT} (name, value) VALUES {values};",
        f"INSERT INTO {CHANGES} (tab, op) VALUES (0, 0);",
    ]


def _triggers(table: Table, number: int, max_changes: int) -> dict[str, str]:
    """The triggers of a table, by name."""
    room = f"(SELECT max(seq) FROM {CHANGES}) - (SELECT min(seq) FROM {CHANGES}) < {max_changes}"
    keys = [quoted(name) for name in table.key_columns]
    places = ", ".join(f"k{n}" for n in range(1, len(keys) + 1))
    into = f"INSERT INTO {CHANGES} (tab, op, {places})"
    gone = f"{into} SELECT {number}, {GONE}, "
    written = f"{into} VALUES ({number}, {WRITTEN}, {', '.join(f'NEW.{key}' for key in keys)});"
    deleted = f"{into} VALUES ({number}, {GONE}, {', '.join(f'OLD.{key}' for key in keys)});"
    differ = " OR ".join(
        f"OLD.{key} IS NOT NEW.{key} COLLATE BINARY OR typeof(OLD.{key}) <> typeof(NEW.{key})" for key in keys
    )
    former = f"{gone}{', '.join(f'OLD.{key}' for key in keys)} WHERE {differ};"
    conflicts = [
        f"{gone}{', '.join(keys)} FROM {quoted(table.name)} WHERE {_conflict(one, table)};" for one in table.unique
    ]
    found = {
        "insert_keys": ("BEFORE INSERT", room, conflicts),
        "insert": ("AFTER INSERT", room, [written]),
        "update_keys": ("BEFORE UPDATE", f"{room}{_moves(table.unique)}", conflicts),
        "update": ("AFTER UPDATE", room, [former, written]),
        "delete": ("AFTER DELETE", room, [deleted]),
    }
    return {
        f"wormhole_{number}_{what}": f"CREATE TRIGGER wormhole_{number}_{what} {when} ON {quoted(table.name)} "
        f"WHEN {condition} BEGIN {' '.join(body)} END"
        for what, (when, condition, body) in found.items()
        if body
    }


def _moves(unique: Sequence[Unique]) -> str:
    """The condition on which an update may bring the row into conflict with another row."""
    if not all(one.columns_only for one in unique):
        return ""
    names = dict.fromkeys(quoted(name) for one in unique for name, _, _ in one.parts)
    changed = " OR ".join(f"OLD.{name} IS NOT NEW.{name} COLLATE BINARY" for name in names)
    return f" AND ({changed})"


def _conflict(one: Unique, table: Table) -> str:
    """The condition that selects the rows in conflict with the new row."""
    row = ", ".join(f"NEW.{quoted(name)} AS {quoted(name)}" for name in table.schema.names)
    conditions = []
    for text, expression, collation in one.parts:
        if expression:
            conditions.append(f"({text}) = (SELECT {text} FROM (SELECT {row})) COLLATE {collation}")
        else:
            conditions.append(f"{quoted(text)} = NEW.{quoted(text)} COLLATE {collation}")
    if one.where:
        conditions.append(f"({one.where})")
    return " AND ".join(conditions)


def _number(trigger: str) -> int:
    found = _NAME.fullmatch(trigger)
    return 0 if found is None else int(found[1])
