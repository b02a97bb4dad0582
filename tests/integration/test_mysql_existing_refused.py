"""What cannot be read of existing rows: each is refused by name, with the next step, and the next table is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymysql.connections import Connection

from datastores.mysql.existing_rows import snapshot
from datastores.mysql.existing_rows.source import MySqlTables
from datastores.mysql.server.address import parse
from datastores.mysql.server.connection import connect, query
from datastores.mysql.server.grants import select_grants
from datastores.mysql.server.settings import read_settings
from tests.support.databases import DatabaseServer, NewServer
from tests.support.table_scene import TableScene
from wormhole.model.errors import SourceUnavailable, UnreadableTable, UsageError
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.table_source import ChunkLimits, ScannedTable

READABLE = ("CREATE TABLE odd.fine (n INT PRIMARY KEY, v INT)", "INSERT INTO odd.fine VALUES (1, 1), (2, 2)")


@pytest.fixture
def scene(database_server: DatabaseServer) -> Iterator[TableScene]:
    database_server.sql("DROP DATABASE IF EXISTS odd", "CREATE DATABASE odd")
    with TableScene(database_server) as scene:
        scene.run(*READABLE)
        yield scene


def listed(scene: TableScene) -> dict[str, ScannedTable]:
    return {table.name: table for table in scene.tables.tables(lambda name: name.startswith("odd."))}


BAD = (
    ("(n INT)", "has no primary key", "ADD COLUMN my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY"),
    ("(n INT UNIQUE)", "has no primary key", "ADD COLUMN my_row_id"),
    ("(n INT PRIMARY KEY) ENGINE = MyISAM", "its engine MyISAM has no snapshots", "ENGINE = InnoDB"),
    ("(n INT PRIMARY KEY) ENGINE = MEMORY", "its engine MEMORY has no snapshots", "ENGINE = InnoDB"),
    ("(n TEXT, PRIMARY KEY (n(10)))", "the first 10 characters or bytes of n", "a key of whole columns"),
    ("(n VARCHAR(99), PRIMARY KEY (n(10)))", "the first 10 characters or bytes of n", "a key of whole columns"),
    ("(n SET('a', 'b') PRIMARY KEY)", "column n (set) cannot be ordered", "a key of other columns"),
    ("(n ENUM('a', '') PRIMARY KEY)", "column n (enum) cannot be ordered", "a key of other columns"),
)
"""Columns of a table, why it cannot be read in chunks, and what helps."""


def test_tables_that_cannot_be_read_in_chunks(scene: TableScene) -> None:
    """One with a dot in its name may be another database's."""
    tables = [f"CREATE TABLE odd.bad{at} {columns}" for at, (columns, _, _) in enumerate(BAD)]
    view = "CREATE VIEW odd.seen AS SELECT * FROM odd.fine"
    scene.server.sql("SET SESSION sql_mode = ''", *tables, "CREATE TABLE odd.`dotted.name` (n INT PRIMARY KEY)", view)
    found = listed(scene)
    assert found.keys() == {"odd.fine", "odd.dotted.name", *(f"odd.bad{at}" for at in range(len(BAD)))}
    for at, (_, why, hint) in enumerate(BAD):
        refused = found[f"odd.bad{at}"].refused
        assert refused.text.startswith(f"odd.bad{at}")
        assert why in refused.text
        assert hint in refused.hint
        with pytest.raises(UnreadableTable, match=rf"odd\.bad{at}") as raised:
            scene.chunk(f"odd.bad{at}")
        assert hint in str(raised.value.hint)
    assert "has a dot in its name" in found["odd.dotted.name"].refused.text
    with pytest.raises(UnreadableTable, match="has a dot in its name"):
        scene.chunk("odd.dotted.name")
    with pytest.raises(UnreadableTable, match=r"no table odd\.seen any more"):
        scene.chunk("odd.seen")
    assert not found["odd.fine"].refused
    assert (found["odd.fine"].columns, found["odd.bad0"].columns) == (("n", "v"), ())
    assert len(scene.read("odd.fine")) == 2


@pytest.mark.parametrize(
    "statement", ["DROP TABLE odd.fine", "RENAME TABLE odd.fine TO odd.moved", "DROP DATABASE odd"]
)
def test_a_table_that_goes_in_the_middle(scene: TableScene, statement: str) -> None:
    first = scene.chunk("odd.fine", limits=ChunkLimits(rows=1))
    scene.run(statement)
    with pytest.raises(UnreadableTable, match=r"no table odd\.fine any more") as raised:
        scene.chunk("odd.fine", first.last)
    assert "GRANT" not in str(raised.value.hint)
    scene.run("CREATE DATABASE IF NOT EXISTS odd", *READABLE)
    assert len(scene.read("odd.fine")) == 2


@pytest.mark.parametrize("scope", ["odd.fine", "odd.*"])
def test_a_renamed_table_needs_no_grant(scene: TableScene, scope: str) -> None:
    server = scene.server
    server.sql(*narrow_account(server), f"GRANT SELECT ON {scope} TO 'narrow'@'127.0.0.1'")
    with TableScene(server, user="narrow") as narrow:
        first = narrow.chunk("odd.fine", limits=ChunkLimits(rows=1))
        narrow.run("RENAME TABLE odd.fine TO odd.moved")
        for _ in range(2):
            with pytest.raises(UnreadableTable, match=r"no table odd\.fine any more") as raised:
                narrow.chunk("odd.fine", first.last)
            assert "GRANT" not in str(raised.value.hint)
        assert "odd.fine" not in listed(narrow)


def test_another_key_in_the_middle(scene: TableScene) -> None:
    first = scene.chunk("odd.fine", limits=ChunkLimits(rows=1))
    scene.run("ALTER TABLE odd.fine DROP PRIMARY KEY, ADD PRIMARY KEY (v, n)")
    with pytest.raises(UnreadableTable, match="does not fit the table's present key"):
        scene.chunk("odd.fine", first.last)
    assert len(scene.read("odd.fine")) == 2
    with pytest.raises(UnreadableTable, match="its bytes are no key"):
        scene.chunk("odd.fine", b"\xff\xff")


def narrow_account(server: DatabaseServer) -> tuple[str, ...]:
    """Statements that make an account which may read the log, and no table."""
    monitor = "BINLOG MONITOR" if server.flavour == "mariadb" else "REPLICATION CLIENT"
    return (
        "DROP USER IF EXISTS 'narrow'@'127.0.0.1'",
        f"CREATE USER 'narrow'@'127.0.0.1' IDENTIFIED BY '{server.password}'",
        f"GRANT REPLICATION SLAVE, {monitor} ON *.* TO 'narrow'@'127.0.0.1'",
    )


def test_tables_that_the_account_may_not_read(scene: TableScene) -> None:
    server = scene.server
    scene.run("CREATE TABLE odd.closed (n INT PRIMARY KEY, v INT)", "CREATE TABLE odd.half (n INT PRIMARY KEY, v INT)",
              "CREATE TABLE odd.written (n INT PRIMARY KEY, v INT)")  # fmt: skip
    server.sql(
        *narrow_account(server),
        "GRANT SELECT ON odd.fine TO 'narrow'@'127.0.0.1'",
        "GRANT SELECT (n) ON odd.half TO 'narrow'@'127.0.0.1'",
        "GRANT INSERT ON odd.written TO 'narrow'@'127.0.0.1'",
    )
    with TableScene(server, user="narrow") as narrow:
        found = listed(narrow)
        assert not found["odd.fine"].refused
        for name in ("closed", "half", "written"):
            refused = found[f"odd.{name}"].refused
            assert "may not read" in refused.text, name
            assert refused.hint == f"GRANT SELECT ON `odd`.`{name}` TO 'narrow'@'127.0.0.1';"
            with pytest.raises(UnreadableTable) as raised:
                narrow.chunk(f"odd.{name}")
            assert f"GRANT SELECT ON `odd`.`{name}`" in str(raised.value.hint)
        assert len(narrow.read("odd.fine")) == 2
        server.sql("REVOKE SELECT ON odd.fine FROM 'narrow'@'127.0.0.1'")
        with pytest.raises(UnreadableTable) as raised:
            narrow.chunk("odd.fine")
        assert "GRANT SELECT ON `odd`.`fine`" in str(raised.value.hint)


def test_a_table_that_is_named_and_hidden(scene: TableScene, tmp_path: Path) -> None:
    """The log has no change of it, and the server does not list it for want of a privilege."""
    server = scene.server
    grant = "GRANT SELECT ON odd.fine TO 'narrow'@'127.0.0.1'"
    server.sql("CREATE TABLE odd.hidden (n INT PRIMARY KEY)", *narrow_account(server), grant)
    options = SourceOptions("db", tmp_path, Sharding("log"), 1 << 26, 0, Login(server.password_file))
    with closing(MySqlTables(server.url.replace("wormhole@", "narrow@"), options)) as narrow:
        named = ("odd.hidden", "odd.fine", "odd.unwanted", "odd")
        found = {one.name: one for one in narrow.tables(lambda name: name != "odd.unwanted", named)}
        assert found.keys() == {"odd.hidden", "odd.fine"}
        assert "may not read its rows, or see whether it is there" in found["odd.hidden"].refused.text
        assert found["odd.hidden"].refused.hint == "GRANT SELECT ON `odd`.`hidden` TO 'narrow'@'127.0.0.1';"
        assert [one.name for one in narrow.tables("odd.hidden".__eq__)] == []
        server.sql("GRANT SELECT ON odd.* TO 'narrow'@'127.0.0.1'")
        assert [one.name for one in narrow.tables(lambda _: True, ("odd.not_there",))] == ["odd.fine", "odd.hidden"]


def test_grants_are_read_as_the_server_applies_them(database_server: DatabaseServer) -> None:
    server, account = database_server, "'narrow'@'127.0.0.1'"
    databases = ("gr_a", "grxa", "gr_ab", "gr_b", "gr_c")
    server.sql(
        *(f"DROP DATABASE IF EXISTS {name}" for name in databases),
        *(f"CREATE DATABASE {name}" for name in databases),
        *(f"CREATE TABLE {name}.{table} (n INT PRIMARY KEY, v INT)" for name in databases for table in ("s", "t")),
        *narrow_account(server),
        "DROP ROLE IF EXISTS gr_reader",
        "CREATE ROLE gr_reader",
        "GRANT SELECT ON gr_c.s TO gr_reader",
        rf"GRANT SELECT ON `gr\_a`.* TO {account}",
        f"GRANT SELECT ON `gr_a_`.* TO {account}",
        f"GRANT SELECT ON gr_b.s TO {account}",
        f"GRANT SELECT (n) ON gr_b.t TO {account}",
        f"GRANT gr_reader TO {account}",
        f"SET DEFAULT ROLE gr_reader {'FOR' if server.flavour == 'mariadb' else 'TO'} {account}",
    )
    address = parse(server.url.replace("wormhole@", "narrow@"), password_file=server.password_file)
    with closing(connect(address)) as connection:
        held = select_grants(read_settings(connection))
        for name in databases:
            for table in ("s", "t"):
                assert held.covers_table(name, table) == may_select(connection, name, table), (name, table, held)
        assert held.columns == {("gr_b", "t")}
        assert held.lacking(["gr_a.*", "grxa.*", "gr_c.s"]) == ["grxa.*"]
    server.sql(*(f"DROP DATABASE {name}" for name in databases))


def may_select(connection: Connection[Any], database: str, table: str) -> bool:
    """Whether the server lets the account read all of the table."""
    try:
        query(connection, f"SELECT * FROM {database}.{table} WHERE FALSE")
    except UsageError:
        return False
    return True


def test_tables_of_which_nothing_or_the_history_is_delivered(
    database_server: DatabaseServer, scene: TableScene
) -> None:
    settings = {"skip_tables": frozenset({"odd.fine"}), "history_tables": frozenset({"odd.old"})}
    scene.run("CREATE TABLE odd.old (n INT PRIMARY KEY)")
    with TableScene(database_server, **settings) as other:  # type: ignore[arg-type]
        found = listed(other)
        assert "skip_tables" in found["odd.fine"].refused.text
        assert "history_tables" in found["odd.old"].refused.text


@pytest.mark.parametrize("flavour", ["mysql"])
def test_mysql_without_gtids(new_server: NewServer) -> None:
    with TableScene(new_server(gtid_mode="OFF", enforce_gtid_consistency="OFF")) as scene:
        scene.run("CREATE DATABASE odd", *READABLE)
        (table,) = listed(scene).values()
        assert "gtid_mode is OFF" in table.refused.text
        assert "gtid_mode = OFF_PERMISSIVE" in table.refused.hint
        with pytest.raises(UnreadableTable, match="gtid_mode is OFF"):
            scene.chunk("odd.fine")


def test_the_tables_of_another_server(
    scene: TableScene, new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places mean nothing in the log."""
    monkeypatch.setattr(snapshot, "_PATIENCE_S", 0.1)
    second = new_server(server_id="2")
    second.sql("CREATE DATABASE odd", *READABLE)
    scene.tables._url = second.url  # type: ignore[attr-defined]
    with pytest.raises(SourceUnavailable, match="the log is read from another one"):
        scene.chunk("odd.fine")


def test_a_call_that_is_interrupted(scene: TableScene) -> None:
    """The statement waits for a lock; the one who waits for its answer is told at once."""
    scene.run("CREATE TABLE odd.locked (n INT PRIMARY KEY)")
    raised: list[BaseException] = []

    def read() -> None:
        try:
            scene.chunk("odd.locked")
        except SourceUnavailable as error:
            raised.append(error)

    waiting = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'wormhole' AND STATE LIKE '%metadata lock%'"
    )
    scene.chunk("odd.locked")
    with scene.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES odd.locked WRITE")
        reader = threading.Thread(target=read)
        reader.start()
        while scene.server.sql(waiting) != [(1,)]:
            assert reader.is_alive()
        scene.tables.interrupt()
        reader.join(30)
        cursor.execute("UNLOCK TABLES")
    assert "was interrupted" in str(raised[0])
    assert scene.chunk("odd.locked").done


def test_a_table_that_somebody_locks(scene: TableScene) -> None:
    scene.chunk("odd.fine")
    with scene.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES odd.fine WRITE")
        with pytest.raises(SourceUnavailable, match="found no row within 1 s") as raised:
            scene.chunk("odd.fine")
        assert "look for a lock on the table" in str(raised.value.hint)
        cursor.execute("UNLOCK TABLES")
    assert len(scene.read("odd.fine")) == 2


def test_a_connection_that_ends(scene: TableScene) -> None:
    scene.chunk("odd.fine")
    for (one,) in scene.server.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'wormhole'"):
        try:
            scene.server.sql(f"KILL {one}")
        except Exception:  # it ended by itself
            continue
    with pytest.raises(SourceUnavailable):
        scene.chunk("odd.fine")
    assert len(scene.read("odd.fine")) == 2
