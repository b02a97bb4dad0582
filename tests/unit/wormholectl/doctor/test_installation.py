from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.coordination.port import CandidateInfo, HostRequest, LogGroup, LogOwners, MonitorInfo, PublisherInfo
from wormhole.wire.v1 import admin_pb2
from wormholectl.doctor.installation import ClockReading, Contended, DiskRoom, Survey, judge
from wormholectl.hosts.status import Host

GIB = 1 << 30


def well() -> admin_pb2.PublisherStatus:
    one = status("db1")
    del one.flows[1]
    return one


def monitor(phase: str = "running") -> MonitorInfo:
    return MonitorInfo("alpha", 7, "http://127.0.0.1:7480/", 0.0, {"shop/main/db1": phase})


IN_USE = admin_pb2.Problem(text="an id is in use", hint="server_ids")
GOOD = Survey(
    "shop.toml",
    "0.1.0",
    answers=(Answer("h:7", well()),),
    hosts=(Host("alpha", monitor(), HostRequest(), ("shop/main/db1",)),),
    logs=("shop/main/db1",),
    disks=(DiskRoom("/state", 50 * GIB, 100 * GIB),),
    clocks=(ClockReading("db-host", 0.0),),
)


def found(seen: Survey) -> list[tuple[str, str, str]]:
    return [(one.check, one.severity.value, one.what) for one in judge(seen).findings if one.severity.value != "ok"]


def with_publisher(**fields: object) -> Survey:
    one = well()
    one.MergeFrom(admin_pb2.PublisherStatus(**fields))  # type: ignore[arg-type]
    return replace(GOOD, answers=(Answer("h:7", one),))


def with_flow(**fields: object) -> Survey:
    one = well()
    one.flows[0].MergeFrom(admin_pb2.FlowStatus(**fields))  # type: ignore[arg-type]
    return replace(GOOD, answers=(Answer("h:7", one),))


def without(field: str) -> Survey:
    one = well()
    one.ClearField(field)
    return replace(GOOD, answers=(Answer("h:7", one),))


DRAINED = replace(GOOD, hosts=(Host("alpha", None, HostRequest(True, "ann"), ("shop/main/db1", "shop/main/db2")),))


def test_where_all_is_well_every_check_says_so() -> None:
    report = judge(GOOD)
    assert found(GOOD) == []
    assert [one.check for one in report.findings] == [
        *("coordinator", "monitors", "publishers", "flows", "versions", "clock", "disk")
    ]
    assert report.facts == {"this command": "0.1.0", "publishers": "1", "flows": "1"}
    assert not GOOD.unreachable


@pytest.mark.parametrize(
    ("seen", "check", "severity", "says"),
    [
        (replace(GOOD, problem="no contact"), "coordinator", "problem", "no contact"),
        (
            replace(GOOD, hosts=(Host("alpha", None, HostRequest(), ("shop/main/db1",)),)),
            "monitors",
            "problem",
            "none runs on alpha",
        ),
        (DRAINED, "monitors", "warn", "drained by ann"),
        (
            replace(GOOD, hosts=(Host("alpha", monitor("given_up"), HostRequest(), ()),)),
            "monitors",
            "problem",
            "cannot keep shop/main/db1 running: given up",
        ),
        (
            replace(GOOD, answers=(*GOOD.answers, Answer("h:9", None, "h:9 is silent"))),
            "publishers",
            "problem",
            "h:9 is silent",
        ),
        (
            replace(GOOD, logs=("shop/main/db1", "shop/main/db2")),
            "publishers",
            "problem",
            "shop/main/db2 is configured",
        ),
        (replace(GOOD, whole_sources=("shop/main/db1",)), "sources", "warn", "the whole source of shop/main/db1"),
        (with_publisher(coordination="lost"), "publishers", "problem", "ZooKeeper does not answer"),
        (with_publisher(stuck_s=90.0), "publishers", "problem", "nothing of it was read for 90 s"),
        (with_flow(state="held"), "flows", "problem", "held: cache/db1"),
        (with_publisher(warnings=[IN_USE], problems=["as text"]), "publishers", "warn", "db1: an id is in use"),
        (with_publisher(problems=["an id is in use. Next: server_ids"]), "publishers", "warn", "db1: an id is in use"),
        (with_flow(state="needs_replay"), "flows", "problem", "in need of a replay: cache/db1"),
        (with_flow(headroom_s=600.0), "flows", "problem", "little headroom: cache/db1"),
        (with_flow(dead_letters=2), "flows", "warn", "with dead letters: cache/db1"),
        (
            with_flow(problem=admin_pb2.Problem(text="rows of t changed", code="rows-not-logged")),
            "flows",
            "warn",
            "live: cache/db1: rows of t changed",
        ),
        (with_flow(state="held", paused="ann"), "flows", "warn", "paused: cache/db1"),
        (with_flow(state="unassigned"), "flows", "warn", "without a subscriber: cache/db1"),
        (replace(GOOD, version="0.2.0"), "versions", "warn", "publishers run 0.1.0, this command is 0.2.0"),
        (replace(GOOD, clocks=(ClockReading("db-host", -90.0),)), "clock", "warn", "1m 30s behind"),
        (replace(GOOD, clocks=(ClockReading("db-host", 2.5),)), "clock", "warn", "2.5s ahead"),
        (
            replace(GOOD, clocks=(ClockReading("db-host", None, "refused"),)),
            "clock",
            "warn",
            "could not be asked: refused",
        ),
        # After a ZooKeeper that lost its data the log is configured by the publisher's own file, applications are not.
        (without("flows"), "flows", "warn", "no flow is there: no application has a shard of this log yet"),
        (without("compiled"), "publishers", "warn", "shop/main/db1 runs interpreted"),
        (replace(DRAINED, logs=("shop/main/db1", "shop/main/db2")), "monitors", "warn", "drained by ann"),
        (replace(GOOD, disks=(DiskRoom("/state", GIB // 2, 100 * GIB),)), "disk", "warn", "512 MiB of 100 GiB"),
        (replace(GOOD, disks=(DiskRoom("/state", 1000, 100 * GIB),)), "disk", "problem", "free for /state"),
    ],
)
def test_each_thing_that_can_be_wrong(seen: Survey, check: str, severity: str, says: str) -> None:
    ((named, worst, what),) = found(seen)
    assert (named, worst) == (check, severity)
    assert says in what


def test_a_drained_host_whose_monitor_runs_is_reported_as_drained() -> None:
    drained = Host("alpha", monitor("drained"), HostRequest(True, "ann"), ("shop/main/db1",))
    (finding,) = [one for one in judge(replace(GOOD, answers=(), hosts=(drained,))).findings if one.check == "monitors"]
    assert finding.severity.value == "warn"
    assert "drained by ann" in finding.what
    assert "drain alpha --undo" in finding.next_step


def test_every_problem_has_a_next_step() -> None:
    broken = replace(
        with_flow(state="held", headroom_s=1.0),
        problem="away",
        hosts=(Host("b", None, HostRequest(), ("x/y/z",)),),
        logs=("x/y/z",),
    )
    problems = [one for one in judge(broken).findings if one.severity.value == "problem"]
    assert len(problems) >= 5
    assert all(one.next_step for one in problems)


def test_what_cannot_be_judged() -> None:
    silent = (Answer("h:9", None, "silent"),)
    assert replace(GOOD, answers=silent).unreachable
    assert replace(GOOD, problem="away").unreachable
    assert not replace(GOOD, answers=(*GOOD.answers, *silent)).unreachable


def test_a_record_that_cannot_be_read_is_a_problem_with_a_command() -> None:
    seen = replace(GOOD, damaged=("/wormhole/applications/app: no valid JSON",))
    [one] = [one for one in judge(seen).findings if one.severity.value == "problem"]
    assert (one.check, one.what) == ("coordinator", "/wormhole/applications/app: no valid JSON")
    assert "`wormholectl config apply FILE`" in one.next_step


@pytest.mark.parametrize(
    ("given", "what", "next_step"),
    [
        (
            {"problem": admin_pb2.Problem(text="another publisher, db1@h:7, has it", hint="stop one")},
            "another publisher, db1@h:7, has it",
            "stop one; if it is still held then: wormholectl flows resume cache/db1",
        ),
        (  # as an earlier release reports it
            {"cause": "another publisher has it. Next: stop one"},
            "another publisher has it. Next: stop one",
            "correct that, then wormholectl flows resume cache/db1",
        ),
    ],
)
def test_a_held_flow_comes_with_its_cause_and_a_next_step(given: dict[str, object], what: str, next_step: str) -> None:
    found = next(finding for finding in judge(with_flow(state="held", **given)).findings if finding.check == "flows")
    assert (found.what, found.next_step) == (f"held: cache/db1: {what}", next_step)


def test_the_line_that_subscribers_need_with_tls() -> None:
    one, other = well(), well()
    other.dataset = "users"
    seen = replace(
        GOOD,
        answers=(Answer("h:7", one), Answer("h:8", other), Answer("h:9", well())),
        certificates={"h:7": "db1-publisher", "h:9": "db2-publisher"},
    )
    assert found(seen) == []
    (line,) = [one for one in judge(seen).findings if one.check == "who may push"]
    assert line.what.startswith(
        'publishers=["db1-publisher", "db2-publisher"] (WORMHOLE_PUBLISHERS=db1-publisher,db2-publisher) is the line'
    )
    assert line.what.endswith("of the subscribers of shop")
    assert "applications: " in line.because


SHOP = LogGroup("shop", "@failover", "db1")
BETA = CandidateInfo("main", "beta", 2, "beta:7000", 1.0, 1)
GAMMA = CandidateInfo("west", "gamma", 3, "gamma:7000", 1.0, 2, lacking="U:5-9")
OWNER = PublisherInfo("shop", "main", "db1", "alpha", 1, "alpha:7000", 1.0)


def with_owners(owner: PublisherInfo | None, *candidates: CandidateInfo, answers: tuple[Answer, ...] = ()) -> Survey:
    logs = ("shop/main/db1", "shop/west/db1")
    one = Contended(SHOP, logs, ("main@alpha", "main@beta", "west@gamma"), LogOwners(owner, candidates, (), None))
    return replace(GOOD, logs=logs, contended=(one,), answers=answers or GOOD.answers)


def test_copies_that_take_turns_are_served_by_one_of_them() -> None:
    assert found(with_owners(OWNER, BETA, replace(GAMMA, lacking=""))) == []
    report = judge(with_owners(OWNER, BETA, replace(GAMMA, lacking="")))
    [well] = [one.what for one in report.findings if one.check == "standbys"]
    assert well == "main@alpha owns shop/@failover/db1; main@beta, west@gamma could take it over"


def test_a_standby_that_could_not_take_over_or_is_not_there_is_reported() -> None:
    assert found(with_owners(OWNER, GAMMA)) == [
        (
            "standbys",
            "warn",
            "west@gamma could not take shop/@failover/db1 over: it lacks U:5-9, which was delivered",
        ),
        ("standbys", "warn", "main@beta should stand by for shop/@failover/db1 and is not there"),
    ]
    drained = replace(
        with_owners(OWNER, replace(GAMMA, lacking="")), hosts=(Host("beta", None, HostRequest(True, "ann"), ()),)
    )
    assert [one for one in found(drained) if one[0] == "standbys"] == []


def test_an_owner_that_does_not_answer_is_waited_for_as_long_as_its_session_lasts() -> None:
    """Its monitor has started the publisher again, which stands by for its own former process."""
    again, silent = replace(BETA, host="alpha", rank=0), Answer("alpha:7000", None, "it does not answer")
    other = replace(GAMMA, lacking="")
    report = judge(with_owners(OWNER, again, BETA, other, answers=(silent,)))
    [step] = [one.next_step for one in report.findings if one.check == "publishers"]
    assert step == (
        "look at its host; if the process is gone or frozen, main@alpha or main@beta or west@gamma takes "
        "shop/@failover/db1 over when coordinator.session_timeout is over: ask again then"
    )
    [well] = [one.what for one in report.findings if one.check == "standbys" and one.severity.value == "ok"]
    assert well == "main@alpha owns shop/@failover/db1; main@beta, west@gamma could take it over"
    alone = judge(with_owners(OWNER, answers=(silent,)))
    assert "look at its host; its monitor starts it again" in [one.next_step for one in alone.findings]


def test_a_log_that_another_host_owns_is_read_although_a_publisher_was_given_up() -> None:
    hosts = (Host("beta", monitor("given_up"), HostRequest(), ("shop/main/db1",)),)
    seen = replace(with_owners(OWNER, BETA), hosts=hosts)
    [one] = [one for one in judge(seen).findings if one.check == "monitors"]
    assert one.because == "main@alpha owns the log, and fewer could take it over"
    [one] = [one for one in judge(replace(seen, contended=())).findings if one.check == "monitors"]
    assert one.because == "no publisher reads this log"


def test_a_log_that_nobody_owns_is_reported_once_with_who_stands_by() -> None:
    silent = (Answer("h:7", admin_pb2.PublisherStatus(dataset="audit", copy="main", log="x", compiled=["y"])),)
    seen = with_owners(None, GAMMA, answers=silent)
    [one] = [one for one in judge(seen).findings if one.check == "publishers" and one.severity.value == "problem"]
    assert one.what == "no publisher owns the log shop/@failover/db1"
    assert "west@gamma stands by: it lacks U:5-9" in one.because
    assert one.next_step == "let its replication catch up"
    seen = with_owners(None, GAMMA, replace(BETA, ready=False, waits="refused", hint="start it"), answers=silent)
    [one] = [one for one in judge(seen).findings if one.check == "publishers" and one.severity.value == "problem"]
    assert one.next_step == "west@gamma: let its replication catch up; main@beta: start it"
    nobody = with_owners(None, answers=silent)
    [one] = [one for one in judge(nobody).findings if one.check == "publishers" and one.severity.value == "problem"]
    assert one.what == "log shop/@failover/db1 is configured and no publisher serves it"


def test_a_log_is_missed_although_one_of_its_hosts_is_drained() -> None:
    hosts = (
        Host("a", None, HostRequest(True, "ann"), ("shop/main/x",)),
        Host("b", monitor(), HostRequest(), ("shop/main/x",)),
    )
    said = "log shop/main/x is configured and no publisher serves it"
    assert said in {what for _, _, what in found(replace(GOOD, hosts=hosts, logs=("shop/main/x",)))}
    assert said not in {what for _, _, what in found(replace(GOOD, hosts=hosts[:1], logs=("shop/main/x",)))}
