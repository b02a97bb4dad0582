from __future__ import annotations

from dataclasses import replace

import pytest

from datastores.mysql.decode.table_map import ColumnMap, TableMap, parse_table_map, schema_of
from datastores.mysql.server.table_definitions import (
    Definition,
    has_hashes,
    row_end_candidates,
    row_end_of,
    with_old_digits,
    without_hashes,
)
from tests.support.mysql_events import Col, blob, integer, table_map, timestamp2
from wormhole.model.errors import DecodeError

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
