"""Columns, names and schemas of tables made of an archive."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.archive.columns import position_of
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables.columns import TableColumn, arrow_type, converter, parse_type, unite
from spark_replay.tables.names import folder_name
from spark_replay.tables.newest import newest_schemas
from spark_replay.tables.schemas import by_signed_id, lookup
from spark_replay.tables.selection import TableSelection, select
from tests.support.archives import Change, Tx, marker_at, tx, write_archive
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.schema import Column, Schema, free_names
from wormhole.model.values import UNAVAILABLE, Op, Value

# --- columns: one type for a column through all schemas, and never a rounded value ---


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


# --- names: folders of tables: plain for libraries and readers, and never the same for two tables ---


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("shop.orders", "shop.orders"),
        ("shop.big orders", "shop.big~20orders"),
        ("shop.ö日", "shop.ö日"),
        ("_lead", "~5Flead"),
        ("..", "~2E."),
        ("a/b%20#?\\$", "a~2Fb~2520~23~3F~5C~24"),
    ],
)
def test_what_is_no_letter_and_no_digit_is_written_as_bytes(table: str, folder: str) -> None:
    assert folder_name(table) == folder


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_tables_never_share_a_folder(one: str, other: str) -> None:
    found = folder_name(one)
    assert (found == folder_name(other)) == (one == other)
    assert len(found.encode()) <= 200
    assert found[0] not in "_."
    assert not set(found) & set("/%#?\\ \0")


def test_long_names_keep_their_beginning() -> None:
    assert folder_name("日" * 128).startswith("日" * 20)
    assert folder_name("日" * 128) != folder_name("日" * 127)


# --- schemas: schemas of rows: by the number that stands in the column ---


def _schemas() -> list[Schema]:
    return [Schema(f"t{i}", (), (Column("a", "int"),)) for i in range(40)]


def test_ids_are_found_in_twos_complement() -> None:
    found = by_signed_id(_schemas())
    assert min(found) < 0 < max(found)
    assert all(id_ & (1 << 64) - 1 == schema.id and -(1 << 63) <= id_ < 1 << 63 for id_, schema in found.items())


def test_a_schema_that_nobody_knows_says_what_to_do() -> None:
    one = _schemas()[0]
    with pytest.raises(ArchiveError, match=r"a table changed since.*start the query again"):
        lookup([])(one.id)


# --- newest: the newest schema of a table, by place in the log over all shards of it ---


ID = Column("id", "int")


def orders(*columns: str, name: str = "shop.orders") -> Schema:
    return Schema(name, (ID,), (ID, *(Column(one, "text") for one in columns)))


A, B, C = orders("a"), orders("b"), orders("c")
TRUNCATED = Schema("shop.orders", (), ())


def insert(schema: Schema, key: int = 1) -> Change:
    return Change(Op.INSERT, (key,), (key, *("x" for _ in schema.columns[1:])), schema=schema)


def wrote(*schemas: Schema) -> list[Tx]:
    return [tx(insert(schema)) for schema in schemas]


def newest(selection: TableSelection, name: str = "shop.orders") -> dict[str, tuple[Schema, int]]:
    """By log, the schema and the number of the transaction at its place."""
    return {log: (one.schema, position_of(one.place).offset // 100) for log, one in selection.newest[name].items()}


def test_within_one_file_the_last_row_counts_and_not_the_order_of_ids(tmp_path: Path) -> None:
    for number, order in enumerate([(A, B, C), (C, B, A), (B, C, A), (C, A, B), (A, C, B), (A, B, A)]):
        store = write_archive(tmp_path / str(number), {"a": [wrote(*order)]})
        selection = select(store)
        assert newest(selection) == {"a": (order[-1], 3)}
        assert selection.schemas[-1] == order[-1], "the columns of the newest come first where schemas are united"


OTHER = wrote(orders("x", name="shop.other")) * 5
THEN = Asked("then", place=marker_at(2).order)


@pytest.mark.parametrize(
    ("shards", "stop", "found"),
    [
        # In older row groups and files.
        ({"a": [wrote(A, B), [*wrote(A), *OTHER], OTHER]}, Asked(), {"a": (A, 3)}),
        # A TRUNCATE says nothing about the columns.
        ({"a": [[*wrote(A, B), tx(Change(Op.TRUNCATE, (), schema=TRUNCATED))]]}, Asked(), {"a": (B, 2)}),
        ({"a": [wrote(A, B, C)]}, THEN, {"a": (B, 2)}),
        # Logs are not compared.
        ({"a": [wrote(A, A, B)], "b": [wrote(A, A, A, A)]}, Asked(), {"a": (B, 3), "b": (A, 4)}),
    ],
)
def test_it_is_looked_for_in_each_log_up_to_where_rows_are_read(
    tmp_path: Path, shards: dict[str, list[list[Tx]]], stop: Asked, found: dict[str, tuple[Schema, int]]
) -> None:
    assert newest(select(write_archive(tmp_path, shards, row_group=1), stop=stop)) == found


def of_one_log(store: ArchiveStore) -> dict[str, tuple[Schema, int]]:
    selection = select(store)
    by_id = {schema.id: schema for schema in selection.schemas}
    found = newest_schemas(store, selection.shards, {"a": "db1", "b": "db1"}, by_id)["shop.orders"]
    return {log: (one.schema, position_of(one.place).offset // 100) for log, one in found.items()}


def test_shards_of_one_log_are_compared_by_place(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "1", {"a": [wrote(A, A, B)], "b": [wrote(A, A)]})
    assert of_one_log(store) == {"db1": (B, 3)}
    store = write_archive(tmp_path / "2", {"a": [wrote(A)], "b": [wrote(B, B, A, C)]})
    assert of_one_log(store) == {"db1": (C, 4)}


def test_what_came_before_counts_until_something_newer_comes(tmp_path: Path) -> None:
    store = write_archive(tmp_path, {"a": [wrote(A, B), wrote(C)]})
    first = select(store, stop=Asked("then", place=marker_at(2).order))
    rest = select(store, start=Asked("there", place=marker_at(2).order))
    ids = {one.id: one for one in rest.schemas}
    assert newest_schemas(store, rest.shards, {"a": "a"}, ids, first.newest)["shop.orders"]["a"].schema == C
    assert newest_schemas(store, (), {"a": "a"}, {}, first.newest) == first.newest


def test_one_schema_alone_needs_no_look_at_rows(tmp_path: Path) -> None:
    store = write_archive(tmp_path, {"a": [wrote(A), wrote(A, A)]})
    (entry,) = [path for path in (tmp_path / "a/data").iterdir() if "000002" in path.name]
    entry.unlink()
    assert newest(select(store)) == {"a": (A, 1)}, "its place lies before the last row"
