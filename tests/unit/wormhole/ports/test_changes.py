from __future__ import annotations

from wormhole.model.schema import Column
from wormhole.model.sharding import Sharding, shard_of_hash, shard_of_table
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.ports.changes import Change, ChangeEncoder
from wormhole.wire.rows import decode_row, op_of, values_of


def test_columns_are_learnt_and_absent_ones_are_unavailable() -> None:
    encoder = ChangeEncoder("log", Sharding("table"))
    [first] = encoder.encode(Change(Op.INSERT, "t", {"id": 1}, {"a": 1, "b": None}))
    assert first.schema.key == (Column("id", "int"),)
    [second] = encoder.encode(Change(Op.UPDATE, "t", {"id": 1}, {"b": "x"}, {"a": 1}))
    assert second.schema.columns == (Column("a", "int"), Column("b", "text"))
    row = decode_row(second.row)
    assert values_of(row.after) == (UNAVAILABLE, "x")
    assert values_of(row.before) == (1, UNAVAILABLE)
    [deleted] = encoder.encode(Change(Op.DELETE, "t", {"id": 1}))
    assert deleted.schema.columns == second.schema.columns
    assert values_of(decode_row(deleted.row).after) == ()
    assert encoder.shards() == {shard_of_table("log", "t")}


def test_names_of_keys() -> None:
    encoder = ChangeEncoder("log", Sharding("log"))
    assert [c.name for c in encoder.encode(Change(Op.INSERT, "t", 1))[0].schema.key] == ["key"]
    assert [c.name for c in encoder.encode(Change(Op.INSERT, "u", (1, 2)))[0].schema.key] == ["key1", "key2"]
    assert encoder.encode(Change(Op.INSERT, "v"))[0].schema.key == ()


def test_a_key_that_moves_to_another_shard_is_a_delete_and_an_insert() -> None:
    encoder = ChangeEncoder("log", Sharding("hash", 64))
    old, new = encoder.encode(Change(Op.UPDATE, "t", b"new", {"a": 1}, {"a": 0}, old_key=b"old"))
    assert old.shards == (shard_of_hash("log", b"old", 64),)
    assert new.shards == (shard_of_hash("log", b"new", 64),)
    assert [op_of(decode_row(e.row)) for e in (old, new)] == [Op.DELETE, Op.INSERT]


def test_barriers_go_to_every_shard_and_tables_without_key_have_one() -> None:
    encoder = ChangeEncoder("log", Sharding("hash", 3))
    assert set(encoder.encode(Change(Op.TRUNCATE, "t"))[0].shards) == encoder.shards()
    assert encoder.encode(Change(Op.INSERT, "t", (), {"a": 1}))[0].shards == (shard_of_table("log", "t"),)
    assert len(encoder.encode(Change(Op.INSERT, "t", (1, "x")))[0].shards) == 1
