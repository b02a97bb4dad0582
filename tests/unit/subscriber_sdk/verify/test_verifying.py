"""What an application sees of a verification, and what comes out of it: through changes, failures and crashes."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber_sdk import (
    UNAVAILABLE,
    AckLater,
    BatchInfo,
    HandlerFailed,
    Key,
    KeyRange,
    Op,
    Subscriber,
    Update,
    UsageError,
)
from subscriber_sdk.testing import Kit, KitFlow, body_of, frames, marker_at, read, update
from subscriber_sdk.verify.comparing import canonical
from subscriber_sdk.verify.known_keys import KnownKeys
from wormhole.model.schema import Schema
from wormhole.model.verification import MOST_DIFFERENCES, MOST_EXTRA, DifferenceKind, TableVerification
from wormhole.wire.rows import decode_key
from wormhole.wire.v1 import push_pb2

TABLE = "shop.users"
pytestmark = pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")


def row(key: Any, name: str = "ada") -> Any:
    return read(TABLE, key=key, after={"name": name})


ROWS = [row(number) for number in range(1, 7)]


@dataclass(eq=False)
class Copy(Subscriber):
    """Keeps the rows of one table by stamps, and records every callback."""

    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    """How often a callback fails, by name; or an update, by its key."""
    stamps: dict[Key, int] = field(default_factory=dict)
    running: int = 0

    def failing(self, name: str) -> None:
        if self.fails.get(name, 0):
            self.fails[name] -= 1
            raise ValueError(f"{name} fails")

    async def on_update(self, update: Update) -> None:
        self.running += 1
        await asyncio.sleep(0.01)
        self.running -= 1
        self.apply(update)

    def apply(self, update: Update) -> None:
        self.calls.append((update.op.value, *update.key))
        self.failing(repr(update.key))
        if update.op is Op.TRUNCATE:
            self.rows.clear()
            return
        self.rows.pop(update.old_key or update.key, None)
        if update.after is not None and not update.left:
            self.rows[update.key] = dict(update.after)
            self.stamps[update.key] = update.generation

    async def on_range(self, keys: KeyRange) -> None:
        self.calls.append(("range", *(key[0] for key in keys.keys)))
        self.failing("on_range")
        for key in [key for key in self.rows if key in keys and self.stamps.get(key, 0) < keys.generation]:
            del self.rows[key]

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:
        assert (table, shard, self.running) == (TABLE, "shop", 0)
        self.calls.append(f"verify {len(keys)}")
        self.failing("on_verify")
        return {key: self.rows[key] for key in keys if key in self.rows}

    def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:
        assert (table, shard, self.running) == (TABLE, "shop", 0)
        self.calls.append("keys")
        self.failing("on_verify_keys")
        return list(self.rows)

    async def on_rollback(self, to: Any, cause: Exception) -> None:
        self.calls.append("rollback")


class Together(Copy):
    on_update = Subscriber.on_update  # type: ignore[assignment]

    async def on_updates(self, batch: Sequence[Update]) -> None:
        self.calls.append(("together", len(batch)))
        for one in batch:
            self.apply(one)


class AsColumns(Copy):
    on_update = Subscriber.on_update  # type: ignore[assignment]

    async def on_arrow(self, batch: pa.RecordBatch) -> None:
        info = BatchInfo.of(batch)
        for one in batch.to_pylist():
            key = tuple(one[name] for name in info.key)
            self.calls.append((one["_op"], *key))
            self.failing(repr(key))
            self.rows.pop(tuple((one["_old_key"] or {}).values()) or key, None)
            if one["_op"] != "delete":
                self.rows[key] = {"name": one["name"]}
                self.stamps[key] = info.generation


class InThreads(Copy):
    """Plain ``def`` throughout, and a generator."""

    def on_update(self, update: Update) -> None:  # type: ignore[override]
        self.apply(update)

    def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:  # type: ignore[override]
        return {key: self.rows[key] for key in keys if key in self.rows}

    def on_verify_keys(self, table: str, shard: str) -> Iterator[Key]:
        yield from list(self.rows)


class Asynchronous(Copy):
    async def on_verify_keys(self, table: str, shard: str) -> AsyncIterator[Key]:  # type: ignore[override]
        for key in list(self.rows):
            await asyncio.sleep(0)
            yield key


class Awaited(Copy):
    async def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:  # type: ignore[override]
        await asyncio.sleep(0)
        return set(self.rows)


KINDS: list[Any] = [
    (Copy, {}),
    (Copy, {"concurrency": 4}),
    (Together, {}),
    (AsColumns, {}),
    (InThreads, {}),
    (InThreads, {"concurrency": 4}),
    (Asynchronous, {}),
    (Awaited, {}),
]


def copied(
    kit: Kit, make: type[Copy] = Copy, rows: Sequence[Any] = tuple(ROWS), **options: Any
) -> tuple[Copy, KitFlow]:
    """A copy that holds the rows."""
    copy = make()
    flow = kit.attach(copy, **options)
    flow.backfill(TABLE, rows)
    copy.calls.clear()
    return copy, flow


def named(found: TableVerification) -> list[tuple[Any, ...]]:
    return [(one.kind.value, decode_key(one.key)[0], *one.columns) for one in found.differences]


def counts(found: TableVerification) -> tuple[int, ...]:
    """Compared, not compared, differing, missing, extra, repaired, removed."""
    return (
        found.compared,
        found.not_compared,
        found.differs,
        found.missing,
        found.extra,
        found.repaired,
        found.removed,
    )


def spoiled(kit: Kit, make: type[Copy] = Copy, **options: Any) -> tuple[Copy, KitFlow]:
    """A copy with one value flipped, one row gone and one too many."""
    copy, flow = copied(kit, make, **options)
    copy.rows[(2,)] = {"name": "eve"}
    del copy.rows[(4,)]
    copy.rows[(9,)] = {"name": "zoe"}
    return copy, flow


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_equal_copies_are_equal(wormhole_kit: Kit, make: type[Copy], options: dict[str, Any]) -> None:
    copy, flow = copied(wormhole_kit, make, **options)
    found = flow.verify(TABLE, ROWS, chunks=3)
    assert counts(found) == (6, 0, 0, 0, 0, 0, 0)
    assert found.equal
    assert not [call for call in copy.calls if isinstance(call, tuple)]


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_every_difference_is_named_and_nothing_is_delivered(
    wormhole_kit: Kit, make: type[Copy], options: dict[str, Any]
) -> None:
    copy, flow = spoiled(wormhole_kit, make, **options)
    before = dict(copy.rows)
    found = flow.verify(TABLE, ROWS, chunks=3)
    assert counts(found) == (6, 0, 1, 1, 1, 0, 0)
    assert named(found) == [("differs", 2, "name"), ("missing", 4), ("extra", 9)]
    assert found.ended
    assert not found.equal
    assert copy.rows == before
    assert not [call for call in copy.calls if isinstance(call, tuple)]


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_a_repair_delivers_exactly_what_differs(wormhole_kit: Kit, make: type[Copy], options: dict[str, Any]) -> None:
    copy, flow = spoiled(wormhole_kit, make, **options)
    found = flow.verify(TABLE, ROWS, repair=True, chunks=3)
    assert counts(found) == (6, 0, 1, 1, 1, 2, 1)
    assert named(found) == [("differs", 2, "name"), ("missing", 4), ("extra", 9)]
    assert copy.rows == {(number,): {"name": "ada"} for number in range(1, 7)}
    delivered = [call for call in copy.calls if isinstance(call, tuple) and call[0] != "together"]
    assert delivered == [("read", 2), ("read", 4), ("range", 9)]
    assert flow.verify(TABLE, ROWS).equal


@pytest.mark.parametrize("concurrency", [1, 4])
def test_rows_wait_for_the_changes_before_them_and_changes_for_the_rows(wormhole_kit: Kit, concurrency: int) -> None:
    copy, flow = copied(wormhole_kit, concurrency=concurrency)
    flow.begin_verify()
    number = int(flow.end.delivered)
    bodies = [
        body_of([update(TABLE, key=1, after={"name": "new"})], number=number + 1),
        body_of([row(1, "new")], source="read:9", number=1, offset=number + 1),
        body_of([update(TABLE, key=1, after={"name": "newer"})], number=number + 2),
    ]
    flow._call(flow._connected().teach, [row(1).schema, Schema(TABLE, row(1).schema.key, ())])
    end = push_pb2.ChunkEnd(schema=Schema(TABLE, row(1).schema.key, ()).id)
    flow._send(
        *(frames.batch(flow._flow, flow.epoch, at, body) for at, body in enumerate(bodies, 1)),
        frames.chunk_end(flow._flow, flow.epoch, end),
        frames.datamarker(flow._flow, flow.epoch, marker_at(number + 2)),
    )
    flow._settle()
    assert copy.calls == [("insert", 1), "verify 1", ("insert", 1)]
    assert counts(flow.verification(TABLE)) == (1, 0, 0, 0, 0, 0, 0)


def test_a_key_that_was_moved_or_emptied_away_is_extra_where_the_copy_has_it(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=8, old_key=1, before={"name": "ada"}, after={"name": "ada"}))
    copy.rows[(1,)] = {"name": "zoe"}
    assert named(flow.end_verify(TABLE)) == [("extra", 1)]
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=(), op=Op.TRUNCATE), update(TABLE, key=9, after={"name": "new"}))
    copy.rows[(1,)] = {"name": "zoe"}
    assert named(flow.end_verify(TABLE)) == [("differs", 1, "name"), ("extra", 1)]


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_changes_go_on_meanwhile(wormhole_kit: Kit, make: type[Copy], options: dict[str, Any]) -> None:
    _, flow = spoiled(wormhole_kit, make, **options)
    flow.begin_verify()
    flow.commit(update(TABLE, key=1, before={"name": "ada"}, after={"name": "Ada"}))
    flow.chunk(TABLE, row(1, "Ada"), row(2), row(3), until=3)
    flow.commit(
        update(TABLE, key=3, before={"name": "ada"}),
        update(TABLE, key=8, after={"name": "new"}),
        update(TABLE, key=10, old_key=1, before={"name": "Ada"}, after={"name": "Ada"}),
    )
    flow.commit(update(TABLE, key=11, after={"name": "short-lived"}), update(TABLE, key=11, before={"name": "x"}))
    flow.chunk(TABLE, row(4), row(5), row(6), row(8, "new"), row(10, "Ada"), after=3)
    found = flow.end_verify(TABLE)
    assert counts(found) == (8, 0, 1, 1, 1, 0, 0)
    assert named(found) == [("differs", 2, "name"), ("missing", 4), ("extra", 9)]


def test_a_row_that_a_change_took_away_and_the_copy_still_has_is_extra(wormhole_kit: Kit) -> None:
    class Deaf(Copy):
        async def on_update(self, update: Update) -> None:
            if update.op not in {Op.DELETE, Op.TRUNCATE}:
                await super().on_update(update)

    _, flow = copied(wormhole_kit, Deaf)
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=3, before={"name": "ada"}))
    assert named(flow.end_verify(TABLE)) == [("extra", 3)]
    flow.begin_verify()
    flow.commit(update(TABLE, key=(), op=Op.TRUNCATE))
    flow.chunk(TABLE, row(6))
    assert named(flow.end_verify(TABLE)) == [("extra", number) for number in range(1, 6)]


def test_only_columns_in_the_answer_are_compared(wormhole_kit: Kit) -> None:
    class Partial(Copy):
        async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:
            return {
                (1,): {"name": "ada"},
                (2,): {"age": UNAVAILABLE, "name": "bob"},
                (3,): {},
                (4,): {"id": 4, "age": Decimal("36.0")},
                (5,): {"id": 6, "age": 36},
            }

    rows = [read(TABLE, key=key, after={"name": "ada", "age": 36}) for key in range(1, 6)]
    rows.append(read(TABLE, key=6, after={"name": UNAVAILABLE, "age": 36}))

    class WithSixth(Partial):
        async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:
            return {**await super().on_verify(table, shard, keys), (6,): {"name": "anything", "age": 37}}

    _, flow = copied(wormhole_kit, WithSixth, rows)
    assert named(flow.verify(TABLE, rows)) == [("differs", 2, "name"), ("differs", 5, "id"), ("differs", 6, "age")]


def test_keys_of_every_type_are_found_again(wormhole_kit: Kit) -> None:
    keys: list[Any] = ["text", b"bytes", -5, 1 << 63, Decimal("1.50"), 0.5, True, "x" * 3000, ("a", 1), ("a1", 0)]
    for key in keys:
        rows = [read(TABLE, key=key, after={"name": "ada"})]
        _, flow = copied(wormhole_kit, Copy, rows)
        assert flow.verify(TABLE, rows).equal, key
        assert flow.verify(TABLE, []).extra == 1, key


def test_an_equal_number_of_another_type_is_the_same_key(wormhole_kit: Kit) -> None:
    class Other(Copy):
        def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:
            return [(Decimal("7.000"),), (8.0,), (True,)]

    rows = [row(7), row(8), row(1)]
    _, flow = copied(wormhole_kit, Other, rows)
    assert flow.verify(TABLE, rows).equal


def test_surplus_keys_of_an_empty_table_are_as_its_source_would_have_them(wormhole_kit: Kit) -> None:
    """A publisher that looks for them compares bytes."""

    class Other(Copy):
        def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:
            return [(Decimal("7.000"),), (Decimal("7.5"),)]

    _, flow = copied(wormhole_kit, Other, [row(7)])
    found = flow.verify(TABLE, [])
    assert [decode_key(one.key) for one in found.differences] == [(7,), (Decimal("7.5"),)]
    assert type(decode_key(found.differences[0].key)[0]) is int


def test_a_fraction_is_the_same_key_as_a_decimal_and_as_a_float() -> None:
    assert canonical((0.5,)) == canonical((Decimal("0.50"),))
    assert canonical((0.1,)) != canonical((Decimal("0.1"),))  # neither does Python take them for equal


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.integers() | st.floats(allow_nan=False)))
def test_keys_are_the_same_exactly_if_their_values_are_equal(values: list[Any]) -> None:
    for one, other in combinations(values, 2):
        assert (canonical((one,)) == canonical((other,))) is (one == other)


@pytest.mark.parametrize("text", ["1e999999999", "-1e-999999999", "0e999999999", "1e999999999999999999"])
def test_a_decimal_with_a_large_exponent_is_not_written_out(text: str) -> None:
    tracemalloc.start()
    try:
        form = canonical((Decimal(text),))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert (form == canonical((0,))) is text.startswith("0")


def test_extra_keys_that_no_publisher_takes_are_named_as_such(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit, Copy, [read(TABLE, key="k", after={"name": "ada"})])
    copy.rows["x" * 70_000,] = {"name": "zoe"}
    found = flow.verify(TABLE, [read(TABLE, key="k", after={"name": "ada"})], repair=True)
    assert (found.ended, found.extra, found.removed) == (True, 1, 0)
    assert "1 keys that only the application holds are too long to be looked at" in found.trouble


# --- failures ---


@pytest.mark.parametrize("name", ["on_verify", "on_verify_keys"])
def test_a_failure_is_tried_again_without_a_rollback(wormhole_kit: Kit, name: str) -> None:
    copy, flow = copied(wormhole_kit)
    copy.fails[name] = 3
    assert flow.verify(TABLE, ROWS, chunks=2).equal
    assert "rollback" not in copy.calls
    assert wormhole_kit.now == pytest.approx(0.06 + 0.1 + 0.2 + 0.4, abs=0.001)


def test_a_table_whose_rows_cannot_be_given_is_given_up_and_the_flow_goes_on(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS[:3], until=3)
    copy.fails["on_verify"] = 1000
    flow.chunk(TABLE, *ROWS[3:], after=3)
    flow.commit(update(TABLE, key=8, after={"name": "new"}))
    found = flow.end_verify(TABLE)
    assert counts(found) == (3, 3, 0, 0, 0, 0, 0)
    assert found.ended
    assert not found.equal
    assert "ValueError: on_verify fails" in found.trouble
    assert found.trouble.endswith("Next: mend on_verify, then verify the table again")
    assert copy.calls.count("verify 3") == 1 + 8
    assert copy.rows[(8,)] == {"name": "new"}


def test_a_table_whose_keys_cannot_be_listed_is_not_equal(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    copy.fails["on_verify_keys"] = 1000
    found = flow.verify(TABLE, ROWS)
    assert (found.ended, found.equal, found.compared) == (True, False, 6)
    assert "on_verify_keys fails" in found.trouble


def test_a_listing_that_fails_half_way_begins_anew(wormhole_kit: Kit) -> None:
    class Half(Copy):
        def on_verify_keys(self, table: str, shard: str) -> Iterator[Key]:
            yield from [(number,) for number in range(1, 2001)]
            self.failing("half")
            yield (9999,)

    copy, flow = copied(wormhole_kit, Half, [row(number) for number in range(1, 2001)])
    copy.fails["half"] = 1
    found = flow.verify(TABLE, [row(number) for number in range(2, 2001)])
    assert found.extra == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda keys: None, "on_verify returned None for table shop.users"),
        (lambda keys: {7: {}}, "on_verify returned the key 7 for table shop.users, which it was not asked for"),
        (lambda keys: {keys[0]: "ada"}, "on_verify returned 'ada' for shop.users:(1,)"),
        (
            lambda keys: {keys[0]: {"email": "a@b"}},
            "on_verify returned column 'email' for table shop.users, whose rows have id, name",
        ),
    ],
)
def test_a_wrong_answer_is_not_asked_for_twice(wormhole_kit: Kit, answer: Any, why: str) -> None:
    class Wrong(Copy):
        async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Any:
            self.calls.append("asked")
            return answer(keys)

    copy, flow = copied(wormhole_kit, Wrong)
    found = flow.verify(TABLE, ROWS, chunks=3)
    assert why in found.trouble
    assert "Next: " in found.trouble
    assert found.not_compared == 6
    assert copy.calls == ["asked"]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (None, "on_verify_keys returned None for table shop.users"),
        ("abc", "on_verify_keys returned 'abc'"),
        ([7], "on_verify_keys gave 7 for table shop.users, which is no key: a tuple of 1 value was expected"),
        ([(1, 2)], "on_verify_keys gave (1, 2)"),
        ([(None,)], "a NoneType is in no key"),
        ([(1 << 64,)], "a int is in no key"),
    ],
)
def test_what_is_no_key_is_named(wormhole_kit: Kit, keys: Any, why: str) -> None:
    class Wrong(Copy):
        def on_verify_keys(self, table: str, shard: str) -> Any:
            return keys

    _, flow = copied(wormhole_kit, Wrong)
    found = flow.verify(TABLE, ROWS)
    assert why in found.trouble
    assert found.ended
    assert not found.equal


def test_a_rollback_counts_nothing_twice(wormhole_kit: Kit) -> None:
    copy, flow = spoiled(wormhole_kit)
    copy.fails["(4,)"] = 2
    found = flow.verify(TABLE, ROWS, repair=True)
    assert copy.calls.count("rollback") == 2
    assert counts(found) == (6, 0, 1, 1, 1, 2, 1)
    assert copy.calls.count(("read", 2)) == 3
    assert copy.rows == {(number,): {"name": "ada"} for number in range(1, 7)}


def test_a_rollback_over_the_end_of_a_table_keeps_what_was_found(wormhole_kit: Kit) -> None:
    class Late(Copy):
        async def on_datamarker(self, marker: Any) -> None:
            self.failing("on_datamarker")

    copy, flow = spoiled(wormhole_kit, Late)
    flow.begin_verify()
    copy.fails["on_datamarker"] = 1
    flow.chunk(TABLE, *ROWS)
    copy.fails["on_datamarker"] = 1
    assert counts(flow.end_verify(TABLE)) == (6, 0, 1, 1, 1, 0, 0)
    assert (copy.calls.count("verify 6"), copy.calls.count("keys"), copy.calls.count("rollback")) == (1, 1, 2)


@dataclass(eq=False)
class Lazy(Copy):
    """Acknowledges nothing while it ``waits``."""

    waits: bool = False

    async def on_datamarker(self, marker: Any) -> AckLater | None:
        return AckLater(3600) if self.waits else None


def test_an_application_that_is_ahead_after_a_rollback_is_not_compared_with_older_rows(wormhole_kit: Kit) -> None:
    copy, flow = spoiled(wormhole_kit, Lazy)
    assert isinstance(copy, Lazy)
    flow.begin_verify()
    copy.waits = True
    flow.chunk(TABLE, *ROWS)
    flow.commit(
        update(TABLE, key=1, before={"name": "ada"}, after={"name": "new"}), update(TABLE, key=7, after={"name": "x"})
    )
    flow.end_scan(TABLE)
    flow.commit(update(TABLE, key=8, after={"name": "x"}), update(TABLE, key=6, before={"name": "ada"}))
    copy.fails["(5,)"] = 1
    flow.commit(update(TABLE, key=5, before={"name": "ada"}, after={"name": "new"}))
    assert "rollback" in copy.calls
    assert flow.verification(TABLE) == TableVerification(TABLE)
    copy.waits = False
    flow.commit(update(TABLE, key=10, after={"name": "x"}))
    assert counts(flow.verification(TABLE)) == (6, 0, 1, 1, 1, 0, 0)
    assert flow.verification(TABLE).ended


@pytest.mark.parametrize("repair", [False, True])
def test_what_an_earlier_epoch_delivered_is_compared_only_for_a_repair(wormhole_kit: Kit, *, repair: bool) -> None:
    copy, flow = copied(wormhole_kit)
    flow.begin_verify(repair=repair)
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=1, before={"name": "ada"}, after={"name": "new"}))
    flow.crash_and_redeliver(2)
    found = flow.end_verify(TABLE)
    assert copy.rows[(1,)] == {"name": "new"}
    if repair:
        assert (found.compared, found.ended) == (6, True)
    else:
        assert (found.not_compared, found.differs, found.ended, found.equal) == (6, 0, True, False)
        assert "the application may be ahead of it" in found.trouble


def test_on_range_is_tried_again_like_any_callback(wormhole_kit: Kit) -> None:
    copy, flow = spoiled(wormhole_kit)
    copy.fails["on_range"] = 1
    found = flow.verify(TABLE, ROWS, repair=True)
    assert (found.extra, found.removed, found.ended) == (1, 1, True)
    assert (9,) not in copy.rows


def test_a_new_epoch_begins_with_empty_results(wormhole_kit: Kit) -> None:
    _, flow = spoiled(wormhole_kit)
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS[:3], until=3)
    assert flow.verification(TABLE).differs == 1
    flow.cut()
    flow.assign()
    assert flow.verification(TABLE).compared == 0
    flow.chunk(TABLE, *ROWS)
    assert counts(flow.end_verify(TABLE)) == (6, 0, 1, 1, 1, 0, 0)


def test_after_a_verification_updates_are_delivered(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    flow.verify(TABLE, ROWS)
    flow.crash_and_redeliver(2)
    flow.backfill(TABLE, [row(7)])
    assert ("read", 7) in copy.calls
    assert copy.calls.count(("read", 1)) == 0


# --- what cannot be compared ---


def test_a_row_that_is_parked_is_not_compared(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit, on_failure="park")
    copy.fails["(3,)"] = 8
    flow.commit(update(TABLE, key=3, before={"name": "ada"}, after={"name": "new"}))
    assert len(flow.parked) == 1
    found = flow.verify(TABLE, [row(3, "new") if one is ROWS[2] else one for one in ROWS], repair=True)
    assert counts(found) == (5, 1, 0, 0, 0, 0, 0)
    assert len(flow.parked) == 1


def test_a_parked_delete_leaves_its_key_alone(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit, on_failure="park")
    copy.fails["(3,)"] = 8
    flow.commit(update(TABLE, key=3, before={"name": "ada"}))
    found = flow.verify(TABLE, [one for one in ROWS if one is not ROWS[2]], repair=True)
    assert counts(found) == (5, 1, 0, 0, 0, 0, 0)
    assert (3,) in copy.rows


def test_behind_an_operation_on_the_whole_table_no_keys_are_compared(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit, on_failure="park")
    copy.fails["()"] = 8
    flow.commit(update(TABLE, key=(), op=Op.TRUNCATE))
    found = flow.verify(TABLE, ROWS, repair=True)
    assert counts(found) == (0, 6, 0, 0, 0, 0, 0)
    assert "an operation on the whole table is parked" in found.trouble


def test_what_was_parked_and_is_retried_is_delivered(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit, on_failure="park")
    copy.fails["(7,)"] = 8
    flow.backfill(TABLE, [*ROWS, row(7)])
    assert len(flow.parked) == 1
    flow.begin_verify()
    flow.retry()
    assert copy.rows[(7,)] == {"name": "ada"}
    flow.chunk(TABLE, *ROWS, row(7))
    assert counts(flow.end_verify(TABLE)) == (7, 0, 0, 0, 0, 0, 0)


def test_a_skipped_change_is_counted(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    flow.begin_verify()
    flow.skip(f"test:{int(flow.end.delivered) + 2}:0")
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=3, before={"name": "ada"}))
    found = flow.end_verify(TABLE)
    assert (3,) in copy.rows
    assert counts(found) == (6, 2, 0, 0, 0, 0, 0)  # the change, and the key that is still listed


def test_after_its_end_nothing_more_is_said_of_a_table(wormhole_kit: Kit) -> None:
    _, flow = copied(wormhole_kit)
    flow.begin_verify()
    flow.skip(f"test:{int(flow.end.delivered) + 3}:0")
    flow.chunk(TABLE, *ROWS)
    found = flow.end_verify(TABLE)
    flow.commit(update(TABLE, key=3, before={"name": "ada"}))
    assert flow.verification(TABLE) == found
    assert found.equal


def test_keys_that_the_chunk_left_out_are_not_called_extra(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    copy.rows[(9,)] = {"name": "zoe"}
    flow.begin_verify(repair=True)
    flow.chunk(TABLE, *ROWS, except_keys=[9])
    assert counts(flow.end_verify(TABLE)) == (6, 1, 0, 0, 0, 0, 0)
    assert (9,) in copy.rows


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (update(TABLE, key=1, key_end=2, op=Op.DELETE_RANGE), "a range of them was deleted meanwhile"),
        (update(TABLE, key=(), after={"name": "x"}), "a row without a key was changed meanwhile"),
    ],
)
def test_after_some_changes_keys_are_not_compared(wormhole_kit: Kit, change: Any, why: str) -> None:
    _, flow = spoiled(wormhole_kit)
    flow.begin_verify()
    flow.chunk(TABLE, *ROWS)
    flow.commit(change)
    found = flow.end_verify(TABLE)
    assert (found.extra, found.ended, found.equal) == (0, True, False)
    assert why in found.trouble


def test_without_on_range_extra_rows_stay_and_are_named(wormhole_kit: Kit) -> None:
    class NoRange(Copy):
        on_range = Subscriber.on_range  # type: ignore[assignment]

    copy, flow = spoiled(wormhole_kit, NoRange)
    found = flow.verify(TABLE, ROWS, repair=True)
    assert counts(found) == (6, 0, 1, 1, 1, 2, 0)
    assert "override it" in found.trouble
    assert (9,) in copy.rows


def test_a_key_that_came_meanwhile_is_not_removed(wormhole_kit: Kit) -> None:
    copy, flow = copied(wormhole_kit)
    copy.rows |= {(8,): {"name": "zoe"}, (9,): {"name": "zoe"}}
    flow.begin_verify(repair=True)
    flow.chunk(TABLE, *ROWS)
    flow.end_scan(TABLE)
    asked = flow.verification(TABLE)
    assert (asked.extra, asked.ended) == (0, False)
    flow.commit(update(TABLE, key=9, after={"name": "new"}))
    flow.chunk(TABLE, keys=[8, 9, 10])
    flow.end_scan(TABLE)
    found = flow.verification(TABLE)
    assert (found.extra, found.removed) == (1, 1), "the other one is no difference"
    assert ("range", 8) in copy.calls
    assert copy.rows[(9,)] == {"name": "new"}


def test_many_differences_are_counted_and_the_first_named(wormhole_kit: Kit) -> None:
    many = [row(number) for number in range(3000)]
    copy, flow = copied(wormhole_kit, Copy, many)
    copy.rows = {key: {"name": "eve"} for key in copy.rows}
    found = flow.verify(TABLE, many, chunks=4)
    assert found.differs == 3000
    assert len(found.differences) == MOST_DIFFERENCES


@pytest.mark.parametrize("repair", [False, True])
def test_many_extra_keys(wormhole_kit: Kit, repair: bool) -> None:
    copy, flow = copied(wormhole_kit)
    copy.rows |= {(number,): {"name": "zoe"} for number in range(100, 100 + MOST_EXTRA + 5)}
    found = flow.verify(TABLE, ROWS, repair=repair)
    assert (found.extra, found.removed) == (MOST_EXTRA + 5, MOST_EXTRA if repair else 0)
    assert len(found.differences) == MOST_DIFFERENCES
    assert ("begin a backfill of the table" in found.trouble) is repair
    assert {one.kind for one in found.differences} == {DifferenceKind.EXTRA}


def test_an_application_that_does_not_verify_is_refused(wormhole_kit: Kit) -> None:
    class Half(Copy):
        on_verify = Subscriber.on_verify  # type: ignore[assignment]

    flow = wormhole_kit.attach(Half())
    with pytest.raises(UsageError, match="Half cannot be verified"):
        flow.begin_verify()


def test_a_repair_that_fails_halts_like_any_update(wormhole_kit: Kit) -> None:
    copy, flow = spoiled(wormhole_kit)
    copy.fails["(2,)"] = 8
    with pytest.raises(HandlerFailed, match=r"read:2:1:1"):
        flow.verify(TABLE, ROWS, repair=True)


def test_a_disk_that_is_full_leaves_the_flow_alone(wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    copy, flow = copied(wormhole_kit)
    flow.begin_verify()
    monkeypatch.setattr(KnownKeys, "apply", full)
    flow.chunk(TABLE, *ROWS)
    flow.commit(update(TABLE, key=8, after={"name": "new"}))
    found = flow.end_verify(TABLE)
    assert (found.compared, found.ended, found.equal) == (6, True, False)
    assert "database or disk is full" in found.trouble
    assert "TMPDIR" in found.trouble
    assert (8,) in copy.rows
