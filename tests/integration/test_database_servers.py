"""The private servers themselves: what other tests rely on, and that nothing of one outlives its owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pymysql
import pytest

from examples.demo.mariadb import MariaDbServer
from scripts.prepare import ROOT
from tests.support.databases import DatabaseServer, NewServer, start_server
from tests.support.eventually import PATIENCE_S, until
from tests.support.mysql_server import MySqlServer
from wormhole.model.errors import ConfigError, SourceUnavailable


def test_the_publishers_account_has_its_rights_and_no_more(database_server: DatabaseServer) -> None:
    grants = " ".join(row[0] for row in database_server.sql("SHOW GRANTS FOR 'wormhole'@'127.0.0.1'"))
    rights = grants.partition(" ON ")[0].removeprefix("GRANT ")
    assert set(rights.split(", ")) == set(database_server.rights.split(", "))
    connection = database_server.connect(database_server.user, database_server.password)
    with connection, connection.cursor() as cursor, pytest.raises(pymysql.err.OperationalError, match="denied"):
        cursor.execute("CREATE DATABASE not_mine")
    assert database_server.password_file.read_text().strip() == database_server.password
    assert database_server.password_file.stat().st_mode & 0o077 == 0


def test_it_listens_on_loopback_only_and_reads_no_option_file(database_server: DatabaseServer) -> None:
    assert database_server.sql("SELECT @@bind_address") == [("127.0.0.1",)]
    arguments = Path(f"/proc/{database_server.pid}/cmdline").read_bytes().split(b"\0")
    assert b"--no-defaults" in arguments


def test_two_servers_have_histories_of_their_own(new_server: NewServer) -> None:
    first, second = new_server(), new_server(binlog_row_image="MINIMAL")
    first.sql("CREATE DATABASE here")
    assert ("here",) not in second.sql("SHOW DATABASES")
    assert [server.sql("SELECT @@binlog_row_image")[0][0] for server in (first, second)] == ["FULL", "MINIMAL"]
    identity = "SELECT @@server_uuid" if first.flavour == "mysql" else "SELECT @@port"
    assert first.sql(identity) != second.sql(identity)


def test_what_was_committed_survives_kill_nine_and_a_closed_one_leaves_nothing(new_server: NewServer) -> None:
    server = new_server()
    port = server.port
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t (i INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1), (2)")
    server.kill()
    assert server.pid == 0
    with pytest.raises(pymysql.err.OperationalError):
        server.sql("SELECT 1")
    server.start()
    assert server.port == port
    assert server.sql("SELECT i FROM d.t") == [(1,), (2,)]
    assert len(server.binlogs) == 2
    assert all(file.exists() for file in server.binlogs)
    server.restart(max_connections="17")
    assert server.sql("SELECT @@max_connections") == [(17,)]
    folder = server.folder
    server.close()
    assert not folder.exists()


def test_its_programs_talk_to_it(database_server: DatabaseServer) -> None:
    database_server.sql("CREATE DATABASE IF NOT EXISTS told", "CREATE OR REPLACE VIEW told.one AS SELECT 1 AS i")
    assert database_server.client("client", "-N", "-e", "SELECT i FROM told.one") == b"1\n"
    assert b"VIEW `one`" in database_server.client("dump", "told")
    name = database_server.binlogs[-1].name
    assert b"CREATE DATABASE IF NOT EXISTS told" in database_server.client("binlog", "--read-from-remote-server", name)


_OWNER = """\
import sys
from tests.support.databases import start_server
server = start_server(sys.argv[1])
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_owner(flavour: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(f"{flavour}_server")  # skips where there is none, and makes the template
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, flavour], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert Path(folder, "data").exists()
        server = os.pidfd_open(int(pid))
        owner.send_signal(signal.SIGKILL)
    try:
        assert select.select([server], [], [], PATIENCE_S)[0], "the server outlives its owner"
    finally:
        os.close(server)
    # The guard removes it after the server's end, which is the last event that is seen from here.
    until(lambda: not Path(folder).exists(), f"{folder} stays")


def test_a_machine_without_the_server_gets_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("examples.demo.mariadb._PLACES", str(tmp_path))
    with pytest.raises(ConfigError, match="mariadbd") as refused:
        MariaDbServer().start()
    assert "apt-get install" in str(refused.value)
    monkeypatch.setattr("tests.support.mysql_server._ROOT", tmp_path)
    with pytest.raises(ConfigError):
        MySqlServer().start()


def test_a_server_that_does_not_come_up_shows_its_own_words(
    mariadb_server: DatabaseServer,
) -> None:
    with pytest.raises(SourceUnavailable, match="unknown variable 'no-such-option=1'"):
        start_server("mariadb", no_such_option="1")
