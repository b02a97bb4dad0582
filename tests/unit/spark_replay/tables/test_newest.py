"""The newest schema of a table, by place in the log over all shards of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.columns import position_of
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables.newest import newest_schemas
from spark_replay.tables.selection import TableSelection, select
from tests.support.archives import Change, Tx, marker_at, tx, write_archive
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op

ID = Column("id", "int")


def table(*columns: str, name: str = "shop.orders") -> Schema:
    return Schema(name, (ID,), (ID, *(Column(one, "text") for one in columns)))


A, B, C = table("a"), table("b"), table("c")
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


OTHER = wrote(table("x", name="shop.other")) * 5
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
