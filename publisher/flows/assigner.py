"""Moves each flow to the subscriber that :mod:`publisher.flows.assignment` chooses.

One task decides (:meth:`Assigner.run`). Every change wakes it. A flow moves in four steps: revoke it, wait for
``released`` (or until no handler can run any more), raise the epoch in the store, assign it. A crash between any two
steps is safe: nothing was stored in the new epoch, and acks of the old epoch are refused once the epoch was raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from caravan.fleet import Fleet
from publisher.flows.assignment import assign
from publisher.flows.part_reports import Row, warn
from publisher.push.attached import MOST_SUBSCRIBERS
from publisher.push.flow import PublisherFlow
from publisher.push.stream import Dialer, StreamEvents, SubscriberStream
from publisher.stores.markers.rules import written_anew
from wormhole.config import ApplicationConfig
from wormhole.coordination.port import SubscriberInfo
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.log_batch import BatchedLog
from wormhole.host.waiting import wait_at_most
from wormhole.metrics import catalogue as c
from wormhole.model.errors import Fatal, MarkerStoreError, WormholeError
from wormhole.model.problem import Problem, passing
from wormhole.ports.marker_store import FlowKey, MarkerStore
from wormhole.wire.bounds import shortened
from wormhole.wire.v1 import admin_pb2

__all__ = ["Assigner", "Permits", "Timeouts"]

_log = logging.getLogger(__name__)

_TICK_S = 0.25
_LIST_BYTES: Final = 512 << 10  # the largest list of subscribers in a status message
_TOGETHER = 100  # the most flows whose epochs are raised and recorded together

_Given = tuple[SubscriberStream, PublisherFlow]
_Step = Callable[[SubscriberStream, PublisherFlow], Awaitable[bool]]


class Permits(Protocol):
    """What the publisher may do with its flows now; see :class:`publisher.flows.ownership.Ownership`."""

    def ours(self) -> bool: ...

    def may_assign(self) -> bool: ...

    def may_send(self) -> bool: ...

    def sole(self) -> bool: ...


class Openings(Protocol):
    """The preparation of a new epoch; see :class:`publisher.flows.epoch_openings.EpochOpenings`."""

    async def settle(self) -> None: ...

    async def note(self, flows: Collection[PublisherFlow]) -> None: ...

    async def read(self, flows: Collection[PublisherFlow]) -> None: ...

    async def prepare(self, flow: PublisherFlow) -> None: ...


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds. ``grace``: how long a subscriber that vanished, or cannot be dialled, keeps its shards.
    ``handler``: how long a handler may run, and so how long the publisher waits for a release.
    """

    grace: float
    handler: float


@dataclass(slots=True)
class _Member:
    """One subscriber and its stream. ``gone_since``: when its registration ended; ``None``: it is registered."""

    stream: SubscriberStream
    task: asyncio.Task[None]
    gone_since: float | None = None


@dataclass(slots=True)
class _Application:
    """The subscribers of an application.

    ``infos``: the registered subscribers. ``refused``: the subscribers that were logged as not allowed.
    ``configured``: whether the application is configured now. ``crowded``: whether an excess of subscribers was
    logged. ``given``: the last input of the assignment; ``wanted``: its result.
    """

    config: ApplicationConfig
    infos: tuple[SubscriberInfo, ...] = ()
    members: dict[str, _Member] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    configured: bool = True
    crowded: bool = False
    given: object = None
    wanted: dict[str, str] = field(default_factory=dict)
    settled: bool = False

    def rests(self) -> bool:
        """Whether only an event can change a decision: no subscriber is away, releasing a flow, or waited for."""
        return self.settled and all(
            member.gone_since is None
            and member.stream.connected
            and not member.stream.left
            and not member.stream.leaving
            for member in self.members.values()
        )


class Assigner:
    """See the module. Methods are called on the event loop. Only :meth:`run` and :meth:`close` wait.

    The parts that answer streams and open epochs need the assigner, so :meth:`join` adds them later.
    """

    def __init__(
        self,
        store: MarkerStore,
        fleet: Fleet,
        dialer: Dialer,
        timeouts: Timeouts,
        permits: Permits,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.flows: dict[FlowKey, PublisherFlow] = {}
        self._store = store
        self._fleet = fleet
        self._dialer = dialer
        self._timeouts = timeouts
        self._permits = permits
        self._clock = clock
        self._events: StreamEvents
        self._openings: Openings
        self._applications: dict[str, _Application] = {}
        self._former: dict[FlowKey, PublisherFlow] = {}
        """Flows whose stream broke while their application was not configured. If the application is configured again,
        its flows are new objects."""
        self._changed = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._said = BatchedLog(lambda line: _log.info("%s", line))
        self._stopping = False
        dialer.attached.changed = self._attached_changed

    def join(self, events: StreamEvents, openings: Openings) -> None:
        """Add ``events``, which receives what streams report, and ``openings``, which prepares epochs. Called before
        any other method."""
        self._events, self._openings = events, openings

    # -- events

    def changed(self) -> None:
        """Wake the deciding task, because an input of the assignment changed."""
        self._changed.set()

    def application(self, config: ApplicationConfig) -> None:
        """Take over the application's new configuration."""
        known = self._applications.get(config.name)
        if known is None:
            self._applications[config.name] = _Application(config)
        else:
            known.config, known.configured = config, True
            if not self._stopping:
                self._present(known)  # other subscribers may be allowed now
        self.changed()

    def subscribers(self, application: str, infos: Iterable[SubscriberInfo]) -> None:
        """Take over the registered subscribers of an application, unless its subscribers dial the publisher."""
        app = self._applications.get(application)
        if app is not None:
            app.infos = tuple(infos)
            self._present(app)

    def forgotten(self, application: str) -> None:
        """Disconnect the subscribers of an application that is no longer configured."""
        app = self._applications[application]
        app.infos, app.configured = (), False
        self._present(app)

    def _attached_changed(self, application: str) -> None:
        app = self._applications.get(application)
        if app is not None and not self._stopping:
            self._present(app)

    def _present(self, app: _Application) -> None:
        """Compare the members with the subscribers that are present, and dial the new ones."""
        now, application = self._clock.monotonic(), app.config.name
        dial = app.configured and app.config.connect == "publisher"
        infos = self._dialer.attached.of(application) if dial else app.infos
        present = {info.id: info for info in infos}
        restarted: dict[str, SubscriberStream] = {}
        for name, member in tuple(app.members.items()):
            info = present.get(name)
            if info is None:
                if member.gone_since is None:
                    member.gone_since = now
            elif (info.address, info.started) != (member.stream.info.address, member.stream.info.started):
                restarted[name] = member.stream
                member.stream.hang_up("the subscriber was restarted")  # a new process, perhaps at another address
                self._end(app, name)
            else:
                member.gone_since = None
        for name, info in present.items():
            if app.config.allows(name) and (name in app.members or len(app.members) < MOST_SUBSCRIBERS):
                app.refused.discard(name)
                if name not in app.members:
                    self._dial(app, info)
                    self._dialled_anew(name, restarted.get(name), app.members[name].stream)
            elif app.config.allows(name):
                if not app.crowded:
                    app.crowded = True
                    _log.error(
                        (
                            "application %s has more than %d subscribers: %s and those after it receive nothing. Next: "
                            "run fewer of them"
                        ),
                        application,
                        MOST_SUBSCRIBERS,
                        shortened(name),
                    )
            elif name not in app.refused:
                app.refused.add(name)
                _log.error(
                    "subscriber %s is not in the allow list of %s and receives nothing. Next: add it to `allow`",
                    name,
                    application,
                )
        self.changed()

    def released(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        """Note that the subscriber released the flow.

        A release that was not requested means that the subscriber is shutting down. It gets no other flow.
        """
        stream.leaving |= not flow.releasing
        flow.release("released by its subscriber")
        self.changed()

    def ended(self, stream: SubscriberStream, lost: Iterable[PublisherFlow], cause: str) -> None:
        """Note that a stream broke. Its flows wait for its subscriber to return, or for another subscriber."""
        now = self._clock.monotonic()
        for flow in lost:
            holder, process = flow.holding.subscriber, flow.holding.process
            idle = flow.releasing and now - flow.holding.asked_at > self._timeouts.handler
            flow.release(f"its stream ended: {cause}")
            if stream.left:
                continue
            flow.holding.was_at(holder, None if idle else stream, process=process)
            if self.flows.get(flow.key) is not flow:
                self._former[flow.key] = flow
        self.changed()

    def halt(self, stream: SubscriberStream, flow: PublisherFlow, cause: str, update_id: str = "") -> None:
        """Halt the flow, because a handler failed until its retries were exhausted."""
        flow.halt(f"halted: {cause}", stream.info.id, stream.life, update_id)

    def go_on(self, flow: PublisherFlow) -> None:
        """Assign a flow again that was halted, paused, or held at its start."""
        if flow.held_at_start:
            self.recall(flow, "resumed")
        flow.resume()
        flow.explain(passing("goes on soon"))
        self.changed()

    def again(self, flow: PublisherFlow, cause: str) -> None:
        """Assign the flow in a new epoch, even if it is halted."""
        flow = self.present(flow)
        self.recall(flow, cause)
        flow.resume()
        self.changed()

    def anew(self, flow: PublisherFlow, cause: str) -> None:
        """Assign the flow in a new epoch, unless it is halted."""
        self.recall(self.present(flow), cause)
        self.changed()

    def present(self, flow: PublisherFlow) -> PublisherFlow:
        """The present object of the flow. The flows of an application that was configured again are new objects."""
        return self.flows.get(flow.key, flow)

    def owns_log(self) -> bool:
        """Whether this publisher owns the log, as far as it knows."""
        return self._permits.ours()

    def let_go(self) -> None:
        """Hang up on every subscriber, because another publisher owns the log or may own it."""
        for stream in self.streams():
            if stream.flows:
                stream.hang_up("this publisher does not own the log any more, as far as it knows")

    def live_subscribers(self, application: str) -> tuple[str, ...]:
        """Ids of the application's subscribers that are connected or may be running. A registered subscriber may be
        running unless it is known to have left.

        A file lists subscribers whether they run or not. A listed subscriber does not run if no process listens at its
        address.
        """
        app = self._applications.get(application)
        members = {} if app is None else app.members
        return tuple(sorted(name for name, member in members.items() if _may_run(member)))

    def streams(self) -> list[SubscriberStream]:
        """Every stream."""
        return [member.stream for app in self._applications.values() for member in app.members.values()]

    def stream_of(self, flow: PublisherFlow) -> SubscriberStream | None:
        """The stream of the subscriber that has the flow."""
        app = self._applications.get(flow.application)
        member = None if app is None or flow.holding.subscriber is None else app.members.get(flow.holding.subscriber)
        return None if member is None else member.stream

    def holds(self, flow: PublisherFlow) -> bool:
        """Whether the flow is open at its subscriber, or being opened."""
        stream = self.stream_of(flow)
        return stream is not None and flow in stream.flows

    # -- what operators see

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """See :class:`~publisher.flows.part_reports.Described`."""
        left, streams = _LIST_BYTES, self.streams()
        for count, stream in enumerate(streams):
            one = stream.described()
            left -= one.ByteSize()
            if left < 0:
                unlisted = f"{len(streams) - count} of {len(streams)} subscribers are not listed: they are too many"
                warn(message, Problem(unlisted, code="in-progress"))
                break
            message.subscribers.append(one)

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        yield c.PARKING_BYTES, self._dialer.room.used
        yield c.PARKING_MOST, self._dialer.room.most
        for stream in self.streams():
            yield from stream.samples()

    # -- for mass replays

    def receiver(self, flow: PublisherFlow) -> SubscriberStream | None:
        """The subscriber to which a replay of the flow may push; ``None`` while the replay has to wait, for the reason
        in the flow's ``cause``."""
        app = self._applications.get(flow.application)
        if app is None or self._stopping or not self._permits.may_assign():
            flow.explain(passing("nothing may be assigned now: coordination is out of contact, or the publisher stops"))
            return None
        for member in app.members.values():
            if any(other.key == flow.key for other in member.stream.flows):
                flow.explain(passing(f"{member.stream.info.id} finishes what it has begun"))
                return None
        stream = self._taker(app, flow, app.wanted.get(flow.shard), self._clock.monotonic())
        if stream is not None and not stream.info.address and not self._dialer.attached.offers(stream.info):
            text = f"{stream.info.id} dials this publisher, and offers no stream for a replay now"
            flow.explain(Problem(text, "if this lasts: its library is too old for it", "no-subscriber"))
            return None
        return stream

    def lend(self, flow: PublisherFlow, subscriber: str) -> None:
        """Note that a replay pushes, or pushed, to the subscriber. A handler of the flow may run there although no
        stream of this publisher has the flow."""
        app = self._applications.get(flow.application)
        member = None if app is None else app.members.get(subscriber)
        until = flow.holding.held_until if flow.holding.subscriber == subscriber else 0.0
        stream = None if member is None else member.stream
        process = "" if stream is None else stream.info.process
        flow.holding.was_at(subscriber, stream, until, process=process)

    def keeps_order(self, stream: SubscriberStream, flow: PublisherFlow) -> bool:
        """Whether the list of parked rows, whose later updates are parked too, fits a message to the subscriber."""
        if not flow.parking.count or not (lacking := stream.lacking(flow)):
            return True
        problem = Problem(
            f"{flow.parking.count} updates are parked, and their rows are {lacking} bytes too many for one message "
            f"to {stream.info.id}",
            f"raise `max_frame` there, now {stream.max_frame_bytes} bytes (and publisher.max_frame if it is not "
            f"more), or mend the handler and `wormholectl flows dead-letters retry {flow.name}`, or `discard` "
            "instead of `retry`",
            code="frame-too-small",
        )
        if flow.problem != problem:
            flow.explain(problem)
            _log.error("%s waits: %s", flow.name, problem, extra=flow.about)
        return False

    # -- the deciding task

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await wait_at_most(self._changed, _TICK_S)  # grace periods end by time
            changed = self._changed.is_set()
            self._changed.clear()
            await self._look(changed=changed)

    async def _look(self, *, changed: bool) -> None:
        """Decide about every application if something ``changed``, otherwise only about applications in which time
        changes something."""
        for app in tuple(self._applications.values()):  # deciding waits for the store: others may be added
            if changed or not app.rests():
                await self._decide(app)

    async def close(self, timeout_s: float) -> None:
        """Ask the subscribers to release every flow, wait for the releases for at most ``timeout_s`` seconds, then hang
        up."""
        self._stopping = True
        self._said.flush()
        for stream in self.streams():
            for flow in stream.flows:
                self.revoke(stream, flow, "the publisher stops")
        try:
            async with asyncio.timeout(timeout_s):
                while any(stream.flows for stream in self.streams()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            _log.warning("subscribers still work on some flows: these are repeated after the next start")
        finally:  # also when a second signal ends the wait early
            for app in self._applications.values():
                for name in tuple(app.members):
                    self._end(app, name)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # -- inside

    def _dial(self, app: _Application, info: SubscriberInfo) -> None:
        stream = SubscriberStream(info, self._dialer, self._fleet, self._events, self._permits.may_send)
        task = asyncio.create_task(stream.run(), name=f"stream-{info.application}-{info.id}")
        app.members[info.id] = _Member(stream, task)

    def _dialled_anew(self, name: str, former: SubscriberStream | None, stream: SubscriberStream) -> None:
        """Note where handlers of flows of the ``former`` stream may still run, after the subscriber ``name`` restarted.

        The former stream may have reached the new process before that process was registered. If the dialling side has
        changed, the former process may still run.
        """
        for flow in self.flows.values():
            if former is None or flow.holding.lost_from is not former:
                continue
            if bool(former.info.address) == bool(stream.info.address):
                flow.holding.was_at(name, stream, process=stream.info.process)
            else:
                until = self._clock.monotonic() + self._timeouts.grace + self._timeouts.handler
                flow.holding.was_at(name, None, until, process=former.info.process)

    def _end(self, app: _Application, name: str) -> None:
        """Hang up for good. :meth:`close` waits for the stream's task to end."""
        task = app.members.pop(name).task
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _takes_part(self, app: _Application, name: str, now: float) -> bool:
        """Whether the subscriber is allowed, and is present or vanished so recently that it may return."""
        member = app.members[name]
        gone = member.gone_since is not None and now - member.gone_since > self._takeover_s(member.stream)
        there = not gone and not member.stream.left and not member.stream.leaving
        return there and app.config.allows(name)

    def _takeover_s(self, stream: SubscriberStream) -> float:
        """How long a subscriber may be away before its shards move, in seconds.

        A subscriber that does not answer may still run a handler, so the handler's timeout is added. No handler runs at
        an address where no process listens. A connected subscriber is asked for a release first.
        """
        silent = not stream.connected and not stream.vacant
        return self._timeouts.grace + (self._timeouts.handler if silent else 0.0)

    def _may_work(self, stream: SubscriberStream, now: float) -> bool:
        """Whether the subscriber may still run a handler of a flow that was lost when its connection broke, even if it
        is connected again.
        """
        return not stream.vacant and now - stream.since <= self._timeouts.grace + self._timeouts.handler

    def _is_waited_for(self, stream: SubscriberStream, now: float) -> bool:
        return self._may_work(stream, now) and any(flow.holding.lost_from is stream for flow in self.flows.values())

    def _live(self, app: _Application, now: float) -> dict[str, float]:
        """Subscribers that take part: id to weight.

        A subscriber that could not be dialled for long does not take part if another subscriber does.
        """
        live: dict[str, float] = {}
        unreachable: dict[str, float] = {}
        for name, member in app.members.items():
            if self._takes_part(app, name, now):
                stream = member.stream
                lost = not stream.connected and now - stream.since > self._takeover_s(stream)
                (unreachable if lost else live)[name] = stream.info.weight
        return live or unreachable

    async def _decide(self, app: _Application) -> None:
        now = self._clock.monotonic()
        app.settled = False
        for name, member in tuple(app.members.items()):
            # A subscriber that left and is still registered may return.
            listed = member.gone_since is None and app.config.allows(name)
            idle = not member.stream.flows and not self._is_waited_for(member.stream, now)
            if not listed and idle and not self._takes_part(app, name, now):
                self._end(app, name)
        if self._stopping or not self._permits.may_assign():
            return
        self._hang_up_on_the_late(app, now)
        flows = [flow for flow in self.flows.values() if flow.application == app.config.name]
        live = self._live(app, now)
        given = ([flow.shard for flow in flows], live, app.config.pin)
        if given != app.given:
            app.given, app.wanted = given, assign(given[0], live, app.config.pin)
        placed = {flow.key: (flow, member) for member in app.members.values() for flow in member.stream.flows}
        ready = []
        app.settled = len(placed) == len(flows) and not any(flow.releasing for flow, _ in placed.values())
        for flow in flows:
            target = app.wanted.get(flow.shard)
            if flow.key in placed:
                mine, holder = placed[flow.key]
                app.settled &= mine is flow
                if mine is flow and not flow.releasing and holder is not app.members.get(target or ""):
                    self.revoke(holder.stream, flow, f"moves to {target}" if target else "no subscriber is there")
            elif flow.control.replay is None and (stream := self._taker(app, flow, target, now)) is not None:
                ready.append((stream, flow))
        await self._give_all(ready)

    def _hang_up_on_the_late(self, app: _Application, now: float) -> None:
        """Hang up on subscribers that were asked for a release so long ago that no handler can run any more.

        This includes flows of a former configuration.
        """
        for member in app.members.values():
            for flow in member.stream.flows:
                if flow.releasing and now - flow.holding.asked_at > self._timeouts.handler + self._timeouts.grace:
                    member.stream.hang_up(f"it did not let go of {flow.name} in time")
                    break

    def _taker(self, app: _Application, flow: PublisherFlow, target: str | None, now: float) -> SubscriberStream | None:
        """The stream to which a flow without a subscriber is assigned; ``None`` while it has to wait."""
        if (former := self._former.pop(flow.key, None)) is not None:
            last = former.holding
            flow.holding.was_at(last.subscriber, last.lost_from, process=last.process)
        holding = flow.holding
        if flow.control.paused:
            flow.explain(Problem(f"paused by {flow.control.paused}", code="flow-paused"))
            return None
        if flow.control.missing:
            flow.explain(flow.control.missing)
            return None
        if holding.conflict is not None and now < holding.conflict.until:
            return None
        if now < holding.spacing.until:
            if not flow.cause:
                flow.explain(passing("was given away again and again, and nothing of it was acknowledged"))
            return None
        member = None if target is None else app.members.get(target)
        holder = None if holding.subscriber is None else app.members.get(holding.subscriber)
        if holding.held_until:
            # An earlier publisher assigned the flow, and no release was reported since. A new process of the same
            # subscriber id does not know the handlers of the former process.
            if holder is not None and holder.stream.info.process != holding.process:
                holder = None
            if now >= holding.held_until or (holder is not None and (holder.stream.vacant or holder.stream.left)):
                holding.was_at(None, None)
                holder = None
            elif holder is not None and holder.stream.connected and self._takes_part(app, holder.stream.info.id, now):
                return holder.stream  # the flow is assigned there, and moves by a release
            else:
                at = f"{holding.subscriber}, where the last publisher had it"
                flow.explain(passing(f"a handler may still run at {at}"))
                return None
        if holder is not None and holder is not member and holding.lost_from is holder.stream:
            # The holder's connection broke, and its handler of the flow may still run.
            if holder.stream.connected and self._takes_part(app, holder.stream.info.id, now):
                return holder.stream  # and is asked for a release: only it knows when its handler has ended
            if self._may_work(holder.stream, now):
                flow.explain(passing(f"a handler may still run at {holding.subscriber}, whose connection broke"))
                return None
        if member is not None and holding.halted_life is member.stream.life:
            return None  # the flow is halted there until the subscriber restarts
        if member is None or not member.stream.connected:
            text = "no subscriber is there" if target is None else f"waiting for {target}"
            flow.explain(Problem(text, code="no-subscriber"))
            return None
        return member.stream

    async def _give_all(self, ready: list[tuple[SubscriberStream, PublisherFlow]]) -> None:
        """Assign flows. After a failure of the store the next decision tries again. A problem of one flow's record
        stops that flow only.
        """
        waiting = deque(ready)
        try:
            if waiting:
                await self._openings.settle()
            while waiting:
                together = list(islice(waiting, _TOGETHER))
                await self._give_together(together)
                for _ in together:
                    waiting.popleft()
        except WormholeError as error:
            if any(flow.cause != error.text for _, flow in waiting):
                _log.warning("%d flows cannot be given to their subscribers: %s", len(waiting), error)
            for _, flow in waiting:
                flow.explain(error.problem)

    async def _give_together(self, given: Sequence[_Given]) -> None:
        raised = await self._raise_epochs(given)
        flows = [flow for _, flow in raised]
        try:
            if raised:
                for stream, flow in raised:
                    flow.holding.intend(stream.info.id, stream.info.process)
                await self._openings.note(flows)  # subscribers refuse epochs that are not recorded
                await self._openings.read(flows)  # after the epochs were raised: no former epoch can park an update now
            await self._each(raised, lambda stream, flow: self._open(stream, flow, flow.holding.epoch))
        finally:
            for flow in flows:
                flow.holding.intend(None)

    def _cannot_give(self, flow: PublisherFlow, error: WormholeError) -> None:
        if flow.problem != error.problem:
            flow.explain(error.problem)
            _log.error("%s is held: %s", flow.name, error, extra=flow.about)

    async def _each(self, given: Sequence[_Given], step: _Step) -> list[_Given]:
        """The flows for which ``step`` returns true. A step returns false if the flow's own record has a problem."""

        async def one(stream: SubscriberStream, flow: PublisherFlow) -> bool:
            try:
                return await step(stream, flow)
            except Fatal as error:
                if error.flow is None:
                    raise
                self._cannot_give(flow, error)
                return False

        answers = await asyncio.gather(*(one(*each) for each in given), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [each for each, answer in zip(given, answers, strict=True) if answer]

    async def _raise_epochs(self, given: Sequence[_Given]) -> list[_Given]:
        """Raise the flows' epochs. Returns the flows that may be opened in them."""
        free = [
            (stream, flow) for stream, flow in given if self._may_give(stream, flow) and self.keeps_order(stream, flow)
        ]
        above = {flow.key: flow.holding.epoch_to_exceed for _, flow in free}
        epochs = await asyncio.to_thread(self._store.raise_epochs, above) if free else {}
        return await self._each(free, lambda stream, flow: self._raised(stream, flow, epochs.get(flow.key)))

    async def _raised(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int | None) -> bool:
        """Take over the raised ``epoch`` of the flow. Returns whether the flow may be opened.

        ``None``: the flow has no readable record. Then a request for this flow alone raises the reason.
        """
        try:
            if epoch is None:
                epoch = await asyncio.to_thread(self._store.raise_epoch, flow.key, flow.holding.epoch_to_exceed)
        except KeyError:
            flow.loss.found_unreadable(True)
            missing = "its datamarker is missing in the marker store"
            hint = written_anew(flow.key)
            raise MarkerStoreError(missing, flow=flow.name, hint=hint, code="marker-missing") from None
        except MarkerStoreError as error:
            flow.loss.found_unreadable(error.flow is not None)
            raise
        if not self._may_give(stream, flow) or epoch <= flow.holding.epoch:
            return False  # the flow changed meanwhile (its marker was set); its epoch is raised once more
        flow.holding.raised(epoch)
        return True

    async def _open(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int) -> bool:
        """Assign the flow in ``epoch``, which is its newest. Returns whether it was assigned."""
        if not self._may_give(stream, flow) or flow.holding.epoch != epoch:
            return False
        await self._openings.prepare(flow)
        flow.parking.received_by(stream.identity)
        if not self._may_give(stream, flow) or flow.holding.epoch != epoch or not self.keeps_order(stream, flow):
            return False
        stream.assign(flow, yields=not self._permits.sole() or flow.holding.contested)
        flow.assign(stream.info.id, self._clock.monotonic(), stream.info.process)
        place = f"in epoch {epoch} from {flow.delivery.marker}"
        self._said.add("flows given away", f"{flow.name} to {stream.info.id}", place)
        return True

    def _may_give(self, stream: SubscriberStream, flow: PublisherFlow) -> bool:
        still = stream.connected and self.flows.get(flow.key) is flow
        control = flow.control
        free = not flow.delivery.moving and not control.paused and not control.missing and control.replay is None
        return still and free and not self._stopping and self._permits.may_assign()

    def recall(self, flow: PublisherFlow, cause: str) -> None:
        """Ask the subscriber that has the flow to release it. Without such a subscriber nothing happens."""
        stream = self.stream_of(flow)
        if stream is not None:
            self.revoke(stream, flow, cause)

    def revoke(self, stream: SubscriberStream, flow: PublisherFlow, cause: str) -> None:
        """Ask the subscriber to release the flow, if it has it. :meth:`released` follows, or the end of its stream."""
        if flow not in stream.flows:
            return  # a later subscriber of the flow must not be marked as releasing it
        flow.recall(cause, self._clock.monotonic())
        stream.revoke(flow, cause)
        self.changed()  # from now on each tick checks whether the release is late


def _may_run(member: _Member) -> bool:
    stream = member.stream
    return stream.connected or (member.gone_since is None and not stream.left and not stream.vacant)
