"""The stream to one subscriber: it delivers the subscriber's flows, over successive connections.

The connection (:mod:`wormhole.push.connection`) carries frames, and :mod:`publisher.push.outgoing` chooses the next
frames. The assigner decides which subscriber receives which flow. After a crash, delivery continues at the stored
datamarkers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from caravan.backfill.progress import FlowBackfill
from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, CaravanFlowState
from publisher.push.attached import AttachedSubscribers
from publisher.push.flow import PublisherFlow
from publisher.push.outgoing import Outgoing
from wormhole.coordination.port import SubscriberInfo
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.metrics import Metric
from wormhole.metrics import catalogue as c
from wormhole.model.errors import ProtocolError, StreamBroken, WormholeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Schema
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import Parcel
from wormhole.push.allowance import WORK_PER_S, Reading
from wormhole.push.connection import Connection, Refusal, Traffic
from wormhole.push.dial import DialledLine, Peer, is_refused
from wormhole.push.line import Line
from wormhole.push.parking import MOST_BYTES
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.redial import Redial
from wormhole.push.room import Room
from wormhole.push.session import (
    Acked,
    Event,
    FlowFailed,
    FlowPhase,
    LetterArrived,
    LossDecided,
    Opened,
    Parted,
    Progressed,
    PushFlow,
    PushSession,
    Released,
    Reported,
    Verified,
    Welcomed,
)
from wormhole.wire.bounds import shortened
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2, push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Dialer", "StreamEvents", "SubscriberStream"]

_log = logging.getLogger(__name__)

_MOST_ANSWERS = 4096  # the most unwritten answers to parked updates
_LONGEST_CAUSE = 2000


@dataclass(frozen=True, slots=True)
class Dialer:
    """The objects that all streams share. ``trust``: ``None`` without TLS. ``room``: the memory for updates that
    subscribers send for parking; ``letters``: the threads that decode these updates; ``reading``: the allowance of work
    for messages from subscribers; ``attached``: the subscribers that dial this publisher.
    """

    hello: push_pb2.Hello
    trust: Trust | None
    attached: AttachedSubscribers
    room: Room = field(default_factory=lambda: Room(MOST_BYTES))
    reading: Reading = field(default_factory=Reading)
    letters: PeerThreads = field(default_factory=lambda: PeerThreads("letters"))
    clock: Clock = SYSTEM_CLOCK


class StreamEvents(Protocol):
    """The events that a stream reports to its owner. The methods are called on the event loop and must not block."""

    def ready(self, stream: SubscriberStream) -> None:
        """The subscriber answered, so flows may be assigned to it."""

    def opened(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker | None, move: int) -> None:
        """The subscriber accepted the flow. ``have``: the datamarker up to which its application has everything.
        ``move``: the number of the flow's last move when the application stored ``have``; 0: unknown."""

    def parking(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int, wanted: LetterArrived) -> None:
        """The subscriber sends an update for parking in ``epoch``. :meth:`SubscriberStream.parked` answers."""

    def acked(self, flow: PublisherFlow, epoch: int, marker: Datamarker) -> None:
        """Everything up to ``marker`` was acknowledged in ``epoch``."""

    def released(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        """The subscriber released the flow."""

    def undone(self, stream: SubscriberStream, flow: PublisherFlow, transaction: str) -> None:
        """The transaction with the id ``transaction`` was rolled back after a part of it was sent. The flow has to be
        assigned anew."""

    def failed(self, stream: SubscriberStream, flow: PublisherFlow, event: FlowFailed) -> None:
        """The subscriber cannot continue the flow."""

    def decided(self, flow: PublisherFlow, proceed: bool) -> None:
        """The application answered whether the flow continues after missing log."""

    def verified(self, flow: PublisherFlow, epoch: int, event: Verified) -> None:
        """A comparison of rows in ``epoch`` has findings."""

    def ended(self, stream: SubscriberStream, lost: list[PublisherFlow], cause: str) -> None:
        """The stream broke. ``lost``: the flows that it had."""


class SubscriberStream:
    """See the module. Implements :class:`~wormhole.push.connection.Owner`.

    For operators: ``place`` is the subscriber's address, ``problem`` why it is not connected. ``left``: whether the
    subscriber sent Goodbye and has not returned. ``leaving``: whether it released a flow without being asked, so that
    it is shutting down. ``vacant``: whether no process listens at its address, so that no handler can run. ``life``: an
    object that is replaced when the subscriber's process may be another one.
    """

    def __init__(
        self, info: SubscriberInfo, dialer: Dialer, fleet: Fleet, events: StreamEvents, may_send: Callable[[], bool]
    ) -> None:
        self.info = info
        self.place = info.address or "(dials)"
        self.connected = False
        self.left = False
        self.leaving = False
        self.vacant = False
        self.life = object()
        self.problem = Problem("dialling", code="in-progress")
        self.traffic = Traffic()
        self._dialer = dialer
        self._clock = dialer.clock
        self.since = self._clock.monotonic()
        self._fleet = fleet
        self._events = events
        self._may_send = may_send
        self._room = dialer.room.share(lambda error: self.refuse(error, Refusal.MEMORY))
        # All connections to the subscriber share one allowance, so a new connection does not increase it.
        self._allowance = dialer.reading.allowance(self._clock.monotonic())
        self._prepare()

    def _prepare(self) -> None:
        """Make the state for the next connection."""
        hello = push_pb2.Hello()
        hello.CopyFrom(self._dialer.hello)
        hello.application, hello.subscriber = self.info.application, self.info.id
        self._session = PushSession(hello, self._room)
        dialer = self._dialer
        self._connection = Connection(self._session, self, self._allowance, self.traffic, dialer.letters, self._clock)
        self._outgoing = Outgoing(
            self._session,
            self._fleet,
            self.traffic,
            self._may_send,
            lambda flow, transaction: self._events.undone(self, flow, transaction),
            self.wake,
        )

    # -- what the publisher does

    @property
    def flows(self) -> list[PublisherFlow]:
        """Flows that are open, or being opened, on this stream."""
        return [flow for _, flow in self._outgoing.flows.values()]

    @property
    def may_send(self) -> bool:
        """Whether the publisher may send updates just now."""
        return self._may_send()

    @property
    def takes_ranges(self) -> bool:
        """Whether the application removes rows that it holds and that a sent range of keys does not contain."""
        return self._session.takes_ranges

    @property
    def verifies(self) -> bool:
        """Whether the application can compare sent rows with its own rows."""
        return self._session.verifies

    @property
    def identity(self) -> str:
        """The proven identity of the subscriber; see :class:`~wormhole.push.connection.Connection`."""
        return self._connection.identity

    def begins(self, flow: PublisherFlow) -> tuple[int, VerifyMode]:
        """The backfill generation with which the flow was assigned, and whether its rows are verified."""
        push = self._push_flow(flow)
        return (0, VerifyMode.NONE) if push is None else (push.generation, push.verifying.mode)

    def takes_rows(self, flow: PublisherFlow) -> bool:
        """Whether the flow has credit for existing rows in addition to updates."""
        push = self._push_flow(flow)
        return push is not None and push.phase is FlowPhase.OPEN and push.window.half_free

    @property
    def max_frame_bytes(self) -> int:
        """The largest message that both sides accept, in bytes."""
        return self._session.max_frame_bytes

    def wake(self) -> None:
        """Check soon whether there is something to write."""
        self._connection.wake()

    def wake_for(self, flow: PublisherFlow) -> None:
        """Check soon whether the flow has something to write."""
        self._outgoing.wake(flow)

    def assign(self, flow: PublisherFlow, *, yields: bool) -> None:
        """Assign the flow, whose epoch was just raised, to the subscriber. ``yields``: whether the assignment yields to
        another publisher that is connected to the subscriber.
        """
        backfill = flow.control.backfill
        push, frame = self._session.assign(
            flow.application,
            flow.shard,
            flow.holding.epoch,
            flow.delivery.marker,
            flow.delivery.sent_until,
            self._clock.monotonic(),
            skip=flow.control.skip,
            park=flow.parks,
            parked=flow.parked_rows.items(),
            rolled_back=flow.delivery.rolled_back,
            rewound=flow.delivery.rewound,
            move=flow.delivery.move,
            acknowledged=flow.delivery.was_used,
            last_ack=flow.delivery.last_ack,
            yields=yields,
            generation=0 if backfill is None else backfill.generation,
            verify=VerifyMode.NONE if backfill is None or backfill.ended else backfill.verify,
        )
        push.marker_every_s = flow.marker_interval
        self._outgoing.open(push, flow)
        self._outgoing.add(frame)

    def revoke(self, flow: PublisherFlow, cause: str) -> None:
        """Ask the subscriber to release the flow; ``events.released`` follows."""
        push = self._push_flow(flow)
        if push is None or push.phase is FlowPhase.REVOKED:
            return
        if flow.delivery.caravan_flow is not None:
            self._offer_last(push, flow, flow.delivery.caravan_flow)
            self._fleet.remove(flow.delivery.caravan_flow)
        self._outgoing.add(self._session.revoke(push, cause))

    def _offer_last(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow) -> None:
        """Offer a datamarker immediately before the revocation. A subscriber without unfinished work acknowledges it,
        so that no update is repeated.
        """
        # When the publisher stops, caravans end before streams. Their flows are then in the state WAITING.
        if push.phase is FlowPhase.OPEN and caravan_flow.state in (
            CaravanFlowState.TRAVELLING,
            CaravanFlowState.WAITING,
        ):
            frame = self._outgoing.datamarker(push, flow, caravan_flow, self._clock.monotonic())
            if frame is not None:
                self._outgoing.add(frame)

    def begin(self, flow: PublisherFlow, backfill: FlowBackfill | None) -> None:
        """Begin to deliver the flow's updates, and the rows of ``backfill``, once the subscriber accepted the flow."""
        caravan_flow = CaravanFlow(
            flow.application,
            flow.shard,
            flow.filter,
            flow.delivery.marker,
            flow.holding.epoch,
            lambda: self.wake_for(flow),
            backfill,
            lambda: self.takes_rows(flow),
        )
        flow.begin(caravan_flow)
        self._fleet.add(caravan_flow)

    def lacking(self, flow: PublisherFlow) -> int:
        """Bytes by which the flow's assignment would exceed the largest message because of its skipped and parked
        updates; 0 if it fits.
        """
        return self._session.lacking(flow.control.skip, flow.parked_rows.items())

    def parked(self, flow: PublisherFlow, epoch: int, update_id: str, refused: str) -> None:
        """Answer ``events.parking``. ``refused``: why the update is not parked, or empty. No effect after the epoch."""
        push = self._push_flow(flow)
        if push is None or push.epoch != epoch:
            return
        self._outgoing.answers += 1
        self._outgoing.add(self._session.parked(push, update_id, refused))
        if self._outgoing.answers > _MOST_ANSWERS:
            unread = f"park: {self._outgoing.answers} answers wait to be written, and the subscriber does not read"
            self.refuse(ProtocolError(unread, hint="the subscriber has to read its stream"), Refusal.UNREAD)

    def send_letter(self, flow: PublisherFlow, parcel: Parcel) -> asyncio.Future[bool] | None:
        """Send a parked update again, before any update of the log.

        Returns the future of :meth:`FlowParking.expect_answer`; ``None`` if the flow is not open on this stream.
        """
        push = self._push_flow(flow)
        if push is None or push.phase is not FlowPhase.OPEN:
            return None
        schema = Schema.from_canonical(parcel.schema)
        for frame in self._session.letter(push, schema, parcel.body, flow.delivery.marker, self._clock.monotonic()):
            self._outgoing.add(frame)
        flow.delivery.sent_counts.letter(parcel.body)
        flow.delivery.sent_counts.offered(flow.delivery.marker)
        return flow.parking.expect_answer()

    def charge(self, seconds: float) -> None:
        """Charge the subscriber for processor time that other parts used for its messages."""
        self._connection.charge(seconds)

    def tell_loss(self, flow: PublisherFlow, gap: LogGap, resume: Datamarker) -> None:
        """Ask the application whether the flow continues after missing log; ``events.decided`` follows."""
        push = self._push_flow(flow)
        if push is not None and push.phase is FlowPhase.OPEN:
            self._outgoing.add(self._session.data_loss(push, gap, resume))

    def credit(self, flow: PublisherFlow) -> tuple[int, int]:
        """The credit and the bytes in flight of the flow."""
        push = self._push_flow(flow)
        return (0, 0) if push is None else (push.window.credit, push.window.in_flight)

    def _push_flow(self, flow: PublisherFlow) -> PushFlow | None:
        return self._outgoing.push_of(flow)

    def hang_up(self, cause: str) -> None:
        """End the connection without waiting for the subscriber.

        The stream loses its flows immediately. Then the subscriber is dialled again.
        """
        self._connection.close(StreamBroken(cause))

    def refuse(self, error: ProtocolError, why: Refusal = Refusal.PROTOCOL) -> None:
        """End the connection because of a fault of the subscriber. The subscriber receives the reason, and is dialled
        again after a wait.
        """
        self._connection.refuse(error, why)

    # -- what operators see

    def described(self) -> admin_pb2.SubscriberStatus:
        """The subscriber, as a message."""
        return admin_pb2.SubscriberStatus(
            application=self.info.application,
            subscriber=self.info.id,
            address=self.place,
            state="connected" if self.connected else "unreachable",
            flows=len(self.flows),
            cause=str(self.problem),
            problem=problem_to_message(self.problem),
            connected_s=self._clock.monotonic() - self._connection.welcomed_at if self.connected else 0.0,
        )

    def samples(self) -> Iterator[tuple[Metric, float, str, str] | tuple[Metric, float, str, str, str]]:
        """The subscriber's metrics, each with its label values."""
        who, traffic = (self.info.application, self.info.id), self.traffic
        yield c.PUSH_CONNECTED, self.connected, *who
        yield c.PUSH_CONNECTIONS, traffic.connections, *who
        yield c.PUSH_MESSAGES, traffic.messages, *who
        yield c.PUSH_BATCHES, traffic.batches, *who
        yield c.PUSH_BYTES, traffic.bytes, *who
        yield c.PUSH_ACKS, traffic.acks, *who
        yield c.PUSH_RESTS, traffic.rests, *who
        yield c.PUSH_CHARGED, traffic.charged / WORK_PER_S, *who
        for why in Refusal:
            yield c.PUSH_REFUSED, traffic.refused[why], *who, why.value

    # -- one connection after the other

    async def run(self) -> None:
        """Dial, serve and dial again until cancelled.

        A subscriber that left is dialled again later, because the return of a subscriber that a file lists is not
        reported.
        """
        redial = Redial()
        self._dialer.reading.streams += 1
        try:
            while True:
                acks, connection = self.traffic.acks, self._connection
                problem = await self._connect(connection)
                problem = replace(problem, text=shortened(problem.text, _LONGEST_CAUSE))
                if self.left and self.connected:
                    _log.info("%s", problem)
                elif problem != self.problem or connection.refused:
                    _log.warning("stream to %s at %s ended: %s", self.info.id, self.place, problem)
                lasted = self._clock.monotonic() - connection.welcomed_at if connection.welcomed_at else 0.0
                self._lose(problem)
                wait = redial.wait_s(
                    lasted_s=lasted, acked=self.traffic.acks > acks, refused=connection.refused, left=self.left
                )
                await self._clock.sleep(wait * random.uniform(0.5, 1.0))
        finally:
            self._dialer.reading.streams -= 1
            self._lose(self.problem or Problem("the stream was closed", code="stream-broken"))

    async def _connect(self, connection: Connection) -> Problem:
        """Serve one connection from dialling to its end. Returns why it ended."""
        try:
            await connection.run(await self._line())
        except WormholeError as error:
            self.vacant = is_refused(error)
            return error.problem
        except Exception as error:  # noqa: BLE001 - see below
            # A bug of this program is logged and ends only this connection.
            _log.exception("stream to %s at %s broke inside the publisher", self.info.id, self.place)
            return Problem(f"internal error: {error!r}", code="internal-error")
        return self.problem

    async def _line(self) -> Line:
        """The line of the next connection: a new one, or the next one that the subscriber dials."""
        info, dialer = self.info, self._dialer
        if not info.address:
            line = await dialer.attached.line(info)
            self.place = f"(dials from {line.peer})"
            return line
        return DialledLine(Peer(info.address, dialer.trust, info.user), info.id)

    def _lose(self, problem: Problem) -> None:
        """End the connection on this side. The stream loses all its flows."""
        if self.connected:
            self.since = self._clock.monotonic()
        self.connected = False
        self.problem = problem
        lost = self.flows
        self._session.close()
        self._prepare()
        for flow in lost:
            if flow.delivery.caravan_flow is not None:
                self._fleet.remove(flow.delivery.caravan_flow)
        self._events.ended(self, lost, problem.text)

    # -- what the connection calls

    def messages(self, now: float) -> Iterator[bytes]:
        """The messages to write now."""
        return self._outgoing.messages(now)

    def closed(self, error: StreamBroken | None) -> None:
        """Drop all flows, because this side ended the connection. The subscriber may notice later."""
        assert error is not None
        if self._connection.refused:
            error.at(flow=f"{self.info.application}/*")
        self._lose(error.problem)

    def received(self, event: Event) -> None:
        """Handle an event that the subscriber sent."""
        flows, heard_at = self._outgoing.flows, self._connection.heard_at
        match event:
            case Welcomed():
                self.connected = True
                self.left = self.leaving = self.vacant = False
                if not self.info.started:
                    self.life = object()  # the start time is unknown: each connection may be to a new process
                self.problem = NO_PROBLEM
                self._events.ready(self)
            case Opened(push, have, life, processed, epochs, move):
                flow = flows[push.number][1]
                self._events.opened(self, flow, have, move)
                flow.delivery.sent_counts.opened(life, processed, epochs)
            case Progressed(push, processed):
                flow = flows[push.number][1]
                flow.holding.progressed(heard_at)
                flow.delivery.sent_counts.reported(processed)
                self._outgoing.progressed(push, flow)
            case LetterArrived(push):
                self._events.parking(self, flows[push.number][1], push.epoch, event)
            case Reported(push, report):
                flows[push.number][1].holding.reported(report, heard_at)
            case Acked(push, marker, processed):
                self.traffic.acks += 1
                flow = flows[push.number][1]
                flow.holding.progressed(heard_at)
                flow.delivery.sent_counts.reported(processed)
                self._events.acked(flow, push.epoch, marker)
            case Released(push, processed):
                flow = self._closed(push)
                flow.delivery.sent_counts.reported(processed)
                self._events.released(self, flow)
            case FlowFailed(push):
                self._events.failed(self, self._closed(push), event)
            case Verified(push):
                self._events.verified(flows[push.number][1], push.epoch, event)
            case LossDecided(push, proceed):
                self._events.decided(flows[push.number][1], proceed)
            case Parted(reason):
                self.left = reason == push_pb2.Goodbye.LEAVING
                if self.left:
                    self._dialer.attached.left(self.info)

    def _closed(self, push: PushFlow) -> PublisherFlow:
        flow = self._outgoing.close(push.number)
        if flow.delivery.caravan_flow is not None:
            self._fleet.remove(flow.delivery.caravan_flow)
        return flow
