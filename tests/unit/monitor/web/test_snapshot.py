from __future__ import annotations

import json
import math
from typing import Any

import pytest

from monitor.state import HostEvent, HostState, LogKey, Phase, PublisherState
from monitor.web.snapshot import SCHEMA, snapshot
from tests.support.monitor_states import add_flow, busy, crowded, publisher, quiet
from tests.support.present import present
from tests.support.publisher_status import relay
from wormhole.wire.v1 import admin_pb2

NOW = 1_700_000_000.0
Status = admin_pb2.PublisherStatus


@pytest.fixture
def state() -> HostState:
    """With one publisher."""
    return quiet(NOW)


@pytest.fixture
def shop(state: HostState) -> PublisherState:
    return present(*state.publishers.values())


@pytest.fixture
def status(shop: PublisherState) -> Status:
    """What the publisher reports."""
    return present(shop.status)


def test_a_host_without_anything_is_a_snapshot_too() -> None:
    told = snapshot(HostState("db1", started=NOW), NOW)
    assert (told["schema"], told["host"], told["at"]) == (SCHEMA, "db1", NOW)
    assert told["publishers"] == told["flows"] == told["events"] == []
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_a_publisher_that_has_not_answered_yet_is_unknown_and_not_well(
    phase: Phase, state: HostState, shop: PublisherState
) -> None:
    assert snapshot(state, NOW)["unanswered"] == 0
    assert snapshot(state, NOW)["publishers"][0]["level"] == "none"
    shop.phase, shop.status, shop.answered, shop.since = phase, None, 0.0, NOW
    told = snapshot(state, NOW)
    assert (told["unanswered"], told["publishers"][0]["level"]) == (1, "unknown")
    shop.phase = Phase.DRAINED
    assert snapshot(state, NOW)["unanswered"] == 0


def test_everything_of_a_busy_host_is_there_and_the_worst_first() -> None:
    told = snapshot(busy(NOW), NOW)
    json.dumps(told, allow_nan=False)
    assert [log["publisher"] for log in told["publishers"]] == [
        "audit/main/db1-c",
        "orders/main/db1-b",
        "shop/main/db1",
    ]
    assert (told["problems"], told["attentions"]) == (2, 3)
    assert [concern["level"] for concern in told["concerns"]] == ["problem"] * 2 + ["attention"] * 3
    assert told["flows"][0]["flow"] == "fraud/2"
    assert told["flows"][0]["who"] == "subscriber"
    levels = [flow["level"] for flow in told["flows"]]
    assert levels == sorted(levels, key=["problem", "attention", "none"].index)
    times = [event["at"] for event in told["events"]]
    assert times == sorted(times, reverse=True)
    assert {event["level"] for event in told["events"] if event["kind"] == "crash_loop"} == {"problem"}


def test_a_relay_says_how_full_it_is_and_whether_it_records(
    state: HostState, status: admin_pb2.PublisherStatus
) -> None:
    def shown() -> Any:
        return snapshot(state, NOW)["publishers"][0]["status"]["relay"]

    assert shown() is None
    status.relay.CopyFrom(relay())
    assert shown() == {
        "mode": "hold",
        "recording": True,
        "bytes": 3 << 30,
        "budget_bytes": 8 << 30,
        "log_bytes": 9 << 30,
        "begins": 1_700_000_000.0,
        "holes": 1,
        "readers": 2,
    }
    status.relay.CopyFrom(relay(problem=admin_pb2.Problem(text="the relay is full"), begin_committed_s=0.0))
    assert (shown()["recording"], shown()["begins"]) == (False, None)


def test_caravans_stand_where_they_are_on_the_line() -> None:
    shop = snapshot(busy(NOW), NOW)["publishers"][2]["status"]
    line = shop["line"]
    lead, second, third = line["caravans"]
    assert lead["lead"]
    assert lead["x"] > 0.999
    assert lead["x"] > second["x"] > third["x"] > 0
    assert third["behind_bytes"] == 5 * (1 << 30) - 50 * (1 << 20), "exact: a flow's marker is in the same file"
    assert all(caravan["buffer_x"] < caravan["x"] for caravan in line["caravans"])
    assert lead["arrives_s"] is None
    assert 50 < third["arrives_s"] < 60
    assert sum(piece["flows"] for piece in line["markers"]) == shop["flows"] == 17
    assert line["markers"][0]["level"] == "problem", "the halted flow is the oldest"
    assert line["markers"][-1]["x"] == 1.0
    assert line["span_bytes"] >= line["oldest_bytes"] == 22 * (1 << 30)


def test_the_end_of_a_log_is_shown_as_the_datastore_writes_it_too(
    state: HostState, status: admin_pb2.PublisherStatus
) -> None:
    assert snapshot(state, NOW)["publishers"][0]["status"]["native_log_end"] is None
    status.source, status.log_base = "mariadb", "binlog"
    status.log_end.file, status.log_end.offset = 3, 1892
    assert snapshot(state, NOW)["publishers"][0]["status"]["native_log_end"] == "binlog.000003:1892"


def test_what_is_not_known_comes_with_its_reason(state: HostState, status: Status) -> None:
    flow = status.flows[0]
    flow.ClearField("headroom_s")
    flow.ClearField("lag_transactions")
    flow.headroom_unknown, flow.lag_s, flow.lag_bytes = "the log does not grow", 0.0, 310
    told = next(one for one in snapshot(state, NOW)["flows"] if one["flow"] == flow.flow)
    assert (told["headroom_s"], told["headroom_unknown"]) == (None, "the log does not grow")
    assert told["lag_s"] is None
    assert "no commit time" in told["lag_unknown"]


def test_a_caravan_that_does_not_gain_never_arrives() -> None:
    state = busy(NOW)
    shop = state.publishers[LogKey("shop", "main", "db1")]
    assert shop.status is not None
    shop.status.caravans[2].bytes_per_s = shop.status.log_bytes_per_s
    line = snapshot(state, NOW)["publishers"][2]["status"]["line"]
    assert line["caravans"][2]["arrives_s"] is None


def test_a_log_whose_end_is_not_known_has_no_line(state: HostState, status: Status) -> None:
    status.ClearField("log_end")
    (told,) = snapshot(state, NOW)["publishers"]
    assert told["status"]["line"] is None
    assert told["status"]["log_end"] is None


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.BACKING_OFF, Phase.GIVEN_UP, Phase.DRAINED])
def test_the_status_of_a_process_that_is_gone_is_not_shown_as_new(
    phase: Phase, state: HostState, shop: PublisherState, status: admin_pb2.PublisherStatus
) -> None:
    status.flows[0].halted_at = "1:2:3"
    shop.phase, shop.pid = phase, None
    told = snapshot(state, NOW)
    assert told["publishers"][0]["status"] is None
    assert {(flow["flow"], flow["state"], flow["lag_s"], flow["subscriber"]) for flow in told["flows"]} == {
        ("search/0", "stopped", None, ""),
        ("search/1", "stopped", None, ""),
    }
    assert all(concern["about"] == "publisher" for concern in told["concerns"])


def test_nothing_grows_without_a_bound() -> None:
    state = crowded(NOW, 1500)
    for number in range(150):
        state.publishers[LogKey("d", "main", f"log{number}")] = PublisherState(
            LogKey("d", "main", f"log{number}"), Phase.GIVEN_UP, problem=f"{number} " + "x" * 10_000
        )
        state.events.append(HostEvent(NOW, "restart", "y" * 5000, "z" * 5000))
    shop = state.publishers[LogKey("shop", "main", "db1")]
    add_flow(shop, "zz/0", state="held", caravan=0)
    assert shop.status is not None
    for number in range(2, 80):
        shop.status.caravans.add(number=number)
    told = snapshot(state, NOW)
    assert (len(told["flows"]), told["flows_left_out"]) == (1000, 503)
    assert told["flows"][0]["flow"] == "zz/0", "one with a problem is never left out for one without"
    assert (len(told["publishers"]), told["publishers_left_out"]) == (100, 51)
    assert (len(told["concerns"]), told["concerns_left_out"]) == (50, 101)
    assert told["problems"] == 151
    assert len(told["events"]) == 100
    assert len(json.dumps(told)) < 1_000_000


def test_what_concerns_many_in_the_same_words_is_shown_once() -> None:
    state = HostState("db1", started=NOW, coordination="connected")
    shop = publisher(state, "shop/main/db1", NOW)
    for shard in range(6):
        add_flow(shop, f"cache/{shard}", state="unassigned", cause="no subscriber is there")
    (concern,) = snapshot(state, NOW)["concerns"]
    assert (concern["count"], concern["names"]) == (6, ["cache/0", "cache/1", "cache/2", "cache/3"])


def test_numbers_that_json_does_not_have_are_not_reported(state: HostState, status: Status) -> None:
    status.flows[0].headroom_s = math.inf
    status.flows[0].lag_s = math.nan
    told = snapshot(state, NOW)
    json.dumps(told, allow_nan=False)
    assert (told["flows"][0]["headroom_s"], told["flows"][0]["lag_s"]) == (None, None)


def test_a_paused_flow_says_who_paused_it(state: HostState, status: Status) -> None:
    status.flows[0].paused = "alice@ops1 at 12:00"
    flow = next(flow for flow in snapshot(state, NOW)["flows"] if flow["state"] == "paused")
    assert (flow["level"], flow["cause"]) == ("none", "paused by alice@ops1 at 12:00")


def test_since_when_zookeeper_is_away() -> None:
    state = quiet(NOW)
    state.coordination = "lost"
    state.add(HostEvent(NOW - 40, "coordination", "", "lost"))
    told = snapshot(state, NOW)
    assert told["coordination_since"] == NOW - 40
    assert told["concerns"][0]["about"] == "host"


def test_caravans_that_come_and_go_by_the_dozen_are_one_event() -> None:
    state = HostState("db1", started=NOW)
    state.add(HostEvent(NOW - 100, "data_loss", "cache/0", "gone"))
    for number in range(30):
        state.add(
            HostEvent(NOW - 90 + number, "split" if number % 3 else "merge", "shop/main/db1", f"caravan {number}")
        )
    state.add(HostEvent(NOW - 50, "split", "orders/main/db2", "caravan 2 starts"))
    state.add(HostEvent(NOW - 40, "restart", "shop/main/db1", "ended"))
    state.add(HostEvent(NOW - 30, "split", "shop/main/db1", "caravan 1 starts"))
    told = snapshot(state, NOW)["events"]
    assert [event["kind"] for event in told] == ["split", "restart", "split", "caravans", "data_loss"]
    assert told[3]["text"] == "20 splits and 10 merges; the last: caravan 29"
    assert told[3]["at"] == NOW - 61


def test_one_that_stands_by_is_shown_with_the_owner_and_without_concern(
    state: HostState, status: admin_pb2.PublisherStatus
) -> None:
    status.term = 3
    [owner] = snapshot(state, NOW)["publishers"]
    assert (owner["status"]["term"], owner["status"]["standby"]) == (3, None)
    text = "stands by: main@alpha (process 7) owns the log, in term 3"
    status.CopyFrom(admin_pb2.PublisherStatus(owner="main@alpha", standby=admin_pb2.Problem(text=text)))
    [shown] = snapshot(state, NOW)["publishers"]
    assert (shown["phase"], shown["level"], shown["problem"]) == ("running", "none", "")
    assert (shown["status"]["term"], shown["status"]["standby"]) == (None, {"owner": "main@alpha", "text": text})
