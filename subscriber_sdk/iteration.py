"""Yields updates, or whole transactions, to an application's loop. Each step acknowledges the item before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, Unpack

from subscriber_sdk.calls.epoch import LoopLeft
from subscriber_sdk.options.subscriber_options import SubscriberOptions, read_options
from subscriber_sdk.runner import serve
from subscriber_sdk.subscriber import NoticeKind, ShardNotice, Subscriber
from wormhole.model.position import Datamarker
from wormhole.wire.update import Update

__all__ = ["WaitingTransactions", "transactions", "updates"]

log = logging.getLogger("subscriber_sdk")

_T = TypeVar("_T")
_UPDATE_BYTES: Final = 200  # memory of an update in addition to its row, so that tiny updates are bounded as well


async def updates(*, application: str, **options: Unpack[SubscriberOptions]) -> AsyncGenerator[Update, None]:
    """Iterate over updates. Each step of the loop acknowledges the update before it.

    Use it in ``contextlib.aclosing`` so that leaving the loop also leaves the application at once. The time between two
    steps is limited like a callback's. Options and errors are those of :func:`serve`.
    """
    over = _Updates()
    async with serve(over, application=application, **options), aclosing(over.items()) as items:
        async for update in items:
            yield update


async def transactions(*, application: str, **options: Unpack[SubscriberOptions]) -> AsyncGenerator[list[Update], None]:
    """Iterate over transactions: each item is the updates of one commit and one shard, in order. In all other respects
    this is like :func:`updates`.

    A transaction of more than ``credit`` bytes comes in several lists. The last update of the last list has
    :attr:`~Update.ends_transaction`. ``buffer`` bounds the updates that all shards gather at a time. ``concurrency``
    has no effect, because the transactions of a shard come one after the other.
    """
    given = {name: value for name, value in options.items() if name != "coordinator"}
    settings = read_options({"application": application, **given}, shared=True)
    over = WaitingTransactions(settings.credit, settings.buffer)
    options["concurrency"] = 1
    async with serve(over, application=application, **options), aclosing(over.items()) as items:
        async for transaction in items:
            yield transaction


class _HandOver(Subscriber, Generic[_T]):
    """Hands items to one loop."""

    def __init__(self) -> None:
        # The queue has at most one item of each flow: a flow waits until its item is processed.
        self._ready: asyncio.Queue[tuple[_T, asyncio.Future[None]]] = asyncio.Queue()
        self._left = False

    async def hand_over(self, item: _T) -> None:
        """Hand an item to the loop, and wait until it is processed. Raises :class:`LoopLeft` if the loop was left."""
        if self._left:
            raise LoopLeft
        processed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready.put_nowait((item, processed))
        await processed

    async def items(self) -> AsyncGenerator[_T, None]:
        """Yield the items that were handed over. When the loop asks for an item, the item before it is processed."""
        processed: asyncio.Future[None] | None = None
        try:
            while True:
                item, processed = await self._ready.get()
                if processed.done():
                    continue  # its flow ended, or its time limit was exceeded, while it waited in the queue
                yield item
                if not processed.done():
                    processed.set_result(None)
        finally:
            self._left = True
            # The last item and those in the queue were not acknowledged: they are delivered again.
            if processed is not None and not processed.done():
                log.info("the loop was left: its last item is not acknowledged and will be delivered again")
            over_now = [processed] if processed is not None else []
            while not self._ready.empty():
                over_now.append(self._ready.get_nowait()[1])
            for waiting in over_now:
                if not waiting.done():
                    waiting.set_exception(LoopLeft())


class _Updates(_HandOver[Update]):
    async def on_update(self, update: Update) -> None:
        await self.hand_over(update)


@dataclass(slots=True)
class _Gathered:
    transaction: str
    updates: list[Update] = field(default_factory=list)
    size: int = 0


class WaitingTransactions(_HandOver[list[Update]]):
    """Gathers the updates of each shard's transaction, up to ``part`` bytes of one and ``total`` of all.

    A callback returns as soon as its update is gathered, so that the flow's credit does not bound a transaction. No
    part of a transaction is acknowledged before the whole is processed, because datamarkers are at the ends of
    transactions.
    """

    def __init__(self, part: int, total: int) -> None:
        super().__init__()
        self._part = part
        self._total = total
        self._gathered: dict[str, _Gathered] = {}
        self._size = 0

    async def on_update(self, update: Update) -> None:
        shard, transaction = update.shard, update.id.rpartition(":")[0]
        gathered = self._gathered.get(shard)
        if gathered is not None and gathered.transaction != transaction:
            await self._complete(shard)  # the last update of the gathered transaction was skipped or parked
            gathered = None
        if gathered is None:
            gathered = self._gathered[shard] = _Gathered(transaction)
        size = update.size + _UPDATE_BYTES
        gathered.updates.append(update)
        gathered.size += size
        self._size += size
        if update.ends_transaction or gathered.size >= self._part or self._size >= self._total:
            await self._complete(shard)

    async def on_datamarker(self, marker: Datamarker) -> None:
        await self._complete(marker.shard)

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self._take(to.shard)

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            self._take(notice.shard)

    async def _complete(self, shard: str) -> None:
        if gathered := self._take(shard):
            await self.hand_over(gathered)

    def _take(self, shard: str) -> list[Update]:
        gathered = self._gathered.pop(shard, None)
        if gathered is None:
            return []
        self._size -= gathered.size
        return gathered.updates
