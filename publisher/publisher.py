"""The publisher of one log: its parts, and how they start and stop. :mod:`publisher.wiring` joins the parts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from publisher.flows.applications import Applications, Served
from publisher.flows.assigner import Assigner
from publisher.flows.backfills import Backfills
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.configured_limits import ConfiguredLimits
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.flow_states import FlowStates
from publisher.flows.housekeeping import Housekeeping
from publisher.flows.loop_pace import LoopPace
from publisher.flows.losses import Losses
from publisher.flows.ownership import LogHandedOver, Ownership
from publisher.flows.records import FlowRecords
from publisher.flows.replays import Replays
from publisher.flows.row_scans import RowScans
from publisher.flows.tailed_log import TailedLog
from publisher.flows.this_process import ThisProcess
from publisher.push.attach_service import AttachListener
from wormhole.coordination.port import Coordinator, PublisherInfo
from wormhole.host.clock import Clock
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError
from wormhole.ports.log_source import LogRelay
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.room import Room

__all__ = ["Publisher"]

_log = logging.getLogger(__name__)

_STOPS_S = 2.0  # a source has this long to stop before another publisher may begin


async def _by_the_caller() -> None:
    """The caller starts and stops the source."""


async def _result_of(task: asyncio.Task[None]) -> None:
    """Wait for a task. The task continues when the wait is cancelled."""
    await asyncio.shield(task)


@dataclass(frozen=True, slots=True, eq=False)
class Publisher:
    """Tails one log and pushes its updates. The attributes are its parts. The class of each part describes the part.

    ``run`` serves until cancelled and then stops gracefully.
    """

    served: Served
    process: ThisProcess
    clock: Clock
    coordinator: Coordinator
    relay: LogRelay | None
    ownership: Ownership
    log: TailedLog
    pace: LoopPace
    caps: ConfiguredLimits
    scans: RowScans
    applications: Applications
    assigner: Assigner
    records: FlowRecords
    states: FlowStates
    dead_letters: DeadLetterOffice
    replays: Replays
    backfills: Backfills
    losses: Losses
    listener: AttachListener
    housekeeping: Housekeeping
    background: BackgroundTasks
    parking_room: Room
    peer_threads: PeerThreads
    letter_threads: PeerThreads

    async def run(
        self,
        ready: Callable[[], None] = lambda: None,
        start_source: Callable[[], Awaitable[None]] = _by_the_caller,
        stop_source: Callable[[], Awaitable[None]] = _by_the_caller,
    ) -> None:
        """Wait until this process owns the log, then serve until cancelled. After that, finish the work, store
        acknowledged datamarkers and give up the log.

        Raises the errors that make serving impossible, and :class:`~publisher.flows.ownership.LogHandedOver`.

        The store has to be open and the coordinator connected. The caller closes them afterwards. ``start_source`` is
        called once this process owns the log, because a standby does not use the datastore. ``stop_source`` is called
        while this process still owns the log, so that the next owner finds the source's documents.
        """
        patience_s = self.served.settings.stop_timeout
        listening = asyncio.create_task(self.listener.run(), name="attach")  # ends after the streams
        assigning = asyncio.create_task(
            self.assigner.run(), name="assigner"
        )  # a standby too hangs up on subscribers that left
        try:
            await self.ownership.take(self._info())
            await start_source()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ownership.until_another(self.log.cannot_be_read), name="ownership")
                group.create_task(self.applications.run(), name="applications")
                group.create_task(self.log.read(self.applications, self.assigner), name="fleet")
                group.create_task(self.caps.run(), name="caps")
                group.create_task(_result_of(assigning), name="assigner")
                group.create_task(_result_of(listening), name="attach")
                group.create_task(self.records.markers.run(), name="markers")
                group.create_task(self.housekeeping.run(), name="housekeeping")
                group.create_task(self.scans.run(), name="existing-rows")
                group.create_task(self.pace.run(self.assigner, self.log.fleet), name="lag")
                ready()
        except BaseExceptionGroup as group:
            handed_over = group.subgroup(LogHandedOver)
            if handed_over is None:
                raise
            found = handed_over.exceptions[0]
            assert isinstance(found, LogHandedOver)
            _log.warning("%s", found)
            patience_s = 0.0 if found.gone else patience_s
            raise found from None
        finally:
            await cancel_all(assigning)
            await self.applications.stop()
            await self.background.stop()
            try:
                await self.assigner.close(patience_s)
            finally:  # also when a second signal ends the wait early
                await cancel_all(listening)
                await self._leave(stop_source)
                for threads in (self.records.markers, self.peer_threads, self.letter_threads):
                    threads.close()

    def _info(self) -> PublisherInfo:
        return PublisherInfo(
            self.served.dataset.name,
            self.served.copy,
            self.served.log,
            self.process.host,
            os.getpid(),
            self.process.admin_address,
            self.process.started,
            self.records.store.owner,
        )

    async def _leave(self, stop_source: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.records.settle()
        except WormholeError as error:
            _log.error(
                "acknowledged datamarkers could not be stored, the next start repeats what they cover: %s", error
            )
        if self.assigner.flows and self.ownership.ours():
            try:  # the next owner of the log waits for no subscriber that released its flows
                await self.states.look()
            except WormholeError as error:
                _log.warning("the flows that were released are not reported: %s", error)
        try:
            async with asyncio.timeout(_STOPS_S):
                await stop_source()
        except TimeoutError:
            _log.warning("the log's source does not stop yet, for its datastore does not answer: the log is given up")
        finally:
            await self.ownership.give_up()
