"""Statements that log no rows: a copy is as ``SELECT`` shows, or the difference is reported, or on the page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from subprocess import run

import pytest

from datastores.postgres.doctor.publication import named_values_findings, unlogged_partition_findings
from datastores.postgres.log.reader import WalReader
from datastores.postgres.server.address import parse
from datastores.postgres.server.connection import connect
from datastores.postgres.source import PostgresSource
from tests.support.databases import DatabaseServer
from tests.support.eventually import until
from tests.support.keyed_copy import Rows, differences, rows_of
from tests.support.postgres_scene import PostgresScene, waiting_commit
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.statements_without_rows import MARIADB, MYSQL, POSTGRES, Case, Outcome
from tests.support.table_scene import TableScene
from wormhole.model.errors import UnreadableTable


def _cases(server: PostgresServer) -> dict[str, Case]:
    """By schema."""
    version = int(server.sql("SHOW server_version_num")[0][0]) // 10000
    return {f"c{at}": case for at, case in enumerate(POSTGRES) if case.since <= version}


def _table(schema: str, case: Case) -> str:
    return f"{schema}{case.table}" if "." in case.table else f"{schema}.{case.table}"


def _shown(scene: PostgresScene, table: str) -> Rows:
    found: Rows = {}
    for chunk in scene.chunks(table):
        found |= rows_of(chunk.rows, chunk.schema)
    return found


@pytest.fixture
def scene(postgres_of_each: PostgresServer) -> Iterator[PostgresScene]:
    with (
        new_database(postgres_of_each) as database,
        PostgresScene(postgres_of_each, database, user="postgres") as scene,
    ):
        yield scene


def test_each_is_in_the_log_or_noticed_or_on_the_page(scene: PostgresScene, caplog: pytest.LogCaptureFixture) -> None:
    """All at once: what is noticed of one table may not hide what happens to another. A verification finds what
    differs."""
    cases = _cases(scene.server)
    for schema, case in cases.items():
        scene.sql(f"CREATE SCHEMA {schema}", *(one.format(s=schema) for one in case.made))
    scene.notice()
    assert not scene.replaced, "a table that is made and filled is in the log"
    for schema, case in cases.items():
        scene.sql(*(one.format(s=schema) for one in case.run))
    scene.notice()
    found = {}
    for schema, case in cases.items():
        table = _table(schema, case)
        differs = differences(scene.copy.tables.get(table, {}), _shown(scene, table))
        verified = scene.verified(table)
        assert verified or not differs, (case.name, differs)
        assert not verified or case.outcome is not Outcome.LOGGED, (case.name, verified)
        found[case.name] = (
            Outcome.NOTICED if table in scene.replaced else Outcome.SILENT if differs else Outcome.LOGGED,
            differs[:1],
        )
    names = {case.name: schema for schema, case in cases.items()}
    assert f"the table {names['rename']}.t was renamed to {names['rename']}.u" in caplog.text
    assert f"the table {names['attach']}.u is a partition now" in caplog.text
    scene.sql("DROP ROLE IF EXISTS " + ", ".join(f"{schema}_new" for schema in cases))
    wanted = {case.name: case.outcome for case in cases.values()}
    assert {name: one for name, one in found.items() if one[0] is not wanted[name]} == {}
    calm = {schema for schema, case in cases.items() if case.outcome is Outcome.LOGGED}
    assert not [table for table in scene.replaced if table.partition(".")[0] in calm]


@pytest.fixture
def my_cases(database_server: DatabaseServer) -> Iterator[dict[str, Case]]:
    """By database."""
    cases = {f"wr{at}": case for at, case in enumerate(MYSQL if database_server.flavour == "mysql" else MARIADB)}
    yield cases
    database_server.sql(*(f"DROP DATABASE IF EXISTS {database}" for database in cases))


def test_each_of_mysql_is_in_the_log_or_noticed_or_on_the_page(
    database_server: DatabaseServer, my_cases: dict[str, Case]
) -> None:
    """A verification finds what differs wherever the rows can be read."""
    found = {}
    with TableScene(database_server) as scene:
        for database, case in my_cases.items():
            database_server.sql(f"CREATE DATABASE {database}", *(one.format(s=database) for one in case.made))
        scene.follow()
        assert not scene.replaced
        for database, case in my_cases.items():
            for copies, part in groupby(case.run, lambda one: one.startswith("cp ")):
                lines = [one.format(s=database) for one in part]
                if copies:
                    run(["cp", "-p", *lines[0].split()[1:]], cwd=database_server.data, check=True)
                else:
                    scene.run(*lines)
        scene.tables.tables(lambda name: True)
        for database, case in my_cases.items():
            table = f"{database}.{case.table}"
            differs, verified = _found(scene, database_server, table)
            outcome = Outcome.NOTICED if table in scene.replaced else Outcome.SILENT if differs else Outcome.LOGGED
            found[case.name] = (outcome, differs, verified)
    wanted = {
        case.name: (case.outcome, case.outcome is not Outcome.LOGGED, case.verified) for case in my_cases.values()
    }
    assert {name: one for name, one in found.items() if one != wanted[name]} == {}


def _found(scene: TableScene, server: DatabaseServer, table: str) -> tuple[bool, bool]:
    """Whether the copy differs from the table, and whether a verification could say so."""
    try:
        return bool(scene.verified(table)), True
    except UnreadableTable:
        shown = {str(first) for first, *_ in server.sql(f"SELECT * FROM {table}")}
        return shown != {str(next(iter(row.values()))) for row in scene.copy.tables.get(table, {}).values()}, False


def test_doctor_names_what_nothing_can_notice(scene: PostgresScene) -> None:
    """Columns whose text is another one when what they name is renamed; also arrays of them."""
    scene.sql("CREATE TABLE a (id int PRIMARY KEY, v regclass)", "CREATE TABLE b (id int PRIMARY KEY, v aclitem[])")
    scene.sql("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    scene.sql("CREATE UNLOGGED TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    connection = connect(parse(scene.url, "log"))
    (names,), (partitions,) = named_values_findings(connection), unlogged_partition_findings(connection)
    connection.close()
    assert "public.a, public.b" in names.what
    assert "partitions public.p1 are" in partitions.what


def test_what_changed_while_no_publisher_ran_is_noticed_at_its_start(scene: PostgresScene) -> None:
    """A flow that is behind comes to the place, also after another start."""
    scene.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    scene.notice()
    scene.source.stop()
    scene.sql("ALTER TABLE t ALTER v TYPE text USING v || '!'", "INSERT INTO t VALUES (2, 'b')")
    for _ in range(2):
        source = PostgresSource(scene.url, scene.options)
        source.start()
        until(partial(_reads, source.open(scene.marker), "public.t"), "it is not noticed")
        source.stop()


def _reads(reader: WalReader, replaced: str) -> bool:
    segment = reader.read(1 << 20, 0.1)
    return segment is not None and replaced in segment.replaced


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER PUBLICATION p ADD TABLE u",
        "ALTER PUBLICATION p SET TABLE t (id)",
        "ALTER PUBLICATION p SET TABLE t WHERE (id > 0)",
        "ALTER PUBLICATION p SET TABLE t, u",
        "ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
    ],
)
def test_other_rows_or_columns_of_the_publication_are_noticed(postgres_of_each: PostgresServer, statement: str) -> None:
    tables = [f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in "tu"]
    with (
        new_database(postgres_of_each) as database,
        PostgresScene(postgres_of_each, database, *tables, publication="FOR TABLE t") as scene,
    ):
        scene.sql("INSERT INTO u VALUES (1, 'a')", "INSERT INTO t VALUES (1, 'a')")
        scene.notice()
        assert not scene.replaced
        scene.sql(statement.replace("PUBLICATION p", f"PUBLICATION of_{database}"))
        scene.notice()
        assert scene.replaced == ["public.t" if " SET TABLE t (" in statement or "WHERE" in statement else "public.u"]


def test_what_the_server_refuses_and_what_could_be_published_is_found_at_the_same_look(
    postgres_of_each: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    table = "CREATE TABLE t (id int PRIMARY KEY, v text)"
    with (
        new_database(postgres_of_each) as database,
        PostgresScene(postgres_of_each, database, table, publication="FOR TABLE t") as scene,
    ):
        scene.sql("CREATE TABLE fresh (id int PRIMARY KEY)", "CREATE TABLE keyless (id int)")
        scene.notice()
        assert f"the publication of_{database} leaves out public.fresh, created since" in caplog.text
        for statement, refused in (
            ("ALTER TABLE t REPLICA IDENTITY NOTHING", True),
            (f"ALTER PUBLICATION of_{database} SET (publish = 'insert')", False),
            (f"ALTER PUBLICATION of_{database} SET (publish = 'insert, update')", True),
            ("ALTER TABLE t REPLICA IDENTITY FULL", False),
            ("ALTER TABLE t REPLICA IDENTITY DEFAULT", False),
            ("ALTER TABLE t DROP CONSTRAINT t_pkey", True),
            ("ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE", True),
        ):
            scene.sql(statement)
            scene.notice()
            shown = any(
                "refuses every UPDATE and DELETE of public.t" in one.text for one in scene.source.status().problems
            )
            assert shown == refused, statement


def test_a_truncate_that_no_look_sees_for_a_while_is_not_noticed(postgres_of_each: PostgresServer) -> None:
    """Its commit waits for a standby: it is in the log, and the tables are as before."""
    table = "CREATE TABLE t (id int PRIMARY KEY)"
    with (
        new_database(postgres_of_each) as database,
        PostgresScene(postgres_of_each, database, table, "INSERT INTO t VALUES (1)", user="postgres") as scene,
    ):
        scene.notice()
        with waiting_commit(postgres_of_each, database, "TRUNCATE t"):
            for _ in range(2):
                scene.notice()
        scene.sql("INSERT INTO t VALUES (2)")
        scene.notice()
        assert not scene.replaced


@pytest.mark.parametrize(
    ("statement", "renamed"),
    [
        ("ALTER TABLE a.p RENAME TO q", {"a.p": "a.q"}),
        ("ALTER TABLE a.p SET SCHEMA b", {"a.p": "b.p"}),
        ("ALTER SCHEMA a RENAME TO c", {"a.p": "c.p", "a.o": "c.o", "a.t": "c.t"}),
        ("ALTER TABLE a.p RENAME TO q; ALTER TABLE a.o RENAME TO p", {"a.p": "a.q", "a.o": "a.p"}),
    ],
)
def test_rows_arrive_under_the_name_of_their_table(
    postgres_of_each: PostgresServer, statement: str, renamed: dict[str, str]
) -> None:
    """The server does not send the new name by itself to a session that has had a row of each partition."""
    parted = "(id int PRIMARY KEY) PARTITION BY RANGE (id)"
    made = (
        "CREATE SCHEMA a",
        "CREATE SCHEMA b",
        *(f"CREATE TABLE a.{name} {parted}" for name in "po"),
        *(f"CREATE TABLE a.{name}1 PARTITION OF a.{name} FOR VALUES FROM (0) TO (100)" for name in "po"),
        "CREATE TABLE a.t (id int PRIMARY KEY)",
    )
    tables = ("a.p", "a.o", "a.t")
    now = {table: renamed.get(table, table) for table in tables}
    with new_database(postgres_of_each) as database, PostgresScene(postgres_of_each, database, *made) as scene:
        before = scene.marker
        scene.sql("BEGIN", *(f"INSERT INTO {table} VALUES (1)" for table in tables), "COMMIT")
        scene.notice()
        scene.sql(statement)
        scene.notice()
        assert sorted(scene.replaced) == sorted(renamed.values())
        noticed = scene.marker
        scene.run(*(f"INSERT INTO {table} VALUES (2)" for table in now.values()))
        early, late = {(table, "1") for table in tables}, {(table, "2") for table in now.values()}
        assert _rows(scene) == early | late
        for marker, rows in (
            (before, early | late),
            (noticed, late),  # the rows before the statement prove this place, so the server sends them again
        ):
            scene.read_again(marker)
            assert _rows(scene) == rows


def _rows(scene: PostgresScene) -> set[tuple[str, str]]:
    """Table and key of each row in the copy."""
    return {(table, key[0][1]) for table, rows in scene.copy.tables.items() for key in rows}
