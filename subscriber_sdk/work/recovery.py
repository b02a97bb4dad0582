"""Handles a failed callback of a flow: by another try, a rollback, parking, or a halt.

After a failure the flow returns to the last acknowledged datamarker (``on_rollback``), waits, and delivers the kept
updates again. When the retries are exhausted the flow halts until it is revoked. If the application parks updates, the
publisher stores the failing update before the rollback. The parked update then gets no callback when it is delivered
again, and later updates of its row are parked too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Epoch, LoopLeft
from subscriber_sdk.calls.failure_report import change_of, headline, logged_error
from subscriber_sdk.calls.retry import Place, Retry
from subscriber_sdk.stream.counts import Counts
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.subscriber import FlowHalted, ParkRefused
from subscriber_sdk.work.acks import FlowLog
from subscriber_sdk.work.parking import EpochOver, Parking
from wormhole.model.errors import DecodeError, ProtocolError, TargetRefused, TargetUnavailable
from wormhole.ports.dead_letters import place_of
from wormhole.wire.update import Update
from wormhole.wire.v1 import push_pb2

__all__ = ["KeptOverEpochs", "Recovery"]

log = logging.getLogger("subscriber_sdk")


@dataclass(frozen=True, slots=True)
class KeptOverEpochs:
    """State that the epochs of one shard share.

    ``retry``: the shard's count of failures. ``rested``: called when a flow has nothing left to do. ``failing``: called
    before a first failure is logged.
    """

    retry: Retry
    counts: Counts = field(default_factory=Counts)
    rested: Callable[[], None] = lambda: None
    failing: Callable[[], None] = lambda: None


class Recovery:
    """One epoch's."""

    def __init__(
        self,
        epoch: Epoch,
        callbacks: Callbacks,
        parking: Parking,
        flow_log: FlowLog,
        port: FlowPort,
        kept: KeptOverEpochs,
    ) -> None:
        self._epoch = epoch
        self._callbacks = callbacks
        self._parking = parking
        self._log = flow_log
        self._counts = kept.counts
        self._port = port
        self._retry = kept.retry
        self._failing = kept.failing

    def singly(self, first: Update) -> bool:
        """Whether the updates from ``first`` on are delivered one by one, even if the callback takes several at once,
        because one of them fails.
        """
        until = self._retry.singly_until
        if until is None or not until.before(place_of(first)):
            return until is not None
        self._retry.singly_until = None
        return False

    async def retry(self, error: Exception) -> bool:
        """Handle the failure of a callback that is not for updates. Waits, and returns true if the callback has to be
        called again. Returns false if the flow halts.
        """
        wait = None
        if isinstance(error, TargetUnavailable):
            wait = self._postpone(error)
        elif not isinstance(error, TargetRefused):
            wait = self._count(error, None)
        if wait is None:
            await self._halt(error, "")
            return False
        await self._epoch.pause(wait)
        return True

    async def failed(self, error: Exception, update: Update | None) -> None:
        """Handle the failure of a callback at ``update`` (``None``: at no update): roll the flow back, or halt it.

        If the application left its loop (:class:`LoopLeft`), the failure is not counted, so that it neither halts the
        flow nor parks an update. The flow is rolled back, and delivers nothing more before its end.
        """
        epoch = self._epoch
        update_id = "" if update is None else update.id
        if isinstance(error, EpochOver):
            return
        left = isinstance(error, LoopLeft)
        if epoch.ending is not None:
            if not left:
                log.warning("%s; flow %s: its epoch was ending", headline(error), epoch.shard)
            return
        if isinstance(error, (ParkRefused, TargetRefused)):
            await self._halt(error, update_id)
            return
        away = isinstance(error, TargetUnavailable)
        epoch.stopped = epoch.stopped or left
        wait = 0.0 if left else self._postpone(error) if away else self._count(error, update)
        if wait is None:
            if update is None or not self._parking.gate.parks:
                await self._halt(error, update_id)
                return
            if not await self._put_aside(update, error):
                return
            wait = self._retry.wait()
        whole = self._log.rollback() and not away
        # Reported before the wait, and so before the first callback runs again.
        self._counts.rolled_back()
        self._port.progress(None)
        if epoch.ending is None and not await self.undo(error, update_id):
            return
        await epoch.pause(wait)
        if not whole and epoch.ending is None and not left:
            epoch.stopped = True
            why = "is delivered from the application's own datamarker on" if away else "is more than is held here"
            message = f"rolled back to {epoch.marker}, and what follows {why}; the cause: {error!r}"
            self._port.fail(push_pb2.Failed.RESEND, update_id, message)

    async def undo(self, cause: Exception, update_id: str = "") -> bool:
        """Have the application return to the datamarker.

        Returns whether the flow continues; false if it halts or the epoch ends.
        """
        epoch = self._epoch
        while epoch.ending is None:
            try:
                await self._callbacks.call("on_rollback", replace(epoch.marker, shard=epoch.shard), cause)
                return True
            except Exception as second:  # noqa: BLE001 - whatever the application raises is its failure, not ours
                wait = self._count(second, None)
                if wait is None:
                    await self._halt(second, update_id)
                    return False
                await epoch.pause(wait)
        return False

    async def _put_aside(self, update: Update, error: Exception) -> bool:
        """Park the update, because its retries are exhausted. If several updates failed together, deliver them one by
        one to find the failing one. Returns whether the flow continues.
        """
        together = self._callbacks.together
        if len(together) > 1:
            self._retry.singly_until = place_of(together[-1])
            log.warning(
                "flow %s: %s failed with %d updates at once: now one by one",
                self._epoch.shard,
                self._callbacks.name,
                len(together),
            )
        else:
            try:
                if not await self._parking.park(update, error):
                    return False
            except (ParkRefused, DecodeError, ProtocolError) as refused:
                await self._halt(refused, update.id)
                return False
        self._retry.reset()
        return True

    def _count(self, error: Exception, update: Update | None) -> float | None:
        """Count a failure at ``update`` (``None``: at no update). Returns the seconds to wait before another try;
        ``None`` if none follows.
        """
        epoch, retry = self._epoch, self._retry
        self._callbacks.meter.failures += 1
        place: Place | None = None if update is None else (update.position, update.index)
        wait = retry.wait() if retry.failed(place) else None
        first = retry.failures == 1
        if first:
            self._failing()
        log.warning(
            "%s%s; flow %s epoch %d: attempt %d of %d failed, %s",
            headline(error),
            "" if update is None else f" at update {update.id}, {change_of(update)}",
            epoch.shard,
            epoch.number,
            retry.failures,
            retry.attempts,
            "the last one" if wait is None else f"the next one in {wait:.2g} s",
            # The tracebacks of the attempts in between would be the same.
            exc_info=logged_error(error) if first or wait is None else None,
        )
        return wait

    def _postpone(self, error: Exception) -> float:
        """Handle a temporary failure, which never halts the flow. Returns the seconds to wait before another try."""
        self._callbacks.meter.failures += 1
        self._failing()
        self._epoch.away = error
        wait = self._retry.postpone()
        log.warning("%s; flow %s: again in %.2g s", headline(error), self._epoch.shard, wait)
        return wait

    async def _halt(self, error: Exception, update_id: str) -> None:
        """Halt the flow: report the failure to the publisher, and call ``on_error``."""
        epoch = self._epoch
        halted = FlowHalted(epoch.shard, epoch.number, update_id, self._retry.failures, epoch.marker, error)
        epoch.halted = halted
        epoch.stopped = True
        self._retry.reset()  # the next assignment of the shard starts with a fresh count
        self._port.fail(push_pb2.Failed.HANDLER, update_id, halted.reason)
        log.error("%s", halted)
        try:
            await self._callbacks.call("on_error", halted)
        except Exception as second:
            text = "%s; on_error of shard %s failed"
            log.error(text, headline(second), epoch.shard, exc_info=logged_error(second))
