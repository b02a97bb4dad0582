"""Tables of SQL targets in every dialect: what is made, what is read of existing ones, and what these hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any, Final

import pytest

from datastores.mysql.existing_rows.definition import Listed, read_definition
from datastores.mysql.server.address import parse
from datastores.mysql.server.connection import connect
from datastores.postgres.decode.kinds import SCHEMA_TYPES, kind_of
from scripts.sink_types import MYSQL, NATIVE, POSTGRES, SourceType
from sinks.sql.schema import (
    Dialect,
    Options,
    Plan,
    TableName,
    TargetTable,
    plan,
    quoted,
    reader,
    selected,
    wanted,
    writer,
)
from sinks.sql.schema.fitting import fit
from tests.support.databases import DatabaseServer
from tests.support.mysql_types import shortest
from tests.support.postgres_server import PostgresServer
from tests.support.seed import SEED
from tests.support.sql_dialects import Database
from wormhole.model.errors import TargetRefused
from wormhole.model.schema import Column, Schema

NAME: Final = TableName(None, "target")
LONG: Final = "é€😀" * 30_000

VALUES: Final[dict[str, list[Any]]] = {
    "bytes": [b"", b"\x00\xff", bytes(range(256)) * 300],
    "text": ["", "a'\"`\\%s :x", "Zürich 日本 😀", " both ", LONG],
    "int": [0, -1, (1 << 63) - 1, -(1 << 63)],
    "uint": [0, (1 << 63) - 1],
    "double": [0.0, 0.1, -1.5e300, 5e-324],
    "bool": [True, False],
    "decimal": [
        Decimal(0),
        Decimal("1.50"),
        Decimal("-12345678901234567890123456789012345.6789012345678901234567890"),
    ],
    "entries": [{b"": b"plain", b"\xff": b"\x00"}, {}],
    "hash": ["0" * 64],
}
"""Values of each type of a schema that every dialect holds."""
OTHERS: Final[dict[Dialect, dict[str, list[Any]]]] = {
    Dialect.POSTGRES: {
        "uint": [(1 << 64) - 1],
        "double": [float("inf"), float("-inf")],
        "decimal": ["NaN", "Infinity", Decimal("1e-200")],
    },
    Dialect.MYSQL: {"uint": [(1 << 64) - 1], "text": ["\0"]},
    Dialect.MARIADB: {"uint": [(1 << 64) - 1], "text": ["\0"]},
    Dialect.SQLITE: {"double": [float("inf")], "decimal": ["NaN", Decimal("1e-200")], "text": ["\0", b"\xff"]},
    Dialect.DUCKDB: {"uint": [(1 << 64) - 1], "double": [float("inf")], "decimal": ["NaN"], "text": ["\0"]},
}
"""More values that some hold."""
REFUSED: Final[dict[Dialect, dict[str, list[Any]]]] = {
    Dialect.POSTGRES: {"text": ["a\0", b"\xff"]},
    Dialect.MYSQL: {"double": [float("nan"), float("inf")], "decimal": ["NaN", Decimal(10) ** 35, Decimal("1e-31")]},
    Dialect.SQLITE: {"uint": [(1 << 63) + 5], "double": [float("nan")]},
    Dialect.DUCKDB: {"text": [b"\xff"]},
}
"""Values that are refused before they reach the server."""


def schema(key: Sequence[tuple[str, str]] = (("id", "int"),), **columns: str) -> Schema:
    """``columns``: their types by name."""
    return Schema("shop.orders", tuple(Column(*each) for each in key), tuple(Column(*each) for each in columns.items()))


def target(database: Database, of: Schema, options: Options = Options()) -> TargetTable:  # noqa: B008 - frozen
    return wanted(of, NAME, database.dialect, options)


def applied(database: Database, of: Schema) -> Plan:
    """Bring the table to the schema; a second plan finds nothing more to do."""
    goal = target(database, of)
    made = plan(goal, database.table(), database.dialect)
    assert made.refused == ""
    for statement in made.statements:
        database.run(statement)
    again = plan(goal, database.table(), database.dialect)
    assert (again.refused, again.statements) == ("", ())
    return made


def put(database: Database, of: Schema, *rows: dict[str, Any]) -> None:
    """Insert rows of the source as the sink does; a missing column is not written."""
    table = database.table()
    assert table is not None
    types = {column.name: column.type for column in (*of.key, *of.columns)}
    for row in rows:
        values = []
        for name, value in row.items():
            column = table.column(name)
            assert column is not None
            make = writer(types[name], column, database.dialect)
            values.append(value if make is None else make(value))
        names = ", ".join(quoted(name, database.dialect) for name in row)
        marks = ", ".join(["%s"] * len(row))
        database.run(f"INSERT INTO {NAME.quoted(database.dialect)} ({names}) VALUES ({marks})", values)


def got(database: Database, name: str, generic: str) -> list[Any]:
    """The values of a column, as the sink compares them with the source's, in the order of ``id``."""
    table = database.table()
    assert table is not None
    column = table.column(name)
    assert column is not None
    back = reader(generic, column, database.dialect)
    rows = database.run(f"SELECT {selected(column, database.dialect)} FROM target ORDER BY id")
    return [value if back is None else back(value) for (value,) in rows]


def test_what_was_made_needs_no_change(sql_database: Database) -> None:
    types = {f"c_{type_}": type_ for type_ in VALUES}
    for key in ([("id", "int")], [("a", "text"), ("B c", "bytes"), ("d", "decimal"), ("e", "uint"), ("f", "text")]):
        for options in (Options(), Options(soft_delete=True, merge="by_source"), Options(merge="global")):
            goal = target(sql_database, schema(key, **types), options)
            (create,) = plan(goal, None, sql_database.dialect).statements
            sql_database.run(create)
            there = sql_database.table()
            assert there is not None
            assert there.key == goal.key
            again = plan(goal, there, sql_database.dialect)
            assert (again.statements, again.refused, again.kept, again.stale) == ((), "", (), False)
            assert not [loss for loss in again.losses if "_wormhole_" in loss]
            sql_database.run("DROP TABLE target")


@pytest.mark.parametrize("generic", list(VALUES))
def test_every_value_comes_back(sql_database: Database, generic: str) -> None:
    of = schema(value=generic)
    applied(sql_database, of)
    values = [*VALUES[generic], *OTHERS[sql_database.dialect].get(generic, []), None]
    put(sql_database, of, *({"id": place, "value": value} for place, value in enumerate(values)))
    back = got(sql_database, "value", generic)
    assert [ours == theirs for ours, theirs in zip(values, back, strict=True)] == [True] * len(values), back


def test_what_a_dialect_cannot_hold_is_refused_without_its_value(sql_database: Database) -> None:
    kinds = REFUSED.get(sql_database.dialect, REFUSED[Dialect.MYSQL])
    for generic, values in kinds.items():
        table = target(sql_database, schema(value=generic))
        sql_database.run(plan(table, None, sql_database.dialect).statements[0])
        there = sql_database.table()
        assert there is not None
        column = there.column("value")
        assert column is not None
        make = writer(generic, column, sql_database.dialect)
        assert make is not None
        for value in values:
            with pytest.raises(ValueError) as refused:
                make(value)
            assert isinstance(value, float | str) or str(value) not in str(refused.value)
        sql_database.run("DROP TABLE target")


def test_keys_are_equal_only_byte_for_byte(sql_database: Database) -> None:
    of = schema([("id", "text"), ("more", "bytes")], value="int")
    applied(sql_database, of)
    keys = ["a", "A", "a ", "á", "a\u0301", "ß", "ss", "", " "]
    rows = [{"id": text, "more": more, "value": 1} for text in keys for more in (b"x", b"X", b"x\0", b"x ")]
    put(sql_database, of, *rows)
    assert sorted(set(got(sql_database, "id", "text"))) == sorted(keys)
    assert len(got(sql_database, "id", "text")) == len(rows)


def test_a_long_key_fits_the_index(sql_database: Database) -> None:
    of = schema([("id", "text"), ("more", "text"), ("n", "int")])
    applied(sql_database, of)
    put(sql_database, of, {"id": "😀" * 300, "more": "é" * 300, "n": 1})
    assert got(sql_database, "id", "text") == ["😀" * 300]


def test_columns_are_added_kept_and_widened(sql_database: Database) -> None:
    first = schema(gone="text", number="int", whole="int", flag="bool", code="text", stays="int")
    applied(sql_database, first)
    put(
        sql_database,
        first,
        {"id": 1, "gone": "x", "number": -7, "whole": (1 << 63) - 1, "flag": True, "code": "é", "stays": 5},
    )
    second = schema(number="text", whole="decimal", flag="text", code="bytes", stays="int", new="double")
    made = applied(sql_database, second)
    assert made.stale
    assert made.kept == ("gone",)
    assert got(sql_database, "number", "text") == ["-7"]
    assert got(sql_database, "whole", "decimal") == [Decimal((1 << 63) - 1)]
    assert got(sql_database, "code", "bytes") == ["é".encode()]
    assert got(sql_database, "gone", "text") == ["x"]
    assert got(sql_database, "new", "double") == [None]
    put(
        sql_database,
        second,
        {"id": 2, "number": "007", "whole": Decimal("1.5"), "flag": "t", "code": b"\xff", "stays": 6, "new": 0.5},
    )
    assert got(sql_database, "number", "text") == ["-7", "007"]
    assert got(sql_database, "whole", "decimal")[1] == Decimal("1.5")
    # A flow that is behind still has the first schema: nothing has to be undone for it.
    behind = plan(target(sql_database, first), sql_database.table(), sql_database.dialect)
    assert behind.statements == ()


def test_columns_of_our_own_are_added_to_a_table_with_rows(sql_database: Database) -> None:
    sql_database.run("CREATE TABLE target (id BIGINT NOT NULL PRIMARY KEY)")
    sql_database.run("INSERT INTO target VALUES (1)")
    goal = target(sql_database, schema(), Options(soft_delete=True))
    made = plan(goal, sql_database.table(), sql_database.dialect)
    assert not made.stale
    for statement in made.statements:
        sql_database.run(statement)
    shown = sql_database.run("SELECT _wormhole_shard, _wormhole_generation, _wormhole_deleted FROM target")
    assert shown == [("", 0, False)]


def test_another_key_halts_the_table_until_the_operator_has_changed_it(sql_database: Database) -> None:
    applied(sql_database, schema(code="int"))
    goal = target(sql_database, schema([("id", "int"), ("code", "int")]))
    made = plan(goal, sql_database.table(), sql_database.dialect)
    assert "its key is id, and the source's is id, code" in made.refused
    assert made.statements == ()
    for statement in made.helping:
        sql_database.run(statement)
    after = plan(goal, sql_database.table(), sql_database.dialect)
    assert after.refused == ""


OBSTACLES: Final = {
    "unique index on code": "CREATE TABLE target (id BIGINT PRIMARY KEY{nn}, code INT UNIQUE)",
    "NOT NULL without a default": "CREATE TABLE target (id BIGINT PRIMARY KEY{nn}, code INT, own INT NOT NULL)",
    "column code is": "CREATE TABLE target (id BIGINT PRIMARY KEY{nn}, code {bytes})",
    "its key is none": "CREATE TABLE target (id BIGINT NOT NULL, code INT)",
    "is generated": "CREATE TABLE target (id BIGINT PRIMARY KEY{nn}, code INT GENERATED ALWAYS AS (1 + 1) {stored})",
}


@pytest.mark.parametrize("what", list(OBSTACLES))
def test_what_would_misdirect_writes_is_refused_with_the_statement_that_helps(
    sql_database: Database, what: str
) -> None:
    statement = OBSTACLES[what]
    kind = {Dialect.POSTGRES: "BYTEA", Dialect.MYSQL: "JSON", Dialect.MARIADB: "DATE"}.get(sql_database.dialect, "BLOB")
    stored = "" if sql_database.dialect is Dialect.DUCKDB else "STORED"
    sql_database.run(statement.format(nn=" NOT NULL", bytes=kind, stored=stored))
    goal = target(sql_database, schema(code="int"))
    made = plan(goal, sql_database.table(), sql_database.dialect)
    assert what in made.refused
    for helping in made.helping:
        sql_database.run(helping)
    there = sql_database.table()
    assert plan(goal, there, sql_database.dialect).refused == ""


def test_a_foreign_key_is_refused(sql_database: Database) -> None:
    sql_database.run("CREATE TABLE other (id INT PRIMARY KEY)")
    sql_database.run(
        "CREATE TABLE target (id BIGINT PRIMARY KEY, code INT, "
        "CONSTRAINT points FOREIGN KEY (code) REFERENCES other (id))"
    )
    goal = target(sql_database, schema(code="int"))
    made = plan(goal, sql_database.table(), sql_database.dialect)
    # SQLite enforces foreign keys only for connections that ask for it; the sink does not.
    assert ("foreign key" in made.refused) != (sql_database.dialect is Dialect.SQLITE)
    for helping in made.helping:
        sql_database.run(helping)
    assert plan(goal, sql_database.table(), sql_database.dialect).refused == ""


def test_a_view_is_no_table(sql_database: Database) -> None:
    sql_database.run("CREATE VIEW target AS SELECT 1 AS id")
    with pytest.raises(TargetRefused, match="target in the target is a view"):
        sql_database.table()
    assert sql_database.table("missing") is None


OF_USERS: Final[dict[Dialect, list[tuple[str, str, str, Any, Any]]]] = {
    Dialect.POSTGRES: [
        ("VARCHAR(3)", "text", "refuses: more than 3 characters", "a  ", "a  "),
        ("CHAR(3)", "text", "loses: spaces at the end", "a ", "a"),
        ("TIMESTAMP(0)", "text", "loses: a second has 0 digits", "2024-01-01 00:00:00.6", "2024-01-01 00:00:01"),
        ("TIMESTAMP", "text", "refuses: text that is no", "2024-01-01 00:00:00.600", "2024-01-01 00:00:00.600"),
        ("TIMESTAMPTZ", "text", "refuses: text that is no", "2024-01-01 00:00:00", "2024-01-01 00:00:00+00"),
        ("DATE", "text", "loses: what date does not hold", "2024-01-01 12:00:00", "2024-01-01"),
        ("JSONB", "text", "refuses: text that is no JSON", '{"b":[1.50],"a":1}', '{"a": 1, "b": [1.50]}'),
        ("UUID", "text", "refuses", "A0EEBC999C0B4EF8BB6D6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("INT[]", "text", "refuses: text that is no integer[]", "{1,NULL}", "{1,NULL}"),
        ("BYTEA", "text", "", "é", "é"),
        (
            "NUMERIC(5,2)",
            "decimal",
            "refuses: over 3 digits before the point, 2",
            Decimal("1.5"),
            Decimal("1.50"),
        ),
        ("NUMERIC(5,2)", "double", "refuses: over 3 digits", 1.25, 1.25),
        ("NUMERIC", "double", "", 0.1, 0.1),
        ("REAL", "double", "loses: numbers with more digits", 16777217.0, 16777216.0),
        ("DOUBLE PRECISION", "int", "loses", (1 << 53) + 1, 1 << 53),
        ("INTEGER", "int", "refuses: numbers outside of -2147483648 to 2147483647", -5, -5),
        ("NUMERIC(5,2)", "int", "refuses: numbers of more than 3 digits", 5, 5),
        ("BOOLEAN", "int", "refuses: numbers other than 0 and 1", 1, True),
        ("TEXT", "int", "", -5, -5),
        ("TEXT", "double", "", 0.1, 0.1),
        ("TEXT", "bool", "", False, False),
        ("TEXT", "decimal", "", Decimal("1E+3"), Decimal(1000)),
        ("INTEGER", "bool", "", True, 1),
    ],
    Dialect.MYSQL: [
        ("VARCHAR(3)", "text", "refuses: more than 3 characters", "a  ", "a  "),
        ("CHAR(3)", "text", "loses: spaces at the end", "a ", "a"),
        ("DATETIME", "text", "loses: a second has 0 digits", "2024-01-01 00:00:00.4", "2024-01-01 00:00:00"),
        ("DATETIME(6)", "text", "refuses: text that is no", "2024-01-01 00:00:00.600", "2024-01-01 00:00:00.600"),
        ("TIMESTAMP(6)", "text", "refuses", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000000"),
        ("TIME(6)", "text", "loses: what time(6) does not hold", "-838:59:59", "-838:59:59.000000"),
        ("DATE", "text", "loses: what date does not hold", "2024-01-01 12:00:00", "2024-01-01"),
        ("VARBINARY(9)", "text", "refuses: more than 9 bytes", "é", "é"),
        ("BINARY(3)", "bytes", "loses: fewer than 3 bytes", b"a", b"a\0\0"),
        ("ENUM('a','b')", "text", "loses: text that is the number of a member", "b", "b"),
        (
            "DECIMAL(5,2)",
            "decimal",
            "refuses: over 3 digits before the point, 2",
            Decimal("1.5"),
            Decimal("1.50"),
        ),
        ("DOUBLE", "double", "refuses: NaN and infinities", 0.1, 0.1),
        ("FLOAT", "double", "loses", 16777217.0, 16777216.0),
        ("FLOAT", "double", "loses", 0.1, 0.1),
        ("FLOAT", "decimal", "loses", Decimal("0.1"), Decimal("0.1")),
        ("DOUBLE(20,4)", "double", "loses: numbers of more than 4 digits", 1.84006, 1.8401),
        ("DOUBLE(20,4)", "double", "loses", 1.84, 1.84),
        ("DOUBLE(20,4)", "decimal", "loses", Decimal("1.84"), Decimal("1.84")),
        ("SMALLINT UNSIGNED", "uint", "refuses: numbers outside of 0 to 65535", 65535, 65535),
        ("BIT(8)", "uint", "refuses: numbers outside of 0 to 255", 255, 255),
        ("YEAR", "int", "refuses: numbers outside of 1901 to 2155", 2024, 2024),
        ("TEXT", "text", "refuses: more than 65535", "é", "é"),
    ],
    Dialect.SQLITE: [
        ("VARCHAR(3)", "text", "", "abcd", "abcd"),
        ("DATETIME", "text", "refuses", "2024-01-01 00:00:00.600", "2024-01-01 00:00:00.600"),
        ("BLOB", "text", "", "é", "é"),
        ("BOOLEAN", "bool", "", True, 1),
        ("NUMERIC(30,20)", "decimal", "loses", Decimal("0.12345678901234567890"), Decimal("0.12345678901234568")),
        ("REAL", "int", "loses", (1 << 53) + 1, 1 << 53),
        ("TEXT", "uint", "", (1 << 64) - 1, (1 << 64) - 1),
    ],
    Dialect.DUCKDB: [
        ("TIMESTAMP", "text", "refuses: text that is no", "2024-01-01 00:00:00.600", "2024-01-01 00:00:00.600"),
        ("TIMESTAMP_S", "text", "loses: a second has 0 digits", "2024-01-01 00:00:00.4", "2024-01-01 00:00:00"),
        ("DATE", "text", "loses: what DATE does not hold", "2024-01-01", "2024-01-01"),
        ("UUID", "text", "refuses", "A0EEBC999C0B4EF8BB6D6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("INTEGER[]", "text", "refuses: text that is no INTEGER[]", "[1, NULL]", "[1, NULL]"),
        (
            "DECIMAL(5,2)",
            "decimal",
            "refuses: over 3 digits before the point, 2",
            Decimal("1.5"),
            Decimal("1.50"),
        ),
        ("HUGEINT", "uint", "", (1 << 64) - 1, (1 << 64) - 1),
        ("INTEGER", "int", "refuses: numbers outside", 5, 5),
        ("FLOAT", "double", "loses", 16777217.0, 16777216.0),
        ("VARCHAR", "double", "", 0.1, 0.1),
        ("BLOB", "text", "", "é", "é"),
    ],
}
"""Columns that a user may have made: type, arriving type, what is reported, a value, and what is held of it."""


def test_columns_of_users_are_used_and_their_losses_reported(sql_database: Database) -> None:
    same = Dialect.MYSQL if sql_database.dialect.is_mysql else sql_database.dialect
    cases = OF_USERS[same]
    columns = ", ".join(f"c{place} {type_}" for place, (type_, *_) in enumerate(cases))
    sql_database.run(f"CREATE TABLE target (id BIGINT NOT NULL PRIMARY KEY, {columns})")
    generics: dict[str, str] = {f"c{place}": generic for place, (_, generic, *_) in enumerate(cases)}
    of = schema([("id", "int")], **generics)
    made = applied(sql_database, of)
    losses = {loss.split()[1]: loss for loss in made.losses}
    put(sql_database, of, {"id": 1, **{f"c{place}": value for place, (_, _, _, value, _) in enumerate(cases)}})
    for place, (type_, generic, reported, value, held) in enumerate(cases):
        name = f"c{place}"
        assert reported in losses.get(name, ""), (type_, losses.get(name))
        assert (name in losses) == bool(reported), type_
        (back,) = got(sql_database, name, generic)
        assert back == held, type_
        if "loses" not in reported:
            assert back == value, type_
    there = sql_database.table()
    assert there is not None
    for column in there.columns:  # an array of values is cast
        if sql_database.dialect is Dialect.POSTGRES and column.type.startswith("character"):
            assert sql_database.run(f"SELECT 'abcdef'::{column.cast}") == [("abcdef",)]


FLOATING: Final[dict[Dialect, list[str]]] = {
    Dialect.POSTGRES: ["REAL", "DOUBLE PRECISION"],
    Dialect.MYSQL: ["FLOAT", "FLOAT(10,2)", "DOUBLE", "DOUBLE(20,4)", "DOUBLE(20,0)"],
    Dialect.SQLITE: ["REAL"],
    Dialect.DUCKDB: ["FLOAT", "DOUBLE"],
}
_AS_STORED: Final = {Dialect.MYSQL: "CAST({} AS DOUBLE)", Dialect.DUCKDB: "CAST({} AS DOUBLE)"}
_FLOATING: Final = [
    "0",
    "1.84",
    "-1.84",
    "36.987",
    "0.1",
    "16777216",
    "-12345678.9",
    "1234567.89",
    "0.30000000000000004",
]


def test_numbers_that_a_column_of_the_same_type_has_come_back(sql_database: Database) -> None:
    """A column that has D decimals stores other bits than the number that it shows, and so does one of four bytes."""
    dialect = Dialect.MYSQL if sql_database.dialect.is_mysql else sql_database.dialect
    chance = random.Random(SEED)
    numbers = [*_FLOATING, *(f"{chance.uniform(-1e6, 1e6):.{chance.randrange(9)}f}" for _ in range(300))]
    types = {f"c{place}": type_ for place, type_ in enumerate(FLOATING[dialect])}
    columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    of = schema([("id", "int")], **dict.fromkeys(types, "double"))
    for table in ("origin", "target"):
        sql_database.run(f"CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, {columns})")
    for place, number in enumerate(numbers):
        sql_database.run(f"INSERT INTO origin VALUES ({place}{f', {number}' * len(types)})")
    applied(sql_database, of)
    asked = ", ".join(_AS_STORED.get(dialect, "{}").format(name) for name in types)
    rows = sql_database.run(f"SELECT id, {asked} FROM origin ORDER BY id")
    singles = {name for name, type_ in types.items() if type_.startswith(("FLOAT", "REAL"))}
    singles = singles if dialect is not Dialect.SQLITE else set()
    arrived = [
        {name: shortest(v) if name in singles else v for name, v in zip(types, row[1:], strict=True)} for row in rows
    ]
    put(sql_database, of, *({"id": place, **row} for place, row in enumerate(arrived)))
    for name, type_ in types.items():
        assert not sql_database.run(f"SELECT 1 FROM origin o JOIN target t ON t.id = o.id WHERE t.{name} <> o.{name}")
        back = got(sql_database, name, "double")
        assert [(row[name], b) for row, b in zip(arrived, back, strict=True) if row[name] != b] == [], type_


INEXACT: Final = {
    Dialect.POSTGRES: ["CHAR(9)", "INET", "JSONB"],
    Dialect.MYSQL: ["VARCHAR(9) COLLATE utf8mb4_bin", "VARCHAR(9) COLLATE utf8mb4_0900_ai_ci", "CHAR(9)"],
    Dialect.MARIADB: ["VARCHAR(9) COLLATE utf8mb4_bin", "VARCHAR(9) COLLATE utf8mb4_general_ci", "CHAR(9)"],
    Dialect.SQLITE: ["TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM"],
    Dialect.DUCKDB: ["VARCHAR COLLATE NOCASE"],
}


def test_a_key_that_makes_two_values_equal_is_refused(sql_database: Database) -> None:
    if sql_database.dialect is Dialect.POSTGRES:
        sql_database.run("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    own = ["TEXT COLLATE ci"] if sql_database.dialect is Dialect.POSTGRES else []
    goal = target(sql_database, schema([("id", "text")]))
    for type_ in (*INEXACT[sql_database.dialect], *own):
        sql_database.run(f"CREATE TABLE target (id {type_} NOT NULL PRIMARY KEY)")
        made = plan(goal, sql_database.table(), sql_database.dialect)
        assert "two keys of the source can be equal in it" in made.refused, type_
        (drop,) = made.helping
        sql_database.run(drop)
        assert sql_database.table() is None


def test_a_key_that_rounds_is_refused(sql_database: Database) -> None:
    goal = target(sql_database, schema([("id", "double")]))
    for type_ in FLOATING[Dialect.MYSQL if sql_database.dialect.is_mysql else sql_database.dialect]:
        sql_database.run(f"CREATE TABLE target (id {type_} NOT NULL PRIMARY KEY)")
        made = plan(goal, sql_database.table(), sql_database.dialect)
        holds_all = type_ in ("DOUBLE", "DOUBLE PRECISION") or sql_database.dialect is Dialect.SQLITE
        assert ("two keys of the source can be equal in it" in made.refused) != holds_all, type_
        sql_database.run("DROP TABLE target")


def test_a_table_that_a_crash_may_empty_or_that_has_no_transactions_is_refused(sql_database: Database) -> None:
    statements = {
        Dialect.POSTGRES: "CREATE UNLOGGED TABLE target (id BIGINT PRIMARY KEY)",
        Dialect.MYSQL: "CREATE TABLE target (id BIGINT PRIMARY KEY) ENGINE = MyISAM",
        Dialect.MARIADB: "CREATE TABLE target (id BIGINT PRIMARY KEY) ENGINE = Aria",
    }
    sql_database.run(statements.get(sql_database.dialect, "CREATE TABLE target (id BIGINT NOT NULL PRIMARY KEY)"))
    goal = target(sql_database, schema())
    made = plan(goal, sql_database.table(), sql_database.dialect)
    found = "unlogged" in made.refused or "has no transactions" in made.refused
    assert found == (sql_database.dialect in statements)
    for helping in made.helping:
        sql_database.run(helping)
    assert plan(goal, sql_database.table(), sql_database.dialect).refused == ""


def test_the_page_of_types_describes_the_columns_that_are_made(sql_database: Database) -> None:
    dialect = Dialect.MYSQL if sql_database.dialect.is_mysql else sql_database.dialect
    applied(sql_database, schema([("id", "int")], **{f"c_{generic}": generic for generic in NATIVE[dialect]}))
    there = sql_database.table()
    assert there is not None
    for generic, described in NATIVE[dialect].items():
        column = there.column(f"c_{generic}")
        assert column is not None
        assert fit(generic, column, dialect, key=False) == fit(generic, described, dialect, key=False), generic


@pytest.mark.parametrize("source", [MYSQL, POSTGRES], ids=["mysql", "postgres"])
def test_the_columns_that_the_page_offers_hold_what_arrives(
    sql_database: Database, source: Sequence[SourceType]
) -> None:
    dialect = Dialect.MYSQL if sql_database.dialect.is_mysql else sql_database.dialect
    offered = [one for one in source if dialect in one.made]
    columns = "".join(f", c{place} {one.made[dialect]}" for place, one in enumerate(offered))
    sql_database.run(f"CREATE TABLE target (id BIGINT NOT NULL PRIMARY KEY{columns})")
    of = schema([("id", "int")], **{f"c{place}": one.generic for place, one in enumerate(offered)})
    applied(sql_database, of)
    put(sql_database, of, {"id": 1, **{f"c{place}": one.sample for place, one in enumerate(offered)}})
    for place, one in enumerate(offered):
        assert got(sql_database, f"c{place}", one.generic) == [one.sample], one.made[dialect]


def test_types_of_the_page_arrive_from_postgresql_as_it_says(postgres_server: PostgresServer) -> None:
    for one in POSTGRES:
        for name in one.names:
            ((oid,),) = postgres_server.sql(f"SELECT '{name}'::regtype::oid::int")
            assert SCHEMA_TYPES[kind_of(oid, None)] == one.generic, name


def test_types_of_the_page_arrive_from_mysql_as_it_says(database_server: DatabaseServer) -> None:
    columns = [(one.generic, name) for one in MYSQL for name in one.names]
    listed = ", ".join(f"c{place} {name}" for place, (_, name) in enumerate(columns))
    database_server.sql("CREATE DATABASE page_types", f"CREATE TABLE page_types.t (id INT PRIMARY KEY, {listed})")
    with closing(connect(parse(database_server.url, password_file=database_server.password_file))) as connection:
        found = read_definition(connection, Listed("page_types", "t", "BASE TABLE", "InnoDB"), "wormhole")
    expected = [generic for generic, _ in columns]
    assert [column.type for column in found.schema.columns[1:]] == expected
    database_server.sql("DROP DATABASE page_types")
