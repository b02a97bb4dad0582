"""Which tables of PostgreSQL have rows that can be read, under which names, and what becomes of changed ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from datastores.postgres.existing_rows import reading, snapshot
from datastores.postgres.existing_rows.source import PostgresTables
from tests.support.eventually import until
from tests.support.given import given
from tests.support.keyed_copy import rows_of
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.postgres_types import VERSION
from wormhole.model.errors import SourceUnavailable, UnreadableTable
from wormhole.ports.table_source import ChunkLimits, ScannedTable
from wormhole.wire.rows import decode_row

pytestmark = pytest.mark.usefixtures("quick_end")

_ONE = ChunkLimits(rows=1)
_ALL = ChunkLimits(rows=1_000)
_OPEN = "GRANT USAGE ON SCHEMA public TO PUBLIC"
_FINE = ("CREATE TABLE fine (n int PRIMARY KEY, v int)", "INSERT INTO fine VALUES (1, 1), (2, 2)")
_PARTITIONS = (
    "CREATE TABLE root (n int, v text, PRIMARY KEY (n)) PARTITION BY RANGE (n)",
    "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high (v text, gone int, n int NOT NULL)",
    "ALTER TABLE high DROP COLUMN gone",
    "ALTER TABLE root ATTACH PARTITION high FOR VALUES FROM (10) TO (100)",
)
_PARTITIONED = "INSERT INTO root SELECT n, 'v' || n FROM generate_series(0, 25) n"


@pytest.fixture(scope="module")
def kept(postgres_server: PostgresServer) -> Iterator[PostgresScene]:
    skipped = frozenset({"public.skipped", "left.*"})
    with (
        new_database(postgres_server) as database,
        PostgresScene(postgres_server, database, skip_tables=skipped) as one,
    ):
        yield one


@pytest.fixture
def scene(kept: PostgresScene) -> PostgresScene:
    """One table is there."""
    kept.sql('DROP SCHEMA IF EXISTS public, shut, "left" CASCADE', "CREATE SCHEMA public", _OPEN)
    kept.rows.clear()
    kept.run(*_FINE)
    kept.tables.close()
    kept.tables = PostgresTables(kept.url, kept.options)
    return kept


def listed(scene: PostgresScene, *named: str) -> dict[str, ScannedTable]:
    return {table.name: table for table in scene.tables.tables(lambda _: True, named)}


def test_tables_that_cannot_be_read_in_chunks(scene: PostgresScene) -> None:
    narrow = scene.server.user
    scene.sql(
        "CREATE TABLE none (n int UNIQUE)",
        "CREATE TABLE bare ()",
        "CREATE TABLE late (n int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE later (n int PRIMARY KEY DEFERRABLE); ALTER TABLE later REPLICA IDENTITY FULL",
        "CREATE TABLE whole (n int, v int); ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE indexed (n int NOT NULL); CREATE UNIQUE INDEX i ON indexed (n); ALTER TABLE indexed REPLICA "
        "IDENTITY USING INDEX i; DROP INDEX i",
        'CREATE TABLE "a.b" (n int PRIMARY KEY)',
        "CREATE TABLE skipped (n int PRIMARY KEY)",
        "CREATE SCHEMA left; CREATE TABLE left.out (n int PRIMARY KEY)".replace("left", '"left"'),
        "CREATE UNLOGGED TABLE fast (n int PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT * FROM fine",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM fine",
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw CASCADE",
        "CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE FOREIGN TABLE away (n int) SERVER other",
        *_PARTITIONS,
        "CREATE SCHEMA shut; CREATE TABLE shut.hidden (n int PRIMARY KEY)",
        "CREATE TABLE guarded (n int PRIMARY KEY); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
    )
    expected = {
        "public.none": ("no primary key that is checked at once", "ADD PRIMARY KEY"),
        "public.bare": ("no primary key that is checked at once", "ADD PRIMARY KEY"),
        "public.late": ("no primary key that is checked at once", "ADD PRIMARY KEY"),
        "public.later": ("no primary key that is checked at once", "ADD PRIMARY KEY"),
        "public.whole": ("has no primary key that is checked at once: its", "ADD PRIMARY KEY"),
        "public.indexed": ("the index of its REPLICA IDENTITY is gone", "REPLICA IDENTITY DEFAULT"),
        "public.a.b": ("has a dot in its name", "rename it"),
        "public.skipped": ("is in skip_tables", "take it out"),
        "left.out": ("is in skip_tables", "take it out"),
        "public.fast": ("is unlogged or temporary", 'ALTER TABLE "public"."fast" SET LOGGED;'),
        "public.seen": ("is a view", "name the tables"),
        "public.kept": ("is a materialized view", "name the tables"),
        "public.away": ("is a foreign table", "name the tables"),
        "public.low": ("is a partition, whose rows are delivered as those of public.root", "name public.root"),
        "public.guarded": ("row-level security hides rows", f'ALTER ROLE "{narrow}" BYPASSRLS;'),
    }
    named = ("public.fast", "public.seen", "public.kept", "public.away", "public.low", "no.such")
    found = listed(scene, *named)
    assert found.keys() == expected.keys() | {"public.fine", "public.root", "shut.hidden"}
    assert [name for name, table in found.items() if not table.refused] == ["public.fine", "public.root", "shut.hidden"]
    assert (found["public.fine"].columns, found["public.none"].columns) == (("n", "v"), ())
    for name, (why, hint) in expected.items():
        refused = found[name].refused
        assert refused.text.startswith(name)
        assert why in refused.text, refused
        assert hint in refused.hint, refused
        if name != "public.a.b":
            with pytest.raises(UnreadableTable, match=r"public|left") as raised:
                scene.chunk(name)
            assert hint in str(raised.value.hint)
    assert not set(named).intersection(listed(scene)), "what the publication does not have is listed where it is named"
    assert len(scene.read("public.fine")) == 2


def test_tables_that_the_account_may_not_read(scene: PostgresScene) -> None:
    scene.sql(
        "DROP ROLE IF EXISTS narrow",
        f"CREATE ROLE narrow LOGIN PASSWORD '{scene.server.password}'",
        "CREATE SCHEMA shut",
        "CREATE TABLE shut.hidden (n int PRIMARY KEY)",
        "CREATE POLICY hides ON fine USING (n > 1)",
    )
    tables = PostgresTables(scene.url.replace(f"//{scene.server.user}@", "//narrow@"), scene.options)

    def refused() -> dict[str, tuple[str, str]]:
        return {one.name: (one.refused.text, one.refused.hint) for one in tables.tables(lambda _: True)}

    def read(name: str = "public.fine") -> int:
        return len(tables.chunk(name, None, None, _ALL, scene.marker).rows)

    try:
        found = refused()
        assert found["shut.hidden"][1] == (
            'GRANT USAGE ON SCHEMA "shut" TO "narrow";\nGRANT SELECT ON "shut"."hidden" TO "narrow";'
        )
        assert found["public.fine"][1] == 'GRANT SELECT ON "public"."fine" TO "narrow";'
        with pytest.raises(UnreadableTable, match="the account narrow may not read its rows") as raised:
            read()
        scene.sql(str(raised.value.hint), *found["shut.hidden"][1].splitlines())
        assert read() == 2
        assert read("shut.hidden") == 0
        # Rows that a policy hides would be deleted from every copy.
        scene.sql("ALTER TABLE fine ENABLE ROW LEVEL SECURITY")
        with pytest.raises(UnreadableTable, match="row-level security hides rows") as raised:
            read()
        assert raised.value.hint == 'ALTER ROLE "narrow" BYPASSRLS;'
        scene.sql(str(raised.value.hint))
        assert read() == 2
        scene.sql("REVOKE SELECT ON fine FROM narrow")
        with pytest.raises(UnreadableTable) as raised:
            read()
        assert raised.value.hint == 'GRANT SELECT ON "public"."fine" TO "narrow";'
    finally:
        tables.close()
        scene.sql("DROP OWNED BY narrow", "DROP ROLE narrow")


def test_a_key_that_the_log_lacks_is_that_of_the_table_under_whatever_name(scene: PostgresScene) -> None:
    scene.run(
        "CREATE TABLE one (a int PRIMARY KEY, b int); ALTER TABLE one REPLICA IDENTITY FULL",
        "CREATE TABLE two (a int, b int PRIMARY KEY); ALTER TABLE two REPLICA IDENTITY FULL",
        "BEGIN",
        "INSERT INTO one VALUES (1, 7), (2, 7)",
        "INSERT INTO two VALUES (7, 1), (7, 2)",
        "ALTER TABLE one RENAME TO three",
        "ALTER TABLE two RENAME TO one",
        "COMMIT",
    )
    keys = {name: sorted(decode_row(row).key[0].int for row in rows.values()) for name, rows in scene.rows.items()}
    assert keys == {"public.fine": [1, 2], "public.one": [1, 2], "public.two": [1, 2]}


def test_partitions_come_as_rows_of_their_root(scene: PostgresScene) -> None:
    scene.run(*_PARTITIONS, _PARTITIONED, "ANALYZE")
    found = scene.read("public.root")
    assert found == scene.rows["public.root"]
    assert [decode_row(row).key[0].int for row in found.values()] == list(range(26))
    assert listed(scene)["public.root"].rows == 26
    scene.run("ALTER TABLE root DETACH PARTITION low")
    assert scene.read("public.root").keys() == set(list(found)[10:])
    scene.run("TRUNCATE high")
    assert scene.read("public.root") == {}


def test_partitions_come_under_their_own_names(postgres_server: PostgresServer, postgres_database: str) -> None:
    with PostgresScene(postgres_server, postgres_database, publication="FOR ALL TABLES") as scene:
        scene.run(*_PARTITIONS, _PARTITIONED)
        for name in ("public.low", "public.high"):
            assert scene.read(name) == scene.rows[name]
        assert len(scene.rows["public.low"]) == 10
        assert "name the partitions" in listed(scene, "public.root")["public.root"].refused.hint


@pytest.mark.skipif(VERSION < 15, reason="this server's publications have neither")
def test_a_publication_of_some_rows_and_columns(postgres_server: PostgresServer, postgres_database: str) -> None:
    statements = (
        'CREATE SCHEMA "Odd \'one"',
        'CREATE TABLE "Odd \'one"."T ""x""" (n int PRIMARY KEY, "a,b" text, secret text)',
        "CREATE TABLE chosen (n int PRIMARY KEY, v int) PARTITION BY LIST (n)",
        "CREATE TABLE others PARTITION OF chosen DEFAULT",
        "CREATE TABLE left_out (n int PRIMARY KEY)",
        "CREATE SCHEMA whole; CREATE TABLE whole.one (n int PRIMARY KEY)",
    )
    publication = (
        'FOR TABLE "Odd \'one"."T ""x""" (n, "a,b"), chosen WHERE (v > 5 AND v IS DISTINCT FROM 7) WITH '
        "(publish_via_partition_root = true)"
    )
    name = 'Odd \'one.T "x"'
    with PostgresScene(postgres_server, postgres_database, *statements, publication=publication) as scene:
        scene.run(
            'INSERT INTO "Odd \'one"."T ""x""" VALUES (1, \'x\', \'secret\'), (2, NULL, \'s\')',
            "INSERT INTO chosen SELECT n, n FROM generate_series(1, 10) n",
        )
        assert scene.read(name) == scene.rows[name]
        assert scene.chunk(name).schema == scene.schemas[name]
        assert listed(scene)[name].columns == ("n", "a,b")
        assert scene.read("public.chosen") == scene.rows["public.chosen"]
        assert [decode_row(row).key[0].int for row in scene.rows["public.chosen"].values()] == [6, 8, 9, 10]
        found = listed(scene, "public.left_out", "public.others")
        assert 'ADD TABLE "public"."left_out"' in found["public.left_out"].refused.hint
        assert "rows are delivered as those of public.chosen" in found["public.others"].refused.text
        # The publication is altered between two chunks.
        owner = f"ALTER PUBLICATION of_{postgres_database}"
        scene.sql(f"{owner} SET TABLE chosen WHERE (v > 8)")
        assert len(scene.read("public.chosen")) == 2
        with pytest.raises(UnreadableTable, match="is not in the publication"):
            scene.chunk(name)
        scene.sql(f"{owner} SET TABLES IN SCHEMA whole")
        assert scene.read("whole.one") == {}
        assert list(listed(scene)) == ["whole.one"]


def test_generated_columns_of_a_publication(postgres_server: PostgresServer, postgres_database: str) -> None:
    newer = int(postgres_server.sql("SHOW server_version_num")[0][0]) >= 180000
    publication = f"FOR ALL TABLES{' WITH (publish_generated_columns = stored)' if newer else ''}"
    made = "CREATE TABLE made (n int PRIMARY KEY, m int GENERATED ALWAYS AS (n * 2) STORED)"
    with PostgresScene(postgres_server, postgres_database, made, publication=publication) as scene:
        scene.run("INSERT INTO made VALUES (1), (2)")
        assert scene.read("public.made") == scene.rows["public.made"]
        assert scene.chunk("public.made").schema == scene.schemas["public.made"]
        assert listed(scene)["public.made"].columns == (("n", "m") if newer else ("n",))


def test_an_altered_and_a_truncated_table(scene: PostgresScene) -> None:
    first = scene.chunk("public.fine", limits=_ONE)
    for change in (
        "ADD COLUMN w text DEFAULT 'd'",
        "RENAME v TO x",
        "DROP COLUMN x",
        "ALTER w DROP DEFAULT, ALTER w TYPE bytea USING 'b'",
    ):
        scene.sql(f"ALTER TABLE fine {change}")
        rest = scene.chunk("public.fine", first.last, limits=_ALL)
        assert [decode_row(row).key[0].int for row in rest.rows.values()] == [2]
    scene.run("UPDATE fine SET n = n")
    assert scene.chunk("public.fine").schema == scene.schemas["public.fine"]
    assert scene.read("public.fine") == scene.rows["public.fine"]
    scene.sql("TRUNCATE fine")
    rest = scene.chunk("public.fine", first.last, limits=_ALL)
    assert (rest.rows, rest.done) == ({}, True)
    scene.sql("DROP TABLE fine", "CREATE TABLE fine (n int PRIMARY KEY, v int) PARTITION BY LIST (n)")
    assert scene.chunk("public.fine", first.last, limits=_ALL).rows == {}


def test_a_table_that_is_written_anew_between_its_lock_and_its_snapshot(scene: PostgresScene) -> None:
    """A snapshot from before an ALTER that writes the table anew would show no row of it."""
    tables = scene.tables
    assert isinstance(tables, PostgresTables)
    scene.chunk("public.fine")
    session = given(tables._session)
    plain = session.connection.query

    def query(statement: str, **more: Any) -> object:
        if "pg_current_snapshot" in statement:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                scene.sql("SET lock_timeout = '50ms'", "ALTER TABLE fine ALTER v TYPE bigint")
        return plain(statement, **more)

    session.connection.query = query  # type: ignore[method-assign,assignment]
    assert len(scene.chunk("public.fine").rows) == 2


def test_a_table_that_somebody_locks(scene: PostgresScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_SETTINGS", ("lock_timeout = '50ms'",))
    with scene.server.connect(scene.database, autocommit=False) as other:
        other.execute(b"LOCK TABLE fine")
        with pytest.raises(SourceUnavailable, match=r"public\.fine is locked by an ALTER"):
            scene.chunk("public.fine")
    assert len(scene.read("public.fine")) == 2


def test_a_statement_that_takes_too_long_ends_with_what_it_found(
    scene: PostgresScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run("INSERT INTO fine SELECT n, n FROM generate_series(3, 3000) n")
    plain = reading.copied
    slow = "CASE WHEN n = {} THEN (SELECT pg_sleep(60) IS NULL)::int ELSE n END"

    def sleeping(row: int) -> None:
        monkeypatch.setattr(
            reading, "copied", lambda *given: plain(*given).replace('r."n",', f"{slow.format(row)},", 1)
        )

    sleeping(2500)
    first = scene.chunk("public.fine", limits=ChunkLimits(rows=5000, seconds=1.0))
    assert 0 < len(first.rows) < 2500
    assert not first.done
    assert decode_row(list(first.rows.values())[-1]).key[0].int == len(first.rows)
    sleeping(1)
    for seconds in ("0.1", "0.2"):
        with pytest.raises(SourceUnavailable, match=f"found no row within {seconds} s"):
            scene.chunk("public.fine", limits=ChunkLimits(seconds=0.1))
    monkeypatch.setattr(reading, "copied", plain)
    assert len(scene.chunk("public.fine", limits=_ALL).rows) == 1000


def test_a_call_that_is_interrupted_and_a_connection_that_ends(scene: PostgresScene) -> None:
    found: list[SourceUnavailable] = []

    def read() -> None:
        try:
            scene.chunk("public.fine")
        except SourceUnavailable as error:
            found.append(error)

    with scene.server.connect(scene.database, autocommit=False) as other:
        other.execute(b"LOCK TABLE fine")
        reader = threading.Thread(target=read)
        reader.start()
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        until(lambda: scene.sql(waits), "the chunk does not wait for the lock")
        scene.tables.interrupt()
        reader.join()
    assert [(one.code, one.hint) for one in found] == [("source-unavailable", "a retry follows")]
    assert len(scene.read("public.fine")) == 2
    scene.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        "pg_backend_pid() AND query LIKE '%pg_current_wal_flush_lsn%'"
    )
    with pytest.raises(SourceUnavailable):
        scene.chunk("public.fine")
    assert len(scene.read("public.fine")) == 2


def test_a_type_of_an_extension_is_text_in_the_log_and_in_the_table(postgres_of_each: PostgresServer) -> None:
    """As pgvector's and PostGIS's: types of their own with a modifier, in arrays and in domains."""
    made = (
        "CREATE TYPE vec",
        "CREATE FUNCTION vec_in(cstring, oid, int4) RETURNS vec AS 'varcharin' LANGUAGE internal IMMUTABLE STRICT",
        "CREATE FUNCTION vec_out(vec) RETURNS cstring AS 'varcharout' LANGUAGE internal IMMUTABLE STRICT",
        "CREATE TYPE vec (INPUT = vec_in, OUTPUT = vec_out, TYPMOD_IN = varchartypmodin, TYPMOD_OUT=varchartypmodout)",
        "CREATE DOMAIN embedding AS vec(9000)",
        "CREATE TABLE t (id int PRIMARY KEY, v vec(9000), a vec[], d embedding)",
    )
    with new_database(postgres_of_each) as database, PostgresScene(postgres_of_each, database, *made) as scene:
        scene.run(
            "INSERT INTO t VALUES (1, '[1,2.5]', '{\"[1,2]\",NULL}', '[3]'), (2, NULL, NULL, NULL)",
            "INSERT INTO t (id, v) VALUES (3, repeat('x', 8000)::vec)",
            "UPDATE t SET d = '[4]' WHERE id = 3",
        )
        assert [column.type for column in scene.schemas["public.t"].columns] == ["int", "text", "text", "text"]
        held = scene.copy.tables["public.t"]
        assert held[("id", "1"),] == {"id": 1, "v": "[1,2.5]", "a": '{"[1,2]",NULL}', "d": "[3]"}
        (chunk,) = scene.chunks("public.t", _ALL)
        assert rows_of(chunk.rows, chunk.schema) == held
