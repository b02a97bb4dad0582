"""Background tasks of one owner: a failure is logged, and no task outlives the owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from wormhole.model.errors import WormholeError

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks that run beside their owner, until :meth:`stop`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[None, None, None], name: str | None = None) -> asyncio.Task[None]:
        """Begin. An exception that it raises is logged: of anything but a :class:`~wormhole.model.errors.WormholeError`
        with its traceback.
        """
        task = asyncio.create_task(_guarded(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel what is under way and wait for its end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _guarded(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except WormholeError as error:
        _log.error("%s", error)
    except Exception:  # noqa: BLE001 - logged here, or asyncio would report it when the task is collected
        _log.exception("a background task of the publisher failed inside; the rest goes on. Next: please report this")
