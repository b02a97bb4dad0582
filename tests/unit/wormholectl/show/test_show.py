"""Flows, lists, changes and relays as lines and as objects, and how lines are printed."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import relay, status
from wormhole.admin import Change
from wormhole.admin.admin_service import Answer
from wormhole.admin.discovery import Drained
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.publishers.show import PUBLISHERS
from wormholectl.show import printer
from wormholectl.show.changes import differences, show_change
from wormholectl.show.flows import FLOWS, MARKERS, flow_object, flows_where, one_flow
from wormholectl.show.lists import show
from wormholectl.show.printer import (
    next_step_lines,
    print_json,
    print_line,
    print_progress,
    print_table,
    print_text,
    say_waiting,
    size,
    span,
)
from wormholectl.show.relays import relay_line, relay_lines, relay_object

# --- lists ---


def test_a_long_cause_is_printed_once_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "000004.log, offset 899969: fragment header has a wrong checksum, and valid log follows at 900021"
    one = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db1")
    for shard, why in enumerate([cause, "no subscriber is there", cause, cause + "!"]):
        one.flows.add(flow=f"mail/{shard}", state="held", cause=why)
    show(FLOWS, [Answer("a:1", one)], False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:5]] == ["[1]", "[flow-held]", "[1]", "[2]"]
    assert lines[5:] == [f"[1] {cause} [flow-held]", f"[2] {cause}! [flow-held]"]


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    show(FLOWS, [Answer("h:7", admin_pb2.PublisherStatus(dataset="d", copy="c", log="l"))], as_json=False)
    assert capsys.readouterr().out == "no flows at d/c/l\n"


def test_of_several_publishers_each_is_named_and_the_silent_one_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [Answer("h:7", status("db1")), Answer("h:8", status("db2")), Answer("h:9", None, "h:9 is silent")]
    assert show(FLOWS, answers, as_json=False) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("PUBLISHER")
    assert out.splitlines()[-1].endswith("shop/main/db2")
    assert err == "warning: h:9 is silent\n"


def test_what_is_wrong_with_a_log_is_printed_whatever_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for listing in (FLOWS, PUBLISHERS):
        told = status("db1")
        told.problems.append("the server is away")
        assert show(listing, [Answer("h:7", told)], as_json=False) == 0
        assert capsys.readouterr().err == "warning: shop/main/db1: the server is away\n"


def test_for_programs_the_publisher_is_named_beside_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    show(FLOWS, [Answer("h:7", status("db1")), Answer("h:9", None, "silent")], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert told["publishers"] == [
        {
            "publisher": "shop/main/db1",
            "address": "h:7",
            "http_address": None,
            "host": "db-host",
            "pid": 77,
            "version": "0.1.0",
            "compiled": ["datastores.mysql.decode.x"],
            "uptime_s": 2.5,
            "coordination": "connected",
            "log_end": "1/2/30",
            "native_log_end": None,
            "log_bytes_per_s": None,
            "condition": {"state": "ok", "code": None, "cause": None, "next_step": None},
            "stuck_s": None,
            "term": None,
            "candidate": None,
            "standby": None,
            "problems": [],
            "end_unknown": None,
            "relay": None,
            "attach": None,
            "flows": 2,
            "caravans": 1,
            "subscribers": 1,
            "limits": {
                "caravans": 4,
                "read_rate": float(8 << 20),
                "total_read_rate": None,
                "buffer_bytes": 64 << 20,
                "buffered_bytes": 5,
            },
        }
    ]
    assert told["unreachable"] == [{"address": "h:9", "problem": "silent"}]
    assert [(flow["publisher"], flow["address"], flow["flow"]) for flow in told["flows"]] == [
        ("shop/main/db1", "h:7", "cache/db1"),
        ("shop/main/db1", "h:7", "mail/db1"),
    ]


def test_a_drained_host_is_reported_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    drained = Drained("db-7", "ann@ops", ("shop/main/db2",), frozenset({"cache"}))
    answers = [Answer("h:7", status("db1")), Answer("", None, str(drained), drained=drained)]
    for listing in (FLOWS, PUBLISHERS):
        assert show(listing, answers, as_json=False) == 0
        out, err = capsys.readouterr()
        sentence = "host db-7 is drained by ann@ops: shop/main/db2 is not served, and the flows there are not known"
        assert (out.splitlines()[-1], err) == (sentence, "")
    assert show(FLOWS, answers, as_json=True) == 0
    found = check("flows", capsys.readouterr().out)
    assert found["drained"] == [{"host": "db-7", "by": "ann@ops", "publishers": ["shop/main/db2"]}]
    assert found["unreachable"] == []


def test_publishers_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    show(PUBLISHERS, [Answer("h:7", status("db1"))], as_json=True)
    assert list(json.loads(capsys.readouterr().out)) == ["schema", "publishers", "drained", "unreachable"]


# --- changes ---


STATUS = admin_pb2.PublisherStatus(source="mysql", log_base="binlog", log_end=push_pb2.Position(incarnation=1))


def test_what_moves_by_itself_is_no_difference() -> None:
    before = admin_pb2.FlowStatus(flow="a/b", state="live", lag_s=3, updates=5, skip=["1/1/1:0"])
    after = admin_pb2.FlowStatus(flow="a/b", state="held", lag_s=4, updates=6, loss_pending=True)
    after.marker.order.CopyFrom(push_pb2.Position(incarnation=1, file=2, offset=3))
    assert list(differences(STATUS, before, after)) == [
        ("state", "live", "held"),
        ("marker", "-", "1/2/3 (binlog.000002:3)"),
        ("skip", "1/1/1:0", "-"),
        ("loss pending", "no", "yes"),
    ]
    assert list(differences(STATUS, before, before)) == []


def test_a_long_cause_is_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "the server has not executed 0-1-7, which was delivered before 1/1/9. Next: `wormholectl repair a/b`"
    before = admin_pb2.FlowStatus(flow="a/b", state="held", cause=cause, loss_pending=True)
    after = admin_pb2.FlowStatus(flow="a/b", state="live")
    show_change(Change(STATUS, "a/b", before, after, ("never delivered",), made=False), as_json=False)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "state         held    live",
        "loss pending  yes     no",
        "cause         [1]     -",
        f"[1] {cause}",
        "note: never delivered",
    ]


# --- flows ---


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


# --- relays: what a relay holds, as lines and as an object ---


FULL = admin_pb2.Problem(text="the relay is full", hint="raise relay_budget")


def lines(relay: admin_pb2.RelayStatus) -> list[str]:
    told = status("db1")
    told.relay.CopyFrom(relay)
    return [*relay_lines(told, 1_700_003_600.0)]


def test_a_relay_that_holds() -> None:
    assert lines(relay()) == [
        "relay (hold): 9.0 GiB of log in 3.0 GiB of at most 8.0 GiB",
        "from 1/2/5, 1h 0m ago, to 1/2/30",
        "nothing is recorded from 1/2/10 to 1/2/15",
        (
            "the server keeps at most 1.0 GiB for flows that are behind; when the relay is full, its oldest file goes: "
            "flows that need it lose updates"
        ),
        "a loss of power would take 4.0 KiB of it, what follows 1/2/15: it is read again",
        "only the relay holds what flows need up to 1/2/15",
        "2 readers of it now",
    ]


def test_one_that_was_turned_off_records_nothing() -> None:
    off = relay(mode="off")
    assert any(line.startswith("nothing more is recorded: the files go when") for line in lines(off))
    told = status("db1")
    told.relay.CopyFrom(off)
    shown = relay_object(told)
    assert shown is not None
    assert shown["recording"] is False


def test_one_whose_records_are_all_synced() -> None:
    assert "a loss of power would take nothing of it: synced to 1/2/15" in lines(relay(unsynced_bytes=0))


def test_one_that_does_not_record_says_why_and_what_to_do() -> None:
    assert lines(admin_pb2.RelayStatus(mode="cache", budget_bytes=1 << 30, problem=FULL)) == [
        "relay (cache): nothing is recorded yet; it does not record: the relay is full",
        "next: raise relay_budget",
    ]
    assert lines(admin_pb2.RelayStatus(mode="hold", keeps_slot=True))[1:] == [
        "the server keeps at most 0 B for flows that are behind; when the relay is full, the server keeps more",
    ]


def test_for_programs_what_a_cache_does_not_have_is_null() -> None:
    told = status("db1")
    assert relay_object(told) is None
    told.relay.CopyFrom(relay(mode="cache", problem=FULL))
    found = relay_object(told)
    assert found is not None
    assert (found["slot_budget_bytes"], found["on_full"], found["unsynced_bytes"]) == (None, None, None)
    assert (found["recording"], found["problem"], found["next"]) == (False, FULL.text, FULL.hint)
    told.relay.CopyFrom(relay(keeps_slot=True))
    found = relay_object(told)
    assert found is not None
    assert (found["on_full"], found["stretches"][0]) == ("keep_slot", {"begin": "1/2/5", "end": "1/2/10"})


def test_publishers_and_flows_show_it() -> None:
    told = status("db1")
    assert [*PUBLISHERS.notes(told)] == []
    told.relay.CopyFrom(relay())
    assert [*PUBLISHERS.notes(told)] == [f"shop/main/db1: {relay_line(told.relay)}"]
    told.flows[0].reads_relay = True
    rows = [*FLOWS.rows(told)]
    assert [row[FLOWS.table.titles.index("CARAVAN")] for row in rows] == ["1 (relay)", "-"]


# --- printer ---


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (200 << 10, "200 KiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (59.4, "59s"), (200, "3m 20s"), (7200, "2h 0m"), (90_000, "1d 1h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        ("read the log", ["next: read the log"]),
        ("GRANT x TO y;", ["next:", "  GRANT x TO y;"]),
        ("SET a = 1;\nFLUSH b;\nor wait", ["next:", "  SET a = 1;", "  FLUSH b;", "  or wait"]),
    ],
)
def test_a_statement_to_paste_has_a_line_of_its_own(step: str, lines: list[str]) -> None:
    assert next_step_lines(step) == lines


def test_a_pipe_gets_plain_lines_of_any_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_line([("x" * 300, "bold red"), (" [not markup]", "")])
    print_json({"é": 1})
    print_table(["A", "LONG NAME"], [["1", "y" * 200], ["22", ""]], "none")
    print_table(["A"], [], "none")
    assert capsys.readouterr().out == (
        "x" * 300 + ' [not markup]\n{"schema": 1, "é": 1}\nA   LONG NAME\n1   ' + "y" * 200 + "\n22\nnone\n"
    )


def test_a_table_wider_than_the_terminal_is_shown_in_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(printer, "_console", lambda: Console(highlight=False, width=30, color_system=None))
    row = ["cache/db1", "live", "", "1/2/30 and more", "gone"]
    print_table(["FLOW", "STATE", "CARAVAN", "PLACE", "CAUSE"], [row, ["b", "held", "", "", ""]], "none")
    assert capsys.readouterr().out == (
        "cache/db1\n  STATE live\n  PLACE 1/2/30 and more\n  CAUSE gone\nb\n  STATE held\n"
    )
    print_table(["FLOW", "STATE"], [row[:2]], "none")
    assert capsys.readouterr().out.splitlines()[1].split() == ["cache/db1", "live"]


def test_figures_end_at_the_same_place_and_no_width_cuts_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ["CASE", "UPDATES/S", "READ", "SPREAD", "PLACE"]
    rows = [
        ["small", "1,202,000", "5 B", "8.0 (x 0.8)", "1/2/30"],
        ["large", "999", "1.5 MiB", "28.0 (x 0.9)", "1/2/3"],
        ["none", "-", "", "", ""],
    ]
    print_table(columns, rows, "", title="Throughput")
    assert capsys.readouterr().out.splitlines() == [
        "Throughput",
        "CASE   UPDATES/S     READ        SPREAD  PLACE",
        "small  1,202,000      5 B   8.0 (x 0.8)  1/2/30",
        "large        999  1.5 MiB  28.0 (x 0.9)  1/2/3",
        "none           -",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width in range(10, 60):
        monkeypatch.setattr(printer, "_console", lambda width=width: Console(width=width, color_system=None))
        print_table(columns, rows, "")
        shown = capsys.readouterr().out
        assert all(cell in shown for row in rows for cell in row)


def test_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_line([("[x]", "bold"), ("y", "")])
    print_table(["A", "B"], [["[x]", "y"]], "none")
    lines = capsys.readouterr().out.splitlines()
    assert "[x]" in lines[0]
    assert "[x]" in lines[-1]


def test_what_takes_long_is_said_to_a_person_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say_waiting("starting Spark")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    say_waiting("starting Spark")
    assert capsys.readouterr() == ("", "starting Spark\n")


ATTACK = "\x1b]0;owned\x07\nerror: all is lost\x9b2J\u202e"


def test_what_a_peer_wrote_reaches_no_terminal_raw(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda answer=terminal: answer)
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=terminal: answer)
        monkeypatch.setattr(printer, "_console", lambda: Console(highlight=False, width=200, color_system=None))
        print_line([(ATTACK, "")])
        print_text(ATTACK)
        print_text(ATTACK, error=True)
        print_table(["NAME"], [[ATTACK]], "none")
        print_table([], [], ATTACK)
        print_json({"name": ATTACK})
        say_waiting(ATTACK)
        print_progress(ATTACK)
    shown = capsys.readouterr()
    text = (shown.out + shown.err).replace("\r\x1b[K", "")
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert not any(line.startswith("error:") for line in text.splitlines())


def test_columns_that_a_narrow_terminal_can_spare_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    columns, row = ("FLOW", "PLACE", "EPOCH", "CAUSE"), ("cache/db1", "p" * 30, "7", "it is held")

    def printed(width: int) -> list[str]:
        monkeypatch.setattr(printer, "_console", lambda: Console(width=width, force_terminal=False))
        printer.print_table(columns, [row], "none", spare=("EPOCH", "PLACE"))
        return capsys.readouterr().out.splitlines()

    assert printed(100)[0].split() == [*columns]
    head, _, note = printed(54)
    assert (head.split(), "EPOCH;" in note) == (["FLOW", "PLACE", "CAUSE"], True)
    head, _, note = printed(40)
    assert (head.split(), "EPOCH, PLACE;" in note) == (["FLOW", "CAUSE"], True)
    assert "EPOCH 7" in " ".join(printed(15)), "all of them, in a block"
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert [line.split()[:3] for line in printed(15)] == [["FLOW", "PLACE", "EPOCH"], [*row[:3]]], "a pipe gets all"
