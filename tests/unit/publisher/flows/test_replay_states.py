"""Who may do what with a flow that a mass replay has, without any I/O."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from publisher.flows.refused_error import RefusedError
from publisher.flows.replay_states import (
    ReplayRun,
    cause,
    check_id,
    hashed,
    mine,
    opened,
    parked,
    permitted,
    stale,
    taken,
)
from tests.support.markers import marker
from wormhole.model.problem import Problem
from wormhole.ports.marker_store import ReplayControl, ReplayState

FIRST = ReplayControl("r1", "maria@ops", "log", 100.0, 30.0, hashed("t1"), begin=marker(3))


def test_a_live_flow_is_held_as_wanted() -> None:
    assert taken("app/s", None, FIRST, leased=False) == FIRST


def test_another_replay_waits_for_the_lease() -> None:
    other = replace(FIRST, id="r2", ticket=hashed("t2"))
    for state in (ReplayState.HELD, ReplayState.REPLAYING):
        with pytest.raises(RefusedError, match="replay r1 by maria@ops has the flow") as caught:
            taken("app/s", replace(FIRST, state=state), other, leased=True)
        assert caught.value.status is grpc.StatusCode.FAILED_PRECONDITION
        assert "--resume r1" in str(caught.value)
    working = opened(FIRST, "s1", "t1")
    assert taken("app/s", working, other, leased=False) == replace(other, subscriber="s1")
    needs = replace(working, state=ReplayState.NEEDS_REPLAY)
    assert taken("app/s", needs, other, leased=True) == replace(other, subscriber="s1")


def test_the_same_id_goes_on_where_it_stood() -> None:
    working = replace(opened(FIRST, "s1", "t1"), progress=b"p")
    again = replace(FIRST, who="john", mode="latest", lease_s=5.0, ticket=hashed("t2"), begin=None)
    assert taken("app/s", working, again, leased=True) == replace(working, who="john", lease_s=5.0, ticket=hashed("t2"))
    needs = replace(working, state=ReplayState.NEEDS_REPLAY)
    found = taken("app/s", needs, again, leased=False)
    assert (found.state, found.attempts, found.progress, found.begin) == (ReplayState.HELD, 1, b"p", marker(3))


def test_only_the_replay_that_is_meant_is_taken_up() -> None:
    again = replace(FIRST, started_s=200.0, ticket=hashed("t2"), begin=None)
    for state in (ReplayState.HELD, ReplayState.REPLAYING, ReplayState.NEEDS_REPLAY):
        found = taken("app/s", replace(FIRST, state=state), again, leased=False, resumes=100.0)
        assert (found.started_s, found.begin, found.ticket) == (100.0, marker(3), hashed("t2"))
    for now, text in (
        (None, "the flow is live"),
        (replace(FIRST, id="r2", state=ReplayState.NEEDS_REPLAY), "replay r2 by maria@ops has it"),
        (replace(FIRST, started_s=101.0), "it ended, and another one of that name has the flow"),
    ):
        with pytest.raises(RefusedError, match=text) as caught:
            taken("app/s", now, again, leased=False, resumes=100.0)
        assert caught.value.status is grpc.StatusCode.FAILED_PRECONDITION


def test_only_the_newest_ticket_of_the_replay_that_has_the_flow_is_good() -> None:
    assert permitted("app/s", FIRST, "r1", "t1") == FIRST
    for now, replay, ticket, code in (
        (None, "r1", "t1", grpc.StatusCode.FAILED_PRECONDITION),
        (FIRST, "r2", "t1", grpc.StatusCode.FAILED_PRECONDITION),
        (FIRST, "r1", "t2", grpc.StatusCode.UNAUTHENTICATED),
        (FIRST, "r1", "", grpc.StatusCode.UNAUTHENTICATED),
    ):
        with pytest.raises(RefusedError) as caught:
            permitted("app/s", now, replay, ticket)
        assert caught.value.status is code
    assert mine("app/s", FIRST, "r1") == FIRST


def test_nobody_works_on_what_was_given_up_until_it_is_taken_up_again() -> None:
    needs = replace(FIRST, state=ReplayState.NEEDS_REPLAY)
    with pytest.raises(RefusedError, match="lease of replay r1 ran out") as caught:
        permitted("app/s", needs, "r1", "t1")
    assert caught.value.status is grpc.StatusCode.FAILED_PRECONDITION
    assert permitted("app/s", needs, "r1", "t1", at_work=False) == needs


def test_each_opening_is_counted_and_named() -> None:
    once = opened(FIRST, "s1", "t1")
    assert (once.state, once.attempts, once.subscriber) == (ReplayState.REPLAYING, 1, "s1")
    again = opened(once, "s2", "t2")
    assert (again.attempts, again.opener) == (2, "t2")


@pytest.mark.parametrize("text", ["", "x" * 101, "a\nb"])
def test_an_id_is_short_and_printable(text: str) -> None:
    assert check_id("r1") == "r1"
    with pytest.raises(RefusedError) as caught:
        check_id(text)
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT


def test_the_ticket_itself_is_not_kept() -> None:
    assert "t1" not in hashed("t1")
    assert len(hashed("t1")) == 64


def test_what_an_operator_reads() -> None:
    run = ReplayRun("r1", 0.0, waits=Problem("no subscriber is there"))
    assert str(cause("app/s", FIRST, None)) == "held for replay r1 by maria@ops [flow-replaying]"
    assert str(cause("app/s", FIRST, run)) == "held for replay r1 by maria@ops: no subscriber is there [flow-replaying]"
    working = opened(FIRST, "s1", "t1")
    assert str(cause("app/s", working, replace(run, epoch=4))) == "replay r1 by maria@ops pushes to s1 [flow-replaying]"
    assert "is not known: no contact" in str(cause("app/s", working, replace(run, trouble="no contact")))
    needs = cause("app/s", replace(working, state=ReplayState.NEEDS_REPLAY), run)
    assert "wormholectl replay --resume r1" in str(needs)
    assert "wormholectl flows accept-loss app/s" in str(needs)
    assert str(parked(2)).startswith("2 updates are parked")
    assert stale("app/s", "why").status is grpc.StatusCode.ABORTED
