"""Existing rows of real PostgreSQL servers: what a chunk shows, and where it lies in the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing

import hypothesis
import pytest

from datastores.postgres.existing_rows import snapshot
from datastores.postgres.existing_rows.source import PostgresTables
from tests.support.eventually import until
from tests.support.postgres_scene import PostgresScene, waiting_commit
from tests.support.postgres_server import NewPostgres, PostgresServer, new_database
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.ports.testing.reading import read_until
from wormhole.wire.rows import decode_row

SNAPSHOTS = 2_000 if hypothesis.settings.get_current_profile_name() == "soak" else 60
_STOCK = "CREATE TABLE stock (id int PRIMARY KEY, amount int)"
_TABLE = "public.stock"


@pytest.fixture(scope="module")
def kept(postgres_server: PostgresServer) -> Iterator[PostgresScene]:
    with new_database(postgres_server) as database, PostgresScene(postgres_server, database, _STOCK) as scene:
        yield scene


@pytest.fixture
def scene(kept: PostgresScene) -> PostgresScene:
    """The table is empty."""
    kept.run("TRUNCATE stock")
    return kept


def amounts(chunk: Chunk) -> dict[int, int]:
    """By id."""
    return amounts_of(chunk.rows)


def amounts_of(rows: Mapping[bytes, bytes]) -> dict[int, int]:
    found = map(decode_row, rows.values())
    return {row.after[0].int: row.after[1].int for row in found}


@pytest.mark.parametrize("began", ["before the commit", "after COMMIT PREPARED"])
def test_a_commit_in_the_log_that_no_select_shows_yet(
    new_postgres: NewPostgres, began: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``began``: when the process began that reads the log and its tables."""
    monkeypatch.setattr(snapshot, "_PATIENCE_S", 0.2)
    server = new_postgres(max_prepared_transactions="2")
    early = began == "before the commit"
    change = "UPDATE stock SET amount = 2"
    with PostgresScene(server, "postgres", _STOCK, "INSERT INTO stock VALUES (1, 1)") as scene:
        if not early:
            scene.sql("BEGIN", change, "PREPARE TRANSACTION 'one'")
        before = scene.follow()
        with waiting_commit(server, "postgres", change if early else "COMMIT PREPARED 'one'"):
            # The reader delivers the change, and a SELECT shows the row as it was before.
            delivered = scene.follow()
            assert amounts_of(scene.rows[_TABLE]) == {1: 2}
            end = "SELECT pg_current_wal_lsn() - '0/0'"
            low = scene.sql(end)[0][0]
            # A place asked for before the SELECT would say that it shows everything that was delivered.
            assert scene.sql("SELECT * FROM stock") == [(1, 1)]
            assert low >= delivered.order.offset
            tables = scene.tables
            if early:  # it is right as of an earlier place
                assert amounts(tables.chunk(_TABLE, None, None, ChunkLimits(), before)) == {1: 1}
            else:
                tables = PostgresTables(scene.url, scene.options)
                tables._delivered = type(tables._delivered)()
            for _ in range(2):
                with pytest.raises(SourceUnavailable, match="does not show everything before") as raised:
                    tables.chunk(_TABLE, None, None, ChunkLimits(), delivered)
            assert "synchronous_standby_names" in str(raised.value.hint)
        chunk = tables.chunk(_TABLE, None, None, ChunkLimits(), delivered)
        assert amounts(chunk) == {1: 2}
        tables.close()
        assert scene.tables.reached(chunk.high, scene.follow())


def test_transactions_that_were_open_when_the_process_began(
    scene: PostgresScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be committing, where nobody sees what they do; afterwards any number may be open."""
    monkeypatch.setattr(snapshot, "_PATIENCE_S", 0.1)
    change = b"INSERT INTO stock VALUES (1, 1)"
    with scene.server.connect(scene.database, autocommit=False) as writer:
        writer.execute(change)
        tables = PostgresTables(scene.url, scene.options)
        tables._delivered = type(tables._delivered)()
        with pytest.raises(SourceUnavailable, match="does not show yet how they ended"):
            tables.chunk(_TABLE, None, None, ChunkLimits(), scene.marker)
        scene.sql(f"GRANT pg_read_all_stats TO {scene.server.user}")
        try:
            tables._delivered = type(tables._delivered)()
            assert amounts(tables.chunk(_TABLE, None, None, ChunkLimits(), scene.marker)) == {}
        finally:
            scene.sql(f"REVOKE pg_read_all_stats FROM {scene.server.user}")
        tables.close()
        writer.commit()
    scene.follow()
    with scene.server.connect(scene.database, autocommit=False) as writer:
        writer.execute(b"INSERT INTO stock VALUES (2, 2)")
        # The chunk of one process that reads log and tables knows that it began later.
        assert amounts(scene.chunk(_TABLE)) == {1: 1}


def test_a_chunk_lies_behind_what_it_shows(scene: PostgresScene) -> None:
    scene.run("INSERT INTO stock VALUES (1, 1)")
    read_to = scene.marker
    scene.sql("SET synchronous_commit = off", "UPDATE stock SET amount = 2")  # after the place the log was read to
    chunk = scene.chunk(_TABLE)
    assert amounts(chunk) == {1: 2}
    assert not scene.tables.reached(chunk.high, read_to)
    assert scene.tables.reached(chunk.high, scene.follow())


def test_an_idle_log_comes_to_what_a_chunk_shows(scene: PostgresScene) -> None:
    """Also behind log that is no commit, which the server keeps in memory until something else has to be written."""
    with scene.server.connect(scene.database, autocommit=False) as writer:
        writer.execute(b"INSERT INTO stock VALUES (1, 1)")
        chunk = scene.chunk(_TABLE)
        assert amounts(chunk) == {}

        def reached() -> bool:
            scene.step()
            return scene.tables.reached(chunk.high, scene.marker)

        until(reached, "an idle log stays where it is")


def test_rows_are_those_of_the_log_in_the_order_of_the_key(scene: PostgresScene) -> None:
    scene.run("INSERT INTO stock VALUES (3, 30), (-7, NULL), (2147483647, 0), (0, -1), (-2147483648, 5), (12, 12)")
    chunks = list(scene.chunks(_TABLE))
    assert [len(chunk.rows) for chunk in chunks] == [3, 3, 0]
    assert [chunk.done for chunk in chunks] == [False, False, True]
    found = {key: update for chunk in chunks for key, update in chunk.rows.items()}
    assert found == scene.rows[_TABLE]
    assert [decode_row(update).key[0].int for update in found.values()] == [-2147483648, -7, 0, 3, 12, 2147483647]
    assert {chunk.schema.id for chunk in chunks} == {scene.schemas[_TABLE].id}


def test_no_transaction_is_open_between_chunks(scene: PostgresScene) -> None:
    scene.run("INSERT INTO stock SELECT n, n FROM generate_series(1, 100) n")
    for _ in scene.chunks(_TABLE, ChunkLimits(rows=30)):
        scene.sql(
            "SET lock_timeout = '1s'", "ALTER TABLE stock ADD COLUMN more int", "ALTER TABLE stock DROP COLUMN more"
        )
    assert len(scene.read(_TABLE)) == 100


def test_commits_beside_chunks(scene: PostgresScene) -> None:
    """Some are prepared, some wait for nothing; each row of a chunk is as the log has it at one place of the window."""
    scene.run("INSERT INTO stock VALUES (1, 0), (2, 0)")
    ends = threading.Event()

    def write(synchronous: str) -> None:
        with scene.server.connect(scene.database) as connection:
            connection.execute(f"SET synchronous_commit = {synchronous}".encode())
            while not ends.is_set():
                connection.execute(b"UPDATE stock SET amount = amount + 1")

    writers = [threading.Thread(target=write, args=(one,)) for one in ("off", "on")]
    for writer in writers:
        writer.start()
    try:
        for _ in range(SNAPSHOTS):
            scene.step()
            at_least = amounts_of(scene.rows[_TABLE])
            chunk = scene.chunk(_TABLE)
            found = amounts(chunk)
            assert found[1] == found[2], "a part of a transaction"
            assert found[1] >= at_least[1], "a row as it was before not_before"
            while not scene.tables.reached(chunk.high, scene.marker):
                scene.step()
            assert amounts_of(scene.rows[_TABLE])[1] >= found[1], "a row from behind high"
    finally:
        ends.set()
        for writer in writers:
            writer.join()


def test_rows_and_keys_that_are_no_text_in_the_databases_encoding(new_postgres: NewPostgres) -> None:
    """As the log has them, in chunks whose bounds are such keys."""
    server = new_postgres()
    server.sql("CREATE DATABASE win ENCODING 'WIN1252' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    create = r"""DO $$BEGIN EXECUTE 'CREATE TABLE "na' || E'\x81' || 'me" (k int)'; END$$"""
    with PostgresScene(server, "win", create) as win:
        win.sql("CREATE TABLE t (k text PRIMARY KEY, v text)")
        win.run(*(rf"INSERT INTO t VALUES (E'k\x{byte:x}', E'\x{byte:x}')" for byte in range(0x80, 0x90)))
        assert win.read("public.t") == win.rows["public.t"]
        key = next(key for key, row in win.rows["public.t"].items() if b"\x81" in row)
        assert win.tables.rows("public.t", [key], win.marker).rows == {key: win.rows["public.t"][key]}
        (named,) = (one for one in win.tables.tables(lambda _: True, ()) if one.name == "public.na%81me")
        assert "no text" in named.refused.text


def test_a_table_of_1600_texts(scene: PostgresScene) -> None:
    """The statement has each column a fixed number of times."""
    columns = ", ".join(f"c{n} text" for n in range(1599))
    scene.run(
        f"CREATE TABLE wide (k int PRIMARY KEY, {columns})",
        "INSERT INTO wide SELECT n FROM generate_series(1, 5) n",
        f"INSERT INTO wide (k, c7, c1598) VALUES (6, repeat('x', {scene.options.max_update_bytes}), repeat('x', 9))",
        "INSERT INTO wide (k, c1598) VALUES (7, 'last')",
    )
    assert scene.read("public.wide") == scene.rows["public.wide"]


def test_no_setting_of_the_database_ends_or_changes_a_backfill(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    settings = {
        "statement_timeout": "'1ms'",
        "lock_timeout": "'1ms'",
        "idle_in_transaction_session_timeout": "'1ms'",
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "'serializable'",
        "default_transaction_deferrable": "on",
        "synchronous_commit": "off",
        "exit_on_error": "on",
        "transform_null_equals": "on",
        "row_security": "on",
        "search_path": "'pg_temp'",
        "DateStyle": "'SQL, DMY'",
        "wal_sender_timeout": "'1s'",
    }
    if server.sql("SHOW server_version_num")[0][0] >= "170000":
        settings |= {"transaction_timeout": "'1ms'"}
    with PostgresScene(server, "postgres", "CREATE TABLE t (k date PRIMARY KEY, v text)") as one:
        for name, value in settings.items():
            one.sql(f"ALTER ROLE {server.user} SET {name} = {value}")
        one.run("INSERT INTO t SELECT date '2024-02-01' + n, n FROM generate_series(1, 40) n")
        one.tables.close()
        assert one.read("public.t") == one.rows["public.t"]
        with closing(one.source.open(one.marker)) as reader:
            one.sql("INSERT INTO t VALUES ('2025-03-01', 'later')")
            assert read_until(reader, one.source.latest().order).keys() == ["2025-03-01"]
