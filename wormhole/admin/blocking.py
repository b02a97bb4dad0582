"""Runs a coroutine for a caller that waits for its result."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from wormhole.model.errors import UsageError

__all__ = ["wait_for_result"]

T = TypeVar("T")


def wait_for_result(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, in an event loop of its own.

    Raises :class:`~wormhole.model.errors.UsageError` in a thread that has an event loop, because that loop would have
    to wait.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise UsageError(
        "this blocks, and an event loop runs in this thread",
        hint="call it in another thread, for example `await asyncio.to_thread(admin.flows)`",
    )
