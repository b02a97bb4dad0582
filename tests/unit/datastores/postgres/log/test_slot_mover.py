"""Who moves the slots, and what is told when nobody can: beside a server that is played."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from datastores.postgres.log.slot_mover import SlotMover
from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.server.state import ServerState, Slot
from wormhole.model.errors import SourceUnavailable

SLOTS = {name: Slot(name, "pgoutput", "shop", False, 0, 90, 100, "reserved", None) for name in ("s_held", "s_lead")}
PRESENT = ServerState("7", 18, 500, 500, 150000, "logical", 0, 60.0, True, SLOTS, started="99")


class Played:
    """``ours``: whether the lock can be had; ``refused``: what a slot's move raises; ``identity``: of the server;
    ``frees``: whether the lock can be had once the sessions ended that have it."""

    version = 150000

    def __init__(self) -> None:
        self.ours = True
        self.refused: ServerError | None = None
        self.identity = [("7", "00000012", "99")]
        self.moved: list[str] = []
        self.ended: list[str] = []
        self.frees = True
        self.is_open = True
        self.cancelled = 0
        self.awaited: list[tuple[str | None, ...]] = []

    def query(self, statement: str, **_: Any) -> list[tuple[str | None, ...]]:
        if "pg_try_advisory_lock" in statement:
            return [("t" if self.ours else "f",)]
        if "system_identifier" in statement:
            return list(self.identity)
        if "synchronized_standby_slots" in statement:
            assert self.version >= 170000
            return self.awaited
        if "pg_locks" in statement:
            return [("17", "10.0.0.9"), ("18", None)]
        if self.refused is not None:
            raise self.refused
        if "pg_terminate_backend" in statement:
            self.ended.append(statement)
            self.ours = self.frees
            return [("t",)]
        self.moved.append(statement)
        return []

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def server() -> Played:
    return Played()


@pytest.fixture
def mover(server: Played) -> SlotMover:
    return SlotMover("s", lambda: cast("Connection", server))


def test_slots_move_forward_only(server: Played, mover: SlotMover) -> None:
    mover.move({"s_held": 100, "s_lead": 255, "s_gone": 300}, PRESENT)
    assert server.moved == ["SELECT pg_replication_slot_advance('s_lead', '0/FF')"]
    assert not mover.problem


def _synced(server: Played) -> ServerState:
    """The state of a server of version 17 whose slots are copied to standbys."""
    server.version = 170000
    return replace(PRESENT, slots={name: replace(slot, failover=True) for name, slot in SLOTS.items()})


def test_slots_wait_for_standbys_without_being_waited_for(server: Played, mover: SlotMover) -> None:
    """The server would hold the move up for as long as a standby is away."""
    present = _synced(server)
    server.awaited = [("near", "t", "t", "0/FF"), ("far", "t", "t", "0/80")]
    mover.move({"s_held": 120, "s_lead": 255}, present)
    assert server.moved == [
        "SELECT pg_replication_slot_advance('s_held', '0/78')",
        "SELECT pg_replication_slot_advance('s_lead', '0/80')",
    ]
    assert not mover.problem, "they come after by themselves"


@pytest.mark.parametrize(
    ("standby", "says"),
    [
        (("gone", "f", "f", None), "names gone, which the server does not have"),
        (("away", "t", "f", "0/50"), "names away, which no standby reads"),
    ],
)
def test_a_standby_that_holds_the_slots_up_is_named(
    server: Played, mover: SlotMover, standby: tuple[str | None, ...], says: str
) -> None:
    present = _synced(server)
    server.awaited = [("here", "t", "t", "0/FF"), standby]
    mover.move({"s_held": 200, "s_lead": 255}, present)
    assert not server.moved
    assert says in mover.problem.text
    assert "ALTER SYSTEM SET synchronized_standby_slots = '';" in mover.problem.hint
    server.awaited = [("here", "t", "t", "0/FF"), ("away", "t", "f", "0/FF")]
    mover.move({"s_held": 200, "s_lead": 255}, present)
    assert len(server.moved) == 2
    assert not mover.problem, "it has everything, and nothing waits"


def test_another_publisher_is_named_and_its_slots_are_left_alone(server: Played, mover: SlotMover) -> None:
    server.ours = False
    mover.move({"s_held": 200}, PRESENT)
    assert not server.moved
    assert "process 17 of the server, from 10.0.0.9, process 18 of the server, from its own host" in mover.problem.text
    server.ours = True
    mover.move({"s_held": 200}, PRESENT)
    assert len(server.moved) == 1
    assert not mover.problem


@pytest.mark.parametrize(
    ("version", "statement"),
    [(150000, "SELECT pg_terminate_backend({}, 5000)"), (130000, "SELECT pg_terminate_backend({})")],
)
def test_who_owns_the_log_ends_what_moved_the_slots_before(
    server: Played, caplog: pytest.LogCaptureFixture, version: int, statement: str
) -> None:
    mover = SlotMover("s", lambda: cast("Connection", server), evicts=lambda: True)
    server.ours, server.version = False, version
    mover.move({"s_held": 200}, PRESENT)
    assert server.ended == [statement.format(17), statement.format(18)]
    assert len(server.moved) == 1
    assert not mover.problem
    assert "(process 17 of the server, from 10.0.0.9, process 18 of the server, from its own host)" in caplog.text


def test_a_session_that_does_not_end_is_a_problem_and_is_tried_again(server: Played) -> None:
    mover = SlotMover("s", lambda: cast("Connection", server), evicts=lambda: True)
    server.ours = server.frees = False
    mover.move({"s_held": 200}, PRESENT)
    assert not server.moved
    assert "another publisher moves" in mover.problem.text
    server.frees = True
    mover.move({"s_held": 200}, PRESENT)
    assert len(server.moved) == 1
    assert not mover.problem


def test_who_may_not_end_a_session_says_so(server: Played) -> None:
    mover = SlotMover("s", lambda: cast("Connection", server), evicts=lambda: True)
    server.ours, server.refused = False, ServerError("permission denied", sqlstate="42501", hint="grant it")
    mover.move({"s_held": 200}, PRESENT)
    assert mover.problem.text == "the replication slots cannot be moved on: permission denied"


def test_who_does_not_own_the_log_ends_nothing(server: Played) -> None:
    owns = [False]
    mover = SlotMover("s", lambda: cast("Connection", server), evicts=lambda: owns[0])
    server.ours = False
    mover.move({"s_held": 200}, PRESENT)
    assert not server.ended
    assert mover.problem
    owns[0] = True
    mover.move({"s_held": 200}, PRESENT)
    assert len(server.moved) == 1


@pytest.mark.parametrize("found", [("8", "00000012", "99"), ("7", "00000013", "99"), ("7", "00000012", "98")])
def test_slots_of_another_server_stay_where_they_are(
    server: Played, mover: SlotMover, found: tuple[str, str, str]
) -> None:
    """The address leads to another server now than when the session was opened, or the other way round."""
    server.identity = [found]
    mover.move({"s_held": 200}, PRESENT)
    assert not server.moved
    assert "is on another server" in mover.problem.text
    assert "timeline 18 of system 7" in mover.problem.text
    assert not server.is_open, "the next move is over a new session"
    server.identity, server.is_open = [("7", "00000012", "99")], True
    mover.move({"s_held": 200}, PRESENT)
    assert len(server.moved) == 1
    assert not mover.problem


def test_a_slot_that_is_read_stays_and_the_other_one_moves(server: Played, mover: SlotMover) -> None:
    server.refused = ServerError("in use", sqlstate="55006", hint="")
    mover.move({"s_held": 200}, PRESENT)
    assert "s_held cannot be moved on" in mover.problem.text
    server.refused = None
    mover.move({"s_held": 200}, PRESENT)
    assert not mover.problem


def test_a_refusal_is_told_once(server: Played, mover: SlotMover, caplog: pytest.LogCaptureFixture) -> None:
    server.refused = ServerError("no permission", sqlstate="42501", hint="grant it")
    for _ in range(3):
        mover.move({"s_held": 200}, PRESENT)
    assert (mover.problem.text, mover.problem.hint) == (
        "the replication slots cannot be moved on: no permission",
        "grant it",
    )
    assert len(caplog.records) == 1


def test_the_lock_goes_with_the_session(server: Played, mover: SlotMover) -> None:
    mover.cancel()
    mover.move({}, PRESENT)
    mover.cancel()
    assert server.cancelled == 1
    mover.close()
    server.ours, server.is_open = False, True
    mover.move({"s_held": 200}, PRESENT)
    assert mover.problem


def test_a_server_that_is_away_is_a_problem() -> None:
    def away() -> Connection:
        raise SourceUnavailable("nobody there", hint="look")

    mover = SlotMover("s", away)
    mover.move({"s_held": 200}, PRESENT)
    assert mover.problem.hint == "look"


def test_a_strange_answer_is_a_problem_and_no_crash(
    server: Played, mover: SlotMover, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ours = False
    asked = server.query
    monkeypatch.setattr(server, "query", lambda sql, **_: [("17",)] if "pg_locks" in sql else asked(sql))
    mover.move({"s_held": 200}, PRESENT)
    assert "not those of a PostgreSQL server (not enough values" in mover.problem.text
    monkeypatch.undo()
    server.ours = True
    mover.move({"s_held": 200}, PRESENT)
    assert not mover.problem
