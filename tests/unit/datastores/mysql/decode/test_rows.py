"""Rows events as `encode_row` would write them: every image, moved keys, sizes, and every break, in both forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from datastores.common.encode.piece import HASHED
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row, entry

rows = hot_module("datastores.mysql.decode.rows")

COLUMNS = [build.integer("id", 4), build.varchar("name"), build.blob("data", 3)]
A, B = build.ABSENT, UNAVAILABLE
INSERT, UPDATE, DELETE = 1, 2, 3


def table(module: ModuleType, columns: list[build.Col], key: list[int], shard: int = 0) -> Any:
    body = build.table_map(1, "shop.orders", columns, key)
    return module.Table(body, Layout(parse_table_map(body)), 3, shard)


def encoded(
    module: ModuleType,
    op: int,
    images: list[Any],
    *,
    key: tuple[int, ...] = (0,),
    columns: list[build.Col] = COLUMNS,
    **options: Any,
) -> Any:
    made = module.Rows(options.pop("most", 1 << 20), options.pop("shards", 0), 64)
    known = table(module, columns, list(key), options.pop("shard", 5))
    body = build.rows(1, columns, images, update=op == UPDATE, **options)[8:]
    made.event(b"#" + body, 1, 1 + len(body), known, op, options.get("version", 2) == 2, False)
    return made


def updates(made: Any) -> list[bytes]:
    ends = [0, *made.updates.ends[: made.updates.count]]
    data = bytes(made.updates.out)
    return [data[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("version", [1, 2])
def test_inserts_and_deletes(rows: ModuleType, version: int) -> None:
    images: list[list[Any]] = [[1, "a", b"x"], [2, None, b"y" * 300], [-3, "", None]]
    made = encoded(rows, INSERT, images, version=version)
    assert updates(made) == [entry(encode_row(Op.INSERT, (i[0],), after=i)) for i in images]
    assert made.updates.shards[:3].tolist() == [5, 5, 5]
    assert made.updates.schemas[:3].tolist() == [3, 3, 3]
    made = encoded(rows, DELETE, images, version=version, extra=b"" if version == 1 else b"\0\5more.")
    assert updates(made) == [entry(encode_row(Op.DELETE, (i[0],), before=i)) for i in images]


@pytest.mark.parametrize("hash_", [1 << 63, None, build.ABSENT])
def test_a_hidden_column_is_passed_over(rows: ModuleType, hash_: Any) -> None:
    columns = [COLUMNS[0], build.integer("DB_ROW_HASH_1", 8, unsigned=True), *COLUMNS[1:]]
    map_ = parse_table_map(build.table_map(1, "shop.orders", columns, [0]))
    hidden = tuple(replace(column, hidden=column.name.startswith("DB")) for column in map_.columns)
    known = rows.Table(b"map", Layout(replace(map_, columns=hidden)), 3, 5)
    made = rows.Rows(1 << 20, 0, 64)
    images = [[1, hash_, "a", b"x"], [2, hash_, "b", None]]
    body = build.rows(1, columns, images, update=True)[8:]
    made.event(body, 0, len(body), known, UPDATE, True, False)
    assert updates(made) == [
        entry(encode_row(Op.UPDATE, (2,), after=(2, "b", None), before=(1, "a", b"x"), old_key=(1,)))
    ]
    if hash_ == 1 << 63:
        cut = len(build.rows(1, columns[:2], [[1, hash_]], update=False)) - 12
        with pytest.raises(DecodeError, match="DB_ROW_HASH_1"):
            made.event(body, 0, cut, known, UPDATE, True, False)


@pytest.mark.parametrize(
    ("before", "after", "key", "new", "old", "old_key"),
    [
        # MINIMAL: the key before, what changed after.
        ([1, A, A], [A, "b", A], (1,), (1, "b", B), (1, B, B), ()),
        ([1, A, A], [2, A, A], (2,), (2, B, B), (1, B, B), (1,)),
        # NOBLOB: all but the blobs that did not change.
        ([1, "a", A], [1, "b", A], (1,), (1, "b", B), (1, "a", B), ()),
        # What the image after the change does not have was not changed.
        ([1, "a", None], [A, A, b"new"], (1,), (1, "a", b"new"), (1, "a", None), ()),
    ],
)
def test_updates_with_poorer_images(
    rows: ModuleType, before: Any, after: Any, key: Any, new: Any, old: Any, old_key: Any
) -> None:
    made = encoded(rows, UPDATE, [before, after])
    assert updates(made) == [entry(encode_row(Op.UPDATE, key, after=new, before=old, old_key=old_key))]


def test_inserts_and_deletes_with_poorer_images(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[1, A, b"x"], [2, A, None]])
    assert updates(made) == [
        entry(encode_row(Op.INSERT, (1,), after=(1, B, b"x"))),
        entry(encode_row(Op.INSERT, (2,), after=(2, B, None))),
    ]
    made = encoded(rows, DELETE, [[1, A, A]])
    assert updates(made) == [entry(encode_row(Op.DELETE, (1,), before=(1, B, B)))]
    made = encoded(rows, INSERT, [[A, A, A]])  # all defaults: a row of no bytes
    assert updates(made) == [entry(encode_row(Op.INSERT, (B,), after=(B, B, B)))]


def test_only_a_table_with_a_key_can_be_split(rows: ModuleType) -> None:
    with pytest.raises(ValueError, match="without a primary key"):
        table(rows, COLUMNS, [], HASHED)
    with pytest.raises(ValueError, match="max_update_bytes"):
        rows.Rows(0, 0, 64)


def test_truncates_going_back_and_dropping_what_was_taken(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[i, "n", b"d" * i] for i in range(2000)])
    made.updates.truncate(7, 9)
    all_of_them = updates(made)
    assert all_of_them[-1] == entry(encode_row(Op.TRUNCATE, ()))
    assert (made.updates.schemas[2000], made.updates.shards[2000]) == (7, 9)
    made.updates.back(1999)
    assert updates(made) == all_of_them[:1999]
    made.updates.drop(1500)
    assert updates(made) == all_of_them[1500:1999]
    assert made.updates.schemas[:499].tolist() == [3] * 499
    made.updates.drop(0)
    assert made.updates.count == 499
    made.updates.drop(499)
    assert (made.updates.count, made.updates.used) == (0, 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "extra data"),
        (b"\1\0", "extra data of 1 bytes"),
        (b"\x09\0", "extra data of 9 bytes"),
        (b"\2\0", "number of columns is missing"),
        (b"\2\0\xff", "cut or out of range"),
        (b"\2\0\xfc\1", "cut or out of range"),
        (b"\2\0\4\x0f", "rows have 4 columns, its table map has 3"),
        (b"\2\0\3", "present columns are cut"),
        (b"\2\0\3\0\1", "follow rows that have none"),
        (b"\2\0\3\7", "null bits"),
    ],
)
def test_what_is_broken_is_named_and_leaves_nothing(rows: ModuleType, body: bytes, text: str) -> None:
    made = rows.Rows(1 << 20, 0, 64)
    with pytest.raises(DecodeError, match=text) as raised:
        made.event(body, 0, len(body), table(rows, COLUMNS, [0]), INSERT, True, False)
    assert "shop.orders" in str(raised.value)
    assert (made.updates.count, made.updates.used) == (0, 0)


def test_every_cut_is_refused_or_ends_between_rows(rows: ModuleType) -> None:
    images = [[1, "a", b"x"], [1, "b", b"y"], [2, "c", b"z"], [2, "d", None]]
    body = build.rows(1, COLUMNS, images, update=True)[8:]
    known = table(rows, COLUMNS, [0])
    ends = []
    for cut in range(len(body)):
        made = rows.Rows(1 << 20, 0, 64)
        try:
            made.event(body, 0, cut, known, UPDATE, True, False)
        except DecodeError:
            assert (made.updates.count, made.updates.used) == (0, 0)
        else:
            ends.append(made.updates.count)
    assert ends == [1]
    with pytest.raises(ValueError, match="out of range"):
        rows.Rows(1, 0, 64).event(body, 0, len(body) + 1, known, UPDATE, True, False)


def test_an_event_that_breaks_in_its_second_row_leaves_earlier_events_alone(rows: ModuleType) -> None:
    made = encoded(rows, INSERT, [[1, "a", b"x"]])
    body = build.rows(1, COLUMNS, [[2, "a", b"x"], [3, "b", b"y"]])[8:]
    with pytest.raises(DecodeError):
        made.event(body, 0, len(body) - 1, table(rows, COLUMNS, [0]), INSERT, True, False)
    assert updates(made) == [entry(encode_row(Op.INSERT, (1,), after=(1, "a", b"x")))]
