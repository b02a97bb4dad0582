"""Any schedule that the rules allow keeps the order of each key."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk.work.keyorder import KeyOrder

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
