"""What keeps a host from being ready, and what does not."""

from __future__ import annotations

import pytest

from monitor.health import health
from monitor.state import HostState, LogKey, Phase, PublisherState, SinkKey, SinkState
from wormhole.wire.v1 import admin_pb2

NOW = 1_000_000.0
KEY = LogKey("shop", "main", "db1")


def host(phase: Phase = Phase.RUNNING, **publisher: object) -> HostState:
    state = HostState("h1", configuration="shop.toml")
    state.publishers[KEY] = PublisherState(KEY, phase, since=NOW - 60, answered=NOW - 1, **publisher)  # type: ignore[arg-type]
    return state


def test_a_host_whose_publishers_run_and_answer_is_ready() -> None:
    assert health(host(), NOW).ready
    assert health(HostState("h1", configuration="nothing to run"), NOW).ready


def test_a_monitor_that_read_no_configuration_is_not() -> None:
    assert health(HostState("h1"), NOW).reasons == ("no configuration was read yet",)


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        (Phase.GIVEN_UP, "publisher shop/main/db1 was given up, it ended too often: no space. Next: "),
        (Phase.BACKING_OFF, "publisher shop/main/db1 ended and is restarted: no space"),
        (Phase.STARTING, "publisher shop/main/db1 is starting: no space"),
        (Phase.STOPPING, None),
        (Phase.DRAINED, None),
    ],
)
def test_a_publisher_that_does_not_run_is_reported_with_its_cause(phase: Phase, told: str | None) -> None:
    reasons = health(host(phase, problem="no space"), NOW).reasons
    assert [reason.startswith(told) for reason in reasons] == [True] if told else reasons == ()


def test_one_that_is_silent_or_stuck_is_reported() -> None:
    state = host()
    assert health(state, NOW + 30).reasons == ("publisher shop/main/db1 did not answer for 31 s",)
    state.publishers[KEY].status = admin_pb2.PublisherStatus(stuck_s=14.0)
    assert health(state, NOW).ready
    state.publishers[KEY].status = admin_pb2.PublisherStatus(stuck_s=15.0)
    (reason,) = health(state, NOW).reasons
    assert "nothing of it was read for 15 s" in reason


def test_one_that_stands_by_is_healthy_as_long_as_another_one_owns_the_log() -> None:
    state = host()
    why = admin_pb2.Problem(text="it lacks U:5-9, which was delivered", hint="let its replication catch up")
    told = admin_pb2.PublisherStatus(coordination="connected", standby=why, owner="main@alpha")
    state.publishers[KEY].status = told
    assert health(state, NOW).ready
    told.owner = ""
    (reason,) = health(state, NOW).reasons
    assert reason == (
        "publisher shop/main/db1 delivers nothing of its log: no publisher owns the log, and it has not taken over: "
        "it lacks U:5-9, which was delivered [log-unowned]. "
        "Next: let its replication catch up"
    )
    told.coordination = "lost"
    assert health(state, NOW).ready, "it cannot know whether anybody owns the log"


def test_an_outage_of_coordination_is_no_reason() -> None:
    state = host()
    state.coordination = "lost"
    assert health(state, NOW).ready


def test_a_sink_that_does_not_run_is_reported() -> None:
    state = host()
    state.sinks[SinkKey("lines")] = SinkState(SinkKey("lines"), Phase.GIVEN_UP, problem="no such folder")
    (reason,) = health(state, NOW).reasons
    assert reason.startswith("sink lines was given up, it ended too often: no such folder. Next: ")
