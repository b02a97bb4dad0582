"""What tests rely on of the private PostgreSQL; what all kinds have is in `tests/contract/test_private_server.py`."""

from __future__ import annotations

import psycopg
import pytest

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
