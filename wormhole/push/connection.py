"""Runs one connection to a subscriber: opens it, sends frames, passes on events, and closes it.

Publishers and the tasks of a mass replay use it. A line (:class:`~wormhole.push.line.Line`) opens it: it dials the
subscriber, or takes the stream of a subscriber that dialled. The session (:mod:`wormhole.push.session`) interprets the
frames. The owner decides what is sent, what follows from an event, and whether there is another connection.

The connection bounds the work that its subscriber can cause. An allowance (:mod:`wormhole.push.allowance`) paces the
reading. It is charged for the arrival of each message, and for its handling: the work that the session counts, or the
processor time if that is more. Updates to be parked are opened in separate threads (:mod:`wormhole.push.peer_threads`),
and the next frame is read after that.

A welcome has to arrive within three heartbeats, and after it some message within every three heartbeats. A breach of
the protocol ends the connection, and the subscriber is sent the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ProtocolError, StreamBroken
from wormhole.push.allowance import WORK_PER_S, TokenBucket, arrival_work
from wormhole.push.line import Line, PushCall
from wormhole.push.parking import open_letter
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.room import RoomFullError
from wormhole.push.session import Event, LetterArrived, ParkWanted, Parted, PushSession, Welcomed
from wormhole.wire.problems import code_of_goodbye
from wormhole.wire.v1 import push_pb2

__all__ = ["Connection", "Owner", "Refusal", "Traffic"]

_TICK_S: Final = 0.25
_GOODBYE_S: Final = 1.0
_SLICE: Final = 250  # work (`PushSession.work`) between two turns of the event loop


class Refusal(Enum):
    """The reason why a subscriber lost its connection."""

    PROTOCOL = "protocol"
    """The subscriber broke the protocol, or a bound of it (docs/wire.md)."""
    MEMORY = "memory"
    """The subscriber held the largest part of the memory for updates that are being parked, and the memory was full."""
    UNREAD = "unread"
    """The subscriber does not read the answers about the updates that it parks."""
    SILENT = "silent"
    """The subscriber connects and sends no welcome."""


@dataclass(slots=True)
class Traffic:
    """Counts of one subscriber, over all its connections.

    ``bytes``: the bytes of the messages written. ``refused``: how often it lost its connection by a fault of its own.
    ``rests``: how often reading was suspended because it had caused much work. ``reading_s``: processor seconds of the
    event loop for what the subscriber sent; ``threads_s``: processor seconds of other threads. ``charged``: what its
    allowance was charged for both, in microseconds.
    """

    connections: int = 0
    messages: int = 0
    batches: int = 0
    bytes: int = 0
    acks: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    rests: int = 0
    reading_s: float = 0.0
    threads_s: float = 0.0
    charged: float = 0.0


class Owner(Protocol):
    """The owner of a connection. It is called on the event loop and must not block."""

    def messages(self, now: float) -> Iterable[bytes]:
        """The messages to write now. Called after each :meth:`Connection.wake` and four times a second."""

    def received(self, event: Event) -> None:
        """An event, in the order of the frames. An exception ends the connection and is raised by its ``run``."""

    def closed(self, error: StreamBroken | None) -> None:
        """The connection was closed or refused: no further event is received from it."""


class Connection:
    """One connection, as the module describes it. A new connection is a new object.

    ``heard_at``: when the last message arrived. ``welcomed_at``: when the welcome arrived; 0: it did not. Both are
    seconds of ``clock``. ``refused``: it was ended by a fault of the subscriber. ``closed``: its owner, or a refusal,
    ended it. ``letters``: the threads in which updates to be parked are opened. ``identity``: the proven identity of
    the other end: the names of its certificate; without TLS the subscriber's id.
    """

    def __init__(
        self,
        session: PushSession,
        owner: Owner,
        allowance: TokenBucket,
        traffic: Traffic,
        letters: PeerThreads,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.session = session
        self.heard_at = self.welcomed_at = 0.0
        self.refused = self.closed = False
        self._owner = owner
        self._allowance = allowance
        self._traffic = traffic
        self._letters = letters
        self._clock = clock
        self._subscriber = self.identity = session.hello.subscriber
        self._heartbeat_s = session.hello.heartbeat_ms / 1000
        self._sent_at = 0.0
        self._owed = 0.0  # work that the allowance was not charged for yet
        self._began_s, self._began_work = 0.0, 0  # processor time and work when the loop turned to this subscriber
        self._call: PushCall = None
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None  # sets `_wake`
        self._ended = asyncio.Event()
        self._error: StreamBroken | None = None
        self._goodbye = b""

    def wake(self) -> None:
        """Wake the writer: there may be something to write."""
        self._wake.set()

    async def write(self, message: bytes) -> None:
        """Write a message after earlier writes have ended."""
        async with self._writing:  # a call carries one write at a time
            await self._call.write(message)
        self._sent_at = self._clock.monotonic()
        self._traffic.messages += 1
        self._traffic.bytes += len(message)

    def close(self, error: StreamBroken | None = None) -> None:
        """End the connection at once. ``error`` is what :meth:`run` raises; ``None``: it returns."""
        if not self.closed:
            self.closed, self._error = True, error
            self._ended.set()
            self._owner.closed(error)

    def refuse(self, error: ProtocolError, why: Refusal = Refusal.PROTOCOL) -> None:
        """End the connection at once, by a fault of the subscriber. The subscriber is sent the reason."""
        if self._call is not None and not self.closed:
            self.refused = True
            self._traffic.refused[why] += 1
            self._goodbye = self.session.goodbye(push_pb2.Goodbye.PROTOCOL, str(error))
            self.close(StreamBroken(error.message, hint=error.hint))

    async def run(self, line: Line, *works: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the line and serve it, until the connection ends or one of ``works`` returns or raises. ``works`` run
        meanwhile.

        Raises :class:`~wormhole.model.errors.StreamBroken` when the connection ended,
        :class:`~wormhole.model.errors.ProtocolError` when another server answers at the address, and what
        ``works`` and the owner raise.
        """
        tasks: list[asyncio.Task[Any]] = []
        try:
            self._call = await line.open()
            if line.certificate is not None:
                self.identity = f"certificate {', '.join(line.certificate.names)}"
            self.heard_at = self._clock.monotonic()
            await self.write(self.session.start())
            loops: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                self._ended.wait,
                partial(self._read, line),
                *works,
                self._write,
                self._until_silent,
                line.until_refused,
            ]
            tasks = [asyncio.create_task(loop(), name=f"stream-{self._subscriber}") for loop in loops]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._goodbye:
                await self._send_goodbye()
            if self._error is not None:
                raise self._error
            if not self.closed:
                # The reader's error has the reason. The later tasks only see that the stream is closed.
                next(task for task in tasks if task in done).result()
        except grpc.RpcError as error:
            raise await line.why_ended(error, welcomed=self.session.welcomed) from error
        except asyncio.InvalidStateError as error:
            raise StreamBroken("the subscriber closed the stream") from error
        finally:
            if self._tick is not None:
                self._tick.cancel()
            await cancel_all(*tasks)
            await line.close()

    async def _read(self, line: Line) -> None:
        session = self.session
        try:
            async for data in self._call:
                self.heard_at = self._clock.monotonic()
                self._owed += arrival_work(len(data))
                if self._owed >= _SLICE:  # a large message occupied the event loop already
                    await self._rest()
                self._turn_to()
                for event in session.receive(data):
                    match event:
                        case Welcomed():
                            await self._welcome(line)
                        case ParkWanted():
                            event = await self._opened(event)
                    if self.closed:
                        if isinstance(event, LetterArrived):
                            event.done()
                        return
                    if event is not None:
                        self._owner.received(event)
                    if isinstance(event, Parted):
                        parted = f"subscriber {self._subscriber} parted ({event.reason_name}): {event.message}"
                        raise StreamBroken(parted, hint=event.hint or None, code=code_of_goodbye(event.reason))
                    if session.work - self._began_work >= _SLICE:
                        self._turn_away()
                        await self._rest()
                        self._turn_to()
                self._turn_away()
                if self._owed:
                    await self._rest()
        except ProtocolError as error:
            self.refuse(error, Refusal.MEMORY if isinstance(error, RoomFullError) else Refusal.PROTOCOL)
            return
        raise StreamBroken("the subscriber closed the stream")

    def _turn_to(self) -> None:
        self._began_s, self._began_work = self._clock.processor(), self.session.work

    def _turn_away(self) -> None:
        """Add the work since :meth:`_turn_to` to what the allowance is charged next."""
        spent = self._clock.processor() - self._began_s
        self._traffic.reading_s += spent
        self._owed += max(self.session.work - self._began_work, spent * WORK_PER_S)

    async def _opened(self, wanted: ParkWanted) -> LetterArrived:
        """Open the update to be parked. No other frame of the subscriber is read meanwhile."""
        self._turn_away()
        arrived = wanted.arrived
        try:
            letter, parcel = await self._letters.run(
                self._subscriber, partial(open_letter, arrived, wanted.flow.name), self.charge
            )
        except BaseException:
            arrived.done()
            raise
        finally:
            self.heard_at = self._clock.monotonic()  # the subscriber was not read meanwhile
            self._turn_to()
        return LetterArrived(wanted.flow, letter, parcel, arrived.done)

    def charge(self, seconds: float) -> None:
        """Charge processor seconds that other threads, or tasks of the event loop, used for the subscriber."""
        self._traffic.threads_s += seconds
        self._owed += seconds * WORK_PER_S

    async def _welcome(self, line: Line) -> None:
        await line.check_peer()
        self.welcomed_at = self.heard_at
        self._traffic.connections += 1

    async def _rest(self) -> None:
        """Let other tasks run. A subscriber that caused much work is not read for a while. This time does not count as
        its silence.
        """
        now, work, self._owed = self._clock.monotonic(), self._owed, 0.0
        self._traffic.charged += work
        wait = self._allowance.wait_s(work, now)
        self._traffic.rests += wait > 0
        self.heard_at = now + wait
        if wait or work >= _SLICE:
            await self._clock.sleep(wait)

    async def _write(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            for message in self._owner.messages(now):
                await self.write(message)
            if not self._wake.is_set():
                await self._idle(self._sent_at + self._heartbeat_s - now)

    async def _idle(self, due_s: float) -> None:
        """Send the heartbeat if it is due, ``due_s`` seconds from now. Otherwise wait for something to write."""
        if due_s <= 0:
            await self.write(self.session.heartbeat())
            return
        if self._tick is None:  # one timer serves many messages: making one costs as much as a small message
            self._tick = asyncio.get_running_loop().call_later(min(due_s, _TICK_S), self._ticked)
        await self._wake.wait()

    def _ticked(self) -> None:
        self._tick = None
        self._wake.set()

    async def _until_silent(self) -> None:
        """Return when nothing was heard for three heartbeats.

        The writer cannot notice the silence, because a write to a frozen process waits for ever. Before a subscriber's
        welcome, its other messages do not count.
        """
        longest = 3 * self._heartbeat_s
        began = self.heard_at
        while True:
            since = self.heard_at if self.session.welcomed else began
            left = since + longest - self._clock.monotonic()
            if left <= 0:
                break
            await self._clock.sleep(left)
        if self.heard_at != began and not self.session.welcomed:
            self.refuse(ProtocolError(f"welcome: it did not come within {longest:g} s"), Refusal.SILENT)
        else:
            raise StreamBroken(f"nothing was heard for {longest:g} s")

    async def _send_goodbye(self) -> None:
        """Send the reason, if the subscriber still reads: a write may wait for ever."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.write(self._goodbye)
        except (TimeoutError, grpc.RpcError, asyncio.InvalidStateError):
            pass  # the subscriber is gone already, and `_error` has the reason
