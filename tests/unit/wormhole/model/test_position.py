"""Places: order, text and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import PositionError
from wormhole.model.position import Datamarker, LogPosition, flow_name

places = st.builds(
    LogPosition, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1) | st.integers(0, 3)
)


@given(places)
def test_text_and_bytes_come_back(place: LogPosition) -> None:
    assert LogPosition.parse(str(place)) == place
    assert LogPosition.from_bytes(place.to_bytes()) == place
    assert len(place.to_bytes()) == LogPosition.SIZE == 20


@given(places, places)
def test_bytes_sort_as_places_do(one: LogPosition, other: LogPosition) -> None:
    assert (one.to_bytes() < other.to_bytes()) == (one < other)
    assert (one == other) == (hash(one) == hash(other) and one.to_bytes() == other.to_bytes())


@pytest.mark.parametrize("size", [0, 19, 21])
def test_other_bytes_are_no_place(size: int) -> None:
    with pytest.raises(PositionError, match=f"a position has 20 bytes, not {size}"):
        LogPosition.from_bytes(bytes(size))


@pytest.mark.parametrize("text", ["", "1/2", "1/2/3/4", "a/2/3", "1/-2/3", "1/2/ 3", "1//3", "1/2/٣", "latest"])
def test_other_text_is_no_place(text: str) -> None:
    with pytest.raises(PositionError, match="no place in a log"):
        LogPosition.parse(text)


@pytest.mark.parametrize("text", [f"{2**32}/0/0", f"0/{2**64}/0", f"0/0/{2**64}", f"0/0/{'9' * 5000}"])
def test_a_place_out_of_range_is_refused_before_it_is_stored(text: str) -> None:
    with pytest.raises(PositionError, match="out of range"):
        LogPosition.parse(text)


def test_names_and_texts() -> None:
    order = LogPosition(1, 42, 7)
    assert flow_name("app", "log.a") == "app/log.a"
    assert str(Datamarker(order, "99", order)) == "1/42/7 (99)"
    assert str(Datamarker(order, "", order)) == "1/42/7"
