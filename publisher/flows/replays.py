"""Answers the requests of mass replays of this log's flows. A replay cannot raise epochs or write datamarkers itself.

The replay that has a flow is stored in the flow's record (:class:`~wormhole.ports.marker_store.ReplayControl`), so that
a restarted publisher, or the next one, knows it. The lease is in memory. After a restart the driver has a whole lease
again. What happens when a process dies:

- this process: an unstored request is made again. A stored one is continued by the next publisher. That publisher
  answers ``ABORTED`` to a task that opened its epoch earlier, because a newer epoch may exist.
- the driver: the lease runs out. The flow goes live if the log holds its datamarker. Otherwise it needs a replay, which
  its state shows.
- a task: the next task opens the flow in a higher epoch. Later requests of the former task are refused.
- a subscriber: the next task gets another subscriber, as soon as no handler of the former one can run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import grpc

from publisher.flows.assigner import Assigner
from publisher.flows.backfill_rules import renewed
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.epoch_openings import EpochOpenings
from publisher.flows.records import FlowRecords
from publisher.flows.refused_error import RefusedError
from publisher.flows.replay_parking import ReplayParking
from publisher.flows.replay_states import ReplayRun, cause, hashed, mine, opened, parked, permitted, stale, taken
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.audit.sent_counts import Settled
from wormhole.coordination.port import SubscriberInfo
from wormhole.filters import Filter
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import Diverged, PositionPurged, WormholeError
from wormhole.model.position import Datamarker, LastAck, LogPosition, flow_name
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.dead_letters import ParkedRows
from wormhole.ports.log_source import LogSource
from wormhole.ports.marker_store import FlowControl, FlowKey, MarkerWrite, ReplayControl, ReplayState
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Gap", "ReplayOpening", "Replays"]

_log = logging.getLogger(__name__)

Gap = PositionPurged | Diverged
"""The error because of which the log cannot be read from a flow's datamarker on."""

_ACTIVE: Final = (ReplayState.HELD, ReplayState.REPLAYING)


@dataclass(frozen=True, slots=True)
class ReplayOpening:
    """The orders of a task: push to ``stream``'s subscriber in ``epoch``, from ``marker`` on.

    ``park``: whether updates whose retries are exhausted are parked; ``parked``: the parked updates. ``counted_to``:
    the place up to which deliveries are counted. ``rewound``: whether the datamarker was set back and nothing was
    acknowledged since; ``move``: the number of the flow's last move; ``acknowledged``: whether the datamarker was ever
    acknowledged or moved; ``last_ack``: the last acknowledgement.
    """

    stream: SubscriberStream
    epoch: int
    marker: Datamarker
    progress: bytes
    skip: tuple[str, ...]
    filter: Filter
    park: bool
    parked: ParkedRows
    counted_to: LogPosition | None
    rewound: bool
    move: int
    acknowledged: bool
    last_ack: LastAck | None


@dataclass(frozen=True, slots=True)
class _Over:
    """How a replay ended. It answers a repeated request whose first answer was lost."""

    id: str
    ticket: str
    gap: Gap | None


class Replays:
    """See the module. Requests raise :class:`~publisher.flows.refused_error.RefusedError` and the errors of the store
    and the source. A failed request changes nothing and may be repeated.
    """

    def __init__(
        self,
        source: LogSource,
        records: FlowRecords,
        assigner: Assigner,
        openings: EpochOpenings,
        parking: ReplayParking,
        background: BackgroundTasks,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._source = source
        self._records = records
        self._assigner = assigner
        self._openings = openings
        self._parking = parking
        self._background = background
        self._clock = clock
        self._runs: dict[FlowKey, ReplayRun] = {}
        self._over: dict[FlowKey, _Over] = {}
        self._locks: dict[FlowKey, asyncio.Lock] = {}
        self._ending: set[FlowKey] = set()
        self._looking = asyncio.Lock()  # each check of the log opens a reader, and a server limits their number

    # -- events

    def lock(self, key: FlowKey) -> asyncio.Lock:
        """The lock that is held while the flow's replay or its datamarker changes."""
        return self._locks.setdefault(key, asyncio.Lock())

    def run_of(self, flow: PublisherFlow) -> ReplayRun | None:
        """This process's state of the replay that has the flow; ``None`` without one."""
        run, replay = self._runs.get(flow.key), flow.control.replay
        return run if run is not None and replay is not None and run.id == replay.id else None

    def cause(self, flow: PublisherFlow) -> Problem:
        """Why the flow's subscriber does not receive the log's updates; empty if no replay is the reason."""
        replay = flow.control.replay
        return NO_PROBLEM if replay is None else cause(flow.name, replay, self.run_of(flow))

    def described(self, flow: PublisherFlow) -> admin_pb2.ReplayStatus | None:
        """The mass replay that has the flow, as a message."""
        replay, run = flow.control.replay, self.run_of(flow)
        if replay is None:
            return None
        message = admin_pb2.ReplayStatus(
            replay=replay.id,
            who=replay.who,
            state=replay.state.value,
            mode=admin_pb2.LATEST if replay.mode == "latest" else admin_pb2.LOG,
            where=replay.where,
            progress=replay.progress,
            started_s=replay.started_s,
            attempts=replay.attempts,
            opener=replay.opener,
        )
        if replay.begin is not None:
            message.begin.CopyFrom(marker_to_message(replay.begin))
        if replay.until is not None:
            message.until.CopyFrom(marker_to_message(replay.until))
        if replay.snapshot is not None:
            message.snapshot.CopyFrom(marker_to_message(replay.snapshot))
        if run is not None:
            message.updates, message.bytes = run.updates, run.bytes
            message.rate = run.heard(self._clock.monotonic())
        if replay.state is not ReplayState.NEEDS_REPLAY:
            message.lease_left_s = replay.lease_s if run is None else max(0.0, run.until - self._clock.monotonic())
        return message

    # -- the requests

    async def begin(self, key: FlowKey, wanted: ReplayControl, resumes: float = 0.0) -> None:
        """Hold the flow for the replay, or resume the replay with the same id. ``resumes``: when the replay to resume
        began. If that replay has ended, the request is refused.
        """
        async with self._one(key) as flow:
            now = flow.control.replay
            anew = now is None or now.id != wanted.id
            if anew and wanted.begin is not None and wanted.begin.order > flow.delivery.marker.order:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{wanted.begin} is ahead of the flow's datamarker {flow.delivery.marker}: what lies between would "
                    "never be delivered",
                    flow=flow.name,
                    hint="begin at the datamarker or before it",
                )
            known = self.run_of(flow)
            leased = known is None or self._clock.monotonic() < known.until
            with _recorded(flow):
                await self._records.control(flow, lambda c: _held_for(flow, c, wanted, leased, resumes))
            run = ReplayRun(wanted.id, self._clock.monotonic() + wanted.lease_s)
            if known is not None and known.id == run.id:
                run.updates, run.bytes = known.updates, known.bytes
            if known is not None:
                known.fence()
            self._runs[key] = run
            self._over.pop(key, None)
            flow.resume()  # a halted flow may be tried again
            self._assigner.recall(flow, f"is replayed by {wanted.who}")
        _log.warning("%s is held for replay %s by %s", flow.name, wanted.id, wanted.who, extra=flow.about)

    async def open(
        self, key: FlowKey, replay: str, ticket: str, *, parks: bool, projects: bool, opener: str, above: int = 0
    ) -> ReplayOpening | Problem:
        """Raise the epoch for a task that pushes, or return why the task has to wait. ``parks``: whether the task
        supports parked updates; ``projects``: whether it supports omitted and masked columns; ``opener``: the task;
        ``above``: the epoch that its subscriber holds.
        """
        async with self._one(key) as flow:
            now = permitted(flow.name, flow.control.replay, replay, ticket)
            _check_projects(flow, projects=projects)
            run = self._known(flow, now)
            run.answer(self._clock.monotonic())
            if now.subscriber:
                self._assigner.lend(flow, now.subscriber)  # a handler of the former task may still run there
            stream = self._assigner.receiver(flow)
            if stream is None:
                run.waits = flow.problem
                return run.waits
            if why := self._overtakes(stream, flow, parks):
                run.waits = why
                return run.waits
            await self._openings.settle()
            with _recorded(flow):
                if not now.attempts and now.begin is not None and now.begin.order < flow.delivery.marker.order:
                    await self._records.move(flow, now.begin)
                else:
                    await self._records.raise_epoch(flow, above)
            run.epoch, epoch = 0, flow.holding.epoch
            counted_to = await self._openings.prepare_replay(flow)
            if why := self._overtakes(stream, flow, parks):
                run.waits = why
                return run.waits

            def begun(control: FlowControl) -> FlowControl:
                present = permitted(flow.name, control.replay, replay, ticket)
                return replace(control, replay=opened(present, stream.info.id, opener))

            with _recorded(flow):
                await self._records.control(flow, begun)
            await self._openings.note((flow,))  # the subscriber refuses an epoch that is not recorded
            if flow.holding.epoch != epoch or flow.control.paused:
                paused = f"paused by {flow.control.paused}" if flow.control.paused else ""
                run.waits = Problem(paused or "its datamarker was set", code="flow-replaying")
                return run.waits
            _check_projects(flow, projects=projects)  # again: the configuration may have changed
            run.epoch, run.filter_hash, run.waits = epoch, flow.filter.hash, NO_PROBLEM
            run.subscriber = stream.info
            self._parking.open(run, stream)
            return ReplayOpening(
                stream,
                epoch,
                flow.delivery.marker,
                now.progress,
                flow.control.skip,
                flow.filter,
                flow.parks,
                flow.parked_rows,
                counted_to,
                flow.delivery.rewound,
                flow.delivery.move,
                flow.delivery.was_used,
                flow.delivery.last_ack,
            )

    def pushes_to(self, key: FlowKey, replay: str, ticket: str, epoch: int) -> SubscriberInfo:
        """The subscriber to which the task that opened the flow in ``epoch`` pushes."""
        flow = self._flow(key)
        run = self._at_work(flow, permitted(flow.name, flow.control.replay, replay, ticket), epoch)
        assert run.subscriber is not None  # it was opened
        return run.subscriber

    def check(self, key: FlowKey, replay: str, ticket: str) -> None:
        """Raise unless the ticket belongs to the replay that has the flow. Called before a large request is read."""
        flow = self._flow(key)
        permitted(flow.name, flow.control.replay, replay, ticket)

    async def advance(
        self,
        key: FlowKey,
        replay: str,
        ticket: str,
        epoch: int,
        marker: Datamarker | None,
        progress: bytes,
        updates: int,
        size: int,
        settled: Settled | None = None,
    ) -> None:
        """Store the progress that was acknowledged in ``epoch``: ``marker``, and the task's own ``progress``.

        ``updates`` and ``size`` (bytes) are counted, and ``settled`` is added to the delivery counts with the marker.
        """
        async with self._one(key) as flow:
            now = permitted(flow.name, flow.control.replay, replay, ticket)
            run = self._at_work(flow, now, epoch)
            run.answer(self._clock.monotonic())
            if marker is not None or settled is not None:
                await self._store_marker(flow, run, marker or flow.delivery.marker, settled)
            if progress and progress != now.progress:
                await self._change(flow, now, lambda present: replace(present, progress=progress))
            run.updates += updates
            flow.delivery.count_replayed(updates)
            run.bytes += size

    async def park(self, key: FlowKey, replay: str, ticket: str, epoch: int, frame: push_pb2.Park) -> str:
        """Take the next piece of an update that the subscriber parks in ``epoch``, and store the update once it is
        complete. Returns why the update is refused; empty if it is durable or incomplete. A failed write is retried.
        """
        flow = self._flow(key)
        run = self._at_work(flow, permitted(flow.name, flow.control.replay, replay, ticket), epoch)
        if await self._parking.waited(run, frame):
            run = self._at_work(flow, permitted(flow.name, flow.control.replay, replay, ticket), epoch)
        refused = await self._parking.park(flow, run, epoch, frame)
        if refused is None:
            raise stale(flow.name, "a newer task, an operator or another publisher ended it")
        return refused

    def renew(self, key: FlowKey, replay: str, ticket: str, rate: float | None = None) -> None:
        """Extend the lease for the driver. ``rate``: bytes per second that the flow's task may push; the answer to the
        task's next request contains it. ``None``: the rate stays.
        """
        flow = self._flow(key)
        now = permitted(flow.name, flow.control.replay, replay, ticket)
        run = self._known(flow, now)
        run.until, run.trouble = self._clock.monotonic() + now.lease_s, ""
        if rate is None:
            run.answer(self._clock.monotonic())  # a task may have made the request
        else:
            run.rate = rate

    async def finish(
        self, key: FlowKey, replay: str, ticket: str, epoch: int, marker: Datamarker, *, accept_gap: bool
    ) -> Gap | None:
        """End the replay, which has processed everything up to ``marker``. The flow goes live if the log can be read
        from there on, or with ``accept_gap``.

        Returns why the log cannot be read from ``marker`` on; ``None`` if it can."""
        async with self._one(key) as flow:
            if (over := self._ended(flow, replay)) is not None and over.ticket == hashed(ticket):
                return over.gap
            now = permitted(flow.name, flow.control.replay, replay, ticket)
            run = self._at_work(flow, now, epoch)
            if marker.order < flow.delivery.marker.order:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{marker} is before the flow's datamarker {flow.delivery.marker}",
                    flow=flow.name,
                    hint="finish where the subscriber has everything",
                )
            await self._store_marker(flow, run, marker)
            gap = await self._gap(flow.delivery.marker)
            if gap is not None and not accept_gap:
                return gap
            await self._change(flow, now, lambda present: None)
            flow.holding.was_at(None, None)  # the replay's subscriber released the flow
            self._goes_live(flow, now, gap)
        if gap is None:
            _log.warning("%s: replay %s is finished, it goes live at %s", flow.name, replay, marker, extra=flow.about)
        else:
            _log.error("%s: replay %s is finished with a gap: %s", flow.name, replay, gap.message, extra=flow.about)
        return gap

    async def cancel(self, key: FlowKey, replay: str, who: str, ticket: str = "") -> Gap | None:
        """Give the replay up. The flow goes live if the log still holds its datamarker. Otherwise the flow needs a
        replay, and the reason is returned. A ``ticket``, if given, has to be the replay's.
        """
        async with self._one(key) as flow:
            if (over := self._ended(flow, replay)) is not None:
                return over.gap
            now = mine(flow.name, flow.control.replay, replay)
            if ticket:
                now = permitted(flow.name, now, replay, ticket, at_work=False)
            gap = await self._gap(flow.delivery.marker)
            await self._give_back(flow, now, gap, f"was cancelled by {who}")
            return gap

    # -- by time, and by operators

    def look(self, now: float) -> None:
        """End the replays whose lease has run out. ``now``: seconds of the monotonic clock."""
        flows = self._assigner.flows
        for key in [key for key in self._runs if (flow := flows.get(key)) is None or self.run_of(flow) is None]:
            self._runs.pop(key).parking.drop()
        for flow in flows.values():
            replay = flow.control.replay
            if replay is None or replay.state not in _ACTIVE:
                continue
            if now >= self._known(flow, replay).until and flow.key not in self._ending:
                self._ending.add(flow.key)
                self._background.spawn(self._run_out(flow.key))

    def fence(self, flow: PublisherFlow) -> None:
        """End the epoch of the flow's task, because its orders have changed. The task has to open the flow again."""
        run = self.run_of(flow)
        if run is not None:
            run.fence()

    # -- inside

    async def _run_out(self, key: FlowKey) -> None:
        try:
            async with self._one(key) as flow:
                now, run = flow.control.replay, self.run_of(flow)
                if now is None or run is None or now.state not in _ACTIVE:
                    return
                gap = await self._gap(flow.delivery.marker)
                if self._clock.monotonic() >= run.until:  # the lease may have been renewed meanwhile
                    await self._give_back(flow, now, gap, f"has a driver that was silent for {now.lease_s:g} s")
        except WormholeError as error:  # the next `look` tries again
            run = self._runs.get(key)
            if run is not None and run.trouble != error.message:
                run.trouble = error.message
                _log.error("%s: a replay whose lease ran out cannot be ended: %s", flow_name(*key), error)
        finally:
            self._ending.discard(key)

    async def _give_back(self, flow: PublisherFlow, now: ReplayControl, gap: Gap | None, why: str) -> None:
        self.fence(flow)
        if gap is None:
            await self._change(flow, now, lambda present: None)
            if now.subscriber:
                self._assigner.lend(flow, now.subscriber)
            if now.until is not None and now.attempts:
                flow.delivery.reached(now.until.order)
            self._goes_live(flow, now, None)
            at = flow.delivery.marker
            _log.warning("%s: replay %s %s; it goes live at %s", flow.name, now.id, why, at, extra=flow.about)
            return
        await self._change(flow, now, lambda present: replace(present, state=ReplayState.NEEDS_REPLAY))
        run = self._known(flow, now)
        run.waits, run.trouble = Problem(gap.message, code="data-lost"), ""
        _log.error("%s needs a replay: %s %s, %s", flow.name, now.id, why, gap, extra=flow.about)

    def _goes_live(self, flow: PublisherFlow, now: ReplayControl, gap: Gap | None) -> None:
        if (run := self._runs.pop(flow.key, None)) is not None:
            run.parking.drop()
        self._over[flow.key] = _Over(now.id, now.ticket, gap)
        self._assigner.go_on(flow)

    async def _change(
        self, flow: PublisherFlow, now: ReplayControl, change: Callable[[ReplayControl], ReplayControl | None]
    ) -> None:
        """Change the stored control, unless another replay had the flow meanwhile."""

        def changed(control: FlowControl) -> FlowControl:
            present = mine(flow.name, control.replay, now.id)
            if (present.ticket, present.attempts) != (now.ticket, now.attempts):
                self.fence(flow)
                raise stale(flow.name, "another publisher gave it to a newer task")
            return replace(control, replay=change(present))

        with _recorded(flow):
            await self._records.control(flow, changed)

    async def _store_marker(
        self, flow: PublisherFlow, run: ReplayRun, marker: Datamarker, settled: Settled | None = None
    ) -> None:
        write = MarkerWrite(flow.key, run.epoch, marker, run.filter_hash, {})
        if not await self._records.store_replayed(flow, write, settled):
            raise stale(flow.name, "a newer epoch is stored")

    def _overtakes(self, stream: SubscriberStream, flow: PublisherFlow, parks: bool) -> Problem:
        """Why a task cannot push to the subscriber without overtaking parked updates; empty if it can."""
        if flow.parking.count and not parks:
            return parked(flow.parking.count)
        return NO_PROBLEM if self._assigner.keeps_order(stream, flow) else flow.problem

    async def _gap(self, marker: Datamarker) -> Gap | None:
        """Why the log cannot be read from ``marker`` on; ``None`` if it can. The check opens the log there."""
        async with self._looking:
            try:
                reader = await asyncio.to_thread(self._source.open, marker)
            except (PositionPurged, Diverged) as error:
                return error
            await asyncio.to_thread(reader.close)
            return None

    async def reaches(self, flow: PublisherFlow) -> bool:
        """Whether the log holds the flow's datamarker; false if that is unknown."""
        try:
            return await self._gap(flow.delivery.marker) is None
        except WormholeError:
            return False

    async def earliest(self) -> Datamarker | None:
        """Where the log begins; ``None`` when that is unknown."""
        try:
            return await asyncio.to_thread(self._source.earliest)
        except WormholeError:
            return None

    def _known(self, flow: PublisherFlow, replay: ReplayControl) -> ReplayRun:
        run = self.run_of(flow)
        if run is None:  # an earlier publisher began the replay: the driver gets a whole lease to find this publisher
            run = self._runs[flow.key] = ReplayRun(replay.id, self._clock.monotonic() + replay.lease_s)
        return run

    def _at_work(self, flow: PublisherFlow, now: ReplayControl, epoch: int) -> ReplayRun:
        """This process's state of the replay, for a task that works in its newest epoch."""
        run = self._known(flow, now)
        if not epoch:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the request names no epoch", flow=flow.name)
        if not now.attempts:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "it was not opened yet", flow=flow.name)
        if not run.epoch or epoch != run.epoch or epoch != flow.holding.epoch:
            raise stale(flow.name, "a newer task, an operator or a restart of the publisher ended it")
        if flow.filter.hash != run.filter_hash:
            raise stale(flow.name, "the application's filter changed")
        return run

    def _ended(self, flow: PublisherFlow, replay: str) -> _Over | None:
        over = self._over.get(flow.key) if flow.control.replay is None else None
        return over if over is not None and over.id == replay else None

    def _flow(self, key: FlowKey) -> PublisherFlow:
        flow = self._assigner.flows.get(key)
        if flow is None:
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND,
                (
                    f"{flow_name(*key)} is not served: its application is not configured here, or the log does not "
                    "have its shard"
                ),
                hint="`wormholectl flows` lists those that there are",
                code="flow-unknown",
            )
        return flow

    @asynccontextmanager
    async def _one(self, key: FlowKey) -> AsyncIterator[PublisherFlow]:
        """Allow one request about a flow at a time."""
        async with self.lock(key):
            yield self._flow(key)


def _held_for(
    flow: PublisherFlow, control: FlowControl, wanted: ReplayControl, leased: bool, resumes: float
) -> FlowControl:
    """``control`` with the replay ``wanted``. Its deliveries belong to no generation of a backfill, so a backfill
    begins anew after it."""
    present = control if control.replay is not None else renewed(control, flow.filter.hash)
    return replace(present, replay=taken(flow.name, control.replay, wanted, leased, resumes))


def _check_projects(flow: PublisherFlow, *, projects: bool) -> None:
    if flow.filter.projection and not projects:
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "the application has columns or a mask, and the release of the replay would send every value",
            flow=flow.name,
            hint="replay with the release of the publisher",
            code="release-too-old",
        )


@contextmanager
def _recorded(flow: PublisherFlow) -> Iterator[None]:
    """Run a block that uses the flow's record in the marker store. A ``KeyError``, which means that the record is
    missing, becomes an error with a next step."""
    try:
        yield
    except KeyError:
        raise RefusedError(
            grpc.StatusCode.NOT_FOUND,
            f"the datamarker of {flow.name} is missing in the marker store",
            hint="restore the store, or restart the publisher to begin anew",
            code="marker-missing",
        ) from None
