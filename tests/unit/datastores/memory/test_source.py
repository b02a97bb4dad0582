"""The memory log and its tables: how a test breaks the log, and what changes make of tables."""

from __future__ import annotations

import pytest

from datastores.memory.source import Change, MemorySource
from datastores.memory.tables import MemoryTables
from wormhole.model.errors import Diverged, SourceUnavailable, UnreadableTable
from wormhole.model.loss import LossKind
from wormhole.model.problem import Problem
from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding, shard_of_table
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.changes import ChangeTuple
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.ports.testing.reading import Read, read_until
from wormhole.wire.rows import decode_key, decode_row, encode_key, encode_row, op_of, values_of

# --- source: what the contract suite does not reach: the ways in which a test breaks the log ---


def test_a_skipped_range_is_reported() -> None:
    source = MemorySource()
    start = source.latest()
    source.commit([(Op.INSERT, "t", 1, {"a": 1})])
    source.skip(3)
    end = source.commit([(Op.INSERT, "t", 2, {"a": 1})])
    read = read_until(source.open(start), end.order)
    assert [(g.kind, g.first_missing, g.last_missing) for g in read.gaps] == [(LossKind.NOT_LOGGED, "2", "4")]
    assert read.keys() == [1, 2]


def test_a_purge_under_a_reader_is_a_gap() -> None:
    source = MemorySource()
    reader = source.open(source.latest())
    source.commit([(Op.INSERT, "t", 1)])
    source.purge()
    end = source.commit([(Op.INSERT, "t", 2)])
    read = read_until(reader, end.order)
    assert [g.kind for g in read.gaps] == [LossKind.PURGED]
    assert read.keys() == [2]


def test_a_restore_under_a_reader_diverges() -> None:
    source = MemorySource()
    saved = source.latest()
    source.commit([(Op.INSERT, "t", 1)])
    reader = source.open(source.latest())
    source.restore(saved, new_incarnation=True)
    with pytest.raises(Diverged):
        reader.read(100, 0.0)
    assert source.latest().order.incarnation == 2


def test_over_its_capacity_the_oldest_goes() -> None:
    source = MemorySource(capacity=1000)
    for n in range(100):
        source.commit([(Op.INSERT, "t", n, {"v": b"x" * 100})])
    assert source.status().pinned_bytes <= 1000
    assert int(source.earliest().delivered) > 80


def test_unreachable() -> None:
    source = MemorySource()
    reader = source.open(source.latest())
    source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        source.latest()
    with pytest.raises(SourceUnavailable):
        reader.read(100, 0.0)
    source.set_reachable(True)
    assert source.latest()


def test_a_key_that_moves_and_a_barrier_over_all_shards() -> None:
    source = MemorySource("log", Sharding("hash", 2))
    start = source.latest()
    source.commit([Change(Op.UPDATE, "t", b"b", {"v": 1}, old_key=b"a"), Change(Op.TRUNCATE, "t")])
    read = read_until(source.open(start), source.latest().order, into=Read())
    ops = [(u.op, u.key) for u in read.updates]
    assert ops[-2:] == [("truncate", ()), ("truncate", ())]
    assert ops[:-2] in ([("update", (b"b",))], [("delete", (b"a",)), ("insert", (b"b",))])


def test_by_database() -> None:
    source = MemorySource("log", Sharding("database"))
    source.commit([(Op.INSERT, "shop.users", {"id": 1}, {"name": "x"})])
    assert source.shards() == {shard_of_table("log", "shop")}


# --- tables ---


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
