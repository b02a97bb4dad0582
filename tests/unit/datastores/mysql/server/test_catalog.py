"""Tables as the server defines them, and as the log needs them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.decode.table_map import ColumnMap, TableMap, parse_table_map, schema_of
from datastores.mysql.server import table_names as module
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.table_definitions import (
    Definition,
    has_hashes,
    row_end_candidates,
    row_end_of,
    with_old_digits,
    without_hashes,
)
from datastores.mysql.server.table_names import look
from tests.support.mysql_events import Col, blob, integer, table_map, timestamp2
from wormhole.model.errors import DecodeError, SourceUnavailable

# --- catalog ---


def test_what_was_noted_is_there_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    first = Catalog(path)
    first.present([("shop", "b", True)], folds=False)
    first.note("shop", "a", False)
    first.note("größe", "\u2028", None)
    first.save()
    first.note("shop", "unsaved", True)
    second = Catalog(path)
    assert second.of_database("shop") == ["b", "a"]
    assert second.of_database("größe") == ["\u2028"]
    assert second.keys("shop", "b") == (True, False)
    assert second.keys("shop", "a") == (False, True)
    second.note("shop", "a", True)
    second.save()
    assert Catalog(path).keys("shop", "a") == (True, True)
    assert Catalog(path).keys("shop", "never") == (True, False)


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path)
    catalog.note("shop", "a", True)
    catalog.save()
    catalog.note("shop", "b", True)
    catalog.save()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Catalog(path)
    assert again.of_database("shop") == (["a", "b"] if cut == 1 else ["a"])
    again.note("shop", "c", True)
    again.save()
    assert Catalog(path).of_database("shop") == [*again.of_database("shop")]
    assert "c" in Catalog(path).of_database("shop")


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path)
    catalog.present([("shop", "a", True)], folds=False)
    path.unlink()
    catalog.note("shop", "a", True)
    catalog.note("shop", "a", None)
    catalog.save()
    assert not path.exists()


def test_a_full_disk_is_reported_and_tried_again(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "folder" / "tables.jsonl")
    catalog.note("shop", "a", True)
    with pytest.raises(SourceUnavailable, match="cannot be written"):
        catalog.save()
    (tmp_path / "folder").mkdir()
    catalog.save()
    assert Catalog(tmp_path / "folder" / "tables.jsonl").of_database("shop") == ["a"]


def test_the_oldest_dropped_tables_are_forgotten_over_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path, most=2)
    catalog.present([("shop", "a", True)], folds=False)
    for name in "abcde":
        catalog.note("shop", name, True)
    catalog.present([("shop", "a", True)], folds=False)
    assert catalog.of_database("shop") == ["a", "d", "e"]
    assert "2 dropped tables were forgotten" in str(catalog.problem)
    assert [json.loads(line)[1] for line in path.read_text().splitlines()] == ["a", "d", "e"]
    assert not Catalog(path, most=2).problem


def test_names_without_case(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "tables.jsonl")
    catalog.note("Shop", "Users", True)
    assert catalog.spelled("shop", "users") == ("shop", "users")
    catalog.present([("shop", "ȼ", True)], folds=True)
    catalog.note("shop", "Ȼ", True)
    assert catalog.spelled("shop", "users") == ("Shop", "Users")
    assert catalog.spelled("shop", "Ȼ") == ("shop", "Ȼ")  # for the server another letter than the next
    assert catalog.spelled("shop", "ȼ") == ("shop", "ȼ")
    catalog.note("shop", "ԁ", True)
    assert catalog.spelled("shop", "Ԁ") == ("shop", "ԁ")  # a newer server
    assert catalog.spelled("shop", "Ԁ", exists=False) == ("shop", "Ԁ")  # an older one, where that is no table
    assert catalog.spelled("shop", "users", exists=False) == ("Shop", "Users")
    assert catalog.spelled("new", "one") == ("new", "one")
    assert catalog.of_database("SHOP") == ["Users", "ȼ", "Ȼ", "ԁ"]
    assert catalog.all() == [("Shop", "Users"), ("shop", "ȼ"), ("shop", "Ȼ"), ("shop", "ԁ")]


# --- table definitions ---


TIMESTAMP, DATETIME, TIME, TIMESTAMP2, INT = 7, 12, 11, 17, 3


def table(*columns: tuple[str, int], key: tuple[int, ...] = (0,)) -> TableMap:
    maps = (
        ColumnMap(name, kind, 6 if kind == TIMESTAMP2 else 0, nullable=kind not in (TIMESTAMP2, INT))
        for name, kind in columns
    )
    return TableMap(1, "d", "t", tuple(maps), key, has_names=True)


def moments(first: str, last: str, *, key: tuple[int, ...] = (0, 2)) -> TableMap:
    return table(("id", INT), (first, TIMESTAMP2), (last, TIMESTAMP2), key=key)


IMPLICIT, EXPLICIT = moments("row_start", "row_end"), moments("s", "e")


# A key with a period of moments WITHOUT OVERLAPS: MariaDB puts ROW END before its end and its beginning.
BITEMPORAL = table(
    ("id", INT), ("from", TIMESTAMP2), ("to", TIMESTAMP2), ("s", TIMESTAMP2), ("e", TIMESTAMP2), key=(0, 4, 2, 1)
)


@pytest.mark.parametrize(
    ("given", "candidates"),
    [
        (IMPLICIT, (2,)),
        (EXPLICIT, (2,)),
        (moments("s", "e", key=()), (1, 2)),
        (moments("s", "e", key=(0,)), ()),
        (moments("s", "e", key=(2, 0)), (2,)),
        (BITEMPORAL, (1, 2, 4)),
        (table(("id", INT), ("e", TIMESTAMP2), key=(0, 1)), ()),
        (replace(EXPLICIT, columns=(*EXPLICIT.columns[:2], replace(EXPLICIT.columns[2], nullable=True))), ()),
    ],
)
def test_which_columns_may_be_the_row_end(given: TableMap, candidates: tuple[int, ...]) -> None:
    assert row_end_candidates(given) == candidates


@pytest.mark.parametrize(
    ("given", "definition", "row_end", "maybe"),
    [
        (IMPLICIT, Definition(True, {"id": None}), 2, ()),
        (EXPLICIT, Definition(True, {"id": None, "s": 6, "e": 6}, "e"), 2, ()),
        (EXPLICIT, Definition(False, {"id": None, "s": 6, "e": 6}), -1, ()),
        (IMPLICIT, Definition(False, {"id": None, "row_start": 6, "row_end": 6}), -1, ()),
        (EXPLICIT, Definition(True, {"id": None, "s": 6, "e": 6}, "s"), -1, ()),
        (EXPLICIT, Definition(False, {"id": None}), -1, (2,)),
        (EXPLICIT, Definition(True, {"id": None}), -1, (2,)),
        (EXPLICIT, None, -1, (2,)),
        (IMPLICIT, None, 2, ()),
        (IMPLICIT, Definition(True, {"id": None, "n": None}), 2, ()),
        (BITEMPORAL, Definition(True, {"id": None, "from": 6, "to": 6, "s": 6, "e": 6}, "e"), 4, ()),
        (BITEMPORAL, None, -1, (1, 2, 4)),
        (moments("e", "s", key=()), Definition(True, {"id": None, "e": 6, "s": 6}, "e"), 1, ()),
        (moments("e", "s", key=()), None, -1, (1, 2)),
    ],
)
def test_what_the_server_tells_of_versioning(
    given: TableMap, definition: Definition | None, row_end: int, maybe: tuple[int, ...]
) -> None:
    assert row_end_of(given, row_end_candidates(given), definition) == (row_end, maybe)


OLD = table(("id", INT), ("a", DATETIME), ("b", TIME))


def test_columns_without_a_fraction_stay_as_they_are() -> None:
    assert with_old_digits(OLD, Definition(False, {"id": None, "a": 0, "b": 0}, "", None), 0) is OLD


def test_digits_of_a_table_that_is_as_it_was() -> None:
    told = with_old_digits(OLD, Definition(False, {"id": None, "a": 3, "b": 0}, "", 99), 100)
    assert [column.meta for column in told.columns] == [0, 3, 0]


@pytest.mark.parametrize(
    "definition",
    [
        None,
        Definition(False, {"id": None, "a": 3}, "", 1),
        Definition(False, {"id": None, "a": 3, "b": 0}, "", 100),
        Definition(False, {"id": None, "a": 3, "b": 0}, "", None),
    ],
)
def test_what_nobody_can_tell_names_table_columns_and_the_way_on(definition: Definition | None) -> None:
    with pytest.raises(DecodeError, match=r"d\.t has TIME.*: a, b") as error:
        with_old_digits(OLD, definition, 100)
    assert error.value.hint is not None
    assert "ALTER TABLE `d`.`t` FORCE" in error.value.hint
    assert "skip_tables" in error.value.hint


def test_hashes_of_long_unique_values_are_hidden() -> None:
    columns = [
        integer("DB_ROW_HASH_1", 8, unsigned=True),
        blob("t"),
        *(integer(f"DB_ROW_HASH_{n}", 8, True) for n in (2, 3)),
    ]
    table = parse_table_map(table_map(1, "d.t", columns), True)
    assert has_hashes(table)

    def hidden(*listed: str) -> list[str]:
        found = without_hashes(table, Definition(False, dict.fromkeys(listed)) if listed else None)
        return [column.name for column in found.columns if column.hidden]

    # The first one is the user's: it is not behind all others.
    assert hidden() == hidden("DB_ROW_HASH_1", "t") == ["DB_ROW_HASH_2", "DB_ROW_HASH_3"]
    assert hidden("t", "DB_ROW_HASH_3") == []
    assert schema_of(without_hashes(table, None)).names == ("DB_ROW_HASH_1", "t")


@pytest.mark.parametrize(
    "column", [integer("DB_ROW_HASH_1", 8), integer("DB_ROW_HASH_1", 4, True), integer("DB_ROW_HASH_", 8, True)]
)
def test_a_column_that_is_no_hash(column: Col) -> None:
    assert not has_hashes(parse_table_map(table_map(1, "d.t", [integer("n", 4), column]), True))


def test_row_end_is_found_before_a_hash() -> None:
    moments = [replace(timestamp2(name, 6), nullable=False) for name in ("row_start", "row_end")]
    table = parse_table_map(table_map(1, "d.t", [blob("t"), *moments, integer("DB_ROW_HASH_1", 8, True)]), True)
    table = without_hashes(table, None)
    assert row_end_of(table, row_end_candidates(table), None) == (2, ())


# --- table names ---


@pytest.mark.parametrize("folds", [0, 1, 2])
def test_the_servers_tables_come_into_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: int) -> None:
    def query(connection: Any, sql: str, args: object = (), **_: object) -> list[dict[str, Any]]:
        if "folds" in sql:
            return [{"folds": folds}]
        if "COLUMN_KEY" in sql:
            return [{"db": "shop", "name": "a", "part": part} for part in ("Id", "n")]
        return [{"db": "shop", "name": "a"}, {"db": "shop", "name": "b"}]

    monkeypatch.setattr(module, "query", query)
    catalog = Catalog(tmp_path / "tables.jsonl")
    assert look(cast(Any, None), catalog) == [("shop", "a", True), ("shop", "b", False)]
    assert catalog.folds is (folds != 0)
    assert (listed := catalog.listed_keys) == {("shop", "a"): ("id", "n")}
    look(cast(Any, None), catalog)
    assert catalog.listed_keys is listed, "readers keep theirs, so an equal one takes no memory"
    assert Catalog(tmp_path / "tables.jsonl").keys("shop", "b") == (False, True)


def test_an_answer_that_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "query", lambda *_, **__: [])
    with pytest.raises(SourceUnavailable, match="is not valid"):
        look(cast(Any, None), Catalog(tmp_path / "tables.jsonl"))
