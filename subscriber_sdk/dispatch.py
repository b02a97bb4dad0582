"""One flow at work: takes what arrived, in order, and has the application's callbacks run on it.

The order of one epoch of a flow, as the application sees it::

    [previous epoch ended] ASSIGNED { on_update | on_datamarker | on_data_loss | REPLAY_BEGIN | REPLAY_END } REVOKED

``calls`` runs them, ``recovery`` has what follows when one fails, ``parking`` what stands in place of one; they share
the ``epoch``.

If the process dies at any point, nothing was acknowledged whose callbacks had not returned: ``ack`` is called after
``on_datamarker``, and that only after every callback before it, or once the publisher has stored the update in place of
its callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from subscriber_sdk.acks import BatchItem, FlowLog, Item, LossItem, MarkerItem, NoticeItem
from subscriber_sdk.calls import Calls
from subscriber_sdk.counts import Counts, windows_in
from subscriber_sdk.epoch import Ending, Epoch
from subscriber_sdk.gate import Gate
from subscriber_sdk.handlers import Handlers
from subscriber_sdk.parallel import ParallelFailure, run_parallel
from subscriber_sdk.parking import Parking
from subscriber_sdk.port import FlowPort, Held
from subscriber_sdk.recovery import Recovery
from subscriber_sdk.retry import Retry
from subscriber_sdk.subscriber import AckLater, FlowHalted, LossDecision, NoticeKind, ShardNotice
from wormhole.model.errors import EpochRefused, ProtocolError, TransactionRolledBack
from wormhole.model.position import Datamarker
from wormhole.push.epochs import FIRST_NO_EPOCH
from wormhole.wire.body import parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowWorker"]

log = logging.getLogger("subscriber_sdk")

_GIVEN_BACK = frozenset({Ending.REVOKED, Ending.LEAVING})  # somebody waits for the shard: say where it is


class FlowWorker:
    """One epoch of one flow. :meth:`feed` and :meth:`end` are called from the loop that :meth:`start` was called on.

    ``before``: an earlier epoch whose callbacks have to end first. ``chance``: random numbers from 0 to 1, for waits.
    ``rested``: called when the flow comes to rest. ``counts``: the shard's, over all its epochs. ``gate``: what is
    passed over or parked; ``parks``: whether what a handler gives up on is. ``rolled_back``: id of a transaction of
    which an earlier epoch delivered a part, and which the database rolled back. ``rewound``: the shard was set back, so
    a later marker of the application does not count.
    """

    def __init__(
        self,
        handlers: Handlers,
        port: FlowPort,
        *,
        shard: str,
        epoch: int,
        marker: Datamarker,
        credit: int,
        concurrency: int,
        handler_timeout: float,
        retry: Retry,
        chance: Callable[[], float],
        before: FlowWorker | None = None,
        rested: Callable[[], None] = lambda: None,
        gate: Gate | None = None,
        parks: bool = False,
        counts: Counts | None = None,
        rolled_back: str = "",
        rewound: bool = False,
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.credit = credit
        self.updates = 0
        """Updates whose callback returned, repeats included."""
        self._handlers = handlers
        self._port = port
        self._concurrency = concurrency
        self._before = before
        self._counts = counts or Counts()
        # A publisher sends a datamarker every 4 MiB, so twice the default credit holds all that lies between two.
        self._log = FlowLog(2 * credit)
        self._epoch = Epoch(shard, epoch, marker, rested)
        self._calls = Calls(self._epoch, handlers, handler_timeout)
        self._parking = Parking(self._epoch, self._calls, port, gate or Gate(), self._counts.set_aside)
        self._recovery = Recovery(
            self._epoch,
            self._calls,
            self._parking,
            self._log,
            self._counts,
            port,
            retry=retry,
            chance=chance,
            parks=parks,
        )
        self._endings = Endings()
        self._batch_number = 0  # of the batch that came last
        self._rolled_back = rolled_back
        self._wake = asyncio.Event()
        self._rewound = rewound
        self._told = False  # ASSIGNED was told, so REVOKED is owed
        self._later: tuple[MarkerItem, float] | None = (
            None  # left unacknowledged, nothing came since; when to ask again
        )
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self._epoch.ending.value if self._epoch.ending else self.state
        return (
            f"<flow {self.shard} epoch {self.epoch}: {state}, {len(self._log)} waiting, "
            f"{self.updates} updates, marker {self.marker}>"
        )

    @property
    def marker(self) -> Datamarker:
        """The place that a rollback leads to."""
        return self._epoch.marker

    @property
    def acked(self) -> Datamarker | None:
        """The last marker acknowledged in this epoch."""
        return self._epoch.acked

    @property
    def halted(self) -> FlowHalted | None:
        """Why the flow is halted, when its retries are exhausted."""
        return self._epoch.halted

    @property
    def resting(self) -> bool:
        """Whether nothing is left to do until something arrives."""
        return self._epoch.resting

    @property
    def state(self) -> str:
        """What it is doing, in a word: working, resting, standing, halted or ending."""
        return self._epoch.state

    @property
    def cause(self) -> str:
        """Why the epoch ends here, in words; empty while it does not."""
        return self._epoch.cause

    @property
    def skipped(self) -> int:
        """Updates that were passed over, repeats included."""
        return self._parking.skipped

    @property
    def parked(self) -> int:
        """Updates that were parked in this epoch."""
        return self._parking.parked

    @property
    def figures(self) -> tuple[int, float, int, int, int]:
        """Updates, seconds in callbacks that returned, failures, bytes queued and bytes kept for a rollback; of this
        epoch.
        """
        meter, log = self._calls.meter, self._log
        return self.updates, meter.busy, meter.failures, log.waiting_bytes, log.held_bytes

    # --- called from outside ---

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends with the epoch and raises nothing but cancellation."""
        self._task = asyncio.create_task(self._run(), name=f"wormhole flow {self.shard}")
        return self._task

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once nothing of this epoch runs any more."""
        if self._task is not None:
            self._task.add_done_callback(lambda _: callback())

    def feed(self, item: Item) -> None:
        """Something arrived for the flow."""
        if self._epoch.ending is None:
            self._keep(item)
            self._stir()

    def _keep(self, item: Item) -> None:
        if isinstance(item, BatchItem):
            self._batch_number = item.number
            try:
                item.body = self._endings.pass_on(item.body, unfinished=item.unfinished)
            except ProtocolError:
                pass  # refused in its turn, when it is parsed to be delivered
        elif (body := self._endings.release()) is not None:
            self._log.append(BatchItem(self._batch_number, replayed=False, body=body))
        self._log.append(item)

    def end(self, ending: Ending, cause: str = "") -> None:
        """No new work is begun; what runs may finish. The first reason stays."""
        if self._epoch.end(ending, cause):
            self._parking.end()
            self._stir()

    def park_answered(self, update_id: str, refused: str) -> None:
        """The publisher stored an update, or ``refused`` to."""
        self._parking.answered(update_id, refused)

    def report(self, now: float) -> push_pb2.HandlerReport:
        """How the callbacks do, and which was the slowest since this was asked last. ``now``: of the loop's clock."""
        meter = self._calls.meter
        table, slowest = meter.slowest()
        running, since = self._calls.running(now)
        return push_pb2.HandlerReport(
            updates=self.updates,
            busy_s=meter.spent(now),
            failures=meter.failures,
            slowest_table=table,
            slowest_s=slowest,
            queued_bytes=self._log.waiting_bytes,
            running_update="" if running is None else running.id,
            running_s=since,
            skipped=self.skipped,
            parked=self.parked,
        )

    def kill(self) -> None:
        """Cancel also what runs."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until no callback of this epoch runs any more."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _stir(self) -> None:
        self._epoch.resting = self._parking.waiting  # nothing continues before the answer
        self._wake.set()

    # --- the epoch ---

    async def _run(self) -> None:
        epoch = self._epoch
        try:
            before, self._before = self._before, None
            if before is not None:
                await before.ended()
            if epoch.ending is None:
                await self._open()
            while epoch.ending is None:
                item = None if epoch.standing else self._log.take()
                if item is None:
                    await self._rest()
                else:
                    self._later = None
                    await self._work(item)
            await self._close()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Ours, not the application's: say so, and let the publisher hold the flow rather than lose the place.
            log.exception("flow %s epoch %d broke inside the SDK at %s", self.shard, self.epoch, self.marker)
            self._port.fail(push_pb2.Failed.HANDLER, "", f"internal error of the subscriber: {error!r}")
        finally:
            self._calls.close()
            self._log.drop_waiting()

    async def _rest(self) -> None:
        self._wake.clear()
        self._epoch.rest()
        later = None if self._epoch.standing else self._later
        try:
            async with asyncio.timeout_at(None if later is None else later[1]):
                await self._wake.wait()
        except TimeoutError:
            assert later is not None
            self._later = None
            self._stir()
            if self._epoch.ending is None:
                await self._work(later[0])
        self._calls.breathed()

    async def _open(self) -> None:
        self._told = True
        epoch = self._epoch
        notice = ShardNotice(NoticeKind.ASSIGNED, self.shard, self.epoch, epoch.marker, rewound=self._rewound)
        while epoch.ending is None:
            try:
                have = await self._calls.call("on_shard_notice", notice)
                if have is not None and not isinstance(have, Datamarker):
                    raise TypeError(f"on_shard_notice returned {have!r}: a Datamarker or None is expected")
            except Exception as error:  # noqa: BLE001 - whatever the application raises is its failure, not ours
                if isinstance(error, EpochRefused) and self.epoch <= error.held_epoch < FIRST_NO_EPOCH:
                    self._refuse(error)
                    return
                if not await self._recovery.again(error):
                    return
                continue
            if have is not None and self._rewound and have.order > epoch.marker.order:
                log.warning(
                    "shard %s was set back to %s: delivery begins there, not at %s, which the application returned",
                    self.shard,
                    epoch.marker,
                    have,
                )
                have = None
            if have is not None:
                epoch.marker = have
            if self._rolled_back and not await self._undo(self._rolled_back):
                return
            log.debug("flow %s epoch %d assigned from %s", self.shard, self.epoch, epoch.marker)
            self._counts.begin(self.epoch)
            self._port.accept(self.credit, have, self._counts)
            return

    def _refuse(self, refused: EpochRefused) -> None:
        """The application has durably seen a later epoch than this one: the publisher assigns the shard in one above
        that.
        """
        held = Held(refused.held_epoch)
        message = f"epoch {self.epoch} of shard {self.shard} is refused: the application holds it in epoch {held.epoch}"
        log.warning("publisher %s: %s: %s", self._port.peer.name, message, refused.message)
        self._epoch.standing = True
        self._port.fail(push_pb2.Failed.STALE_EPOCH, "", message, held)

    async def _undo(self, transaction: str) -> bool:
        """Have the application undo what an earlier epoch delivered of a transaction. Whether the flow continues."""
        epoch = self._epoch
        cause = TransactionRolledBack(
            f"the database rolled back transaction {transaction}, of which a part was delivered",
            shard=self.shard,
            position=str(epoch.marker.order),
            hint="undo what its updates changed in your own data; nothing of it comes again",
        )
        return await self._recovery.undo(cause)

    async def _settle(self) -> None:
        """Acknowledge what was processed although the flow ends: a datamarker with no unfinished work before it still
        counts, so that the shard's next subscriber repeats nothing of it.
        """
        item = self._log.peek()
        if self._epoch.standing or self._log.unfinished or not isinstance(item, MarkerItem):
            return
        self._log.take()
        try:
            acknowledge = await self._tell(item)
        except Exception:
            log.exception("on_datamarker of shard %s failed as the shard goes; its last updates come again", self.shard)
        else:
            if acknowledge:
                self._acknowledge(item)

    async def _close(self) -> None:
        given_back = self._epoch.ending in _GIVEN_BACK
        if given_back:
            await self._settle()
        self._calls.close()
        waiting = self._log.drop_waiting()
        if self._told:
            notice = ShardNotice(NoticeKind.REVOKED, self.shard, self.epoch, self.acked, self.cause)
            try:
                await self._calls.call("on_shard_notice", notice)
            except Exception:
                log.exception("on_shard_notice(REVOKED) of shard %s failed; the shard goes all the same", self.shard)
        if given_back:
            self._port.release(self.acked)
        log.debug(
            "flow %s epoch %d ended at %s (%s); %d items not begun",
            self.shard,
            self.epoch,
            self.acked,
            self.cause,
            waiting,
        )

    async def _work(self, item: Item) -> None:
        try:
            match item:
                case BatchItem():
                    await self._batch(item)
                case MarkerItem():
                    if await self._tell(item):
                        self._acknowledge(item)
                case NoticeItem():
                    await self._calls.call("on_shard_notice", item.notice)
                case LossItem():
                    await self._loss(item)
        except ParallelFailure as failure:
            await self._recovery.failed(failure.error, failure.update)
        except Exception as error:  # noqa: BLE001 - see _open
            await self._recovery.failed(error, self._calls.broken())

    async def _tell(self, item: MarkerItem) -> bool:
        """Whether the application is through with what is before the marker."""
        if "on_datamarker" not in self._handlers.overridden:
            return True
        answer = await self._calls.call("on_datamarker", replace(item.marker, shard=self.shard))
        if answer is None:
            return True
        if not isinstance(answer, AckLater):
            raise TypeError(f"on_datamarker returned {answer!r}: an AckLater or None is expected")
        self._later = (item, asyncio.get_running_loop().time() + answer.seconds)
        return False

    def _acknowledge(self, item: MarkerItem) -> None:
        self._epoch.acknowledged(item.marker)
        self._log.acknowledge(item)
        self._recovery.got_on()
        self._counts.acknowledged()
        self._port.ack(item.marker)

    async def _loss(self, item: LossItem) -> None:
        if item.decided:
            return
        decision = await self._calls.call("on_data_loss", item.loss)
        if not isinstance(decision, LossDecision):
            raise TypeError(f"on_data_loss returned {decision!r}: a LossDecision is expected")
        item.decided = True
        log.warning("flow %s: %s: %s", self.shard, item.loss.message, decision.value)
        self._port.decide_loss(proceed=decision is LossDecision.CONTINUE)

    # --- updates ---

    async def _batch(self, item: BatchItem) -> None:
        calls, parking = self._calls, self._parking
        if self._concurrency > 1 and not self._handlers.batched:
            await run_parallel(
                item,
                self._log,
                parse=self._parse,
                call=calls.one if parking.gate.idle else parking.one,
                finished=self._finished,
                partly=self._partly,
                wake=self._wake,
                going=lambda: self._epoch.ending is None,
                concurrency=self._concurrency,
            )
            return
        updates = self._parse(item)
        if updates is None:
            return
        before = calls.count + parking.diverted
        if updates:
            singly = self._handlers.batched and self._recovery.singly(updates[0])
            plain = parking.gate.idle and not singly
            try:
                done = await (calls.sequence(updates) if plain else parking.sequence(updates, singly=singly))
            except BaseException:
                self._partly(item, self._calls.returned(updates))
                raise
            if not done:
                self._partly(item, self._calls.returned(updates))
                return
        missed = len(updates) - (calls.count + parking.diverted - before)
        if missed:
            self._counts.processed(
                {min(item.windows): -missed}
            )  # nobody called them: the publisher sees that they lack
        self._finished(item, len(updates))
        await calls.breathe()

    def _parse(self, item: BatchItem) -> list[Update] | None:
        """The batch's updates; ``None`` after a breach of the protocol, which ends the stream."""
        try:
            body = parse_body(item.body)
            for id_ in body.schema_ids:
                try:
                    self._port.schema(id_)
                except KeyError:
                    raise ProtocolError(
                        f"batch.body.schema_ids: {id_:#018x} in batch {item.number} was not sent on this stream"
                    ) from None
        except ProtocolError as error:
            error.at(shard=self.shard)
            self._epoch.standing = True
            self._port.refuse(error)
            return None
        item.windows = windows_in(body)
        return Batch(body, self.shard, self.epoch, item.replayed, self._port.schema).updates()

    def _finished(self, item: BatchItem, updates: int) -> None:
        self.updates += updates
        self._counts.processed(item.windows)
        self._port.progress(self._log.finish(item))

    def _partly(self, item: BatchItem, updates: int) -> None:
        """The batch comes again, but callbacks of its first ``updates`` have returned: they count as any."""
        if updates:
            self._counts.processed(windows_in(parse_body(item.body), updates))
