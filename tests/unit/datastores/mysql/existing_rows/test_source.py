"""Snapshots and their places, and a server that fails; what servers refuse is in the integration tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from datastores.mysql.existing_rows import snapshot
from datastores.mysql.existing_rows.definition import Definition, Listed
from datastores.mysql.existing_rows.key_order import KeyColumn
from datastores.mysql.existing_rows.server import Server
from datastores.mysql.existing_rows.snapshot import MariaSnapshots, MySqlSnapshots
from datastores.mysql.existing_rows.source import MySqlTables
from wormhole.model.errors import SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions

# --- source ---


class Failing:
    """A connection over which each statement fails."""

    open = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def bound(self, *_: object) -> None:
        pass

    def _execute_command(self, *_: object) -> None:
        raise self._error

    def _force_close(self) -> None:
        self.open = False


@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (pymysql.OperationalError(2013, "lost"), SourceUnavailable, "source-unavailable", "keys of shop.t: lost"),
        (IndexError(), SourceUnavailable, "peer-not-database", "keys of shop.t: the answer is not"),
        (pymysql.OperationalError(1054, "no n"), SourceUnavailable, "source-unavailable", "shop.t is being altered"),
        (pymysql.ProgrammingError(1146, "no t"), UnreadableTable, "table-unknown", "no table shop.t any more"),
        (pymysql.OperationalError(1142, "denied"), UnreadableTable, "account-lacks-rights", "may not read"),
    ],
)
def test_keys_that_cannot_be_asked_for(
    tmp_path: Path, error: Exception, kind: type[WormholeError], code: str, text: str
) -> None:
    tables = MySqlTables("mysql://w@127.0.0.1/", SourceOptions("log", tmp_path, Sharding("log"), 1 << 20, 0))
    connection: Any = Failing(error)
    tables._session = connection, Server(False, "1", "w@127.0.0.1", 1 << 20, MySqlSnapshots((8, 4, 0)))
    tables._definitions["shop.t"] = Definition(
        Listed("shop", "t", "BASE TABLE", "InnoDB"),
        key=(KeyColumn("n", "int"),),
        key_positions=(0,),
        index="PRIMARY",
        asked=("`n`",),
    )
    with pytest.raises(WormholeError, match=text) as raised:
        tables.skip("shop.t", None, 3)
    assert (type(raised.value), raised.value.problem.code) == (kind, code)
    assert not connection.open


# --- snapshot: where a snapshot lies in the log, by a server that says what the test wants ---


AT = LogPosition(1, 3, 500)
MARKER = Datamarker(AT, "0-1-17", AT)


class Clock:
    """Time passes while something waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(snapshot, "time", clock)
    return clock


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, Callable[[], list[dict[str, Any]]]]) -> list[str]:
    """The server's answers, by what a statement begins with; returns the statements."""
    asked: list[str] = []

    def query(connection: object, sql: str, args: Sequence[object] = (), **bounds: object) -> list[dict[str, Any]]:
        asked.append(sql)
        return next((answer() for begin, answer in answers if sql.startswith(begin)), [])

    monkeypatch.setattr(snapshot, "query", query)
    return asked


def place(offset: int, file: int = 3) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [
        {"Variable_name": "Binlog_snapshot_file", "Value": f"binlog.{file:06d}"},
        {"Variable_name": "Binlog_snapshot_position", "Value": str(offset)},
    ]


def listed(*xids: str) -> list[dict[str, Any]]:
    return [{"formatID": 1, "gtrid_length": 1, "bqual_length": 0, "data": xid} for xid in xids]


def test_a_snapshot_at_the_place_will_do(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    asked = answering(monkeypatch, ("SHOW STATUS", place(500)))
    assert MariaSnapshots().begin(None, MARKER, clock.wait) == AT  # type: ignore[arg-type]
    assert "ROLLBACK" not in asked


def test_a_snapshot_before_the_place_is_taken_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    places = iter([place(499)(), place(900, file=2)(), place(501)()])
    asked = answering(monkeypatch, ("SHOW STATUS", lambda: next(places)))
    assert MariaSnapshots().begin(None, MARKER, clock.wait) == LogPosition(1, 3, 501)  # type: ignore[arg-type]
    assert asked.count("ROLLBACK") == 2


def test_a_place_that_is_never_reached(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    asked = answering(monkeypatch, ("SHOW STATUS", place(4)))
    with pytest.raises(SourceUnavailable, match="does not show everything before"):
        MariaSnapshots().begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    assert asked[-1] == "ROLLBACK"
    assert clock.now > 103


def test_no_snapshot_while_an_xa_transaction_may_be_on_its_way(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """MariaDB writes XA COMMIT into the log, and the snapshot's place behind it, before its rows are visible."""
    lists = iter([listed("one", "two"), listed("two"), listed("three")])
    asked = answering(monkeypatch, ("XA RECOVER", lambda: next(lists)), ("SHOW STATUS", place(500)))
    MariaSnapshots().begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    # What is listed first has to go; what is prepared since is committed behind the place.
    begun = [i for i, sql in enumerate(asked) if sql.startswith("START")]
    assert begun == [3]


def test_a_transaction_that_stays_prepared_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    answering(monkeypatch, ("XA RECOVER", lambda: listed("long")), ("SHOW STATUS", place(500)))
    snapshots = MariaSnapshots()
    with pytest.raises(SourceUnavailable, match="1 XA transactions are prepared"):
        snapshots.begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    snapshots.begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    assert 105 <= clock.now < 107
    now = clock.now
    snapshots.begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    assert clock.now == now


def test_mysql_waits_for_what_was_delivered(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    asked = answering(
        monkeypatch,
        ("SELECT WAIT_FOR_EXECUTED_GTID_SET", lambda: [{"late": 0}]),
        ("SHOW", lambda: [{"File": "binlog.000003", "Position": 700}]),
    )
    assert MySqlSnapshots((8, 4, 0)).begin(None, MARKER, clock.wait) == LogPosition(1, 3, 700)  # type: ignore[arg-type]
    kinds = [re.match(r"\w+ \w+", sql)[0] for sql in asked]  # type: ignore[index]
    assert kinds == ["SELECT WAIT_FOR_EXECUTED_GTID_SET", "START TRANSACTION", "SHOW BINARY"]


def test_mysql_does_not_show_what_was_delivered(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    asked = answering(monkeypatch, ("SELECT WAIT", lambda: [{"late": 1}]))
    with pytest.raises(SourceUnavailable, match="does not show everything before"):
        MySqlSnapshots((8, 0, 20)).begin(None, MARKER, clock.wait)  # type: ignore[arg-type]
    assert len(asked) == 1


def test_mysql_whose_log_ends_before_the_place(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """It is another server, or its log began anew."""
    answering(monkeypatch, ("SHOW MASTER STATUS", lambda: [{"File": "binlog.000001", "Position": 700}]))
    with pytest.raises(SourceUnavailable):
        MySqlSnapshots((8, 0, 20)).begin(None, Datamarker(AT, "", AT), clock.wait)  # type: ignore[arg-type]


def test_statements_with_a_time() -> None:
    assert MariaSnapshots().timed("SELECT 1", 0.5) == "SET STATEMENT max_statement_time = 0.500 FOR SELECT 1"
    assert MySqlSnapshots((8, 0, 0)).timed("SELECT 1", 0.0001) == "SELECT /*+ MAX_EXECUTION_TIME(1) */ 1"
