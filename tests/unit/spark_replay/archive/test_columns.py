"""Places: they order updates as their log does, compared as bytes."""

from __future__ import annotations

import itertools
import random

import pytest

from spark_replay.archive.columns import PLACE_BYTES, SCHEMA, place_bytes, position_of
from wormhole.model.errors import PositionError
from wormhole.model.position import LogPosition


def test_bytes_order_as_places_do() -> None:
    """Incarnation, file and offset first; at one position what ends there is before what only begins there; then the
    index."""
    positions = [LogPosition(*parts) for parts in itertools.product((1, 2), (1, 256), (0, 255, 1 << 40))]
    places = [(at, inside, index) for at in positions for inside in (False, True) for index in (0, 1, 1 << 31)]
    assert sorted(random.Random(1).sample(places, len(places)), key=lambda place: place_bytes(*place)) == places
    assert {len(place_bytes(*place)) for place in places} == {PLACE_BYTES}
    assert SCHEMA.field("place").type.byte_width == PLACE_BYTES
    assert [position_of(place_bytes(*place)) for place in places] == [place[0] for place in places]


def test_a_part_of_a_place_is_refused() -> None:
    with pytest.raises(PositionError):
        position_of(b"\x00" * 5)
