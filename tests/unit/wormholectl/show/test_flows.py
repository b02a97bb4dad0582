from __future__ import annotations

import pytest

from tests.support.cli_schema import check
from tests.support.publisher_status import status
from wormhole.wire.v1 import admin_pb2
from wormholectl.admin_client import Answer
from wormholectl.show.flows import FLOWS, flow_object, flows_where
from wormholectl.show.lists import show

ONE = [Answer("h:7", status("db1"))]


def test_flows_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(FLOWS, ONE, as_json=False) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "FLOW"
    for text in (
        "cache/db1",
        "live",
        "c1",
        "1/2/30",
        "1/2/10",
        "1m 15s / 20 B / 1,500 tx",
        "2h 0m",
        "1.0 MiB of 4.0 MiB",
        "1,234",
    ):
        assert text in first
    assert "0.0s / - / -" in second
    assert second.endswith("the log is purged")


def test_what_an_operator_did_stands_with_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    one = admin_pb2.FlowStatus(
        flow="cache/db1",
        state="held",
        cause="halted: ValueError",
        halted_at="1/2/3:0",
        dead_letters=2,
        skip=["1/1/1:0"],
    )
    show(FLOWS, [Answer("h:7", admin_pb2.PublisherStatus(flows=[one]))], as_json=False)
    cause = "[1] halted: ValueError; halted at 1/2/3:0; 2 dead letters; passes over 1"
    assert capsys.readouterr().out.splitlines()[-1] == cause


def test_the_replay_that_has_a_flow_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    told = admin_pb2.ReplayStatus(replay="r1", who="ann", state="held", mode=admin_pb2.LATEST, attempts=2)
    told.until.order.incarnation = 1
    publisher = status("db1")
    publisher.flows[1].state = "replaying"
    publisher.flows[1].replay.CopyFrom(told)
    show(FLOWS, [Answer("h:7", publisher)], as_json=True)
    found = check("flows", capsys.readouterr().out)["flows"][1]["replay"]
    assert (found["replay"], found["mode"], found["begin"], found["until"]) == ("r1", "latest", None, "1/0/0")


def test_for_programs() -> None:
    flow = status("db1").flows[0]
    assert flow_object(flow) == {
        "flow": "cache/db1",
        "state": "live",
        "subscriber": "c1",
        "epoch": 3,
        "place": "1/2/30",
        "marker": "1/2/10",
        "delivered": "7",
        "lag_s": 75.0,
        "lag_bytes": 20,
        "lag_transactions": 1500,
        "headroom_s": 7200.0,
        "credit": 3 << 20,
        "in_flight": 1 << 20,
        "updates": 1234,
        "bytes": 99,
        "bad_values": 4,
        "caravan": 1,
        "filter": "true",
        "cause": "",
        "paused": None,
        "skip": [],
        "dead_letters": 0,
        "halted_at": None,
        "loss_pending": False,
        "credit_waited_s": 0.0,
        "progress_s": 0.0,
        "handler": None,
        "replay": None,
    }
    flow.handler.CopyFrom(admin_pb2.HandlerReport(updates=5, slowest_table="orders", slowest_s=0.5))
    assert flow_object(flow)["handler"] == {
        "updates": 5,
        "busy_s": 0.0,
        "failures": 0,
        "slowest_table": "orders",
        "slowest_s": 0.5,
        "queued_bytes": 0,
        "running_update": None,
        "running_s": 0.0,
        "skipped": 0,
        "parked": 0,
    }


@pytest.mark.parametrize(
    ("application", "states", "found"),
    [
        ("", [], ["cache/db1", "mail/db1"]),
        ("mail", [], ["mail/db1"]),
        ("", ["live"], ["cache/db1"]),
        ("mail", ["live", "opening"], []),
    ],
)
def test_some_flows_only(application: str, states: list[str], found: list[str]) -> None:
    narrowed = flows_where(FLOWS, application, states)
    assert [row[0] for row in narrowed.rows(status("db1"))] == found
    assert [one["flow"] for one in narrowed.objects(status("db1"))] == found
