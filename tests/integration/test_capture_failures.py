"""What an operator or an application does to recorded changes: each loss and each obstacle is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from datastores.postgres.capture.datastore import DATASTORE
from datastores.postgres.capture.source import CaptureSource
from tests.support.capture_harness import as_owner, capture_source, capture_url, install
from tests.support.eventually import until
from tests.support.postgres_server import PostgresServer
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError
from wormhole.model.findings import Severity
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, ServerObjects
from wormhole.ports.testing.reading import Read, read_log, read_until

TABLES: Final = ("CREATE SCHEMA shop", "CREATE TABLE shop.a (k int PRIMARY KEY, v text)")

OPENED: Final = (
    "SELECT last_value = 1 AND torn IS NOT NULL AND torn::text NOT LIKE '18446%' FROM wormhole.capture, wormhole.gate"
)

Started = Callable[[], CaptureSource]


@pytest.fixture
def recorded(postgres_server: PostgresServer, postgres_database: str) -> Callable[..., list[tuple[object, ...]]]:
    """A database whose table is recorded; returns what runs statements in it."""
    as_owner(postgres_server, postgres_database, *TABLES)
    install(postgres_server, postgres_database, "shop.*")

    def run(*statements: str) -> list[tuple[object, ...]]:
        return postgres_server.sql(f"SET ROLE {postgres_server.user}", *statements, database=postgres_database)

    return run


@pytest.fixture
def start(postgres_server: PostgresServer, postgres_database: str, tmp_path: Path) -> Iterator[Started]:
    """Starts the source anew."""
    running: list[CaptureSource] = []

    def started() -> CaptureSource:
        for source in running:
            source.stop()
        running[:] = [capture_source(postgres_server, postgres_database, tmp_path, Sharding("log"))]
        return running[0]

    yield started
    for source in running:
        source.stop()


def _objects(server: PostgresServer, database: str, *tables: str, parameters: str = "") -> ServerObjects:
    return DATASTORE.server_objects(capture_url(server, database, parameters), Login(server.password_file), tables)


def _run(server: PostgresServer, database: str, *statements: str) -> None:
    DATASTORE.run_statements(capture_url(server, database), Login(server.password_file), statements)


Sql = Callable[..., list[tuple[object, ...]]]


def test_at_the_bound_writers_go_on_and_the_loss_is_reported(recorded: Sql, start: Started) -> None:
    source = start()
    begin = source.latest()
    recorded("UPDATE wormhole.capture SET most_bytes = 400000")
    recorded("INSERT INTO shop.a SELECT n, repeat('x', 200) FROM generate_series(1, 3000) n")
    recorded("INSERT INTO shop.a VALUES (9000, 'written, not recorded')")
    source.latest()
    assert [problem.code for problem in source.status().problems] == ["log-kept-short"]
    reader, read = source.open(begin), Read(last_end=begin.order)
    read_until(reader, source.latest().order, into=read)
    assert 500 < len(read.updates) < 3000
    assert read.gaps, "the transaction that lacks changes comes after the report of the loss"
    source.release(read.markers[-1].read_from)
    until(lambda: not source.status().problems, "recording goes on")
    recorded("INSERT INTO shop.a VALUES (9001, 'recorded')")
    del read.gaps[:]
    read_until(reader, source.latest().order, into=read)
    assert [gap.kind for gap in read.gaps] == [LossKind.NOT_LOGGED]
    assert read.updates[-1].key == (9001,)
    reader.close()
    assert recorded("SELECT count(*) FROM shop.a") == [(3002,)]


def test_doctor_names_each_obstacle(
    recorded: Sql, postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    def found() -> dict[str, list[Severity]]:
        """The checks of what was found, beside those of the way to the server."""
        login = Login(postgres_server.password_file)
        report = DATASTORE.examine(capture_url(postgres_server, postgres_database), tmp_path, login)
        kinds: dict[str, list[Severity]] = {}
        for finding in report.findings:
            kinds.setdefault(finding.check, []).append(finding.severity)
        return {
            check: kinds.get(check, []) for check in ("change_table", "left_out", "primary_key", "rights", "triggers")
        }

    ok, warn, problem = [Severity.OK], [Severity.WARN], [Severity.PROBLEM]
    nothing: dict[str, list[Severity]] = {check: [] for check in found()}
    assert found() == nothing | {"change_table": ok, "triggers": ok}
    recorded("CREATE TABLE shop.later (k int PRIMARY KEY)", "ALTER TABLE shop.a DROP CONSTRAINT a_pkey")
    assert found() == nothing | {"change_table": ok, "left_out": warn, "primary_key": warn, "triggers": ok}
    recorded("ALTER TABLE shop.a DISABLE TRIGGER ALL")
    assert found()["triggers"] == problem
    recorded("UPDATE wormhole.capture SET most_bytes = 1")
    assert found()["change_table"] == warn
    recorded("SELECT setval('wormhole.gate', 2)")
    assert found()["change_table"] == problem
    recorded("DROP SCHEMA wormhole CASCADE")
    assert found() == nothing | {"left_out": warn, "triggers": problem}


def test_a_transaction_that_saw_the_closed_gate_is_reported_after_recording_goes_on(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    source = start()
    begin = source.latest()
    recorded("SELECT setval('wormhole.gate', 2)")
    with postgres_server.connect(postgres_database) as torn:
        torn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        torn.execute("INSERT INTO shop.a VALUES (1, 'not recorded')")
        until(lambda: recorded(OPENED) == [(True,)], "recording goes on")
        torn.execute("INSERT INTO shop.a VALUES (2, 'recorded')")
        recorded("INSERT INTO shop.a VALUES (3, 'between')")
        between = read_log(source, begin)
        assert between.keys() == [3]
        assert between.gaps
        torn.execute("COMMIT")
    after = read_log(source, between.markers[-1])
    assert after.keys() == [2]
    assert after.gaps, "it lacks its first change"
    until(lambda: recorded("SELECT torn IS NULL FROM wormhole.capture") == [(True,)], "nothing is torn any more")
    recorded("INSERT INTO shop.a VALUES (4, 'whole')")
    assert read_log(source, after.markers[-1]).keys()[-1] == 4
    last = source.latest()
    recorded("INSERT INTO shop.a VALUES (5, 'whole')")
    assert not read_log(source, last).gaps


def test_a_missing_or_disabled_trigger_is_noticed_and_installed_again(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    assert start().status().problems == ()
    for harm in (
        'ALTER TABLE shop.a DISABLE TRIGGER "!wormhole_capture"',
        'DROP TRIGGER "!wormhole_capture" ON shop.a',
        'DROP TRIGGER "!wormhole_truncate" ON shop.a',
    ):
        recorded(harm)
        assert [problem.code for problem in start().status().problems] == ["objects-missing"], harm
        _run(postgres_server, postgres_database, *_objects(postgres_server, postgres_database).missing)
        assert start().status().problems == (), harm
    assert _objects(postgres_server, postgres_database).missing == ()


def test_a_new_partition_is_recorded_and_its_missing_trigger_noticed(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    recorded("CREATE TABLE shop.parts (k int PRIMARY KEY) PARTITION BY RANGE (k)")
    install(postgres_server, postgres_database, "shop.parts")
    begin = start().latest()
    recorded("CREATE TABLE shop.low PARTITION OF shop.parts FOR VALUES FROM (0) TO (10)")
    source = start()
    assert [problem.code for problem in source.status().problems] == ["objects-missing"]
    install(postgres_server, postgres_database)
    source = start()
    assert source.status().problems == ()
    recorded("INSERT INTO shop.parts VALUES (1)", "TRUNCATE shop.low", "TRUNCATE shop.parts")
    assert [(one.op, one.table) for one in read_log(source, begin).updates] == [
        ("insert", "shop.parts"),
        ("delete", "shop.parts"),
        ("truncate", "shop.parts"),
    ]


def test_everything_is_removed(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    source = start()
    assert _objects(postgres_server, postgres_database).in_use, "while it is read"
    source.stop()
    until(lambda: not _objects(postgres_server, postgres_database).in_use, "its session ends")
    found = _objects(postgres_server, postgres_database)
    assert found.missing == ()
    assert found.tables == (("shop.a", "captured"),)
    _run(postgres_server, postgres_database, *found.present)
    recorded("INSERT INTO shop.a VALUES (1, 'as before')")
    assert recorded("SELECT 1 FROM pg_namespace WHERE nspname = 'wormhole'") == []
    assert recorded("SELECT 1 FROM pg_trigger WHERE tgname LIKE '!%'") == []
    assert _objects(postgres_server, postgres_database).present == ()


def test_a_second_installation_is_refused(
    recorded: Sql, postgres_server: PostgresServer, postgres_database: str
) -> None:
    with pytest.raises(UsageError) as error:
        _objects(postgres_server, postgres_database, parameters="?schema=other")
    assert error.value.code == "log-shared"


def test_a_copy_of_another_database_is_refused(recorded: Sql, start: Started) -> None:
    recorded("UPDATE wormhole.capture SET system = '7:' || system")
    with pytest.raises(UnsupportedLog) as error:
        start()
    assert error.value.code == "log-diverged"


def test_a_database_without_the_objects_is_refused(start: Started) -> None:
    with pytest.raises(UnsupportedLog) as error:
        start()
    assert error.value.code == "objects-missing"


def test_an_account_without_rights_gets_the_grant(postgres_server: PostgresServer, postgres_database: str) -> None:
    postgres_server.sql(*TABLES, database=postgres_database)
    found = _objects(postgres_server, postgres_database, "*")
    assert "shop.a (it belongs to postgres)" in found.left_out
    with pytest.raises(SourceUnavailable) as error:
        _run(postgres_server, postgres_database, *found.missing)
    assert "GRANT CREATE ON DATABASE" in (error.value.hint or "")


def test_a_table_without_a_key_is_recorded(recorded: Sql, start: Started, postgres_server: PostgresServer,
    postgres_database: str) -> None:  # fmt: skip
    recorded("CREATE TABLE shop.log (line text)")
    install(postgres_server, postgres_database, "shop.log")
    source = start()
    begin = source.latest()
    recorded("INSERT INTO shop.log VALUES ('one')", "UPDATE shop.log SET line = 'two'", "DELETE FROM shop.log")
    assert [(one.op, one.key, one.after) for one in read_log(source, begin).updates] == [
        ("insert", (), ("one",)),
        ("update", (), ("two",)),
        ("delete", (), ()),
    ]


def test_an_alteration_inside_a_transaction(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    source = start()
    begin = source.latest()
    with postgres_server.connect(postgres_database) as connection, connection.transaction():
        connection.execute("INSERT INTO shop.a VALUES (1, 'one'); ALTER TABLE shop.a RENAME v TO w; "
                           "INSERT INTO shop.a VALUES (2, 'two'); ALTER TABLE shop.a ADD u int; "
                           "INSERT INTO shop.a VALUES (3, 'three', 3); ALTER TABLE shop.a RENAME TO b; "
                           "INSERT INTO shop.b VALUES (4, 'four', 4)")  # fmt: skip
    assert [(one.table, one.after) for one in read_log(source, begin).updates] == [
        ("shop.a", (1, "one")),
        ("shop.a", (2, "two")),
        ("shop.a", (3, "three", 3)),
        ("shop.b", (4, "four", 4)),
    ]


def test_a_writer_never_waits_for_the_publisher(
    recorded: Sql, start: Started, postgres_server: PostgresServer, postgres_database: str
) -> None:
    start()
    with postgres_server.connect(postgres_database) as publisher:
        publisher.execute("BEGIN")
        publisher.execute("SELECT wormhole.cut()")
        recorded("SET lock_timeout = '1ms'", "INSERT INTO shop.a SELECT n, 'x' FROM generate_series(1, 2000) n")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            recorded("SET lock_timeout = '1ms'", "SELECT wormhole.cut()")
