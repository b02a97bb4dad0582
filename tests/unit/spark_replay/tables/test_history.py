"""Versions of rows, against a plain model and as a task of a history writes them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_replay.combine import not_superseded, rows_that_count
from spark_replay.tables import history as history_module
from spark_replay.tables.history import _Task
from spark_replay.tables.schemas import by_signed_id
from spark_replay.tables.versions import KEY_CHANGE, Barriers, EndedVersion, RowChange, Version, linked_keys, versions
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row, op_of, values_of

# --- history: what a task of a history does with sorted rows, without Spark ---


KEY = Column("key", "int")
TABLE = Schema("t", (KEY,), (KEY, Column("a", "text")))
((SIGNED, _),) = by_signed_id([TABLE]).items()


def archived(at: int, op: Op, key: int, *after: Value, group: bytes = b"", **more: Any) -> dict[str, Any]:
    update = encode_row(
        op, (key,), after=(key, *after) if after else (), before=(key, "was") if op is Op.UPDATE else ()
    )
    name = b"%d" % key
    return {
        "place": bytes([at]) * 25,
        "tx_source": "s",
        "tx_number": at,
        "tx_index": 0,
        "ends_tx": False,
        "committed_at": None,
        "op": op.value,
        "table": "t",
        "key": name,
        "old_key": None,
        "schema_id": SIGNED,
        "partial": False,
        "update": update,
        "shard": "db1",
        "_group": group or name,
        "_left": False,
        **more,
    }


def run(task: _Task, *batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = [pa.RecordBatch.from_pylist(one) for one in batches]
    return [found for batch in task.batches(made) for found in batch.to_pylist()]


def task(current: bool = False, barriers: dict[tuple[str, str], Barriers] | None = None) -> _Task:
    return _Task((TABLE,), barriers or {}, frozenset({"db1"}), current)


def test_a_group_goes_on_in_the_next_batch_and_another_is_not_mixed_with_it() -> None:
    found = run(
        task(),
        [archived(1, Op.INSERT, 1, "x"), archived(2, Op.UPDATE, 1, "y")],
        [archived(4, Op.DELETE, 1), archived(3, Op.INSERT, 2, "z")],
    )
    assert [(row["key"], row["op"], row["_valid_from"][0], row["_ended_by"]) for row in found] == [
        (b"1", "insert", 1, "update"),
        (b"1", "update", 2, "delete"),
        (b"2", "insert", 3, None),
    ]
    assert [row["_valid_to"] and row["_valid_to"][0] for row in found] == [2, 4, None]


@pytest.mark.parametrize("seed", range(10))
def test_changes_that_leave_no_trace_are_left_out_wherever_rows_are_cut(seed: int) -> None:
    """Parts of rows, changed keys, keys that come again, TRUNCATEs: the current rows are the same. Windows end
    anywhere."""
    random, alone = Random(seed), bool(seed % 2)  # alone: each key is a group of its own
    rows: list[dict[str, Any]] = []
    ended: list[EndedVersion] = []
    for at in range(1, 200):
        key, op = random.randrange(6), random.choice([Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE, Op.READ, Op.UPSERT])
        if not alone and random.random() < 0.03:
            ended.append(EndedVersion(bytes([at]) * 25, None, Op.TRUNCATE.value))
            continue
        part = op is Op.UPDATE and random.random() < 0.4
        values: tuple[Value, ...] = () if op is Op.DELETE else (UNAVAILABLE if part else f"v{at}",)
        row = archived(at, op, key, *values, group=b"" if alone else b"all", partial=part)
        if not alone and op is Op.UPDATE and random.random() < 0.2 and (old := random.randrange(6)) != key:
            row["old_key"] = b"%d" % old
        rows.append(row)
    barriers = {("db1", "t"): Barriers(ended)} if ended else {}
    for one in barriers.values():
        one.sort()
    cuts = sorted(random.sample(range(len(rows)), 4))
    windows = [rows[begin:end] for begin, end in pairwise([0, *cuts, len(rows)]) if begin < end]
    schema = pa.RecordBatch.from_pylist(rows).schema
    kept = [
        one
        for window in windows
        for batch in not_superseded([pa.RecordBatch.from_pylist(window, schema=schema)])
        for one in batch.to_pylist()
    ]
    assert len(kept) < len(rows)
    rows, kept = (sorted(some, key=itemgetter("_group", "place")) for some in (rows, kept))
    with patch.object(history_module, "rows_that_count", iter):
        whole = run(task(current=True, barriers=barriers), *([row] for row in rows))
    for given in ([kept], [rows], [rows[:100], rows[100:]]):
        found = run(task(current=True, barriers=barriers), *given)
        assert sorted(found, key=itemgetter("key")) == sorted(whole, key=itemgetter("key"))


def test_what_many_changes_come_to_is_few_rows() -> None:
    rows = [archived(at % 250, Op.UPDATE, at % 3, f"v{at}") for at in range(3000)]
    found = [one for batch in rows_that_count([pa.RecordBatch.from_pylist(rows)]) for one in batch.to_pylist()]
    assert found == rows[-3:]


def test_a_snapshots_rows_make_their_rows_anew() -> None:
    (row,) = run(
        task(current=True),
        [archived(1, Op.INSERT, 1, "x"), archived(2, Op.UPDATE, 1, "y", old_key=None), archived(3, Op.DELETE, 2)],
    )
    update = decode_row(row["update"])
    assert (row["op"], row["old_key"], row["ends_tx"], row["place"][0]) == ("insert", None, True, 2)
    assert (op_of(update), values_of(update.after), len(update.before)) == (Op.INSERT, (1, "y"), 0)
    (row,) = run(task(current=True), [archived(1, Op.UPSERT, 1, "x")])
    assert (row["op"], op_of(decode_row(row["update"]))) == ("upsert", Op.UPSERT)


def test_a_row_that_a_backfill_read_replaces_what_was_known_of_it() -> None:
    changes = [archived(1, Op.INSERT, 1, "x", partial=True), archived(2, Op.READ, 1, "z")]
    (row,) = run(task(current=True), changes)
    update = decode_row(row["update"])
    assert (row["op"], op_of(update), values_of(update.after)) == ("upsert", Op.UPSERT, (1, "z"))
    assert (row["partial"], row["place"][0]) == (False, 2)
    assert [(one["op"], one["_ended_by"]) for one in run(task(), changes)] == [("insert", "read"), ("read", None)]
    # What a snapshot has of it is what it has of it again in the next one.
    again = {**row, "_group": b"1", "_left": False}
    again = {name: value for name, value in again.items() if name in changes[0]}
    assert run(task(current=True), [again, archived(2, Op.READ, 1, "z")]) == [row]


def test_barriers_are_those_of_the_shard_and_table() -> None:
    barriers = Barriers([EndedVersion(b"\x05" * 25, None, "truncate")])
    rows = [archived(1, Op.INSERT, 1, "x")]
    assert run(task(True, {("db1", "t"): barriers}), rows) == []
    assert len(run(task(True, {("db2", "t"): barriers, ("db1", "u"): barriers}), rows)) == 1


def test_a_row_whose_beginning_is_not_held_has_no_operation_and_no_beginning() -> None:
    (row,) = run(_Task((TABLE,), {}, frozenset(), False), [archived(3, Op.DELETE, 1)])
    assert (row["op"], row["_valid_from"], row["_ended_by"], row["key"]) == (None, None, "delete", b"1")


# --- versions: versions of rows against a plain model that applies the log to a table in memory ---


BYTES_KEY = Column("key", "bytes")
VERSIONED = Schema("t", (BYTES_KEY,), (BYTES_KEY, Column("a", "int"), Column("b", "text")))
NONE = Barriers()


def change(
    at: int, op: Op, key: bytes, *after: Value, old: bytes | None = None, before: tuple[Value, ...] = ()
) -> RowChange:
    update = encode_row(op, (key,), after=(key, *after) if after else (), old_key=(old,) if old else (), before=before)
    partial = UNAVAILABLE in after
    return RowChange(bytes([at]), at, op.value, key, old, 1, partial, update)


def told(changes: Iterable[RowChange], barriers: Barriers = NONE, from_first: bool = True) -> list[tuple[object, ...]]:
    return [shown(one) for one in versions(changes, barriers, lambda _: VERSIONED, from_first=from_first)]


def shown(version: Version) -> tuple[object, ...]:
    values = values_of(decode_row(version.update).after)
    begun = None if version.unseen else version.change.place[0]
    ended = version.ended
    return (*values, begun, ended and ended.place[0], ended and ended.by)


def ending(truncates: Iterable[int] = (), ranges: Iterable[tuple[bytes, bytes, int]] = ()) -> Barriers:
    barriers = Barriers([EndedVersion(bytes([at]), at, "truncate") for at in truncates])
    barriers.ranges = [(low, high, EndedVersion(bytes([at]), at, "delete_range")) for low, high, at in ranges]
    barriers.sort()
    return barriers


def test_each_change_ends_the_version_before() -> None:
    assert told(
        [
            change(1, Op.INSERT, b"k", 1, "x"),
            change(2, Op.UPDATE, b"k", UNAVAILABLE, "y"),
            change(3, Op.DELETE, b"k"),
            change(4, Op.INSERT, b"k", 5, None),
        ]
    ) == [(b"k", 1, "x", 1, 2, "update"), (b"k", 1, "y", 2, 3, "delete"), (b"k", 5, None, 4, None, None)]


def test_a_key_change_takes_the_image_along() -> None:
    assert told([change(1, Op.INSERT, b"k", 1, "x"), change(2, Op.UPDATE, b"n", 2, UNAVAILABLE, old=b"k")]) == [
        (b"k", 1, "x", 1, 2, KEY_CHANGE),
        (b"n", 2, "x", 2, None, None),
    ]


def test_a_row_that_leaves_its_group_ends_there() -> None:
    away = change(2, Op.UPDATE, b"n", 2, "y", old=b"k")
    away.left = True
    assert told([change(1, Op.INSERT, b"k", 1, "x"), away]) == [(b"k", 1, "x", 1, 2, KEY_CHANGE)]


def test_a_truncate_ends_what_was_there_and_nothing_that_came_later() -> None:
    changes = [change(1, Op.INSERT, b"k", 1, "x"), change(5, Op.UPDATE, b"k", UNAVAILABLE, "y")]
    assert told(changes, ending([3])) == [(b"k", 1, "x", 1, 3, "truncate"), (b"k", UNAVAILABLE, "y", 5, None, None)]
    assert told(changes, ending([7]))[-1] == (b"k", 1, "y", 5, 7, "truncate")
    assert told([change(1, Op.INSERT, b"k", 1, "x"), change(4, Op.DELETE, b"k")], ending([3]), from_first=False) == [
        (b"k", 1, "x", 1, 3, "truncate")
    ]


def test_a_range_ends_the_keys_in_it() -> None:
    barriers = ending(ranges=[(b"a", b"k", 2), (b"k", b"l", 3), (b"z", b"zz", 2)])
    assert told([change(1, Op.UPSERT, b"k", 1, "x")], barriers) == [(b"k", 1, "x", 1, 3, "delete_range")]
    assert told([change(1, Op.UPSERT, b"l", 1, "x")], barriers) == [(b"l", 1, "x", 1, None, None)]
    assert told([change(4, Op.UPSERT, b"k", 1, "x")], barriers) == [(b"k", 1, "x", 4, None, None)]


def test_a_merge_makes_the_value_unknown() -> None:
    assert told([change(1, Op.UPSERT, b"k", 1, "x"), change(2, Op.MERGE, b"k", 2, "y")])[-1] == (
        b"k",
        UNAVAILABLE,
        UNAVAILABLE,
        2,
        None,
        None,
    )


def test_a_row_that_was_there_before_the_archive_is_reported_when_it_goes() -> None:
    gone = change(3, Op.DELETE, b"k", before=(b"k", 4, "was"))
    assert told([gone], from_first=False) == [(b"k", 4, "was", None, 3, "delete")]
    assert told([gone], from_first=True) == []
    assert told([change(2, Op.DELETE, b"k"), change(3, Op.DELETE, b"k")], from_first=False) == [
        (b"k", UNAVAILABLE, UNAVAILABLE, None, 2, "delete")
    ]
    moved = change(3, Op.UPDATE, b"n", 1, "x", old=b"k")
    assert told([moved], from_first=False)[0] == (b"k", UNAVAILABLE, UNAVAILABLE, None, 3, KEY_CHANGE)


@pytest.mark.parametrize("seed", range(10))
def test_the_current_versions_are_the_table(seed: int) -> None:
    """One group of linked keys under random changes: the versions without an end are what the table holds."""
    random_ = random.Random(seed)
    table: dict[bytes, tuple[Value, Value]] = {}
    changes: list[RowChange] = []
    truncates: list[int] = []
    for at in range(1, 60):
        key = bytes([random_.randrange(5)])
        a, b = random_.choice([1, None, UNAVAILABLE]), random_.choice(["x", None, UNAVAILABLE])
        other = bytes([random_.randrange(5)])
        if key not in table:
            a, b = (1 if a is UNAVAILABLE else a), ("z" if b is UNAVAILABLE else b)
            changes.append(change(at, Op.INSERT, key, a, b))
            table[key] = (a, b)
        elif random_.random() < 0.1:
            truncates.append(at)
            table.clear()
        elif random_.random() < 0.2:
            changes.append(change(at, Op.DELETE, key))
            del table[key]
        else:
            to = other if other not in table else key
            was = table.pop(key)
            table[to] = (was[0] if a is UNAVAILABLE else a, was[1] if b is UNAVAILABLE else b)
            changes.append(change(at, Op.UPDATE, to, a, b, old=key if to != key else None))
    found = list(versions(changes, ending(truncates), lambda _: VERSIONED, from_first=True))
    current = [shown(one)[:3] for one in found if one.ended is None]
    assert {key: (a, b) for key, a, b in current} == table
    assert len(current) == len(table)
    assert len(found) == sum(one.op != Op.DELETE.value for one in changes)
    for one in found:
        assert one.ended is None or one.change.place < one.ended.place


def test_keys_that_hang_together_are_one_group() -> None:
    found = linked_keys([(b"b", b"a"), (b"c", b"b"), (b"y", b"x"), (b"d", b"c")])
    assert found == {b"a": b"a", b"b": b"a", b"c": b"a", b"d": b"a", b"x": b"x", b"y": b"x"}
