"""Versions of rows against a plain model that applies the log to a table in memory."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from spark_replay.tables.versions import KEY_CHANGE, Barriers, EndedVersion, RowChange, Version, linked_keys, versions
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row, values_of

KEY = Column("key", "bytes")
TABLE = Schema("t", (KEY,), (KEY, Column("a", "int"), Column("b", "text")))
NONE = Barriers()


def change(
    at: int, op: Op, key: bytes, *after: Value, old: bytes | None = None, before: tuple[Value, ...] = ()
) -> RowChange:
    update = encode_row(op, (key,), after=(key, *after) if after else (), old_key=(old,) if old else (), before=before)
    partial = UNAVAILABLE in after
    return RowChange(bytes([at]), at, op.value, key, old, 1, partial, update)


def told(changes: Iterable[RowChange], barriers: Barriers = NONE, from_first: bool = True) -> list[tuple[object, ...]]:
    return [shown(one) for one in versions(changes, barriers, lambda _: TABLE, from_first=from_first)]


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


@pytest.mark.parametrize("seed", range(20))
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
    found = list(versions(changes, ending(truncates), lambda _: TABLE, from_first=True))
    current = [shown(one)[:3] for one in found if one.ended is None]
    assert {key: (a, b) for key, a, b in current} == table
    assert len(current) == len(table)
    assert len(found) == sum(one.op != Op.DELETE.value for one in changes)
    for one in found:
        assert one.ended is None or one.change.place < one.ended.place


def test_keys_that_hang_together_are_one_group() -> None:
    found = linked_keys([(b"b", b"a"), (b"c", b"b"), (b"y", b"x"), (b"d", b"c")])
    assert found == {b"a": b"a", b"b": b"a", b"c": b"a", b"d": b"a", b"x": b"x", b"y": b"x"}
