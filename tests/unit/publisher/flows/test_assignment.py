"""What moves when a subscriber comes, goes or changes its weight, by numbers."""

from __future__ import annotations

from collections import Counter

from publisher.flows.assignment import assign

SHARDS = [f"log.{k}of1000" for k in range(1000)]


def moved(before: dict[str, str], after: dict[str, str]) -> int:
    return sum(before[shard] != after[shard] for shard in SHARDS)


def test_known_owners_stay_the_same_between_releases() -> None:
    """Two releases that run side by side must agree."""
    known = {"log.b": "s1", "log.d": "s1", "log.c": "s2", "log.a": "s2"}
    assert assign(known, {"s1": 1.0, "s2": 1.0}) == known


def test_who_leaves_gives_up_its_shards_and_few_others_move() -> None:
    subscribers = {f"s{i}": 1.0 for i in range(10)}
    before = assign(SHARDS, subscribers)
    gone = "s3"
    after = assign(SHARDS, {name: 1.0 for name in subscribers if name != gone})
    had = sum(owner == gone for owner in before.values())
    assert moved(before, after) <= 1.5 * had


def test_who_comes_takes_about_its_share() -> None:
    subscribers = {f"s{i}": 1.0 for i in range(9)}
    before = assign(SHARDS, subscribers)
    after = assign(SHARDS, {**subscribers, "s9": 1.0})
    got = sum(owner == "s9" for owner in after.values())
    assert 70 <= got <= 125
    assert moved(before, after) <= 1.5 * got


def test_weights_count() -> None:
    loads = Counter(assign(SHARDS, {"small": 1.0, "large": 3.0}).values())
    assert 2.3 <= loads["large"] / loads["small"] <= 4.0


def test_a_pinned_shard_takes_room() -> None:
    pins = dict.fromkeys(SHARDS[:600], "s1")
    loads = Counter(assign(SHARDS, {"s1": 1.0, "s2": 1.0}, pins).values())
    assert 600 <= loads["s1"] <= 625
