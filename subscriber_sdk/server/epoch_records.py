"""Refuses assignments whose epochs are not recorded in coordination.

Publishers record the epoch of a flow before they assign the flow. So a peer that may push, but may not write to
coordination, cannot take a shard from its publisher with a higher epoch. A late assignment by a former owner of the log
is refused too, because the next owner has recorded a higher epoch. An assignment waits while its record cannot be read.
Publishers of earlier releases record up to a second after the assignment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from typing import Final

from subscriber_sdk.stream.events import Assigned
from wormhole.model.errors import WormholeError

__all__ = ["AskEpochs", "EpochRecords"]

log = logging.getLogger("subscriber_sdk")

_AT_ONCE: Final = 64
_AGAIN_S: Final = 0.25
_PATIENCE_S: Final = 5.0

AskEpochs = Callable[[Collection[str]], Awaitable[Mapping[str, int] | None]]
"""The recorded epochs of some shards (:meth:`wormhole.coordination.port.Coordinator.recorded_epochs`)."""


class EpochRecords:
    """The assignments of one stream that wait for their records.

    ``take`` is called with assignments whose epoch is recorded. ``refuse`` is called with every other assignment and
    the recorded epoch, 0 if there is none. Without contact to the coordinator assignments wait.
    """

    def __init__(
        self, ask: AskEpochs, take: Callable[[Assigned], None], refuse: Callable[[Assigned, int], None]
    ) -> None:
        self._ask = ask
        self._take = take
        self._refuse = refuse
        self._waiting: dict[int, tuple[Assigned, float]] = {}  # by flow number, with the time at which it is refused
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""

    def add(self, assigned: Assigned) -> None:
        """Look up the record of an assignment. ``take`` or ``refuse`` is called later."""
        until = asyncio.get_running_loop().time() + _PATIENCE_S
        self._waiting[assigned.flow] = (assigned, until)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="wormhole epochs")

    def drop(self, flow: int) -> Assigned | None:
        """Drop the assignment of a flow that is revoked. Returns the assignment if it waited here."""
        waited = self._waiting.pop(flow, None)
        return None if waited is None else waited[0]

    def close(self) -> None:
        """The stream is over."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        while self._waiting:
            unseen = list(self._waiting)
            while unseen:
                flows, unseen = list(islice(unseen, _AT_ONCE)), unseen[_AT_ONCE:]
                await self._decide([self._waiting[flow][0] for flow in flows if flow in self._waiting])
            if self._waiting:
                await asyncio.sleep(_AGAIN_S)

    async def _decide(self, some: list[Assigned]) -> None:
        try:
            epochs = await self._ask({assigned.shard for assigned in some})
        except WormholeError as error:
            if self._trouble != error.message:
                log.warning("%d assignments wait until their epochs can be looked up: %s", len(self._waiting), error)
            self._trouble = error.message
            return
        self._trouble = ""
        now = asyncio.get_running_loop().time()
        for assigned in some:
            present, until = self._waiting.get(assigned.flow, (None, 0.0))
            if present is not assigned:
                continue  # the flow was revoked, or assigned again, during the lookup
            recorded = assigned.epoch if epochs is None else epochs.get(assigned.shard, 0)
            if assigned.epoch == recorded:
                del self._waiting[assigned.flow]
                self._take(assigned)
            elif assigned.epoch < recorded or now >= until:
                del self._waiting[assigned.flow]
                self._refuse(assigned, recorded)
