"""Keys that the log does not contain (REPLICA IDENTITY FULL), from a real server's catalogue that is newer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.existing_rows.source import PostgresTables
from datastores.postgres.log import slots
from datastores.postgres.server import state as server_state
from datastores.postgres.source import PostgresSource
from tests.support.postgres_harness import all_tables
from tests.support.postgres_server import PostgresServer
from wormhole.model.errors import SourceUnavailable
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.testing.reading import Read, read_log, read_until

pytestmark = pytest.mark.usefixtures("quick_end")

Sql = Callable[..., list[tuple[Any, ...]]]
Open = Callable[[str], PostgresSource]


@pytest.fixture
def sql(postgres_server: PostgresServer, postgres_database: str) -> Sql:
    def run(*statements: str) -> list[tuple[Any, ...]]:
        return postgres_server.sql(*statements, database=postgres_database)

    run("CREATE TABLE other (id int PRIMARY KEY)")
    return run


@pytest.fixture
def started(postgres_server: PostgresServer, postgres_database: str, tmp_path: Path, sql: Sql) -> Iterator[Open]:
    """A source of the database with a state folder of its own; the first call makes publication and slots."""
    found: list[PostgresSource] = []
    name = f"of_{postgres_database}"

    def start(folder: str = "state") -> PostgresSource:
        if not found:
            sql(all_tables(name), *slots.create_statements(name))
        login = Login(postgres_server.password_file)
        options = SourceOptions("log", tmp_path / folder, Sharding("table"), 1 << 20, 0, login)
        source = PostgresSource(f"{postgres_server.url(postgres_database)}?publication={name}&slot={name}", options)
        found.append(source)
        source.start()
        return source

    yield start
    for source in found:
        source.stop()


def _keys(read: Read, table: str) -> list[tuple[object, ...]]:
    return [update.key for update in read.updates if update.table == f"public.{table}"]


def _problem(read: Read) -> str:
    """The problem of the table whose shard breaks; the other table's updates come."""
    (error,) = read.broken
    assert error.tables == ("public.t",)
    assert "skip_tables" in (error.hint or "")
    assert (_keys(read, "t"), _keys(read, "other")) == ([], [(1,)])
    return error.message


def test_a_column_is_found_by_its_place_where_its_name_is_another_ones_now(sql: Sql, started: Open) -> None:
    sql("CREATE TABLE t (gone int, a int, b int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t DROP COLUMN gone")  # fmt: skip
    source = started("state")
    start = source.latest()
    sql("INSERT INTO t VALUES (1, 2)", "UPDATE t SET b = 3", "ALTER TABLE t ADD COLUMN late int")
    sql(*(f"ALTER TABLE t RENAME {names}" for names in ("a TO x", "b TO a", "x TO b")))
    sql("INSERT INTO t VALUES (10, 20)")
    assert _keys(read_log(source, start), "t") == [(2,), (3,), (20,)]


def test_a_table_that_was_made_anew_lends_no_key_to_the_one_before(sql: Sql, started: Open) -> None:
    sql("CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY FULL")
    source = started("state")
    start = source.latest()
    sql("INSERT INTO t VALUES (1, 2)", "DROP TABLE t", "CREATE TABLE t (a int, b int PRIMARY KEY)",
        "INSERT INTO other VALUES (1)")  # fmt: skip
    assert "the catalogue does not have the table any more" in _problem(read_log(source, start))


def test_a_key_that_was_changed_since_is_not_taken_for_the_one_before(
    postgres_server: PostgresServer, postgres_database: str, sql: Sql, started: Open
) -> None:
    """The id of the transaction that changed it is lower than that of the one before: it began earlier."""
    sql("CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY FULL")
    source = started("state")
    start = source.latest()
    with postgres_server.connect(postgres_database, autocommit=False) as change:
        change.execute("CREATE TABLE before_it (n int)")
        sql("INSERT INTO t VALUES (1, 2)", "INSERT INTO other VALUES (1)")
        change.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b)")
    assert "the primary key that the catalogue has (b) may be newer than that" in _problem(read_log(source, start))
    sql("ALTER TABLE t DROP CONSTRAINT t_pkey")
    source._poll()
    assert "does not have its primary key any more" in _problem(read_log(source, start))


def test_a_reader_goes_on_over_changes_of_a_key(sql: Sql, started: Open) -> None:
    sql("CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY FULL")
    source = started("state")
    with closing(source.open(source.latest())) as reader:
        read = Read()

        def run(*statements: str) -> None:
            sql(*statements)
            read_until(reader, source.latest().order, into=read)

        run("INSERT INTO t VALUES (1, 2)")
        run("ALTER TABLE t ALTER a TYPE bigint", "INSERT INTO t VALUES (3, 4)")
        sql("REINDEX TABLE CONCURRENTLY t", "ALTER TABLE t RENAME CONSTRAINT t_pkey TO k")
        run("INSERT INTO t VALUES (5, 6)")
        sql("ALTER TABLE t DROP CONSTRAINT k, ADD PRIMARY KEY (b)")
        source._poll()
        run("UPDATE t SET a = 7 WHERE a = 1")
        sql("ALTER TABLE t DROP CONSTRAINT t_pkey")
        source._poll()
        run("DELETE FROM t WHERE a = 3")
    assert not read.broken
    assert _keys(read, "t") == [(1,), (3,), (5,), (2,), ()]


def test_a_key_that_is_older_than_the_slots_is_that_of_their_log(sql: Sql, started: Open) -> None:
    """A publisher that was away saw nothing of it."""
    sql("CREATE TABLE t (a int, b int)", "ALTER TABLE t ADD PRIMARY KEY (b)", "ALTER TABLE t REPLICA IDENTITY FULL")
    first = started("state")
    start = first.latest()
    first.stop()
    sql("INSERT INTO t VALUES (1, 2)")
    assert _keys(read_log(started("another"), start), "t") == [(2,)]


def test_a_key_that_was_made_with_its_table_is_the_key_at_once(sql: Sql, started: Open) -> None:
    source = started("state")
    start = source.latest()
    sql("CREATE TABLE t (a int, b int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 2)")
    assert _keys(read_log(source, start), "t") == [(2,)]


_DEFERRABLE = ("DEFERRABLE", "DEFERRABLE INITIALLY IMMEDIATE", "DEFERRABLE INITIALLY DEFERRED")
_PART = "ALTER TABLE t ATTACH PARTITION p FOR VALUES FROM (0) TO (100); ALTER TABLE p REPLICA IDENTITY FULL;"


@pytest.mark.parametrize(
    ("made", "change"),
    [
        *((f"CREATE TABLE t (id int PRIMARY KEY {kind}, v int);", "id = id + 1") for kind in _DEFERRABLE),
        (
            (
                "CREATE TABLE t (id int NOT NULL, v int); CREATE UNIQUE INDEX u ON t (id);"
                "ALTER TABLE t ADD PRIMARY KEY USING INDEX u DEFERRABLE;"
            ),
            "id = id + 1",
        ),
        # A deferrable key of a partition is attached to the immediate one of its root.
        (
            (
                "CREATE TABLE t (id int, v int, PRIMARY KEY (id, v)) PARTITION BY RANGE (v);"
                f"CREATE TABLE p (id int, v int, PRIMARY KEY (id, v) DEFERRABLE); {_PART}"
            ),
            "v = v + 1, id = id + 1",
        ),
        # A root's key is there at once, without its partitions.
        (
            (
                "CREATE TABLE t (id int NOT NULL, v int NOT NULL) PARTITION BY RANGE (v);"
                f"CREATE TABLE p (id int NOT NULL, v int NOT NULL); {_PART} ALTER TABLE ONLY t ADD PRIMARY KEY (id, v);"
            ),
            "id = 7, v = 7",
        ),
    ],
    ids=["plain", "immediate", "deferred", "index", "partition", "root"],
)
def test_a_key_that_rows_may_share_inside_a_statement_is_none(
    postgres_server: PostgresServer,
    postgres_database: str,
    sql: Sql,
    started: Open,
    tmp_path: Path,
    made: str,
    change: str,
) -> None:
    """A copy by such a key loses rows: the first row moves onto the second, which is then taken for the moved one. The
    log, the models and the existing rows agree that the table has no key."""
    sql(f"{made} ALTER TABLE t REPLICA IDENTITY FULL")
    source = started("state")
    start = source.latest()
    sql("INSERT INTO t SELECT n, n FROM generate_series(1, 6) n", f"UPDATE t SET {change}")
    read = read_log(source, start)
    assert not read.broken
    assert set(_keys(read, "t")) == {()}
    updated = [update.after for update in read.updates if update.op == "update"]
    assert sorted(updated) == sorted(sql("SELECT id, v FROM t"))
    login = Login(postgres_server.password_file)
    url = f"{postgres_server.url(postgres_database)}?publication=of_{postgres_database}"
    assert [one.key for one in DATASTORE.describe(url, login, lambda name: name == "public.t")] == [()]
    with closing(PostgresTables(url, SourceOptions("log", tmp_path, Sharding("table"), 1 << 20, 0, login))) as tables:
        (table,) = tables.tables(lambda name: name == "public.t")
    assert "no primary key that is checked at once" in table.refused.text


def test_inserts_of_a_key_that_partitions_lack_are_without_it_and_a_change_halts(sql: Sql, started: Open) -> None:
    """With the root's REPLICA IDENTITY DEFAULT the log has the root's key, and nothing else of a row before."""
    sql("CREATE TABLE t (id int NOT NULL, v int) PARTITION BY RANGE (id)", "CREATE TABLE p (id int NOT NULL, v int)",
        _PART, "ALTER TABLE ONLY t ADD PRIMARY KEY (id)")  # fmt: skip
    source = started("state")
    start = source.latest()
    sql("INSERT INTO t VALUES (1, 1), (1, 2)")
    assert [update.after for update in read_log(source, start).updates] == [(1, 1), (1, 2)]
    assert _keys(read_log(source, start), "t") == [(), ()]
    sql("DELETE FROM t WHERE v = 1", "INSERT INTO other VALUES (1)")
    read = read_log(source, start)
    assert [error.tables for error in read.broken] == [("public.t",)]
    assert _keys(read, "other") == [(1,)]


def test_a_copy_of_the_server_that_answers_meanwhile_lends_no_key(
    sql: Sql, started: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables have the same numbers (OIDs), and other keys."""
    sql("CREATE TABLE t (a int, b int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY FULL")
    source = started("state")
    with closing(source.open(source.latest())) as reader:
        sql("INSERT INTO t VALUES (1, 2)")
        end = source.latest().order
        monkeypatch.setattr(server_state, "identity", lambda _: ("of", "0", "the copy"))
        with pytest.raises(SourceUnavailable, match="another server answers"):
            read_until(reader, end)
