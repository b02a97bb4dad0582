"""The tables of a memory log: what changes make of them, and how a test lets them lag behind the log."""

from __future__ import annotations

import pytest

from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from wormhole.model.errors import SourceUnavailable, UnreadableTable
from wormhole.model.problem import Problem
from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.changes import Change, ChangeTuple
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.wire.rows import decode_key, decode_row, encode_key, encode_row, op_of, values_of

ALL = ChunkLimits(rows=10_000)


def held(*changes: Change | ChangeTuple) -> tuple[MemorySource, MemoryTables]:
    source = MemorySource()
    tables = MemoryTables(source)
    for change in changes:
        source.commit([change])
    return source, tables


def values(chunk: Chunk) -> dict[tuple[Value, ...], tuple[Value, ...]]:
    assert all(op_of(decode_row(row)) is Op.READ for row in chunk.rows.values())
    assert all(encode_key(values_of(decode_row(row).key)) == key for key, row in chunk.rows.items())
    return {decode_key(key): values_of(decode_row(row).after) for key, row in chunk.rows.items()}


def whole(source: MemorySource, tables: MemoryTables, table: str = "t") -> dict[tuple[Value, ...], tuple[Value, ...]]:
    return values(tables.chunk(table, None, None, ALL, source.latest()))


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ([(Op.UPDATE, "t", 1, {"a": 5, "b": UNAVAILABLE})], {(1,): (5, "x"), (2,): (2, "y")}),
        ([(Op.UPSERT, "t", 1, {"b": "z"})], {(1,): (1, "z"), (2,): (2, "y")}),
        ([(Op.INSERT, "t", 3, {"a": 3, "b": UNAVAILABLE})], {(1,): (1, "x"), (2,): (2, "y"), (3,): (3, None)}),
        ([(Op.DELETE, "t", 1)], {(2,): (2, "y")}),
        ([(Op.DELETE, "t", 1), (Op.INSERT, "t", 1, {"a": 9})], {(1,): (9, None), (2,): (2, "y")}),
        ([Change(Op.UPDATE, "t", 0, {"a": UNAVAILABLE}, old_key=2)], {(0,): (2, "y"), (1,): (1, "x")}),
        ([Change(Op.UPDATE, "t", 3, {"b": "z"}, old_key=1)], {(2,): (2, "y"), (3,): (1, "z")}),
        ([(Op.TRUNCATE, "t")], {}),
        ([(Op.TRUNCATE, "t"), (Op.INSERT, "t", 1, {"a": 7})], {(1,): (7, None)}),
        ([Change(Op.DELETE_RANGE, "t", 1, key_end=2)], {(2,): (2, "y")}),
        ([(Op.MERGE, "t", 1, {"b": "+", "a": 4})], {(1,): (5, "x+"), (2,): (2, "y")}),
        ([(Op.MERGE, "t", 3, {"b": "+"})], {(1,): (1, "x"), (2,): (2, "y"), (3,): (None, "+")}),
        (
            [(Op.INSERT, "t", 3, {"c": b"new"})],
            {(1,): (1, "x", None), (2,): (2, "y", None), (3,): (None, None, b"new")},
        ),
    ],
)
def test_changes_become_rows(changes: list[ChangeTuple], rows: dict[tuple[Value, ...], tuple[Value, ...]]) -> None:
    source, tables = held((Op.INSERT, "t", 1, {"a": 1, "b": "x"}), (Op.INSERT, "t", 2, {"a": 2, "b": "y"}))
    before = source.latest()
    source.commit(changes)
    assert whole(source, tables) == rows
    assert list(whole(source, tables)) == sorted(rows)
    named = {key: tuple(row.values()) for key, row in tables.all_rows()["t"].items()}
    assert named == rows
    assert tables.all_rows(before)["t"] == {(1,): {"a": 1, "b": "x"}, (2,): {"a": 2, "b": "y"}}


def test_a_key_that_moves_to_another_shard_keeps_its_columns() -> None:
    source = MemorySource("log", Sharding("hash", 64))
    tables = MemoryTables(source)
    source.commit([(Op.INSERT, "t", 1, {"a": 1, "b": 2})])
    source.commit([Change(Op.UPDATE, "t", 2, {"a": UNAVAILABLE, "b": 3}, old_key=1)])
    assert whole(source, tables) == {(2,): (1, 3)}


def test_what_is_too_large_for_an_update_is_in_the_table() -> None:
    source = MemorySource(max_update_bytes=100)
    tables = MemoryTables(source)
    source.commit([(Op.INSERT, "t", 1, {"a": "x" * 200})])
    chunk = tables.chunk("t", None, None, ALL, source.latest())
    row = decode_row(chunk.rows[encode_key((1,))])
    assert row.too_large
    assert not row.after
    source.commit([(Op.UPDATE, "t", 1, {"a": "short"})])
    assert whole(source, tables) == {(1,): ("short",)}


def test_a_snapshot_lags_behind_the_log() -> None:
    source, tables = held((Op.INSERT, "t", 1, {"a": 1}))
    before = tables.visible = source.latest()
    in_log = source.commit([(Op.UPDATE, "t", 1, {"a": 2, "b": 0})])
    with pytest.raises(SourceUnavailable, match="transaction 2 is in the log and not visible yet"):
        tables.chunk("t", None, None, ALL, in_log)
    with pytest.raises(SourceUnavailable):
        tables.rows("t", [encode_key((1,))], in_log)
    chunk = tables.chunk("t", None, None, ALL, before)
    assert values(chunk) == {(1,): (1,)}
    assert [column.name for column in chunk.schema.columns] == ["a"]
    assert tables.reached(chunk.high, before)
    assert tables.all_rows()["t"] == {(1,): {"a": 2, "b": 0}}
    tables.visible = None
    chunk = tables.chunk("t", None, None, ALL, before)
    assert values(chunk) == {(1,): (2, 0)}
    assert not tables.reached(chunk.high, before)
    assert tables.reached(chunk.high, in_log)


def test_an_order_of_the_servers_own() -> None:
    source = MemorySource()
    tables = MemoryTables(source, order=lambda key: str(key[0]).lower())
    source.commit([(Op.INSERT, "t", name, {"a": 1}) for name in ("b", "A", "c", "B2")])
    assert list(whole(source, tables)) == [("A",), ("b",), ("B2",), ("c",)]
    between = tables.chunk("t", encode_key(("a",)), encode_key(("b2",)), ALL, source.latest())
    assert list(values(between)) == [("b",), ("B2",)]
    assert [table.portable for table in tables.tables(lambda _: True)] == [False]


def test_the_tables_and_what_is_refused() -> None:
    source, tables = held(
        (Op.INSERT, "shop.b", 1, {"a": 1}),
        (Op.INSERT, "shop.a", (b"k", 2), {"a": 1}),
        (Op.INSERT, "shop.c", (), {"a": 1}),
    )
    source.commit([(Op.INSERT, "shop.d", "k", {"a": 1}), (Op.INSERT, "shop.d", "l", {"a": 1})])
    tables.refused["shop.b"] = Problem("an engine without transactions", "use another")
    listed = tables.tables(lambda name: name.startswith("shop."))
    assert [(table.name, table.rows, table.portable) for table in listed] == [
        ("shop.a", 1, True),
        ("shop.b", 1, True),
        ("shop.c", 0, False),
        ("shop.d", 2, False),
    ]
    assert [bool(table.refused) for table in listed] == [False, True, True, False]
    assert listed[0].fingerprint == "key1 bytes, key2 int"
    assert [table.name for table in tables.tables(lambda name: name == "shop.d")] == ["shop.d"]
    for refused, why in (("shop.b", "an engine without transactions"), ("shop.c", "no key"), ("shop.x", "no table")):
        with pytest.raises(UnreadableTable, match=why) as error:
            tables.chunk(refused, None, None, ALL, source.latest())
        assert error.value.hint
    tables.drop("shop.d")
    assert [table.name for table in tables.tables(lambda name: name == "shop.d")] == []
    with pytest.raises(UnreadableTable, match=r"no table shop\.d"):
        tables.rows("shop.d", [encode_key(("k",))], source.latest())
    source.commit([(Op.INSERT, "shop.d", "m", {"a": 1})])
    assert whole(source, tables, "shop.d") == {("m",): (1,)}


def test_a_restored_log_has_its_rows_back() -> None:
    source, tables = held((Op.INSERT, "t", 1, {"a": 1}))
    saved = source.latest()
    source.commit([(Op.UPDATE, "t", 1, {"a": 2}), (Op.INSERT, "u", 1, {"a": 2})])
    source.restore(saved)
    assert tables.all_rows() == {"t": {(1,): {"a": 1}}}
    source.commit([(Op.UPDATE, "t", 1, {"a": 3})])
    assert whole(source, tables) == {(1,): (3,)}


def test_an_unreachable_source_has_unreachable_tables() -> None:
    source, tables = held((Op.INSERT, "t", 1, {"a": 1}))
    marker = source.latest()
    source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        tables.tables(lambda _: True)
    with pytest.raises(SourceUnavailable):
        tables.chunk("t", None, None, ALL, marker)


def test_tables_of_a_log_that_has_begun_are_refused() -> None:
    source = MemorySource()
    source.commit([(Op.INSERT, "t", 1, {"a": 1})])
    with pytest.raises(ValueError, match="would lack their rows"):
        MemoryTables(source)


def test_a_key_has_the_bytes_that_an_updates_key_field_has() -> None:
    key = (1, "a", b"b", None)
    assert encode_row(Op.READ, key) == b"\x08\x08" + encode_key(key)


def test_a_dropped_column_is_in_no_later_snapshot() -> None:
    source, tables = held((Op.INSERT, "t", 1, {"a": 1, "b": "x"}))
    before = source.latest()
    source.alter("t", without=("a",))
    assert whole(source, tables) == {(1,): ("x",)}
    assert tables.all_rows(before) == {"t": {(1,): {"a": 1, "b": "x"}}}
    source.commit([(Op.UPDATE, "t", 1, {"b": "y"})])
    assert whole(source, tables) == {(1,): ("y",)}


def test_an_alter_of_the_key_gives_every_row_another_one() -> None:
    source, tables = held((Op.INSERT, "t", {"id": 1}, {"a": 1}), (Op.INSERT, "t", {"id": 2}, {"a": 2}))
    (listed,) = tables.tables(lambda name: True)
    source.alter("t", key=(Column("id", "int"), Column("part", "int")), new_key=lambda key: (9 - int(str(key[0])), 0))
    with pytest.raises(SourceUnavailable, match="another one now"):
        whole(source, tables)  # the caller has keys in the former order
    (again,) = tables.tables(lambda name: True)
    assert again.fingerprint != listed.fingerprint
    assert whole(source, tables) == {(7, 0): (2,), (8, 0): (1,)}
    source.commit([(Op.DELETE, "t", {"id": 8, "part": 0})])
    assert whole(source, tables) == {(7, 0): (2,)}
