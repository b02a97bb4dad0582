"""One state, one cause, one next step: the same words by every observer, for a table of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from tests.support.observers import ALL, FLOW, OBSERVERS, OF_FLOWS, OF_LOGS, reported, shown, unreadable
from wormhole.wire.conditions import State, flow_condition, log_condition
from wormhole.wire.v1 import admin_pb2

REFUSED: Final = "the log cannot be opened: wormhole@db1:3306: the server refuses the account or its password"
CORRECT: Final = "give the password with --password-file; " + "where it is right, " * 40 + "DROP USER ''@'127.0.0.1';"
AWAY: Final = "db1:3306 does not answer: Connection refused"
ALONE: Final = {"state": "unassigned", "subscriber": "", "cause": "no subscriber is there"}
CUT_OFF: Final = admin_pb2.SubscriberStatus(
    application="cache", subscriber="c1", address="h:1", state="unreachable", cause="Connection refused"
)


class Case(NamedTuple):
    """What is reported, the one cause and next step, and which observers show both."""

    state: State
    fields: Mapping[str, Any]
    flow: Mapping[str, Any] | None
    cause: str
    next_step: str
    observers: tuple[str, ...]


CASES: Final = {
    "wrong password": Case(State.LOG_UNREADABLE, unreadable(REFUSED, CORRECT), None, REFUSED, CORRECT, ALL),
    "wrong password, known flow": Case(
        State.LOG_UNREADABLE, unreadable(REFUSED, CORRECT), ALONE, REFUSED, CORRECT, ALL
    ),
    "database away": Case(State.LOG_UNREADABLE, unreadable(AWAY, "start it"), {}, AWAY, "start it", ALL),
    "nothing read": Case(
        State.LOG_UNREAD,
        {"stuck_s": 40.0},
        {},
        "nothing of it was read for 40 s",
        "see that its disk",
        (*OF_LOGS, "up"),
    ),
    "ZooKeeper away": Case(
        State.NO_COORDINATOR,
        {"coordination": "lost"},
        ALONE,
        "ZooKeeper does not answer",
        "bring ZooKeeper back",
        ("why-lag", *OF_LOGS),
    ),
    "no shard yet": Case(
        State.NO_SHARD,
        {},
        None,
        "no application has a shard of this log yet",
        "`wormholectl config show`",
        ("doctor", "page"),
    ),
    "just started": Case(
        State.STARTING,
        {"log_end": None},
        None,
        "its log was not measured yet",
        "wait a moment",
        (*ALL[:5], "page", "up"),
    ),
    "subscriber away": Case(
        State.NO_SUBSCRIBER,
        {"subscribers": None},
        ALONE,
        "no subscriber is there",
        "start a subscriber of cache",
        OF_FLOWS,
    ),
    "subscriber cut off": Case(
        State.SUBSCRIBER_AWAY,
        {"subscribers": [CUT_OFF]},
        {},
        "c1 at h:1 is unreachable: Connection refused",
        "check that c1 runs",
        OF_FLOWS,
    ),
    "handler failing": Case(
        State.HANDLER_FAILED,
        {},
        {"state": "held", "halted_at": "1/2/3:0", "cause": "ValueError: no such user"},
        "its handler gave up at update 1/2/3:0: ValueError: no such user",
        f"flows skip {FLOW} --update 1/2/3:0",
        OF_FLOWS,
    ),
    "log lost": Case(
        State.LOG_LOST,
        {},
        {"state": "held", "loss_pending": True, "cause": "binlog.000007 is purged"},
        "binlog.000007 is purged",
        f"wormholectl repair {FLOW}",
        OF_FLOWS,
    ),
    "held": Case(
        State.HELD,
        {},
        {"state": "held", "problem": admin_pb2.Problem(text="the filter fails", hint="correct it")},
        "the filter fails",
        "correct it",
        OF_FLOWS,
    ),
}
OF_STEPS: Final = {"flows": {State.NO_SUBSCRIBER, State.SUBSCRIBER_AWAY, State.HANDLER_FAILED, State.LOG_LOST}}
"""Observers that leave a command of the flow's own to `why-lag`, in one line for many flows."""


@pytest.mark.parametrize("name", CASES)
def test_every_observer_shows_the_same_cause_and_the_same_next_step(name: str) -> None:
    case = CASES[name]
    seen = reported(case.fields, case.flow)
    for observer in case.observers:
        text = shown(observer, seen)
        assert case.cause in text, (observer, text)
        if case.state not in OF_STEPS.get(observer, ()):
            assert case.next_step in text, (observer, text)
        assert text.count(case.cause) == 1 or observer in {"page", "flows"}, (observer, text)
        if case.state is State.LOG_UNREADABLE:
            assert "no subscriber" not in text, (observer, text)
            assert "…" not in text, (observer, text)


@pytest.mark.parametrize("name", CASES)
def test_the_state_is_of_the_flow_where_it_is_known(name: str) -> None:
    case = CASES[name]
    seen = reported(case.fields, case.flow)
    found = flow_condition(seen, seen.flows[0]) if seen.flows else log_condition(seen)
    assert found.state is case.state
    assert case.cause in found.cause
    assert case.next_step in found.next_step


def test_a_publisher_that_serves_has_nothing_to_say() -> None:
    seen = reported()
    assert (log_condition(seen).state, flow_condition(seen, seen.flows[0]).state) == (State.OK, State.OK)
    assert [shown(observer, seen) for observer in ("health", "up")] == ["", ""]
    assert set(ALL) == set(OBSERVERS)


def test_what_the_publisher_itself_found_comes_before_what_follows_from_it() -> None:
    seen = reported({"unreadable": admin_pb2.Problem(text=AWAY, hint="start it"), "coordination": "lost"}, ALONE)
    assert str(log_condition(seen)) == f"{AWAY} [source-unavailable]. Next: start it"
    paused = reported({"unreadable": admin_pb2.Problem(text=AWAY)}, {"paused": "ann@desk"})
    assert flow_condition(paused, paused.flows[0]).state is State.PAUSED, "an operator's own decision is no fault"
