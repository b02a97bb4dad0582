"""The stores for ``async def`` handlers, without the kit: their drivers have threads and sockets of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres_server import PostgresServer
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.psycopg import AsyncPsycopgStore
from subscriber_sdk.transactional.shard import ShardTransactions
from subscriber_sdk.transactional.sqlalchemy import AsyncSqlAlchemyStore
from tests.support.transactional import run

# Drivers read the names of their files as they connect.
pytestmark = pytest.mark.allow_blocking
ASSIGNED = ShardNotice(NoticeKind.ASSIGNED, "s", 1, marker_at(0), application="a")


async def one_commit_and_one_failure(store: Any) -> None:
    shard: ShardTransactions[Any] = ShardTransactions(store, "s")

    async def adding(connection: Any) -> None:
        await run(connection, "INSERT INTO t VALUES (1)")

    async def failing(connection: Any) -> None:
        await adding(connection)
        raise ValueError("no")

    await shard.assigned(ASSIGNED)
    await shard.call(adding)
    await shard.commit(marker_at(1))
    with pytest.raises(ValueError, match="no"):
        await shard.call(failing)
    await shard.rolled_back(marker_at(1))
    assert await shard.assigned(replace(ASSIGNED, epoch=2)) == KeptMarker(marker_at(1), 0)
    await shard.revoked()


@pytest.mark.parametrize("kind", [AsyncPsycopgStore, AsyncSqlAlchemyStore])
async def test_postgres(postgres_server: PostgresServer, postgres_database: str, kind: Any) -> None:
    await asyncio.to_thread(postgres_server.sql, "CREATE TABLE t (x INT)", database=postgres_database)
    scheme = "postgresql" if kind is AsyncPsycopgStore else "postgresql+psycopg"
    at = f"postgres@{postgres_server.host}:{postgres_server.port}/{postgres_database}?sslmode=disable"
    await one_commit_and_one_failure(kind(f"{scheme}://{at}"))
    assert await asyncio.to_thread(postgres_server.sql, "SELECT * FROM t", database=postgres_database) == [(1,)]


async def test_sqlite(tmp_path: Path) -> None:
    def sql(statement: str) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    await asyncio.to_thread(sql, "CREATE TABLE t (x INT)")
    await one_commit_and_one_failure(AsyncSqlAlchemyStore(f"sqlite+aiosqlite:///{tmp_path / 't.db'}"))
    assert await asyncio.to_thread(sql, "SELECT * FROM t") == [(1,)]
