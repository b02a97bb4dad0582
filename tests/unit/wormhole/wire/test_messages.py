"""Datamarkers and problems as messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.wire.conditions import State, flow_condition, log_condition
from wormhole.wire.markers import marker_from_bytes, marker_from_message, marker_to_bytes, marker_to_message
from wormhole.wire.problems import code_of_goodbye, problem_from, problem_of, problem_to_message, warnings_of
from wormhole.wire.v1 import admin_pb2, push_pb2

# --- Datamarkers as messages and as stored bytes


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


# --- Problems on the way between releases: one without a code is read as one without a code


FULL = Problem("the disk is full", "make room", "file-unwritable")


def test_a_problem_arrives_as_it_was_sent() -> None:
    message = present(problem_to_message(FULL))
    assert problem_from(message) == FULL
    assert problem_to_message(NO_PROBLEM) is None


def test_an_earlier_release_sends_no_code() -> None:
    older = admin_pb2.Problem(text="the disk is full", hint="make room")
    assert str(problem_from(older)) == "the disk is full. Next: make room"
    assert problem_of(admin_pb2.FlowStatus(cause="held")) == Problem("held")
    assert warnings_of(admin_pb2.PublisherStatus(problems=["full"])) == [Problem("full")]


def test_a_condition_has_the_code_of_its_cause_or_of_its_state() -> None:
    held = admin_pb2.FlowStatus(flow="cache/db1", state="held", problem=problem_to_message(FULL))
    status = admin_pb2.PublisherStatus(flows=[held], log_end={})
    assert flow_condition(status, held).code == "file-unwritable"
    held.problem.code = ""
    assert flow_condition(status, held).code == "flow-held"
    assert log_condition(status).code == ""
    status.stuck_s = 60.0
    assert (log_condition(status).state, log_condition(status).code) == (State.LOG_UNREAD, "log-stuck")


@pytest.mark.parametrize(
    ("reason", "code"), [(push_pb2.Goodbye.NOT_ALLOWED, "certificate-refused"), (99, "stream-broken")]
)
def test_the_reason_of_a_goodbye_has_a_code_also_one_of_a_later_release(reason: int, code: str) -> None:
    assert code_of_goodbye(reason) == code
