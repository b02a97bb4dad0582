"""One flow's stream to its subscriber, over the wire that publishers use: what is pushed comes from the archive.

What a frame means is the session's business (:mod:`wormhole.push.session`), which epoch holds and what is acknowledged
durably the publisher's (:mod:`spark_replay.replay.publisher`). If the process dies anywhere here, the next attempt goes
on at the stored datamarker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from spark_replay.replay.rate import Bucket
from wormhole.audit.ledger import Ledger, Settled
from wormhole.model.errors import EpochRefused, HandlerFailed, ProtocolError, ReplayError, StreamBroken, WormholeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.ports.dead_letters import DeadLetter, Parcel, UpdatePlace
from wormhole.push.dial import PushCall, broken, open_line, open_push, why_not_reached
from wormhole.push.parking import open_letter
from wormhole.push.session import (
    Acked,
    Event,
    FailedReason,
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
    Welcomed,
)
from wormhole.wire.body import Body
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Delivery", "Offer", "Park", "Piece", "Route", "Stored"]

_log = logging.getLogger(__name__)

_STORE_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Route:
    """Whom to push to and as what: of one ``open``. ``skip``, ``park``, ``parked``, ``rewound``: as in an assignment.
    ``trust`` ``None``: without TLS. ``counted_to``: up to where the flow's books have what was delivered.
    """

    hello: push_pb2.Hello
    address: str
    epoch: int
    marker: Datamarker
    skip: tuple[str, ...] = ()
    trust: Trust | None = None
    counted_to: LogPosition | None = None
    park: bool = False
    parked: tuple[tuple[bytes, UpdatePlace], ...] = ()
    rewound: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be acknowledged: the datamarker that the subscriber gets, and what of it the publisher stores. ``due``:
    it is not to be left out, for what lies before it takes room until it is stored.
    """

    marker: Datamarker
    store: Datamarker | None
    progress: bytes = b""
    due: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """The next of what is pushed: a body (or none), the place before it, and what may be offered behind it (or
    nothing).

    ``gap``: log that the archive does not hold either, before the body; it is told, and goes on at the datamarker only
    when the application says so.
    """

    body: Body | None
    begins: LogPosition
    offer: Offer | None
    gap: tuple[LogGap, Datamarker] | None = None


@dataclass(slots=True)
class Stored:
    """What one connection got acknowledged and stored. ``marker``: the last one; ``None``: none moved."""

    marker: Datamarker | None = None
    updates: int = 0
    bytes: int = 0


Store = Callable[[Offer, int, int, Settled | None], None]
"""Makes an acknowledged offer durable, with the updates and bytes since the last one and what is booked of them;
blocks, may raise.
"""
Park = Callable[[DeadLetter, Parcel], str]
"""Has an update stored that the application gave up on: empty once it is durable, else why it is refused; blocks, may
raise.
"""


@dataclass(slots=True)
class _Sent:
    """What lies between an offer and the one before it."""

    offer: Offer
    updates: int
    bytes: int


@dataclass(slots=True)
class _Count:
    updates: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Delivery:
    """One connection to one subscriber, from dialling to its end. ``pieces``: what lies behind a datamarker, in order;
    called in a thread.

    ``until``: the end of the range, offered last. ``partly``: what is pushed is not all that the application's filter
    selects of it.
    """

    route: Route
    application: str
    shard: str
    until: Datamarker
    pieces: Callable[[Datamarker], Generator[Piece, None, None]]
    store: Store
    park: Park
    bucket: Bucket
    partly: bool = False
    done: Stored = field(default_factory=Stored)
    reached: bool = False
    """Whether the subscriber answered: until then it is not there."""
    _session: PushSession = field(init=False)
    _push: PushFlow | None = field(init=False, default=None)
    _opened: Opened | None = field(init=False, default=None)
    _ledger: Ledger | None = field(init=False, default=None)
    _settled: Settled | None = field(init=False, default=None)
    _decided: bool | None = field(init=False, default=None)
    _released: bool = field(init=False, default=False)
    _sent: deque[_Sent] = field(init=False, default_factory=deque)
    _acked: deque[_Sent] = field(init=False, default_factory=deque)
    _since: _Count = field(init=False, default_factory=_Count)
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _to_store: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _heard_at: float = field(init=False, default=0.0)
    _sent_at: float = field(init=False, default=0.0)
    _call: PushCall = field(init=False, default=None)
    _ending: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _parking: asyncio.Queue[ParkWanted] = field(init=False, default_factory=asyncio.Queue)
    _writing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._session = PushSession(self.route.hello)

    @property
    def _heartbeat_s(self) -> float:
        return self.route.hello.heartbeat_ms / 1000

    async def run(self) -> Stored:
        """Push everything, have it acknowledged and stored, and get the flow back.

        Raises :class:`~wormhole.model.errors.StreamBroken` when the connection ended,
        :class:`~wormhole.model.errors.HandlerFailed` when the application gave up,
        :class:`~wormhole.model.errors.EpochRefused` when a newer epoch holds, what ``pieces``, ``store`` and ``park``
        raise, and :class:`~wormhole.model.errors.ReplayError` when the application does not go on behind a loss.
        """
        try:
            line = await open_line(self.route.address, self.route.hello.subscriber, self.route.trust)
        except StreamBroken as error:
            raise error.at(flow=self._name) from error
        tasks: list[asyncio.Task[None]] = []
        try:
            self._call = open_push(line.channel)
            self._heard_at = time.monotonic()
            await self._write(self._session.start())
            works = (self._deliver(), self._read(), self._silence(), self._keep(), self._park())
            tasks = [asyncio.create_task(one) for one in works]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # When several ended the reader knows best why: the writer only saw that the stream is closed.
            for task in (tasks[1], tasks[3], tasks[4], tasks[0], tasks[2]):
                if task in done:
                    task.result()
        except grpc.RpcError as error:
            route, here = self.route, "where Spark's tasks run"
            subscriber = route.hello.subscriber
            if self._session.welcomed:
                why = broken(error, route.address, subscriber, tls=route.trust is not None, here=here)
            else:
                why = await why_not_reached(error, route.address, subscriber, route.trust, here=here)
            raise why.at(flow=self._name) from error
        except asyncio.InvalidStateError:
            raise StreamBroken("the subscriber closed the stream", flow=self._name) from None
        except ProtocolError as error:
            raise StreamBroken(error.message, flow=self._name, hint=error.hint) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._call is not None:
                self._call.cancel()
            await line.channel.close()
        return self.done

    @property
    def _name(self) -> str:
        return flow_name(self.application, self.shard)

    # -- what goes out

    async def _deliver(self) -> None:
        session = self._session
        await self._until(lambda: session.welcomed)
        self._push, frame = session.assign(
            self.application,
            self.shard,
            self.route.epoch,
            self.route.marker,
            self.until.order,
            time.monotonic(),
            skip=self.route.skip,
            park=self.route.park,
            parked=self.route.parked,
            rewound=self.route.rewound,
        )
        push = self._push
        await self._write(frame)
        await self._until(lambda: self._opened is not None)
        assert self._opened is not None
        start = self._start(self._opened.have)
        counted_to = None if self.partly else self.route.counted_to
        self._ledger = ledger = Ledger(start.order, counted_to, partly=self.partly)
        ledger.opened(self._opened.life, self._opened.processed, self._opened.epochs)
        await self._write(session.notice(push, begins=True))
        pieces = self.pieces(start)
        coming = self._fetch(pieces)
        try:
            while True:
                await self._until(coming.done)
                piece = coming.result()
                if piece is None:
                    break
                coming = self._fetch(pieces)  # the next one is made while this one goes out
                await self._send(push, piece)
        finally:
            await _ended(coming)
            pieces.close()
        last = max(self.until, start, key=lambda marker: marker.order)
        await self._offer(push, Offer(last, last))
        await self._until(lambda: not push.offered)
        self._ending.set()
        await self._until(lambda: not self._acked)
        await self._write(session.notice(push, begins=False))
        await self._write(session.revoke(push, "the replay is done"))
        await self._until(lambda: self._released)

    def _start(self, have: Datamarker | None) -> Datamarker:
        """Where delivery begins. ``have``: the datamarker that the application keeps itself, if it keeps one."""
        marker = self.route.marker
        if have is None:
            return marker
        # A subscriber of an earlier release does not know that the flow was set back.
        if self.route.rewound and have.order > marker.order:
            _log.warning(
                "%s was set back to %s: the replay begins there, not at %s, which the application has",
                self._name,
                marker,
                have,
            )
            return marker
        return have

    def _fetch(self, pieces: Generator[Piece, None, None]) -> asyncio.Task[Piece | None]:
        task = asyncio.create_task(asyncio.to_thread(_following, pieces))
        task.add_done_callback(lambda _: self._wake.set())
        return task

    async def _send(self, push: PushFlow, piece: Piece) -> None:
        session, body = self._session, piece.body
        if piece.gap is not None:
            await self._tell_gap(push, *piece.gap)
        if body is not None:
            await self._until(lambda: push.window.admits(len(body.data)))
            await self._pause(self.bucket.wait(len(body.data), time.monotonic()))
            for frame in session.schemas(body.schemas):
                await self._write(frame)
            for frames in session.batch(push, body.data, piece.begins, unfinished=body.unfinished):
                await self._write(b"".join(frames))
            if self._ledger is not None:
                self._ledger.sent(body)
            self._since.updates += body.updates
            self._since.bytes += len(body.data)
        if piece.offer is not None and (piece.offer.due or session.marker_due(push, time.monotonic())):
            await self._offer(push, piece.offer)

    async def _offer(self, push: PushFlow, offer: Offer) -> None:
        frame = self._session.datamarker(push, offer.marker, time.monotonic())
        if frame is not None:
            self._sent.append(_Sent(offer, self._since.updates, self._since.bytes))
            self._since = _Count()
            if self._ledger is not None:
                self._ledger.offered(offer.marker)
            await self._write(frame)

    async def _tell_gap(self, push: PushFlow, gap: LogGap, resume: Datamarker) -> None:
        self._decided = None
        await self._write(self._session.data_loss(push, gap, resume))
        await self._until(lambda: self._decided is not None)
        if not self._decided:
            raise ReplayError(
                f"the archive lacks a part of the range, and the application does not go on without it: {gap.message}",
                flow=self._name,
                hint=(
                    "replay up to the place before it with --until, or let the application's on_data_loss answer "
                    "that it goes on"
                ),
            )

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait, and be heard meanwhile, however often something comes: the subscriber closes when it hears nothing,
        whatever it says itself.
        """
        while not ready():
            self._wake.clear()
            left = self._sent_at + self._heartbeat_s - time.monotonic()
            if left <= 0:
                await self._write(self._session.heartbeat())
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _pause(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._heartbeat_s))
            if left > self._heartbeat_s:
                await self._write(self._session.heartbeat())

    async def _write(self, message: bytes) -> None:
        async with self._writing:  # a call carries one write at a time
            await self._call.write(message)
            self._sent_at = time.monotonic()

    # -- what comes back

    async def _read(self) -> None:
        async for data in self._call:
            self._heard_at = time.monotonic()
            for event in self._session.receive(data):
                if event is not None:
                    await self._happened(event)
            self._wake.set()
        if not self._released:
            raise StreamBroken("the subscriber closed the stream", flow=self._name)
        await asyncio.Event().wait()  # the delivery ends by itself

    async def _happened(self, event: Event) -> None:
        match event:
            case Welcomed():
                self.reached = True
            case Opened():
                self._opened = event
            case Acked(_, marker, processed):
                if self._ledger is not None:
                    self._ledger.heard(processed)
                self._ack(marker)
            case Progressed(_, processed) if self._ledger is not None:
                self._ledger.heard(processed)
            case Released(push):
                if push.phase is not FlowPhase.REVOKED:
                    raise StreamBroken(f"{self.route.hello.subscriber} gave the flow back: it leaves", flow=self._name)
                self._released = True
            case FlowFailed():
                raise self._failure(event)
            case LossDecided(_, proceed):
                self._decided = proceed
            case ParkWanted():
                self._parking.put_nowait(event)  # no more than the credit holds
            case Parted("not_allowed", message):
                raise ReplayError(
                    f"{self.route.hello.subscriber} does not let this task push: {message}",
                    flow=self._name,
                    hint=(
                        "list a name of the certificate that the tasks dial with among the subscriber's "
                        "`publishers`, and restart it"
                    ),
                )
            case Parted(reason, message):
                raise StreamBroken(f"{self.route.hello.subscriber} parted ({reason}): {message}", flow=self._name)
            case _:
                pass  # credit came back, or a report

    def _ack(self, marker: Datamarker) -> None:
        while self._sent:
            sent = self._sent.popleft()
            self._acked.append(sent)
            if sent.offer.marker is marker:
                break
        settled = None if self._ledger is None else self._ledger.acknowledged(marker)
        if settled is not None:  # now: what is told next is of what lies behind the datamarker
            self._settled = settled if self._settled is None else self._settled.then(settled)
        self._to_store.set()

    def _failure(self, event: FlowFailed) -> WormholeError:
        match event.reason:
            case FailedReason.RESEND:
                return StreamBroken(f"it wants to have it sent again: {event.message}", flow=self._name)
            case FailedReason.STALE_EPOCH:
                return EpochRefused(
                    f"the subscriber holds a newer epoch than {self.route.epoch}",
                    held_epoch=0 if event.contested else event.held_epoch,
                    flow=self._name,
                )
            case _:
                return HandlerFailed(
                    f"the handler gave up at update {event.update_id}: {event.message}",
                    flow=self._name,
                    hint="mend the handler and restart the subscriber, then take the replay up again",
                )

    async def _silence(self) -> None:
        """Until nothing was heard for three heartbeats: who is frozen may leave a write waiting for ever."""
        longest = 3 * self._heartbeat_s
        while True:
            left = self._heard_at + longest - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(left)
        raise StreamBroken(f"nothing was heard of {self.route.hello.subscriber} for {longest:g} s", flow=self._name)

    async def _keep(self) -> None:
        """Have what is acknowledged stored by the publisher: the newest at most once a second, at the end at once."""
        while True:
            await self._to_store.wait()
            self._to_store.clear()
            if taken := list(self._acked):
                offer, updates, size = (
                    taken[-1].offer,
                    sum(one.updates for one in taken),
                    sum(one.bytes for one in taken),
                )
                settled, self._settled = self._settled, None
                await asyncio.to_thread(self.store, offer, updates, size, settled)
                self.done.updates += updates
                self.done.bytes += size
                self.done.marker = offer.store or self.done.marker
                for _ in taken:
                    self._acked.popleft()
                self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STORE_EVERY_S):
                    await self._ending.wait()

    async def _park(self) -> None:
        """Have stored what is to be parked, one after the other; it counts as processed at the subscriber once that is
        told.
        """
        while True:
            wanted = await self._parking.get()
            arrived = wanted.arrived
            try:
                letter = await asyncio.to_thread(open_letter, arrived, self._name)
                refused = await asyncio.to_thread(self.park, letter, arrived.parcel)
            finally:
                arrived.done()
            await self._write(self._session.parked(wanted.flow, letter.id, refused))


def _following(pieces: Generator[Piece, None, None]) -> Piece | None:
    return next(pieces, None)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait for a thread that cannot be stopped, also when we are: what it raises was told, or is of no interest any
    more.
    """
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()
