"""``wormholectl init`` for real datastores: what it writes runs as it is written, also where every name needs
quoting."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.pages import Reader
from tests.support.postgres_server import PostgresServer
from tests.support.rocks_writer import RocksWriter
from wormholectl.exit_codes import BROKEN

DATABASE = "my 'shop'*"
QUOTED = "my%20%27shop%27*"
MYSQL_TYPES = (
    "id INT PRIMARY KEY, price DECIMAL(10,2), big BIGINT UNSIGNED, part DOUBLE, flag BOOLEAN, name VARCHAR(40), "
    "raw VARBINARY(40), large LONGTEXT, doc JSON, day DATE, at DATETIME(6), made TIMESTAMP NULL, clock TIME, y YEAR, "
    "kind ENUM('a', 'b'), kinds SET('x', 'y'), bits BIT(9), gone INT"
)
MYSQL_ROW = (
    "12.50, 18446744073709551615, 0.1, TRUE, 'Adä \\n', X'00FF', REPEAT('v', 70000), '{\"a\": [1, null, 2.50]}', "
    "'2024-02-29', '2024-02-29 23:59:59.000001', '2024-02-29 12:00:00', '-838:59:59', 1999, 'b', 'x,y', 257, 1"
)
POSTGRES_TYPES = (
    "id int PRIMARY KEY, price numeric(10,2), big bigint, part float8, flag boolean, name text, raw bytea, large text, "
    "doc jsonb, day date, at timestamp, made timestamptz, clock time, span interval, tag uuid, list int[], "
    "address inet, gone int"
)
POSTGRES_ROW = (
    "12.50, -9223372036854775808, 0.1, true, 'Adä', '\\x00ff', repeat('v', 70000), '{\"a\": [1, null, 2.50]}', "
    "'2024-02-29', '2024-02-29 23:59:59.000001', '2024-02-29 12:00:00+02', '23:59:59', '1 day 2 hours', "
    "'6f1c0c3e-0f0b-4a0c-9a61-000000000001', '{1,NULL,3}', '10.0.0.1', 1"
)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Reader(tmp_path)


@pytest.fixture
def database(database_server: DatabaseServer) -> Iterator[DatabaseServer]:
    name = f"`{DATABASE}`"
    database_server.sql(
        f"DROP DATABASE IF EXISTS {name}",
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.`log` (id INT)",
        f"CREATE TABLE {name}.`us'ers` (id INT PRIMARY KEY, name VARCHAR(20))",
        "CREATE DATABASE IF NOT EXISTS `my 'shop' 2`",
        "CREATE TABLE IF NOT EXISTS `my 'shop' 2`.others (id INT PRIMARY KEY)",
    )
    yield database_server
    database_server.sql(f"DROP DATABASE {name}")  # `doctor` in other tests has a note about a table without a key


def test_a_server(database: DatabaseServer, reader: Reader) -> None:
    url = f"{database.flavour}://{database.user}@{database.host}:{database.port}/{QUOTED}"
    code, out, err = run("init", url, "--password-file", str(database.password_file))
    assert (code, err) == (BROKEN if "PROBLEM" in out else 0, "")
    assert f"2 tables in {DATABASE}: {DATABASE}.log, {DATABASE}.us'ers" in out
    assert f"""TABLE = "{DATABASE}.us'ers"\n""" in Path("test_subscriber.py").read_text()
    assert "no key" not in out
    assert "PROBLEM" not in out.replace("PROBLEM   foreign_keys", "")  # other tests' tables have it
    assert "First the account's password" not in out
    assert run("config", "check", "my-shop.toml")[0] == 0
    with (
        reader.running("wormholectl", "up", "-f", "my-shop.toml") as up,
        reader.running("python", "subscriber.py") as subscriber,
    ):
        up.says("flows given away")
        database.sql(
            "REPLACE INTO `my 'shop' 2`.others VALUES (1)",
            f"INSERT INTO `{DATABASE}`.`us'ers` VALUES (7, 'Ada')",
        )
        assert subscriber.says("us'ers") == f"insert {DATABASE}.us'ers 7\n"
        database.sql(f"TRUNCATE `{DATABASE}`.`us'ers`")  # to every shard, where it may be before the row is in its own
        subscriber.says("truncate")
        assert subscriber.printed[0] == f"insert {DATABASE}.us'ers 7\n"
        assert {*subscriber.printed[1:]} == {f"truncate {DATABASE}.us'ers\n"}


def test_tables_without_a_key(database: DatabaseServer, reader: Reader) -> None:
    database.sql(f"DROP TABLE `{DATABASE}`.`us'ers`")
    url = f"{database.flavour}://{database.user}@{database.host}:{database.port}/{QUOTED}"
    code, out, _ = run("init", url, "--password-file", str(database.password_file))
    assert (code, "no key    no table has a primary key: updates then have none" in out) == (
        BROKEN if "PROBLEM" in out else 0,
        True,
    )
    assert f'TABLE = "{DATABASE}.log"' in Path("test_subscriber.py").read_text()


def test_a_store(reader: Reader, tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "my 'store'")
    try:
        code, out, err = run(
            "init", f"rocksdb://{tmp_path}/my%20'store'", "--application", "my.app", "--dir", "my files"
        )
        assert (code, err) == (0, "")
        assert "1 column family: default" in out
        assert "PROBLEM" not in out
        assert run("config", "check", "my files/my-store.toml")[0] == 0
        assert "2 passed" in reader.shell("pytest 'my files/test_subscriber.py'")
        with (
            reader.running("wormholectl", "up", "-f", "my files/my-store.toml") as up,
            reader.running("python", "my files/subscriber.py") as subscriber,
        ):
            up.says("flows given away")
            writer.write([("put", "default", b"user:7", b"Ada"), ("delete", "default", b"user:7")])
            subscriber.says("delete default b'user:7'")
            assert subscriber.printed == ["upsert default b'user:7'\n", "delete default b'user:7'\n"]
    finally:
        writer.exit()


def test_an_account_that_is_refused(database_server: DatabaseServer, reader: Reader, tmp_path: Path) -> None:
    """Its password may only not be known yet."""
    url = f"{database_server.flavour}://{database_server.user}@{database_server.host}:{database_server.port}"
    code, out, _ = run("init", url)
    assert code == BROKEN
    assert "not seen" in out
    assert database_server.user in out
    assert f"(umask 077; cat > {database_server.flavour}.password)" in out
    assert (tmp_path / f"{database_server.flavour}.toml").exists()


def test_what_doctor_would_complain_about_is_said(reader: Reader, tmp_path: Path) -> None:
    RocksWriter(tmp_path / "store").exit()
    options = max(tmp_path.glob("store/OPTIONS-*"))
    text = options.read_text()
    assert "wal_compression=kNoCompression" in text
    options.write_text(text.replace("wal_compression=kNoCompression", "wal_compression=kSnappyCompression"))
    code, out, _ = run("init", f"rocksdb://{tmp_path}/store")
    assert code == BROKEN
    assert "PROBLEM   wal_compression" in out
    assert "next: use kZSTD" in out
    assert "wormholectl doctor rocksdb://" in out


def _kept_copies(
    reader: Reader,
    url: str,
    options: Sequence[str],
    names: tuple[str, str],
    change: Callable[[], object],
    administrator: Callable[[str], object] = str,
) -> None:
    """Two applications keep copies as they were written, each beside the other; ``change`` is made while both run.
    ``administrator``: runs a statement that ``init`` printed.
    """
    first, second = names
    for application, name in (("cache", first), ("search", second)):
        more = ["--log", name] if name != first and url.startswith("postgres") else []
        words = [*options, "--start", "existing", "--application", application, "--dir", application, *more]
        code, printed, err = run("init", url, *words)
        assert (code in (0, BROKEN), err) == (True, "")
        needed = printed.partition("needs these in the datastore:\n\n")[2].partition("\n\n")[0]
        for statement in needed.splitlines():
            administrator(statement.strip())
    assert " passed" in reader.shell("pytest cache/test_subscriber.py")
    files = {name: next(reader.folder.glob(f"{name}/*.toml")) for name in ("cache", "search")}
    assert len({re.findall(r'^one = "[^"]*"', file.read_text(), re.MULTILINE)[0] for file in files.values()}) == 2
    with ExitStack() as stack:
        for name, file in files.items():
            publisher = stack.enter_context(reader.running("wormholectl", "up", "-f", str(file)))
            stack.enter_context(reader.running("python", f"{name}/subscriber.py"))
            publisher.says("flows given away")
        for name, file in files.items():
            succeeds("backfill", "show", name, "-c", str(file), "--watch")
        change()
        for name, file in files.items():
            succeeds("verify", name, "-c", str(file), "--yes", "--repair")
            succeeds("verify", name, "-c", str(file), "--yes")


def succeeds(*words: str) -> None:
    code, out, err = run(*words)
    assert code == 0, out + err


def test_a_copy_of_every_type_is_equal_through_ddl(database_server: DatabaseServer, reader: Reader) -> None:
    sql, table = database_server.sql, "first_hour.things"
    sql(
        "DROP DATABASE IF EXISTS first_hour",
        "CREATE DATABASE first_hour",
        f"CREATE TABLE {table} ({MYSQL_TYPES}) CHARACTER SET utf8mb4",
        f"INSERT INTO {table} VALUES (1, {MYSQL_ROW}), (-2, {MYSQL_ROW})",
        f"INSERT INTO {table} (id) VALUES (3)",
    )

    def change() -> None:
        sql(
            f"INSERT INTO {table} VALUES (4, {MYSQL_ROW})",
            f"ALTER TABLE {table} DROP COLUMN gone, ADD COLUMN more DECIMAL(6,3) DEFAULT 1.5",
            f"UPDATE {table} SET id = 5, price = -0.01, raw = NULL WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 3",
        )

    url = f"{database_server.flavour}://{database_server.user}@{database_server.host}:{database_server.port}/first_hour"
    try:
        _kept_copies(reader, url, ["--password-file", str(database_server.password_file)], ("first", "second"), change)
        assert {kept(reader, name) for name in ("cache", "search")} == {(-2, 4, 5)}
    finally:
        sql("DROP DATABASE first_hour")


def test_a_copy_of_every_type_of_postgres_is_equal_through_ddl(
    postgres_server: PostgresServer, postgres_database: str, reader: Reader, tmp_path: Path
) -> None:
    def sql(*statements: str) -> None:
        for statement in statements:
            postgres_server.sql(statement, database=postgres_database)

    table = "things"
    sql(
        f"CREATE TABLE {table} ({POSTGRES_TYPES})",
        f"INSERT INTO {table} VALUES (1, {POSTGRES_ROW}), (-2, {POSTGRES_ROW})",
        f"INSERT INTO {table} (id) VALUES (3)",
    )

    def change() -> None:
        sql(
            f"INSERT INTO {table} VALUES (4, {POSTGRES_ROW})",
            f"ALTER TABLE {table} DROP COLUMN gone, ADD COLUMN more numeric(6,3) DEFAULT 1.5",
            f"UPDATE {table} SET id = 5, price = -0.01, raw = NULL WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 3",
        )

    url = postgres_server.url(postgres_database)
    _kept_copies(
        reader, url, ["--password-file", str(postgres_server.password_file)], (postgres_database, "second"), change, sql
    )
    assert {kept(reader, name) for name in ("cache", "search")} == {(-2, 4, 5)}


def test_a_copy_of_a_store_is_equal(reader: Reader, tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    try:
        writer.write([("put", "default", b"", b"of no key"), ("put", "default", b"b\xff", b"\x00\xff")])
        _kept_copies(
            reader,
            f"rocksdb://{tmp_path}/store",
            [],
            ("first", "second"),
            lambda: writer.write([("put", "default", b"c", b"new"), ("delete", "default", b"b\xff")]),
        )
    finally:
        writer.exit()


def kept(reader: Reader, application: str) -> tuple[object, ...]:
    """The keys of the copy, in order."""
    with closing(sqlite3.connect(reader.folder / application / "copy.db")) as copy:
        return tuple(sorted(json.loads(key)[0] for (key,) in copy.execute("SELECT key FROM rows")))
