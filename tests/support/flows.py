"""Flows of a subscriber without a network: an application that notes what it hears, and publishers that say what a
test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import cycle
from typing import Any, Protocol

from subscriber_sdk import (
    Datamarker,
    FlowHalted,
    KeptMarker,
    ShardNotice,
    Subscriber,
    Update,
)
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.testing import ScriptedPublisher, body_of, frames, marker_at, update
from subscriber_sdk.work.shards import Shards


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


class Recorder(Subscriber):
    """Notes every callback in one list; ``act`` may fail or wait."""

    def __init__(self, act: Callable[[Update], Coroutine[Any, Any, None]] | None = None) -> None:
        self.heard: list[Any] = []
        self.act = act

    async def on_update(self, update: Update) -> None:
        self.heard.append(update.key[0])
        if self.act is not None:
            await self.act(update)

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | KeptMarker | None:
        self.heard.append(notice.kind.value)
        return None

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.heard.append(f"marker {marker.delivered}")

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.heard.append(f"rollback {to.delivered} {cause}")

    async def on_error(self, error: FlowHalted) -> None:
        self.heard.append(f"halted {error.update_id}")


def failing(
    times: int, key: int = 1, error: type[Exception] = ValueError
) -> Callable[[Update], Coroutine[Any, Any, None]]:
    left = [times]

    async def act(update: Update) -> None:
        if update.key == (key,) and left[0]:
            left[0] -= 1
            raise error("no")

    return act


class Gate(Recorder):
    """Each update waits until the test lets it through."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def wait(self, update: Update) -> None:
        self.entered.set()
        await self.open.wait()


class World:
    def __init__(self, subscriber: Subscriber, **options: Any) -> None:
        self.options = Options(application="app", id="one", listen="127.0.0.1:1", **options)
        self.shards = Shards(subscriber, self.options, chance=lambda: 0.0)

    def dial(self) -> ScriptedPublisher:
        publisher = ScriptedPublisher(self.shards, self.options)
        publisher.send(frames.hello("app", "one"))
        return publisher

    async def open(self, publisher: ScriptedPublisher, epoch: int = 1, flow: int = 1, shard: str = "s") -> None:
        publisher.send(frames.assign(flow, epoch, "app", shard, marker_at(0)))
        await self.shards.settled()

    def push(
        self,
        publisher: ScriptedPublisher,
        number: int,
        *keys: int,
        epoch: int = 1,
        flow: int = 1,
        tables: tuple[str, ...] = ("t",),
    ) -> None:
        """``tables``: which the updates have in turn."""
        changes = [update(table, key=key) for table, key in zip(cycle(tables), keys, strict=False)]
        publisher.teach(change.schema for change in changes)
        publisher.send(
            frames.batch(flow, epoch, number, body_of(changes, number=number)),
            frames.datamarker(flow, epoch, marker_at(number)),
        )


class NewWorld(Protocol):
    """The fixture ``new_world``."""

    def __call__(self, subscriber: Subscriber, **options: Any) -> tuple[World, ScriptedPublisher]: ...


def kinds(publisher: ScriptedPublisher) -> list[str | None]:
    return [frame.WhichOneof("kind") for frame in publisher.received]
