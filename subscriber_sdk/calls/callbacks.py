"""Runs the callbacks of one epoch within their time limit, on the loop or in a thread.

:meth:`Callbacks.sequence` processes updates one after the other, watched by one timer. :meth:`Callbacks.one` processes
one update, and ``parallel`` calls it for several at a time. Exceptions of a callback are raised unchanged. A callback
that ran too long raises ``TimeoutError``, and one that cancelled itself raises ``RuntimeError``. A ``CancelledError``
always means that the flow's task is being killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, NoReturn

from subscriber_sdk.calls.epoch import Epoch
from subscriber_sdk.calls.handlers import Handlers, each_in_thread
from subscriber_sdk.calls.meter import Meter
from subscriber_sdk.calls.watchdog import Watchdog
from wormhole.wire.update import Update

__all__ = ["Callbacks"]

_SLICE_S: Final = 0.002  # how long callbacks that never wait may keep the loop from heartbeats and other flows
_SLICE_UPDATES: Final = 64


class Callbacks:
    """The callbacks of one epoch. The flow's task calls the methods, except that each :meth:`one` has its own task.

    ``limit``: seconds that a callback may take. ``meter``: measures the callbacks.
    """

    def __init__(self, epoch: Epoch, handlers: Handlers, limit: float) -> None:
        self.meter = Meter()
        self.together: Sequence[Update] = ()
        """The updates that the running or failed callback got together; empty if each is passed alone."""
        self.count = 0
        """The number of updates whose callbacks returned. It rises when a whole slice or batch has returned."""
        self._epoch = epoch
        self._handlers = handlers
        self._take = handlers.taker()
        self._limit = limit
        self._watch = Watchdog(limit)
        self._stray: Future[bool] | None = None  # a call in a thread that still runs after its time limit
        self._breathed = 0.0
        self._stopped_at: object = None  # the update before which a sequence ended that was not finished

    @property
    def name(self) -> str:
        """The name of the callback that takes the updates."""
        return self._handlers.name

    def running(self, now: float) -> tuple[Update | None, float]:
        """The update whose callback runs now, ``None`` without one, and the seconds for which the callback has run."""
        return self.meter.running(self._watch.current, now)

    def look_at(self, update: Update) -> None:
        """The flow is at ``update`` and has not called a callback yet: its row may not be readable."""
        self._watch.current, self.together, self._stopped_at = update, (), None

    def stop_before(self, update: Update) -> None:
        """Note that another callback is called before ``update``, the next update of the sequence."""
        self._stopped_at = update

    def broken(self) -> Update | None:
        """End the sequence after a failure. Returns the update at which the flow was; ``None``: it was at none."""
        current = self._watch.current
        self._watch.rest()
        self.meter.end((), asyncio.get_running_loop().time())
        return current if isinstance(current, Update) else None

    def returned(self, updates: Sequence[Update]) -> int:
        """The number of ``updates`` whose callbacks returned before the update at which the flow is now."""
        current = self._stopped_at or self._watch.current
        return next((i for i, update in enumerate(updates) if update is current), 0)

    def close(self) -> None:
        """No callback for updates is called from now on."""
        self._watch.close()

    async def sequence(self, updates: list[Update]) -> bool:
        """Call the callback for one update after the other. Returns whether all were processed; false if the epoch
        ended meanwhile."""
        watch, task = self._watch, asyncio.current_task()
        assert task is not None
        watch.current = self._stopped_at = None
        await self._wait_for_stray()
        watch.watch(task)
        self.together = updates if self._handlers.batched else ()
        try:
            done = True
            for threaded, part in self._handlers.parts(updates):
                watch.current = None
                if threaded:
                    done = await self._in_thread(part)
                elif self._handlers.batched:
                    done = await self._together(part)
                else:
                    done = await self._each(part)
                if not done:
                    break
        except asyncio.CancelledError as error:
            self._explain_cancellation(error, task, expired=watch.expired)
        if watch.expired:
            # The callback swallowed its cancellation and returned: late, but processed.
            task.uncancel()
        if not done:
            self._stopped_at = watch.current
        watch.rest()
        self.together = ()
        return done

    async def one(self, update: Update) -> None:
        """Call the callback for one update, while other updates may be processed at the same time."""
        time = asyncio.get_running_loop().time
        self.meter.enter(update, time())
        on_update = self._handlers.on_update
        try:
            if self._handlers.in_thread(update):
                call = self._handlers.submit(each_in_thread, on_update, (update,), lambda _: True)
                await self._within_limit("on_update", asyncio.wrap_future(call))
            else:
                await self._within_limit("on_update", on_update(update))
        finally:
            self.meter.leave(update, time())

    async def call(self, name: str, argument: Any, *rest: Any) -> Any:
        """Call a callback that is not for updates."""
        return await self.wait_for(name, self._handlers.call(name, argument, *rest))

    async def wait_for(self, name: str, call: Awaitable[Any]) -> Any:
        """Await a part of the callback ``name``. The part has the time limit of a whole callback."""
        try:
            return await self._within_limit(name, call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            assert task is not None
            self._explain_cancellation(error, task, expired=False)

    async def _within_limit(self, name: str, call: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._limit) as limit:
                return await call
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._too_long(name, error.__cause__ or error) from None

    def _too_long(self, name: str, cancelled: BaseException) -> TimeoutError:
        """The error for a callback that exceeded its time limit. Its traceback shows where the callback waited."""
        error = TimeoutError(f"{name} ran longer than handler_timeout = {self._limit:g} s")
        return error.with_traceback(cancelled.__traceback__)

    def breathe(self) -> Awaitable[None]:
        """Yield the loop to heartbeats and other flows if callbacks have occupied it for long."""
        now = asyncio.get_running_loop().time()
        if now - self._breathed > _SLICE_S:
            self._breathed = now
            return asyncio.sleep(0)
        return _NOTHING

    def breathed(self) -> None:
        """Note that the flow has just waited, so that heartbeats and other flows had the loop."""
        self._breathed = asyncio.get_running_loop().time()

    async def _each(self, updates: list[Update]) -> bool:
        on_update, watch, meter, epoch = self._handlers.on_update, self._watch, self.meter, self._epoch
        time = asyncio.get_running_loop().time
        for first in range(0, len(updates), _SLICE_UPDATES):
            part = updates[first : first + _SLICE_UPDATES]
            meter.begin(time())
            timing = meter.timing
            for update in part:
                if epoch.ending is not None:
                    meter.end(part, time())
                    watch.current = update
                    return False
                watch.current = update
                if timing:
                    meter.lap(update, time())
                await on_update(update)
            self.count += len(part)
            meter.end(part, now := time())
            if now - self._breathed > _SLICE_S:
                watch.current = None
                await self.breathe()
        return True

    async def _together(self, updates: list[Update]) -> bool:
        meter, time = self.meter, asyncio.get_running_loop().time
        at = 0
        while at < len(updates):
            first = self._watch.current = updates[at]
            if at:
                await self.breathe()
                if self._epoch.ending is not None:
                    return False
                self.together = updates
            meter.begin(now := time())
            meter.lap(first, now)
            count, argument = self._take(updates, at)
            part = self.together = updates if count == len(updates) else updates[at : at + count]
            await self._handlers.on_batch(argument)
            self.count += count
            meter.end(part, time())
            at += count
        return True

    async def _in_thread(self, updates: list[Update]) -> bool:
        watch, meter, epoch, time = self._watch, self.meter, self._epoch, asyncio.get_running_loop().time
        meter.begin(time())
        timing = meter.timing
        callback: Callable[[Any], Any] = self._handlers.on_update
        abandoned = False
        batched = self._handlers.batched
        at = 0

        def begin(argument: Any) -> bool:
            current = watch.current = updates[at] if batched else argument
            if timing:
                meter.lap(current, time())
            return not abandoned and epoch.ending is None

        def taken() -> Iterator[Any]:
            nonlocal at
            while at < len(updates) and not abandoned:
                watch.current, self.together = updates[at], updates
                count, argument = self._take(updates, at)
                self.together = updates[at : at + count]
                yield argument
                at += count

        arguments: Iterable[Any] = updates
        if batched:
            callback, arguments = self._handlers.on_batch, taken()
        running = self._handlers.submit(each_in_thread, callback, arguments, begin)
        try:
            done: bool = await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            abandoned = True
            if not running.done():
                self._stray = running
            raise
        self.count += len(updates) if done else 0
        meter.end(updates, time())
        return done

    async def _wait_for_stray(self) -> None:
        """Wait for a thread that exceeded its time limit. A thread cannot be cancelled, and no other callback of the
        flow may run beside it."""
        stray, self._stray = self._stray, None
        if stray is None:
            return
        await asyncio.wait([asyncio.wrap_future(stray)], timeout=self._limit)
        if not stray.done():
            self._stray = stray
            raise TimeoutError(f"the callback's thread still runs {self._limit:g} s after it was given up")
        stray.exception()

    def _explain_cancellation(
        self, error: asyncio.CancelledError, task: asyncio.Task[Any], *, expired: bool
    ) -> NoReturn:
        """Raise the error for a cancellation out of a callback: the time limit is exceeded, the flow's task is killed,
        or the callback cancelled itself.
        """
        if expired:
            task.uncancel()
            raise self._too_long(self._handlers.name, error) from None
        if task.cancelling():
            raise error
        raise RuntimeError("the callback raised CancelledError of its own") from error


class _Nothing:
    """An awaitable that costs nothing, because ``breathe`` is called for every batch."""

    def __await__(self) -> Any:
        return iter(())


_NOTHING: Final = _Nothing()
