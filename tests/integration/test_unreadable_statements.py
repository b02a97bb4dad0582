"""A statement whose name cannot be read, or that changes rows: which flows it holds, and how one gets past."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import Subscriber, Update, serve
from tests.support.databases import DatabaseServer
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess


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
        self.server = server
        self.ports = {name: free_port() for name in databases}
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
        source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        self.publisher = PublisherProcess(folder, source, applications, dataset='shard_by = "log"')

    def serve(self, name: str, app: App) -> Any:
        listen = f"127.0.0.1:{self.ports[name]}"
        return serve(app, application=name, coordinator=str(self.publisher.config), id=f"{name}1", listen=listen)


@pytest.fixture
def databases(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Two of the test's own, each with a table."""
    number = zlib.crc32(request.node.name.encode())
    made = {"mine": f"mine_{number}", "junk": f"junk_{number}"}
    for name in made.values():
        database_server.sql(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.`xÄ` (id INT PRIMARY KEY)")
    writes = f"FOR EACH ROW INSERT INTO {made['mine']}.noted VALUES (NEW.id)"
    database_server.sql(
        f"CREATE TABLE {made['mine']}.noted (id INT)",
        f"CREATE TABLE {made['junk']}.triggers (id INT)",
        f"CREATE TRIGGER {made['junk']}.note AFTER INSERT ON {made['junk']}.triggers {writes}",
    )
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


def _odd(server: DatabaseServer, databases: dict[str, str]) -> list[tuple[tuple[str, ...], set[str]]]:
    """Statements, and the applications that they hold."""
    # In the character set swe7 the byte of "[" is the letter Ä, and those of other letters mean other things: such
    # names are not read.
    unreadable = ("SET NAMES swe7", f"TRUNCATE TABLE {databases['junk']}.`x[`")
    if server.flavour == "mariadb":
        return [(unreadable, {"junk"})] * 2
    as_text = "SET SESSION binlog_format = STATEMENT"
    return [
        (unreadable, {"junk"}),
        ((as_text, f"INSERT INTO {databases['junk']}.`xÄ` VALUES (100)"), {"junk"}),
        ((as_text, f"CREATE TABLE {databases['junk']}.made SELECT 1 AS a"), {"junk"}),
        ((as_text, f"INSERT INTO {databases['junk']}.triggers VALUES (1)"), {"junk", "mine"}),
        ((as_text, f"CREATE TABLE {databases['mine']}.made SELECT * FROM {databases['mine']}.`xÄ`"), {"mine"}),
    ]


async def test_it_holds_who_wants_the_database_until_it_is_skipped(world: World, databases: dict[str, str]) -> None:
    apps = {name: App() for name in databases}
    mine, junk = apps["mine"], apps["junk"]
    expected: dict[str, list[tuple[str, object]]] = {name: [] for name in databases}

    async def insert(key: int) -> None:
        rows = [f"INSERT INTO {name}.`xÄ` VALUES ({key})" for name in databases.values()]
        await asyncio.to_thread(world.server.sql, *rows)
        for keys in expected.values():
            keys.append(("insert", key))

    async with world.serve("mine", mine), world.serve("junk", junk):
        for name in databases:
            await world.publisher.becomes(name, lambda flow: flow.state == "live")
        await insert(1)
        await eventually(lambda: {name: app.seen for name, app in apps.items()} == expected, "delivered")
        for key, (statements, holds) in enumerate(_odd(world.server, databases), start=2):
            await asyncio.to_thread(world.server.sql, *statements)
            await insert(key)
            for name, app in apps.items():
                if name not in holds:
                    await eventually(lambda name=name, app=app: app.seen == expected[name], "no other flow is held")  # type: ignore[misc]
            for name in holds:
                held = await world.publisher.becomes(name, lambda flow: flow.state == "held")
                assert apps[name].seen == expected[name][:-1]
                step = re.search(r"`wormholectl flows skip APP/SHARD --update (\S+)`", held.cause)
                assert step is not None, held.cause
                await asyncio.to_thread(world.publisher.change, name, "skip", update_id=step[1])
                await eventually(lambda name=name: apps[name].seen == expected[name], "passed")  # type: ignore[misc]
