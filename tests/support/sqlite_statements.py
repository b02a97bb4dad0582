"""Statements at random for an SQLite database: everything that changes rows without naming them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from wormhole.ports.testing.images import LogImages
from wormhole.wire.rows import decode_row, values_of

__all__ = ["TABLES", "Statements", "delivered", "stored"]

TABLES: Final = """
CREATE TABLE plain (id INTEGER PRIMARY KEY, code TEXT UNIQUE, n INTEGER, twice INTEGER GENERATED ALWAYS AS (n * 2));
CREATE TABLE folded (name TEXT PRIMARY KEY NOT NULL COLLATE NOCASE, n INTEGER, UNIQUE (n) ON CONFLICT REPLACE);
CREATE TABLE pair (a TEXT NOT NULL COLLATE RTRIM, b BLOB NOT NULL, n REAL, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE loose (id NUMERIC PRIMARY KEY NOT NULL, n, on_day DATE);
CREATE UNIQUE INDEX loose_n ON loose (abs(n) COLLATE BINARY) WHERE n > 3;
CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES plain ON DELETE CASCADE ON UPDATE CASCADE, n);
CREATE TRIGGER raises AFTER INSERT ON plain BEGIN UPDATE plain SET n = n + 1 WHERE id = NEW.id; END;
CREATE TRIGGER follows BEFORE UPDATE ON folded BEGIN
    INSERT OR REPLACE INTO plain (id, code, n) VALUES (NEW.n % 3, 'of ' || NEW.name, NEW.n);
END;
CREATE TRIGGER moves AFTER INSERT ON child WHEN NEW.n = 4 BEGIN UPDATE child SET id = id + 20 WHERE id = NEW.id; END;
"""
_VERBS: Final = ("INSERT", "REPLACE", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL")
_UPDATES: Final = ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR REPLACE", "UPDATE OR IGNORE")


class Statements:
    """Runs transactions in ``connection``. The same seed runs the same statements."""

    def __init__(self, connection: sqlite3.Connection, seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._kinds: list[Callable[[], tuple[str, tuple[Any, ...]]]] = [
            *(self._insert, self._insert, self._upsert, self._update, self._update, self._delete),
        ]

    def transaction(self) -> None:
        """One transaction, or one that is rolled back, with savepoints in it."""
        execute, chance = self._connection.execute, self._random
        execute("BEGIN IMMEDIATE")
        for _ in range(chance.randint(1, 8)):
            if chance.random() < 0.3:
                execute("SAVEPOINT one")
                self._statement()
                self._statement()
                if chance.random() < 0.5:
                    execute("ROLLBACK TO one")
                execute("RELEASE one")
            self._statement()
        execute("COMMIT" if chance.random() < 0.85 else "ROLLBACK")

    def rebuild(self, table: str) -> None:
        """What a migration does that SQLite has no statement for: its triggers are gone afterwards."""
        (sql,) = self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        _, _, columns = sql.partition("(")
        self._connection.executescript(
            f"BEGIN; CREATE TABLE rebuilt ({columns}; INSERT INTO rebuilt SELECT * FROM {table}; DROP TABLE {table}; "
            f"ALTER TABLE rebuilt RENAME TO {table}; COMMIT"
        )

    def _statement(self) -> None:
        sql, values = self._random.choice(self._kinds)()
        try:
            self._connection.execute(sql, values)
        except sqlite3.IntegrityError:
            pass  # a conflict, which rolls the statement back

    def _row(self) -> tuple[str, str, tuple[Any, ...]]:
        chance, number = self._random, self._random.randint(0, 5)
        name = chance.choice(["a", "A", "b ", "b"])
        match chance.choice([0, 0, 1, 1, 2, 3, 4]):
            case 0:
                return "plain", "id, code, n", (chance.choice([None, number]), chance.choice([None, name]), number)
            case 1:
                return "folded", "name, n", (name, chance.choice([None, number]))
            case 2:
                return "pair", "a, b, n", (name, name.encode(), number / 2)
            case 3:
                key = chance.choice([number, number + 0.5, str(number), f"x{number}", (1 << 62) + number])
                return "loose", "id, n, on_day", (key, number, chance.choice([None, "2026-01-01"]))
            case _:
                return "child", "id, parent, n", (chance.choice([None, number]), chance.choice([None, number]), number)

    def _insert(self) -> tuple[str, tuple[Any, ...]]:
        table, columns, values = self._row()
        marks = ", ".join("?" * len(values))
        return f"{self._random.choice(_VERBS)} INTO {table} ({columns}) VALUES ({marks})", values

    def _upsert(self) -> tuple[str, tuple[Any, ...]]:
        table, columns, values = self._row()
        marks = ", ".join("?" * len(values))
        action = self._random.choice(["NOTHING", "UPDATE SET n = 5"])
        return f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT DO {action}", values

    def _update(self) -> tuple[str, tuple[Any, ...]]:
        table, columns, values = self._row()
        changed = self._random.choice(list(zip(columns.split(", "), values, strict=True)))
        where = self._random.choice(["1", "n > 3", *(f"n = {n}" for n in range(6))])
        return f"{self._random.choice(_UPDATES)} {table} SET {changed[0]} = ? WHERE {where}", (changed[1],)

    def _delete(self) -> tuple[str, tuple[Any, ...]]:
        table = self._row()[0]
        return f"DELETE FROM {table} WHERE n = ?", (self._random.randint(0, 5),)


def stored(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, sorted as text."""
    return {
        name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)
        for name in ("child", "folded", "loose", "pair", "plain")
    }


def delivered(images: LogImages) -> dict[str, list[tuple[Any, ...]]]:
    """The same from what a log's updates make of the tables."""
    return {
        name: sorted(
            (tuple(map(_plain, values_of(decode_row(row).after))) for row in images.rows(name).values()), key=repr
        )
        for name in ("child", "folded", "loose", "pair", "plain")
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
