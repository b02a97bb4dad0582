"""The archiver: a subscriber that writes what it receives as Parquet, and acknowledges it once a manifest names it.

A process that dies loses no updates. An acknowledgement follows the commit, so the log keeps uncommitted updates. At
ASSIGNED delivery begins at the end of the manifest, so no update is archived twice. The manifest contains the flow's
epoch, so an older archiver cannot commit after a newer one.

Memory: the rows of all shards together take about ``flush_size``. Beyond it the rows of the largest shard become a row
group of a file that is not committed yet, and a callback with more rows waits for this. So a transaction may be larger
than memory, and many shards take no more memory than one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from spark_replay.archive.manifest import FileEntry, KnownLoss
from spark_replay.archive.memory import give_back
from spark_replay.archive.shard_writer import ROW_GROUP, ShardWriter
from spark_replay.archive.store import ArchiveStore
from subscriber_sdk import AckLater, DataLoss, Datamarker, LossDecision, NoticeKind, ShardNotice, Subscriber, Update
from wormhole.metrics import Sample
from wormhole.metrics import catalogue as c

__all__ = ["Archiver"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LEAST: Final = 64 << 10
"""The least bytes of a row group that is written to free memory. A smaller one would cost more than it frees."""


class _Shard:
    """One shard that is assigned to this process."""

    def __init__(self, epoch: int, now: float) -> None:
        self.epoch = epoch
        self.writer: ShardWriter | None = None
        self.since: float | None = None
        """The time of the first update or datamarker after the last commit; ``None``: none came."""
        self.busy: asyncio.Future[Any] | None = None
        """The last work in a thread for this shard, begun by its own callback or by one that needed memory."""
        self.files = self.rows = self.bytes = 0
        self.committed_at = now
        """Seconds since 1970."""


class Archiver(Subscriber):
    """``flush_every``: a shard is committed at the first datamarker this many seconds after its first uncommitted
    update. ``flush_size``: a shard is committed earlier when its rows have so many bytes. All shards together keep
    about so many bytes in memory. ``accept_loss``: whether a range that the log lost is noted in the archive, and
    archiving continues after it.

    ``now``: seconds of a monotonic clock. ``today``: seconds since 1970.
    """

    def __init__(
        self,
        store: ArchiveStore,
        *,
        flush_every: float,
        flush_size: int,
        accept_loss: bool = False,
        now: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._every = flush_every
        self._most = flush_size
        self._accept_loss = accept_loss
        self._now, self._today = now, today
        self._shards: dict[str, _Shard] = {}
        self.assigned = asyncio.Event()
        """Set at each assignment of a shard."""
        self._threads = min(4, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="wormhole-archive")

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that are assigned to the archiver now. May be called from any thread."""
        return tuple(self._shards)

    def close(self) -> None:
        """End the threads. Uncommitted updates will be delivered again."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    # --- callbacks: those of one shard never overlap ---

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
        """See :class:`~subscriber_sdk.Subscriber`: at ASSIGNED delivery begins where the archive ends."""
        if notice.kind is NoticeKind.ASSIGNED:
            assert notice.marker is not None
            shard = self._shards[notice.shard] = _Shard(notice.epoch, self._today())
            self.assigned.set()
            await self._claim(shard, notice.shard, notice.marker)
            assert shard.writer is not None
            return shard.writer.manifest.end
        if notice.kind is NoticeKind.REVOKED:
            await self._leave(notice)
        return None

    async def on_updates(self, batch: Sequence[Update]) -> None:
        """See :class:`~subscriber_sdk.Subscriber`."""
        shard, writer = await self._of(batch[0].shard)
        writer.add(batch)
        if shard.since is None:
            shard.since = self._now()
        if writer.memory >= ROW_GROUP:
            await self._in_thread(shard, writer.spill)
        await self._room()

    async def on_datamarker(self, marker: Datamarker) -> AckLater | None:
        """See :class:`~subscriber_sdk.Subscriber`: ``marker`` is acknowledged when all earlier updates are
        committed."""
        shard, writer = await self._of(marker.shard)
        writer.mark(marker)
        now = self._now()
        if shard.since is None:
            shard.since = now
        left = shard.since + self._every - now
        if left > 0 and writer.size < self._most:
            return AckLater(left)
        await self._commit(shard, writer, marker)
        return None

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """See :class:`~subscriber_sdk.Subscriber`.

        The manifest shows whether a commit succeeded although its call failed.
        """
        await self._claim(self._shards[to.shard], to.shard, to, acknowledged=True)

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        """See :class:`~subscriber_sdk.Subscriber`."""
        if not self._accept_loss or loss.resume is None:
            _log.error(
                (
                    "shard %s cannot be archived further: %s. Next: `wormholectl archive run --accept-loss` notes the "
                    "hole and goes on after it"
                ),
                loss.shard,
                loss.message,
            )
            return LossDecision.HALT
        shard, writer = await self._of(loss.shard)
        known = KnownLoss(loss.resume, loss.message)
        await self._in_thread(shard, lambda: writer.accept(known))
        shard.since = None
        return LossDecision.CONTINUE

    # --- within ---

    async def _of(self, name: str) -> tuple[_Shard, ShardWriter]:
        """The shard, after its work in a thread has ended. Raises the error of that work."""
        shard = self._shards[name]
        if (error := await self._settled(shard)) is not None:
            raise error
        assert shard.writer is not None  # if ASSIGNED fails, no other callback of the shard is called
        return shard, shard.writer

    async def _room(self) -> None:
        """Wait until the rows of all shards fit into ``flush_size``, or each shard has too few to be worth writing."""
        while sum(one.writer.memory for one in self._shards.values() if one.writer is not None) > self._most:
            busy = [one.busy for one in self._shards.values() if one.busy is not None and not one.busy.done()]
            if len(busy) < self._threads:
                resting = [one for one in self._shards.values() if one.busy is None or _succeeded(one.busy)]
                largest = max(resting, key=_memory, default=None)
                if largest is not None and _memory(largest) >= _LEAST and largest.writer is not None:
                    busy.append(self._begin(largest, largest.writer.spill))
            if not busy:
                return
            # A failure is raised in the next callback of the shard that failed.
            await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)

    async def _claim(self, shard: _Shard, name: str, marker: Datamarker, *, acknowledged: bool = False) -> None:
        await self._settled(shard)
        if shard.writer is not None:
            await self._in_thread(shard, shard.writer.abandon)
        shard.since = None
        shard.writer = await self._in_thread(
            shard, lambda: ShardWriter.claim(self._store, name, shard.epoch, marker, acknowledged=acknowledged)
        )

    async def _commit(self, shard: _Shard, writer: ShardWriter, marker: Datamarker) -> None:
        entry = await self._in_thread(shard, lambda: _committed(writer, marker))
        shard.since, shard.committed_at = None, self._today()
        if entry is not None:
            shard.files += 1
            shard.rows += entry.rows
            shard.bytes += entry.bytes
            _log.debug("shard %s: %s with %d updates, up to %s", marker.shard, entry.name, entry.rows, marker)

    async def _leave(self, notice: ShardNotice) -> None:
        """End the shard in this epoch: commit up to its last datamarker, and drop the rest.

        The commit fails if a newer archiver has the shard.
        """
        shard = self._shards.get(notice.shard)
        if shard is None or shard.epoch != notice.epoch:
            return
        del self._shards[notice.shard]
        error = await self._settled(shard)
        writer = shard.writer
        if writer is None:
            return
        last = writer.last_marker
        try:
            if last is not None and not writer.dirty and error is None:
                await self._in_thread(shard, lambda: writer.commit(last))
        finally:
            await self._in_thread(shard, writer.abandon)

    async def _in_thread(self, shard: _Shard, work: Callable[[], _T]) -> _T:
        """Do ``work`` in a thread.

        A callback that takes too long may be cancelled, a thread cannot: the next callback waits for it
        (:meth:`_settled`).
        """
        return await asyncio.shield(self._begin(shard, work))

    def _begin(self, shard: _Shard, work: Callable[[], _T]) -> asyncio.Future[_T]:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        shard.busy = future
        return future

    async def _settled(self, shard: _Shard) -> BaseException | None:
        """Wait for the shard's work in a thread. Returns its error, ``None`` without one."""
        if shard.busy is None:
            return None
        if not shard.busy.done():
            await asyncio.wait({shard.busy})
        return None if shard.busy.cancelled() else shard.busy.exception()

    def samples(self) -> list[Sample]:
        """All samples, with their present values."""
        found: list[Sample] = []
        now, dataset = self._now(), self._store.dataset
        for name, shard in self._shards.items():
            labels = (dataset, name)
            found += [
                Sample(c.ARCHIVE_FILES, shard.files, labels),
                Sample(c.ARCHIVE_UPDATES, shard.rows, labels),
                Sample(c.ARCHIVE_BYTES, shard.bytes, labels),
                Sample(c.ARCHIVE_PENDING, shard.writer.size if shard.writer else 0, labels),
                Sample(c.ARCHIVE_PENDING_AGE, 0 if shard.since is None else now - shard.since, labels),
                Sample(c.ARCHIVE_COMMITTED, shard.committed_at, labels),
            ]
        return found


def _committed(writer: ShardWriter, marker: Datamarker) -> FileEntry | None:
    entry = writer.commit(marker)
    if entry is not None:
        give_back()
    return entry


def _succeeded(work: asyncio.Future[Any]) -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


def _memory(shard: _Shard) -> int:
    return shard.writer.memory if shard.writer is not None else 0
