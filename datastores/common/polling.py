"""The life of a source that asks its datastore again and again: its threads, why it last failed, and what is kept."""

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
    """``problem``: why the last attempt failed. When it changes, it is logged: ``said`` is the message, with its
    place.
    """

    def __init__(self, log: logging.Logger, said: str) -> None:
        self.problem: Problem = NO_PROBLEM
        self._log = log
        self._said = said

    def make(self, attempt: Callable[[], None]) -> None:
        """Make one, whose error becomes the problem."""
        try:
            attempt()
            problem = NO_PROBLEM
        except WormholeError as error:
            problem = error.problem
        if problem and problem != self.problem:
            self._log.warning(self._said, problem)
        self.problem = problem


class Polling(Attempts):
    """The polls of a source, from :meth:`begin` to :meth:`end`. ``high_water``: how far the log was read, if the source
    keeps that.
    """

    def __init__(self, options: SourceOptions, log: logging.Logger, said: str) -> None:
        super().__init__(log, said)
        self.high_water: HighWater | None = None
        self.stopped = threading.Event()
        self._options = options
        self._threads: list[threading.Thread] = []

    def begin(self, name: str, works: Mapping[str, tuple[Callable[[], float], Callable[[], None]]]) -> None:
        """Start a thread for each work, which runs it after each pause of so many seconds. ``name``: of the threads,
        with the place of the work's.
        """
        self.stopped.clear()
        for work, repeated in works.items():
            thread = threading.Thread(target=self._repeat, args=repeated, name=name.format(work), daemon=True)
            thread.start()
            self._threads.append(thread)

    def poll(self, attempt: Callable[[], None]) -> None:
        """Make an attempt, and write the place to the disk and for other hosts."""
        self.make(attempt)
        if self.high_water is not None and self._options.may_act():
            self.high_water.try_sync()

    def end(self, *, interrupt: Callable[[], None] = lambda: None, close: Callable[[], None] = lambda: None) -> None:
        """End the threads, close what else reads, and write the last place. Idempotent. ``interrupt``: ends what a
        thread waits for.
        """
        self.stopped.set()
        interrupt()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        close()
        if threads and self.high_water is not None and self._options.may_act():
            with suppress(WormholeError):  # the next owner then lacks about a second of it
                self.high_water.sync()

    def _repeat(self, pause_s: Callable[[], float], work: Callable[[], None]) -> None:
        while not self.stopped.wait(pause_s()):
            work()
