"""Private PostgreSQL servers for tests: one for the whole run, and fresh ones for tests that need their own."""

from __future__ import annotations

import contextlib
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
import pytest

from examples.demo.postgres_server import ACCOUNTS, PostgresServer
from tests.support.data_folders import kept_data
from tests.support.eventually import PATIENCE_S
from wormhole.model.errors import ConfigError

__all__ = [
    "VERSIONS",
    "NewPostgres",
    "PostgresServer",
    "new_database",
    "new_postgres",
    "postgres_database",
    "postgres_of_each",
    "postgres_server",
    "small_segments",
    "template",
]

VERSIONS: Final = (None, 18)
"""What tests of every version run on: the server that the machine has, and the one that ``make prepare`` unpacks."""
_POLL_S: Final = 0.02


def template(version: int | None = None) -> Path:
    """A data folder ready to be copied. Skips without the server. ``version``: a major one, if not that of the server
    that the machine has."""
    try:
        server = PostgresServer(version=version)
    except ConfigError as error:  # no such server here; in CI a skip is a failure
        pytest.skip(str(error))
    version_words = [*server.program("postgres"), "--version"]
    found = subprocess.run(version_words, check=True, capture_output=True, text=True, env=server.environment).stdout
    return kept_data(server, found, server.options, ACCOUNTS, server.user, server.password)


def small_segments(server: PostgresServer) -> None:
    """Let a server that was started have files of 1 MiB in ``pg_wal``, and keep no more of them than it must. Before
    there are slots.
    """
    server.stop()
    owner = server.data.stat()
    subprocess.run(
        [*server.program("pg_resetwal"), "--wal-segsize=1", "-D", str(server.data)],
        check=True,
        capture_output=True,
        env=server.environment,
        cwd="/",
        user=owner.st_uid,
        group=owner.st_gid,
    )
    server.options.update(min_wal_size="2MB", max_wal_size="8MB")
    server.start()


class NewPostgres:
    """Starts servers for one test, and closes them with it."""

    def __init__(self) -> None:
        self._servers = contextlib.ExitStack()

    def __call__(self, *, version: int | None = None, **options: str) -> PostgresServer:
        """One more; all of one run and version are copies of one, and so have one system id."""
        server = PostgresServer(options=options, template=template(version), version=version)
        return self._servers.enter_context(server)

    def close(self) -> None:
        """End them all."""
        self._servers.close()


@pytest.fixture
def new_postgres() -> Iterator[NewPostgres]:
    """Servers that this test may do everything with."""
    made = NewPostgres()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server that tests share: each works in a database of its own, and changes no setting for others."""
    with PostgresServer(template=template()) as server:
        yield server


@pytest.fixture(scope="session")
def _postgres_18() -> Iterator[PostgresServer]:
    with PostgresServer(template=template(18), version=18) as server:
        yield server


@pytest.fixture(params=VERSIONS, ids=lambda version: f"postgres-{version}" if version else "postgres")
def postgres_of_each(request: pytest.FixtureRequest) -> PostgresServer:
    """The shared server of every version in turn, under the same rules."""
    server = request.getfixturevalue(f"_postgres_{request.param}" if request.param else "postgres_server")
    assert isinstance(server, PostgresServer)
    return server


@contextlib.contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    """The name of an empty database. What holds on to it goes with it."""
    spare = _spare.setdefault(server, [])
    if spare:
        name = spare.pop()
    else:
        name = f"test_{uuid.uuid4().hex[:12]}"
        server.sql(f"CREATE DATABASE {name}")
    yield name
    with server.connect(name) as connection:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
        slots = connection.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        for (slot,) in slots.fetchall():
            _drop_slot(connection, slot)
        kept = _emptied(connection)
    if kept:
        spare.append(name)
    else:
        server.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


_spare: Final = WeakKeyDictionary[PostgresServer, list[str]]()
"""Databases that are empty again: to make one, a server writes three hundred files."""
_EMPTY: Final = """DO $$ DECLARE statement text; BEGIN
    FOR statement IN SELECT format('DROP PUBLICATION %I', pubname) FROM pg_publication
        UNION ALL SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
            WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP EXECUTE statement; END LOOP;
END $$"""
_NOT_NEW: Final = """SELECT 1 FROM pg_extension WHERE extname <> 'plpgsql' UNION ALL SELECT 1 FROM pg_event_trigger
    UNION ALL SELECT 1 FROM pg_database LEFT JOIN pg_db_role_setting ON setdatabase = pg_database.oid
        WHERE datname = current_database() AND (datacl IS NOT NULL OR setconfig IS NOT NULL)"""


def _emptied(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Empty its database. Returns whether it is as a new one."""
    if connection.execute(_NOT_NEW).fetchall() or connection.info.server_version < 150000:
        return False
    connection.execute(_EMPTY)
    connection.execute("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
    connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    return True


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """A new database of the shared server."""
    with new_database(postgres_server) as name:
        yield name


def _drop_slot(connection: psycopg.Connection[tuple[Any, ...]], slot: str) -> None:
    """A walsender that was just ended lets go of its slot a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        except psycopg.errors.UndefinedObject:
            return  # it was temporary
