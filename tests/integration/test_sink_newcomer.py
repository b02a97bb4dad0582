"""A newcomer's mirror: three commands from a MariaDB with rows to a PostgreSQL table that verifies."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from scripts.prepare import ROOT
from sinks.sql.kind import POSTGRES
from sinks.sql.settings import SqlSettings
from tests.support.eventually import PATIENCE_S
from tests.support.postgres_server import PostgresServer

ROWS = 500


def typed(folder: Path, line: str) -> str:
    """What the command prints; it has to succeed."""
    command = [sys.executable, "-m", *shlex.split(line)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def source(mariadb_server: DatabaseServer, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with a table; its password is in a file."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    user = f"w_{uuid.uuid4().hex[:8]}"
    mariadb_server.sql(f"CREATE DATABASE {name}")
    mariadb_server.sql("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(40))", database=name)
    mariadb_server.sql(f"INSERT INTO orders SELECT seq, CONCAT('status ', seq) FROM seq_1_to_{ROWS}", database=name)
    mariadb_server.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'open-sesame'")
    mariadb_server.sql(f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}@'%'")
    secret = tmp_path / "source.password"
    secret.write_text("open-sesame\n")
    secret.chmod(0o600)
    yield f"mariadb://{user}@{mariadb_server.host}:{mariadb_server.port}/{name}"
    mariadb_server.sql(f"DROP USER {user}@'%'")
    mariadb_server.sql(f"DROP DATABASE {name}")


def test_a_table_is_mirrored_and_verifies(
    source: str, postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    at = f"postgresql://postgres@{postgres_server.host}:{postgres_server.port}/{postgres_database}?sslmode=disable"
    out = typed(tmp_path, f"wormholectl init {source} --to '{at}' --password-file source.password")
    commands = [line.partition("   #")[0].strip() for line in out.partition("Next:")[2].strip().splitlines()]
    (checked, started, shown, verified) = commands
    assert "the sink runs: CREATE TABLE" in typed(tmp_path, checked)
    typed(tmp_path, started)
    try:
        assert f"{ROWS} rows compared" in typed(tmp_path, f"{verified} --yes")
        assert "effects exactly once" in typed(tmp_path, shown)
    finally:
        typed(tmp_path, f"wormholectl down -f {started.split()[3]}")
    found = postgres_server.sql("SELECT count(*), min(status) FROM orders", database=postgres_database)
    assert [*found] == [(ROWS, "status 1")]


async def test_an_account_that_may_not_make_tables_is_reported(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    role = f"poor_{uuid.uuid4().hex[:8]}"
    postgres_server.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'open-sesame'")
    (tmp_path / "password").write_text("open-sesame\n")
    at = f"postgresql://{role}@{postgres_server.host}:{postgres_server.port}/{postgres_database}?sslmode=disable"
    settings = SqlSettings.model_validate({"url": at, "password_file": str(tmp_path / "password")})
    (finding,) = (await POSTGRES.open("mirror", settings).examine()).findings
    grant = f"GRANT CREATE ON SCHEMA public TO {role}"
    assert (finding.code, finding.next_step) == ("account-lacks-rights", grant)
    postgres_server.sql(grant, database=postgres_database)
    assert (await POSTGRES.open("mirror", settings).examine()).findings == []
