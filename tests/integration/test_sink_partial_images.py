"""A SQL mirror of real sources whose log has only parts of the rows: it equals what the servers select."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from datastores.postgres.log import slots
from publisher.sources import open_source
from subscriber_sdk import FlowHalted, RetryPolicy, serve
from tests.integration.publisher.conftest import World
from tests.support.databases import FLAVOURS, DatabaseServer
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.seed import SEED
from tests.support.sql_targets import SqlTarget
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.errors import WormholeError
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login

pytestmark = pytest.mark.allow_blocking  # SQLite blocks the loop

Row = tuple[Any, ...]
COLUMNS: Final = ("id", "name", '"long"')


@dataclass
class Origin:
    """A table of a source. ``sql``: executes statements on a connection of its own."""

    url: str
    password: Path | None
    table: str
    sql: Callable[..., Sequence[Row]]

    def rows(self, *columns: str) -> list[Row]:
        """What the server selects."""
        return sorted((tuple(row) for row in self.sql(f"SELECT {', '.join(columns)} FROM {self.table}")), key=repr)


@asynccontextmanager
async def mirrored(
    origin: Origin, target: SqlTarget, folder: Path, halted: Callable[[FlowHalted], None] = lambda _: None
) -> AsyncIterator[Callable[..., Any]]:
    """A publisher of the log and a mirror of it. Yields what inserts a row and waits until the target has it. The row
    is deleted then, unless it ``stays``.
    """
    world = World()
    world.source = source = open_source(  # type: ignore[assignment]
        origin.url, log="log", state_dir=folder / "state", sharding=Sharding("log"), max_update_bytes=1 << 20,
        disk_budget=1 << 30, login=Login(origin.password),
    )  # fmt: skip
    await asyncio.to_thread(source.start)
    world.application(start="latest", tables=[origin.table])
    address = f"127.0.0.1:{free_port()}"
    subscriber: Any = target.open(table="copied").subscriber
    subscriber._handler.on_error = halted

    async def arrived(name: str, *, stays: bool = False) -> None:
        await asyncio.to_thread(origin.sql, f"INSERT INTO {origin.table} (id, name) VALUES (900, '{name}')")
        await eventually(lambda: "name" in target.columns("copied") and (name,) in target.rows("copied", "name"), name)
        if not stays:
            await asyncio.to_thread(origin.sql, f"DELETE FROM {origin.table} WHERE id = 900")

    try:
        async with (
            serve(subscriber, application="app", id="s1", listen=address, retry=RetryPolicy(2, 0.01, 0.01)),
            world.publisher() as publisher,
        ):
            await world._here.start()
            await world._here.register_subscriber(SubscriberInfo("app", "s1", address, 1.0, 1.0))
            await eventually(lambda: any(flow.holding.subscriber for flow in publisher.assigner.flows.values()), "held")
            yield arrived
    finally:
        await asyncio.to_thread(source.stop)


@contextmanager
def postgres_origin(server: PostgresServer, key: str) -> Iterator[Origin]:
    """A table whose large values are in TOAST and whose log has the whole row before a change."""
    with new_database(server) as database:
        publication = f"p_{uuid.uuid4().hex[:8]}"

        def sql(*statements: str) -> Sequence[Row]:
            return server.sql(*statements, database=database)

        sql(
            f"CREATE TABLE t (id int PRIMARY KEY {key}, name text, long text)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "ALTER TABLE t ALTER long SET STORAGE EXTERNAL",
            f"CREATE PUBLICATION {publication} FOR ALL TABLES",
        )
        sql(*slots.create_statements(publication))
        url = f"{server.url(database)}?publication={publication}&slot={publication}"
        yield Origin(url, server.password_file, "public.t", sql)


@contextmanager
def mysql_origin(server: DatabaseServer) -> Iterator[Origin]:
    """A table whose changes are logged with what changed and the key alone."""
    database = f"test_{uuid.uuid4().hex[:12]}"

    def sql(*statements: str) -> Sequence[Row]:
        return server.sql("SET SESSION binlog_row_image = MINIMAL", *statements)

    server.sql(f"CREATE DATABASE {database}")
    sql(f"CREATE TABLE {database}.t (id int PRIMARY KEY, name varchar(40), `long` mediumtext)")
    try:
        yield Origin(server.url, server.password_file, f"{database}.t", sql)
    finally:
        server.sql(f"DROP DATABASE {database}")


@pytest.fixture(params=["postgres", *FLAVOURS])
def origin(request: pytest.FixtureRequest) -> Iterator[Origin]:
    server = request.getfixturevalue(f"{request.param}_server")
    with postgres_origin(server, "") if request.param == "postgres" else mysql_origin(server) as made:
        yield made


def transaction(chance: random.Random, table: str, there: set[int]) -> Iterator[str]:
    """Statements that change parts of rows, and their keys. ``there``: the keys of rows."""
    for _ in range(chance.randrange(2, 12)):
        one, other = chance.sample(sorted(there), 2)
        free = chance.randrange(100, 800)
        match chance.choice(["name", "long", "key", "keys", "keys", "row", "rows"]):
            case "name":
                yield f"UPDATE {table} SET name = 'n{free}.{one}' WHERE id = {one}"
            case "long":
                yield f"UPDATE {table} SET `long` = repeat('{free} ', 3000), name = NULL WHERE id = {one}"
            case "key" if free not in there:
                yield f"UPDATE {table} SET id = {free} WHERE id = {one}"
                there ^= {one, free}
            case "keys":
                for old, new in ((one, -1), (other, one), (-1, other)):
                    yield f"UPDATE {table} SET id = {new} WHERE id = {old}"
            case "row" if len(there) > 3:
                yield f"DELETE FROM {table} WHERE id = {one}"
                there -= {one}
            case _ if free not in there:
                yield f"INSERT INTO {table} VALUES ({free}, 'n{free}', repeat('{one}', 9000))"
                there |= {free}


async def test_a_mirror_equals_its_source(origin: Origin, sql_target: SqlTarget, tmp_path: Path) -> None:
    chance, there = random.Random(SEED), set(range(1, 6))
    quote = '"' if origin.url.startswith("postgres") else "`"

    def write(*statements: str) -> None:
        origin.sql("BEGIN", *(one.replace("`", quote) for one in statements), "COMMIT")

    async with mirrored(origin, sql_target, tmp_path) as arrived:
        write(*(f"INSERT INTO {origin.table} VALUES ({key}, 'n{key}', repeat('{key}', 9000))" for key in sorted(there)))
        for _ in range(40):
            await asyncio.to_thread(write, *transaction(chance, origin.table, there))
        await arrived("last")
        columns = ("id", "name", f"{quote}long{quote}")
        expected = origin.rows(*columns)
        assert {row[0] for row in expected} == there
        await eventually(lambda: sql_target.rows("copied", *COLUMNS) == expected, f"WORMHOLE_SEED={SEED}")


async def test_a_key_that_two_rows_may_share_halts_the_mirror(
    postgres_server: PostgresServer, sql_target: SqlTarget, tmp_path: Path
) -> None:
    """With REPLICA IDENTITY FULL too, rows of a deferrable key come without one."""
    halted: list[FlowHalted] = []
    with postgres_origin(postgres_server, "DEFERRABLE INITIALLY DEFERRED") as origin:
        async with mirrored(origin, sql_target, tmp_path, halted.append) as arrived:
            origin.sql("INSERT INTO t VALUES (1, 'a', repeat('1', 9000)), (2, 'b', repeat('2', 9000))")
            await arrived("last", stays=True)
            origin.sql("UPDATE t SET id = 3 - id WHERE id < 3")
            await eventually(lambda: halted, "the flow is halted")
            assert isinstance(halted[0].cause, WormholeError)
            assert halted[0].cause.code == "record-refused"
            assert len(sql_target.rows("copied", "id")) == 3
