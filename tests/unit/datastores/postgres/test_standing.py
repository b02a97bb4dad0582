"""What a server can do for a log, and what a running publisher notices of tables."""

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
from datastores.postgres.table_watch import TableWatch
from datastores.postgres.tables.identities import Refusal, TableIdentity
from wormhole.model.errors import SourceUnavailable, UnsupportedLog
from wormhole.ports.datastore import Login, Standing

# --- standing ---


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


# --- table watch ---


USERS = TableIdentity("public", "users", "d", 1, 10, published=True, readable=True)
LEFT_OUT = replace(USERS, name="old", published=False)


def test_a_new_table_is_offered_once_and_what_was_left_out_is_not() -> None:
    watch = TableWatch("p")
    assert not watch.observe([USERS, LEFT_OUT])
    created = [USERS, LEFT_OUT, replace(LEFT_OUT, name="new"), replace(LEFT_OUT, name="k", would_refuse=Refusal.NO_KEY)]
    assert watch.observe(created).hint.splitlines()[1:] == ['ALTER PUBLICATION "p" ADD TABLE "public"."new";']
    assert not watch.observe(created)
    assert not watch.problem


def test_a_table_whose_writes_are_refused_since_now_is_a_problem_until_it_is_repaired() -> None:
    watch = TableWatch("p")
    watch.observe([replace(USERS, refusal=Refusal.NO_KEY)])
    assert watch.problem.hint.splitlines()[1:] == ['ALTER TABLE "public"."users" REPLICA IDENTITY FULL;']
    watch.observe([USERS])
    assert not watch.problem


def test_each_refused_table_has_its_own_reason_and_statement() -> None:
    watch = TableWatch("p")
    refused = {"a": Refusal.NO_KEY, "b": Refusal.COLUMN_LIST, "c": Refusal.NO_KEY, "d": Refusal.COLUMN_LIST}
    watch.observe([replace(USERS, name=name, refusal=reason) for name, reason in refused.items()])
    assert watch.problem.text.split("; ") == [
        f"the server refuses every UPDATE and DELETE of {names}: {reason.value}"
        for names, reason in (("public.a, public.c", Refusal.NO_KEY), ("public.b, public.d", Refusal.COLUMN_LIST))
    ]
    assert [line for line in watch.problem.hint.splitlines() if line.startswith("ALTER ")] == [
        'ALTER TABLE "public"."a" REPLICA IDENTITY FULL;',
        'ALTER TABLE "public"."c" REPLICA IDENTITY FULL;',
        'ALTER PUBLICATION "p" DROP TABLE "public"."b", "public"."d";',
        'ALTER PUBLICATION "p" ADD TABLE "public"."b", "public"."d";',
    ]
