"""Lets one thread end another thread's wait for the server."""

from __future__ import annotations

import os
import select
import weakref
from contextlib import suppress

from wormhole.model.errors import SourceUnavailable

__all__ = ["Interruption"]


class Interruption:
    """A flag that a waiting thread can poll. ``descriptor``: readable while the flag is set."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def is_set(self) -> bool:
        """Whether the flag was set since it was last cleared."""
        return self._within(0)

    def set(self) -> None:
        """Interrupt. May be called from any thread."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Clear the flag, for the next interruption."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> None:
        """Pause. Raises :class:`~wormhole.model.errors.SourceUnavailable` as soon as the flag is set."""
        if self._within(seconds):
            raise self.error()

    def error(self) -> SourceUnavailable:
        """The error that the interrupted call raises."""
        return SourceUnavailable("reading existing rows was interrupted", hint="a retry follows")

    def _within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
