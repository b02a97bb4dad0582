"""Which transactions a snapshot may not show yet, although the log has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from datastores.postgres.history import delivered_transactions as module
from datastores.postgres.history.delivered_transactions import (
    DeliveredTransactions,
    ServerSnapshot,
    delivered_transactions,
)
from datastores.postgres.server.connection import Connection
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import LogPosition


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
