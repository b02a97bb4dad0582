"""Whoever holds the most loses its stream; nobody else does."""

from __future__ import annotations

import pytest

from subscriber_sdk.stream.budget import Account, Budget
from wormhole.model.errors import ProtocolError


class Streams:
    def __init__(self, limit: int) -> None:
        self.budget = Budget(limit, "flows", "raise `max_state`")
        self.ended: list[str] = []

    def open(self, name: str, owner: str = "") -> Account:
        return self.budget.open(owner or name, lambda error: self.ended.append(f"{name}: {error.message}"))


@pytest.fixture
def streams() -> Streams:
    return Streams(100)


def test_what_fits_costs_nobody_anything(streams: Streams) -> None:
    one, two = streams.open("one"), streams.open("two")
    one.charge(60, "a flow")
    two.charge(40, "a flow")
    one.release(60)
    two.charge(60, "a flow")
    assert (streams.budget.used, streams.ended) == (100, [])
    two.close()
    two.close()
    two.release(5)  # what ends later was counted out already
    assert streams.budget.used == 0
    assert "0 of 100 bytes in 1 accounts" in repr(streams.budget)


def test_who_exceeds_it_is_reported_and_holds_nothing_then(streams: Streams) -> None:
    small, large = streams.open("small"), streams.open("large")
    small.charge(30, "a flow")
    large.charge(70, "a flow")
    with pytest.raises(ProtocolError, match=r"schema 7 does not fit: .* keep 71 bytes .* may take 100") as caught:
        large.charge(1, "schema 7")
    assert "max_state" in str(caught.value.hint)
    assert (streams.budget.used, streams.ended) == (100, [])
    large.close()
    large.charge(1000, "a late frame")  # its stream is over
    assert streams.budget.used == 30


def test_room_for_a_small_one_comes_from_the_largest(streams: Streams) -> None:
    small, large = streams.open("small"), streams.open("large")
    large.charge(90, "a flow")
    small.charge(20, "shard s")
    assert streams.budget.used == 20
    assert [ended.partition(" does not fit")[0] for ended in streams.ended] == ["large: shard s"]


def test_many_streams_of_one_publisher_count_together(streams: Streams) -> None:
    honest = streams.open("honest")
    honest.charge(40, "a flow")
    for i in range(5):
        streams.open(f"thief {i}", "thief").charge(10 + i, "a flow")
    honest.charge(10, "a flow")
    assert honest.held == 50
    assert {ended.partition(":")[0] for ended in streams.ended} <= {f"thief {i}" for i in range(5)}
