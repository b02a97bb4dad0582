"""Runs a source's background threads, which ask its datastore again and again, and records why a poll failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from datastores.common.high_water import HighWater
from wormhole.model.errors import WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.datastore import SourceOptions

__all__ = ["Attempts", "Polling"]


class Attempts:
    """Attempts of which the last failure is kept. ``problem``: why the last attempt failed. A changed problem is
    logged. ``said``: the log message, with a placeholder for the problem.
    """

    def __init__(self, log: logging.Logger, said: str) -> None:
        self.problem: Problem = NO_PROBLEM
        self._log = log
        self._said = said

    def make(self, attempt: Callable[[], None]) -> None:
        """Make one attempt. Its error becomes the problem."""
        try:
            attempt()
            problem = NO_PROBLEM
        except WormholeError as error:
            problem = error.problem
        if problem and problem != self.problem:
            self._log.warning(self._said, problem)
        self.problem = problem


class Polling(Attempts):
    """The polls of a source, from :meth:`begin` to :meth:`end`. ``high_water``: how far the log was read, if kept."""

    def __init__(self, options: SourceOptions, log: logging.Logger, said: str) -> None:
        super().__init__(log, said)
        self.high_water: HighWater | None = None
        self.stopped = threading.Event()
        self._options = options
        self._threads: list[threading.Thread] = []

    def begin(self, name: str, works: Mapping[str, tuple[Callable[[], float], Callable[[], None]]]) -> None:
        """Start a thread for each of ``works``: a pause in seconds, and a function to run after each pause. ``name``:
        the name of the threads, with a placeholder for the work's name.
        """
        self.stopped.clear()
        for work, repeated in works.items():
            thread = threading.Thread(target=self._repeat, args=repeated, name=name.format(work), daemon=True)
            thread.start()
            self._threads.append(thread)

    def poll(self, attempt: Callable[[], None]) -> None:
        """Make an attempt, then write the high water to the disk and for other hosts."""
        self.make(attempt)
        if self.high_water is not None and self._options.may_act():
            self.high_water.try_sync()

    def end(self, *, interrupt: Callable[[], None] = lambda: None, close: Callable[[], None] = lambda: None) -> None:
        """End the threads, call ``close``, and write the last high water. Idempotent. ``interrupt``: ends a thread's
        wait. ``close``: closes other readers.
        """
        self.stopped.set()
        interrupt()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        close()
        if threads and self.high_water is not None and self._options.may_act():
            with suppress(WormholeError):  # the next owner then lacks about a second of reading
                self.high_water.sync()

    def _repeat(self, pause_s: Callable[[], float], work: Callable[[], None]) -> None:
        while not self.stopped.wait(pause_s()):
            work()
