"""Datamarkers as messages and as stored bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import ProtocolError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.wire.markers import marker_from_bytes, marker_from_message, marker_to_bytes, marker_to_message
from wormhole.wire.v1 import push_pb2

_u64 = st.integers(0, 2**64 - 1)
_places = st.builds(LogPosition, st.integers(0, 2**32 - 1), _u64, _u64)
_anchors = st.none() | st.builds(Anchor, st.text(max_size=9), st.integers(0, 2**32 - 1), _places)
_markers = st.builds(Datamarker, _places, st.text(max_size=9), _places, _anchors, st.integers(-(2**63), 2**63 - 1))


@given(_markers)
def test_every_part_comes_back(marker: Datamarker) -> None:
    assert marker_from_message(marker_to_message(marker)) == marker
    assert marker_from_bytes(marker_to_bytes(marker)) == marker


@given(_markers, _markers)
def test_equal_markers_and_only_they_give_equal_bytes(one: Datamarker, other: Datamarker) -> None:
    assert (marker_to_bytes(one) == marker_to_bytes(other)) == (one == other)


def test_what_is_the_same_takes_no_room() -> None:
    place = LogPosition(1, 2, 3)
    message = marker_to_message(Datamarker(place, "9", place))
    assert not message.HasField("read_from")
    assert not message.HasField("anchor")


def test_a_marker_without_a_place_is_refused() -> None:
    with pytest.raises(ProtocolError, match="datamarker: order is missing"):
        marker_from_message(push_pb2.Datamarker(delivered="9"))
    with pytest.raises(ProtocolError, match="datamarker: order is missing"):
        marker_from_bytes(b"")


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no valid message"):
        marker_from_bytes(b"\xff\xff")
