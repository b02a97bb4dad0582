"""One gRPC stream to one subscriber: dials, carries frames, dials again.

What a frame means is the session's business (:mod:`wormhole.push.session`), which flow travels where is the fleet's,
who gets what is the assigner's. If the process dies anywhere here, the stored datamarkers say where everything goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, CaravanFlowState
from publisher.push.flow import PublisherFlow
from publisher.push.messages import Messages
from publisher.push.pacing import Allowance, Reading
from publisher.push.redial import Redial
from wormhole.coordination.port import SubscriberInfo
from wormhole.model.errors import ProtocolError, StreamBroken
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import Parcel
from wormhole.push.dial import Line, PushCall, broken, is_refused, open_line, open_push, stranger_at, why_not_reached
from wormhole.push.parking import MOST_BYTES
from wormhole.push.room import Room, RoomFullError
from wormhole.push.session import (
    Acked,
    Event,
    FlowFailed,
    FlowPhase,
    LossDecided,
    Opened,
    ParkWanted,
    Parted,
    Progressed,
    PushFlow,
    PushSession,
    Released,
    Reported,
    Welcomed,
)
from wormhole.wire.body import BadUpdate
from wormhole.wire.bounds import shortened
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Dialer", "Refusal", "StreamEvents", "SubscriberStream", "Traffic"]

_log = logging.getLogger(__name__)

_TICK_S = 0.25
_GOODBYE_S = 1.0
_QUANTUM = 256 << 10  # bytes that a flow may send before the next one's turn
_ROUND = 1 << 20  # bytes of all flows together that are put together before they are written
_SLICE = 250  # work (`PushSession.work`) between two turns of the event loop
_MOST_ANSWERS = 4096  # to parked updates that wait to be written
_LONGEST_CAUSE = 2000


class Refusal(Enum):
    """Why a subscriber lost its stream."""

    PROTOCOL = "protocol"
    """It broke the protocol, or a bound of it (docs/wire.md)."""
    MEMORY = "memory"
    """It held the most of the memory for updates that are being parked, and there was no more."""
    UNREAD = "unread"
    """It does not read the answers to what it parks."""
    SILENT = "silent"
    """It connects, and does not say welcome."""


@dataclass(frozen=True, slots=True)
class Dialer:
    """How to reach subscribers. ``trust`` ``None``: without TLS. ``heartbeat_s``: each side sends something this often.

    ``room``: the memory for what they want to be parked, of all together; ``reading``: the work for what they send.
    """

    hello: push_pb2.Hello
    trust: Trust | None
    heartbeat_s: float
    room: Room = field(default_factory=lambda: Room(MOST_BYTES))
    reading: Reading = field(default_factory=Reading)

    async def line(self, info: SubscriberInfo) -> Line:
        """To the subscriber. Raises as :func:`~wormhole.push.dial.open_line`."""
        return await open_line(info.address, info.id, self.trust)

    async def broken(self, error: BaseException, info: SubscriberInfo, *, established: bool) -> str:
        """Why a stream to the subscriber ended."""
        if established:
            return str(broken(error, info.address, info.id, tls=self.trust is not None))
        return str(await why_not_reached(error, info.address, info.id, self.trust))

    async def stranger(self, info: SubscriberInfo) -> str:
        """Why whoever answered at the subscriber's address is not it; empty: nothing speaks against it. With TLS its
        certificate has said that.

        To be asked once it has answered: before, another process could still take the place of the one that was looked
        at.
        """
        return "" if self.trust is not None else await asyncio.to_thread(stranger_at, info.address, info.user)

    async def revoked(self, line: Line) -> str:
        """Waits until a newly loaded list revokes the subscriber's certificate; returns what to say of it.

        Without lists it never ends.
        """
        if self.trust is None or line.peer is None:
            await asyncio.get_running_loop().create_future()
        assert self.trust is not None
        return await self.trust.until_revoked(line.peer)


@dataclass(frozen=True, slots=True)
class StreamEvents:
    """What a stream tells its owner; called on the event loop, must not block.

    ``parking``: an update is to be parked, in that epoch; :meth:`SubscriberStream.parked` answers. ``undone``: a
    transaction with that id was rolled back, of which the flow sent a part; the flow has to be assigned anew.
    ``ready``: the subscriber answered, flows may be given to it. ``ended``: it was lost, and every flow with it.
    """

    ready: Callable[[SubscriberStream], None]
    opened: Callable[[SubscriberStream, PublisherFlow, Datamarker | None], None]
    parking: Callable[[SubscriberStream, PublisherFlow, int, ParkWanted], None]
    acked: Callable[[PublisherFlow, int, Datamarker], None]
    released: Callable[[SubscriberStream, PublisherFlow], None]
    undone: Callable[[SubscriberStream, PublisherFlow, str], None]
    failed: Callable[[SubscriberStream, PublisherFlow, FlowFailed], None]
    decided: Callable[[PublisherFlow, bool], None]
    ended: Callable[[SubscriberStream, list[PublisherFlow], str], None]


@dataclass(slots=True)
class Traffic:
    """What went over a subscriber's stream so far, over all its connections. ``bytes``: of the messages written;
    ``refused``: how often it lost its stream for a fault of its own; ``rests``: how often it was not read for a moment,
    because it had caused much work.
    """

    connections: int = 0
    messages: int = 0
    batches: int = 0
    bytes: int = 0
    acks: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    rests: int = 0


class SubscriberStream:
    """See the module. ``cause`` says why it is not connected, for the operator. ``left``: the subscriber said that it
    leaves, and has not come back; ``leaving``: it is about to, for it gave back what nobody asked for. ``vacant``:
    nobody listens at its address, so no handler of it can run. ``life`` stays the same object for as long as the
    subscriber's process does, as far as can be known.
    """

    def __init__(
        self, info: SubscriberInfo, dialer: Dialer, fleet: Fleet, events: StreamEvents, may_send: Callable[[], bool]
    ) -> None:
        self.info = info
        self.connected = False
        self.left = False
        self.leaving = False
        self.vacant = False
        self.life = object()
        self.cause = "dialling"
        self.since = time.monotonic()
        self.traffic = Traffic()
        self._dialer = dialer
        self._fleet = fleet
        self._events = events
        self._may_send = may_send
        self._room = dialer.room.share(lambda error: self.refuse(error, Refusal.MEMORY))
        self._allowance = Allowance(dialer.reading, time.monotonic())  # of all its connections: a new one buys nothing
        self._refusal = ""
        self._answers = 0
        self._late: set[int] = set()  # flows whose turn did not come in the last round
        self._session = self._new_session()
        self._flows: dict[int, tuple[PushFlow, PublisherFlow]] = {}
        self._control: list[bytes] = []
        self._wake = asyncio.Event()
        self._hung_up: asyncio.Future[str] | None = None
        self._writing = asyncio.Lock()
        self._sent_at = self._heard_at = 0.0
        self._turn = 0
        self._told_version = False
        self._welcomed_at = 0.0

    # -- what the owner does

    @property
    def flows(self) -> list[PublisherFlow]:
        """Flows that are open, or being opened, on this stream."""
        return [flow for _, flow in self._flows.values()]

    def wake(self) -> None:
        """There may be something to write."""
        self._wake.set()

    def assign(self, flow: PublisherFlow, *, yields: bool) -> None:
        """Give the flow, whose epoch was just raised, to the subscriber. ``yields``: it gives way to another publisher
        that is connected.
        """
        push, frame = self._session.assign(
            flow.application,
            flow.shard,
            flow.epoch,
            flow.marker,
            flow.sent_until,
            time.monotonic(),
            skip=flow.control.skip,
            park=flow.parks,
            parked=flow.parked_rows.items(),
            rolled_back=flow.rolled_back,
            rewound=flow.rewound,
            yields=yields,
        )
        if (flow.control.skip or flow.parks) and not self._session.parks and not self._told_version:
            self._told_version = True
            _log.warning(
                "subscriber %s speaks protocol version %d: it skips no updates, and halts where others park. Next: "
                "install a newer "
                "release of wormhole-pubsub there",
                self.info.id,
                self._session.version,
            )
        self._flows[push.number] = (push, flow)
        self._send(frame)

    def revoke(self, flow: PublisherFlow, cause: str) -> None:
        """Ask for the flow back; ``events.released`` follows."""
        for push, mine in self._flows.values():
            if mine is flow and push.phase is not FlowPhase.REVOKED:
                if flow.caravan_flow is not None:
                    self._offer_last(push, flow, flow.caravan_flow)
                    self._fleet.remove(flow.caravan_flow)
                self._send(self._session.revoke(push, cause))

    def _offer_last(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow) -> None:
        """A datamarker right before the revocation: a subscriber that has nothing unfinished acknowledges it, and
        nothing is repeated.
        """
        # When the publisher stops, the caravans have ended before the streams: the flows wait then.
        if push.phase is FlowPhase.OPEN and caravan_flow.state in (
            CaravanFlowState.TRAVELLING,
            CaravanFlowState.WAITING,
        ):
            frame = self._datamarker(push, flow, caravan_flow, time.monotonic())
            if frame is not None:
                self._send(frame)

    @property
    def parks(self) -> bool:
        """Whether the subscriber knows how to park, and so may get a flow of which updates are."""
        return self._session.parks

    @property
    def max_frame_bytes(self) -> int:
        """The largest message that both sides take."""
        return self._session.max_frame_bytes

    def lacking(self, flow: PublisherFlow) -> int:
        """Bytes by which the flow's assignment would be too large a message, for all that is skipped and parked of it;
        0 when it fits.
        """
        return self._session.lacking(flow.control.skip, flow.parked_rows.items())

    def parked(self, flow: PublisherFlow, epoch: int, update_id: str, refused: str) -> None:
        """Answer ``events.parking``; nothing is said when the epoch is over."""
        for push, mine in tuple(self._flows.values()):
            if mine is flow and push.epoch == epoch:
                self._answers += 1
                self._send(self._session.parked(push, update_id, refused))
        if self._answers > _MOST_ANSWERS:
            unread = f"park: {self._answers} answers wait to be written, and the subscriber does not read"
            self.refuse(ProtocolError(unread, hint="the subscriber has to read its stream"), Refusal.UNREAD)

    def send_letter(self, flow: PublisherFlow, parcel: Parcel) -> asyncio.Future[bool] | None:
        """Send a parked update again, before anything of the log.

        The answer: ``PublisherFlow.letter``; ``None``: the flow is not open here.
        """
        for push, mine in self._flows.values():
            if mine is flow and push.phase is FlowPhase.OPEN:
                schema = Schema.from_canonical(parcel.schema)
                for frame in self._session.letter(push, schema, parcel.body, flow.marker, time.monotonic()):
                    self._send(frame)
                if flow.ledger is not None:
                    flow.ledger.letter(parcel.body)
                    flow.ledger.offered(flow.marker)
                return flow.expect_letter()
        return None

    def tell_loss(self, flow: PublisherFlow, gap: LogGap, resume: Datamarker) -> None:
        """Ask the application what to do about missing log; ``events.decided`` follows."""
        for push, mine in self._flows.values():
            if mine is flow and push.phase is FlowPhase.OPEN:
                self._send(self._session.data_loss(push, gap, resume))

    def credit(self, flow: PublisherFlow) -> tuple[int, int]:
        """Credit and bytes in flight of the flow."""
        for push, mine in self._flows.values():
            if mine is flow:
                return push.window.credit, push.window.in_flight
        return 0, 0

    def hang_up(self, cause: str) -> None:
        """End the connection without waiting for the subscriber.

        Every flow is lost at once; then it is dialled again.
        """
        self._lose(cause)
        if self._hung_up is not None and not self._hung_up.done():
            self._hung_up.set_result(cause)

    def refuse(self, error: ProtocolError, why: Refusal = Refusal.PROTOCOL) -> None:
        """End the connection, for a fault of the subscriber: it is told which, and is dialled again after a while."""
        if not self._refusal and self._hung_up is not None and not self._hung_up.done():
            self.traffic.refused[why] += 1
            self._refusal = str(error)
            self.hang_up(str(error.at(flow=f"{self.info.application}/*")))

    async def run(self) -> None:
        """Dial, serve and dial again until cancelled.

        Who leaves is dialled again too, in no hurry: where a file lists the subscribers nobody else tells that it came
        back.
        """
        redial = Redial()
        self._dialer.reading.streams += 1
        try:
            while True:
                acks, self._welcomed_at = self.traffic.acks, 0.0
                try:
                    cause = await self._connection()
                except Exception as error:  # noqa: BLE001 - see below
                    # Ours, not the subscriber's: it must cost this connection only, and be seen.
                    _log.exception("stream to %s at %s broke inside the publisher", self.info.id, self.info.address)
                    cause = f"internal error: {error!r}"
                cause = shortened(cause, _LONGEST_CAUSE)
                if self.left and self.connected:
                    _log.info("%s", cause)
                elif cause != self.cause or self._refusal:
                    _log.warning("stream to %s at %s ended: %s", self.info.id, self.info.address, cause)
                refused, self._refusal = bool(self._refusal), ""
                lasted = time.monotonic() - self._welcomed_at if self._welcomed_at else 0.0
                self._lose(cause)
                wait = redial.wait_s(lasted_s=lasted, acked=self.traffic.acks > acks, refused=refused, left=self.left)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        finally:
            self._dialer.reading.streams -= 1
            self._lose(self.cause or "the stream was closed")

    def _lose(self, cause: str) -> None:
        """The connection is over, for us at least: no flow of it travels any more.

        What it still says is not looked at.
        """
        if self.connected:
            self.since = time.monotonic()
        self.connected = False
        self.cause = cause
        lost = self.flows
        self._flows.clear()
        self._control.clear()
        self._answers = 0
        self._session.close()
        self._session = self._new_session()
        for flow in lost:
            if flow.caravan_flow is not None:
                self._fleet.remove(flow.caravan_flow)
        self._events.ended(self, lost, cause)

    # -- the connection

    def _new_session(self) -> PushSession:
        hello = push_pb2.Hello()
        hello.CopyFrom(self._dialer.hello)
        hello.application, hello.subscriber = self.info.application, self.info.id
        return PushSession(hello, self._room)

    async def _connection(self) -> str:
        """One connection from dialling to its end; returns why it ended."""
        try:
            line = await self._dialer.line(self.info)
        except StreamBroken as error:
            self.vacant = is_refused(error)
            return str(error)
        call: PushCall = None
        tasks: list[asyncio.Task[str]] = []
        hung_up = self._hung_up = asyncio.get_running_loop().create_future()
        session = self._session
        try:
            call = open_push(line.channel)
            self._heard_at = self._sent_at = time.monotonic()
            await call.write(session.start())
            tasks = [
                asyncio.create_task(self._read(call, session), name=f"read-{self.info.id}"),
                asyncio.create_task(self._write(call, session), name=f"write-{self.info.id}"),
                asyncio.create_task(self._silence(), name=f"silence-{self.info.id}"),
                asyncio.create_task(self._dialer.revoked(line), name=f"revoked-{self.info.id}"),
            ]
            done, _ = await asyncio.wait([hung_up, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if self._refusal:
                await self._part(call, session.goodbye(push_pb2.Goodbye.PROTOCOL, self._refusal))
            # When both ended the reader knows better: the writer only saw that the stream is closed.
            return str(next(ended for ended in (hung_up, *tasks) if ended in done).result())
        except grpc.RpcError as error:
            self.vacant = is_refused(error)
            return await self._dialer.broken(error, self.info, established=self.connected)
        except asyncio.InvalidStateError:
            return "the subscriber closed the stream"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if call is not None:
                call.cancel()
            await line.channel.close()

    async def _read(self, call: PushCall, session: PushSession) -> str:
        try:
            async for data in call:
                self._heard_at = time.monotonic()
                done = session.work
                for event in session.receive(data):
                    if session is not self._session:
                        return "it was hung up"
                    if isinstance(event, Parted):
                        self.left = event.reason == "leaving"
                        return f"subscriber {self.info.id} parted ({event.reason}): {event.message}"
                    if isinstance(event, Welcomed):
                        if stranger := await self._dialer.stranger(self.info):
                            return stranger
                        if session is not self._session:
                            return "it was hung up"
                    if event is not None:
                        self._happened(event)
                    if session.work - done >= _SLICE:
                        await self._rest(session.work - done)
                        done = session.work
                if session.work != done:
                    await self._rest(session.work - done)
        except ProtocolError as error:
            if session is self._session:
                self.refuse(error, Refusal.MEMORY if isinstance(error, RoomFullError) else Refusal.PROTOCOL)
            return str(error)
        return "the subscriber closed the stream"

    async def _rest(self, work: int) -> None:
        """Let others have their turn. Who causes much work is not read for a while, which is no silence of its own."""
        now = time.monotonic()
        wait = self._allowance.wait_s(work, now)
        self.traffic.rests += wait > 0
        self._heard_at = now + wait
        if wait or work >= _SLICE:
            await asyncio.sleep(wait)

    async def _part(self, call: PushCall, goodbye: bytes) -> None:
        """Say why it ends, if the subscriber still reads: a call carries one write at a time, and it may wait for
        ever."""
        try:
            async with asyncio.timeout(_GOODBYE_S), self._writing:
                await call.write(goodbye)
        except (TimeoutError, grpc.RpcError, asyncio.InvalidStateError):
            pass  # it is gone already, and the cause of the end is what the caller has

    def _happened(self, event: Event) -> None:
        match event:
            case Welcomed():
                self.connected = True
                self._welcomed_at = self._heard_at
                self.traffic.connections += 1
                self.left = self.leaving = self.vacant = False
                if not self.info.started:
                    self.life = object()  # nobody tells when it started: each connection may be to a new process
                self.cause = ""
                self._events.ready(self)
            case Opened(push, have, life, processed, epochs):
                flow = self._flows[push.number][1]
                self._events.opened(self, flow, have)
                if flow.ledger is not None:
                    flow.ledger.opened(life, processed, epochs)
            case Progressed(push, processed):
                flow = self._flows[push.number][1]
                flow.progressed(self._heard_at)
                if flow.ledger is not None:
                    flow.ledger.heard(processed)
                self.wake()
            case ParkWanted(push):
                self._events.parking(self, self._flows[push.number][1], push.epoch, event)
            case Reported(push, report):
                self._flows[push.number][1].reported(report, self._heard_at)
            case Acked(push, marker, processed):
                self.traffic.acks += 1
                flow = self._flows[push.number][1]
                flow.progressed(self._heard_at)
                if flow.ledger is not None:
                    flow.ledger.heard(processed)
                self._events.acked(flow, push.epoch, marker)
            case Released(push, processed):
                flow = self._closed(push)
                if flow.ledger is not None:
                    flow.ledger.heard(processed)
                self._events.released(self, flow)
            case FlowFailed(push):
                self._events.failed(self, self._closed(push), event)
            case LossDecided(push, proceed):
                self._events.decided(self._flows[push.number][1], proceed)

    def _closed(self, push: PushFlow) -> PublisherFlow:
        _, flow = self._flows.pop(push.number)
        if flow.caravan_flow is not None:
            self._fleet.remove(flow.caravan_flow)
        return flow

    async def _write(self, call: PushCall, session: PushSession) -> str:
        silence = self._dialer.heartbeat_s
        while session is self._session:
            self._wake.clear()
            now = time.monotonic()
            written = False
            for message in self._gather(now):
                await self._put(call, message)
                written = True
            if not written and now - self._sent_at >= silence:
                await self._put(call, session.heartbeat())
                written = True
            if not written:
                await self._woken()
        return "it was hung up"

    async def _put(self, call: PushCall, message: bytes) -> None:
        async with self._writing:
            await call.write(message)
        self._sent_at = time.monotonic()
        self.traffic.messages += 1
        self.traffic.bytes += len(message)

    async def _silence(self) -> str:
        """Until nothing was heard for three heartbeats. Not the writer's business: who is frozen may leave a write
        waiting for ever.

        Before its welcome a subscriber is not listened to any longer, whatever it sends."""
        longest = 3 * self._dialer.heartbeat_s
        began = self._heard_at
        while True:
            since = self._heard_at if self.connected else began
            left = since + longest - time.monotonic()
            if left <= 0 and self._heard_at != began and not self.connected:
                self.refuse(ProtocolError(f"welcome: it did not come within {longest:g} s"), Refusal.SILENT)
            if left <= 0:
                return f"nothing was heard for {longest:g} s"
            await asyncio.sleep(left)

    async def _woken(self) -> None:
        """Wait until there may be something to write; datamarkers and heartbeats fall due by time."""
        try:
            async with asyncio.timeout(_TICK_S):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _send(self, frame: bytes) -> None:
        self._control.append(frame)
        self.wake()

    # -- what goes into the next messages

    def _gather(self, now: float) -> Iterator[bytes]:
        """One round over the flows, until there is enough to write: deficit round robin, those with the lead caravan
        first.
        """
        out = Messages(self._session.max_frame_bytes)
        for frame in self._control:
            out.add(frame)
        self._control.clear()
        self._answers = 0
        if self._session.welcomed and self._may_send():
            members = self._in_turn()
            for count, (push, flow) in enumerate(members):
                if out.bytes >= _ROUND:
                    self._late = {late.number for late, _ in members[count:]}
                    self.wake()
                    break
                self._gather_flow(push, flow, now, out)
            else:
                self._late.clear()
        return out.take()

    def _in_turn(self) -> list[tuple[PushFlow, PublisherFlow]]:
        members = list(self._flows.values())
        if len(members) > 1:
            self._turn = (self._turn + 1) % len(members)
            members = members[self._turn :] + members[: self._turn]
            lead = self._fleet.lead
            if lead is not None:
                members.sort(key=lambda member: member[1].caravan_flow not in lead.flows)
            if self._late:
                members.sort(key=lambda member: member[0].number not in self._late)
        return members

    def _gather_flow(self, push: PushFlow, flow: PublisherFlow, now: float, out: Messages) -> None:
        """Add what one flow may send now."""
        caravan_flow = flow.caravan_flow
        if caravan_flow is None or push.phase is not FlowPhase.OPEN:
            return
        if caravan_flow.blocked and push.window.half_free:
            self._fleet.moved(caravan_flow)
        quantum = _QUANTUM
        cursor = caravan_flow.cursor
        while (
            quantum > 0
            and caravan_flow.state is CaravanFlowState.TRAVELLING
            and (piece := caravan_flow.peek()) is not None
        ):
            if piece.gap is not None:
                self._meet_gap(flow, caravan_flow, piece.gap)
                break
            if piece.undone:
                self._events.undone(self, flow, piece.undone)
                break
            if piece.broken is not None:
                if piece.broken.update_id in flow.control.skip:
                    _log.warning("%s skips what cannot be decoded: %s", flow.name, piece.broken, extra=flow.about)
                    caravan_flow.pass_broken(piece.broken.update_id)
                    continue
                self._offer(push, flow, caravan_flow, now, out)
                self._stop(flow, caravan_flow, f"held at {caravan_flow.place}: {piece.broken}")
                break
            body = piece.body
            if body is not None:
                if body.bad and flow.halts_on_bad_value:
                    self._meet_bad_value(push, flow, caravan_flow, body.bad[0], now, out)
                    break
                if not push.window.admits(len(body.data)):
                    flow.lacks_credit(now)
                    break
                flow.has_credit()
                if not push.window.in_flight:
                    flow.progressed(now)  # there was nothing to do before
                if piece.marker is None and self._session.marker_due(push, now, soon=True):
                    self._offer(push, flow, caravan_flow, now, out)  # the transaction that begins here may be long
                for schema in self._session.schemas(body.schemas):
                    out.add(schema)
                for frame in self._session.batch(push, body.data, caravan_flow.place, unfinished=body.unfinished):
                    out.add(*frame)
                flow.sent(body)
                quantum -= len(body.data)
                self.traffic.batches += 1
            caravan_flow.take()
            if piece.marker is not None and self._session.marker_due(push, now):
                self._offer(push, flow, caravan_flow, now, out)
        else:
            if quantum <= 0:
                self.wake()
            elif caravan_flow.state is CaravanFlowState.TRAVELLING and self._session.marker_due(push, now):
                self._offer(push, flow, caravan_flow, now, out)
        if caravan_flow.cursor != cursor:  # also when it only skipped what it has
            self._fleet.moved(caravan_flow)

    def _offer(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, now: float, out: Messages) -> None:
        frame = self._datamarker(push, flow, caravan_flow, now)
        if frame is not None:
            out.add(frame)

    def _datamarker(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, now: float) -> bytes | None:
        """Where the flow is; ``None`` amid a transaction, behind whose first updates the datamarker before it would
        stand, and for one that was offered.
        """
        if caravan_flow.inside:
            return None
        frame = self._session.datamarker(push, caravan_flow.marker, now)
        if frame is not None and flow.ledger is not None:
            flow.ledger.offered(caravan_flow.marker)
        return frame

    def _meet_bad_value(
        self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, bad: BadUpdate, now: float, out: Messages
    ) -> None:
        """Hold the flow before the segment that has the update, with what was sent acknowledged."""
        self._offer(push, flow, caravan_flow, now, out)
        self._stop(
            flow,
            caravan_flow,
            f"held before {bad.id} at {bad.position}: the value in {bad.table} is not what value_format says: "
            f"{bad.why}. "
            'Next: declare the format that it has, or set on_bad_value = "deliver"',
        )

    def _stop(self, flow: PublisherFlow, caravan_flow: CaravanFlow, cause: str) -> None:
        flow.hold(cause)
        self._fleet.hold(caravan_flow, cause)
        _log.error("%s is %s", flow.name, cause, extra=flow.about)

    def _meet_gap(self, flow: PublisherFlow, caravan_flow: CaravanFlow, gap: LogGap) -> None:
        caravan = self._fleet.caravan_of(caravan_flow)
        cursor = caravan_flow.cursor
        assert caravan is not None
        assert cursor is not None
        entry = caravan.buffer.entry(cursor)
        assert entry is not None
        begin: LogPosition = entry.segment.begin
        before = caravan_flow.marker
        gap = gap.without(before.delivered)
        # What was prepared before the gap may be committed behind it.
        read_from = before.read_from if before.read_from < before.order else begin
        resume = Datamarker(begin, gap.delivered or before.delivered, read_from, None, before.committed_at_us)
        self._fleet.hold(caravan_flow, gap.message)
        flow.ask(gap, resume)
        _log.error("data loss for %s: %s", flow.name, gap.message, extra=flow.about)
        self.tell_loss(flow, gap, resume)
