"""The event loop of one virtual process: its time is the process's clock, and it runs while the world lets it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, cast

from tests.simulation.threads import Threads
from tests.simulation.world import Process, World

__all__ = ["SimulatedLoop"]

_LATE_S: Final = 0.0005
"""A thread begins, and its result arrives, up to so much later: a pause of the process falls between."""
_MOST_TASKS: Final = 200
"""So many are kept before those that are done are forgotten."""
_AT_ONCE: Final = 0.8
"""This part of the threads begins at once."""
_INLINE: Final = frozenset(
    {
        "_Asked.ask",
        "_Source.latest",
        "_Source.shards",
        "_virtual_client",
        "disconnect_blocking",
        "KnownFlows._add",
        "KnownFlows._load",
        "schemes",
    }
)
"""What is called in a thread and never waits."""


class _Handle:
    """A callback that is due, or will be."""

    __slots__ = ("_cancelled", "_when", "arguments", "callback")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...], when: float) -> None:
        self.callback, self.arguments, self._when, self._cancelled = callback, arguments, when, False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], loop: Any, name: str) -> None:
        self._hash = number
        super().__init__(coro, loop=loop, name=name)

    def __hash__(self) -> int:
        return self._hash


class SimulatedLoop:
    """What the asyncio of one process needs of a loop; typed loosely, as asyncio calls it."""

    def __init__(self, world: World, threads: Threads, process: Process) -> None:
        self._world = world
        self._threads = threads
        self.process = process
        process.loop = self
        self._ready: deque[_Handle] = deque()
        self._awake = False
        self._closed = False
        self._tasks: list[_Task] = []

    # -- time

    def time(self) -> float:
        return self.process.monotonic()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, 0.0)
        self._ready.append(handle)
        if not self._awake and not self.process.delivering:
            self._awake = True
            self._world.after(0.0, self._turn)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        if self._closed:
            raise RuntimeError("the loop is closed")
        return self.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.call_at(self.process.monotonic() + delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, when)
        self._world.at(self.process.when(when), self._fire, handle)
        return handle

    # -- what runs

    def _fire(self, handle: _Handle) -> None:
        if handle._cancelled or self._closed:
            return
        if self.process.paused_until > self._world.now:
            self._world.at(self.process.paused_until, self._fire, handle)
            return
        self._ready.append(handle)
        if not self._awake:
            self._turn()

    def go_on(self) -> None:
        """Something was delivered to the process."""
        if self._ready and not self._awake:
            self._turn()

    def _turn(self) -> None:
        world, process, ready = self._world, self.process, self._ready
        if process.dead or self._closed:
            return
        if process.paused_until > world.now:
            world.at(process.paused_until, self._turn)
            return
        before, world.process = world.process, process
        self._awake = True
        _set_running_loop(cast("Any", self))
        try:
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle.callback(*handle.arguments)
                    if process.paused_until > world.now or process.dead:
                        break
        except Exception as error:
            world.violation(f"{process.name}: a callback raised {error!r}")
        finally:
            _set_running_loop(None)
            world.process = before
        self._awake = bool(ready)
        if ready:
            world.at(process.paused_until, self._turn)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future, world = self.create_future(), self._world
        late = world.chance.random() - _AT_ONCE
        if late > 0.0:
            world.after(late * _LATE_S, self._begin, func, args, future)
        else:
            self._begin(func, args, future)
        return future

    def _begin(self, func: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]) -> None:
        world, process = self._world, self.process
        if process.dead or self._closed:
            return
        if process.paused_until > world.now:
            world.at(process.paused_until, self._begin, func, args, future)
            return
        called = func.args[0] if isinstance(func, partial) and func.args else func  # asyncio.to_thread wraps it
        if getattr(called, "__qualname__", "") not in _INLINE:
            self._threads.start(process, partial(func, *args), partial(self._done, future))
            return
        before, world.process = world.process, process
        value = error = None
        try:
            value = func(*args)
        except Exception as failure:
            error = failure
        finally:
            world.process = before
        _settle(future, value, error)
        self.go_on()

    def _done(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        world = self._world
        self.process.deliver(world.now + world.chance.random() * _LATE_S, self.call_soon, _settle, future, value, error)

    # -- the rest of what asyncio asks of a loop

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast("Any", self))

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        number = next(self._world.task_numbers)
        task = _Task(number, coro, self, name or f"task-{number}")
        self._tasks.append(task)
        if len(self._tasks) > _MOST_TASKS:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    get_debug = bool  # false, and faster than a method

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed and not self.process.dead:
            error = context.get("exception")
            self._world.violation(f"{self.process.name}: {context.get('message')}: {error!r}")

    def close(self) -> None:
        """Throw away what is under way, as the end of a process does: nothing of it runs any more."""
        self._closed = True
        self._ready.clear()
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            for _ in range(1000):  # each `await` in a `finally` ends one attempt
                with contextlib.suppress(Exception):
                    coroutine.close()
                    break
        self._tasks.clear()


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the waiting task was cancelled
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
