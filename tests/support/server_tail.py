"""Sources over real servers, and what is read with them; a pytest plugin."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from publisher.sources import DISK_BUDGET, MAX_UPDATE_BYTES, open_with
from tests.support.databases import DatabaseServer, NewServer, begin_log, start_server
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.source_state import SourceState
from wormhole.ports.testing.reading import Read, read_log


@dataclass
class Tail:
    """A source over a server, and what was read with it. ``shared``: what it shares with those of other hosts."""

    server: DatabaseServer
    state: Path
    sharding: Sharding = field(default_factory=lambda: Sharding("log"))
    server_ids: str = ""
    skip_tables: frozenset[str] = frozenset()
    binlog_folder: Path | None = None
    shared: SourceState | None = None

    def __post_init__(self) -> None:
        options = SourceOptions(
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            max_update_bytes=MAX_UPDATE_BYTES,
            disk_budget=DISK_BUDGET,
            server_ids=self.server_ids,
            skip_tables=self.skip_tables,
            login=Login(self.server.password_file),
            binlog_folder=self.binlog_folder,
            state=self.shared,
        )
        self.source: LogSource = open_with(self.server.url, options)
        self.source.start()

    def read(self, start: Datamarker, max_bytes: int = 1 << 20) -> Read:
        return read_log(self.source, start, max_bytes)

    def stop(self) -> None:
        self.source.stop()


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[Callable[..., Tail]]:
    made: list[Tail] = []

    def make(server: DatabaseServer, sharding: Sharding | None = None, state: str = "state", **more: Any) -> Tail:
        made.append(Tail(server, tmp_path / state, sharding or Sharding("log"), **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def new_shop(new_server: NewServer) -> Callable[..., DatabaseServer]:
    """A server of the test's own that has the table ``shop.t``."""

    def make(**options: str) -> DatabaseServer:
        server = new_server(**options)
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        return server

    return make


@pytest.fixture(scope="module")
def _own_servers() -> Iterator[dict[str, DatabaseServer]]:
    servers: dict[str, DatabaseServer] = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def own_shop(flavour: str, _own_servers: dict[str, DatabaseServer]) -> DatabaseServer:
    """A server of every flavour that the tests of one file may reset and stop, one after the other. Its log begins
    anew, and it has the table ``shop.t``.
    """
    server = _own_servers.get(flavour) or _own_servers.setdefault(flavour, start_server(flavour))
    server.start()
    server.sql("DROP DATABASE IF EXISTS shop")
    begin_log(server)
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    return server


@pytest.fixture
def shop(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own on the shared server."""
    name = f"shop_{zlib.crc32(request.node.name.encode())}"
    database_server.sql(f"CREATE DATABASE {name}")
    yield name
    database_server.sql(f"DROP DATABASE IF EXISTS {name}")
