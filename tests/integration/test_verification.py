"""A verification between a publisher and the SDK, with an application that keeps a copy, over several shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from examples.table_copy import TableCopy, from_text, to_text
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from subscriber_sdk import KeyRange, serve
from tests.integration.publisher.conftest import World
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op, Value
from wormhole.model.verification import TableVerification, VerifyMode
from wormhole.wire.rows import encode_key

SHARDS = ("log.0of2", "log.1of2")


class Copy(TableCopy):
    """``written``: keys that were delivered and reported as gone since :meth:`tamper`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.written: set[Any] = set()

    def on_updates(self, batch: Any) -> None:
        self.written |= {update.key for update in batch}
        super().on_updates(batch)

    def on_range(self, keys: KeyRange) -> None:
        self.written |= keys.keys
        super().on_range(keys)

    def tamper(self, statement: str, *values: object) -> None:
        with self.lock, self.database:
            self.database.execute(statement, values)

    def held(self) -> dict[Any, Any]:
        with self.lock:
            found = self.database.execute("SELECT key, row FROM rows").fetchall()
        return {tuple(from_text(key)): from_text(row) for key, row in found}


class Scene:
    """The world, the copy and the publisher."""

    def __init__(self, world: World, copy: Copy, publisher: Publisher) -> None:
        self.world, self.copy, self.publisher = world, copy, publisher

    @property
    def flows(self) -> list[PublisherFlow]:
        return [self.publisher.assigner.flows[("app", shard)] for shard in SHARDS]

    def shard(self, name: str) -> str:
        return self.world.tables.shard_of("t", self.key(name))

    @staticmethod
    def key(name: str) -> bytes:
        return encode_key((name,))

    def is_equal(self) -> bool:
        return self.copy.held() == self.world.tables.all_rows()["t"]

    async def ended(self) -> None:
        def all_ended() -> bool:
            controls = [flow.control.backfill for flow in self.flows]
            return all(control is not None and control.ended == "done" for control in controls)

        await eventually(lambda: all(("app", shard) in self.publisher.assigner.flows for shard in SHARDS), "registered")
        await eventually(all_ended, "every flow's backfill is done")

    async def verify(self, mode: VerifyMode) -> TableVerification:
        backfills = self.publisher.backfills
        self.copy.written.clear()
        for flow in self.flows:
            await backfills.start(flow, await backfills.plan(flow, (), "", None, "maria", mode))
        await self.ended()
        one, other = (backfills.verifications(flow) for flow in self.flows)
        return one[0].plus(other[0])


def row(a: int, b: str) -> dict[str, Value]:
    return {"a": a, "b": b}


@asynccontextmanager
async def scene(path: Path) -> AsyncIterator[Scene]:
    world = World(fast_clock(), 30.0 * FAST)
    world.source = MemorySource(log="log", sharding=Sharding("hash", 2))
    world.tables = MemoryTables(world.source)
    for first in range(0, 2000, 100):
        world.source.commit(
            [(Op.INSERT, "t", f"k{number:04}", row(number, f"v{number}")) for number in range(first, first + 100)]
        )
    world.application(start="existing")
    copy = Copy(str(path / "copy.db"))
    address = f"127.0.0.1:{free_port()}"
    async with serve(copy, application="app", id="s1", listen=address):
        await world._here.start()
        await world._here.register_subscriber(SubscriberInfo("app", "s1", address, 1.0, 1.0))
        async with world.publisher() as publisher:
            there = Scene(world, copy, publisher)
            await there.ended()
            assert there.is_equal()
            yield there


def tamper(copy: Copy, scene: Scene) -> None:
    """One value is flipped, one row deleted, and one added in each shard."""
    copy.tamper("UPDATE rows SET row = ? WHERE key = ?", to_text({"a": 7, "b": "x"}), to_text(("k0007",)))
    copy.tamper("DELETE FROM rows WHERE key = ?", to_text(("k0008",)))
    for name in ("left0", "left1", "left2", "left3"):
        insert = "INSERT INTO rows VALUES ('t', ?, ?, 1, ?)"
        copy.tamper(insert, to_text((name,)), scene.shard(name), to_text({"a": 1, "b": "x"}))


async def test_what_differs_is_found_and_only_that_is_repaired(tmp_path: Path) -> None:
    async with scene(tmp_path) as there:
        assert (await there.verify(VerifyMode.COMPARE)).equal
        tamper(there.copy, there)
        found = await there.verify(VerifyMode.COMPARE)
        assert (found.compared, found.differs, found.missing, found.extra) == (2000, 1, 1, 4)
        assert (found.repaired, found.removed, found.not_compared, found.trouble) == (0, 0, 0, "")
        assert {one.key: one.columns for one in found.differences} == {
            there.key("k0007"): ("b",),
            **{there.key(name): () for name in ("k0008", "left0", "left1", "left2", "left3")},
        }
        assert there.copy.written == set()
        found = await there.verify(VerifyMode.REPAIR)
        assert (found.differs, found.missing, found.extra, found.repaired, found.removed) == (1, 1, 4, 2, 4)
        written = {("k0007",), ("k0008",), *((f"left{number}",) for number in range(4))}
        assert there.copy.written == written
        assert there.is_equal()
        assert (await there.verify(VerifyMode.COMPARE)).equal


async def test_what_differs_is_repaired_while_writes_go_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as there:
        tamper(there.copy, there)
        stopped = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                source = there.world.source
                source.commit([(Op.UPDATE, "t", f"k{100 + number % 1500:04}", row(number, "new"))])
                source.commit([(Op.DELETE, "t", f"k{1700 + number % 100:04}")])
                source.commit([(Op.INSERT, "t", f"k{1700 + number % 100:04}", row(number, "again"))])
                await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        found = await there.verify(VerifyMode.REPAIR)
        stopped.set()
        await writing
        assert (found.differs, found.missing, found.extra, found.repaired, found.removed) == (1, 1, 4, 2, 4)
        assert (found.not_compared, found.trouble) == (0, "")
        await eventually(there.is_equal, "the copy equals the tables")


async def test_an_application_that_lists_the_keys_of_all_its_shards_loses_none(tmp_path: Path) -> None:
    async with scene(tmp_path) as there:
        every = there.copy.on_verify_keys

        def on_verify_keys(table: str, shard: str) -> Any:
            for one in SHARDS:
                yield from every(table, one)

        there.copy.on_verify_keys = on_verify_keys  # type: ignore[method-assign]
        found = await there.verify(VerifyMode.REPAIR)
        assert (found.extra, found.removed, found.not_compared) == (0, 0, 2000)
        assert "2000" not in found.trouble
        assert "belong to other shards" in found.trouble
        assert there.is_equal()
