"""A PostgreSQL database's log and its tables, read side by side."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datastores.postgres.existing_rows.source import PostgresTables
from datastores.postgres.log import slots
from datastores.postgres.source import PostgresSource
from tests.support.eventually import until
from tests.support.postgres_server import PostgresServer
from tests.support.table_scene import Scene
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

__all__ = ["ALL_TABLES", "PostgresScene", "waiting_commit"]

ALL_TABLES = "FOR ALL TABLES WITH (publish_via_partition_root = true)"


class PostgresScene(Scene):
    """A scene of one database, which gets the statements, a publication and slots. ``user``: who reads the tables."""

    def __init__(
        self,
        server: PostgresServer,
        database: str,
        *statements: str,
        publication: str = ALL_TABLES,
        user: str = "",
        max_update_bytes: int = 1 << 26,
        sharding: Sharding = Sharding("log"),  # noqa: B008 - frozen
        skip_tables: frozenset[str] = frozenset(),
    ) -> None:
        self.server, self.database = server, database
        folder = Path(tempfile.mkdtemp())
        name = f"of_{database}"
        server.sql(*statements, f"CREATE PUBLICATION {name} {publication}", database=database)
        server.sql(*slots.create_statements(name), database=database)
        url = f"{server.url(database)}?publication={name}&slot={name}"
        self.options = SourceOptions(
            "db", folder, sharding, max_update_bytes, 0, Login(server.password_file), skip_tables=skip_tables
        )
        self.url = url.replace(f"//{server.user}@", f"//{user}@") if user else url
        self.source: PostgresSource
        super().__init__(PostgresSource(url, self.options), PostgresTables(self.url, self.options), folder)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements as the superuser."""
        return self.server.sql(*statements, database=self.database)

    def run(self, *statements: str) -> None:
        """Write, and read the log up to there."""
        self.sql(*statements)
        self.follow()

    def notice(self) -> None:
        """Have the source look at its tables now, and read the log up to its end."""
        self.source._looks_again_s = 0.0
        self.source._look_at_tables()
        self.follow()

    def follow(self) -> Datamarker:
        """Read the log up to its end."""
        end = self.source.latest().order
        until(lambda: self._reads((end.file, end.offset)), f"the reader does not reach {end}")
        return self.marker


@contextlib.contextmanager
def waiting_commit(server: PostgresServer, database: str, *statements: str) -> Iterator[None]:
    """Within the block, a transaction of these statements is in the log and not visible: its commit waits for a
    standby, and there is none."""
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    until(lambda: server.sql("SHOW synchronous_standby_names") == [("nobody",)], "the setting is not there")
    server.sql("CHECKPOINT")  # commits wait once the checkpointer has read the setting, which it does before its work
    writing = threading.Thread(target=lambda: server.sql(*statements, database=database))
    writing.start()
    try:
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: server.sql(waits) == [(1,)], "the commit does not wait for a standby")
        yield
    finally:
        server.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        writing.join()
