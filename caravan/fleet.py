"""Manages all caravans over one log: carries out the plan, and bounds the memory and read rates that they share."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from caravan.caravan import Caravan, RowsWatch
from caravan.flow import CaravanFlow, CaravanFlowState
from caravan.governor import Governor, Limits
from caravan.log_map import LogMap
from caravan.plan import Action, Board, CaravanView, Close, FlowView, SendBack, Start, plan
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.log_batch import BatchedLog
from wormhole.host.waiting import wait_at_most
from wormhole.model.errors import Diverged, Fatal, PositionPurged, Retryable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, LogSource

__all__ = ["CaravanEvent", "CaravanEventKind", "Fleet", "FleetEvents", "Limits"]

_log = logging.getLogger(__name__)

_TICK_S = 0.1
_LEAST_PLAN_S = 0.01  # readers that catch up ask for a plan with every segment
_QUIET_S = 0.1  # flows are often added together: caravans are chosen for all of them
_QUIET_MOST_S = 0.5
_VERIFIED_LAST = 2
_SETTLED_S = 1.0  # how long a caravan serves its own flows before it is sent back, so that all make progress in turn
_HISTORY = 256
_LEAST_READ = 1 << 10
_LONGEST_REST_S = 60.0  # a lead without flows rests this long at log that cannot be decoded
_REOPEN_S = 1.0  # wait after a log could not be read, which also limits the lines in the log file


@dataclass(frozen=True, slots=True)
class FleetEvents:
    """The fleet's events for its owner. Called on the event loop; must not block.

    ``held``: a flow cannot be served (data loss, divergence or an undecodable log); it left its caravan. ``advanced``:
    a caravan read a segment; the datamarker is the last one before it.
    """

    held: Callable[[CaravanFlow, WormholeError], None]
    advanced: Callable[[Segment, Datamarker], None]


class CaravanEventKind(Enum):
    """The kind of an event of a caravan. ``LIMITS_CHANGED`` concerns all caravans: its number is 0."""

    STARTED = auto()
    ENDED = auto()
    JOINED = auto()
    LEFT = auto()
    LIMITS_CHANGED = auto()


@dataclass(frozen=True, slots=True)
class CaravanEvent:
    """An event of a caravan. ``what``: the reason. ``at``: seconds since 1970."""

    at: float
    caravan: int
    kind: CaravanEventKind
    what: str


class Fleet:
    """Caravans over one log. All methods but :meth:`run` are called on the event loop and do not block.

    ``rows_watch``: the reader of existing rows, which sets it. ``started``: how many caravans were started so far.
    ``gather`` returns the minimum time between two reads at the live end (seconds), see :meth:`Caravan.run`; ``late``
    returns how late the event loop is (seconds). ``clock`` measures durations and dates events.
    """

    def __init__(
        self,
        source: LogSource,
        limits: Limits,
        events: FleetEvents,
        gather: Callable[[], float],
        late: Callable[[], float] = lambda: 0.0,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.limits = limits
        self.read_bytes = _read_bytes(limits)
        self.caravans: dict[int, Caravan] = {}
        self.governor = Governor(limits, self.caravans)
        self.total_cap = self.governor.total_cap
        self.history: deque[CaravanEvent] = deque(maxlen=_HISTORY)
        self.most = 0
        self.started = 0
        self.rows_watch: RowsWatch | None = None
        self._source = source
        self._events = events
        self._gather = gather
        self._late = late
        self._clock = clock
        self._flows: dict[str, CaravanFlow] = {}
        self._unplaced: dict[str, Datamarker] = {}  # by flow: a marker that has no place in the present history
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._start_marker: Datamarker | None = None
        self._not_before = 0.0
        self._lead_not_before = 0.0  # applies while no flow wants the lead
        self._lead_rest_s = 0.0
        self._read_before = 0
        self._said = BatchedLog(lambda line: _log.info("%s", line))
        self._unreadable = NO_PROBLEM
        self._paused_for = ""  # the last logged reason why the log cannot be read
        self._first_added = self._last_added = 0.0
        self._ahead_at: dict[int, float] = {}  # when a caravan was last seen behind a flow of its own

    # -- called by caravans (CaravanSettings)

    def budget(self, caravan: Caravan) -> int:
        """See :class:`~caravan.caravan.CaravanSettings`."""
        return self.governor.budget(caravan)

    def kept_for_lead(self, caravan: Caravan) -> int:
        """See :class:`~caravan.caravan.CaravanSettings`."""
        return self.governor.kept_for_lead(caravan)

    def gather_s(self) -> float:
        """See :class:`~caravan.caravan.CaravanSettings`."""
        return self._gather()

    def may_leave(self, caravan: Caravan) -> bool:
        """Whether another caravan may take a slow flow. A single caravan waits for its slowest flow instead."""
        return self.limits.caravans > 1

    def left(self, caravan: Caravan, flow: CaravanFlow) -> None:
        """A caravan left the flow behind. The flow gets another caravan when it can take more."""
        flow.block()
        self._note(caravan.number, CaravanEventKind.LEFT, f"{flow.name} left at {flow.place}: {flow.cause}")
        self._said.add("flows left behind", flow.name, f"at {flow.place} by caravan {caravan.number}: {flow.cause}")
        self._changed.set()

    def advanced(self, caravan: Caravan, segment: Segment) -> None:
        """A caravan read a segment; its ``marker`` is still the one before."""
        self._lead_rest_s = 0.0
        self._events.advanced(segment, caravan.marker)
        if self.rows_watch is not None:
            self.rows_watch.advanced(caravan, segment)
        self.governor.reclaim(caravan)
        place = caravan.buffer.place
        if any(one is not caravan and one.buffer.start <= place <= one.buffer.place for one in self.caravans.values()):
            self._changed.set()  # flows may change their caravan; everything else waits for the next tick

    # -- called by the owner

    def add(self, flow: CaravanFlow) -> None:
        """Add a flow that wants to travel. A flow of the same name (of a former epoch) is closed."""
        former = self._flows.get(flow.name)
        if former is not None and former is not flow:
            self.remove(former)
        self._flows[flow.name] = flow
        now = self._clock.monotonic()
        if now - self._last_added > _QUIET_S:
            self._first_added = now
        self._last_added = now
        self._changed.set()
        if self.rows_watch is not None:
            self.rows_watch.moved()

    def remove(self, flow: CaravanFlow) -> None:
        """Remove a flow from which no stream takes updates any more."""
        if self._flows.get(flow.name) is flow:
            del self._flows[flow.name]
            self._unplaced.pop(flow.name, None)
        self._leave(flow, CaravanFlowState.CLOSED, "closed")

    def change_limits(self, limits: Limits, cause: str) -> None:
        """Use other limits from now on.

        If fewer caravans are allowed, the flows of those that end join others, without returning in the log.
        """
        self.limits = self.governor.limits = limits
        self.read_bytes = _read_bytes(limits)
        self.total_cap.change(limits.total_read_rate, self._clock.monotonic())
        self._note(0, CaravanEventKind.LIMITS_CHANGED, cause)
        self._changed.set()

    def hold(self, flow: CaravanFlow, cause: str) -> None:
        """Hold the flow until :meth:`resume`."""
        self._leave(flow, CaravanFlowState.HELD, cause)

    def resume(self, flow: CaravanFlow) -> None:
        """A held flow wants to travel again, from its place."""
        flow.leave(CaravanFlowState.WAITING, "resumed")
        self._changed.set()

    def moved(self, flow: CaravanFlow) -> None:
        """The flow took a piece or can take again. Its caravan's buffer may have space, or the flow may want a
        caravan.
        """
        if flow.unblock():
            self._changed.set()
        caravan = self.caravan_of(flow)
        if caravan is not None:
            caravan.moved()
        if self.rows_watch is not None:
            self.rows_watch.moved()

    def add_rows(self, caravan: Caravan, segment: Segment) -> None:
        """Add existing rows to the log of ``caravan``."""
        caravan.add_rows(segment)
        self.governor.reclaim(caravan)

    @property
    def flows(self) -> Iterable[CaravanFlow]:
        """The flows that were added and not removed."""
        return self._flows.values()

    def caravan_of(self, flow: CaravanFlow) -> Caravan | None:
        """The caravan that the flow travels with."""
        return next((c for c in self.caravans.values() if flow in c.flows), None)

    @property
    def lead(self) -> Caravan | None:
        """The caravan furthest ahead."""
        return self.governor.lead

    def files(self, files: Sequence[tuple[int, int]]) -> None:
        """The log's files and their sizes, as the source lists them now."""
        self.governor.log_map = LogMap(files)

    @property
    def read_bytes_total(self) -> int:
        """Bytes of log read by all caravans so far."""
        return self._read_before + sum(caravan.read_bytes for caravan in self.caravans.values())

    @property
    def trouble(self) -> str:
        """The reason why the last opening of the log failed; empty after it was opened."""
        return self._paused_for

    @property
    def unreadable(self) -> Problem:
        """``trouble`` as a problem: the error alone, with its next step as a separate field."""
        return self._unreadable

    def oldest_place(self) -> LogPosition | None:
        """The earliest place that a reader may still need, ``None`` without caravans."""
        places = [c.marker.read_from for c in self.caravans.values()]
        return min(places, default=None)

    async def run(self, start: Datamarker) -> None:
        """Keep the caravans as the plan wants them, until cancelled.

        ``start``: where the lead begins if there is no flow.
        """
        self._start_marker = start
        try:
            while True:
                await self._carry_out()
                self.governor.adjust(self._late(), self._clock.monotonic())
                await asyncio.sleep(_LEAST_PLAN_S)
                await wait_at_most(self._changed, _TICK_S)
                self._changed.clear()
        finally:
            for number in tuple(self.caravans):
                self._close(number, "the publisher stops")
            self._said.flush()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- inside

    def _view(self, caravan: Caravan, now: float) -> CaravanView:
        place = caravan.buffer.place
        if caravan.ahead:
            self._ahead_at[caravan.number] = now
        settled = not caravan.flows or (
            now - self._ahead_at[caravan.number] >= _SETTLED_S and all(flow.may_go_back for flow in caravan.flows)
        )
        return CaravanView(caravan.number, caravan.buffer.start, place, len(caravan.flows), settled)

    def _wanting(self, lead: Caravan | None) -> Iterable[CaravanFlow]:
        """The flows for which a plan may have an action. Live flows, which in most fleets are nearly all, are not among
        them.
        """
        live: Collection[CaravanFlow] = ()
        if lead is not None:
            live = lead.flows.difference(lead.ahead) if lead.ahead else lead.flows
            if len(live) == len(self._flows):
                return ()
        return (
            flow
            for flow in self._flows.values()
            if flow not in live
            and (
                flow.state is CaravanFlowState.TRAVELLING
                or (flow.state is CaravanFlowState.WAITING and not flow.blocked)
            )
        )

    async def _carry_out(self) -> None:
        if self._clock.monotonic() < self._not_before:
            return
        await self._bring_over()
        now = self._clock.monotonic()
        views = [self._view(c, now) for c in self.caravans.values()]
        lead = self.lead
        flows = [self._flow_view(flow) for flow in self._wanting(lead)]
        # The lead comes first, also when every flow is behind: live flows, and flows that become live, must find it at
        # the end of the log.
        wanted = self.limits.caravans > 1 if flows else now >= self._lead_not_before
        if not views and self._start_marker is not None and wanted:
            try:
                reader = await asyncio.to_thread(self._source.open, self._start_marker)
                self._proved(self._start_marker)
                self._launch(self._start_marker, reader, "the lead")
                self._changed.set()
            except WormholeError as error:
                self.pause(f"the lead cannot be opened: {error}", error)
                if isinstance(error, PositionPurged | Diverged):
                    # No flow waits for that place, and the same error for ever would leave new shards unseen.
                    with suppress(WormholeError):
                        self._start_marker = await asyncio.to_thread(self._source.latest)
                else:
                    for waiting in self._flows.values():
                        if waiting.state is CaravanFlowState.WAITING:
                            waiting.explain(error.problem)
            return
        due = self._due(plan(views, flows, self.limits.caravans, self.governor.log_map.between), now)
        for action in sorted(due, key=self._after):
            if self._after(action) == _VERIFIED_LAST and self._clock.monotonic() - now > _QUIET_S:
                self._changed.set()  # a caravan may be due by now
                return
            if isinstance(action, Close):
                self._close(action.caravan, action.cause)
                continue
            flow = self._flows.get(action.flow)
            if flow is None:
                continue  # the flow was removed while another action of this plan opened the log
            match action:
                case Board(_, number, cause):
                    if await self._verify(flow):
                        self._board(flow, number, cause)
                case Start(_, cause):
                    await self._start_for(flow, cause)
                case SendBack(_, number, cause):
                    await self._send_back(flow, number, cause)

    def _after(self, action: Action) -> int:
        """The rank of an action in its plan.

        Each opening of the log takes a moment, and there is one at a time. So actions without an opening come first,
        then those that start a reader. Flows that join a caravan are verified after that.
        """
        if isinstance(action, Start | SendBack):
            return 1
        flow = self._flows.get(action.flow) if isinstance(action, Board) else None
        return 0 if flow is None or flow.verified else _VERIFIED_LAST

    async def _bring_over(self) -> None:
        """Give flows whose markers are of a former history of the log (of another server) their places in the present
        one.

        Their places are comparable only there. Without this, flows that travel together would all receive the updates
        that one of them lacks.
        """
        waiting = [
            flow
            for flow in self._flows.values()
            if flow.state is CaravanFlowState.WAITING
            and not flow.blocked
            and not flow.inside
            and self._unplaced.get(flow.name) is not flow.marker
        ]
        if not waiting:
            return
        with suppress(WormholeError):  # the next opening of the log reports why it cannot be read
            present = (await asyncio.to_thread(self._source.status)).end.incarnation
            for flow in waiting:
                if flow.place.incarnation != present and self._clock.monotonic() >= self._not_before:
                    await self._place_anew(flow)

    async def _place_anew(self, flow: CaravanFlow) -> None:
        marker = flow.marker
        reader = await self._open(flow)  # whether the present log has all that the flow has, and follows it
        if reader is None:
            return
        await asyncio.to_thread(reader.close)
        try:
            present = await asyncio.to_thread(self._source.locate, marker.delivered)
        except WormholeError as error:
            if not isinstance(error, Retryable):
                self._unplaced[flow.name] = marker
            return
        if flow.marker is marker and flow.state is CaravanFlowState.WAITING:
            flow.go_over(present)

    def _due(self, actions: list[Action], now: float) -> list[Action]:
        """The actions that are due. While flows are still being added nothing is started or sent back: the best places
        are known when all flows are there.
        """
        if now - self._last_added >= _QUIET_S or now - self._first_added >= _QUIET_MOST_S:
            return actions
        return [action for action in actions if isinstance(action, Board | Close)]

    def _flow_view(self, flow: CaravanFlow) -> FlowView:
        caravan = self.caravan_of(flow)
        held, inside = set(), set()
        for one in self.caravans.values():
            buffer = one.buffer
            number = buffer.find(flow.place)
            if number is not None:
                held.add(one.number)
                # A flow in the oldest quarter of the buffer would soon be left behind.
                if number >= buffer.first + (buffer.end - buffer.first) // 4:
                    inside.add(one.number)
        return FlowView(
            flow.name, flow.place, None if caravan is None else caravan.number, frozenset(held), frozenset(inside)
        )

    def _board(self, flow: CaravanFlow, number: int, cause: str) -> None:
        caravan = self.caravans.get(number)
        if caravan is None or flow.state not in (CaravanFlowState.WAITING, CaravanFlowState.TRAVELLING):
            return  # the plan was made before the log was opened for another flow
        cursor = caravan.buffer.join(flow.place)
        if cursor is None:
            return  # the buffer moved on since the plan was made: the next plan decides anew
        self._leave(flow, CaravanFlowState.WAITING, cause)
        caravan.board(flow, cursor)
        self._note(number, CaravanEventKind.JOINED, f"{flow.name} joins: {cause}")
        self._said.add("flows join a caravan", flow.name, f"caravan {number}: {cause}")

    def _note(self, caravan: int, kind: CaravanEventKind, what: str) -> None:
        self.history.append(CaravanEvent(self._clock.wall(), caravan, kind, what))

    def _leave(self, flow: CaravanFlow, state: CaravanFlowState, cause: str) -> None:
        caravan = self.caravan_of(flow)
        if caravan is not None:
            caravan.leave(flow, state, cause)
        else:
            flow.leave(state, cause)

    async def _start_for(self, flow: CaravanFlow, cause: str) -> int | None:
        """Start a caravan at the flow's marker.

        Every flow that waits at that marker joins it at once. It begins to read immediately, so the next plan might
        find it beyond their place.
        """
        marker = _without_rows(flow.marker)
        reader = await self._open(flow)
        if reader is None:
            return None
        started = self._launch(marker, reader, f"{flow.name}: {cause}")
        waiting = (one for one in self._flows.values() if one.state is CaravanFlowState.WAITING and not one.blocked)
        for one in [flow, *(one for one in waiting if one is not flow and _without_rows(one.marker) == marker)]:
            self._board(one, started, cause)
        return started

    async def _verify(self, flow: CaravanFlow) -> bool:
        """Whether the log is still the one that the flow's marker came from.

        Without this check a flow would wait in a log that was restored, and skip new updates until its old place is
        reached.
        """
        if any(caravan.marker == _without_rows(flow.marker) for caravan in self.caravans.values()):
            flow.verify()
        if not flow.verified:
            reader = await self._open(flow)
            if reader is None:
                return False
            await asyncio.to_thread(reader.close)
        return True

    async def _open(self, flow: CaravanFlow) -> LogReader | None:
        """A reader at the flow's marker. If it cannot be opened, the flow is held or waits, and the result is
        ``None``.
        """
        marker = _without_rows(flow.marker)
        try:
            reader = await asyncio.to_thread(self._source.open, marker)
        except (PositionPurged, Diverged) as error:
            if flow.state is CaravanFlowState.WAITING:
                flow.leave(CaravanFlowState.HELD, error.message)
                self._events.held(flow, error)
            else:  # the flow's present caravan still serves it
                self.pause(f"no caravan of its own for {flow.name}: {error}", error)
        except WormholeError as error:
            self.pause(f"cannot read the log for {flow.name}: {error}", error)
            flow.explain(error.problem)
        else:
            self._proved(marker)
            return reader
        return None

    def _proved(self, marker: Datamarker) -> None:
        """Record that the log was opened at ``marker`` and is the one that the marker came from: flows at this place
        need no check.
        """
        for flow in self._flows.values():
            if _without_rows(flow.marker) == marker:
                flow.verify()

    def pause(self, cause: str, error: BaseException) -> None:
        """Open nothing for a moment, because of ``error``, which :attr:`trouble` reports. Logged once however often it
        repeats, until the log is read again.
        """
        self._unreadable = error.problem if isinstance(error, WormholeError) else Problem(cause, code="internal-error")
        self._not_before = self._clock.monotonic() + _REOPEN_S
        if cause != self._paused_for:
            self._paused_for = cause
            _log.warning("%s", cause)

    def _launch(self, marker: Datamarker, reader: LogReader, cause: str) -> int:
        self.started += 1
        number = self.started
        self._paused_for, self._unreadable = "", NO_PROBLEM
        caravan = Caravan(number, marker, reader, self, self.limits.read_rate, cause)
        self.caravans[number] = caravan
        self._ahead_at[number] = self._clock.monotonic()
        self.governor.adjust(self._late(), self._clock.monotonic())
        self.most = max(self.most, len(self.caravans))
        task = asyncio.create_task(caravan.run(self._clock.monotonic), name=f"caravan-{number}")
        task.add_done_callback(lambda done: self._ended(caravan, done))
        self._tasks[number] = task
        self._note(number, CaravanEventKind.STARTED, f"starts at {marker.order}: {cause}")
        self._said.add("caravans start", str(number), f"at {marker.order}: {cause}")
        return number

    async def _send_back(self, flow: CaravanFlow, number: int, cause: str) -> None:
        caravan = self.caravans.get(number)
        if caravan is None:
            return
        riders = tuple(caravan.flows)
        for rider in riders:
            rider.go_back()
        self._close(number, f"goes to {flow.place} for {flow.name}: {cause}")
        started = await self._start_for(flow, cause)
        if started is not None:
            for rider in riders:
                if rider.state is CaravanFlowState.WAITING:
                    self._board(rider, started, cause)

    def _close(self, number: int, cause: str) -> None:
        caravan = self.caravans.pop(number, None)
        if caravan is not None:
            self._read_before += caravan.read_bytes
            for flow in tuple(caravan.flows):
                caravan.leave(flow, CaravanFlowState.WAITING, "its caravan was closed")
            caravan.stop()
            self._note(number, CaravanEventKind.ENDED, f"ends at {caravan.buffer.place}: {cause}")
            self._said.add("caravans end", str(number), f"at {caravan.buffer.place}: {cause}")
            self._changed.set()

    def _ended(self, caravan: Caravan, task: asyncio.Task[None]) -> None:
        """A caravan's task ended: by request, or because its reader failed."""
        caravan.close()
        self._tasks.pop(caravan.number, None)
        self._ahead_at.pop(caravan.number, None)
        # Fetched in every case: asyncio reports an exception that was not fetched as an error of this program.
        error = None if task.cancelled() else task.exception()
        if self.caravans.pop(caravan.number, None) is None:
            # The plan closed it. If the log broke at that moment, the next reader reports it.
            if error is not None and not isinstance(error, WormholeError):
                _log.error("caravan %d broke while it was closed: %s", caravan.number, error, exc_info=error)
            return
        self._read_before += caravan.read_bytes
        if task.cancelled():
            return
        if not any(other.buffer.place > caravan.buffer.place for other in self.caravans.values()):
            self._start_marker = caravan.marker  # the caravan was the lead
        self._changed.set()
        for flow in tuple(caravan.flows):
            problem = error.problem if isinstance(error, WormholeError) else Problem(str(error), code="internal-error")
            state = CaravanFlowState.HELD if isinstance(error, Fatal) else CaravanFlowState.WAITING
            caravan.leave(flow, state, problem.text)
            flow.explain(problem)
            if isinstance(error, Fatal):
                self._events.held(flow, error)
        if isinstance(error, Retryable):
            self.pause(f"caravan {caravan.number} lost its log and is opened again: {error}", error)
        elif error is not None:
            # An error of the log names the place and the next step. Only an unforeseen error needs its traceback.
            unforeseen = None if isinstance(error, Fatal) else error
            _log.error("caravan %d broke: %s", caravan.number, error, exc_info=unforeseen)
            self.pause("nothing is opened for a moment after that", error)
            if isinstance(error, Fatal):
                # Its datastore may have to read much log to reach this place again, and an operator has to act first.
                self._lead_rest_s = min(max(_REOPEN_S, 2 * self._lead_rest_s), _LONGEST_REST_S)
                self._lead_not_before = self._clock.monotonic() + self._lead_rest_s


def _without_rows(marker: Datamarker) -> Datamarker:
    """The datamarker without its backfill: the place in the log alone."""
    return replace(marker, backfill=b"") if marker.backfill else marker


def _read_bytes(limits: Limits) -> int:
    # Each buffer holds a few segments, however small the memory and however many the caravans.
    return max(_LEAST_READ, min(limits.read_bytes, limits.buffer_bytes // (4 * limits.caravans)))
