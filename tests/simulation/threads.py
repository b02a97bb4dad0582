"""Threads of virtual processes: real ones, of which exactly one runs at any moment, and only while the world lets it.

A thread that waits (for ZooKeeper's answer, for a lock, for time to pass) hands over to the world, so other processes
go on between two questions of one call of a marker store.
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.world import Process, World
from tests.support.present import present

__all__ = ["Abandoned", "Threads", "VirtualLock"]

Done = Callable[[Any, "BaseException | None"], None]


class Abandoned(BaseException):
    """The process of this thread is gone: the thread ends."""


class _Worker:
    """A real thread, kept for the next schedule when it has nothing to do."""

    def __init__(self) -> None:
        self.job: Callable[[], Any] | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self.process: Process | None = None
        self.done: Done | None = None
        self.waits = 0
        self.waiting = False
        self.woken = False
        self._go = _thread.allocate_lock()
        self._go.acquire()
        self._back = _thread.allocate_lock()
        self._back.acquire()
        _thread.start_new_thread(self._live, ())

    def _live(self) -> None:
        while True:
            self._go.acquire()
            assert self.job is not None
            try:
                self.value, self.error = self.job(), None
            except BaseException as error:
                self.value, self.error = None, error
            self.ended = True
            self._back.release()

    def run(self) -> None:
        """In the world's thread: let it run until it waits or ends."""
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        """In the thread itself: let the world go on."""
        self._back.release()
        self._go.acquire()


_idle: Final[list[_Worker]] = []


class Threads:
    """All threads of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._current: _Worker | None = None
        self._busy: dict[_Worker, None] = {}
        self._closing = False

    def start(
        self, process: Process, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Run ``job`` in a thread of the process. ``done`` gets its value or its error."""
        worker = _idle.pop() if _idle else _Worker()
        worker.job, worker.process, worker.done, worker.ended = job, process, done, False
        worker.waiting = worker.woken = False
        self._busy[worker] = None
        self._run(worker)

    def _run(self, worker: _Worker) -> None:
        world = self._world
        before, world.process = world.process, worker.process
        outer, self._current = self._current, worker
        try:
            worker.run()
        finally:
            world.process, self._current = before, outer
        if worker.ended:
            done, value, error = worker.done, worker.value, worker.error
            del self._busy[worker]
            worker.job = worker.done = worker.value = worker.error = worker.process = None
            _idle.append(worker)
            if done is not None and not self._closing:
                done(value, error)

    # -- called in a thread

    def wait(self, seconds: float | None) -> bool:
        """Wait to be woken, at most ``seconds`` of the process's own clock. Whether it was woken."""
        worker = self._current
        if worker is None:
            raise AssertionError("the event loop's own thread may not wait")
        process = present(worker.process)
        if self._closing or process.dead:
            raise Abandoned
        worker.waits += 1
        worker.waiting, worker.woken = True, False
        if seconds is not None:
            self._world.after(seconds / process.rate, self._go_on, worker, worker.waits, False)
        worker.wait()
        if self._closing or process.dead:
            raise Abandoned
        return worker.woken

    def pause(self, seconds: float) -> None:
        """Let so much time of the process's own clock pass."""
        self.wait(seconds)

    def waker(self) -> Callable[[], None]:
        """What wakes the present thread out of the next :meth:`wait`."""
        worker = self._current
        if worker is None:
            raise AssertionError("the event loop's own thread may not wait")
        number = worker.waits + 1
        return lambda: self._world.after(0.0, self._go_on, worker, number, True)

    # -- called by the world

    def _go_on(self, worker: _Worker, number: int, woken: bool) -> None:
        process = worker.process
        if not worker.waiting or worker.waits != number or process is None or process.dead:
            return
        if process.paused:
            self._world.at(process.paused_until, self._go_on, worker, number, woken)
            return
        worker.waiting, worker.woken = False, woken
        self._run(worker)

    def close(self) -> None:
        """End every thread that waits."""
        self._closing = True
        for worker in tuple(self._busy):
            while worker in self._busy:
                worker.waiting = False
                self._run(worker)


class VirtualLock:
    """Takes the place of ``threading.Lock`` where threads of one process take turns."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._held = False
        self._waiting: deque[Callable[[], None]] = deque()

    def __enter__(self) -> bool:
        while self._held:
            self._waiting.append(self._threads.waker())
            self._threads.wait(None)
        self._held = True
        return True

    def __exit__(self, *error: object) -> None:
        self._held = False
        if self._waiting:
            self._waiting.popleft()()
