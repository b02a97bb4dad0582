"""The periodic work of a publisher: check the log and the lead caravan, free disk space, and retry failed work."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from publisher.flows.applications import Applications
from publisher.flows.assigner import Assigner
from publisher.flows.backfills import Backfills
from publisher.flows.replays import Replays
from publisher.flows.tailed_log import TailedLog
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import CoordinationLost, WormholeError

__all__ = ["Housekeeping"]

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_RELEASE_EVERY_S = 5.0
_RETRY_S = 2.0


class Shown(Protocol):
    """A part whose state operators and other processes see."""

    async def look(self) -> None:
        """Bring the shown state up to date. Raises :class:`~wormhole.model.errors.WormholeError`."""


class Housekeeping:
    """See the module. ``shown``: the parts whose shown state is brought up to date about once a second."""

    def __init__(
        self,
        log: TailedLog,
        assigner: Assigner,
        applications: Applications,
        replays: Replays,
        backfills: Backfills,
        shown: Sequence[Shown],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._tailed = log
        self._assigner = assigner
        self._applications = applications
        self._replays = replays
        self._backfills = backfills
        self._shown = shown

    async def run(self) -> None:
        """Work until cancelled, beginning once the applications are known."""
        released = tried = self._clock.monotonic()
        trouble = ""
        await self._applications.known.wait()
        with contextlib.suppress(WormholeError):  # the check is repeated below, where its failure is logged
            await self._tailed.look()  # at once: `wormholectl up` waits for the source's status
        while True:
            await self._clock.sleep(_EVERY_S)
            now = self._clock.monotonic()
            self._tailed.look_at_lead(now)
            if self._assigner.owns_log():
                self._replays.look(now)
                self._backfills.look()
            else:
                self._assigner.let_go()
            if now - released >= _RELEASE_EVERY_S:
                released = now
                await self.release()
            if now - tried >= _RETRY_S:
                tried = now
                await self._applications.try_again()
            try:
                await self._tailed.look()
                for part in self._shown:
                    await part.look()
            except CoordinationLost:
                trouble = ""
            except WormholeError as error:  # only operators see the state: its failure must not stop deliveries
                if trouble != str(error):
                    _log.warning("the state of the flows is not reported: %s", error)
                trouble = str(error)
            else:
                trouble = ""

    async def release(self) -> None:
        """Release log before the place that any flow needs. Only durable progress of a flow counts."""
        try:
            async with self._applications.registering:  # log that a new flow is about to need must stay
                oldest = self._tailed.fleet.oldest_place()
                if oldest is None:
                    return
                places = [oldest, *(flow.delivery.needed for flow in self._assigner.flows.values())]
                places += await self._applications.needed()
                await self._tailed.release(min(places))
                await self._backfills.release(min(places))
        except WormholeError as error:
            _log.warning("the log's disk space cannot be given back: %s", error)
