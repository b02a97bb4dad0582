"""What only a mirror in a DuckDB file does: the file belongs to one process at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sinks.sql.duckdb import DuckDb
from sinks.sql.failures import RowRefused, database_error
from sinks.sql.kind import DUCKDB
from sinks.sql.sink import SqlSink
from subscriber_sdk import HandlerFailed
from subscriber_sdk.testing import Kit, update
from subscriber_sdk.transactional.store import finish
from wormhole.model.errors import TargetRefused, TargetUnavailable, UsageError

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking

_HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def opened(path: Path, **settings: object) -> SqlSink:
    sink = DUCKDB.open("mirror", DUCKDB.settings.model_validate({"url": f"duckdb://{path}", **settings}))
    assert isinstance(sink, SqlSink)
    return sink


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process has the file open."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
        process.communicate()


def rows(path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute("SELECT id, amount FROM orders ORDER BY id").fetchall()


def test_a_second_process_writes_nothing_and_takes_over_when_the_first_is_gone(
    tmp_path: Path, wormhole_kit: Kit
) -> None:
    path = tmp_path / "a b.duckdb"
    sink = opened(tmp_path / "a%20b.duckdb")
    flow = wormhole_kit.attach(sink.subscriber)
    flow.commit(update("shop.orders", key={"id": 1}, after={"amount": 5}))
    flow.revoke()  # the file is closed with the last shard
    with held(path):
        with pytest.raises(HandlerFailed) as failed:
            flow.assign()
        assert isinstance(failed.value.__cause__, TargetUnavailable)
        assert "is open in another process" in str(failed.value.__cause__)
        with pytest.raises(TargetUnavailable, match="is open in another process"):
            wormhole_kit.run(sink.examine())
    flow.assign()
    flow.commit(update("shop.orders", key={"id": 2}, after={"amount": 7}))
    flow.revoke()
    assert rows(path) == [(1, 5), (2, 7)]


def test_a_batch_is_one_statement(tmp_path: Path, wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.duckdb"
    sink = opened(path)
    flow = wormhole_kit.attach(sink.subscriber)
    flow.commit(update("shop.orders", key={"id": 0}, after={"amount": 0}))
    statements: list[str] = []
    run = DuckDb.run

    def noted(self: DuckDb, connection: Any, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        statements.append(sql)
        return run(self, connection, sql, values)

    monkeypatch.setattr(DuckDb, "run", noted)
    flow.commit(*(update("shop.orders", key={"id": key}, after={"amount": key}) for key in range(1, 500)))
    assert len([sql for sql in statements if sql.startswith("INSERT")]) <= flow.updates // 100 + 1
    flow.revoke()
    assert rows(path) == [(key, key) for key in range(500)]


def test_two_shards_write_one_table(tmp_path: Path, wormhole_kit: Kit) -> None:
    sink = opened(tmp_path / "file.duckdb")
    flows = [wormhole_kit.attach(sink.subscriber, shard=f"shop/{place}") for place in range(2)]
    for key in range(1, 6):
        for place, flow in enumerate(flows):
            flow.commit(update("shop.orders", key={"id": 2 * key + place}, after={"amount": 0}))
            flow.commit(update("shop.orders", key={"id": 2 * key + place}, after={"amount": key}))
    for flow in flows:
        flow.revoke()
    assert rows(tmp_path / "file.duckdb") == [(2 * key + place, key) for key in range(1, 6) for place in range(2)]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("INSERT INTO t VALUES (1, 'secret')", RowRefused),
        ("INSERT INTO t VALUES (300, 'secret')", RowRefused),
        ("INSERT INTO t VALUES ('secret', 'a')", RowRefused),
        ("SELECT secret FROM t", TargetUnavailable),
        ("SELECT * FROM secret", TargetUnavailable),
    ],
)
def test_an_error_has_its_meaning_and_no_value(tmp_path: Path, statement: str, kind: type[Exception]) -> None:
    database = DuckDb(tmp_path / "file.duckdb", 1 << 28)
    session = finish(database.store.connect())
    database.run(session.connection, "CREATE TABLE t (id TINYINT PRIMARY KEY, v VARCHAR)")
    database.run(session.connection, "INSERT INTO t VALUES (%s, %s)", (1, "a"))
    with pytest.raises(duckdb.Error) as error:
        database.run(session.connection, statement)
    assert session.failed
    found = database_error(error.value, "t")
    assert type(found) is kind
    assert "secret" not in str(found)
    finish(session.close())


def test_conflicting_changes_are_tried_again(tmp_path: Path) -> None:
    database = DuckDb(tmp_path / "file.duckdb", 1 << 28)
    one, other = (finish(database.store.connect()) for _ in range(2))
    database.run(one.connection, "CREATE TABLE t AS SELECT 1 AS id, 2 AS v")
    for session in (one, other):
        finish(session.begin())
    assert database.change(one.connection, "UPDATE t SET v = 3 WHERE id = %s", (1,)) == 1
    with pytest.raises(duckdb.Error) as error:
        database.change(other.connection, "UPDATE t SET v = 4 WHERE id = %s", (1,))
    assert type(database_error(error.value, "t")) is TargetUnavailable
    finish(other.rollback())
    finish(other.rollback())  # there is no transaction any more
    finish(one.commit())
    assert database.run(other.connection, "SELECT v FROM t") == [(3,)]
    for session in (one, other):
        finish(session.close())


def test_a_file_that_is_none_of_duckdbs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.duckdb").write_bytes(b"SQLite format 3\0" * 1000)
    with pytest.raises(TargetRefused, match="is no file of DuckDB"):
        finish(DuckDb(tmp_path / "file.duckdb", 1 << 28).store.connect())
    with pytest.raises(TargetUnavailable, match="cannot be opened"):
        finish(DuckDb(tmp_path / "missing" / "file.duckdb", 1 << 28).store.connect())


def test_a_password_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no use for password_file"):
        opened(tmp_path / "file.duckdb", password_file=str(tmp_path / "password"))
