"""Follows which configured applications the publishers of a copy serve. Standbys use this as well as the owner.

A log of the same name in another dataset, or in a copy that serves by itself, has applications of its own. Their
datamarkers do not belong to this log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from wormhole.config import ApplicationConfig, DatasetConfig
from wormhole.coordination.port import Coordinator
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import WormholeError

__all__ = ["ServedApplications"]

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0


class ServedApplications:
    """The applications of ``dataset`` that ``copy`` serves, by itself or in turn with other copies. ``changed`` is
    called with them while :meth:`run` runs.
    """

    def __init__(
        self, coordinator: Coordinator, dataset: DatasetConfig, copy: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._coordinator = coordinator
        self._dataset = dataset
        self._copy = copy
        self._clock = clock
        self.changed: Callable[[Mapping[str, ApplicationConfig]], None] = lambda applications: None
        self._names: frozenset[str] | None = None
        self._error: WormholeError | None = None
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Follow the configuration until cancelled, or until the coordinator is stopped. While it cannot be read, the
        last known one is used.
        """
        while True:
            try:
                async for applications in self._coordinator.watch_applications():
                    mine = {
                        name: config
                        for name, config in applications.items()
                        if config.dataset == self._dataset.name and self._dataset.serves(self._copy, config.from_copy)
                    }
                    self._names = frozenset(mine)
                    self._error = None
                    self._asked.set()
                    self.changed(mine)
                return
            except WormholeError as error:
                if str(error) != str(self._error):
                    _log.error("the configured applications cannot be read, a retry follows: %s", error)
                self._error = error
                self._asked.set()
                await self._clock.sleep(_RETRY_S)

    async def names(self) -> frozenset[str]:
        """Wait until the applications are known, and return their names. Raises coordination's errors."""
        await self._asked.wait()
        if self._names is None:
            assert self._error is not None
            raise self._error
        return self._names

    def any(self) -> bool:
        """Whether any application is known."""
        return self._names is None or bool(self._names)
