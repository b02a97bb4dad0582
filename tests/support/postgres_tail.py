"""Sources over databases of PostgreSQL; a pytest plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from datastores.postgres.log import reader
from datastores.postgres.source import PostgresSource
from tests.support.postgres_harness import prepare_database, source_of
from tests.support.postgres_server import NewPostgres, PostgresServer

__all__ = ["NewShop", "NewSource"]

NewSource = Callable[..., PostgresSource]
NewShop = Callable[..., PostgresServer]


@pytest.fixture(scope="module")
def quick_end() -> Iterator[None]:
    """No reading of this module waits for the end of an idle log, which is behind the last transaction."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "_IDLE_S", 0.01)
        yield


@pytest.fixture
def new_source(tmp_path: Path) -> Iterator[NewSource]:
    """Makes sources, whose state is in ``state`` of the test's folder, and stops them in the end."""
    with ExitStack() as stack:

        def make(server: PostgresServer, database: str = "shop", state: str = "state", **more: Any) -> PostgresSource:
            source = source_of(server, database, tmp_path / state, **more)
            stack.callback(source.stop)
            return source

        yield make


@pytest.fixture
def new_shop_postgres(new_postgres: NewPostgres) -> NewShop:
    """A server of the test's own that has the table ``t`` in the database ``shop``."""

    def make(**options: Any) -> PostgresServer:
        server = new_postgres(**options)
        prepare_database(server, "shop", "CREATE TABLE t (k int PRIMARY KEY, v text)")
        return server

    return make
