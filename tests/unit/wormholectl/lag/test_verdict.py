from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.admin.admin_service import Answer
from wormhole.admin.discovery import Drained
from wormhole.model.errors import UsageError
from wormhole.wire.v1 import admin_pb2
from wormholectl.lag.verdict import judge

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
