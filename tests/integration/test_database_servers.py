"""What tests rely on of the private MariaDB and MySQL; what all kinds have is in
`tests/contract/test_private_server.py`."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from examples.demo.mariadb import MariaDbServer
from tests.support.databases import DatabaseServer, NewServer
from tests.support.mysql_server import MySqlServer
from wormhole.model.errors import ConfigError


def test_the_publishers_account_has_its_rights_and_no_more(database_server: DatabaseServer) -> None:
    grants = " ".join(row[0] for row in database_server.sql("SHOW GRANTS FOR 'wormhole'@'127.0.0.1'"))
    rights = grants.partition(" ON ")[0].removeprefix("GRANT ")
    assert set(rights.split(", ")) == set(database_server.rights.split(", "))
    connection = database_server.connect(database_server.user, database_server.password)
    with connection, connection.cursor() as cursor, pytest.raises(pymysql.err.OperationalError, match="denied"):
        cursor.execute("CREATE DATABASE not_mine")
    assert database_server.password_file.read_text().strip() == database_server.password
    assert database_server.password_file.stat().st_mode & 0o077 == 0


def test_it_reads_no_option_file(database_server: DatabaseServer) -> None:
    arguments = Path(f"/proc/{database_server.pid}/cmdline").read_bytes().split(b"\0")
    assert b"--no-defaults" in arguments


def test_two_servers_have_histories_of_their_own(new_server: NewServer) -> None:
    first, second = new_server(), new_server(binlog_row_image="MINIMAL")
    first.sql("CREATE DATABASE here")
    assert ("here",) not in second.sql("SHOW DATABASES")
    assert [server.sql("SELECT @@binlog_row_image")[0][0] for server in (first, second)] == ["FULL", "MINIMAL"]
    identity = "SELECT @@server_uuid" if first.flavour == "mysql" else "SELECT @@port"
    assert first.sql(identity) != second.sql(identity)


def test_it_starts_again_with_other_options_and_another_binlog(new_server: NewServer) -> None:
    server = new_server()
    server.restart(max_connections="17")
    assert server.sql("SELECT @@max_connections") == [(17,)]
    assert len(server.binlogs) == 2
    assert all(file.exists() for file in server.binlogs)


def test_its_programs_talk_to_it(database_server: DatabaseServer) -> None:
    database_server.sql("CREATE DATABASE IF NOT EXISTS told", "CREATE OR REPLACE VIEW told.one AS SELECT 1 AS i")
    assert database_server.client("client", "-N", "-e", "SELECT i FROM told.one") == b"1\n"
    assert b"VIEW `one`" in database_server.client("dump", "told")
    name = database_server.binlogs[-1].name
    assert b"CREATE DATABASE IF NOT EXISTS told" in database_server.client("binlog", "--read-from-remote-server", name)


def test_a_machine_without_the_server_gets_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("examples.demo.mariadb._PLACES", str(tmp_path))
    with pytest.raises(ConfigError, match="mariadbd") as refused:
        MariaDbServer().start()
    assert "apt-get install" in str(refused.value)
    monkeypatch.setattr("tests.support.mysql_server._ROOT", tmp_path)
    with pytest.raises(ConfigError):
        MySqlServer().start()
