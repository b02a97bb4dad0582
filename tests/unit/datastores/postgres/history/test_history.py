"""Which transactions a snapshot may not show yet, and what proves that an idle log is the one that was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from datastores.postgres.history import delivered_transactions as module
from datastores.postgres.history import proof
from datastores.postgres.history.delivered_transactions import (
    DeliveredTransactions,
    ServerSnapshot,
    delivered_transactions,
)
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.state import AnotherServer, ServerState
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import LogPosition

# --- delivered transactions: which transactions a snapshot may not show yet, although the log has them ---


def at(offset: int, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, 0, offset)


class Server:
    """``unfinished``: ids that hold their lock; ``meanwhile`` happens while it is asked for them."""

    def __init__(self, *unfinished: int, snapshot: str = "1:1:") -> None:
        self.unfinished = unfinished
        self.snapshot = snapshot
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def query(self, statement: str) -> list[tuple[str]]:
        if "pg_locks" not in statement:
            return [(self.snapshot,)]
        self.asked += 1
        found = [(str(number),) for number in self.unfinished]
        self.meanwhile()
        return found

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)


def test_a_snapshot_shows_what_ended_before_it() -> None:
    snapshot = ServerSnapshot.parse("10:20:12,15")
    assert [number for number in range(5, 25) if not snapshot.shows(number)] == [12, 15, 20, 21, 22, 23, 24]
    assert ServerSnapshot.parse("10:10:").in_progress == frozenset()
    with pytest.raises(ValueError):
        ServerSnapshot.parse("10:20")


def test_the_lower_half_of_an_id_is_that_of_the_nearest() -> None:
    wrap = 1 << 32
    snapshot = ServerSnapshot.parse(f"{5 * wrap - 10}:{5 * wrap + 3}:{5 * wrap - 2},{5 * wrap + 1}")
    assert snapshot.whole(wrap - 2) == 5 * wrap - 2
    assert snapshot.whole(1) == 5 * wrap + 1
    shown = {number: snapshot.shows(number) for number in (wrap - 3, wrap - 2, 0, 1, 2, 3)}
    assert shown == {wrap - 3: True, wrap - 2: False, 0: True, 1: False, 2: True, 3: False}


def test_what_a_reader_delivered_is_suspected_up_to_the_place() -> None:
    delivered, server = DeliveredTransactions(), Server()
    delivered.begin(at(100))
    delivered.note(at(130), [7, 8], [120, 130])
    assert delivered.suspects(at(120), server.connection) == {7}
    assert delivered.suspects(at(130), server.connection) == {7, 8}
    assert delivered.suspects(at(110), server.connection) == set()
    assert server.asked == 1, "what was unfinished when the reader began is asked once"
    delivered.forget(ServerSnapshot.parse("5:9:8"))
    assert delivered.suspects(at(130), server.connection) == {8}


def test_what_was_unfinished_when_the_reader_began_may_be_before_every_place() -> None:
    delivered, server = DeliveredTransactions(), Server(5, 6, 7)
    delivered.begin(at(100))
    delivered.note(at(130), [6], [125])
    # 6 was delivered, so that it is known where it ended.
    assert delivered.suspects(at(120), server.connection) == {5, 7}
    assert delivered.suspects(at(130), server.connection) == {5, 6, 7}
    delivered.forget(ServerSnapshot.parse("5:9:7"))
    assert delivered.suspects(at(130), server.connection) == {7}


def test_a_gap_between_readers_is_asked_for_anew() -> None:
    delivered, server = DeliveredTransactions(), Server(5)
    delivered.begin(at(100))
    assert delivered.suspects(at(100), server.connection) == {5}
    delivered.note(at(110), [7], [110])
    delivered.begin(at(105))  # another reader, within what was noted
    delivered.begin(at(50))
    delivered.suspects(at(110), server.connection)
    assert server.asked == 1
    server.unfinished = (9,)
    delivered.begin(at(200))
    assert delivered.suspects(at(200), server.connection) == {7, 9}
    assert server.asked == 2


def test_without_a_reader_every_place_is_asked_for() -> None:
    delivered, server = DeliveredTransactions(), Server(5)
    assert delivered.suspects(at(100), server.connection) == {5}
    assert delivered.suspects(at(100), server.connection) == {5}
    server.unfinished = (6,)
    assert delivered.suspects(at(90), server.connection) == {5}, "a place before needs no other answer"
    assert delivered.suspects(at(101), server.connection) == {6}
    assert server.asked == 2


def test_an_answer_from_before_the_floor_rose_counts_for_nothing() -> None:
    delivered, server = DeliveredTransactions(), Server(5)
    delivered.begin(at(100))

    def another_reader_begins() -> None:
        server.meanwhile = lambda: None
        server.unfinished = (6,)
        delivered.begin(at(200))

    server.meanwhile = another_reader_begins
    assert delivered.suspects(at(100), server.connection) == {6}
    assert server.asked == 2


def test_another_history_has_other_transactions() -> None:
    delivered, server = DeliveredTransactions(), Server()
    delivered.begin(at(100))
    delivered.note(at(130), [7], [130])
    delivered.begin(at(50, incarnation=2))
    delivered.note(at(140), [8], [140])  # the earlier reader, which has not ended yet, notes it
    delivered.begin(at(300))
    assert delivered.suspects(at(60, incarnation=2), server.connection) == set()
    with pytest.raises(SourceUnavailable, match="went on in incarnation 2"):
        delivered.suspects(at(130), server.connection)
    assert delivered.suspects(at(60, incarnation=3), server.connection) == set()
    assert server.asked == 2


def test_it_keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 10)
    delivered, server = DeliveredTransactions(), Server()
    delivered.begin(at(0))
    delivered.suspects(at(0), server.connection)
    for number in range(1, 12):
        delivered.note(at(10 * number), [number], [10 * number])
    server.unfinished = (2, 3)
    # The oldest were forgotten, and may be among those that are unfinished.
    assert delivered.suspects(at(110), server.connection) == {2, 3, *range(6, 12)}
    assert server.asked == 2


def test_what_can_be_forgotten_is_forgotten_without_a_reader_of_rows() -> None:
    delivered, server = DeliveredTransactions(), Server(3, snapshot="3:9:3,8")
    delivered.refresh(server.connection)
    assert server.asked == 0, "nothing is read yet"
    delivered.begin(at(100))
    delivered.note(at(130), [7, 8], [120, 130])
    for _ in range(2):
        delivered.refresh(server.connection)
    assert delivered.suspects(at(130), server.connection) == {3, 8}
    assert server.asked == 1


def test_a_log_has_one_for_as_long_as_somebody_uses_it(tmp_path: Path) -> None:
    one = delivered_transactions(tmp_path / "a")
    assert delivered_transactions(tmp_path / "b" / ".." / "a") is one
    assert delivered_transactions(tmp_path / "b") is not one
    one.begin(at(7))
    del one
    assert delivered_transactions(tmp_path / "a")._incarnation == 0


# --- proof: what proves that an idle log is the one that was read ---


_MIB = 1 << 20
_ADDRESS = Address("db1", 5432, "wormhole", "shop", "wormhole_db1", "wormhole_db1")
_STATE = ServerState("7", 1, 500, 500, 150000, "logical", 0, 60.0, True, started="5")


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        (5 * _MIB + 8192, 5 * _MIB + 4096),
        (5 * _MIB + 1000, 5 * _MIB),
        (5 * _MIB + 100, None),
        (5 * _MIB, None),
    ],
    ids=["within", "near its beginning", "too few bytes", "nothing of it"],
)
def test_the_bytes_of_a_proof_are_in_the_file_of_its_place(
    monkeypatch: pytest.MonkeyPatch, end: int, begin: int | None
) -> None:
    """The file before it may be removed although a slot is at the place."""
    asked: list[tuple[int, int]] = []

    def checksum(address: Address, state: ServerState, timeline: int, begin: int, end: int) -> int:
        asked.append((begin, end))
        return 7

    monkeypatch.setattr(proof, "checksum_of_log", checksum)
    made = proof.log_bytes_anchor(_ADDRESS, _STATE, Timelines(1, ()), LogPosition(1, 0, end))
    assert asked == ([] if begin is None else [(begin, end)])
    assert (made and made.begin.offset) == begin


@pytest.mark.parametrize(
    "there", [("8", "00000001", "5"), ("7", "00000001", "6"), ("7", "00000002", "5")], ids=["other", "copy", "promoted"]
)
def test_the_bytes_of_another_server_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, str, str]
) -> None:
    """The address leads elsewhere since the log was looked at: its bytes there would look like those of a lost log."""
    closed: list[bool] = []
    session = SimpleNamespace(query=lambda _: [there], start_copy=lambda _: None, close=lambda: closed.append(True))
    monkeypatch.setattr(proof, "connect", lambda *_, **__: session)
    with pytest.raises(AnotherServer, match=rf"another server answers .* of system {there[0]}; it was timeline 1 of "):
        proof.checksum_of_log(_ADDRESS, _STATE, 1, 4096, 8192)
    assert closed
