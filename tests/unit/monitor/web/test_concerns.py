from __future__ import annotations

import math
from typing import Any

import pytest

from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.web.concerns import Concern, Level, of_flow, of_host, of_publisher
from tests.support.monitor_states import quiet
from wormhole.wire.v1 import admin_pb2

NOW = 1_700_000_000.0
SERVES = admin_pb2.PublisherStatus(coordination="connected")


def flow(**fields: Any) -> admin_pb2.FlowStatus:
    return admin_pb2.FlowStatus(**{"flow": "cache/0", "state": "live", **fields})


def first(**fields: Any) -> Concern:
    return next(of_flow(SERVES, flow(**fields)))


def test_a_quiet_host_concerns_nobody() -> None:
    state = quiet(NOW)
    (publisher,) = state.publishers.values()
    assert publisher.status is not None
    found = [*of_host(state), *of_publisher(publisher, NOW)]
    for one in publisher.status.flows:
        found += of_flow(publisher.status, one)
    assert found == []


@pytest.mark.parametrize(
    ("fields", "level", "who", "said"),
    [
        ({"loss_pending": True}, Level.PROBLEM, "operator", "no longer holds"),
        ({"state": "held", "halted_at": "1:2:3"}, Level.PROBLEM, "subscriber", "1:2:3"),
        ({"state": "held", "cause": "the store is gone"}, Level.PROBLEM, "operator", "the store is gone"),
        ({"state": "needs_replay"}, Level.PROBLEM, "operator", "its replay was given up"),
        ({"state": "replaying", "cause": "its driver is silent"}, Level.ATTENTION, "operator", "its driver is silent"),
        ({"state": "catching_up", "lag_s": 6000.0, "headroom_s": 600.0}, Level.PROBLEM, "database", "10 min"),
        ({"state": "unassigned", "lag_s": 9000.0, "headroom_s": 7000.0}, Level.ATTENTION, "database", "117 min"),
        ({"state": "unassigned"}, Level.ATTENTION, "subscriber", "no subscriber"),
        ({"credit_waited_s": 30.0}, Level.ATTENTION, "subscriber", "30 s"),
        ({"progress_s": 300.0, "credit_waited_s": 300.0}, Level.ATTENTION, "subscriber", "finished nothing for 5 min"),
        ({"dead_letters": 1}, Level.ATTENTION, "subscriber", "1 update is parked"),
        ({"dead_letters": 1200}, Level.ATTENTION, "subscriber", "1,200 updates are parked"),
    ],
)
def test_what_is_wrong_with_a_flow_names_whose_move_it_is(
    fields: dict[str, Any], level: Level, who: str, said: str
) -> None:
    concern = first(**fields)
    assert (concern.level, concern.who) == (level, who)
    assert said in concern.text
    assert concern.next


def test_the_worst_of_a_flow_comes_first() -> None:
    found = list(
        of_flow(SERVES, flow(state="held", halted_at="1:2:3", lag_s=6000.0, headroom_s=5000.0, dead_letters=2))
    )
    assert [concern.level for concern in found] == sorted((concern.level for concern in found), reverse=True)
    assert len(found) == 3


def test_who_paused_a_flow_knows() -> None:
    assert list(of_flow(SERVES, flow(state="held", paused="alice@ops1"))) == []
    assert list(of_flow(SERVES, flow(state="unassigned", paused="alice@ops1"))) == []


@pytest.mark.parametrize(
    ("lag_s", "headroom_s"), [(3.0, 1.0), (600.0, 4000.0), (80_000.0, 500_000.0), (0.0, 0.0), (math.inf, 1.0)]
)
def test_headroom_counts_against_how_long_the_log_is_kept(lag_s: float, headroom_s: float) -> None:
    """A log that is kept for minutes is a choice: a flow a second behind its end is not in danger."""
    assert list(of_flow(SERVES, flow(state="catching_up", lag_s=lag_s, headroom_s=headroom_s))) == []


def running(**fields: Any) -> PublisherState:
    publisher = PublisherState(LogKey("shop", "main", "db1"), Phase.RUNNING, pid=7, since=NOW - 60, answered=NOW - 1)
    publisher.status = admin_pb2.PublisherStatus(coordination="connected", **fields)
    return publisher


def test_given_up_is_a_problem_and_backing_off_is_not_yet() -> None:
    publisher = PublisherState(LogKey("shop", "main", "db1"), Phase.GIVEN_UP, problem="ended 5 times")
    (concern,) = of_publisher(publisher, NOW)
    assert (concern.level, concern.text) == (Level.PROBLEM, "ended 5 times")
    publisher.phase, publisher.problem = Phase.BACKING_OFF, ""
    (concern,) = of_publisher(publisher, NOW)
    assert concern.level == Level.ATTENTION
    assert concern.text
    publisher.phase, publisher.problem = Phase.STARTING, "killed by SIGKILL"
    (concern,) = of_publisher(publisher, NOW)
    assert (concern.level, concern.who) == (Level.ATTENTION, "no action yet")
    publisher.phase, publisher.problem = Phase.DRAINED, ""
    assert list(of_publisher(publisher, NOW)) == []


def test_a_publisher_that_is_silent_or_stuck_or_alone() -> None:
    assert list(of_publisher(running(), NOW)) == []
    (silent,) = of_publisher(running(), NOW + 30)
    assert "does not answer" in silent.text
    refused = running()
    refused.problem = "it does not answer: connection refused"
    assert [concern.text for concern in of_publisher(refused, NOW + 30)] == [refused.problem], "said once"
    (stuck,) = of_publisher(running(stuck_s=90.0), NOW)
    assert (stuck.level, "nothing of it was read for 90 s" in stuck.text) == (Level.PROBLEM, True)
    assert list(of_publisher(running(stuck_s=0.0), NOW)) == []
    full = running(problems=["the pins take more than their budget"])
    assert [(one.level, one.text) for one in of_publisher(full, NOW)] == [
        (Level.ATTENTION, "the pins take more than their budget")
    ]
    away = running(problems=["the server is away"], end_unknown="the server is away")
    assert [one.level for one in of_publisher(away, NOW)] == [Level.PROBLEM]
    alone = running()
    assert alone.status is not None
    alone.status.coordination = "lost"
    assert ["session" in concern.text for concern in of_publisher(alone, NOW)] == [True]


def test_a_publisher_that_has_just_started_may_be_silent() -> None:
    publisher = PublisherState(LogKey("shop", "main", "db1"), Phase.RUNNING, since=NOW - 2)
    assert list(of_publisher(publisher, NOW)) == []


@pytest.mark.parametrize(("coordination", "concerns"), [("connected", 0), ("static", 0), ("suspended", 1), ("lost", 1)])
def test_zookeeper_away_is_said(coordination: str, concerns: int) -> None:
    assert len(list(of_host(HostState("db1", coordination=coordination)))) == concerns


def test_a_replay_that_goes_on_concerns_nobody() -> None:
    going_on = admin_pb2.ReplayStatus(replay="r1", lease_left_s=12.0)
    assert list(of_flow(SERVES, flow(state="replaying", replay=going_on))) == []


def test_one_that_stands_by_concerns_somebody_only_if_there_is_something_to_do() -> None:
    fine = running(owner="main@alpha", standby=admin_pb2.Problem(text="stands by: main@alpha owns the log"))
    assert list(of_publisher(fine, NOW)) == []
    lags = admin_pb2.Problem(text="it could not take over: it lacks U:5-9", hint="let its replication catch up")
    (unable,) = of_publisher(running(owner="main@alpha", standby=lags), NOW)
    assert (unable.level, unable.text, unable.next) == (Level.ATTENTION, lags.text, lags.hint)
    (unowned,) = of_publisher(running(standby=lags), NOW)
    assert (unowned.level, unowned.who, unowned.next) == (Level.PROBLEM, "operator", lags.hint)
    assert unowned.text.startswith("no publisher owns the log")
    (soon,) = of_publisher(running(standby=admin_pb2.Problem(text="it is about to try")), NOW)
    assert (soon.level, soon.who) == (Level.ATTENTION, "no action yet")
