"""One Spark task: it pushes one flow, connection after connection, until the flow is done or an error is permanent.

The task retries after temporary faults, such as a subscriber that died or a publisher that restarts. Other errors are
returned in a :class:`TaskOutcome`, because Spark would run a task that raises again, and then report a stack trace.
Only the death of an executor is left to Spark. The next attempt opens the flow in a higher epoch and continues at the
stored datamarker.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_replay.archive.arrays import U64
from spark_replay.archive.reader import upto
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.delivery import Delivery, Offer, Route, SentPiece
from spark_replay.replay.mode import unfit
from spark_replay.replay.pieces import Formats, Pass, Selector, log_pieces
from spark_replay.replay.publisher import Reach, ReplayClient, TicketLostError
from spark_replay.replay.rate import RateShare
from wormhole.audit.sent_counts import Settled
from wormhole.config import TlsFiles
from wormhole.config.application_filter import read_mask_key
from wormhole.filters import Projection
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.tls import open_trust
from wormhole.model.errors import EpochRefused, ReplayError, Retryable, StreamBroken, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import DeadLetter, Parcel, rows_from_messages
from wormhole.push.forwarding import MOST_FORWARDED_BYTES, Forwarding
from wormhole.push.session import MAX_VERSION, MIN_VERSION
from wormhole.wire.markers import ack_from_message, marker_from_message, position_from_message
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2, push_pb2

if TYPE_CHECKING:
    import pyarrow as pa

    from wormhole.host.trust import Trust

__all__ = ["Ended", "Task", "TaskOutcome", "push_latest", "push_log"]

_ASK_S: Final = 0.5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 3.0
# The most connections in a row without new stored progress. This limit prevents endless retries.
_FRUITLESS: Final = 100


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that a task needs. It is sent to the executors.

    ``ticket``: the ticket of the replay of this flow. ``name``: the name of this task and its attempts alone.
    ``begin``: where the pushed range begins. ``rate``: bytes per second of this task unless the publisher sends another
    share; 0: no limit. ``patience_s``: how long a subscriber or the publisher may be away. ``tls``: to dial subscribers
    with; the files must have the same paths on the executors. ``heartbeat_s``, ``max_frame``: as publishers have them.
    ``halts_on_bad_value``: the setting of the application. ``mask_key_file``: the key of hashes; it must have the same
    path on the executors too. ``schemas``: by id, of the rows of a pass. ``by_values``: whether its rows were folded to
    the last changes of their keys for a filter that tests values; ``None``: the rows are not folded.
    """

    flow: str
    replay: str
    ticket: str
    name: str
    publisher: Reach
    store: ArchiveStore
    shard: str
    begin: Datamarker
    until: Datamarker
    where: str
    formats: Formats
    rate: float
    patience_s: float
    tls: TlsFiles | None
    heartbeat_s: float
    max_frame: int
    halts_on_bad_value: bool = False
    mask_key_file: Path | None = None
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    by_values: bool | None = None


class Ended(Enum):
    """How a task ended."""

    DONE = "done"
    """Everything is acknowledged and stored, and the subscriber has released the flow."""
    SUPERSEDED = "superseded"
    """Another attempt has the flow."""
    TICKET_LOST = "ticket lost"
    """The publisher no longer accepts this task's ticket."""
    PAUSED = "paused"
    """An operator paused the flow. Another flow uses its slot during the pause."""
    UNREACHABLE = "unreachable"
    """Publisher, subscriber or archive was away for longer than the patience."""
    FAILED = "failed"
    """An operator has to act."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a task. ``marker``: the last stored datamarker; ``None``: none. ``epoch``: the last opened epoch;
    0: none.
    """

    ended: Ended
    epoch: int
    marker: Datamarker | None
    updates: int
    bytes: int
    message: str = ""
    hint: str = ""
    code: str = ""


def push_log(task: Task, clock: Clock = SYSTEM_CLOCK) -> TaskOutcome:
    """Push every change of the range. Blocks."""

    def source(opened: admin_pb2.OpenedReplay, selector: Selector) -> _Source:
        def pieces(start: Datamarker) -> Generator[SentPiece, None, None]:
            return log_pieces(task.store, task.shard, start, task.until, selector)

        return _Source(pieces, lambda offer: None, partial=bool(task.where))

    return _run(task, source, clock)


def push_latest(task: Task, batches: Iterable[pa.RecordBatch], clock: Clock = SYSTEM_CLOCK) -> TaskOutcome:
    """Push rows that are the last changes of their keys and ascend by place. Blocks."""
    held: list[Pass] = []

    def source(opened: admin_pb2.OpenedReplay, selector: Selector) -> _Source:
        marker = marker_from_message(opened.marker)
        if task.by_values is not None and (why := unfit(selector.application, task.schemas, by_values=task.by_values)):
            raise ReplayError(
                f"the application's filter changed since the replay was begun: {why}",
                flow=task.flow,
                hint="begin another replay instead of this one, or set the filter back",
            )
        if not held:
            held.append(Pass(batches, task.shard, lambda id_: task.schemas[id_ & U64], marker))

        def pieces(start: Datamarker) -> Generator[SentPiece, None, None]:
            if start.order < marker.order:
                raise ReplayError(
                    (
                        f"the application has everything up to {start.order} only, before the beginning of this pass, "
                        f"{marker.order}"
                    ),
                    flow=task.flow,
                    hint=f"replay it from there: --from {start.order}",
                )
            # If the application is past these rows, the pass would overwrite its rows with older ones.
            has = upto(start) if start.order > marker.order else b""
            return held[0].pieces(max(opened.progress, has), selector)

        return _Source(pieces, lambda offer: held[0].stored(offer.progress), partial=True)

    return _run(task, source, clock)


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of one connection: ``pieces`` to push, and ``stored``, which is called with each stored offer.

    ``partial``: see :class:`~spark_replay.replay.delivery.Delivery`.
    """

    pieces: Callable[[Datamarker], Generator[SentPiece, None, None]]
    stored: Callable[[Offer], None]
    partial: bool


_Sources = Callable[[admin_pb2.OpenedReplay, Selector], _Source]


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The one event loop of a worker's process, for all its tasks.

    gRPC keeps a reference to the loop and continues to call it, so it must not be closed.
    """
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="replay", daemon=True).start()
    return loop


def _run(task: Task, source: _Sources, clock: Clock) -> TaskOutcome:
    attempts = _Attempts(task, source, clock)
    try:
        return asyncio.run_coroutine_threadsafe(attempts.run(), _loop(os.getpid())).result()
    except WormholeError as error:
        text = f"{error.message} ({error.position})" if error.position else error.message
        return attempts.outcome(_ended_by(error), text, error.hint or "", error.code)
    except Exception as error:  # noqa: BLE001 - reported by the replay, with its place
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"internal error: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return attempts.outcome(Ended.FAILED, text, "report this", code="internal-error")


def _ended_by(error: WormholeError) -> Ended:
    match error:
        case TicketLostError():
            return Ended.TICKET_LOST
        case Retryable():
            return Ended.UNREACHABLE
        case _:
            return Ended.FAILED


class _Attempts:
    """The connections of one task, one after the other."""

    def __init__(self, task: Task, source: _Sources, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._source = source
        self._client = ReplayClient(task.publisher, task.flow, task.replay, ticket=task.ticket)
        self._selector: Selector | None = None
        self._selects = ("", b"")  # filter and projection of the selector
        self._trust: Trust | None = None
        self._share = RateShare(task.rate > 0, self._clock.monotonic())
        self._waits_until = 0.0
        self._opener = f"{task.name}.{secrets.token_urlsafe(12)}"
        self._epoch = 0
        self._above = 0  # the epoch that a subscriber holds
        self._marker: Datamarker | None = None
        self._progress = b""
        self._updates = self._bytes = 0

    def outcome(self, ended: Ended, message: str = "", hint: str = "", code: str = "") -> TaskOutcome:
        """The outcome with the present epoch, marker and counts."""
        return TaskOutcome(ended, self._epoch, self._marker, self._updates, self._bytes, message, hint, code)

    async def run(self) -> TaskOutcome:
        """Connect and push until the task is done. Raises permanent errors, and those that outlast the patience."""
        self._trust = await asyncio.to_thread(open_trust, self._task.tls)
        self._moved()
        wait, fruitless = _FIRST_WAIT_S, 0
        try:
            while True:
                before = self._come_to
                try:
                    if self._epoch and not await asyncio.to_thread(self._is_newest):
                        return self.outcome(Ended.SUPERSEDED, "another attempt has the flow")
                    opened = await self._open()
                    if opened is None:
                        return self.outcome(Ended.PAUSED)
                    await self._deliver(opened)
                    return self.outcome(Ended.DONE)
                except (Retryable, EpochRefused) as error:
                    if isinstance(error, EpochRefused):
                        self._above = error.held_epoch
                    if self._come_to != before:
                        wait, fruitless = _FIRST_WAIT_S, 0
                    fruitless += 1
                    if self._clock.monotonic() > self._waits_until or fruitless > _FRUITLESS:
                        if isinstance(error, Retryable):
                            raise
                        raise StreamBroken(error.message, flow=error.flow, hint=error.hint) from error
                    await self._clock.sleep(wait)
                    wait = min(_LONGEST_WAIT_S, 2 * wait)
        finally:
            self._client.close()

    @property
    def _come_to(self) -> object:
        """The stored progress, with marker and place, which move without updates if the filter selects few."""
        return self._updates, self._marker, self._progress

    def _moved(self) -> None:
        self._waits_until = self._clock.monotonic() + self._task.patience_s

    def _is_newest(self) -> bool:
        """Whether this attempt was the last to open the flow.

        An attempt that Spark has given up must not take the flow from the next one. Openers are compared by name, not
        by number, because the publisher may have counted an attempt of ours whose answer was lost. A publisher of an
        earlier release sends no name.
        """
        return self._client.renew().replay.opener in ("", self._opener)

    async def _open(self) -> admin_pb2.OpenedReplay | None:
        """Open the flow in a new epoch. Returns ``None`` if it is paused."""
        while True:
            asked = self._clock.monotonic()
            reply = await asyncio.to_thread(self._client.open, self._opener, self._above)
            self._hear(reply, asked)
            if reply.HasField("opened"):
                self._epoch = reply.opened.epoch
                return reply.opened
            if reply.flow.paused:
                return None
            if self._clock.monotonic() > self._waits_until:
                cause = problem_of(reply)
                raise StreamBroken(
                    f"no subscriber takes it for {self._task.patience_s:g} s: {cause.text}",
                    flow=self._task.flow,
                    hint=cause.hint
                    or (
                        "start a subscriber of the application if none is connected; `wormholectl flows` shows what "
                        "else it waits for"
                    ),
                    code="no-subscriber",
                )
            await self._clock.sleep(_ASK_S)

    def _hear(self, reply: admin_pb2.ReplayReply, asked: float) -> None:
        """Use the share of the rate in ``reply``. ``asked``: when the request was sent."""
        granted = reply.replay.rate if reply.replay.HasField("rate") else self._task.rate
        self._share.heard(granted, asked, self._clock.monotonic())

    async def _deliver(self, opened: admin_pb2.OpenedReplay) -> None:
        selects = (opened.filter, opened.projection.SerializeToString(deterministic=True))
        if self._selector is None or self._selects != selects:
            # Value formats may load libraries and descriptor sets.
            formats = await asyncio.to_thread(self._task.formats.open)
            projection = await asyncio.to_thread(self._projection, opened.projection)
            self._selects = selects
            self._selector = Selector(
                opened.filter, self._task.where, formats, projection, halts=self._task.halts_on_bad_value
            )
        source = self._source(opened, self._selector)
        application, _, shard = self._task.flow.partition("/")

        def store(offer: Offer, updates: int, size: int, settled: Settled | None) -> None:
            asked = self._clock.monotonic()
            reply = self._client.advance(opened.epoch, offer.store, offer.progress, updates, size, settled)
            self._hear(reply, asked)
            source.stored(offer)
            self._updates += updates
            self._bytes += size
            self._marker = offer.store or self._marker
            self._progress = offer.progress or self._progress
            self._moved()

        def ask() -> None:
            asked = self._clock.monotonic()
            self._hear(self._client.advance(opened.epoch), asked)

        def park(letter: DeadLetter, parcel: Parcel) -> str:
            return self._client.park(opened.epoch, letter, parcel)

        delivery = Delivery(
            self._route(opened),
            application,
            shard,
            self._task.until,
            source.pieces,
            store,
            park,
            self._share,
            ask,
            partial=source.partial,
            latest=self._task.by_values is not None,
            clock=self._clock,
        )
        try:
            await delivery.run()
        finally:
            if delivery.reached:
                self._moved()

    def _projection(self, given: admin_pb2.Projection) -> Projection:
        key = None
        if given.key_check:
            key = read_mask_key(self._task.mask_key_file)
            if key.check != given.key_check:
                raise ReplayError(
                    f"{self._task.mask_key_file} holds another key than the publisher's: hashes would be other ones",
                    flow=self._task.flow,
                    hint="copy the publisher's file to where Spark's tasks run",
                )
        return Projection.parse(given.columns, given.mask, key)

    def _route(self, opened: admin_pb2.OpenedReplay) -> Route:
        task, forwarding, max_frame = self._task, None, self._task.max_frame
        if not opened.address:  # the subscriber dials the publisher
            forwarding = Forwarding(task.flow, task.replay, task.ticket, opened.epoch)
            max_frame = min(max_frame, MOST_FORWARDED_BYTES)
        hello = push_pb2.Hello(
            min_version=MIN_VERSION,
            max_version=MAX_VERSION,
            publisher=opened.publisher,
            dataset=opened.dataset,
            copy=opened.copy,
            log=opened.log,
            application=self._task.flow.partition("/")[0],
            subscriber=opened.subscriber,
            heartbeat_ms=round(self._task.heartbeat_s * 1000),
            max_frame_bytes=max_frame,
        )
        marker = marker_from_message(opened.marker)
        counted_to = position_from_message(opened.counted_to) if opened.HasField("counted_to") else None
        return Route(
            hello,
            opened.address or task.publisher.address,
            opened.epoch,
            marker,
            tuple(opened.skip),
            self._trust,
            counted_to,
            opened.park,
            rows_from_messages(opened.parked),
            opened.rewound,
            opened.move,
            opened.acknowledged,
            ack_from_message(opened.last_ack),
            forwarding,
            task.publisher.tls_name,
        )
