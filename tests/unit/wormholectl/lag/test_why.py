"""Why a flow lags, what is concluded, and ``wormholectl lag``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.admin.admin_service import Answer
from wormhole.admin.discovery import Drained
from wormhole.model.errors import UsageError
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.lag.show import show_diagnosis
from wormholectl.lag.verdict import judge
from wormholectl.lag.why import Diagnosis, LagStage, diagnose

# --- why ---


MIB = 1 << 20
PAUSED = "ann@ops at 12:00"


def at(offset: int) -> push_pb2.Position:
    return push_pb2.Position(incarnation=1, file=1, offset=offset)


def flow(**fields: Any) -> admin_pb2.FlowStatus:
    """A live flow whose subscriber keeps up; it is behind only by what its caravan has not read."""
    usual: dict[str, Any] = {
        "flow": "cache/db1",
        "state": "catching_up",
        "subscriber": "c1",
        "place": at(500),
        "credit": 3 * MIB,
        "in_flight": MIB,
        "lag_s": 90.0,
        "lag_transactions": 5000,
        "lag_bytes": 40 * MIB,
        "caravan": 2,
        "filter": 'email == "x"',
        "handler": admin_pb2.HandlerReport(updates=1000, busy_s=2.0, queued_bytes=100),
    }
    return admin_pb2.FlowStatus(**usual | fields)


def publisher(**fields: Any) -> admin_pb2.PublisherStatus:
    usual: dict[str, Any] = {
        "compiled": ["datastores.mysql.decode.x"],
        "coordination": "connected",
        "log_end": at(90_000),
        "limits": admin_pb2.CaravanLimits(caravans=4),
        "caravans": [caravan()],
        "subscribers": [subscriber()],
    }
    return admin_pb2.PublisherStatus(**usual | fields)


def caravan(**fields: Any) -> admin_pb2.CaravanStatus:
    usual: dict[str, Any] = {"number": 2, "place": at(500), "bytes_per_s": 9.0 * MIB}
    return admin_pb2.CaravanStatus(**usual | fields)


def subscriber(**fields: Any) -> admin_pb2.SubscriberStatus:
    usual: dict[str, Any] = {"application": "cache", "subscriber": "c1", "address": "h:1", "state": "connected"}
    return admin_pb2.SubscriberStatus(**usual | fields)


def report(**fields: Any) -> admin_pb2.HandlerReport:
    return admin_pb2.HandlerReport(**fields)


def replay(**fields: Any) -> admin_pb2.ReplayStatus:
    usual: dict[str, Any] = {"replay": "r1", "who": "ann", "state": "replaying", "lease_left_s": 7.0}
    return admin_pb2.ReplayStatus(**usual | fields)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], LagStage, str]] = [
    ("not behind", {}, {"lag_transactions": 0, "in_flight": 0}, LagStage.NONE, "not behind"),
    ("at the end", {"log_end": at(500)}, {}, LagStage.NONE, "on its way"),
    ("paused", {}, {"paused": PAUSED, "halted_at": "x"}, LagStage.CONTROL, PAUSED),
    ("held", {}, {"state": "held", "cause": "its marker is missing"}, LagStage.CONTROL, "its marker is missing"),
    ("loss", {}, {"loss_pending": True, "state": "held"}, LagStage.LOG, "no longer holds what it needs"),
    ("replayed", {}, {"replay": replay(), "lag_transactions": 0}, LagStage.CONTROL, "replay r1 by ann has it"),
    ("needs replay", {}, {"replay": replay(state="needs_replay")}, LagStage.LOG, "its replay was given up"),
    ("stuck", {"stuck_s": 40.0}, {"lag_transactions": 0, "in_flight": 0}, LagStage.LOG, "for 40 s"),
    ("no caravan", {"caravans": []}, {"caravan": 0, "cause": "behind every caravan"}, LagStage.LOG, "no caravan reads"),
    ("own cap", {"caravans": [caravan(target_bytes_per_s=10.0 * MIB)]}, {}, LagStage.LOG, "may not read faster"),
    (
        "cap of all",
        {"limits": admin_pb2.CaravanLimits(caravans=4, total_read_rate=10.0 * MIB)},
        {},
        LagStage.LOG,
        "may not read faster",
    ),
    ("silent log", {"caravans": [caravan(bytes_per_s=0.0)]}, {}, LagStage.LOG, "nothing arrives"),
    ("processor", {"log_bytes_per_s": 9.5 * MIB}, {}, LagStage.DECODE, "as fast as this publisher can"),
    ("interpreted", {"compiled": []}, {}, LagStage.DECODE, "as fast as this publisher can"),
    ("filter", {"caravans": [caravan(place=at(800), buffered_bytes=MIB)]}, {}, LagStage.FILTER, "waits for its filter"),
    ("window", {}, {"credit": 0, "credit_waited_s": 0.3}, LagStage.CREDIT, "permits too little"),
    ("nobody", {"subscribers": []}, {"subscriber": "", "state": "unassigned"}, LagStage.NETWORK, "no subscriber"),
    (
        "processor, and no time at the datamarker",
        {},
        {"lag_s": 0.0, "lag_transactions": None, "in_flight": 0},
        LagStage.DECODE,
        "as fast as this publisher can",
    ),
    (
        "no ZooKeeper",
        {"coordination": "lost"},
        {"subscriber": "", "state": "unassigned"},
        LagStage.NETWORK,
        "ZooKeeper does not answer",
    ),
    (
        "cut off",
        {"subscribers": [subscriber(state="unreachable", cause="refused")]},
        {},
        LagStage.NETWORK,
        "unreachable",
    ),
    ("stalled", {}, {"credit": 0, "progress_s": 12.0}, LagStage.NETWORK, "nothing was processed for 12s"),
    ("gave up", {}, {"halted_at": "1/2/3:0", "state": "held", "cause": "ValueError"}, LagStage.HANDLER, "gave up at"),
    (
        "one slow callback",
        {},
        {"handler": report(running_update="1/2/3:0", running_s=30.0), "progress_s": 30.0, "credit": 0},
        LagStage.HANDLER,
        "works on update 1/2/3:0 for 30s",
    ),
    ("queue", {}, {"handler": report(queued_bytes=MIB), "credit": 0}, LagStage.HANDLER, "longer than updates arrive"),
    (
        "no report",
        {},
        {"handler": None, "credit": 0, "credit_waited_s": 2.0},
        LagStage.HANDLER,
        "not process as fast",
    ),
]


@pytest.mark.parametrize(
    ("of_publisher", "of_flow", "stage", "what"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_each_stage(of_publisher: dict[str, Any], of_flow: dict[str, Any], stage: LagStage, what: str) -> None:
    found = diagnose(publisher(**of_publisher), flow(**of_flow))
    assert found.stage is stage, found
    assert what in found.what


def test_every_stage_has_a_case() -> None:
    assert {case[3] for case in CASES} == set(LagStage)


def test_the_next_step_is_a_command_where_there_is_one() -> None:
    assert "wormholectl flows resume cache/db1" in diagnose(publisher(), flow(paused=PAUSED)).next_step
    halted = diagnose(publisher(), flow(halted_at="1/2/3:0", cause="ValueError: no such user"))
    assert "flows skip cache/db1 --update 1/2/3:0" in halted.next_step
    assert "ValueError: no such user" in halted.what
    lost = diagnose(publisher(), flow(loss_pending=True)).next_step
    assert lost.startswith("wormholectl repair cache/db1 sends the rows that it lacks; ")
    assert "accept-loss cache/db1" in lost
    declined = flow(
        loss_pending=True, cause="held. Next: repair", problem=admin_pb2.Problem(text="held", hint="repair")
    )
    assert (diagnose(publisher(), declined).what, diagnose(publisher(), declined).because) == ("held", ())
    assert "install a C compiler" in diagnose(publisher(compiled=[]), flow()).next_step
    assert "max_read_rate" in diagnose(publisher(caravans=[caravan(target_bytes_per_s=9.0 * MIB)]), flow()).next_step


def test_of_a_replay_the_lease_is_shown() -> None:
    assert diagnose(publisher(), flow(replay=replay(), cause="held")).because == ("7.0s of its lease are left", "held")
    assert "has run out" in diagnose(publisher(), flow(replay=replay(lease_left_s=0.0))).because[0]
    found = diagnose(publisher(), flow(replay=replay(state="needs_replay")))
    assert found.next_step == "wormholectl replay --resume r1, or wormholectl flows accept-loss cache/db1"


def test_the_slowest_table_is_named_whatever_the_stage() -> None:
    slow = report(slowest_table="shop.orders", slowest_s=2.5)
    found = diagnose(publisher(), flow(handler=slow, paused=PAUSED))
    assert (found.stage, found.slowest_table, found.slowest_s) == (LagStage.CONTROL, "shop.orders", 2.5)
    assert diagnose(publisher(), flow()).slowest_table == ""


def test_the_figures_stand_beside() -> None:
    found = diagnose(publisher(log_bytes_per_s=2.0 * MIB), flow())
    assert found.because == ("caravan 2 reads 9.0 MiB/s", "the log grows 2.0 MiB/s", "40.0 MiB are left")
    busy = diagnose(publisher(), flow(handler=report(queued_bytes=MIB, updates=10, busy_s=0.5, failures=3)))
    assert busy.because[1:] == ("50.0 ms per update in callbacks", "3 attempts failed")


def relayed(**fields: Any) -> admin_pb2.RelayStatus:
    usual: dict[str, Any] = {"mode": "hold", "bytes": 5, "budget_bytes": 9}
    return admin_pb2.RelayStatus(**usual | fields)


def test_who_reads_the_relay_is_told_and_what_is_wrong_with_it() -> None:
    well = diagnose(publisher(relay=relayed()), flow(reads_relay=True))
    assert well.because[-1] == "it reads from the relay, not from the datastore"
    assert diagnose(publisher(relay=relayed()), flow()).because == diagnose(publisher(), flow()).because
    full = admin_pb2.Problem(text="the relay is full", hint="raise relay_budget")
    held = diagnose(publisher(relay=relayed(problem=full, keeps_slot=True)), flow())
    assert held.because[-1] == "the relay does not record, and the datastore keeps its log meanwhile: the relay is full"
    loses = diagnose(publisher(relay=relayed(problem=full)), flow())
    assert "cannot keep within slot_budget is lost soon" in loses.because[-1]
    cached = diagnose(publisher(relay=relayed(mode="cache", problem=full)), flow())
    assert cached.because[-1] == "the relay does not record: the relay is full"
    assert diagnose(publisher(relay=relayed(problem=full)), flow(lag_transactions=0, in_flight=0)).because == ()
    silent = diagnose(publisher(relay=relayed(), caravans=[caravan(bytes_per_s=0.0)]), flow(reads_relay=True))
    assert silent.what == "nothing arrives from the relay"
    assert "wormholectl relay verify" in silent.next_step


_seconds = st.floats(0, 1e6)
_count = st.integers(0, 1 << 40)
_text = st.sampled_from(["", "a", "c1", "1/2/3:0"])
_reports = st.builds(
    admin_pb2.HandlerReport,
    updates=_count,
    busy_s=_seconds,
    slowest_table=_text,
    slowest_s=_seconds,
    queued_bytes=_count,
    running_update=_text,
    running_s=_seconds,
)
_flows = st.builds(
    admin_pb2.FlowStatus,
    flow=st.just("cache/db1"),
    state=st.sampled_from(["unassigned", "opening", "live", "catching_up", "held", "releasing"]),
    subscriber=_text,
    place=st.builds(at, _count),
    credit=_count,
    in_flight=_count,
    lag_s=_seconds,
    lag_transactions=st.none() | _count,
    lag_bytes=st.none() | _count,
    caravan=st.integers(0, 3),
    cause=_text,
    paused=_text,
    halted_at=_text,
    loss_pending=st.booleans(),
    handler=st.none() | _reports,
    credit_waited_s=_seconds,
    progress_s=_seconds,
)
_publishers = st.builds(
    publisher,
    log_end=st.none() | st.builds(at, _count),
    coordination=st.sampled_from(["connected", "suspended", "lost"]),
    stuck_s=st.none() | _seconds,
    log_bytes_per_s=st.none() | _seconds,
    caravans=st.lists(
        st.builds(
            caravan,
            number=st.integers(1, 3),
            place=st.builds(at, _count),
            bytes_per_s=_seconds,
            target_bytes_per_s=_seconds,
            buffered_bytes=_count,
        ),
        max_size=3,
    ),
    subscribers=st.lists(st.builds(subscriber, subscriber=_text, state=st.sampled_from(["connected", "unreachable"]))),
)


@given(_publishers, _flows)
def test_for_every_status_there_is_one_answer_with_a_next_step(
    status: admin_pb2.PublisherStatus, one: admin_pb2.FlowStatus
) -> None:
    found = diagnose(status, one)
    assert isinstance(found, Diagnosis)
    assert found.what
    assert bool(found.next_step) == (found.stage is not LagStage.NONE)
    # Who was stopped by a person, or by a missing log, is not explained by speeds.
    if one.paused:
        assert found.stage is LagStage.CONTROL
    elif one.loss_pending:
        assert found.stage is LagStage.LOG
    elif one.halted_at:
        assert found.stage is LagStage.HANDLER
    elif not status.HasField("stuck_s") and not one.in_flight:
        # Nothing is on its way to the subscriber, so neither its callbacks nor its credit can be what is waited for.
        assert found.stage not in {LagStage.HANDLER, LagStage.CREDIT}


def test_a_held_flows_next_step_is_that_of_its_cause() -> None:
    told = admin_pb2.Problem(text="another publisher has it", hint="stop one of the two")
    found = diagnose(publisher(), flow(state="held", problem=told))
    assert found.what == "another publisher has it"
    assert found.next_step.startswith("stop one of the two; if it is still held then: wormholectl flows resume")
    assert diagnose(publisher(), flow(state="held", cause="")).next_step.startswith("correct that, then wormholectl")


def test_rows_of_a_backfill_on_their_way_are_no_backlog() -> None:
    told = flow(lag_s=0, lag_transactions=0, lag_bytes=0)
    assert diagnose(publisher(), told).stage is not LagStage.NONE
    told.backfill.state = "running"
    assert diagnose(publisher(), told) == Diagnosis(LagStage.NONE, "it is not behind", ())
    told.lag_transactions = 1
    assert diagnose(publisher(), told).stage is not LagStage.NONE


def test_a_backfill_and_why_it_waits_stand_below(capsys: pytest.CaptureFixture[str]) -> None:
    told = flow(lag_s=0, lag_transactions=0, lag_bytes=0)
    told.backfill.MergeFrom(admin_pb2.BackfillStatus(state="waiting", rows=7))
    told.backfill.waits.text, told.backfill.waits.hint = "it is not with the lead", "wait until it has caught up"
    of_publisher = publisher()
    show_diagnosis(of_publisher, told, diagnose(of_publisher, told), as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "it is not behind",
        "backfill waiting, 7 rows sent: it is not with the lead",
        "  next: wait until it has caught up",
    ]


# --- verdict ---


UNSEEN_WHY = (
    "shop/main/db1: the server is away [source-unavailable]. Next: see the publisher's log; `wormholectl doctor URL` "
    "examines the datastore"
)
# Its flow is at the end of the log that was seen, and the log may have grown since.
UNSEEN = Answer(
    "h:1",
    admin_pb2.PublisherStatus(
        dataset="shop",
        copy="main",
        log="db1",
        flows=[admin_pb2.FlowStatus(flow="cache/a", state="live")],
        end_unknown="the server is away",
    ),
)
# Its datamarker has no commit time, and nothing was read after it.
AGELESS = Answer(
    "h:1",
    admin_pb2.PublisherStatus(flows=[admin_pb2.FlowStatus(flow="cache/a", state="unassigned", lag_bytes=310)]),
)
AGELESS_WHY = (
    "cache/a (unassigned) is - / 310 B / - behind: the datamarker has no commit time and nothing was read after it"
)
SILENT = Answer("h:9", None, "the publisher at h:9 does not answer: unavailable")


def flows(**lags: float) -> Answer:
    told = [admin_pb2.FlowStatus(flow=f"cache/{name}", lag_s=lag, state="live") for name, lag in lags.items()]
    other = admin_pb2.FlowStatus(flow="mail/db1", lag_s=1e6, state="held")
    return Answer("h:1", admin_pb2.PublisherStatus(flows=[*told, other]))


@pytest.mark.parametrize(
    ("answers", "code", "line"),
    [
        ([flows(a=1, b=2)], 0, "OK cache: 2 flows, at most 2.0s / - / - behind (limit 30s)"),
        ([flows(a=30)], 0, "OK cache: 1 flow, at most 30s / - / - behind (limit 30s)"),
        ([flows(a=30.1)], 1, "LATE cache: cache/a (live) is 30s / - / - behind (limit 30s)"),
        (
            [flows(a=1, b=90, c=40)],
            1,
            "LATE cache: 2 of 3 flows late, cache/b (live) is 1m 30s / - / - behind (limit 30s)",
        ),
        (
            [flows(a=90), SILENT],
            1,
            f"LATE cache: cache/a (live) is 1m 30s / - / - behind (limit 30s); {SILENT.problem}",
        ),
        (
            [flows(a=1), SILENT],
            3,
            f"UNREACHABLE cache: 1 flow, at least 1.0s / - / - behind (limit 30s); {SILENT.problem}",
        ),
        (
            [UNSEEN],
            3,
            f"UNREACHABLE cache: 1 flow, at least 0.0s / - / - behind (limit 30s); {UNSEEN_WHY}",
        ),
        (
            [AGELESS],
            3,
            f"UNREACHABLE cache: 1 flow, - / 310 B / - behind (limit 30s); {AGELESS_WHY}",
        ),
        ([flows(), SILENT], 3, f"UNREACHABLE cache: {SILENT.problem}"),
    ],
)
def test_one_line_and_an_exit_code(answers: list[Answer], code: int, line: str) -> None:
    verdict = judge("cache", 30.0, answers)
    assert (verdict.exit_code, verdict.line()) == (code, line)


def test_the_lag_behind_a_drained_host_is_not_known_and_only_of_its_applications() -> None:
    drained = Drained("db-7", "ann", ("shop/main/db2",), frozenset({"cache"}))
    away = Answer("", None, str(drained), drained=drained)
    verdict = judge("cache", 30.0, [flows(a=1), away])
    assert (verdict.exit_code, verdict.line().endswith(f"; {drained}")) == (3, True)
    assert judge("mail", 1e9, [flows(a=1), away]).exit_code == 0
    assert judge("cache", 30.0, [away]).line() == f"UNREACHABLE cache: {drained}"
    with pytest.raises(UsageError, match="did you mean cache"):
        judge("cahce", 30.0, [flows(a=1), away])


def test_nobody_is_reached() -> None:
    code, out, err = run("lag", "cache", "-p", "127.0.0.1:1")
    assert out.startswith("UNREACHABLE cache: the publisher at 127.0.0.1:1 does not answer")
    assert (code, out.count("\n"), err) == (3, 1, "")


def test_for_programs(admin: FakeAdmin) -> None:
    code, out, _ = run("lag", "cache", "-p", "h:7", "--json")
    assert code == 1
    assert json.loads(out) == {
        "schema": 1,
        "application": "cache",
        "max_s": 30.0,
        "verdict": "late",
        "lag_s": 75.0,
        "flows": [
            {
                "flow": "cache/db1",
                "lag_s": 75.0,
                "lag_unknown": None,
                "lag_bytes": 20,
                "lag_transactions": 1500,
                "state": "live",
                "condition": {"state": "ok", "code": None, "cause": None, "next_step": None},
            }
        ],
        "unreachable": [],
    }


# --- commands ---


def slow(admin: FakeAdmin) -> None:
    status = admin.status
    report = admin_pb2.HandlerReport(queued_bytes=1 << 20, slowest_table="shop.orders", slowest_s=2.5)
    status.flows[0].handler.CopyFrom(report)


def test_for_people(admin: FakeAdmin) -> None:
    slow(admin)
    first, stage, *figures, slowest, step = run("why-lag", "cache/db1", "-p", "h:7")[1].splitlines()
    assert first == "cache/db1  1m 15s / 20 B / 1,500 tx behind"
    assert stage == "handler: its callbacks take longer than updates arrive"
    assert figures == ["  1.0 MiB wait at the subscriber for a callback"]
    assert slowest == "  slowest callback lately: shop.orders, 2.5s"
    assert step.startswith("  next: make the handler faster")


def test_lag_for_programs(admin: FakeAdmin) -> None:
    slow(admin)
    told = json.loads(run("why-lag", "cache/db1", "-p", "h:7", "--json")[1])
    assert (told["publisher"], told["flow"], told["stage"]) == ("shop/main/db1", "cache/db1", "handler")
    assert (told["slowest_table"], told["slowest_s"], told["lag_s"]) == ("shop.orders", 2.5, 75.0)
    code, out, _ = run("why-lag", "mail/db1", "-p", "h:7", "--json")
    assert (code, json.loads(out)["stage"], json.loads(out)["slowest_s"]) == (0, "control", None)
