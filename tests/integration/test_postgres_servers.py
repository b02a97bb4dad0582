"""The private PostgreSQL server itself: what other tests rely on, and that nothing of one outlives its owner."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from scripts.prepare import ROOT
from tests.support.eventually import until
from tests.support.postgres_server import NewPostgres, PostgresServer
from tests.support.postgres_types import VERSION


def test_the_publishers_account_reads_and_replicates_and_no_more(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    postgres_server.sql("CREATE TABLE t (i int)", "INSERT INTO t VALUES (1)", database=postgres_database)
    with postgres_server.connect(postgres_database, postgres_server.user, postgres_server.password) as connection:
        assert connection.execute("SELECT i FROM t").fetchall() == [(1,)]
        made = ["CREATE TABLE mine (i int)"] if VERSION >= 15 else []  # before that everybody may, in `public`
        for statement in ("INSERT INTO t VALUES (2)", *made):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    rights = f"SELECT rolsuper, rolreplication FROM pg_roles WHERE rolname = '{postgres_server.user}'"
    assert postgres_server.sql(rights) == [(False, True)]
    assert postgres_server.password_file.read_text().strip() == postgres_server.password
    assert postgres_server.password_file.stat().st_mode & 0o077 == 0


def test_it_listens_on_loopback_only_and_wants_the_password(postgres_of_each: PostgresServer) -> None:
    assert postgres_of_each.sql("SHOW listen_addresses") == [("127.0.0.1",)]
    with pytest.raises(psycopg.OperationalError, match="password"):
        postgres_of_each.connect(user=postgres_of_each.user, password="another")


def test_a_server_of_the_version_that_a_test_needs(new_postgres: NewPostgres) -> None:
    assert new_postgres(version=18).sql("SHOW server_version")[0][0].startswith("18.")


def test_what_was_committed_survives_kill_nine_and_a_closed_one_leaves_nothing(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    port = server.port
    server.sql("CREATE TABLE t (i int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    server.kill()
    with pytest.raises(psycopg.OperationalError):
        server.sql("SELECT 1")
    server.start()
    assert server.port == port
    assert server.sql("SELECT i FROM t ORDER BY i") == [(1,), (2,)]
    folder = server.folder
    server.close()
    assert not folder.exists()


def test_it_dies_with_its_owner() -> None:
    program = (
        "from tests.support.postgres_server import PostgresServer\n"
        "server = PostgresServer(); server.start()\n"
        "print(server.pid, server.folder, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        owner.kill()
        assert select.select([handle], [], [], 60)[0], "the server outlived its owner"
        os.close(handle)
    until(lambda: not Path(folder).exists(), "its folder was left")
