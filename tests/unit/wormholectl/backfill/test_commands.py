from __future__ import annotations

import json

import pytest

from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.host.clock import Clock
from wormhole.model.errors import Fatal
from wormhole.wire.v1 import admin_pb2
from wormholectl.backfill.flows import wait_until_ended
from wormholectl.show.backfills import ReportedBackfill, progress_line

AT = ("-p", "h:7")


def running(**fields: object) -> admin_pb2.BackfillStatus:
    """Two tables, one of them done."""
    told: dict[str, object] = {
        "generation": 2,
        "state": "running",
        "who": "ann@ops",
        "table": "shop.users",
        "rows": 600_000,
        "rows_estimate": 1_200_000,
        "share": 0.5,
        "rows_per_s": 8_000.0,
        "bytes_per_s": float(4 << 20),
        "left_s": 75.0,
    }
    found = admin_pb2.BackfillStatus(**{**told, **fields})  # type: ignore[arg-type]
    found.progress.add(table="shop.items", state="done", rows=100_000, rows_estimate=99_000)
    found.progress.add(table="shop.users", state="running", rows=500_000, rows_estimate=1_101_000)
    return found


@pytest.fixture
def backfill(admin: FakeAdmin) -> admin_pb2.BackfillStatus:
    """That of cache/db1."""
    found = admin.status
    found.flows[0].backfill.CopyFrom(running())
    return found.flows[0].backfill


def test_a_start_asks_each_flow_and_nothing_begins_before_the_answer(admin: FakeAdmin) -> None:
    code, out, err = run("backfill", "start", "cache", *AT)
    assert (code, "--yes" in err) == (2, True)
    assert [(one.flow, one.preview) for one in admin.requests] == [("cache/db1", True)]
    assert [line.split() for line in out.splitlines()[:3]] == [
        ["TABLE", "ABOUT", "ROWS", "PUBLISHER"],
        ["shop.log", "-", "refused", "shop/main/db1"],
        ["shop.users", "1,200,000", "shop/main/db1"],
    ]
    assert "1 flow of cache would receive about 1,200,000 rows, by the server's estimate, of 1 table" in out
    assert "shop.log is refused: shop.log has no primary key\n  next: add a primary key\n" in out
    assert "note: it was asked nicely" in out


def test_shards_have_parts_of_a_table_and_share_what_is_read(admin: FakeAdmin) -> None:
    told = admin.status
    told.flows[1].flow = "cache/db2"
    _, out, _ = run("backfill", "start", "cache", *AT)
    assert "2 flows of cache would receive about 2,400,000 rows, by the server's estimate, of 1 table" in out
    for flow in told.flows:
        flow.backfill.CopyFrom(running())
    line = progress_line([ReportedBackfill("shop/main/db1", flow.flow, flow.backfill) for flow in told.flows])
    assert line == (
        "[############............]  50%  1,200,000 rows  16,000/s  4.0 MiB/s  about 1m 15s left  0 of 2 flows ended"
    )
    told.flows[0].backfill.waits.text = "no credit"
    assert progress_line([ReportedBackfill("p", "f", told.flows[0].backfill)]).endswith(
        "0 of 1 flow ended  waits: no credit"
    )


def test_what_was_asked_is_handed_on(admin: FakeAdmin) -> None:
    options = ("--tables", "shop.us*,shop.users", "--where", 'op == "read"', "--rate", "1MiB/s", "--yes")
    code, out, err = run("backfill", "start", "cache", *options, *AT)
    assert (code, err) == (0, "")
    assert "backfill of cache was changed:" in out
    assert ["cache/db1", "none", "waiting,", "generation", "1"] in [line.split() for line in out.splitlines()]
    (last,) = [one for one in admin.requests if not one.preview]
    asked = last.backfill_start
    assert (list(asked.tables), asked.where, asked.rate) == (["shop.users"], 'op == "read"', 1 << 20)
    # The tables are listed without the filter: a flow that is not chosen may have none with its columns.
    previews = [one.backfill_start for one in admin.requests if one.preview]
    assert [(list(one.tables), one.where) for one in previews] == [([], ""), (["shop.users"], 'op == "read"')]


def test_without_a_rate_the_configured_one_counts(admin: FakeAdmin) -> None:
    assert run("backfill", "start", "cache", "--yes", *AT)[0] == 0
    assert not admin.requests[-1].backfill_start.HasField("rate")


def test_a_refusal_of_the_publisher_is_one_message(admin: FakeAdmin) -> None:
    admin.refusal = Fatal("a backfill of it runs", hint="wormholectl backfill cancel cache")
    code, out, err = run("backfill", "start", "cache", "--yes", *AT)
    assert (code, out) == (1, "")
    assert err == "error [needs-operator]: a backfill of it runs\n  next: wormholectl backfill cancel cache\n"


def test_a_publisher_that_does_not_answer_keeps_a_backfill_from_beginning_in_part(admin: FakeAdmin) -> None:
    admin.answers.append(Answer("h:9", None, "the publisher at h:9 does not answer"))
    code, out, err = run("backfill", "start", "cache", "--yes", *AT)
    assert (code, out, admin.requests) == (3, "", [])
    assert "h:9 does not answer" in err


def test_an_error_after_the_first_flow_says_what_was_changed(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    second = status("db2")
    second.flows[0].flow = "cache/db2"
    admin.answers.append(Answer("h:8", second))
    change = type(admin).change

    def fail_later(answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
        if request.flow == "cache/db2" and not request.preview:
            raise Fatal("it is held")
        return change(admin, answer, request)

    monkeypatch.setattr("wormhole.admin.admin_service.change", fail_later)
    code, _, err = run("backfill", "start", "cache", "--yes", *AT)
    assert (code, err) == (1, "error [needs-operator]: it is held (cache/db2; 1 other flow changed before it)\n")


@pytest.mark.parametrize(("verb", "after"), [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")])
def test_each_verb_changes_the_flows_that_have_one(
    verb: str, after: str, admin: FakeAdmin, backfill: admin_pb2.BackfillStatus
) -> None:
    code, out, _ = run("backfill", verb, "cache", *AT)
    assert (code, "would change" in out) == (2, True)
    code, out, err = run("backfill", verb, "cache", "--yes", *AT)
    assert (code, err) == (0, "")
    assert f"running, generation 2  {after}, generation 2" in out
    assert [one.WhichOneof("what") for one in admin.requests if not one.preview] == [f"backfill_{verb}"]


def test_show_has_flows_tables_and_why_it_waits(admin: FakeAdmin, backfill: admin_pb2.BackfillStatus) -> None:
    backfill.waits.text, backfill.waits.hint = "cache/db1 is not with the lead", "wormholectl why-lag cache/db1"
    code, out, err = run("backfill", "show", "cache", *AT)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1] == "cache/db1 2 running 600,000 50% 8,000 1m 15s ann@ops cache/db1 is not with the lead"
    assert "cache/db1 shop.users running 500,000 1,101,000" in lines
    assert "SHARE, TIME LEFT and TABLE HOLDS follow from the server's estimate of the rows of a table." in lines
    assert "it waits: cache/db1 is not with the lead" in lines
    assert "next: wormholectl why-lag cache/db1" in lines
    assert run("backfill", *AT)[1] == out  # mail has none


def test_an_application_without_one(admin: FakeAdmin) -> None:
    for arguments in ((), ("show", "cache")):
        code, out, _ = run("backfill", *arguments, *AT)
        assert (code, out) == (0, "no flow has a backfill: `wormholectl backfill start APP` begins one\n")


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("cancelled", 1)])
def test_watching_ends_with_the_backfill(
    state: str, code: int, admin: FakeAdmin, backfill: admin_pb2.BackfillStatus
) -> None:
    backfill.state = state
    found, out, err = run("backfill", "show", "cache", "--watch", *AT)
    assert (found, state in out) == (code, True)
    assert "1 of 1 flow ended" in err


def test_another_flow_whose_rows_cannot_be_read_is_no_obstacle(admin: FakeAdmin) -> None:
    """With shards by table, the table without a key is a flow of its own."""
    admin.keeps = True
    told = admin.status
    told.flows[1].flow = "cache/db2"
    change = type(admin).change

    def one_table_each(answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
        del request.backfill_start.tables[:]
        request.backfill_start.tables.append("shop.log" if request.flow == "cache/db2" else "shop.users")
        return change(admin, answer, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wormhole.admin.admin_service.change", one_table_each)
        assert run("backfill", "start", "cache", "--yes", *AT)[0] == 0
    assert {one.flow for one in admin.requests if not one.preview} == {"cache/db1", "cache/db2"}


def test_watching_a_start_is_about_the_flows_that_began(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    told = admin.status
    told.flows[1].flow = "cache/db2"
    told.flows[1].backfill.CopyFrom(running(state="cancelled"))
    change = type(admin).change

    def without_users(answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
        reply = change(admin, answer, request)
        if request.flow == "cache/db2":
            del reply.after.backfill.progress[:]
        elif not request.preview:
            told.flows[0].backfill.CopyFrom(running(state="done"))
        return reply

    monkeypatch.setattr("wormhole.admin.admin_service.change", without_users)
    code, out, _ = run("backfill", "start", "cache", "--tables", "shop.users", "--yes", "--watch", *AT)
    assert (code, [one.flow for one in admin.requests if not one.preview]) == (0, ["cache/db1"])
    assert "cancelled" not in out


def test_for_programs(admin: FakeAdmin, backfill: admin_pb2.BackfillStatus) -> None:
    backfill.waits.text = "it is paused"
    shown = check("backfill-show", run("backfill", "show", "cache", "--json", *AT)[1])
    assert shown["flows"][0]["backfill"]["progress"][0]["table"] == "shop.items"
    out = run("backfill", "start", "cache", "--json", "--yes", *AT)[1]
    assert check("backfill-change", out)["changed"] is True
    out = run("backfill", "start", "cache", "--json", *AT)[1]
    assert check("backfill-change", out)["changed"] is False
    assert check("backfill-change", run("backfill", "pause", "cache", "--json", *AT)[1])["what"] == "pause"
    backfill.state = "done"
    first, last = run("backfill", "show", "cache", "--watch", "--json", *AT)[1].splitlines()
    check("backfill-progress", first)
    check("backfill-show", last)
    assert json.loads(first)["progress"] == {"rows": 600_000, "share": 1.0}


@pytest.mark.parametrize(("state", "seconds"), [("held", 60), ("paused", 60), ("unassigned", 600)])
def test_waiting_ends_when_no_flow_goes_on_by_itself(
    state: str, seconds: int, admin: FakeAdmin, backfill: admin_pb2.BackfillStatus
) -> None:
    """A verification in cron would wait for ever."""
    told = admin.status
    told.flows[0].state, told.flows[0].cause = state, "its handler failed"
    now, said = [0.0], list[str]()

    def pause(pause_s: float) -> None:
        now[0] += pause_s
        told.flows[0].state = "live" if now[0] == 30.0 else state  # it went on for a moment
        assert now[0] < 2_000, "it waits for ever"

    clock = Clock(monotonic=lambda: now[0], pause=pause)
    with pytest.raises(Fatal) as raised:
        wait_until_ended(lambda: admin.answers, "cache", lambda _, problems: said.extend(problems), clock)
    assert now[0] == 31 + seconds
    assert f"cache/db1 is {state}: its handler failed" in said
    assert f"cache/db1 is {state}: its handler failed" in raised.value.message
    assert "wormholectl why-lag cache/db1" in str(raised.value.hint)


def test_a_flow_that_changes_hands_is_not_named(admin: FakeAdmin, backfill: admin_pb2.BackfillStatus) -> None:
    """Each verification assigns its flows again: a line about it would be mail from cron."""
    told = admin.status
    told.flows[0].state, told.flows[0].cause = "unassigned", "released by its subscriber"
    now, said = [0.0], list[str]()

    def pause(pause_s: float) -> None:
        now[0] += pause_s
        if now[0] == 3.0:
            told.flows[0].state, backfill.state = "live", "done"

    clock = Clock(monotonic=lambda: now[0], pause=pause)
    wait_until_ended(lambda: admin.answers, "cache", lambda _, problems: said.extend(problems), clock)
    assert said == []


def test_waiting_goes_on_while_one_flow_does(admin: FakeAdmin, backfill: admin_pb2.BackfillStatus) -> None:
    told = admin.status
    told.flows[1].flow = "cache/db2"
    told.flows[1].backfill.CopyFrom(running())
    told.flows[1].state, told.flows[0].state = "held", "live"
    now = [0.0]

    def pause(pause_s: float) -> None:
        now[0] += pause_s
        if now[0] == 500.0:
            backfill.state = told.flows[1].backfill.state = "done"

    clock = Clock(monotonic=lambda: now[0], pause=pause)
    assert len(wait_until_ended(lambda: admin.answers, "cache", lambda *_: None, clock)) == 2
