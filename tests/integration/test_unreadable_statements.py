"""A statement whose name cannot be read: who is held by it, and how a flow gets past."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from subscriber_sdk import Subscriber, Update, serve
from tests.support.databases import DatabaseServer
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from tests.system.harness.processes import Process
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.wire.v1 import admin_pb2
from wormholectl import admin_client
from wormholectl.admin_client import Answer

# gRPC joins its poller thread when its last object goes, which would count as blocking whichever test that falls into.
grpc.aio.init_grpc_aio()


_RUN = "from tests.system.harness.child import die_with_parent as d; d(); from wormholectl import main; main()"


class App(Subscriber):
    """Remembers which updates it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    async def on_update(self, update: Update) -> None:
        self.seen.append((update.op.value, update.key[0] if update.key else None))


class World:
    """A publisher of a server's log as one shard, for two applications: ``mine`` wants one database, ``junk``
    another one."""

    def __init__(self, folder: Path, server: DatabaseServer, databases: dict[str, str]) -> None:
        self.state = folder / "state"
        self.config = folder / "shop.toml"
        self.ports = {name: free_port() for name in databases}
        self.server = server
        self.publisher = Process(
            "publisher", ["-c", _RUN, "publisher", "run", "-c", str(self.config), "--log", "shop/main/db1"], folder
        )
        applications = "".join(
            f"""
[applications.{name}]
dataset = "shop"
start = "latest"
tables = ["{database}.*"]
subscribers = {{ {name}1 = "127.0.0.1:{self.ports[name]}" }}
"""
            for name, database in databases.items()
        )
        self.config.write_text(
            f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{self.state}"
heartbeat = "500ms"
grace_period = "1s"
[datasets.shop]
shard_by = "log"
[datasets.shop.copies.main.logs.db1]
source = "{server.url}"
password_file = "{server.password_file}"
{applications}
"""
        )

    def serve(self, name: str, app: App) -> Any:
        options = {"coordinator": str(self.config), "id": f"{name}1", "listen": f"127.0.0.1:{self.ports[name]}"}
        return serve(app, application=name, **options)

    def _answer(self) -> Answer | None:
        ready = read_ready(ready_path(self.state, "shop", "main", "db1"))
        return None if ready is None else Answer(ready.admin, admin_client.describe(ready.admin), state_dir=self.state)

    def flow(self, name: str) -> admin_pb2.FlowStatus | None:
        answer = self._answer()
        flows = () if answer is None or answer.status is None else answer.status.flows
        return next((flow for flow in flows if flow.flow == f"{name}/db1"), None)

    def skip(self, name: str, update_id: str) -> None:
        answer = self._answer()
        assert answer is not None
        request = admin_pb2.ChangeRequest(who="maria@ops", flow=f"{name}/db1", skip=admin_pb2.Skip(update_id=update_id))
        admin_client.change(answer, request)

    async def becomes(self, name: str, true: Callable[[admin_pb2.FlowStatus], object]) -> admin_pb2.FlowStatus:
        """Wait until the flow is so."""
        async with patience():
            while True:
                flow = await asyncio.to_thread(self.flow, name)
                if flow is not None and true(flow):
                    return flow
                await asyncio.sleep(0.05)


@pytest.fixture
def databases(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Two of the test's own, each with a table."""
    number = zlib.crc32(request.node.name.encode())
    made = {"mine": f"mine_{number}", "junk": f"junk_{number}"}
    for name in made.values():
        database_server.sql(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.`xÄ` (id INT PRIMARY KEY)")
    yield made
    for name in made.values():
        database_server.sql(f"DROP DATABASE {name}")


@pytest.fixture
async def world(tmp_path: Path, database_server: DatabaseServer, databases: dict[str, str]) -> AsyncIterator[World]:
    made = World(tmp_path, database_server, databases)
    try:
        await asyncio.to_thread(made.publisher.start)
        yield made
    finally:
        await asyncio.to_thread(made.publisher.kill)


async def test_it_holds_who_wants_the_database_until_it_is_skipped(world: World, databases: dict[str, str]) -> None:
    mine, junk = App(), App()

    async def insert(key: int) -> None:
        rows = [f"INSERT INTO {name}.`xÄ` VALUES ({key})" for name in databases.values()]
        await asyncio.to_thread(world.server.sql, *rows)

    expected: list[tuple[str, object]] = [("insert", 1)]
    # In the character set swe7 the byte of "[" is the letter Ä, and those of other letters mean other things: such
    # names are not read.
    unreadable = ("SET NAMES swe7", f"TRUNCATE TABLE {databases['junk']}.`x[`")
    async with world.serve("mine", mine), world.serve("junk", junk):
        for name in databases:
            await world.becomes(name, lambda flow: flow.state == "live")
        await insert(1)
        await eventually(lambda: mine.seen == junk.seen == expected, "delivered")
        for key in (2, 3):
            await asyncio.to_thread(world.server.sql, *unreadable)
            await insert(key)
            expected.append(("insert", key))
            held = await world.becomes("junk", lambda flow: flow.state == "held" and "cannot be read" in flow.cause)
            await eventually(lambda: mine.seen == expected, "no other flow is held")
            assert junk.seen == expected[:-1]
            step = re.search(r"`wormholectl flows skip APP/SHARD --update (\S+)`", held.cause)
            assert step is not None, held.cause
            await asyncio.to_thread(world.skip, "junk", step[1])
            await eventually(lambda: junk.seen == expected, "passed")
