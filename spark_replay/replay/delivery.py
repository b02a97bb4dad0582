"""Pushes the archived updates of one flow to its subscriber, over the same protocol that publishers use.

The flow's publisher decides which epoch is valid, and stores acknowledged datamarkers
(:mod:`spark_replay.replay.publisher`). If this process dies, the next attempt continues at the stored datamarker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc

from spark_replay.replay.rate import HEARD_S, RateShare
from wormhole.audit.sent_counts import NOT_COUNTED, SentCounts, Settled
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import EpochRefused, HandlerFailed, ProtocolError, ReplayError, StreamBroken, WormholeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LastAck, LogPosition, flow_name
from wormhole.ports.dead_letters import DeadLetter, Parcel, UpdatePlace
from wormhole.push.allowance import Reading
from wormhole.push.connection import Connection, Traffic
from wormhole.push.dial import DialledLine, Peer
from wormhole.push.forwarding import MOST_ASSIGNED_BYTES, MOST_FORWARDED_BYTES, Forwarding
from wormhole.push.moves import refuses_later
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.refusal import refusal_of
from wormhole.push.session import (
    Acked,
    Event,
    FailedReason,
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
    Welcomed,
)
from wormhole.wire.body import Body
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Delivery", "Offer", "Park", "Route", "SentPiece"]

_log = logging.getLogger(__name__)

_STORE_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Route:
    """The subscriber's address, and the state with which its flow is opened. Each ``open`` returns a new route.

    ``skip``, ``park``, ``parked``, ``rewound``, ``move``, ``acknowledged``, ``last_ack``: as in an assignment.
    ``trust``: ``None`` without TLS. ``counted_to``: the end of the range that the flow's stored delivery counts cover.
    ``forwarding``: the request to the publisher called ``name``, which listens at the address and forwards to a
    subscriber that dialled it; ``None``: the subscriber listens at the address.
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
    move: int = 0
    acknowledged: bool = False
    last_ack: LastAck | None = None
    forwarding: Forwarding | None = None
    name: str = ""

    def line(self) -> DialledLine:
        """The line to the subscriber."""
        peer = Peer(self.address, self.trust, here="where Spark's tasks run")
        if self.forwarding is None:
            return DialledLine(peer, self.hello.subscriber)
        return ForwardedLine(peer, self.name, self.forwarding.to_metadata())


class ForwardedLine(DialledLine):
    """A line through the publisher that the subscriber dials."""

    async def why_ended(self, error: grpc.RpcError, *, welcomed: bool) -> StreamBroken | ProtocolError:
        """See :class:`~wormhole.push.line.Line`. The publisher reports why it ended the stream."""
        _, problem = refusal_of(error)
        if problem.code:
            return StreamBroken(problem.text, hint=problem.hint or None, code=problem.code)
        return await super().why_ended(error, welcomed=welcomed)


@dataclass(frozen=True, slots=True)
class Offer:
    """A datamarker that the subscriber is asked to acknowledge, and the datamarker that the publisher then stores.

    ``due``: the offer has to be sent, because the rows before it take memory until it is stored.
    """

    marker: Datamarker
    store: Datamarker | None
    progress: bytes = b""
    due: bool = False


@dataclass(frozen=True, slots=True)
class SentPiece:
    """The next piece to push: a body (or none), the place before the body, and the offer after the body (or none).

    ``gap``: a part of the log before the body that the archive lacks too, and the datamarker after that part. The gap
    is reported to the application. Delivery continues at that datamarker, if the application decides so.
    """

    body: Body | None
    begins: LogPosition
    offer: Offer | None
    gap: tuple[LogGap, Datamarker] | None = None


Store = Callable[[Offer, int, int, Settled | None], None]
"""Stores an acknowledged offer durably, with the number of updates and bytes since the previous offer, and with their
delivery counts. Blocks, may raise.
"""
Park = Callable[[DeadLetter, Parcel], str]
"""Stores an update whose handler exhausted its retries. Returns empty text once it is durable, else why it is refused.
Blocks, may raise.
"""


@dataclass(slots=True)
class _Sent:
    """The updates between an offer and the previous one."""

    offer: Offer
    updates: int
    bytes: int


@dataclass(slots=True)
class _Count:
    updates: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Delivery:
    """One connection to one subscriber, from dialling to its end.

    ``pieces``: returns the pieces after a datamarker, in order; it is called in a thread. ``until``: the end of the
    range, offered last. ``share``: this flow's share of the replay's rate. ``ask``: asks the publisher for the share;
    blocks, may raise. ``partial``: not everything that the application's filter selects is pushed. ``latest``: only
    the last change of each key is pushed.
    """

    route: Route
    application: str
    shard: str
    until: Datamarker
    pieces: Callable[[Datamarker], Generator[SentPiece, None, None]]
    store: Store
    park: Park
    share: RateShare
    ask: Callable[[], None]
    partial: bool = False
    latest: bool = False
    clock: Clock = SYSTEM_CLOCK
    reached: bool = False
    """Whether the subscriber answered. Until then it counts as not connected."""
    _session: PushSession = field(init=False)
    _threads: PeerThreads = field(init=False)
    _connection: Connection = field(init=False)
    _opened: Opened | None = field(init=False, default=None)
    _sent_counts: SentCounts = field(init=False, default=NOT_COUNTED)
    _settled: Settled | None = field(init=False, default=None)
    _decided: bool | None = field(init=False, default=None)
    _sent: deque[_Sent] = field(init=False, default_factory=deque)
    _acked: deque[_Sent] = field(init=False, default_factory=deque)
    _since: _Count = field(init=False, default_factory=_Count)
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _to_store: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _ending: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _parking: asyncio.Queue[LetterArrived] = field(init=False, default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self._session = PushSession(self.route.hello)
        allowance = Reading().allowance(self.clock.monotonic())
        self._threads = PeerThreads("letters", 1, self.clock)
        self._connection = Connection(self._session, self, allowance, Traffic(), self._threads, self.clock)

    async def run(self) -> None:
        """Push everything, have it acknowledged and stored, and get the flow back.

        Raises :class:`~wormhole.model.errors.StreamBroken` when the connection ended,
        :class:`~wormhole.model.errors.HandlerFailed` when the application stops retrying,
        :class:`~wormhole.model.errors.EpochRefused` when a newer epoch holds, what ``pieces``, ``store`` and ``park``
        raise, and :class:`~wormhole.model.errors.ReplayError` when the application does not continue after a loss.
        """
        try:
            await self._connection.run(self.route.line(), self._keep, self._park, self._deliver)
        except WormholeError as error:
            error.at(flow=self._name)
            raise
        finally:
            self._threads.close()

    @property
    def _name(self) -> str:
        return flow_name(self.application, self.shard)

    # -- what goes out

    async def _deliver(self) -> None:
        session = self._session
        await self._until(lambda: session.welcomed)
        self._check_parked()
        push, frame = session.assign(
            self.application,
            self.shard,
            self.route.epoch,
            self.route.marker,
            self.until.order,
            self.clock.monotonic(),
            skip=self.route.skip,
            park=self.route.park,
            parked=self.route.parked,
            rewound=self.route.rewound,
            move=self.route.move,
            acknowledged=self.route.acknowledged,
            last_ack=self.route.last_ack,
        )
        await self._connection.write(frame)
        await self._until(lambda: self._opened is not None)
        assert self._opened is not None
        start = self._start(self._opened.have, self._opened.move)
        counted_to = None if self.partial else self.route.counted_to
        self._sent_counts = SentCounts(start.order, counted_to, partial=self.partial)
        self._sent_counts.opened(self._opened.life, self._opened.processed, self._opened.epochs)
        await self._connection.write(session.notice(push, begins=True, latest=self.latest))
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
        await self._connection.write(session.notice(push, begins=False))
        await self._connection.write(session.revoke(push, "the replay is done"))
        await self._until(lambda: self._connection.closed)

    def _check_parked(self) -> None:
        """Raise :class:`~wormhole.model.errors.ReplayError` if no message takes the rows of parked updates."""
        most = self._session.max_frame_bytes
        forwarded = most == MOST_FORWARDED_BYTES and self.route.forwarding is not None
        lacking = self._session.lacking(self.route.skip, self.route.parked)
        if forwarded:
            lacking, most = lacking + most - MOST_ASSIGNED_BYTES, MOST_ASSIGNED_BYTES
        if lacking > 0:
            raise ReplayError(
                f"{len(self.route.parked)} rows have parked updates, and they are {lacking} bytes too many for one "
                f"message of {most} bytes",
                flow=self._name,
                hint=f"{'' if forwarded else 'raise `max_frame` at the subscriber, or '}cancel the replay, deliver or "
                f"discard what is parked (`wormholectl flows dead-letters retry {self._name}`), and begin it again",
                code="frame-too-small",
            )

    def _start(self, have: Datamarker | None, move: int) -> Datamarker:
        """Where delivery begins. ``have``: the datamarker that the application keeps itself, if it keeps one; ``move``:
        the number of the move that it keeps with it.
        """
        marker = self.route.marker
        if have is None:
            return marker
        # A subscriber of an earlier release does not know that the flow was set back.
        later = have.order > marker.order
        if later and refuses_later(self.route.move, rewound=self.route.rewound, known=move):
            _log.warning(
                "%s was set back to %s: the replay begins there, not at %s, which the application has",
                self._name,
                marker,
                have,
            )
            return marker
        return have

    def _fetch(self, pieces: Generator[SentPiece, None, None]) -> asyncio.Task[SentPiece | None]:
        task = asyncio.create_task(asyncio.to_thread(_following, pieces))
        task.add_done_callback(lambda _: self._wake.set())
        return task

    async def _send(self, push: PushFlow, piece: SentPiece) -> None:
        session, body = self._session, piece.body
        if piece.gap is not None:
            await self._tell_gap(push, *piece.gap)
        if body is not None:
            await self._until(lambda: push.window.admits(body.size))
            self.share.take(body.size)
            while (pause := self.share.wait_s(self.clock.monotonic())) > 0:
                await self.clock.sleep(pause)
            for frame in session.schemas(body.schemas):
                await self._connection.write(frame)
            for frames in session.batch(push, body.pieces, piece.begins, unfinished=body.unfinished):
                await self._connection.write(b"".join(frames))
            self._sent_counts.sent(body)
            self._since.updates += body.updates
            self._since.bytes += body.size
        if piece.offer is not None and (piece.offer.due or session.marker_due(push, self.clock.monotonic())):
            await self._offer(push, piece.offer)

    async def _offer(self, push: PushFlow, offer: Offer) -> None:
        frame = self._session.datamarker(push, offer.marker, self.clock.monotonic())
        if frame is not None:
            self._sent.append(_Sent(offer, self._since.updates, self._since.bytes))
            self._since = _Count()
            self._sent_counts.offered(offer.marker)
            await self._connection.write(frame)

    async def _tell_gap(self, push: PushFlow, gap: LogGap, resume: Datamarker) -> None:
        self._decided = None
        await self._connection.write(self._session.data_loss(push, gap, resume))
        await self._until(lambda: self._decided is not None)
        if not self._decided:
            raise ReplayError(
                f"the archive lacks a part of the range, and the application does not go on without it: {gap.message}",
                hint=(
                    "replay up to the place before it with --until, or let the application's on_data_loss answer "
                    "that it goes on"
                ),
            )

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._wake.clear()
            await self._wake.wait()

    # -- what the connection calls

    def messages(self, now: float) -> Iterable[bytes]:
        """Returns no messages, because each message is written when it is made."""
        return ()

    def closed(self, error: StreamBroken | None) -> None:
        """Does nothing: :meth:`run` ends with the error."""

    def received(self, event: Event) -> None:
        """Handle a message of the subscriber."""
        self._wake.set()
        match event:
            case Welcomed():
                self.reached = True
            case Opened():
                self._opened = event
            case Acked(_, marker, processed):
                self._sent_counts.reported(processed)
                self._ack(marker)
            case Progressed(_, processed):
                self._sent_counts.reported(processed)
            case Released(push):
                if push.phase is not FlowPhase.REVOKED:
                    raise StreamBroken(f"{self.route.hello.subscriber} gave the flow back: it leaves")
                self._connection.close()
            case FlowFailed():
                raise self._failure(event)
            case LossDecided(_, proceed):
                self._decided = proceed
            case LetterArrived():
                self._parking.put_nowait(event)  # no more than the credit holds
            case Parted(push_pb2.Goodbye.NOT_ALLOWED, message):
                raise ReplayError(
                    f"{self.route.hello.subscriber} does not let this task push: {message}",
                    hint=(
                        "list a name of the certificate that the tasks dial with among the subscriber's "
                        "`publishers`, and restart it"
                    ),
                )
            case _:
                pass  # credit came back, or a report

    def _ack(self, marker: Datamarker) -> None:
        while self._sent:
            sent = self._sent.popleft()
            self._acked.append(sent)
            if sent.offer.marker is marker:
                break
        settled = self._sent_counts.acknowledged(marker)
        if settled is not None:  # taken now: later reports are about updates after the datamarker
            self._settled = settled if self._settled is None else self._settled.then(settled)
        self._to_store.set()

    def _failure(self, event: FlowFailed) -> WormholeError:
        match event.reason:
            case FailedReason.RESEND:
                return StreamBroken(f"it wants to have it sent again: {event.message}")
            case FailedReason.STALE_EPOCH:
                return EpochRefused(
                    f"the subscriber holds a newer epoch than {self.route.epoch}",
                    held_epoch=0 if event.contested else event.held_epoch,
                )
            case _:
                return HandlerFailed(
                    f"the handler stopped retrying at update {event.update_id}: {event.message}",
                    hint="mend the handler and restart the subscriber, then take the replay up again",
                )

    async def _keep(self) -> None:
        """Have the publisher store the newest acknowledged offer, at most once a second, and at the end at once.

        The publisher's answers contain the share of the rate, so it is called also when no offer is to be stored.
        """
        ask_s = HEARD_S if self.share.limited else None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ask_s):
                    await self._to_store.wait()
            if not self._to_store.is_set():
                await asyncio.to_thread(self.ask)
                continue
            self._to_store.clear()
            if taken := list(self._acked):
                offer, updates, size = (
                    taken[-1].offer,
                    sum(one.updates for one in taken),
                    sum(one.bytes for one in taken),
                )
                settled, self._settled = self._settled, None
                await asyncio.to_thread(self.store, offer, updates, size, settled)
                for _ in taken:
                    self._acked.popleft()
                self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STORE_EVERY_S):
                    await self._ending.wait()

    async def _park(self) -> None:
        """Have the publisher store updates to be parked, one after the other.

        An update counts as processed once the subscriber has received the answer that the update is stored.
        """
        while True:
            wanted = await self._parking.get()
            try:
                refused = await asyncio.to_thread(self.park, wanted.letter, wanted.parcel)
            finally:
                wanted.done()
            await self._connection.write(self._session.parked(wanted.flow, wanted.letter.id, refused))


def _following(pieces: Generator[SentPiece, None, None]) -> SentPiece | None:
    return next(pieces, None)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait for a thread that cannot be stopped, also when this task is cancelled.

    Errors of the thread are ignored, because they were reported already or no longer matter.
    """
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()
