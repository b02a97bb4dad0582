"""A SQL mirror that is open."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from sinks.port import Sink
from sinks.sql.database import Database
from sinks.sql.handler import MirrorHandler
from sinks.sql.owners import targets
from sinks.sql.settings import DuckDbSettings, SqlSettings
from subscriber_sdk import Subscriber
from subscriber_sdk.transactional import Transactional
from subscriber_sdk.transactional.store import finish
from wormhole.model.errors import TargetUnavailable
from wormhole.model.findings import Report, Severity

__all__ = ["SqlSink"]


class SqlSink(Sink):
    """See the port."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._database = _database(settings)
        handler = MirrorHandler(self._database, settings)
        self._subscriber = Transactional(handler, self._database.store)
        self.figures = handler.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        return await asyncio.to_thread(self._examined)

    def _examined(self) -> Report:
        report = Report(self._settings.url)
        database = self._database
        try:
            session = finish(database.store.connect())
            try:
                found = targets(database, session.connection)
            finally:
                finish(session.close())
        except Exception as error:
            raise TargetUnavailable(f"{self._settings.url} cannot be used: {error}") from error
        report.facts["dialect"] = database.dialect.value
        for name, owner, source in found:
            report.add("target_tables", Severity.OK, f"{name} is filled from {source} by {owner}")
        if not found:
            report.add("target_tables", Severity.OK, "no table is filled yet; each is made with its first row")
        return report


def _database(settings: SqlSettings) -> Database:
    scheme = urlsplit(settings.url).scheme
    if scheme.startswith("postgres"):
        from sinks.sql.postgres import Postgres

        return Postgres(settings.url, settings.read_password)
    if isinstance(settings, DuckDbSettings):
        from sinks.sql.duckdb import DuckDb

        return DuckDb(settings.path, settings.memory)
    from sinks.sql.rows import MySql, Sqlite

    return Sqlite(settings.url) if scheme == "sqlite" else MySql(settings.url, settings.read_password)
