"""Processes one epoch of a flow: takes the items that arrived, in order, and runs the application's callbacks.

The order of one epoch of a flow, as the application sees it::

    [previous epoch ended] ASSIGNED { work | on_datamarker | on_data_loss | REPLAY_BEGIN | REPLAY_END
                                    | on_range | on_scan_end } REVOKED
    work = [ on_schema ] on_update

``callbacks`` runs the callbacks, ``recovery`` decides what follows when one fails, and ``parking`` has an update stored
in place of its callback. They share the ``epoch``.

An update is never acknowledged before its callback has returned, even if the process dies. ``ack`` is called after
``on_datamarker``. ``on_datamarker`` is called after every earlier callback returned, or after the publisher stored the
update in place of its callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Ending, Epoch, LoopLeft
from subscriber_sdk.calls.failure_report import headline, logged_error
from subscriber_sdk.calls.gate import Gate
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.stream.counts import windows_in
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import FlowPort, Held
from subscriber_sdk.subscriber import AckLater, KeptMarker, LossDecision, NoticeKind, SchemaChange, ShardNotice
from subscriber_sdk.verify.verifying import FlowVerifying
from subscriber_sdk.work.acks import BatchItem, FlowLog, Item, LossItem, MarkerItem, NoticeItem, RangeItem, ScanEndItem
from subscriber_sdk.work.backfill_calls import BackfillCalls
from subscriber_sdk.work.parallel import ParallelFailure, run_parallel
from subscriber_sdk.work.parking import Parking
from subscriber_sdk.work.recovery import KeptOverEpochs, Recovery
from subscriber_sdk.work.schemas import TABLE_BYTES, FlowSchemas
from subscriber_sdk.work.tracing import tracing
from wormhole.model.errors import EpochRefused, ProtocolError, TransactionRolledBack
from wormhole.model.position import Datamarker
from wormhole.model.verification import VerifyMode
from wormhole.push.epochs import FIRST_NO_EPOCH
from wormhole.push.moves import is_from_before, refuses_later
from wormhole.wire.body import parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowWorker"]

log = logging.getLogger("subscriber_sdk")

# While datamarkers come faster than this many seconds, a datamarker is dropped if another one waits behind it.
_MARKERS_APART_S: Final = 0.02
_GIVEN_BACK = frozenset({Ending.REVOKED, Ending.LEAVING})  # endings in which the publisher waits for Released


class FlowWorker:
    """The callbacks of one epoch of one flow. :meth:`feed` and :meth:`end` are called from the loop that :meth:`start`
    was called on.

    ``kept``: the shard's state, common to all its epochs.
    """

    def __init__(
        self,
        handlers: Handlers,
        options: Options,
        port: FlowPort,
        assigned: Assigned,
        kept: KeptOverEpochs,
        *,
        credit: int,
    ) -> None:
        self.epoch = Epoch(assigned.shard, assigned.epoch, assigned.marker, kept.rested)
        self.credit = credit
        self.updates = 0
        """The number of updates whose callback returned, repeats included."""
        self._handlers = handlers
        self._port = port
        self._concurrency = options.concurrency
        self._assigned = assigned
        self._counts = counts = kept.counts
        self._retry = kept.retry
        # A publisher sends a datamarker every 4 MiB, so twice the default credit holds all updates between two of them.
        self._log = FlowLog(2 * credit)
        gate = Gate(assigned.skip, assigned.parked, parks=assigned.park)
        self._callbacks = Callbacks(self.epoch, handlers, options.handler_timeout)
        self._parking = Parking(self.epoch, self._callbacks, port, gate, counts.set_aside, lasting=options.lasting)
        self._recovery = Recovery(self.epoch, self._callbacks, self._parking, self._log, port, kept)
        self._verifying: FlowVerifying | None = None
        if assigned.verify is not VerifyMode.NONE:
            self._verifying = FlowVerifying(self.epoch, assigned, handlers, self._callbacks, gate, port, kept.retry)
        self._backfill = self._verifying or BackfillCalls(
            self.epoch, handlers.overridden, self._callbacks, gate, assigned.generation
        )
        self._schemas = FlowSchemas(self._hold_table) if "on_schema" in handlers.overridden else None
        self._held: list[Callable[[], None]] = []  # functions that end the charges for the memory of tables
        self._endings = Endings()
        self._application = options.application
        self._tracing = tracing(options.application, assigned.shard, assigned.epoch)
        self._merges = handlers.name == "on_updates" and self._verifying is None
        self._in_pieces = False  # whether the last transaction of the previous batch continues
        self._marked = 0.0  # the time, by the loop's clock, at which on_datamarker returned last
        self._batch_number = 0  # the number of the batch that arrived last
        self._wake = asyncio.Event()
        self._notified = False  # ASSIGNED was delivered, so REVOKED has to follow
        self._later: tuple[MarkerItem, float] | None = None  # an unacknowledged item, and when to call again
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        epoch = self.epoch
        state = epoch.ending.value if epoch.ending else epoch.state
        return (
            f"<flow {epoch.shard} epoch {epoch.number}: {state}, {len(self._log)} waiting, "
            f"{self.updates} updates, marker {epoch.marker}>"
        )

    @property
    def figures(self) -> tuple[int, float, int, int, int, int]:
        """The figures of this epoch: updates, seconds in callbacks that returned, failures, bytes queued, bytes kept
        for a rollback, and :attr:`postponed`.
        """
        meter, log = self._callbacks.meter, self._log
        return self.updates, meter.busy, meter.failures, log.waiting_bytes, log.held_bytes, self.postponed

    @property
    def postponed(self) -> int:
        """Tries since the last acknowledgement, in all epochs, that failed with ``TargetUnavailable``."""
        return self._retry.postponed

    # --- called from outside ---

    def start(self, before: FlowWorker | None = None) -> asyncio.Task[None]:
        """Begin to work. The returned task ends with the epoch, and raises nothing but cancellation.

        ``before``: an earlier epoch whose callbacks have to end first.
        """
        self._task = asyncio.create_task(self._run(before), name=f"wormhole flow {self.epoch.shard}")
        return self._task

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once no callback of this epoch runs any more."""
        if self._task is not None:
            self._task.add_done_callback(lambda _: callback())

    def feed(self, item: Item) -> None:
        """Add an item that arrived for the flow."""
        if self.epoch.ending is None:
            self._keep(item)
            self._stir()

    def _keep(self, item: Item) -> None:
        if isinstance(item, BatchItem):
            self._batch_number = item.number
            try:
                item.body = self._endings.pass_on(item.body, unfinished=item.unfinished)
            except ProtocolError:
                pass  # the body is refused later, when it is parsed for delivery
        elif (body := self._endings.release()) is not None:
            self._log.append(BatchItem(self._batch_number, replayed=False, body=body))
        self._log.append(item)

    def end(self, ending: Ending, cause: str = "") -> None:
        """Begin no new work. Running callbacks may finish. The first reason stays."""
        if self.epoch.end(ending, cause):
            self._parking.end()
            self._stir()

    def park_answered(self, update_id: str, refused: str) -> None:
        """Handle the publisher's answer to an update to be parked. ``refused``: why it is not; empty: it is stored."""
        self._parking.answered(update_id, refused)

    def report(self, now: float) -> push_pb2.HandlerReport:
        """A report of the callbacks, with the slowest since the last report. ``now``: the time of the loop's clock."""
        meter = self._callbacks.meter
        table, slowest = meter.slowest()
        running, since = self._callbacks.running(now)
        return push_pb2.HandlerReport(
            updates=self.updates,
            busy_s=meter.spent(now),
            failures=meter.failures,
            slowest_table=table,
            slowest_s=slowest,
            queued_bytes=self._log.waiting_bytes,
            running_update="" if running is None else running.id,
            running_s=since,
            skipped=self._parking.skipped,
            parked=self._parking.parked,
        )

    def kill(self) -> None:
        """Also cancel running callbacks."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until no callback of this epoch runs any more."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _stir(self) -> None:
        self.epoch.resting = self._parking.waiting  # no work continues before the publisher's answer
        self._wake.set()

    # --- the epoch ---

    async def _run(self, before: FlowWorker | None) -> None:
        epoch = self.epoch
        try:
            if before is not None:
                await before.ended()
            del before
            if epoch.ending is None:
                await self._open()
            while epoch.ending is None:
                item = None if epoch.stopped else self._log.take(over=self._is_soon)
                if item is None:
                    await self._rest()
                else:
                    self._later = None
                    await self._work(item)
            await self._close()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # A fault of the SDK, not of the application: report it, so that the publisher holds the flow.
            log.exception("flow %s epoch %d broke inside the SDK at %s", epoch.shard, epoch.number, epoch.marker)
            self._port.fail(push_pb2.Failed.HANDLER, "", f"internal error of the subscriber: {error!r}")
        finally:
            self._callbacks.close()
            self._log.drop_waiting()
            for release in self._held:
                release()
            if self._verifying is not None:
                self._verifying.close()

    async def _rest(self) -> None:
        self._wake.clear()
        self.epoch.rest()
        later = None if self.epoch.stopped else self._later
        if later is None:
            await self._wake.wait()
        else:
            await self._wait_to_ask(*later)
        self._callbacks.breathed()

    async def _wait_to_ask(self, item: MarkerItem, at: float) -> None:
        """Wait until an item arrives, or until ``on_datamarker`` has to be called again for the unacknowledged
        marker."""
        try:
            async with asyncio.timeout_at(at):
                await self._wake.wait()
        except TimeoutError:
            self._later = None
            self._stir()
            if self.epoch.ending is None:
                await self._work(item)

    async def _open(self) -> None:
        self._notified = True
        epoch = self.epoch
        assigned = self._assigned
        notice = ShardNotice(
            NoticeKind.ASSIGNED,
            epoch.shard,
            epoch.number,
            epoch.marker,
            rewound=assigned.rewound,
            move=assigned.move,
            acknowledged=assigned.acknowledged,
            last_ack=assigned.last_ack,
            application=self._application,
            dataset=self._port.peer.dataset,
            log=self._port.peer.log,
            generation=assigned.generation,
        )
        while epoch.ending is None:
            try:
                kept = await self._callbacks.call("on_shard_notice", notice)
                if kept is not None and not isinstance(kept, Datamarker | KeptMarker):
                    raise TypeError(f"on_shard_notice returned {kept!r}: a Datamarker, KeptMarker or None is expected")
            except Exception as error:  # noqa: BLE001 - whatever the application raises is its failure, not ours
                if isinstance(error, EpochRefused) and epoch.number <= error.held_epoch < FIRST_NO_EPOCH:
                    self._refuse(error)
                    return
                if not await self._recovery.retry(error):
                    return
                continue
            have, move = _kept(kept, assigned)
            if have is not None:
                epoch.marker = have
            if self._assigned.rolled_back and not await self._undo(self._assigned.rolled_back):
                return
            log.debug("flow %s epoch %d assigned from %s", epoch.shard, epoch.number, epoch.marker)
            self._counts.begin(epoch.number)
            self._port.accept(self.credit, have, self._counts, move)
            return

    def _refuse(self, refused: EpochRefused) -> None:
        """Refuse this epoch, because the application has stored a higher one. The publisher then assigns the shard in
        an epoch above the stored one."""
        epoch, held = self.epoch, Held(refused.held_epoch)
        message = (
            f"epoch {epoch.number} of shard {epoch.shard} is refused: the application holds it in epoch {held.epoch}"
        )
        log.warning("publisher %s: %s: %s", self._port.peer.name, message, refused.message)
        epoch.stopped = True
        self._port.fail(push_pb2.Failed.STALE_EPOCH, "", message, held)

    async def _undo(self, transaction: str) -> bool:
        """Have the application undo the part of a transaction that an earlier epoch delivered. Returns whether the flow
        continues."""
        epoch = self.epoch
        cause = TransactionRolledBack(
            f"the database rolled back transaction {transaction}, of which a part was delivered",
            shard=epoch.shard,
            position=str(epoch.marker.order),
            hint="undo what its updates changed in your own data; nothing of it comes again",
        )
        return await self._recovery.undo(cause)

    async def _settle(self) -> None:
        """Acknowledge processed work although the flow ends. A datamarker without unfinished work before it is still
        acknowledged, so that the shard's next subscriber repeats nothing.
        """
        epoch, item = self.epoch, self._log.peek()
        if epoch.stopped or self._log.unfinished or not isinstance(item, MarkerItem):
            return
        self._log.take()
        try:
            acknowledge = await self._on_datamarker(item)
        except LoopLeft:
            pass  # no failure; the updates that were gathered before the marker are delivered again
        except Exception as error:
            log.error(
                "%s; on_datamarker of shard %s failed as the shard goes; its last updates come again",
                headline(error),
                epoch.shard,
                exc_info=logged_error(error),
            )
        else:
            if acknowledge:
                self._acknowledge(item)

    async def _close(self) -> None:
        epoch = self.epoch
        given_back = epoch.ending in _GIVEN_BACK
        if given_back:
            await self._settle()
        self._callbacks.close()
        waiting = self._log.drop_waiting()
        if self._notified:
            notice = ShardNotice(NoticeKind.REVOKED, epoch.shard, epoch.number, epoch.acked, epoch.cause)
            try:
                await self._callbacks.call("on_shard_notice", notice)
            except Exception as error:
                log.error(
                    "%s; on_shard_notice(REVOKED) of shard %s failed; the shard goes all the same",
                    headline(error),
                    epoch.shard,
                    exc_info=logged_error(error),
                )
        if given_back:
            self._port.release(epoch.acked)
        log.debug(
            "flow %s epoch %d ended at %s (%s); %d items not begun",
            epoch.shard,
            epoch.number,
            epoch.acked,
            epoch.cause,
            waiting,
        )

    async def _work(self, item: Item) -> None:
        try:
            match item:
                case BatchItem():
                    with nullcontext() if self._tracing is None else self._tracing.batch(replayed=item.replayed):
                        await self._batch(item)
                case MarkerItem():
                    if await self._on_datamarker(item):
                        self._acknowledge(item)
                case NoticeItem():
                    await self._callbacks.call("on_shard_notice", item.notice)
                case LossItem():
                    await self._loss(item)
                case RangeItem():
                    await self._backfill.range_end(item.frame, item.schema)
                case ScanEndItem():
                    await self._backfill.scan_end(item.table, item.rows)
            self._log.passed()
        except ParallelFailure as failure:
            await self._failed(failure.error, failure.update)
        except Exception as error:  # noqa: BLE001 - see _open
            await self._failed(error, self._callbacks.broken())

    async def _failed(self, error: Exception, update: Update | None) -> None:
        if self._schemas is not None:
            self._schemas.rolled_back()
        await self._recovery.failed(error, update)

    async def _on_datamarker(self, item: MarkerItem) -> bool:
        """Call ``on_datamarker``. Returns whether the marker may be acknowledged."""
        if "on_datamarker" not in self._handlers.overridden:
            return True
        answer = await self._callbacks.call("on_datamarker", replace(item.marker, shard=self.epoch.shard))
        self._marked = asyncio.get_running_loop().time()
        if answer is None:
            return True
        if not isinstance(answer, AckLater):
            raise TypeError(f"on_datamarker returned {answer!r}: an AckLater or None is expected")
        self._later = (item, asyncio.get_running_loop().time() + answer.seconds)
        return False

    def _acknowledge(self, item: MarkerItem) -> None:
        if self._verifying is not None:
            self._verifying.acknowledged()
        self._log.acknowledge(item)
        if self._schemas is not None:
            self._schemas.acknowledged()
        self._retry.reset()
        self._counts.acknowledged()
        self.epoch.acknowledged(item.marker, sent=self._port.ack(item.marker))

    async def _loss(self, item: LossItem) -> None:
        if item.decided:
            return
        decision = await self._callbacks.call("on_data_loss", item.loss)
        if decision is None:
            decision = LossDecision.HALT
        if not isinstance(decision, LossDecision):
            raise TypeError(f"on_data_loss returned {decision!r}: a LossDecision is expected")
        item.decided = True
        proceed = decision is LossDecision.CONTINUE
        log.warning(
            "flow %s: log is missing: %s; on_data_loss %s. Next: `wormholectl repair %s/%s` sends the rows that the "
            "application lacks",
            self.epoch.shard,
            item.loss.message,
            "continues without it" if proceed else "halts the flow",
            self._application,
            self.epoch.shard,
        )
        self._port.decide_loss(proceed=proceed)

    # --- updates ---

    async def _batch(self, item: BatchItem) -> None:
        calls = self._callbacks
        parallel = self._concurrency > 1 and not self._handlers.batched
        if parallel and self._verifying is None:
            await self._parallel(item, self._steps)
            return
        items = [item]
        if self._merges and not self._in_pieces:
            items = self._log.take_together(item, over=self._is_soon)
        self._in_pieces = items[-1].unfinished
        updates: list[Update] = []
        changes: list[tuple[int, SchemaChange]] = []
        counts = []
        for one in items:
            parsed = self._parse(one)
            if parsed is None:
                return
            changes += [(len(updates) + at, change) for at, change in parsed[1]]
            updates += parsed[0]
            counts.append(len(parsed[0]))
        if self._verifying is not None:
            await self._verifying.note(updates)
            if parallel and not self._verifying.has_reads(updates):
                await self._parallel(item, lambda _: _steps(updates, changes), ahead=False)
                return
        before = self._done
        if updates:
            done = False
            try:
                done = await self._sequence(updates, changes)
            finally:
                if not done:
                    returned = self._callbacks.returned(updates)
                    for one, count in zip(items, counts, strict=True):
                        self._partially(one, min(returned, count))
                        returned = max(0, returned - count)
            if not done:
                return
        missed = len(updates) - (self._done - before)
        if missed and item.windows:
            self._counts.processed(
                {min(item.windows): -missed}
            )  # they got no callback: the publisher sees that they are missing
        for one, count in zip(items, counts, strict=True):
            self._finished(one, count)
        await calls.breathe()

    @property
    def _is_soon(self) -> bool:
        """Whether the last datamarker was handled a short time ago."""
        return asyncio.get_running_loop().time() - self._marked < _MARKERS_APART_S

    @property
    def _done(self) -> int:
        """The number of updates that were processed in sequence, repeats included."""
        compared = 0 if self._verifying is None else self._verifying.passed
        return self._callbacks.count + self._parking.diverted + compared

    async def _parallel(
        self,
        item: BatchItem,
        parse: Callable[[BatchItem], list[Update | SchemaChange] | None],
        *,
        ahead: bool = True,
    ) -> None:
        await run_parallel(
            item,
            self._log,
            parse=parse,
            call=self._step,
            finished=self._finished,
            unfinished=self._partially,
            wake=self._wake,
            going=lambda: self.epoch.ending is None,
            concurrency=self._concurrency,
            ahead=ahead,
        )

    async def _sequence(self, updates: list[Update], changes: list[tuple[int, SchemaChange]]) -> bool:
        """Process one update after the other. Returns whether all were processed; false if the epoch ended
        meanwhile."""
        calls = self._callbacks
        singly = self._handlers.batched and self._recovery.singly(updates[0])
        begin = 0
        for at, change in changes:
            if at > begin:
                part = updates[begin:at]
                if not await self._each(part, singly=singly):
                    return False
            calls.stop_before(updates[at])
            await calls.call("on_schema", change)
            if self.epoch.ending is not None:
                return False
            begin = at
        rest = updates[begin:] if begin else updates
        return await self._each(rest, singly=singly)

    async def _each(self, updates: list[Update], *, singly: bool) -> bool:
        """Process one update after the other, with one schema for each table."""
        plain = self._parking.gate.idle and not singly
        deliver = self._callbacks.sequence if plain else partial(self._parking.sequence, singly=singly)
        return await (deliver(updates) if self._verifying is None else self._verifying.sequence(updates, deliver))

    async def _step(self, step: Update | SchemaChange) -> None:
        """Process one update or schema change, while others may be processed at the same time."""
        if isinstance(step, SchemaChange):
            await self._callbacks.call("on_schema", step)
        elif self._parking.gate.idle:
            await self._callbacks.one(step)
        else:
            await self._parking.one(step)

    def _steps(self, item: BatchItem) -> list[Update | SchemaChange] | None:
        """Like :meth:`_parse`, as one list with each schema change before the first update that has the new schema."""
        parsed = self._parse(item)
        return None if parsed is None else _steps(*parsed)

    def _hold_table(self, table: str) -> None:
        self._held.append(self._port.hold(TABLE_BYTES, f"a table of shard {self.epoch.shard}"))

    def _parse(self, item: BatchItem) -> tuple[list[Update], list[tuple[int, SchemaChange]]] | None:
        """The batch's updates, and the places where the schema of a table changes; ``None`` after a breach of the
        protocol, which ends the stream.
        """
        try:
            body = parse_body(item.body)
            tables = []
            for id_ in body.schema_ids:
                try:
                    tables.append(self._port.schema(id_).table)
                except KeyError:
                    raise ProtocolError(
                        f"batch.body.schema_ids: {id_:#018x} in batch {item.number} was not sent on this stream"
                    ) from None
            epoch, generation = self.epoch, self._assigned.generation
            batch = Batch(body, epoch.shard, epoch.number, item.replayed, self._port.schema, generation)
            updates = batch.updates()
            changes = [] if self._schemas is None else self._schemas.changes_in(batch, updates)
        except ProtocolError as error:
            error.at(shard=self.epoch.shard)
            self.epoch.stopped = True
            self._port.refuse(error)
            return None
        item.windows = windows_in(body)
        if self._tracing is not None:
            self._tracing.parsed(len(body.updates), tables, body.tx_committed_at_us)
        return updates, changes

    def _finished(self, item: BatchItem, updates: int) -> None:
        self.updates += updates
        self._counts.processed(item.windows)
        self._port.progress(self._log.finish(item))

    def _partially(self, item: BatchItem, updates: int) -> None:
        """Count the callbacks of the first ``updates`` of a batch, which have returned although the batch is delivered
        again."""
        if updates:
            self._counts.processed(windows_in(parse_body(item.body), updates))


def _kept(kept: Datamarker | KeptMarker | None, assigned: Assigned) -> tuple[Datamarker | None, int]:
    """The datamarker at which the application continues, and the move that is stored with it (0: unknown). The
    datamarker is ``None`` if none is stored, or if the shard was moved after it was stored.
    """
    if kept is None:
        return None, 0
    have, move = (kept.marker, kept.move) if isinstance(kept, KeptMarker) else (kept, 0)
    numbered, later = isinstance(kept, KeptMarker), have.order > assigned.marker.order
    if (numbered and is_from_before(assigned.move, known=move)) or (
        later and refuses_later(assigned.move, rewound=assigned.rewound, known=move)
    ):
        log.warning(
            "shard %s was set to %s: delivery begins there, not at %s, which the application returned",
            assigned.shard,
            assigned.marker,
            have,
        )
        return None, 0
    return have, move


def _steps(updates: list[Update], changes: list[tuple[int, SchemaChange]]) -> list[Update | SchemaChange]:
    """The updates, with each schema change before the first update that has the new schema."""
    steps: list[Update | SchemaChange] = [*updates]
    for at, change in reversed(changes):
        steps.insert(at, change)
    return steps
