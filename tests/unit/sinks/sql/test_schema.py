"""What needs no server of the tables of SQL targets."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from sinks.sql.schema import (
    Dialect,
    Kind,
    Options,
    TableName,
    TargetColumn,
    TargetTable,
    plan,
    quoted,
    reader,
    selected,
    wanted,
)
from wormhole.model.schema import Column, Schema
from wormhole.model.values import NAN


def columns(*named: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(*each) for each in named)


def test_reserved_and_equal_names_get_names_of_their_own() -> None:
    schema = Schema("t", columns(("id", "int")), columns(("id", "int"), ("ID", "int"), ("_wormhole_shard", "text")))
    table = wanted(schema, TableName(None, "t"), Dialect.MYSQL, Options())
    assert [column.name for column in table.columns] == [
        "id",
        "ID_",
        "_wormhole_shard_",
        "_wormhole_shard",
        "_wormhole_generation",
    ]
    assert table.key == ("id",)


def test_a_table_without_a_key_that_is_merged_has_its_sources_as_plain_columns() -> None:
    table = wanted(
        Schema("t", (), columns(("a", "int"))), TableName("s", "t"), Dialect.POSTGRES, Options(merge="by_source")
    )
    assert table.key == ()
    assert [column.name for column in table.columns[1:3]] == ["_wormhole_log", "_wormhole_table"]


@pytest.mark.parametrize("name", ["é" * 32, "a" * 64])
def test_a_name_that_postgresql_would_cut_is_refused(name: str) -> None:
    table = wanted(Schema("t", columns((name, "int")), ()), TableName(None, "t"), Dialect.POSTGRES, Options())
    assert "is longer than the 63" in plan(table, None, Dialect.POSTGRES).refused
    assert plan(table, None, Dialect.MYSQL).refused == ""
    assert (
        "is longer"
        in plan(
            wanted(Schema("t", (), ()), TableName(None, name), Dialect.POSTGRES, Options()), None, Dialect.POSTGRES
        ).refused
    )


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_column_is_found_as_the_dialect_compares_names(dialect: Dialect) -> None:
    table = wanted(Schema("t", columns(("id", "int")), columns(("a", "int"))), TableName(None, "t"), dialect, Options())
    upper = tuple(
        replace(column, name=column.name.upper(), kind=Kind.INT if column.generic == "int" else Kind.TEXT)
        for column in table.columns
    )
    there = TargetTable(table.name, upper, ("ID",))
    found = plan(table, there, dialect)
    assert (found.kept != (), found.refused != "") == (dialect is Dialect.POSTGRES, dialect is Dialect.POSTGRES)


def test_names_are_quoted_whatever_they_contain() -> None:
    assert quoted('a"b`c', Dialect.POSTGRES) == '"a""b`c"'
    assert quoted('a"b`c', Dialect.MARIADB) == '`a"b``c`'
    assert TableName("s", "t").quoted(Dialect.DUCKDB) == '"s"."t"'


@pytest.mark.parametrize(
    ("kind", "shown", "equal", "other"),
    [
        (Kind.TEMPORAL, "2024-01-01 00:00:00.500+00", "2024-01-01T00:00:00.5Z", "2024-01-01 00:00:00.05"),
        (Kind.TEMPORAL, "2024-01-01 00:00:00", "2024-01-01", "2024-01-02"),
        (Kind.TEMPORAL, "10:00:00", "10:00:00.000", "10:00:01"),
        (Kind.JSON, '{"a": 1.50, "b": [null]}', '{"b":[null],"a":1.5}', '{"b":[null],"a":1.51}'),
        (Kind.JSON, "no JSON", "no JSON", "no other"),
        (Kind.UUID, "A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99"),
        (Kind.PADDED, "a  ", "a", " a"),
    ],
)
def test_text_in_a_servers_form_equals_the_same_value_only(kind: Kind, shown: str, equal: str, other: str) -> None:
    back = reader("text", TargetColumn("c", "?", kind=kind), Dialect.POSTGRES)
    assert back is not None
    assert back(None) is None
    value = back(shown)
    assert equal == value
    assert other != value
    assert not equal != value  # noqa: SIM202 - both operators
    assert hash(value) == hash(shown)


def test_numbers_that_are_none_are_text_as_they_arrive() -> None:
    back = reader("decimal", TargetColumn("c", "numeric", kind=Kind.DECIMAL), Dialect.POSTGRES)
    assert back is not None
    assert back(Decimal("NaN")) == "NaN"
    assert back(Decimal("-Infinity")) == "-Infinity"
    text = reader("decimal", TargetColumn("c", "TEXT", kind=Kind.TEXT), Dialect.SQLITE)
    assert text is not None
    assert text("NaN") == "NaN"
    double = reader("double", TargetColumn("c", "TEXT", kind=Kind.TEXT), Dialect.DUCKDB)
    assert double is not None
    assert repr(double(repr(NAN))) == "nan"


@pytest.mark.parametrize(
    ("column", "stored", "equal", "other"),
    [
        (TargetColumn("c", "double(20,4)", kind=Kind.DOUBLE, scale=4), 1.8399999999999999, 1.84, 1.84001),
        (TargetColumn("c", "float", kind=Kind.FLOAT), 0.10000000149011612, 0.1, 0.1000001),
        (TargetColumn("c", "float", kind=Kind.FLOAT), 16777216.0, 16777216.0, 16777217.0),
        (TargetColumn("c", "float", kind=Kind.FLOAT), 3.4028234663852886e38, 3.4028235e38, 3.4e38),
        (TargetColumn("c", "real", kind=Kind.FLOAT), math.inf, math.inf, -math.inf),
    ],
)
def test_a_rounded_number_equals_the_stored_one_and_the_one_that_it_means(
    column: TargetColumn, stored: float, equal: float, other: float
) -> None:
    assert selected(column, Dialect.MYSQL) == "CAST(`c` AS DOUBLE)"
    back = reader("double", column, Dialect.MYSQL)
    assert back is not None
    assert back(None) is None
    value = back(stored)
    assert stored == value
    assert equal == value
    assert other != value
    assert not equal != value  # noqa: SIM202 - both operators
    assert hash(value) == hash(stored)
    decimal = reader("decimal", column, Dialect.MYSQL)
    assert decimal is not None
    assert decimal(stored) == (Decimal(repr(equal)) if math.isfinite(equal) else "Infinity")


def test_without_a_schema_a_value_is_read_by_its_column() -> None:
    assert reader("", TargetColumn("c", "bigint", kind=Kind.INT), Dialect.MYSQL) is None
    time = reader("", TargetColumn("c", "date", kind=Kind.TEMPORAL), Dialect.MYSQL)
    assert time is not None
    assert time("2024-01-01") == "2024-01-01"
    assert selected(TargetColumn("c", "date", kind=Kind.TEMPORAL), Dialect.MYSQL) == "CAST(`c` AS CHAR)"
