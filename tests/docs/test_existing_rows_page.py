"""docs/existing-rows.md: its configuration and its commands as they stand there, with a real server, a publisher and
examples/table_copy.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.table_copy import TableCopy
from subscriber_sdk import serve
from tests.support.databases import DatabaseServer, NewServer
from tests.support.eventually import eventually
from tests.support.pages import Page, Reader
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from wormhole.wire.v1 import admin_pb2

# What the page's commands do does not depend on the kind of server; tests/integration covers what does.
pytestmark = pytest.mark.parametrize(
    "flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)], indirect=True
)

ROWS = 20_000  # several chunks
_NAME = "x" * 150


@pytest.fixture
def server(new_server: NewServer) -> DatabaseServer:
    server = new_server()
    most = "cte_max_recursion_depth" if server.flavour == "mysql" else "max_recursive_iterations"
    server.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.users (id INT PRIMARY KEY, name VARCHAR(200))",
        "CREATE TABLE shop.orders (id VARCHAR(20) PRIMARY KEY, amount DECIMAL(9, 2))",
        "CREATE TABLE shop.log (line VARCHAR(20))",
        "INSERT INTO shop.orders VALUES ('a', 1.5), ('B', 2.5)",
        "INSERT INTO shop.log VALUES ('began')",
        f"SET SESSION {most} = 100000",
        f"INSERT INTO shop.users WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < {ROWS}) "
        f"SELECT id, '{_NAME}' FROM n",
    )
    return server


class World:
    """The page's application, its publisher, and what it copied."""

    def __init__(self, folder: Path, server: DatabaseServer) -> None:
        self.server = server
        self.page = Page("docs/existing-rows.md", {})
        (application,) = self.page.blocks("toml")
        self.port = free_port()
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        subscribers = f'subscribers = {{ s1 = "127.0.0.1:{self.port}" }}'
        self.publisher = PublisherProcess(folder, source, f"{application}{subscribers}\n", dataset='shard_by = "log"')
        self.reader = Reader(folder, more={"WORMHOLE_COORDINATOR": str(self.publisher.config)})
        self.copy = TableCopy(str(folder / "copy.db"))

    async def backfill(self, state: str) -> admin_pb2.BackfillStatus:
        """Wait until it is in this state."""
        flow = await self.publisher.becomes("search", lambda flow: flow.backfill.state == state)
        return flow.backfill

    async def run(self, line: str) -> str:
        return await asyncio.to_thread(self.reader.shell, line)

    def copied(self) -> dict[str, int]:
        """Rows by table."""
        with self.copy.lock:
            found = self.copy.database.execute("SELECT name, count(*) FROM rows GROUP BY name").fetchall()
        return dict(found)


@pytest.fixture
async def world(tmp_path: Path, server: DatabaseServer) -> AsyncIterator[World]:
    made = await asyncio.to_thread(World, tmp_path, server)
    try:
        await asyncio.to_thread(made.publisher.start)
        yield made
    finally:
        await asyncio.to_thread(made.publisher.kill)
        made.copy.database.close()


@pytest.mark.allow_blocking("the test looks into its own SQLite file")
async def test_its_application_and_its_commands(world: World) -> None:
    listen = f"127.0.0.1:{world.port}"
    async with serve(world.copy, application="search", coordinator=str(world.publisher.config), id="s1", listen=listen):
        # start = "existing": all rows, beside changes, and what cannot be read is named.
        await asyncio.to_thread(world.server.sql, "INSERT INTO shop.orders VALUES ('c', 3)")
        await world.backfill("done")
        await eventually(lambda: world.copied() == {"shop.users": ROWS, "shop.orders": 3}, "everything is there")
        shown = await world.run(world.page.command("backfill show"))
        assert "shop.log is refused: shop.log has no primary key" in shown
        assert "ALTER TABLE" in shown

        # Rows that nobody has, and a delete that nobody delivered.
        with world.copy.lock, world.copy.database:
            for key in ("[-1]", "[99999]"):
                row = ("shop.users", key, "db1", 0, json.dumps({}))
                world.copy.database.execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", row)
        slowly = Page("docs/existing-rows.md", {"4MiB/s": "16KiB/s"})  # it still runs when it is paused
        started = await world.run(slowly.command("backfill start"))
        assert "none" not in started
        assert "generation 2" in started
        flow = await world.publisher.becomes("search", lambda flow: flow.backfill.rows > 0)
        assert [table.table for table in flow.backfill.progress] == ["shop.orders", "shop.users"]
        await world.run(world.page.command("backfill pause"))
        assert (await world.backfill("paused")).paused
        assert "paused by" in await world.run("wormholectl flows")
        assert "OK search" in await world.run("wormholectl lag search --max 30s"), "rows are no lag"
        await world.run(world.page.command("backfill resume"))
        await world.run(world.page.command("backfill cancel"))
        assert (await world.backfill("cancelled")).generation == 2
        assert world.copied()["shop.users"] == ROWS + 2, "nothing is deleted by half a scan"

        await world.run("wormholectl backfill start search --tables shop.users --yes --watch")
        assert world.copied() == {"shop.users": ROWS, "shop.orders": 3}
        assert "done, generation 3" not in await world.run("wormholectl backfill show search --json")
        await asyncio.to_thread(world.server.sql, "DELETE FROM shop.users WHERE id = 7")
        await eventually(lambda: world.copied()["shop.users"] == ROWS - 1, "changes go on")


@pytest.mark.allow_blocking("the test looks into its own SQLite file")
@pytest.mark.soak
async def test_its_verification_and_its_repair(world: World) -> None:
    listen = f"127.0.0.1:{world.port}"
    compare, mend = world.page.command("verify search --yes"), world.page.command("verify search --tables")
    (shown,) = (block for block in world.page.blocks("text") if "DIFFERS" in block)
    async with serve(world.copy, application="search", coordinator=str(world.publisher.config), id="s1", listen=listen):
        await asyncio.to_thread(world.server.sql, "INSERT INTO shop.orders VALUES ('c', 3)")
        await world.backfill("done")
        assert "not compared, as its rows cannot be read: shop.log\n" in await world.run(f"{compare} || [ $? = 1 ]")
        with world.copy.lock, world.copy.database:
            for statement in (
                """UPDATE rows SET row = '{"id": 7, "name": "nobody"}' WHERE name = 'shop.users' AND key = '[7]'""",
                "DELETE FROM rows WHERE name = 'shop.users' AND key = '[8]'",
                "INSERT INTO rows VALUES ('shop.users', '[20001]', 'db1', 0, '{}')",
            ):
                assert world.copy.database.execute(statement).rowcount == 1

        compared = await world.run(f"{compare} || [ $? = 1 ]")
        assert shown in compared, compared

        mended = await world.run(mend.replace("64KiB/s", "4MiB/s"))
        assert mended.splitlines()[-1] == "search equals its tables now: 20,000 rows compared, 3 differences repaired"
        with world.copy.lock:
            found = world.copy.database.execute(
                "SELECT key FROM rows WHERE key IN ('[7]', '[8]', '[20001]')"
            ).fetchall()
        assert sorted(found) == [("[7]",), ("[8]",)]
        repaired = await world.run(f"{world.page.command('repair')} || [ $? = 1 ]")
        assert "search/db1 is not held at missing log\n" in repaired
