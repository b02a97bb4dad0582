"""Writes the records of all shards. Each shard has a producer in a thread of its own, because the client blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from sinks.kafka.clients import Configure
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.shard import ShardProducer
from sinks.records import Record, RecordWriter
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice, Update

__all__ = ["KafkaWriter"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _Shard:
    """The producer of one shard, and its thread. A cancelled call still runs to its end before the next call."""

    def __init__(self, producer: ShardProducer) -> None:
        self.producer = producer
        self.thread = ThreadPoolExecutor(1, "wormhole kafka")

    async def call(self, function: Callable[[Unpack[_Ts]], _T], *arguments: *_Ts) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)


class KafkaWriter(RecordWriter):
    """The writer of Kafka. ``configure``: makes the configuration of each new client."""

    most: int = 10_000
    most_bytes: int = 4 << 20
    aborts: bool = True

    def __init__(self, configure: Configure, settings: KafkaSettings) -> None:
        self._configure = configure
        self._settings = settings
        self._shards: dict[str, _Shard] = {}

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Fence every other process, and return the datamarker of the last transaction."""
        if notice.shard not in self._shards:
            self._shards[notice.shard] = _Shard(ShardProducer(self._configure, self._settings))
        shard = self._shards[notice.shard]
        return await shard.call(shard.producer.assigned, notice)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Add the records to the shard's transaction."""
        of = self._shards[shard]
        await of.call(of.producer.write, records)

    async def marked(self, marker: Datamarker) -> None:
        """Commit the shard's transaction."""
        shard = self._shards[marker.shard]
        await shard.call(shard.producer.marked, marker)

    async def rolled_back(self, to: Datamarker, *, kept: bool) -> None:
        """Abort the shard's transaction."""
        shard = self._shards[to.shard]
        await shard.call(shard.producer.rolled_back, to)

    def is_new(self, update: Update) -> bool:
        """Whether the update's records are not stored yet."""
        return self._shards[update.shard].producer.is_new(update)

    def replaying(self, shard: str) -> None:
        """A replay of older updates begins."""
        self._shards[shard].producer.replaying()

    async def revoked(self, shard: str) -> None:
        """Abort the shard's transaction, and close its connections."""
        of = self._shards.get(shard)
        if of is not None:
            await of.call(of.producer.rest)

    async def close(self) -> None:
        """Abort the transactions of all shards, and close their connections."""
        for name, shard in self._shards.items():
            await self.revoked(name)
            shard.thread.shutdown(wait=False)
