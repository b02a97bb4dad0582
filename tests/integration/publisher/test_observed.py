"""Persons who look at what an application receives: they see the same, and nothing of the application changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from publisher.publisher import Publisher
from publisher.push.attached import AttachedLine
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.test_attached import KEY, Recorder, attached
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually, patience
from wormhole.host.compiled import compiled_modules
from wormhole.model.errors import WormholeError
from wormhole.model.values import Op
from wormhole.push.attaching import Attaching
from wormhole.wire.update import Update
from wormholectl.subscribe.observed import Observed, ObservedFrames, observe


class Watcher:
    """What a person was shown. ``reads``: cleared, it reads nothing more."""

    def __init__(self, most: int | None = None) -> None:
        self.updates: list[Update] = []
        self.begun = asyncio.Event()
        self.most = most

    def update(self, update: Update) -> bool:
        self.updates.append(update)
        return len(self.updates) != self.most

    @property
    def keys(self) -> list[object]:
        return [update.key[0] for update in self.updates]

    async def watch(self, publisher: Publisher, seconds: float = 600.0, **who: Any) -> None:
        given = {"application": "app", "subscriber": "ann", "instance": "x", "observes": seconds, **who}
        observed = Observed(lambda hello: self.begun.set(), self.update)
        await observe(publisher.listener.address, Attaching(**given), None, "", observed)


@pytest.fixture
async def world() -> World:
    await asyncio.to_thread(compiled_modules)  # which a publisher reports, and reads once
    return World(fast_clock(), 120.0 * FAST, attaches=True)


@asynccontextmanager
async def served(world: World, **settings: Any) -> AsyncIterator[tuple[Publisher, Recorder]]:
    """A publisher with a subscriber that has the first update."""
    world.application(**settings)
    world.commit("a")
    recorder = Recorder()
    async with world.publisher() as publisher, attached(publisher, recorder):
        await eventually(lambda: recorder.acked, "the datamarker")
        yield publisher, recorder


@asynccontextmanager
async def watching(publisher: Publisher, watcher: Watcher, **who: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(watcher.watch(publisher, **who))
    try:
        async with patience():
            await watcher.begun.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_sees_what_the_subscriber_gets_from_now_on(world: World) -> None:
    """Also of shards that were not there before; with the application's filter, columns and mask."""
    watcher = Watcher()
    rules = {"where": 'table != "secret"', "mask": {"u.value": "null"}}
    async with served(world, **rules) as (publisher, recorder), watching(publisher, watcher):
        world.commit("b")
        world.commit("hidden", table="secret")
        world.commit("c", table="u")
        world.source.commit([(Op.UPSERT, "t", b"d%d" % number, {"value": b"v" * 500}) for number in range(3000)])
        await eventually(lambda: len(recorder.keys) == 3003, "the subscriber has all")
        await eventually(lambda: len(watcher.keys) == 3002, "the person too")
    assert sorted(watcher.keys, key=repr) == sorted(recorder.keys[1:], key=repr)
    assert [key for key in watcher.keys if key[:1] == b"d"] == [b"d%d" % number for number in range(3000)]  # type: ignore[index]
    shown = {update.key[0]: update.after for update in watcher.updates}
    assert (shown[b"b"], shown[b"c"]) == ({"value": b"v"}, {"value": None})


async def test_nothing_of_the_application_changes(world: World) -> None:
    async with served(world) as (publisher, recorder):
        before = operated(publisher).reports.status()
        records = {key: record.epoch for key, record in world.markers.records.items()}
        watcher = Watcher()
        async with watching(publisher, watcher):
            stored = repr(sorted(world.markers.records.items()))
            kept = publisher.log.fleet.oldest_place()
            status = operated(publisher).reports.status()
            assert [one.flow for one in status.flows] == [one.flow for one in before.flows]
            assert [list(one.flows) for one in status.caravans] == [list(one.flows) for one in before.caravans]
            assert [one.subscriber for one in status.subscribers] == ["s1"]
            assert status.attach.attached == 1
            assert repr(sorted(world.markers.records.items())) == stored
            assert publisher.log.fleet.oldest_place() == kept
            end = world.commit("b")
            await eventually(lambda: watcher.keys, "it is shown")
            await eventually(lambda: world.markers.records[KEY].marker.order == end.order, "it is acknowledged")
        assert {key: record.epoch for key, record in world.markers.records.items()} == records
        assert recorder.keys == [b"a", b"b"]


async def test_an_observation_alone_stores_nothing(world: World) -> None:
    """No subscriber is there: the log is kept for the application, and its record stays as it is."""
    world.application()
    world.commit("a")
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in world.markers.records, "the flow")
        await eventually(lambda: publisher.listener.address, "it listens")
        await eventually(lambda: publisher.log.fleet.lead, "the log is read")
        stored = repr(world.markers.records[KEY])
        watcher = Watcher(most=2)
        async with watching(publisher, watcher) as task:
            world.commit("b", "c", "d")
            async with patience():
                await task
        assert watcher.keys == [b"b", b"c"]
        assert repr(world.markers.records[KEY]) == stored


async def test_it_ends_when_its_time_is_over(world: World) -> None:
    watcher = Watcher()
    async with served(world) as (publisher, _), watching(publisher, watcher, seconds=1.0) as task:
        async with patience():
            await task
        assert not publisher.listener.service.refused


async def test_one_that_does_not_read_is_ended_at_its_place(world: World) -> None:
    """The subscriber beside it gets everything."""
    world.settings["change_buffer"] = 1 << 20
    async with served(world) as (publisher, recorder):
        reads, frames = asyncio.Event(), ObservedFrames()
        shown: list[Update] = []
        reads.set()

        async def write(message: bytes) -> None:
            shown.extend(frames.updates(message))
            await reads.wait()

        async def silent() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        async def never_refused() -> WormholeError:
            await asyncio.Event().wait()
            raise AssertionError

        observers = publisher.listener.service._observers
        who = Attaching("app", "ann", "x", observes=600.0)
        watching = asyncio.create_task(observers.observe(who, AttachedLine(silent(), write, "", None, never_refused)))
        await eventually(lambda: frames.hello, "it has begun")
        world.commit("b")
        await eventually(lambda: shown, "it is shown")
        reads.clear()
        for number in range(20):
            world.source.commit([(Op.UPSERT, "t", b"k%d" % number, {"value": b"v" * 200_000})])
            await eventually(lambda number=number: len(recorder.keys) == number + 3, "the subscriber")  # type: ignore[misc]
        assert publisher.log.fleet.governor.used() <= 2 << 20
        reads.set()
        async with patience():
            with pytest.raises(WormholeError, match="too slowly: what was committed after 1/1/"):
                await watching
    assert len(shown) < 20


@pytest.mark.parametrize(
    ("who", "settings", "code"),
    [
        ({"application": "other"}, {}, "application-unknown"),
        ({}, {"allow": ("s1",)}, "not-permitted"),
    ],
)
async def test_permissions_are_those_of_a_subscriber(
    world: World, who: dict[str, Any], settings: dict[str, Any], code: str
) -> None:
    async with served(world, **settings) as (publisher, _):
        with pytest.raises(WormholeError) as raised:
            await Watcher().watch(publisher, **who)
        assert raised.value.code == code


async def test_there_are_so_many_at_most(world: World) -> None:
    async with served(world) as (publisher, _):
        watchers = [Watcher() for _ in range(8)]
        tasks = [asyncio.create_task(watcher.watch(publisher)) for watcher in watchers]
        async with patience():
            await asyncio.gather(*(watcher.begun.wait() for watcher in watchers))
            with pytest.raises(WormholeError) as raised:
                await Watcher().watch(publisher)
            assert raised.value.code == "try-again"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_command_prints_as_tail_does(world: World) -> None:
    import sys

    async with served(world) as (publisher, _):
        command = ("-m", "wormholectl", "subscribe", "app", "--publishers", publisher.listener.address)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--json", "--limit", "2", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        number = 0
        reading = asyncio.create_task(process.communicate())
        while not reading.done():  # it sees what is committed after it has begun
            number += 1
            world.commit(f"k{number}")
            await asyncio.wait([reading], timeout=0.1)
        first, second = (json.loads(line) for line in reading.result()[0].splitlines())
        assert process.returncode == 0
        assert (first["type"], first["op"], first["after"]) == ("update", "upsert", {"value": "v"})
        assert int(second["key"][0][1:]) == int(first["key"][0][1:]) + 1
