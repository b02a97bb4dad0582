"""Takes the place of :class:`publisher.push.stream.SubscriberStream`: the same rules, over the virtual network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

from publisher.push.attached import AttachedLine, AttachedSubscribers
from publisher.push.flow import PublisherFlow
from publisher.push.stream import StreamEvents
from tests.simulation.attaching import AttachCall
from tests.simulation.checks import Checks
from tests.simulation.network import End, Network
from tests.simulation.world import Process
from wormhole.coordination.port import SubscriberInfo
from wormhole.host.clock import Clock
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.push.redial import Redial
from wormhole.push.session import FailedReason, FlowFailed, FlowPhase, PushFlow

__all__ = ["Around", "SimulatedStream", "VirtualLog", "place"]

_PUSH_S: Final = 0.07
_WINDOW: Final = 6
"""Updates in flight."""
_BETWEEN: Final = 3
"""Updates between two datamarkers."""


def place(number: int) -> Datamarker:
    """The datamarker after the update of that number; 0: before the first one."""
    order = LogPosition(1, 0, number)
    anchor = Anchor(str(number), number, LogPosition(1, 0, number - 1)) if number else None
    return Datamarker(order, str(number) if number else "", order, anchor)


class VirtualLog(Protocol):
    """The log that is tailed."""

    def end(self) -> int:
        """Number of the last update of each shard."""


@dataclass(frozen=True, slots=True)
class Around:
    """What streams of one publisher share; it goes where the product has a ``Dialer``. ``hello``: name and lock.
    ``attached``: those that dialled; each publisher of the process begins with none.
    """

    network: Network
    process: Process
    clock: Clock
    checks: Checks
    log: VirtualLog
    hello: tuple[str, str]
    attached: AttachedSubscribers = field(default_factory=lambda: AttachedSubscribers(0.0))


class _Sending:
    """A flow that is open on a stream. ``next``: the update to be sent next; ``acked``: the last one acknowledged."""

    __slots__ = ("acked", "flow", "next", "offered", "push", "since")

    def __init__(self, push: PushFlow, flow: PublisherFlow) -> None:
        self.push, self.flow = push, flow
        self.begin(flow.delivery.marker.order.offset)

    def begin(self, number: int) -> None:
        """After the update of that number."""
        self.acked = self.offered = number
        self.next = number + 1
        self.since = 0


class _Travel:
    """Takes the place of a caravan's flow: only its place is asked for."""

    def __init__(self, at: LogPosition) -> None:
        self.place = at


class SimulatedStream:
    """See the attributes of the real one."""

    def __init__(
        self, info: SubscriberInfo, dialer: Any, fleet: object, events: StreamEvents, may_send: Callable[[], bool]
    ) -> None:
        self.info = info
        self.identity = info.id
        self.connected = self.left = self.leaving = self.vacant = False
        self.life = object()
        self.problem = Problem("dialling")
        self._around: Around = dialer
        self._events = events
        self._may_send = may_send
        self._sending: dict[int, _Sending] = {}
        self._numbers = 0
        self._end: End | None = None
        self._acks = 0
        self._welcomed_at = 0.0
        self._over: asyncio.Future[Problem] | None = None
        self._timer: Any = None
        self._loop = asyncio.get_running_loop()
        self.since = self._around.clock.monotonic()

    # -- what the publisher does

    @property
    def flows(self) -> list[PublisherFlow]:
        return [sending.flow for sending in self._sending.values()]

    def _of(self, flow: PublisherFlow) -> _Sending | None:
        return next((sending for sending in self._sending.values() if sending.flow is flow), None)

    def assign(self, flow: PublisherFlow, *, yields: bool) -> None:
        assert self._end is not None, "assigned without a connection"
        self._numbers += 1
        push = PushFlow(self._numbers, flow.application, flow.shard, flow.holding.epoch, None)
        self._sending[self._numbers] = _Sending(push, flow)
        self._end.send(
            "assign", self._numbers, push.epoch, flow.shard, flow.delivery.marker, yields, self._around.process,
            flow.delivery.rewound, flow.delivery.move, flow.delivery.was_used, flow.delivery.last_ack,
        )  # fmt: skip

    def revoke(self, flow: PublisherFlow, cause: str) -> None:
        sending = self._of(flow)
        if sending is None or sending.push.phase is FlowPhase.REVOKED:
            return
        assert self._end is not None
        if sending.push.phase is FlowPhase.OPEN:
            self._offer(sending)
        sending.push.phase = FlowPhase.REVOKED
        self._end.send("revoke", sending.push.number)

    def begin(self, flow: PublisherFlow, backfill: object) -> None:
        flow.begin(cast("Any", _Travel(flow.delivery.marker.order)))
        sending = self._of(flow)
        if sending is not None:
            sending.begin(flow.delivery.marker.order.offset)
        self.push_soon()

    def lacking(self, flow: PublisherFlow) -> int:
        return 0

    def hang_up(self, cause: str) -> None:
        end, self._end = self._end, None
        if end is not None:
            end.close()
            self._lose(Problem(cause))
            self._finish(Problem(cause))

    # -- updates

    def push_soon(self) -> None:
        """There may be updates to send."""
        if self._timer is None:
            self._timer = self._loop.call_later(_PUSH_S, self._push)

    def _push(self) -> None:
        self._timer = None
        sendings = [
            one
            for one in self._sending.values()
            if one.push.phase is FlowPhase.OPEN and one.flow.delivery.caravan_flow is not None
        ]
        if self._end is None or not sendings:
            return
        if self._may_send():
            last = self._around.log.end()
            for sending in sendings:
                self._push_some(sending, last)
        self.push_soon()

    def _push_some(self, sending: _Sending, last: int) -> None:
        assert self._end is not None
        push, around = sending.push, self._around
        while sending.next <= last and sending.next - sending.acked <= _WINDOW:
            around.checks.sent(around.process, push.shard, push.epoch)
            self._end.send("update", push.number, push.epoch, sending.next)
            sending.next += 1
            sending.since += 1
            if sending.since >= _BETWEEN:
                self._offer(sending)
        if sending.since and sending.next > last:
            self._offer(sending)

    def _offer(self, sending: _Sending) -> None:
        """A datamarker after what was sent."""
        assert self._end is not None
        sending.since, sending.offered = 0, sending.next - 1
        sending.flow.delivery.offers(place(sending.offered))
        self._end.send("marker", sending.push.number, sending.push.epoch, place(sending.offered))

    # -- one connection after the other

    async def run(self) -> None:
        redial, clock = Redial(), self._around.clock
        try:
            while True:
                acks = self._acks
                problem = await self._connect()
                lasted = clock.monotonic() - self._welcomed_at if self._welcomed_at else 0.0
                self._welcomed_at = 0.0
                self._lose(problem)
                wait = redial.wait_s(lasted_s=lasted, acked=self._acks > acks, refused=False, left=self.left)
                await clock.sleep(wait * random.uniform(0.5, 1.0))
        finally:
            end, self._end = self._end, None
            if end is not None:
                end.close()
            self._lose(self.problem or Problem("the stream was closed"))

    async def _connect(self) -> Problem:
        around = self._around
        if not self.info.address:
            return await self._attached(await around.attached.line(self.info))
        self._over = self._loop.create_future()
        around.network.dial(around.process, self.info.address, around.hello, self._dialled, self)
        return await self._over

    async def _attached(self, line: AttachedLine) -> Problem:
        """A connection that the subscriber dialled."""
        self._over, call = self._loop.create_future(), cast("AttachCall", aiter(line))
        try:
            if not call.end.open:
                return Problem("it was lost already")
            self._end = call.end
            call.end.send("hello", 0, *self._around.hello)
            call.taken_by(self)
            return await self._over
        finally:
            await line.close()

    def _dialled(self, end: End | None, vacant: bool) -> None:
        self._loop.call_soon(self._reached, end, vacant)

    def _reached(self, end: End | None, vacant: bool) -> None:
        if self._over is None or self._over.done():
            if end is not None:
                end.close()
            return
        if end is None or not end.open:
            self.vacant = vacant
            self._finish(Problem("it cannot be reached"))
        else:
            self._end = end

    def _finish(self, problem: Problem) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(problem)

    def _lose(self, problem: Problem) -> None:
        if self.connected:
            self.since = self._around.clock.monotonic()
        self.connected, self.problem = False, problem
        lost, self._sending = self.flows, {}
        self._events.ended(cast("Any", self), lost, problem.text)

    # -- what arrives

    def ended(self, end: End, cause: str) -> None:
        self._loop.call_soon(self._broken, end, cause)

    def _broken(self, end: End, cause: str) -> None:
        if self._end is end:
            self._end = None
            self._lose(Problem(cause))
            self._finish(Problem(cause))
        elif self._end is None:
            self._finish(Problem(cause))

    def received(self, end: End, message: tuple[Any, ...]) -> None:
        self._loop.call_soon(self._received, end, message)

    def _received(self, end: End, message: tuple[Any, ...]) -> None:
        kind, number, *rest = message
        me = cast("Any", self)
        if kind == "welcome" and self._end is None and self._over is not None and not self._over.done():
            self._end = end  # before the dialling itself was answered
        if self._end is not end:
            return
        if kind == "welcome":
            self.connected = True
            self.left = self.leaving = self.vacant = False
            self.problem, self._welcomed_at = NO_PROBLEM, self._around.clock.monotonic()
            self._events.ready(me)
            return
        if kind == "bye":
            self.left = True
            self._around.attached.left(self.info)
            return
        sending = self._sending.get(number)
        if sending is None:
            return
        flow, push = sending.flow, sending.push
        if kind == "accepted":
            if push.phase is FlowPhase.ASSIGNED:
                push.phase = FlowPhase.OPEN
                self._events.opened(me, flow, *rest)
        elif kind == "acked":
            self._acks += 1
            sending.acked = rest[0].order.offset
            self._events.acked(flow, push.epoch, replace(rest[0]))
        elif kind == "released":
            del self._sending[number]
            self._events.released(me, flow)
        elif kind == "failed":
            why, text, held = rest
            del self._sending[number]
            reason = FailedReason.STALE_EPOCH if why == "stale" else FailedReason.RESEND
            self._events.failed(me, flow, FlowFailed(push, reason, "", text, held.epoch, held.by, held.contested))
