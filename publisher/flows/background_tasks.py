"""Background tasks of one owner: a failure is logged, and no task outlives the owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks that run beside their owner, until :meth:`stop`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many tasks are under way."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[None, None, None], name: str | None = None) -> asyncio.Task[None]:
        """Start a task. An exception that it raises is logged, with its traceback unless it is a
        :class:`~wormhole.model.errors.WormholeError`.
        """
        task = asyncio.create_task(_guarded(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel the tasks that are under way and wait for their ends."""
        tasks = tuple(self._tasks)
        await cancel_all(*tasks)


async def _guarded(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except WormholeError as error:
        _log.error("%s", error)
    except Exception:  # noqa: BLE001 - logged here, or asyncio would report it when the task is collected
        _log.exception("a background task of the publisher failed inside; the rest goes on. Next: please report this")
