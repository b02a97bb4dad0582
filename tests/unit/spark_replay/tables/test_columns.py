"""One type for a column through all schemas, and never a rounded value."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spark_replay.tables.columns import TableColumn, arrow_type, converter, parse_type, unite
from wormhole.model.errors import UsageError
from wormhole.model.schema import Column, Schema, free_names
from wormhole.model.values import UNAVAILABLE, Value


def table(**types: str) -> Schema:
    columns = tuple(Column(name, kind) for name, kind in types.items())
    return Schema("t", columns[:1], columns)


def test_the_newest_columns_come_first_and_those_that_went_stay() -> None:
    found = unite([table(id="int", old="text"), table(id="int", city="text")])
    assert [(one.name, one.type) for one in found] == [("id", "int"), ("city", "text"), ("old", "text")]


def test_columns_that_the_table_has_no_more_are_left_out() -> None:
    older, newest, other = table(id="int", gone="text", x="int"), table(id="int", x="text"), table(id="int", y="bool")
    found = unite([older, newest], only=[newest])
    assert [(one.name, one.type) for one in found] == [("id", "int"), ("x", "text")]
    assert [one.name for one in unite([older, other, newest], only=[newest, other])] == ["id", "x", "y"]
    with pytest.raises(UsageError, match="no column gone") as caught:
        unite([older, newest], {"gone": "text"}, only=[newest])
    assert "the columns are id, x" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kinds", "one"),
    [
        (("int", "uint"), "uint"),
        (("uint", "decimal"), "decimal"),
        (("int", "double"), "text"),
        (("text", "bytes"), "bytes"),
        (("bool", "text"), "text"),
    ],
)
def test_a_type_that_changed_becomes_one_that_holds_both(kinds: tuple[str, str], one: str) -> None:
    assert unite([table(id="int", x=kinds[0]), table(id="int", x=kinds[1])])[1].type == one
    assert unite([table(id="int", x=kinds[1]), table(id="int", x=kinds[0])])[1].type == one


def test_names_that_sql_cannot_tell_apart_or_that_are_ours_get_a_line_behind() -> None:
    assert free_names(["a", "A", "_op"]) == {"a": "a", "A": "A_", "_op": "_op_"}


def test_a_wanted_type_and_a_column_that_is_not_there() -> None:
    assert unite([table(id="int", price="decimal")], {"price": "decimal(9, 2)"})[1] == TableColumn(
        "price", "price", "decimal(9,2)"
    )
    with pytest.raises(UsageError, match="no column cost"):
        unite([table(id="int")], {"cost": "text"})


@pytest.mark.parametrize("text", ["number", "decimal(39,2)", "decimal(4,5)", "decimal(0,0)"])
def test_types_that_there_are_none_of(text: str) -> None:
    with pytest.raises(UsageError, match="is no type"):
        parse_type(text)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("uint", (1 << 64) - 1, Decimal((1 << 64) - 1)),
        ("uint", -5, Decimal(-5)),
        ("int", 7, 7),
        ("int", Decimal("7.0"), 7),
        ("double", 3, 3.0),
        ("decimal", Decimal("1.50"), "1.50"),
        ("decimal", Decimal("1E+3"), "1000"),
        ("decimal", 12, "12"),
        ("decimal(9,2)", Decimal("-1.50"), Decimal("-1.50")),
        ("text", True, "true"),
        ("text", 0.1, "0.1"),
        ("text", b"abc", "abc"),
        ("bytes", "é", "é".encode()),
        ("bytes", 5, b"5"),
        ("entries", {b"a": b"b"}, [(b"a", b"b")]),
        ("bool", False, False),
    ],
)
def test_values_come_through_exactly(kind: str, value: Value, wanted: object) -> None:
    found = converter(kind)(value)
    assert found == wanted
    assert type(found) is type(wanted)
    assert arrow_type(kind) is not None


@pytest.mark.parametrize(
    "kind", ["bytes", "text", "int", "uint", "double", "bool", "decimal", "entries", "decimal(5,1)"]
)
@pytest.mark.parametrize("value", [None, UNAVAILABLE])
def test_null_and_what_is_not_there_are_empty_cells(kind: str, value: Value) -> None:
    assert converter(kind)(value) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "7"),
        ("int", True),
        ("int", Decimal("7.5")),
        ("double", (1 << 53) + 1),
        ("uint", "x"),
        ("decimal(3,1)", Decimal(100)),
        ("decimal(3,1)", Decimal("0.01")),
        ("decimal(3,1)", "much"),
        ("decimal(3,1)", b"1"),
        ("entries", b"x"),
        ("text", b"\xff"),
    ],
)
def test_a_value_that_does_not_fit_is_never_rounded(kind: str, value: Value) -> None:
    with pytest.raises(ValueError):
        converter(kind)(value)
