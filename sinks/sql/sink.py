"""The open SQL mirror: its subscriber, and the examination of its target database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from sinks.port import Sink
from sinks.sql.database import Database
from sinks.sql.failures import refusal
from sinks.sql.handler import MirrorHandler
from sinks.sql.owners import targets
from sinks.sql.proposal import proposed, target_of
from sinks.sql.settings import DuckDbSettings, SqlSettings
from sinks.sql.unverified import all_unverified
from subscriber_sdk import Subscriber
from subscriber_sdk.transactional import Transactional
from subscriber_sdk.transactional.store import finish
from wormhole.model.errors import TargetUnavailable, WormholeError
from wormhole.model.findings import Finding, Report, Severity
from wormhole.model.table_definition import TableDefinition

__all__ = ["SqlSink"]


class SqlSink(Sink):
    """See the port."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._database = _database(settings)
        self._database.store.refusal = refusal
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
        with self._connected() as connection:
            found, unverified = targets(database, connection), all_unverified(database, connection)
            grant = database.lacks(connection)
        report.facts["dialect"] = database.dialect.value
        if grant:
            what = "the account may not make tables"
            report.add("rights", Severity.PROBLEM, what, next_step=grant, code="account-lacks-rights")
        for name, owner, source in found:
            report.add("target_tables", Severity.OK, f"{name} is filled from {source} by {owner}")
        for name, owner, source, shards in unverified:
            report.add(
                "unverified",
                Severity.WARN,
                f"{name} is unverified: rows of {source} may be missing or lack values in {shards} shards",
                next_step=f"run `wormholectl backfill start {owner.partition('/')[0]}`",
            )
        return report

    async def compare(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        return await asyncio.to_thread(self._compared, log, tables)

    def _compared(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        database, findings = self._database, list[Finding]()
        with self._connected() as connection:
            for table in tables:
                target = target_of(table, log, self._settings, database.dialect)
                there = database.table(connection, target.name)
                findings += proposed(table, target, there, database.dialect)
        return findings

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            session = finish(self._database.store.connect())
            try:
                yield session.connection
            finally:
                finish(session.close())
        except WormholeError:
            raise
        except Exception as error:
            raise refusal(error) or TargetUnavailable(
                f"{self._settings.url} cannot be used: {error}",
                hint="start the server, or correct the URL; the sink continues by itself",
            ) from error


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
