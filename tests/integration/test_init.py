"""``wormholectl init`` for real datastores: what it writes runs as it is written, also where every name needs
quoting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.pages import Reader
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from wormholectl import init as init_command
from wormholectl.errors import BROKEN

DATABASE = "my 'shop'*"
QUOTED = "my%20%27shop%27*"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A port of their own: two tests that look for a free one at a time would find the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_command, "_LISTEN", free_port())
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
    assert "PROBLEM" not in out.replace("PROBLEM   foreign_keys", "")  # of other tests' tables
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
