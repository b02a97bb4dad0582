"""When a snapshot may be used, and where it lies in the log."""

from __future__ import annotations

from typing import cast

import pytest

from datastores.postgres.existing_rows import snapshot as module
from datastores.postgres.existing_rows.snapshot import Begun, Snapshots
from datastores.postgres.history.delivered_transactions import DeliveredTransactions
from datastores.postgres.log import flushing
from datastores.postgres.server.connection import Connection
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition

_PLACE = LogPosition(1, 0, 0x100)
_MARKER = Datamarker(_PLACE, "1:0/100", _PLACE)
_PAGE, _FILE = 8192, 1 << 24


class Server:
    """``snapshots``: the answers to come, the last one again and again. ``said``: what was asked, by its first word."""

    def __init__(self, *snapshots: str, end: str = "0/200", flushed: tuple[str, ...] = ("0/200",)) -> None:
        self.snapshots, self.end, self.flushed = list(snapshots), end, list(flushed)
        self.said: list[str] = []

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        self.said.append(statement)
        if "pg_current_snapshot" in statement:
            return [(self._next(self.snapshots), self.end, "described")]
        if "flush" in statement:
            return [(self._next(self.flushed),)]
        if "insert_lsn" in statement:
            return [(self.end,)]
        return []

    @staticmethod
    def _next(answers: list[str]) -> str:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def begin(self, *delivered: int, waits: list[float] | None = None) -> Begun:
        """Begin at a log whose ``delivered`` transactions came before the marker, and 99 behind it."""
        known = DeliveredTransactions()
        known.begin(LogPosition(1, 0, 1))
        known.note(LogPosition(1, 0, 0x150), [*delivered, 99], [*(0x100 - n for n in range(len(delivered))), 0x150])
        snapshots = Snapshots(known, _PAGE, _FILE)
        wait = [] if waits is None else waits
        return snapshots.begin(self.connection, "ONLY t", "SELECT 1", _MARKER, wait.append)

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)


def test_the_place_is_the_end_of_the_log_behind_the_snapshot() -> None:
    server = Server("5:9:99")
    assert server.begin(7, 8) == Begun(LogPosition(1, 0, 0x200), "described")
    lock = next(at for at, statement in enumerate(server.said) if "LOCK TABLE ONLY t IN ACCESS SHARE MODE" in statement)
    assert "pg_current_snapshot" in server.said[lock + 1]
    assert server.said[lock].startswith("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; ")


def test_where_the_next_record_begins_behind_a_pages_header() -> None:
    assert Server("5:9:", end="0/2018").begin(7).high == LogPosition(1, 0, 0x2000)


def test_it_waits_outside_a_transaction_until_what_was_delivered_is_shown() -> None:
    server, waits = Server("5:8:7", "5:8:", "5:9:"), list[float]()
    assert server.begin(7, 8, waits=waits).described == "described"
    words = [statement.partition(" ")[0] for statement in server.said]
    assert words == ["SELECT", "SELECT", *("BEGIN", "SELECT", "ROLLBACK") * 2, "BEGIN", "SELECT"]
    assert len(waits) == 2


def test_what_is_not_shown_in_time_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    server = Server("5:8:")
    with pytest.raises(SourceUnavailable, match="8, 9, 10, 11, 12 and 1 others it does not show yet") as raised:
        server.begin(*range(7, 14))
    assert "synchronous_standby_names" in str(raised.value.hint)
    assert server.said[-1] == "ROLLBACK"


def test_a_log_that_ends_before_the_place_is_another_one() -> None:
    server = Server("5:9:", end="0/FF")
    with pytest.raises(SourceUnavailable, match="its log ends before that"):
        server.begin()
    assert len(server.said) == 1, "nothing was begun, and nothing is learnt of what is unfinished"


@pytest.mark.parametrize("flushed", [("0/200",), ("0/100", "0/1FF", "0/201")])
def test_what_is_written_soon_is_waited_for(flushed: tuple[str, ...]) -> None:
    server, waits = Server("5:9:", flushed=flushed), list[float]()
    Snapshots(DeliveredTransactions(), _PAGE, _FILE).await_written(
        server.connection, LogPosition(1, 0, 0x200), waits.append
    )
    assert len(waits) == len(server.said) - 1 == len(flushed) - 1


def test_what_is_not_written_soon_is_written_by_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_SOON_S", 0.0)
    server = Server("5:9:", flushed=("0/1FF",))
    Snapshots(DeliveredTransactions(), _PAGE, _FILE).await_written(
        server.connection, LogPosition(1, 0, 0x200), lambda _: None
    )
    assert server.said[1:] == ["SELECT pg_catalog.pg_current_xact_id()"]
