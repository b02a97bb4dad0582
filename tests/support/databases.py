"""Real MariaDB and MySQL servers: one of each for the whole run, and fresh ones for tests that need their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from examples.demo.database_server import DatabaseServer
from examples.demo.mariadb import MariaDbServer
from tests.support.data_folders import kept_data
from tests.support.eventually import until
from tests.support.mysql_server import MySqlServer
from wormhole.model.errors import ConfigError

__all__ = [
    "DURABLE",
    "FLAVOURS",
    "DatabaseServer",
    "MariaDbServer",
    "MySqlServer",
    "NewServer",
    "begin_log",
    "database_server",
    "flavour",
    "mariadb_server",
    "mysql_server",
    "new_database_server",
    "new_server",
    "purge",
    "start_server",
    "template",
]

FLAVOURS: Final[Mapping[str, type[DatabaseServer]]] = {"mariadb": MariaDbServer, "mysql": MySqlServer}

DURABLE: Final[Mapping[str, str | None]] = {"sync-binlog": "1", "innodb-flush-log-at-trx-commit": "1"}
"""What a real server should have; the private ones do without, since what they commit survives ``kill -9`` all the
same."""

_FIXED: Final = ("lower-case-table-names",)
"""Options that a data folder has from its making on."""

NewServer = Callable[..., DatabaseServer]


def template(flavour: str, options: Mapping[str, str | None] | None = None) -> Path:
    """The flavour's data folder, ready to be copied, of this version of the server and ``options``."""
    server = FLAVOURS[flavour](options=options)
    return kept_data(server, server.version, server.options, server.rights)


def new_database_server(flavour: str, **options: str | None) -> DatabaseServer:
    """A new server, not started. ``options``: its, with underscores for dashes. Skips without the server."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    fixed = {name: value for name, value in named.items() if name in _FIXED}
    return FLAVOURS[flavour](options=named, template=_template(flavour, fixed))


def start_server(flavour: str, **options: str | None) -> DatabaseServer:
    """The same, started; whoever asked closes it."""
    return new_database_server(flavour, **options).__enter__()


def purge(server: DatabaseServer) -> None:
    """Delete all binlogs but the newest."""

    def one_left() -> bool:  # a file that a closed reader was in is free with the next heartbeat
        server.sql(f"PURGE BINARY LOGS TO '{server.binlogs[-1].name}'")
        return len(server.binlogs) == 1

    until(one_left, "the server does not purge")


def begin_log(server: DatabaseServer) -> None:
    """Delete all binlogs. The log begins anew, and so do the numbers of its transactions."""
    server.sql("RESET MASTER" if server.flavour == "mariadb" else "RESET BINARY LOGS AND GTIDS")


def _template(flavour: str, options: Mapping[str, str | None]) -> Path:
    try:
        return template(flavour, options)
    except ConfigError as error:  # no such server here; in CI a skip is a failure
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[DatabaseServer]:
    """The MariaDB that tests share: each works in databases of its own, and changes no setting for others."""
    with start_server("mariadb") as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[DatabaseServer]:
    """The MySQL that tests share, under the same rules."""
    with start_server("mysql") as server:
        yield server


@pytest.fixture(params=list(FLAVOURS))
def flavour(request: pytest.FixtureRequest) -> str:
    """Every flavour in turn."""
    return str(request.param)


@pytest.fixture
def database_server(flavour: str, request: pytest.FixtureRequest) -> DatabaseServer:
    """The shared server of every flavour in turn."""
    server = request.getfixturevalue(f"{flavour}_server")
    assert isinstance(server, DatabaseServer)
    return server


@pytest.fixture
def new_server(flavour: str) -> Iterator[NewServer]:
    """``new_server(gtid_mode="OFF")``: a server of the test's own, of every flavour in turn; ended with the test."""
    servers: list[DatabaseServer] = []

    def started(**options: str | None) -> DatabaseServer:
        servers.append(start_server(flavour, **options))
        return servers[-1]

    yield started
    for server in servers:
        server.close()
