"""What commands and the status page show of a publisher of the release before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.web.snapshot import snapshot
from tests.support import command_line
from tests.support.fake_admin import FakeAdmin
from wormhole.admin.admin_service import Answer
from wormhole.wire.v1 import admin_pb2

STATES = {
    "cache/db1": "live",
    "mail/db1": "held",
    "states/db1.h0": "unassigned",
    "states/db1.h1": "paused",
    "states/db1.h2": "opening",
    "states/db1.h3": "live",
    "states/db1.h4": "catching_up",
    "states/db1.h5": "held",
    "states/db1.h6": "releasing",
    "states/db1.h7": "replaying",
    "states/db1.h8": "needs_replay",
}


@pytest.fixture
def status(before: Path) -> admin_pb2.PublisherStatus:
    return admin_pb2.PublisherStatus.FromString((before / "status.binpb").read_bytes())


@pytest.fixture
def asked(status: admin_pb2.PublisherStatus, monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    return FakeAdmin(answers=[Answer("h:7", status)]).install(monkeypatch)


def run(*arguments: str) -> str:
    code, out, err = command_line.run(*arguments, "--publisher", "h:7")
    assert code == 0, err
    assert "the log lacks row images" in err
    assert "set binlog_row_image = FULL" in err
    return out


@pytest.mark.usefixtures("asked")
def test_flows_with_states_and_causes() -> None:
    found = {flow["flow"]: flow for flow in json.loads(run("flows", "--json"))["flows"]}
    assert {name: flow["state"] for name, flow in found.items()} == STATES
    assert (found["cache/db1"]["lag_s"], found["cache/db1"]["epoch"], found["states/db1.h7"]["epoch"]) == (75.0, 3, 7)
    assert found["mail/db1"]["cause"] == "the log is purged"
    assert "its handler gave up: ValueError('ü')" in found["states/db1.h5"]["cause"]
    table = run("flows")
    assert all(name in table for name in STATES)
    assert "`wormholectl flows resume`" in table


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("publishers", ["shop/main/db1", "db-host", "connected"]),
        ("caravans", ["1/2/30", "cache/db1"]),
        ("subscribers", ["c1", "h:1", "it sends nothing"]),
        ("markers", ["1/2/10"]),
    ],
)
def test_the_other_lists(command: str, shown: list[str]) -> None:
    table = run(command)
    assert [text for text in shown if text not in table] == []


def test_the_status_page(status: admin_pb2.PublisherStatus) -> None:
    key = LogKey("shop", "main", "db1")
    state = HostState("host1", 0.0)
    state.publishers[key] = PublisherState(key, Phase.RUNNING, 77, status=status, answered=1.0)
    shown = json.dumps(snapshot(state, 2.0), ensure_ascii=False)
    assert [name for name in STATES if name not in shown] == []
    assert "its handler gave up: ValueError('ü')" in shown
    assert "the log lacks row images" in shown
