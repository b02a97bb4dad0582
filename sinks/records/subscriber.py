"""Receives updates, and writes the records of complete transactions with the writer of a store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sinks.figures import Figures
from sinks.records.confirmed import Confirmed
from sinks.records.held import Budget, Held
from sinks.records.record import Envelope, Record
from sinks.records.threads import in_thread
from sinks.records.transactions import transactions
from sinks.records.writer import Packed, RecordRefused, RecordWriter
from subscriber_sdk import Datamarker, KeptMarker, LogPosition, NoticeKind, Op, ShardNotice, Subscriber, Update
from wormhole.model.errors import EpochRefused, TargetRefused, TargetUnavailable

__all__ = ["RecordSubscriber"]

_Item = TypeVar("_Item", Record, Update)

_MOST_REFUSED: Final = 10_000
# Seconds after which a callback begins no further write. The SDK cancels a callback after 30 s (handler_timeout), and a
# write has its own bound.
_TURN_S: Final = 12.0


@dataclass(slots=True)
class _Shard:
    """The state of one shard. ``open``: records of the incomplete transaction, whose id is ``transaction``. ``ready``:
    records of complete transactions. ``whole``: updates of complete transactions behind ``ready``, which are written
    without records.

    ``refused``: by update id, the errors of records that the store refused. ``failed``: by update id, the positions of
    refused updates that failed when they were delivered again.

    ``begin``: the position after which a rollback delivers again. ``until``: the time after which the running callback
    begins no further write.
    """

    open: Held
    ready: list[Record] = field(default_factory=list)
    whole: list[Update] = field(default_factory=list)
    transaction: str = ""
    refused: dict[str, RecordRefused] = field(default_factory=dict)
    failed: dict[str, LogPosition] = field(default_factory=dict)
    epoch: int = 0
    move: int = 0
    begin: LogPosition | None = None
    confirmed: Confirmed = field(default_factory=Confirmed)
    until: float = math.inf


class RecordSubscriber(Subscriber):
    """Turns each update into records with ``envelope``, and writes them with ``writer``. Incomplete transactions are
    buffered within ``budget``.

    A refused record may belong to an update that an earlier call received. So the flow is rolled back, and the update
    fails when it is delivered again. Then the SDK parks the update, or halts the flow.

    If a store is too slow for the records of one callback, the flow is rolled back as well. Records that the store
    confirmed and keeps are not written again, so that a large transaction makes progress.
    """

    def __init__(self, envelope: Envelope, writer: RecordWriter, budget: Budget) -> None:
        self._envelope = envelope
        self._writer = writer
        self._budget = budget
        self._packs = type(writer).packed is not RecordWriter.packed
        self._shards: dict[str, _Shard] = {}
        self.figures = Figures(budget.used)

    async def on_updates(self, batch: Sequence[Update]) -> None:
        """Add the batch, and write the transactions that are complete."""
        name = batch[0].shard
        shard = self._begun(name)
        for updates in transactions(batch):
            if shard.refused:
                _raise_refused(shard, updates)
            last = updates[-1]
            if shard.open and shard.transaction != last.transaction.id:
                # The last update of the transaction before was parked or skipped.
                await self._complete(name, shard)
            if not shard.open and last.ends_transaction and self._packs:
                shard.whole += updates
                continue
            shard.transaction = last.transaction.id
            await self._add(shard, updates)
            if last.ends_transaction:
                await self._complete(name, shard)
        if self._writer.aborts:
            await self._complete(name, shard)
        await self._write(name, shard)

    async def on_datamarker(self, marker: Datamarker) -> None:
        """Write the remaining records before ``marker``, and wait until the store has them."""
        shard = self._begun(marker.shard)
        await self._complete(marker.shard, shard)
        await self._write(marker.shard, shard)
        if shard.confirmed.passing:
            raise _others(shard)
        with self.figures.waiting():
            await self._writer.marked(marker)
        shard.confirmed.clear()
        shard.begin = marker.order
        for id_ in [id_ for id_, place in shard.failed.items() if place <= marker.order]:
            del shard.refused[id_], shard.failed[id_]  # the update was parked, and an operator may deliver it again

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """Forget the buffered records: updates after ``to`` come again."""
        self._forget(to.shard)
        await self._writer.rolled_back(to, kept=self._shard(to.shard).confirmed.passing)

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        """Handle the beginning or the end of an epoch."""
        shard = self._shard(notice.shard)
        if notice.kind is NoticeKind.ASSIGNED:
            begin = None if notice.marker is None else notice.marker.order
            if (shard.epoch + 1, shard.move, shard.begin) != (notice.epoch, notice.move, begin):
                # Another process may have written since, or another publisher begins at an older place.
                shard.confirmed.clear()
            self._forget(notice.shard)
            kept = await self._writer.assigned(notice)
            shard.epoch, shard.move, shard.begin = notice.epoch, notice.move, begin
            return kept
        if notice.kind is NoticeKind.REVOKED:
            self._forget(notice.shard)
            shard.refused.clear()
            shard.failed.clear()
            await self._writer.revoked(notice.shard)
        return None

    def _shard(self, name: str) -> _Shard:
        if name not in self._shards:
            self._shards[name] = _Shard(Held(self._budget))
        return self._shards[name]

    def _begun(self, name: str) -> _Shard:
        shard = self._shard(name)
        shard.until = math.inf
        return shard

    def _forget(self, name: str) -> None:
        shard = self._shard(name)
        shard.open.clear()
        shard.ready, shard.whole = [], []
        shard.transaction = ""
        shard.confirmed.begin_again()

    def _continued(self, update: Update) -> None:
        """Note that the incomplete transaction continues with ``update``. Does nothing here."""

    async def _add(self, shard: _Shard, updates: Sequence[Update]) -> None:
        if shard.open:
            self._continued(updates[0])
        for update in updates:
            records = self._envelope.records(update)
            op = update.op
            if op is Op.TRUNCATE or op is Op.DELETE_RANGE:
                records = [record._replace(everywhere=True) for record in records]
            shard.open.add(records)
            if shard.open.overfull:
                await in_thread(shard.open.spill)

    async def _complete(self, name: str, shard: _Shard) -> None:
        """Handle the end of the buffered transaction. Records in a file are written now, and all others with the
        batch."""
        if not shard.open:
            return
        if shard.whole or shard.open.in_file:
            await self._write(name, shard)
        if not shard.open.in_file:
            shard.ready += shard.open.take()
            return
        portions = shard.open.portions()
        while (portion := await in_thread(_next, portions)) is not None:
            await self._send(name, shard, portion)
        shard.open.clear()

    async def _write(self, name: str, shard: _Shard) -> None:
        """Write complete transactions: first ``ready``, then ``whole``."""
        if shard.ready:
            await self._send(name, shard, shard.ready)
            shard.ready = []
        whole, shard.whole = shard.whole, []
        for updates in _portions(whole, self._writer):
            packed = self._writer.packed(name, updates)
            if packed is None:
                await self._send(name, shard, [one for update in updates for one in self._envelope.records(update)])
            else:
                self._take_turn(shard)
                await self._write_part(name, shard, packed)

    async def _send(self, name: str, shard: _Shard, records: Sequence[Record]) -> None:
        if shard.confirmed.passing:
            rest = shard.confirmed.rest(records)
            if rest is None:
                raise _others(shard)
            records = rest
        for part in _portions(records, self._writer):
            self._take_turn(shard)
            await self._write_part(name, shard, part)
            if self._writer.keeps:
                shard.confirmed.add(part)

    def _take_turn(self, shard: _Shard) -> None:
        now = asyncio.get_running_loop().time()
        if now >= shard.until:
            raise TargetUnavailable("the store takes records slowly: the others follow in another attempt")
        if shard.until == math.inf:
            shard.until = now + _TURN_S  # so that the next callback writes something, and the flow makes progress

    async def _write_part(self, name: str, shard: _Shard, part: Sequence[Record] | Packed) -> None:
        try:
            with self.figures.waiting():
                if isinstance(part, Packed):
                    await self._writer.write_packed(name, part)
                else:
                    await self._writer.write(name, part)
        except RecordRefused as refused:
            self.figures.refused += 1
            if len(shard.refused) < _MOST_REFUSED:
                shard.refused[refused.update_id] = refused
            raise
        except (TargetUnavailable, TargetRefused, EpochRefused):
            raise
        except OSError as error:
            raise TargetUnavailable(f"the store failed: {type(error).__name__}", hint="see the store's log") from error
        except Exception as error:
            # After another exception the SDK would park the update that it delivers now, although another one failed.
            raise TargetRefused(
                f"the writer of records failed: {type(error).__name__}", hint="report it with the traceback in the log"
            ) from error
        if isinstance(part, Packed):
            self.figures.wrote(part.number, part.size)
        else:
            self.figures.wrote(len(part), sum(len(record.key) + len(record.value or b"") for record in part))


def _next(portions: Iterator[list[Record]]) -> list[Record] | None:
    return next(portions, None)


def _portions(items: Sequence[_Item], writer: RecordWriter) -> Iterator[Sequence[_Item]]:
    """Divide the items, in order, into portions that the writer takes. An item that is too large is alone."""
    begin = size = 0
    for at, item in enumerate(items):
        more = item.size
        if at > begin and (at - begin >= writer.most or size + more > writer.most_bytes):
            yield items[begin:at]
            begin, size = at, 0
        size += more
    if begin < len(items):
        yield items[begin:]


def _raise_refused(shard: _Shard, updates: Sequence[Update]) -> None:
    for update in updates:
        if (refused := shard.refused.get(update.id)) is not None:
            shard.failed[update.id] = update.position
            raise refused


def _others(shard: _Shard) -> TargetUnavailable:
    """The error for repeated records that differ from before: an update was parked or skipped, or existing rows were
    read again."""
    shard.confirmed.clear()
    return TargetUnavailable("the records that come again are others: all since the datamarker are written again")
