"""The example that loads DuckDB, behind a publisher of a real MariaDB."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.duckdb_copy import DuckDBCopy
from publisher.sources import open_source
from subscriber_sdk import serve
from tests.integration.publisher.conftest import World
from tests.support.databases import DatabaseServer
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login

STATEMENTS = (
    "INSERT INTO shop.users SELECT seq, CONCAT('n', seq), NULL FROM shop.seq_1_to_300",
    "INSERT INTO shop.orders VALUES (1), (2)",
    "UPDATE shop.users SET email = 'a@b' WHERE id = 1",
    "UPDATE shop.users SET id = 500, name = 'moved' WHERE id = 2",
    "DELETE FROM shop.users WHERE id IN (3, 300)",
    "INSERT INTO shop.users VALUES (1000, 'last', NULL)",
)


async def test_the_copy_is_what_the_server_has(mariadb_server: DatabaseServer, tmp_path: Path) -> None:
    server = mariadb_server
    await asyncio.to_thread(
        server.sql,
        "CREATE DATABASE shop",
        "CREATE TABLE shop.users (id BIGINT PRIMARY KEY, name VARCHAR(40), email VARCHAR(80))",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY)",
    )
    world = World()
    world.source = source = open_source(  # type: ignore[assignment]
        server.url, log="log", state_dir=tmp_path / "state", sharding=Sharding("log"), max_update_bytes=64 << 10,
        disk_budget=1 << 30, login=Login(server.password_file),
    )  # fmt: skip
    await asyncio.to_thread(source.start)
    world.application(start="latest", tables=["shop.*"])
    copy, address = DuckDBCopy(":memory:"), f"127.0.0.1:{free_port()}"

    def rows(statement: str) -> list[tuple[object, ...]]:
        return copy.database.cursor().execute(statement).fetchall()

    async def arrived() -> None:
        # The last transaction is of one row of its own.
        await eventually(lambda: rows("SELECT id FROM users WHERE name = 'last'"), "the last row is in the copy")

    try:
        async with serve(copy, application="app", id="s1", listen=address):
            await world._here.start()
            await world._here.register_subscriber(SubscriberInfo("app", "s1", address, 1.0, 1.0))
            async with world.publisher() as publisher:
                await eventually(lambda: ("app", "log") in publisher.assigner.flows, "the flow is registered")
                await asyncio.to_thread(server.sql, *STATEMENTS)
                await arrived()
        expected = [(1, "n1", "a@b"), (500, "moved", None), (1000, "last", None)]
        expected[1:1] = [(number, f"n{number}", None) for number in range(4, 300)]
        assert rows("SELECT id, name, email FROM users ORDER BY id") == expected
        assert rows("SELECT count(*) FROM markers") == [(1,)]
    finally:
        copy.database.close()
        await asyncio.to_thread(source.stop)
        await asyncio.to_thread(server.sql, "DROP DATABASE shop")
