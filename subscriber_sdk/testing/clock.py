"""An event loop with a fake clock: a wait takes no real time, and moves the clock."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar, TypeVarTuple, Unpack

__all__ = ["FakeTimeLoop", "InlineExecutor"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _Selector(selectors.DefaultSelector):
    """Skips waits. A wait for a socket or pipe of the test's own is not skipped, and takes its real time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or len(self.get_map()) > 1:  # more than the loop's own pipe
            began = time.monotonic()
            ready = super().select(timeout)
            self.now += time.monotonic() - began
            return ready
        self.now += timeout
        return ready


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0 and moves only when every task waits. ``run_in_executor`` calls in place."""

    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        """Seconds since the loop was made, by the fake clock."""
        return self._fake.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Call ``func`` at once, in this thread: another thread would wait in real time while the clock jumps."""
        return asyncio.wrap_future(InlineExecutor().submit(func, *args), loop=self)


class InlineExecutor(Executor):
    """An executor that runs each call at once, in the caller's thread."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Call ``fn``. Returns a future that is done."""
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - an executor hands every exception to the caller of its result
            future.set_exception(error)
        return future
