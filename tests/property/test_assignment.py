"""Assignment: complete, balanced, and stable when somebody comes or goes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from publisher.flows.assignment import SLACK, assign

_names = st.text("abcdefgh", min_size=1, max_size=4)
_shards = st.sets(_names, max_size=40)
_subscribers = st.dictionaries(_names.map("s-{}".format), st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=6)


@given(_shards, _subscribers)
def test_every_shard_has_one_owner_and_nobody_more_than_the_slack_allows(
    shards: set[str], subscribers: dict[str, float]
) -> None:
    result = assign(shards, subscribers)
    assert result.keys() == shards
    total = sum(subscribers.values())
    for name, weight in subscribers.items():
        assert list(result.values()).count(name) <= math.ceil(SLACK * len(shards) * weight / total)


@given(_shards, _subscribers)
def test_every_publisher_computes_the_same(shards: set[str], subscribers: dict[str, float]) -> None:
    turned = dict(reversed(subscribers.items()))
    assert assign(sorted(shards), subscribers) == assign(sorted(shards, reverse=True), turned)
    assert assign([*shards, *shards], subscribers) == assign(shards, subscribers)


@given(_shards, _subscribers, st.data())
def test_pins_are_obeyed_or_leave_the_shard_alone(
    shards: set[str], subscribers: dict[str, float], data: st.DataObject
) -> None:
    pinned = data.draw(
        st.dictionaries(st.sampled_from(sorted(shards) or ["x"]), st.sampled_from([*subscribers, "absent"]), max_size=9)
    )
    result = assign(shards, subscribers, pinned)
    for shard in shards:
        if shard in pinned:
            assert result.get(shard) == (pinned[shard] if pinned[shard] in subscribers else None)
        else:
            assert result[shard] in subscribers


@given(_shards)
def test_without_subscribers_nothing_is_assigned(shards: set[str]) -> None:
    assert assign(shards, {}) == {}
