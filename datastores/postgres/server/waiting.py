"""Waits for a server's socket, until a deadline or an interruption."""

from __future__ import annotations

import select
import time
from typing import Final

from wormhole.model.errors import SourceUnavailable

__all__ = ["NEVER", "ready"]

NEVER: Final = -1
"""A descriptor value that means: no interruption."""


def ready(descriptor: int, events: int, deadline: float, interrupt: int) -> bool:
    """Wait for ``events`` (of ``select.poll``). Returns false after ``deadline``.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the descriptor ``interrupt`` is readable.
    """
    poll = select.poll()
    poll.register(descriptor, events)
    if interrupt != NEVER:
        poll.register(interrupt, select.POLLIN)
    left = deadline - time.monotonic()
    found = [one for one, _ in poll.poll(max(0.0, left) * 1000)]
    if interrupt in found:
        raise SourceUnavailable("the wait for the server was interrupted", hint="a retry follows")
    return bool(found) and left > 0  # the deadline also ends the wait for a server that never stops sending
