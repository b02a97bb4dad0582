"""Random tables: any types in any order in one table, any of them in its key, and random statements on its rows.

A `Dialect` is a small table of what one server's SQL needs. Everything else is the same for all servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any, Final, Protocol

import psycopg
import pymysql

from datastores.postgres.decode.kinds import SESSION_SETTINGS
from tests.support.databases import DatabaseServer
from tests.support.mysql_types import NULL, Shown, double, of_flavour
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_types import EXTENSIONS, SETUP, TYPES
from tests.support.table_scene import Scene, TableScene

__all__ = ["Column", "Dialect", "Kind", "MixedTable", "MySql", "Postgres", "fill", "random_table"]

_MOST_COLUMNS: Final = (1, 2, 3, 5, 8, 9, 12, 17, 24)
_LOSSY: Final = ("gbk", "ucs2", "sjis", "ujis", "utf16", "utf16le", "utf32", "eucjpms")
"""Character sets whose values hold bytes that are no characters: question marks in the log, and so no keys."""


@dataclass(frozen=True)
class Kind:
    """A column type. ``family``: types among which one is drawn, so that a rare one is drawn as often as one with many
    variants. ``values``: SQL of values. ``key``: the column's name within a primary key; empty: it cannot be in one.
    ``asked`` and ``shown``: how SELECT is asked for a value, and what its text means.
    """

    family: str
    declared: str
    values: tuple[str, ...]
    shown: Callable[[bytes], Shown]
    key: str = "{}"
    asked: str = "{}"


@dataclass(frozen=True)
class Column:
    """``written``: statements give it a value. ``optional``: the log may lack its value. ``lacking``: no update has
    it."""

    name: str
    kind: Kind
    more: str = ""
    written: bool = True
    optional: bool = False
    lacking: bool = False


@dataclass(frozen=True)
class MixedTable:
    """``columns`` in the table's order. ``hidden``: those that the server adds before and behind them, which SELECT
    shows by name. ``key``: the names of the primary key's columns. ``parts``: further lines of the definition.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    options: str = ""
    hidden: tuple[tuple[Column, ...], tuple[Column, ...]] = ((), ())
    after: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Column, ...]:
        """The columns that updates have, in the table's order."""
        listed = (*self.hidden[0], *self.columns, *self.hidden[1])
        return tuple(column for column in listed if not column.lacking)


class Dialect(Protocol):
    """One server. ``kinds``: its types; ``number``: its plain integer."""

    kinds: Sequence[Kind]
    number: Kind

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        """Its log and its tables."""
        ...

    def full_name(self, table: MixedTable) -> str:
        """What an update calls the table."""
        ...

    def quoted(self, name: str) -> str:
        """A name in SQL."""
        ...

    def variants(self, table: MixedTable, chance: Random) -> MixedTable:
        """The table with what only this server has: indexes, hidden and generated columns, identities."""
        ...

    def attempt(self, sql: str) -> bool:
        """Whether the server executes the statement; one that it refuses changes nothing."""
        ...

    def rows(self, table: MixedTable) -> list[dict[str, Shown]]:
        """What SELECT shows."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


# --- what is the same for all servers ----------------------------------------------------------------------------


def random_table(dialect: Dialect, name: str, chance: Random) -> MixedTable:
    """A table that the server has made."""
    families: dict[str, list[Kind]] = {}
    for kind in dialect.kinds:
        families.setdefault(kind.family, []).append(kind)
    drawn = [chance.choice(families[chance.choice(list(families))]) for _ in range(chance.choice(_MOST_COLUMNS))]
    columns = [Column(f"c{i}", kind) for i, kind in enumerate(drawn)]
    columns.insert(chance.randrange(len(columns) + 1), Column("n", dialect.number))
    possible = [column.name for column in columns if column.kind.key and column.name != "n"]
    key = chance.sample(possible, min(len(possible), chance.choice((0, 1, 1, 2))))
    key.insert(chance.randrange(len(key) + 1), "n")
    for names in (tuple(key), ("n",)):
        table = dialect.variants(MixedTable(name, tuple(columns), names if chance.randrange(8) else ()), chance)
        if dialect.attempt(_ddl(dialect, table)) and all(map(dialect.attempt, table.after)):
            return table
        dialect.attempt(f"DROP TABLE {name}")
    # Its rows would be too long, or have too many kinds of keys.
    return random_table(dialect, name, chance)


def _ddl(dialect: Dialect, table: MixedTable) -> str:
    kinds = {column.name: column.kind for column in table.columns}
    lines = [f"{dialect.quoted(c.name)} {c.kind.declared}{c.more}" for c in table.columns]
    if table.key:
        lines.append(f"PRIMARY KEY ({', '.join(kinds[name].key.format(dialect.quoted(name)) for name in table.key)})")
    return f"CREATE TABLE {table.name} ({', '.join((*lines, *table.parts))}) {table.options}"


def fill(dialect: Dialect, table: MixedTable, chance: Random, statements: int) -> int:
    """Write rows, change and delete some; returns how many statements the server executed."""
    written = [column for column in table.columns if column.written and column.name != "n"]
    names = ", ".join(map(dialect.quoted, ["n", *(column.name for column in written)]))
    done = 0
    for n in range(statements):
        # Numbers of rows that there are, mostly; each is drawn once for a new row.
        some = chance.randrange(-1, n + 1)
        match chance.choice(("insert", "insert", "insert", "update", "update", "many", "move", "delete")):
            case "insert":
                values = ", ".join([str(n), *(_value(column, chance) for column in written)])
                sql = f"INSERT INTO {table.name} ({names}) VALUES ({values})"
            case "update" | "many" as verb if written:
                changed = chance.sample(written, min(len(written), chance.choice((1, 1, 2, 4))))
                sets = ", ".join(f"{dialect.quoted(c.name)} = {_value(c, chance)}" for c in changed)
                sql = f"UPDATE {table.name} SET {sets} WHERE n {'=' if verb == 'update' else '>'} {some}"
            case "move":
                sql = f"UPDATE {table.name} SET n = {n + 1_000 * (-1) ** n} WHERE n = {some}"
            case _:
                sql = f"DELETE FROM {table.name} WHERE n = {some}"
        done += dialect.attempt(sql)
    return done


def _value(column: Column, chance: Random) -> str:
    return "NULL" if chance.randrange(6) == 0 else chance.choice(column.kind.values)


# --- MySQL and MariaDB -------------------------------------------------------------------------------------------


def _mysql_kinds(flavour: str) -> list[Kind]:
    found = []
    for type_ in of_flavour(flavour):
        family = type_.declared.partition("(")[0].partition(" CHARACTER")[0]
        lossy = type_.name.rpartition(" ")[2] in _LOSSY or type_.declared.rpartition(" ")[2] in _LOSSY
        found.append(Kind(family, type_.declared, type_.edges, type_.shown, "" if lossy else type_.key, type_.asked))
    return found


_HIDING: Final = {
    "mysql": ("show_gipk_in_create_table_and_information_schema = OFF",),
    "mariadb": ("system_versioning_asof = '2001-01-01 00:00:00'",),
}
"""Defaults of new sessions that hide columns or rows; the one that writes and compares began before."""


class MySql:
    """MySQL, or MariaDB."""

    database: Final = "mixed"

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._mariadb = server.flavour == "mariadb"
        self.kinds: Sequence[Kind] = _mysql_kinds(server.flavour)
        self.number = next(kind for kind in self.kinds if kind.declared == "INT")
        self._moment = next(kind for kind in self.kinds if kind.declared == "TIMESTAMP(6)")
        self._row_id = next(kind for kind in self.kinds if kind.declared == "BIGINT UNSIGNED")
        self._connection = server.connect(use_unicode=False, conv={})
        for setting in _HIDING[server.flavour]:
            self._run(f"SET GLOBAL {setting}")
        self._run(f"DROP DATABASE IF EXISTS {self.database}")
        self._run(f"CREATE DATABASE {self.database}")
        self._run(f"USE {self.database}")
        self._run("SET SESSION sql_mode = '', time_zone = '+00:00', innodb_strict_mode = OFF")

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        with TableScene(self._server) as scene:
            yield scene

    def full_name(self, table: MixedTable) -> str:
        return f"{self.database}.{table.name}"

    def quoted(self, name: str) -> str:
        return f"`{name}`"

    def variants(self, table: MixedTable, chance: Random) -> MixedTable:
        columns = [
            replace(column, more=" INVISIBLE") if chance.randrange(9) == 0 and column.name != "n" else column
            for column in table.columns
        ]
        if chance.randrange(3) == 0:
            stored = chance.randrange(2) == 0
            made = replace(self.number, declared=f"INT AS (n + 1) {'STORED' if stored else 'VIRTUAL'}", key="")
            columns.insert(chance.randrange(len(columns) + 1), Column("made", made, written=False, optional=not stored))
        table = replace(table, columns=tuple(columns), parts=self._indexes(columns, chance))
        if self._mariadb and chance.randrange(4) == 0:
            hidden = tuple(Column(name, self._moment, written=False) for name in ("row_start", "row_end"))
            table = replace(table, options="WITH SYSTEM VERSIONING", hidden=((), hidden))
        if not self._mariadb:
            generated = not table.key and chance.randrange(2) == 0
            self._run(f"SET SESSION sql_generate_invisible_primary_key = {int(generated)}")
            if generated:
                row_id = Column("my_row_id", self._row_id, written=False)
                table = replace(table, hidden=((row_id,), ()))
        return table

    def _indexes(self, columns: Sequence[Column], chance: Random) -> tuple[str, ...]:
        parts = []
        some = chance.choice([column for column in columns if column.written])
        if chance.randrange(3) == 0:  # MariaDB also takes whole texts, by a hash in a column that SELECT does not show
            parts.append(f"UNIQUE KEY u (`{some.name}`)")
        if not self._mariadb and chance.randrange(3) == 0:
            parts.append("KEY f ((n * 2))")
        return tuple(parts)

    def attempt(self, sql: str) -> bool:
        with contextlib.suppress(pymysql.MySQLError):
            self._run(sql)
            return True
        return False

    def rows(self, table: MixedTable) -> list[dict[str, Shown]]:
        asked = ", ".join(column.kind.asked.format(f"`{column.name}`") for column in table.all)
        return [
            {
                column.name: NULL if raw is None else column.kind.shown(raw)
                for column, raw in zip(table.all, row, strict=True)
            }
            for row in self._run(f"SELECT {asked} FROM {table.name}")
        ]

    def close(self) -> None:
        self._connection.close()

    def _run(self, sql: str) -> list[tuple[bytes | None, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


# --- PostgreSQL --------------------------------------------------------------------------------------------------

_TYPED: Final[Mapping[str, Callable[[str], object]]] = {
    "bool": lambda text: text == "t",
    **dict.fromkeys(("int2", "int4", "int8", "oid", "xid", "cid", "xid8", "positive", "more_positive"), int),
    **dict.fromkeys(("numeric", "price"), Decimal),
    **dict.fromkeys(("float4", "float8"), float),
    **dict.fromkeys(("bytea", "raw"), lambda text: bytes.fromhex(text[2:])),
}


def _postgres_shown(kind: str) -> Callable[[bytes], Shown]:
    read = str if kind.endswith("[]") else _TYPED.get(kind.partition("(")[0], str)

    def shown(raw: bytes) -> Shown:
        value = read(raw.decode())
        match value:
            case bool() | bytes():
                return type(value).__name__, value
            case int():
                return ("uint" if value >> 63 > 0 else "int"), value
            case float():
                return double(value)
            case Decimal() if value.is_finite():
                return "decimal", raw.decode()
        return "text", raw.decode()

    return shown


def _postgres_kinds() -> list[Kind]:
    found = []
    for name, values in TYPES.items():
        family = "an array" if name.endswith("[]") else name.partition("(")[0]
        literals = tuple("'{}'::{}".format(value.replace("'", "''"), name) for value in values)
        found.append(Kind(family, name, literals, _postgres_shown(name)))
    return found


@dataclass
class Postgres:
    """A database of a PostgreSQL server."""

    server: PostgresServer
    database: str
    kinds: Sequence[Kind] = field(default_factory=_postgres_kinds)

    def __post_init__(self) -> None:
        self.number = next(kind for kind in self.kinds if kind.declared == "int4")
        options = " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in SESSION_SETTINGS.items())
        self.server.sql(*(f"CREATE EXTENSION {name}" for name in EXTENSIONS), *SETUP, database=self.database)
        self._connection: psycopg.Connection[Any] = self.server.connect(self.database, options=options)
        self._connection.execute("SET search_path = public")
        self._connection.execute("SET lc_monetary = 'C'")
        # What SELECT shows: names of types are qualified, as in the log.
        self._reading: psycopg.Connection[Any] = self.server.connect(self.database, options=options)

    @contextlib.contextmanager
    def scene(self) -> Iterator[Scene]:
        with PostgresScene(self.server, self.database) as scene:
            yield scene

    def full_name(self, table: MixedTable) -> str:
        return f"public.{table.name}"

    def quoted(self, name: str) -> str:
        return f'"{name}"'

    def variants(self, table: MixedTable, chance: Random) -> MixedTable:
        columns = list(table.columns)
        after = []
        if chance.randrange(4) == 0:
            made = replace(self.number, declared="int GENERATED ALWAYS AS (n + 1) STORED", key="")
            columns.insert(chance.randrange(len(columns) + 1), Column("made", made, written=False, lacking=True))
        if chance.randrange(4) == 0:
            columns.insert(chance.randrange(len(columns) + 1), Column("gone", self.number, written=False, lacking=True))
            after.append(f"ALTER TABLE {table.name} DROP gone")
        unique = [column.name for column in columns if column.name in table.key]
        identity = "FULL" if not table.key or chance.randrange(3) == 0 else "DEFAULT"
        if unique and chance.randrange(4) == 0:
            after += [
                *(f'ALTER TABLE {table.name} ALTER "{name}" SET NOT NULL' for name in unique),
                f"CREATE UNIQUE INDEX {table.name}_u ON {table.name} ({', '.join(map(self.quoted, unique))})",
                f"ALTER TABLE {table.name} REPLICA IDENTITY USING INDEX {table.name}_u",
            ]
        else:
            after.append(f"ALTER TABLE {table.name} REPLICA IDENTITY {identity}")
        return replace(table, columns=tuple(columns), after=tuple(after))

    def attempt(self, sql: str) -> bool:
        with contextlib.suppress(psycopg.Error):
            self._connection.execute(sql.encode())
            return True
        return False

    def rows(self, table: MixedTable) -> list[dict[str, Shown]]:
        asked = ", ".join(self.quoted(column.name) for column in table.all)
        cursor = self._reading.execute(f"SELECT {asked} FROM public.{table.name}".encode(), binary=False)
        result = cursor.pgresult
        assert result is not None
        return [
            {
                column.name: NULL if (raw := result.get_value(row, at)) is None else column.kind.shown(raw)
                for at, column in enumerate(table.all)
            }
            for row in range(result.ntuples)
        ]

    def close(self) -> None:
        self._connection.close()
        self._reading.close()
