"""Problems on the way between releases: one without a code is read as one without a code."""

from __future__ import annotations

import pytest

from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.wire.conditions import State, flow_condition, log_condition
from wormhole.wire.problems import code_of_goodbye, problem_from, problem_of, problem_to_message, warnings_of
from wormhole.wire.v1 import admin_pb2, push_pb2

FULL = Problem("the disk is full", "make room", "file-unwritable")


def test_a_problem_arrives_as_it_was_sent() -> None:
    message = problem_to_message(FULL)
    assert message is not None
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
