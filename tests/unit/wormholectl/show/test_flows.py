from __future__ import annotations

import json

import pytest

from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.flows import FLOWS, MARKERS, flow_object, flows_where, one_flow
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
    assert "- / - / -" in second
    assert second.endswith("the log is purged [flow-held]")


def test_what_an_operator_did_is_shown_with_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    one = admin_pb2.FlowStatus(
        flow="cache/db1",
        state="held",
        cause="halted: ValueError",
        halted_at="1/2/3:0",
        dead_letters=2,
        skip=["1/1/1:0"],
    )
    show(FLOWS, [Answer("h:7", admin_pb2.PublisherStatus(flows=[one]))], as_json=False)
    cause = (
        "[1] its handler gave up at update 1/2/3:0: halted: ValueError [handler-failed]; 2 dead letters; passes over 1"
    )
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
    publisher = status("db1")
    flow = publisher.flows[0]
    assert flow_object(publisher, flow) == {
        "flow": "cache/db1",
        "state": "live",
        "subscriber": "c1",
        "epoch": 3,
        "place": "1/2/30",
        "native_place": None,
        "marker": "1/2/10",
        "native_marker": None,
        "delivered": "7",
        "lag_s": 75.0,
        "lag_unknown": None,
        "lag_bytes": 20,
        "lag_transactions": 1500,
        "headroom_s": 7200.0,
        "headroom_unknown": None,
        "credit": 3 << 20,
        "in_flight": 1 << 20,
        "updates": 1234,
        "bytes": 99,
        "bad_values": 4,
        "caravan": 1,
        "reads_relay": False,
        "filter": "true",
        "cause": "",
        "condition": {"state": "ok", "code": None, "cause": None, "next_step": None},
        "paused": None,
        "skip": [],
        "dead_letters": 0,
        "halted_at": None,
        "loss_pending": False,
        "credit_waited_s": 0.0,
        "progress_s": 0.0,
        "handler": None,
        "replay": None,
        "backfill": None,
    }
    flow.handler.CopyFrom(admin_pb2.HandlerReport(updates=5, slowest_table="orders", slowest_s=0.5))
    assert flow_object(publisher, flow)["handler"] == {
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


def test_places_stand_beside_the_notation_of_the_datastore(capsys: pytest.CaptureFixture[str]) -> None:
    one = status("db1")
    one.source, one.log_base = "mysql", "binlog"
    one.flows[1].marker.order.incarnation = 0  # an earlier log, whose files may have had the same names
    for listing, place in ((FLOWS, "1/2/30 (binlog.000002:30)"), (MARKERS, "1/2/10 (binlog.000002:10)")):
        show(listing, [Answer("h:7", one)], as_json=False)
        _, first, second = capsys.readouterr().out.splitlines()
        assert place in first
        assert "binlog" not in second
    show(FLOWS, [Answer("h:7", one)], as_json=True)
    first, second = check("flows", capsys.readouterr().out)["flows"]
    assert (first["place"], first["native_place"]) == ("1/2/30", "binlog.000002:30")
    assert (first["marker"], first["native_marker"]) == ("1/2/10", "binlog.000002:10")
    assert (second["marker"], second["native_marker"]) == ("0/0/0", None)


def test_headroom_that_is_not_known_comes_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    one = status("db1")
    one.flows[1].headroom_unknown = "the log does not grow"
    show(FLOWS, [Answer("h:7", one)], as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "HEADROOM - of mail/db1: the log does not grow"
    one.flows[0].ClearField("headroom_s")
    one.flows[0].headroom_unknown = "the log does not grow"
    for listing in (FLOWS, MARKERS):
        show(listing, [Answer("h:7", one)], as_json=False)
        assert capsys.readouterr().out.splitlines()[3:] == ["HEADROOM -: the log does not grow"]
    show(one_flow(FLOWS, "cache/db1"), [Answer("h:7", one)], as_json=False)
    assert capsys.readouterr().out.splitlines()[2:] == ["HEADROOM -: the log does not grow"]
    show(MARKERS, [Answer("h:7", one)], as_json=True)
    assert [flow["headroom_unknown"] for flow in check("markers", capsys.readouterr().out)["markers"]] == [
        "the log does not grow"
    ] * 2


def test_flows_and_lag_show_the_same_words_and_figures(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Also for a lower bound, and for log whose age is not known."""
    one = admin.status
    for end_unknown, last in (("", "1m 15s / 20 B / 1,500 tx"), ("it is away", "at least 1m 15s / 20 B / 1,500 tx")):
        one.end_unknown = end_unknown
        assert f"  {last}  " in run("flows", "-p", "h:7")[1].splitlines()[1]
        assert f"cache/db1 (live) is {last} behind" in run("lag", "cache", "-p", "h:7")[1]
        assert f"cache/db1  {last} behind" in run("why-lag", "cache/db1", "-p", "h:7")[1]
    one.end_unknown = ""
    one.flows[0].lag_s = 0
    one.flows[0].ClearField("lag_transactions")
    assert "  - / 20 B / -  " in run("flows", "-p", "h:7")[1].splitlines()[1]
    assert "cache/db1 (live) is - / 20 B / - behind: the datamarker has" in run("lag", "cache", "-p", "h:7")[1]
    flow = json.loads(run("flows", "-p", "h:7", "--json")[1])["flows"][0]
    lag = json.loads(run("lag", "cache", "-p", "h:7", "--json")[1])["flows"][0]
    assert {name: flow[name] for name in lag} == lag


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


def test_a_backfill_is_among_the_remarks_and_no_lag() -> None:
    told = status("db1")
    told.flows[1].backfill.CopyFrom(admin_pb2.BackfillStatus(generation=1, state="running", rows=1, share=0.5))
    *_, cause = list(FLOWS.rows(told))[1]
    assert cause == "the log is purged [flow-held]; backfill running 50%, 1 row sent"
    told.flows[1].backfill.state = "paused"
    told.flows[1].backfill.paused = "ann@ops, 12:00"
    *_, cause = list(FLOWS.rows(told))[1]
    assert cause.endswith("backfill paused 50%, 1 row sent: paused by ann@ops, 12:00")
    told.flows[1].backfill.state = "done"
    *_, cause = list(FLOWS.rows(told))[1]
    assert cause == "the log is purged [flow-held]"
