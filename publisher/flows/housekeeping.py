"""What a publisher does by time: looks at the log and the lead, gives disk space back, and tries again what failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from caravan.fleet import Fleet
from publisher.flows.applications import Applications
from publisher.flows.assigner import Assigner
from publisher.flows.backfills import Backfills
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.lag_and_headroom import LogWatch
from publisher.flows.lost_rows import LostRows
from publisher.flows.ownership import Ownership
from publisher.flows.progress import Progress
from publisher.flows.replays import Replays
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import CoordinationLost, WormholeError
from wormhole.ports.log_source import LogSource

__all__ = ["Housekeeping"]

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_RELEASE_EVERY_S = 5.0
_RETRY_S = 2.0


class Housekeeping:
    """The periodic work of one publisher.

    ``note``: makes the present state of the flows known; may raise :class:`WormholeError`.
    """

    def __init__(
        self,
        source: LogSource,
        fleet: Fleet,
        assigner: Assigner,
        applications: Applications,
        ownership: Ownership,
        replays: Replays,
        dead_letters: DeadLetterOffice,
        backfills: Backfills,
        lost_rows: LostRows,
        log_watch: LogWatch,
        progress: Progress,
        note: Callable[[], Awaitable[None]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._source = source
        self._fleet = fleet
        self._assigner = assigner
        self._applications = applications
        self._ownership = ownership
        self._replays = replays
        self._dead_letters = dead_letters
        self._backfills = backfills
        self._lost_rows = lost_rows
        self._log_watch = log_watch
        self._progress = progress
        self._note = note

    async def run(self) -> None:
        """Until it is cancelled, from the time on that the applications are known."""
        released = tried = self._clock.monotonic()
        trouble = ""
        await self._applications.known.wait()
        with contextlib.suppress(WormholeError):  # it is looked at again below, where that is logged
            await self._look_at_log()  # at once: `up` waits for what the source reports
        while True:
            await self._clock.sleep(_EVERY_S)
            now = self._clock.monotonic()
            self._look_at_lead(now)
            if self._ownership.ours():
                self._replays.look(now)
                self._backfills.look()
            else:
                self._let_go()
            if now - released >= _RELEASE_EVERY_S:
                released = now
                await self.release()
            if now - tried >= _RETRY_S:
                tried = now
                await self._applications.try_again()
            try:
                await self._look_at_log()
                await self._dead_letters.look()
                await self._note()
            except CoordinationLost:
                trouble = ""
            except WormholeError as error:  # what only operators look at must not end what subscribers depend on
                if trouble != str(error):
                    _log.warning("the state of the flows is not reported: %s", error)
                trouble = str(error)
            else:
                trouble = ""

    async def release(self) -> None:
        """Tell the source what nobody needs any more: that a flow has come further counts when it is durable."""
        try:
            async with self._applications.registering:  # where a flow is about to begin must not go meanwhile
                oldest = self._fleet.oldest_place()
                if oldest is None:
                    return
                places = [oldest, *(flow.delivery.needed for flow in self._assigner.flows.values())]
                places += await self._applications.needed()
                await asyncio.to_thread(self._source.release, min(places))
                await self._lost_rows.keep(min([*places, *self._backfills.needed()]))
        except WormholeError as error:
            _log.warning("the log's disk space cannot be given back: %s", error)

    async def _look_at_log(self) -> None:
        try:
            status = await asyncio.to_thread(self._source.status)
        except WormholeError as error:
            self._log_watch.failed(error.problem)
            raise
        self._log_watch.measured(status, self._clock.monotonic())
        self._fleet.files(status.files)

    def _look_at_lead(self, now: float) -> None:
        lead = self._fleet.lead
        if lead is None:
            self._progress.measured(None, None, now)
        else:
            place, read = lead.buffer.place, self._fleet.read_bytes_total
            self._progress.measured(place, self._log_watch.behind(place), now, read=read, waits=lead.waits)

    def _let_go(self) -> None:
        """Another publisher has the log, or may have it: what is open here would only look as if it were served."""
        for stream in self._assigner.streams():
            if stream.flows:
                stream.hang_up("this publisher does not own the log any more, as far as it knows")
