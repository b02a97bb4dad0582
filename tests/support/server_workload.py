"""Writing to a database server: every column type that it has, in tables that change while they are written to.

What is done follows from the seed. In ``shop`` each update is one of a row that keeps its key; in ``stock`` keys change
and a table is emptied.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from examples.demo.database_server import DatabaseServer
from tests.support.mysql_differential import Session, Table
from tests.support.mysql_types import TYPES, Type, of_flavour

_COLUMNS: Final = 24
_ROWS: Final = 12
_TYPES: Final = {kind.name: kind for kind in TYPES}
_INT, _NAME = _TYPES["int"], _TYPES["varchar utf8mb4"]
_NOTE: Final = replace(
    _NAME, name="note", declared="VARCHAR(20) NOT NULL DEFAULT 'none'", edges=("'some'", "''", "'größe'")
)

DEFAULTS: Final[Mapping[str, Any]] = {"note": ["text", "none"]}
"""Defaults of the columns that have one; the others' is NULL."""


class Workload:
    """``image``: ``binlog_row_image`` of what is written. ``tables``: as they are now."""

    def __init__(self, server: DatabaseServer, image: str, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._session = Session(server, "shop")
        self._session.run("CREATE DATABASE stock", f"SET SESSION binlog_row_image = {image}")
        kinds = [kind for kind in of_flavour(server.flavour) if kind is not _INT]
        self.tables = [
            Table(f"shop.t{at // _COLUMNS}", {"id": _INT, **_named(kinds[at : at + _COLUMNS])}, ("id",))
            for at in range(0, len(kinds), _COLUMNS)
        ]
        self._moving = Table("stock.moving", {"place": _NAME, "slot": _INT, "held": _INT}, ("place", "slot"))
        self.tables.append(self._moving)
        self._run(*(table.ddl() for table in self.tables))

    def __enter__(self) -> Workload:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.__exit__(None, None, None)

    @property
    def session(self) -> Session:
        """To look at the tables with."""
        return self._session

    def fill(self) -> None:
        """Rows that hold what is worth storing of each type."""
        for table in self._shop():
            for number in range(_ROWS):
                values = [kind.edges[number % len(kind.edges)] for kind in _values(table)]
                self._run(f"INSERT INTO {table.name} VALUES ({', '.join([str(number), *values])})")
        for number in range(_ROWS):
            self._run(f"INSERT INTO stock.moving VALUES ('{'abc'[number % 3]}', {number}, 0)")

    def change(self, rounds: int) -> None:
        """Some columns of some rows, again and again; rows that go, and come back with fewer columns; transactions,
        some undone."""
        for _ in range(rounds):
            for table in self._shop():
                self._run("BEGIN", *(self._one(table) for _ in range(self._chance.randrange(1, 5))))
                self._run("ROLLBACK" if self._chance.random() < 0.1 else "COMMIT")
            number = self._chance.randrange(_ROWS)
            self._run(
                f"UPDATE stock.moving SET held = held + 1 WHERE slot = {number}",
                f"UPDATE stock.moving SET place = '{self._chance.choice('abcd')}' WHERE slot = {number}",
            )

    def enlarge(self) -> None:
        """A transaction larger than what is read of the log at a time: its updates travel in pieces."""
        for table in self._shop():
            for name in _names(table):
                if table.columns[name].name == "longblob":
                    self._run(f"UPDATE {table.name} SET {name} = REPEAT(CHAR(id), 65536)")

    def alter(self) -> None:
        """Each table of ``shop`` has a column more, before all others; the one of ``stock`` is emptied and filled
        again."""
        for at, table in enumerate(self.tables):
            if table in self._shop() and "note" not in table.columns:
                self._run(f"ALTER TABLE {table.name} ADD COLUMN note {_NOTE.declared} FIRST")
                self.tables[at] = replace(table, columns={"note": _NOTE, **table.columns})
        self._run("TRUNCATE TABLE stock.moving", "INSERT INTO stock.moving VALUES ('a', 1, 1), ('b', 2, 2)")

    def sign(self) -> dict[str, tuple[int, int]]:
        """One more change of each database; where the log ends behind it, as (number of the file, offset)."""
        ends = {}
        for table in (self.tables[0], self._moving):
            first = " AND ".join(f"{name} = 90" for name in table.key)
            self._run(
                "BEGIN",
                f"DELETE FROM {table.name} WHERE {first}",
                f"INSERT INTO {table.name} ({', '.join(table.key)}) VALUES ({', '.join('90' for _ in table.key)})",
                "COMMIT",
            )
            ends[table.name.partition(".")[0]] = self._session.place()
        return ends

    # -- inside

    def _shop(self) -> list[Table]:
        return [table for table in self.tables if table.name.startswith("shop.")]

    def _one(self, table: Table) -> str:
        number, what = self._chance.randrange(_ROWS + 4), self._chance.random()
        names = self._chance.sample(_names(table), 2)
        values = [self._chance.choice(table.columns[name].edges) for name in names]
        first = f"{names[0]} = {values[0]}"
        if what < 0.15:
            return f"DELETE FROM {table.name} WHERE id = {number}"
        if what < 0.25:  # with every column: the log of MariaDB tells no others of it (docs/mysql.md)
            row = [str(number), *(self._chance.choice(kind.edges) for kind in _values(table))]
            return f"REPLACE INTO {table.name} (id, {', '.join(_names(table))}) VALUES ({', '.join(row)})"
        if what < 0.45:
            return (
                f"INSERT INTO {table.name} (id, {names[1]}) VALUES ({number}, {values[1]}) ON DUPLICATE KEY UPDATE "
                f"{first}"
            )
        if what < 0.6:
            return f"UPDATE {table.name} SET {first} WHERE id % 5 = {number % 5}"
        return f"UPDATE {table.name} SET {first}, {names[1]} = {values[1]} WHERE id = {number}"

    def _run(self, *statements: str) -> None:
        self._session.run(*statements)


def _named(kinds: list[Type]) -> dict[str, Type]:
    return {f"c{at}": kind for at, kind in enumerate(kinds)}


def _names(table: Table) -> list[str]:
    return [name for name in table.columns if name != "id"]


def _values(table: Table) -> list[Type]:
    return [table.columns[name] for name in _names(table)]
