"""One flow at work: takes what arrived, in order, and runs the application's callbacks on it.

The order of one epoch of a flow, as the application sees it::

    [previous epoch ended] ASSIGNED { on_update | on_datamarker | on_data_loss | REPLAY_BEGIN | REPLAY_END } REVOKED

A callback that raises leads back to the last acknowledged place (``on_rollback``), a wait, and the same updates again from
what is held here. Retries exhausted: the flow stands, and nothing but its revocation moves it. Where the application parks, the update is
stored by the publisher first, then comes the rollback, and when the update comes by again it is passed over, with all of its row behind it
(``gate``).

If the process dies at any point, nothing was acknowledged whose callbacks had not returned: ``ack`` is called after
``on_datamarker``, and that only after every callback before it, or once the publisher has stored the update in place of its callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from enum import Enum
from typing import Any, Final, Protocol

from subscriber_sdk.acks import BatchItem, FlowLog, Item, LossItem, MarkerItem, NoticeItem
from subscriber_sdk.gate import Gate, ParkRefused, Verdict
from subscriber_sdk.handlers import Handlers, each_in_thread
from subscriber_sdk.meter import Meter
from subscriber_sdk.parallel import ParallelFailure, run_parallel
from subscriber_sdk.retry import Place, Retry
from subscriber_sdk.subscriber import FlowHalted, LossDecision, NoticeKind, ShardNotice
from subscriber_sdk.watchdog import Watchdog
from wormhole.dead_letters import Parcel, UpdatePlace, place_of, wrap
from wormhole.errors import DecodeError, ProtocolError
from wormhole.position import Datamarker
from wormhole.schema import Schema
from wormhole.update import Batch, Update
from wormhole.wire.body import parse_body
from wormhole.wire.v1 import push_pb2

__all__ = ["Ending", "FlowPort", "FlowWorker"]

log = logging.getLogger("subscriber_sdk")

_SLICE_S: Final = 0.002  # how long callbacks that never wait may keep the loop from heartbeats and other flows
_SLICE_UPDATES: Final = 64
_LONGEST_ERROR: Final = 1000


class FlowPort(Protocol):
    """Where a flow's answers go. Every method does nothing once the flow is not the stream's any more."""

    def accept(self, credit: int, have: Datamarker | None) -> None:
        """Take the flow; batches may come."""
        ...

    def progress(self, number: int) -> None:
        """Callbacks up to this batch returned."""
        ...

    def ack(self, marker: Datamarker) -> None:
        """Everything before the marker was processed."""
        ...

    def release(self, marker: Datamarker | None) -> None:
        """Give the flow back."""
        ...

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str) -> None:
        """The flow cannot go on here."""
        ...

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have an update stored; :meth:`FlowWorker.park_answered` answers."""
        ...

    def decide_loss(self, *, proceed: bool) -> None:
        """Whether the flow goes on after a gap."""
        ...

    def refuse(self, error: ProtocolError) -> None:
        """The publisher broke the protocol: end its stream."""
        ...

    def schema(self, id_: int) -> Schema:
        """A schema of the stream. Raises ``KeyError``."""
        ...


class Ending(Enum):
    """Why a flow's epoch ends here."""

    REVOKED = "revoked"
    LEAVING = "this subscriber leaves"
    CUT = "a newer epoch was assigned"
    LOST = "the connection to the publisher was lost"


class FlowWorker:
    """One epoch of one flow. :meth:`feed` and :meth:`end` are called from the loop that :meth:`start` was called on.

    ``before``: an earlier epoch whose callbacks have to end first. ``chance``: random numbers from 0 to 1, for waits.
    ``rested``: called when the flow comes to rest. ``gate``: what is passed over or parked; ``parks``: whether what a handler gives up on is.
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
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.marker = marker
        self.credit = credit
        self.acked: Datamarker | None = None
        """The last marker acknowledged in this epoch."""
        self.halted: FlowHalted | None = None
        self.updates = 0
        """Updates whose callback returned, repeats included."""
        self.skipped = 0
        """Updates that were passed over, repeats included."""
        self.parked = 0
        """Updates that were parked in this epoch."""
        self.resting = False
        """Whether nothing is left to do until something arrives."""
        self._handlers = handlers
        self._port = port
        self._concurrency = concurrency
        self._limit = handler_timeout
        self._retry = retry
        self._chance = chance
        self._before = before
        self._rested = rested
        self._gate = gate or Gate()
        self._parks = parks
        self._answers: dict[
            str, asyncio.Future[str | None]
        ] = {}  # what the publisher says of updates to be parked, by id
        self._together = 0  # updates that the failing callback got
        self._meter = Meter()
        # A publisher sends a datamarker every 4 MiB, so twice the default credit holds all that lies between two.
        self._log = FlowLog(2 * credit)
        self._wake = asyncio.Event()
        self._end = asyncio.Event()
        self._ending: Ending | None = None
        self._cause = ""
        self._standing = False
        self._told = False  # ASSIGNED was told, so REVOKED is owed
        self._watch = Watchdog(handler_timeout)
        self._stray: Future[bool] | None = None  # a thread that outlived its time
        self._breathed = 0.0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self._ending.value if self._ending else self.state
        return (
            f"<flow {self.shard} epoch {self.epoch}: {state}, {len(self._log)} waiting, "
            f"{self.updates} updates, marker {self.marker}>"
        )

    @property
    def state(self) -> str:
        """What it is doing, in a word: working, resting, standing, halted or ending."""
        if self._ending is not None:
            return "ending"
        if self.halted is not None:
            return "halted"
        return "standing" if self._standing else "resting" if self.resting else "working"

    @property
    def figures(self) -> tuple[int, float, int, int, int]:
        """Updates, seconds in callbacks that returned, failures, bytes queued and bytes kept for a rollback; of this epoch."""
        meter, log = self._meter, self._log
        return self.updates, meter.busy, meter.failures, log.waiting_bytes, log.held_bytes

    @property
    def cause(self) -> str:
        """Why the epoch ends here, in words; empty while it does not."""
        return self._cause

    # --- called from outside ---

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends with the epoch and raises nothing but cancellation."""
        self._task = asyncio.create_task(self._run(), name=f"wormhole flow {self.shard}")
        return self._task

    def feed(self, item: Item) -> None:
        """Something arrived for the flow."""
        if self._ending is None:
            self._log.append(item)
            self._stir()

    def end(self, ending: Ending, cause: str = "") -> None:
        """No new work is begun; what runs may finish. The first reason stays."""
        if self._ending is None:
            self._ending = ending
            self._cause = cause or ending.value
            self._end.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(None)
            self._stir()

    def park_answered(self, update_id: str, refused: str) -> None:
        """The publisher stored an update, or ``refused`` to."""
        answer = self._answers.get(update_id)
        if answer is not None and not answer.done():
            self.resting = False
            answer.set_result(refused)

    def report(self, now: float) -> push_pb2.HandlerReport:
        """How the callbacks do, and which was the slowest since this was asked last. ``now``: of the loop's clock."""
        table, slowest = self._meter.slowest()
        running, since = self._meter.running(self._watch.current, now)
        return push_pb2.HandlerReport(
            updates=self.updates,
            busy_s=self._meter.spent(now),
            failures=self._meter.failures,
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
        self.resting = any(not answer.done() for answer in self._answers.values())  # nothing goes on before the answer
        self._wake.set()

    # --- the epoch ---

    async def _run(self) -> None:
        try:
            before, self._before = self._before, None
            if before is not None:
                await before.ended()
            if self._ending is None:
                await self._open()
            while self._ending is None:
                item = None if self._standing else self._log.take()
                if item is None:
                    await self._rest()
                else:
                    await self._work(item)
            await self._close()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Ours, not the application's: say so, and let the publisher hold the flow rather than lose the place.
            log.exception("flow %s epoch %d broke inside the SDK at %s", self.shard, self.epoch, self.marker)
            self._port.fail(push_pb2.Failed.HANDLER, "", f"internal error of the subscriber: {error!r}")
        finally:
            self._watch.close()
            self._log.drop_waiting()

    async def _rest(self) -> None:
        self._wake.clear()
        self.resting = True
        self._rested()
        await self._wake.wait()
        self._breathed = asyncio.get_running_loop().time()

    async def _open(self) -> None:
        self._told = True
        notice = ShardNotice(NoticeKind.ASSIGNED, self.shard, self.epoch, self.marker)
        while self._ending is None:
            try:
                have = await self._call("on_shard_notice", notice)
                if have is not None and not isinstance(have, Datamarker):
                    raise TypeError(f"on_shard_notice returned {have!r}: a Datamarker or None is expected")
            except Exception as error:  # noqa: BLE001 - whatever the application raises is its failure, not ours
                if not self._count(error, None, ""):
                    await self._halt(error, "")
                    return
                await self._pause()
                continue
            if have is not None:
                self.marker = have
            log.debug("flow %s epoch %d assigned from %s", self.shard, self.epoch, self.marker)
            self._port.accept(self.credit, have)
            return

    async def _settle(self) -> None:
        """Acknowledge what was processed although the flow ends: a datamarker with no unfinished work before it still counts, so
        that whoever gets the shard next repeats nothing of it."""
        item = self._log.peek()
        if self._standing or self._log.unfinished or not isinstance(item, MarkerItem):
            return
        self._log.take()
        try:
            if "on_datamarker" in self._handlers.overridden:
                await self._call("on_datamarker", replace(item.marker, shard=self.shard))
        except Exception:
            log.exception("on_datamarker of shard %s failed as the shard goes; its last updates come again", self.shard)
        else:
            self._acknowledge(item)

    async def _close(self) -> None:
        if self._ending in {Ending.REVOKED, Ending.LEAVING}:
            await self._settle()
        self._watch.close()
        waiting = self._log.drop_waiting()
        if self._told:
            notice = ShardNotice(NoticeKind.REVOKED, self.shard, self.epoch, self.acked, self._cause)
            try:
                await self._call("on_shard_notice", notice)
            except Exception:
                log.exception("on_shard_notice(REVOKED) of shard %s failed; the shard goes all the same", self.shard)
        if self._ending in {Ending.REVOKED, Ending.LEAVING}:
            self._port.release(self.acked)
        log.debug(
            "flow %s epoch %d ended at %s (%s); %d items not begun",
            self.shard,
            self.epoch,
            self.acked,
            self._cause,
            waiting,
        )

    async def _work(self, item: Item) -> None:
        update: Update | None = None
        try:
            match item:
                case BatchItem():
                    await self._batch(item)
                case MarkerItem():
                    if "on_datamarker" in self._handlers.overridden:
                        await self._call("on_datamarker", replace(item.marker, shard=self.shard))
                    self._acknowledge(item)
                case NoticeItem():
                    await self._call("on_shard_notice", item.notice)
                case LossItem():
                    await self._loss(item)
        except ParallelFailure as failure:
            await self._failed(failure.error, failure.update)
        except Exception as error:  # noqa: BLE001 - see _open
            current = self._watch.current
            self._watch.rest()
            self._meter.end((), asyncio.get_running_loop().time())
            update = current if isinstance(current, Update) else None
            await self._failed(error, update, item)

    def _acknowledge(self, item: MarkerItem) -> None:
        self.marker = self.acked = item.marker
        self._log.acknowledge(item)
        self._retry.got_on()
        self._port.ack(item.marker)

    async def _loss(self, item: LossItem) -> None:
        if item.decided:
            return
        decision = await self._call("on_data_loss", item.loss)
        if not isinstance(decision, LossDecision):
            raise TypeError(f"on_data_loss returned {decision!r}: a LossDecision is expected")
        item.decided = True
        log.warning("flow %s: %s: %s", self.shard, item.loss.message, decision.value)
        self._port.decide_loss(proceed=decision is LossDecision.CONTINUE)

    # --- updates ---

    async def _batch(self, item: BatchItem) -> None:
        if self._concurrency > 1 and not self._handlers.batched:
            await run_parallel(
                item,
                self._log,
                parse=self._parse,
                call=self._one,
                finished=self._finished,
                wake=self._wake,
                going=lambda: self._ending is None,
                concurrency=self._concurrency,
            )
            return
        updates = self._parse(item)
        if updates is None:
            return
        if updates:
            singly = self._handlers.batched and self._singly(updates[0])
            if not await (
                self._sequence(updates) if self._gate.idle and not singly else self._guarded(updates, singly=singly)
            ):
                return
        self._finished(item, len(updates))
        await self._breathe()

    def _singly(self, first: Update) -> bool:
        """Whether ``on_updates`` gets the batch that begins with ``first`` one by one: somewhere in it, or behind, is one that fails."""
        until = self._retry.singly_until
        if until is None or not until.before(place_of(first)):
            return until is not None
        self._retry.singly_until = None
        return False

    async def _guarded(self, updates: list[Update], *, singly: bool) -> bool:
        """As :meth:`_sequence`, but some are passed over or parked. The gate is asked when all before was done: that may change its answer."""
        together: list[Update] = []
        for update in updates:
            self._watch.current, self._together = update, 1  # whose row may turn out not to be readable
            verdict = self._gate.verdict(update)
            if verdict is Verdict.CALL:
                together.append(update)
                if not singly:
                    continue
            if together and not await self._sequence(together):
                return False
            together = []
            if verdict is not Verdict.CALL and not await self._divert(update, verdict):
                return False
        return not together or await self._sequence(together)

    async def _divert(self, update: Update, verdict: Verdict) -> bool:
        """What stands in place of the callback. Whether it was done (not when the epoch ended meanwhile)."""
        if verdict is Verdict.SKIP:
            self.skipped += 1
            log.warning("flow %s: update %s is passed over, as an operator asked", self.shard, update.id)
            return True
        return await self._park(update, "")

    async def _park(self, update: Update, error: str) -> bool:
        """Have the update stored. Whether it is durable (not when the epoch ended meanwhile).

        Raises :class:`ParkRefused`, and :class:`~wormhole.errors.DecodeError` for a row that cannot be read: nobody can say what follows of it.
        """
        update.rows()
        if self._gate.stored(update):
            return True
        if self._ending is not None:
            return False
        id_ = update.id
        answer = self._answers[id_] = asyncio.get_running_loop().create_future()
        try:
            self._port.park(id_, wrap(update), place_of(update), error)
            self.resting = True  # nothing is left to do until the publisher answers
            self._rested()
            refused = await answer
        finally:
            self.resting = False
            del self._answers[id_]
        if refused is None:
            return False
        if refused:
            raise ParkRefused(refused)
        self._gate.parked(update)
        self.parked += 1
        why = f"its handler gave up: {error}" if error else "an earlier update of its row is parked"
        log.warning("flow %s: update %s is parked: %s", self.shard, id_, why)
        return True

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
            self._standing = True
            self._port.refuse(error)
            return None
        return Batch(body, self.shard, self.epoch, item.replayed, self._port.schema).updates()

    def _finished(self, item: BatchItem, updates: int) -> None:
        self.updates += updates
        number = self._log.finish(item)
        if number is not None:
            self._port.progress(number)

    async def _sequence(self, updates: list[Update]) -> bool:
        """One after the other. Whether all were processed (not when the epoch ended meanwhile)."""
        watch, task, meter, time = self._watch, self._task, self._meter, asyncio.get_running_loop().time
        assert task is not None
        watch.current = None
        await self._wait_for_stray()
        watch.watch(task)
        self._together = len(updates) if self._handlers.batched else 1
        try:
            if self._handlers.threaded:
                meter.begin(time())
                done = await self._in_thread(updates)
                meter.end(updates, time())
            elif self._handlers.batched:
                watch.current = updates[0]
                meter.begin(now := time())
                meter.lap(updates[0], now)
                await self._handlers.on_updates(updates)
                meter.end(updates, time())
                done = True
            else:
                done = await self._each(updates)
        except asyncio.CancelledError as error:
            self._explain_cancellation(error, expired=watch.expired)
        if watch.expired:
            # The callback swallowed its cancellation and returned: late, but processed.
            task.uncancel()
        watch.rest()
        return done

    async def _each(self, updates: list[Update]) -> bool:
        on_update, watch, meter = self._handlers.on_update, self._watch, self._meter
        time = asyncio.get_running_loop().time
        for first in range(0, len(updates), _SLICE_UPDATES):
            part = updates[first : first + _SLICE_UPDATES]
            meter.begin(time())
            timing = meter.timing
            for update in part:
                if self._ending is not None:
                    meter.end(part, time())
                    return False
                watch.current = update
                if timing:
                    meter.lap(update, time())
                await on_update(update)
            meter.end(part, now := time())
            if now - self._breathed > _SLICE_S:
                watch.current = None
                await self._breathe()
        return True

    async def _in_thread(self, updates: list[Update]) -> bool:
        watch, meter, time = self._watch, self._meter, asyncio.get_running_loop().time
        timing = meter.timing
        callback: Callable[[Any], Any] = self._handlers.on_update
        abandoned = False

        def begin(argument: Any) -> bool:
            current = watch.current = updates[0] if argument is updates else argument
            if timing:
                meter.lap(current, time())
            return not abandoned and self._ending is None

        arguments: list[Any] = updates
        if self._handlers.batched:
            callback, arguments = self._handlers.on_updates, [updates]
        running = self._handlers.pool.submit(each_in_thread, callback, arguments, begin)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            abandoned = True
            if not running.done():
                self._stray = running
            raise

    async def _wait_for_stray(self) -> None:
        """A thread cannot be cancelled: nothing of the flow runs beside one that was given up."""
        stray, self._stray = self._stray, None
        if stray is None:
            return
        await asyncio.wait([asyncio.wrap_future(stray)], timeout=self._limit)
        if not stray.done():
            self._stray = stray
            raise TimeoutError(f"the callback's thread still runs {self._limit:g} s after it was given up")
        stray.exception()

    async def _one(self, update: Update) -> None:
        """One of several at a time."""
        if not self._gate.idle and (verdict := self._gate.verdict(update)) is not Verdict.CALL:
            if not await self._divert(update, verdict):
                raise _EpochOver
            return
        time = asyncio.get_running_loop().time
        self._meter.enter(update, time())
        try:
            async with asyncio.timeout(self._limit):
                if self._handlers.threaded:
                    await asyncio.wrap_future(
                        self._handlers.pool.submit(each_in_thread, self._handlers.on_update, (update,), lambda _: True)
                    )
                else:
                    await self._handlers.on_update(update)
        finally:
            self._meter.leave(update, time())

    def _explain_cancellation(self, error: asyncio.CancelledError, *, expired: bool) -> None:
        """Raise what a cancellation that came out of a callback means: time is up, we are killed, or the callback's own."""
        task = self._task
        assert task is not None
        if expired:
            task.uncancel()
            raise TimeoutError(f"the callback ran longer than handler_timeout = {self._limit:g} s") from None
        if task.cancelling():
            raise error
        raise RuntimeError("the callback raised CancelledError of its own") from error

    async def _call(self, name: str, argument: Any, *rest: Any) -> Any:
        """A callback that is not about updates."""
        try:
            async with asyncio.timeout(self._limit):
                return await self._handlers.call(name, argument, *rest)
        except TimeoutError as error:
            raise TimeoutError(
                f"{name} failed by time, or ran longer than handler_timeout = {self._limit:g} s"
            ) from error
        except asyncio.CancelledError as error:
            self._explain_cancellation(error, expired=False)

    def _breathe(self) -> Awaitable[None]:
        now = asyncio.get_running_loop().time()
        if now - self._breathed > _SLICE_S:
            self._breathed = now
            return asyncio.sleep(0)
        return _NOTHING

    # --- failures ---

    async def _failed(self, error: Exception, update: Update | None, item: Item | None = None) -> None:
        place: Place | None = None
        update_id = ""
        if update is not None:
            place, update_id = (update.position, update.index), update.id
        if isinstance(error, _EpochOver):
            return
        if self._ending is not None:
            log.warning("flow %s: a callback failed while the epoch was ending: %r", self.shard, error)
            return
        if isinstance(error, ParkRefused):
            await self._halt(error, update_id)
            return
        if not self._count(error, place, update_id):
            if update is None or not self._parks:
                await self._halt(error, update_id)
                return
            if not await self._put_aside(update, error, item):
                return
        whole = self._log.rollback()
        while self._ending is None:
            try:
                await self._call("on_rollback", replace(self.marker, shard=self.shard), error)
                break
            except Exception as second:  # noqa: BLE001 - see _open
                if not self._count(second, None, update_id):
                    await self._halt(second, update_id)
                    return
                await self._pause()
        await self._pause()
        if not whole and self._ending is None:
            self._standing = True
            message = f"rolled back to {self.marker}, and what follows is more than is held here; the cause: {error!r}"
            self._port.fail(push_pb2.Failed.RESEND, update_id, message)

    async def _put_aside(self, update: Update, error: Exception, item: Item | None) -> bool:
        """Retries are exhausted: park the update, or, when several failed together, look for the one. Whether the flow goes on."""
        if self._together > 1 and isinstance(item, BatchItem):
            updates = self._parse(item) or [update]
            self._retry.singly_until = place_of(updates[-1])
            log.warning(
                "flow %s: on_updates failed with %d updates at once: now one by one", self.shard, self._together
            )
        else:
            try:
                if not await self._park(update, _one_line(error)):
                    return False
            except (ParkRefused, DecodeError) as refused:
                await self._halt(refused, update.id)
                return False
        self._retry.got_on()
        return True

    def _count(self, error: Exception, place: Place | None, update_id: str) -> bool:
        """Count a failure; whether another try is due."""
        self._meter.failures += 1
        again = self._retry.failed(place)
        log.warning(
            "flow %s epoch %d: attempt %d failed%s: %r",
            self.shard,
            self.epoch,
            self._retry.failures,
            f" at update {update_id}" if update_id else "",
            error,
            exc_info=error,
        )
        return again

    async def _halt(self, error: Exception, update_id: str) -> None:
        """The flow stands from here on."""
        halted = FlowHalted(self.shard, self.epoch, update_id, self._retry.failures, self.marker, error)
        self.halted = halted
        self._standing = True
        self._retry.got_on()  # whoever assigns the shard anew starts with a fresh count
        self._port.fail(push_pb2.Failed.HANDLER, update_id, str(halted))
        log.error("%s", halted)
        try:
            await self._call("on_error", halted)
        except Exception:
            log.exception("on_error of shard %s failed", self.shard)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._retry.wait(self._chance())):
                await self._end.wait()
        except TimeoutError:
            pass


class _EpochOver(Exception):  # noqa: N818 - no failure: an update was not parked because the epoch ended
    pass


def _one_line(error: Exception) -> str:
    """For operators; what a handler raises may be as long as it likes."""
    text = " ".join(repr(error).split())
    return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + "..."


class _Nothing:
    """Awaiting it costs nothing: ``_breathe`` is on the way of every batch."""

    def __await__(self) -> Any:
        return iter(())


_NOTHING: Final = _Nothing()
