"""What a server can do for a log; over real ones: ``tests/integration/test_postgres_histories.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from datastores.postgres import standing as module
from datastores.postgres.datastore import DATASTORE
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.server.connection import ServerError
from datastores.postgres.server.state import ServerState, Slot
from wormhole.model.errors import SourceUnavailable, UnsupportedLog
from wormhole.ports.datastore import Login, Standing

SLOTS = {name: Slot(name, "pgoutput", "shop", False, 0, 90, 100, "reserved", None) for name in ("s_held", "s_lead")}
STATE = ServerState("7", 3, 0x500, 0x500, 150000, "logical", 0, 60.0, True, SLOTS)


class Server:
    """A server in this state. A standby: ``gets_slots``: sync_replication_slots, hot_standby_feedback and
    primary_slot_name; ``synced``: its slots, and whether they would go with its promotion."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = STATE
        self.standby = False
        self.gets_slots = ("on", "on", "standby")
        self.synced: list[tuple[str | None, ...]] = [("s_held", "f"), ("s_lead", "f")]
        self.fails: Exception | None = None
        self.timelines = Timelines(3, ((1, 0x100), (2, 0x200)))
        self.is_open = True
        self.opened = self.closed = 0
        monkeypatch.setattr(module, "connect", self._connect)
        monkeypatch.setattr(module, "read_state", self._read_state)
        monkeypatch.setattr(module, "read_timelines", lambda *_: self.timelines)

    @property
    def version(self) -> int:
        return self.state.version

    def _connect(self, _: object) -> Server:
        self.opened += 1
        return self

    def _read_state(self, _: object, publication: str, slots: Mapping[str, str]) -> ServerState:
        if self.fails is not None:
            raise self.fails
        assert (publication, set(slots)) == ("p", {"s_held", "s_lead"})
        return self.state

    def query(self, statement: str, **_: Any) -> list[tuple[str | None, ...]]:
        if "sync_replication_slots" in statement:
            return [self.gets_slots]
        if "pg_publication" in statement:
            return [("1",)] if self.state.publication else []
        if "synced" in statement:
            return self.synced
        return [("t" if self.standby else "f", "7")]

    def close(self) -> None:
        self.closed += 1

    def standing(self, *delivered: str) -> Standing:
        url = "postgres://w@127.0.0.1/shop?slot=s&publication=p"
        try:
            return DATASTORE.standing(url, Login(prompt=lambda _: "x"), delivered, failover=True)
        finally:
            assert self.opened == self.closed


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_a_server_as_it_should_be(server: Server) -> None:
    assert server.standing() == Standing("7")
    assert server.standing("3:0/500", "2:0/200", "1:0/FF", "0/500") == Standing("7")


@pytest.mark.parametrize("lacking", ["3:0/501", "2:0/201", "1:0/180", "4:0/1", "0/501", "0-1-5"])
def test_what_was_delivered_and_is_not_there(server: Server, lacking: str) -> None:
    assert server.standing("3:0/500", lacking) == Standing("7", lacking=lacking)


def test_a_long_list_is_shortened(server: Server) -> None:
    lacking = server.standing(*(f"4:0/{number:X}" for number in range(100))).lacking
    assert len(lacking) == 300
    assert lacking.startswith("4:0/0, 4:0/1, ")
    assert lacking.endswith("...")


@pytest.mark.parametrize(
    ("version", "hint"), [(160000, "gives a standby no logical slots"), (170000, "SELECT pg_promote();")]
)
def test_a_standby_waits_for_its_promotion(server: Server, version: int, hint: str) -> None:
    server.standby, server.state = True, replace(STATE, version=version)
    found = server.standing("9:0/1")
    assert (found.server, found.ready, found.lacking, found.promotable) == ("7", False, "", True)
    assert found.problem.text == "it is a standby; it can serve once it is promoted"
    assert hint in found.problem.hint


@pytest.mark.parametrize(
    ("changes", "text", "hint"),
    [
        (
            {"gets_slots": ("off", "on", "standby")},
            "(sync_replication_slots = off)",
            "ALTER SYSTEM SET sync_replication_slots = on;",
        ),
        (
            {"gets_slots": ("on", "off", "")},
            "(hot_standby_feedback = off, primary_slot_name is empty)",
            "SET hot_standby_feedback = on;\nALTER SYSTEM SET primary_slot_name = 'NAME';",
        ),
        ({"synced": [("s_lead", "f")]}, "has not got the slots s_held of its primary", "dbname"),
        ({"synced": []}, "has not got the slots s_held, s_lead of its primary", "failover => true"),
        ({"synced": [("s_held", "t"), ("s_lead", "f")]}, "the slots s_held would be gone", "wormholectl flows"),
        ({"state": replace(STATE, version=170000, publication=False)}, "has no publication p", "on the primary"),
    ],
)
def test_a_standby_that_could_not_serve_if_it_were_promoted_says_so(
    server: Server, changes: dict[str, Any], text: str, hint: str
) -> None:
    server.standby, server.state = True, replace(STATE, version=170000)
    for name, value in changes.items():
        setattr(server, name, value)
    found = server.standing("9:0/1")
    assert (found.server, found.ready, found.lacking, found.promotable) == ("7", False, "", False)
    assert text in found.problem.text
    assert "can serve once it is promoted" not in found.problem.text
    assert hint in found.problem.hint


@pytest.mark.parametrize(
    ("changes", "text", "hint"),
    [
        ({"publication": False}, "has no publication p", "wormholectl objects create"),
        ({"slots": {"s_held": SLOTS["s_held"]}}, "has no replication slot s_lead", "pg_copy_logical_replication_slot"),
        ({"wal_level": "replica"}, "wal_level is replica", "wal_level = logical"),
    ],
)
def test_a_server_that_was_not_prepared(server: Server, changes: dict[str, Any], text: str, hint: str) -> None:
    server.state = replace(STATE, **changes)
    found = server.standing("4:0/1")
    assert (found.server, found.ready) == ("7", False)
    assert text in found.problem.text
    assert hint in found.problem.hint


def test_what_a_server_refuses_is_why_it_is_not_ready(server: Server) -> None:
    for error in (ServerError("permission denied", sqlstate="42501"), UnsupportedLog("version 12")):
        server.fails = error
        assert server.standing() == Standing("7", ready=False, problem=error.problem)


def test_a_server_that_does_not_answer_is_an_error(server: Server) -> None:
    server.fails, server.is_open = SourceUnavailable("gone"), False
    with pytest.raises(SourceUnavailable, match="gone"):
        server.standing()
