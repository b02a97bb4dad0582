"""Parking and skipping as an application sees them; `tests/property/test_parking.py` has any sequence of failures
and crashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from subscriber_sdk import Datamarker, FlowHalted, RetryPolicy, ShardNotice, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, KitFlow, marker_at, update
from wormhole.model.errors import HandlerFailed, UsageError
from wormhole.model.values import Op

ONCE = RetryPolicy(attempts=2)


class Store(Subscriber):
    """Keeps what it was told, as a database would: what was not committed at a datamarker is rolled back.

    ``bad`` names refused values."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.calls: list[Any] = []
        self.kept: list[Any] = []
        self.open: list[Any] = []
        self.halted: list[FlowHalted] = []

    def take(self, update: Update) -> None:
        after = update.after
        value = update.op.value if after is None else after["v"]
        self.calls.append(value)
        if value in self.bad:
            raise ValueError(f"{value} is bad")
        self.open.append(value)

    async def on_update(self, update: Update) -> None:
        self.take(update)

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.kept += self.open
        self.open.clear()

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.open.clear()

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        self.open.clear()

    async def on_error(self, error: FlowHalted) -> None:
        self.halted.append(error)


class Threaded(Store):
    def on_update(self, update: Update) -> None:  # type: ignore[override]
        self.take(update)


class Batched(Subscriber):
    """As :class:`Store`, by ``on_updates``."""

    def __init__(self, *bad: int) -> None:
        self.store = Store(*bad)
        self.sizes: list[int] = []

    async def on_updates(self, batch: Sequence[Update]) -> None:
        self.sizes.append(len(batch))
        for one in batch:
            self.store.take(one)

    async def on_datamarker(self, marker: Datamarker) -> None:
        await self.store.on_datamarker(marker)

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        await self.store.on_shard_notice(notice)

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        await self.store.on_rollback(to, cause)


def put(key: int, value: int, table: str = "t") -> Change:
    return update(table, key=key, after={"v": value})


def truncate(table: str = "t") -> Change:
    return update(table, key=(), op=Op.TRUNCATE)


def begin(kit: Kit, store: Subscriber, **options: Any) -> KitFlow:
    return kit.attach(store, on_failure="park", retry=ONCE, **options)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", [Store, Threaded])
def test_what_follows_of_a_row_is_parked_and_the_others_go_on(
    wormhole_kit: Kit, kind: type[Store], concurrency: int
) -> None:
    flow = begin(wormhole_kit, store := kind(2), concurrency=concurrency)
    flow.commit(put(1, 1), put(2, 10), put(1, 2), put(1, 3), put(2, 11))
    flow.commit(put(1, 4), put(2, 12))
    assert sorted(store.kept) == [1, 10, 11, 12]
    assert flow.parked == ["test:1:2", "test:1:3", "test:2:0"]
    assert flow.datamarker == flow.end
    assert store.calls.count(2) == 2
    assert not {3, 4} & set(store.calls)
    assert not store.halted


def test_nothing_counts_before_the_update_is_stored(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(2), dead_letters=0)
    with pytest.raises(HandlerFailed, match="cannot be parked: 0 updates are parked, which is dead_letters"):
        flow.commit(put(1, 1), put(1, 2))
    assert flow.datamarker == marker_at(0)
    assert flow.parked == []
    [halted] = store.halted
    assert halted.update_id == "test:1:1"


def test_at_the_bound_the_flow_is_halted_also_for_what_follows(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, Store(1), dead_letters=2)
    flow.commit(put(1, 1), put(1, 2))
    with pytest.raises(HandlerFailed, match="test:2:0"):
        flow.commit(put(1, 3))
    assert flow.parked == ["test:1:0", "test:1:1"]
    assert flow.datamarker == marker_at(1)


def test_parked_rows_go_with_the_shard(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, Store(1))
    flow.commit(put(1, 1))
    flow.crash_and_redeliver(0, subscriber=(another := Store()))
    flow.commit(put(1, 2), put(2, 3))
    assert another.kept == [3]
    assert flow.parked == ["test:1:0", "test:2:0"]


def test_what_comes_again_from_before_a_parked_update_is_handled(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, Store(2))
    flow.commit(put(1, 1))
    flow.commit(put(1, 2), put(1, 3))
    flow.crash_and_redeliver(2, subscriber=(another := Store(2)))
    assert another.kept == [1]
    assert flow.parked == ["test:2:0", "test:2:1"]
    assert flow.datamarker == flow.end


def test_a_retry_delivers_in_order_before_anything_new_and_frees_the_row(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1), put(1, 2), put(2, 9))
    store.bad.clear()
    store.calls.clear()
    flow.retry("t:1")
    assert store.calls == [1, 2]
    assert flow.parked == []
    flow.commit(put(1, 3))
    assert store.kept == [9, 1, 2, 3]


def test_a_retry_that_fails_parks_again(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1), put(1, 2), put(2, 8))
    flow.retry()
    assert flow.parked == ["test:1:0", "test:1:1"]
    flow.commit(put(1, 3), put(2, 9))
    assert store.kept == [8, 9]
    assert 2 not in store.calls


def test_a_crash_amid_a_retry_repeats_and_loses_nothing(wormhole_kit: Kit) -> None:
    class Dying(Store):
        async def on_datamarker(self, marker: Datamarker) -> None:
            if 2 in self.open:
                flow._letters.retry("")  # what is durable at the publisher: 1 is gone, 2 is still marked
                raise RuntimeError("the process is about to die")
            await super().on_datamarker(marker)

    flow = wormhole_kit.attach(Store(1), on_failure="park", retry=ONCE)
    flow.commit(put(1, 1), put(1, 2))
    flow.crash_and_redeliver(0, subscriber=(dying := Dying()))
    with pytest.raises(HandlerFailed):
        flow.retry()
    assert dying.kept == [1]
    assert flow.parked == ["test:1:1"]
    flow.crash_and_redeliver(0, subscriber=(another := Store()))
    assert another.kept == [2]
    assert flow.parked == []


def test_a_key_change_binds_both_keys(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    moved = update("t", key=2, old_key=1, before={"v": 1}, after={"v": 5})
    flow.commit(put(1, 1), moved, put(2, 6), put(3, 7))
    assert store.kept == [7]
    assert len(flow.parked) == 3
    store.bad.clear()
    flow.retry("t:2")
    assert store.kept == [7, 1, 5, 6]


def test_a_truncate_behind_a_parked_row_is_parked_and_holds_its_table(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1), truncate("other"), truncate(), put(2, 2), put(3, 3, "other"))
    assert store.kept == ["truncate", 3]
    assert flow.parked == ["test:1:0", "test:1:2", "test:1:3"]
    store.bad.clear()
    flow.retry("t:*")
    assert store.kept == ["truncate", 3, 1, "truncate", 2]
    flow.commit(put(1, 4))
    assert store.kept[-1] == 4


def test_discarded_updates_never_come_and_the_row_is_free(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1), put(1, 2), put(5, 1))
    with pytest.raises(UsageError, match=r"no update of t:7 is parked.*t:1, t:5"):
        flow.discard("t:7")
    flow.discard("t:1")
    flow.commit(put(1, 3), put(5, 4))
    assert store.kept == [3]
    assert flow.parked == ["test:1:2", "test:2:1"]


def test_of_a_batch_that_fails_the_culprit_is_found(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, subscriber := Batched(13))
    flow.commit(*(put(n, 10 + n) for n in range(5)))
    flow.commit(put(3, 20), put(4, 21))
    assert subscriber.store.kept == [10, 11, 12, 14, 21]
    assert flow.parked == ["test:1:3", "test:2:0"]
    # The whole batch twice; one by one up to the culprit, twice; then again with the culprit passed over.
    assert subscriber.sizes == [5, 5, *[1] * 4, *[1] * 4, *[1] * 4, 1]


def test_two_culprits_in_a_batch(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, subscriber := Batched(11, 13))
    flow.commit(*(put(n, 10 + n) for n in range(5)))
    assert subscriber.store.kept == [10, 12, 14]
    assert flow.parked == ["test:1:1", "test:1:3"]


def test_a_culprit_in_a_batch_that_is_sent_again_is_found_too(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, subscriber := Batched(39), credit=400)
    flow.commit(*(update("t", key=n, after={"v": n, "w": bytes(50)}) for n in range(40)), pieces=20)
    assert subscriber.store.kept == list(range(39))
    assert flow.parked == ["test:1:39"]


def test_other_callbacks_halt_as_before(wormhole_kit: Kit) -> None:
    class Failing(Store):
        async def on_datamarker(self, marker: Datamarker) -> None:
            raise ValueError("disk full")

    flow = begin(wormhole_kit, Failing())
    with pytest.raises(HandlerFailed, match="disk full"):
        flow.commit(put(1, 1))
    assert flow.parked == []


def test_a_row_that_cannot_be_read_halts_for_nobody_knows_whose_it_is(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1))
    with pytest.raises(HandlerFailed, match=r"test:2:0.*no valid row"):
        flow.commit(Change(put(1, 2).schema, b"\xff"))
    assert store.halted
    assert flow.parked == ["test:1:0"]


def test_a_row_that_cannot_be_read_halts_batches_too(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, Batched(1))
    flow.commit(put(1, 1), put(2, 2), put(3, 3))
    with pytest.raises(HandlerFailed, match=r"test:2:0.*no valid row"):
        flow.commit(Change(put(1, 2).schema, b"\xff"))
    assert flow.parked == ["test:1:0"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_update_to_skip_is_passed_over(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, concurrency: int
) -> None:
    flow = wormhole_kit.attach(store := Store(2), retry=ONCE, concurrency=concurrency)
    with pytest.raises(HandlerFailed):
        flow.commit(put(1, 1), put(1, 2), put(1, 3))
    flow.skip("test:1:1")
    assert store.kept == [1, 3]
    assert flow.datamarker == flow.end
    assert "update test:1:1 is skipped" in caplog.text


def test_an_update_to_skip_in_a_batch(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Batched(2), retry=ONCE)
    with pytest.raises(HandlerFailed):
        flow.commit(put(1, 1), put(1, 2), put(1, 3))
    subscriber.sizes.clear()
    flow.skip("test:1:1")
    assert subscriber.store.kept == [1, 3]
    assert subscriber.sizes == [1, 1]


def test_with_the_policy_halt_parked_rows_are_still_held_back(wormhole_kit: Kit) -> None:
    flow = begin(wormhole_kit, store := Store(1))
    flow.commit(put(1, 1))
    flow._parks = False
    flow.crash_and_redeliver(0)
    flow.commit(put(1, 2))
    assert flow.parked == ["test:1:0", "test:2:0"]
    with pytest.raises(HandlerFailed):
        flow.commit(put(2, 1))
    assert store.kept == []


def test_a_large_update_is_parked_in_pieces(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(store := Store(1), on_failure="park", retry=ONCE, max_update=8 << 20, credit=16 << 20)
    flow.commit(update("t", key=1, after={"v": 1, "w": bytes(range(256)) * (3 << 12)}))
    assert flow.parked == ["test:1:0"]
    store.bad.clear()
    flow.retry()
    assert store.kept == [1]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_nothing_of_a_table_overtakes_its_parked_update_without_a_key(wormhole_kit: Kit, concurrency: int) -> None:
    """Also when the table has a key from then on, or had one before; other tables go on."""

    def change(value: int, key: int | tuple[()] = (), table: str = "log") -> Change:
        return update(table, key=key, after={"v": value})

    flow = wormhole_kit.attach(store := Store(2, 7), on_failure="park", retry=ONCE, concurrency=concurrency)
    flow.commit(change(1))
    flow.commit(change(2), change(3))
    flow.commit(change(4, key=9), change(5, key=1, table="users"))
    flow.commit(update("log", key=(), op=Op.TRUNCATE))
    flow.commit(change(7, key=1, table="users"))
    flow.commit(change(8, table="users"), change(9, key=2, table="users"))
    assert store.kept == [1, 5]
    assert len(flow.parked) == 7
    flow.crash_and_redeliver(transactions=3)
    assert (store.kept, len(flow.parked)) == ([1, 5], 7)
    store.bad.clear()
    flow.retry("log:*")
    assert store.kept == [1, 5, 2, 3, 4, "truncate"]
    flow.retry()
    assert store.kept == [1, 5, 2, 3, 4, "truncate", 7, 8, 9]
    assert flow.parked == []
