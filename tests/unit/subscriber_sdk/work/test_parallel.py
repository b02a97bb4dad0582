"""Several callbacks at a time: each key in order, whatever the schedule."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk import Datamarker, Op, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, update
from subscriber_sdk.work.keyorder import KeyOrder
from tests.support.seed import examples
from wormhole.model.errors import HandlerFailed

# --- parallel: several callbacks at a time: each key in order, acknowledgements only behind finished work ---


class Overlapping(Subscriber):
    """Updates take the time that their key says; everything is noted."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self.acknowledged: list[int] = []

    async def on_update(self, update: Update) -> None:
        self.began.append(update.id)
        self.running.add(update.id)
        self.most = max(self.most, len(self.running))
        await asyncio.sleep(float(str(update.key[0])[-1]))
        self.running.discard(update.id)
        self.ended.append(update.id)

    async def on_datamarker(self, marker: Datamarker) -> None:
        assert not self.running
        self.acknowledged.append(len(self.ended))


def change(step: tuple[str, int, int]) -> Change:
    kind, key, other = step
    match kind:
        case "barrier":
            return update("t", key=(), op=Op.TRUNCATE)
        case "range":
            return update("t", key=key, op=Op.DELETE_RANGE, key_end=other)
        case "move":
            return update("t", key=key, old_key=other, before={"v": 1}, after={"v": 2})
        case _:
            return update("t", key=key, after={"v": 1})


class Careful(Overlapping):
    """Raises when two overlap that must not."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.touched: dict[str, set[Any] | None] = {}
        self.failures = failures

    async def on_update(self, update: Update) -> None:
        everything = update.op in {Op.TRUNCATE, Op.DELETE_RANGE}
        keys = None if everything else {*update.key, *(update.old_key or ())}
        for other, theirs in self.touched.items():
            assert keys is not None, f"{update.id} is a barrier and began beside {other}"
            assert theirs is not None, f"{update.id} began beside the barrier {other}"
            assert not keys & theirs, f"{update.id} began beside {other}, which has its key"
        self.touched[update.id] = keys
        try:
            await asyncio.sleep(hash(update.id) % 7 / 10)
            if self.failures and hash(update.id) % 3 == 0:
                self.failures -= 1
                raise ValueError("flaky")
            self.ended.append(update.id)
        finally:
            del self.touched[update.id]


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "move", "barrier", "range"]), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


@examples(60)
@given(st.lists(STEPS, min_size=1, max_size=4), st.integers(2, 6), st.integers(1, 4), st.integers(0, 3))
def test_any_updates_keep_the_order_of_each_key(
    transactions: list[list[tuple[str, int, int]]], concurrency: int, pieces: int, failures: int
) -> None:
    kit = Kit()
    try:
        flow = kit.attach(subscriber := Careful(failures), concurrency=concurrency, retry=9)
        for steps in transactions:
            flow.commit(*map(change, steps), pieces=pieces)
        assert flow.datamarker == flow.end
        everything = {f"test:{n}:{i}" for n, steps in enumerate(transactions, 1) for i in range(len(steps))}
        assert set(subscriber.ended) == everything
    finally:
        kit.close()


@pytest.fixture
def kit() -> Any:
    kit = Kit()
    yield kit
    kit.close()


def test_different_keys_overlap_up_to_the_limit(kit: Kit) -> None:
    flow = kit.attach(subscriber := Overlapping(), concurrency=3)
    flow.commit(*[update("t", key=10 * n + 1) for n in range(9)])
    assert subscriber.most == 3
    assert kit.now == pytest.approx(3.0)


def test_batches_overlap_too_but_not_over_a_datamarker(kit: Kit) -> None:
    flow = kit.attach(subscriber := Overlapping(), concurrency=8)
    flow.commit(*[update("t", key=10 * n + 1) for n in range(4)], pieces=4)
    assert subscriber.most == 4
    flow.commit(update("t", key=1))
    assert subscriber.acknowledged == [4, 5]


def test_one_key_never_overlaps(kit: Kit) -> None:
    flow = kit.attach(subscriber := Overlapping(), concurrency=8)
    flow.commit(*[update("t", key=1) for _ in range(5)])
    assert subscriber.most == 1
    assert subscriber.ended == [f"test:1:{n}" for n in range(5)]


def test_the_first_failure_in_log_order_is_the_one_reported(kit: Kit) -> None:
    class Failing(Subscriber):
        async def on_update(self, update: Update) -> None:
            await asyncio.sleep(1.0 / float(str(update.key[0])))
            raise ValueError(update.id)

    flow = kit.attach(Failing(), concurrency=8, retry=1)
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1), update("t", key=2))
    assert flow.halted is not None
    # Both ran: the second failed first, and the first had its time to end.
    assert flow.halted.update_id == "test:1:0"


def test_each_callback_has_its_own_time_limit(kit: Kit) -> None:
    class Slow(Subscriber):
        async def on_update(self, update: Update) -> None:
            await asyncio.sleep(100 if update.key[0] == 2 else 1)

    flow = kit.attach(Slow(), concurrency=4, handler_timeout=5, retry=1)
    with pytest.raises(HandlerFailed, match="test:1:1"):
        flow.commit(update("t", key=1), update("t", key=2), update("t", key=3))


def test_a_row_that_cannot_be_decoded_fails_its_update(kit: Kit) -> None:
    flow = kit.attach(Overlapping(), concurrency=2, retry=1)
    good = update("t", key=1)
    with pytest.raises(HandlerFailed, match="test:1:1"):
        flow.commit(good, Change(good.schema, b"\xff"))


# --- keyorder: any schedule that the rules allow keeps the order of each key ---


KEYS = st.tuples(st.sampled_from("tu"), st.integers(0, 2))
OPERATIONS = st.lists(
    st.one_of(
        KEYS.map(lambda key: (key,)),
        st.tuples(KEYS, KEYS),
        st.sampled_from("tu").map(lambda table: ((table,),)),  # without a key
        st.none(),
    ),
    max_size=30,
)


def overlap(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two keys may be of the same row; the table alone is of any."""
    return one == other or (1 in (len(one), len(other)) and one[0] == other[0])


@given(OPERATIONS, st.data())
def test_every_schedule_keeps_the_order_of_each_key(
    operations: list[tuple[tuple[object, ...], ...] | None], data: st.DataObject
) -> None:
    order = KeyOrder()
    running: list[int] = []
    ended: set[int] = set()
    coming = list(enumerate(operations))
    while coming or running or order.ready:
        choices = ["add"] * bool(coming) + ["begin"] * bool(order.ready) + ["end"] * bool(running)
        match data.draw(st.sampled_from(choices)):
            case "add":
                item, keys = coming.pop(0)
                order.add(item, keys)
            case "begin":
                item = order.ready.popleft()
                mine = operations[item]
                for earlier in range(item):
                    theirs = operations[earlier]
                    if mine is None or theirs is None or any(overlap(one, other) for one in mine for other in theirs):
                        assert earlier in ended, f"{item} began before {earlier} ended"
                running.append(item)
            case "end":
                item = running.pop(data.draw(st.integers(0, len(running) - 1)))
                ended.add(item)
                order.done(item)
    assert len(ended) == len(operations)
    assert len(order) == 0


@pytest.fixture
def order() -> KeyOrder:
    return KeyOrder()


def test_different_keys_are_ready_together(order: KeyOrder) -> None:
    for item in range(5):
        order.add(item, (("t", item),))
    assert list(order.ready) == [0, 1, 2, 3, 4]


def test_an_update_without_a_key_waits_for_its_table_and_its_table_for_it(order: KeyOrder) -> None:
    order.add(0, (("t", 1),))
    order.add(1, (("t",),))
    order.add(2, (("t", 2),))
    order.add(3, (("u", 1),))
    assert list(order.ready) == [0, 3]
    order.done(order.ready.popleft())
    assert list(order.ready) == [3, 1]
    order.done(1)
    assert list(order.ready) == [3, 1, 2]
