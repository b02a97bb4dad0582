"""The subscribers that dial this publisher, and their connections (lines).

A subscriber is identified by application and id, and its process by ``instance``. A new connection of the same process
replaces its former connection. Another process with the same id is refused until the former process is gone. A process
is gone when it sent Goodbye, or when it has been away for so long that none of its handlers can still run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from wormhole.coordination.port import SubscriberInfo
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import Retryable, StreamBroken
from wormhole.push.attaching import Attaching

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate
    from wormhole.model.errors import WormholeError

__all__ = ["MOST_SUBSCRIBERS", "AttachedLine", "AttachedSubscribers"]

MOST_SUBSCRIBERS: Final = 1000
"""The most attached subscribers of one application. Each has a connection."""
_AGAIN: Final = "it dials again; if this repeats, look at the subscriber's log and at the network between"


class AttachedLine:
    """A :class:`~wormhole.push.line.Line` that the subscriber dialled. It is also the line's stream.

    ``peer``: the subscriber's address. ``until_refused``: waits until the subscriber may no longer be attached, and
    returns the reason. ``welcomed``: whether the subscriber's welcome arrived.
    """

    def __init__(
        self,
        requests: AsyncIterable[bytes],
        write: Callable[[bytes], Any],
        peer: str,
        certificate: Certificate | None,
        until_refused: Callable[[], Awaitable[WormholeError]],
    ) -> None:
        self.certificate = certificate
        self.peer = peer
        self.welcomed = False
        self._requests = requests
        self._write = write
        self._until_refused = until_refused
        self._over = asyncio.Event()

    def __aiter__(self) -> Any:
        return aiter(self._requests)

    async def write(self, message: bytes) -> None:
        """Send a message."""
        try:
            await self._write(message)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, RuntimeError) as error:
            raise StreamBroken(f"the connection from {self.peer} ended", hint=_AGAIN) from error

    async def open(self) -> AttachedLine:
        """The stream, which is open already."""
        return self

    async def check_peer(self) -> None:
        """Do nothing: the peer was checked before it was attached."""
        self.welcomed = True

    async def until_refused(self) -> None:
        """See :class:`~wormhole.push.line.Line`."""
        why = await self._until_refused()
        raise StreamBroken(why.message, hint=why.hint, code=why.code)

    async def why_ended(self, error: grpc.RpcError, *, welcomed: bool) -> StreamBroken:
        """See :class:`~wormhole.push.line.Line`."""
        return StreamBroken(f"the connection from {self.peer} ended", hint=_AGAIN)

    async def close(self) -> None:
        """End the subscriber's call."""
        self._over.set()

    async def over(self) -> None:
        """Wait until the line is closed."""
        await self._over.wait()


@dataclass(slots=True)
class _Attached:
    """One subscriber. ``line``: its connection, or ``None``. ``fresh``: set while no stream has taken that connection.
    ``lost_at``: when its last connection ended. ``left``: whether it sent Goodbye. ``spare``: the stream that it offers
    for a task of a mass replay, or ``None``; ``offered``: set while ``spare`` is available."""

    info: SubscriberInfo
    instance: str
    line: AttachedLine | None = None
    lost_at: float = 0.0
    left: bool = False
    fresh: asyncio.Event = field(default_factory=asyncio.Event)
    spare: AttachedLine | None = None
    offered: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, line: AttachedLine | None) -> AttachedLine | None:
        """Replace the spare stream. Returns the former one."""
        former, self.spare = self.spare, line
        (self.offered.clear if line is None else self.offered.set)()
        return former


class AttachedSubscribers:
    """See the module. Used on the event loop.

    ``gone_after``: seconds after a lost connection from which no handler of the subscriber can run. ``changed``: called
    with the name of an application when its attached subscribers changed. ``wanted``: set once an application has
    subscribers that dial. ``unfinished``: the number of connections that ended before the welcome.
    """

    def __init__(self, gone_after: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.changed: Callable[[str], None] = lambda application: None
        self.wanted = asyncio.Event()
        self.unfinished = 0
        self._gone_after = gone_after
        self._clock = clock
        self._known: dict[tuple[str, str], _Attached] = {}
        self._processes = 0  # numbers the processes, because their start times are not known here

    def of(self, application: str) -> tuple[SubscriberInfo, ...]:
        """The application's connected subscribers, sorted by id."""
        found = [one.info for one in self._known.values() if one.info.application == application and one.line]
        return tuple(sorted(found, key=lambda info: info.id))

    @property
    def connected(self) -> int:
        """The number of subscribers that are connected."""
        return sum(one.line is not None for one in self._known.values())

    async def attach(self, who: Attaching, line: AttachedLine) -> None:
        """Attach a subscriber that dialled. Returns when its line is closed.

        Raises :class:`~wormhole.model.errors.Retryable` while another process has its id.
        """
        key = who.application, who.subscriber
        known = self._known.get(key)
        if known is None or known.instance != who.instance:
            known = self._known_anew(key, who)
        former, known.line, known.left = known.line, line, False
        known.fresh.set()
        if former is not None:
            await former.close()
        self.changed(who.application)
        try:
            await line.over()
        finally:
            self.unfinished += not line.welcomed
            await line.close()
            if known.line is line:
                known.line, known.lost_at = None, self._clock.monotonic()
                known.fresh.clear()
                self.changed(who.application)

    async def offer(self, who: Attaching, line: AttachedLine) -> None:
        """Keep the line for a task of a mass replay. Returns when the line is closed."""
        known = self._known.get((who.application, who.subscriber))
        if known is None or known.instance != who.instance or known.line is None:
            raise Retryable(
                f"{who.application}/{who.subscriber} offers a stream for a replay, and is not attached",
                hint="nothing to do: it attaches first",
                code="in-progress",
            )
        if (former := known.offer(line)) is not None:
            await former.close()
        try:
            await line.over()
        finally:
            await line.close()
            if known.spare is line:
                known.offer(None)

    def offers(self, info: SubscriberInfo) -> bool:
        """Whether the subscriber offers a stream for the task of a mass replay now."""
        known = self._known.get((info.application, info.id))
        return known is not None and known.info == info and known.spare is not None

    async def spare(self, info: SubscriberInfo) -> AttachedLine:
        """Wait for the next stream that the subscriber's process offers for a task of a mass replay, and take it."""
        known = await self._present(info)
        while True:
            await known.offered.wait()
            if (line := known.offer(None)) is not None:
                return line

    async def _present(self, info: SubscriberInfo) -> _Attached:
        known = self._known.get((info.application, info.id))
        if known is None or known.info != info:
            await asyncio.Event().wait()  # this process never dials again
        assert known is not None
        return known

    def _known_anew(self, key: tuple[str, str], who: Attaching) -> _Attached:
        """Add a process that was not attached before, and remove processes that are gone."""
        self._known = {name: one for name, one in self._known.items() if not self._is_gone(one)}
        if key in self._known:
            raise self._not_gone(self._known[key])
        if sum(one.info.application == who.application for one in self._known.values()) >= MOST_SUBSCRIBERS:
            raise Retryable(
                f"{who.application} has {MOST_SUBSCRIBERS} subscribers, with those that may still run a handler",
                hint="run fewer of them, and give each the same id (WORMHOLE_ID) when it starts again",
            )
        self._processes += 1
        info = SubscriberInfo(who.application, who.subscriber, "", who.weight, self._processes, process=who.instance)
        known = self._known[key] = _Attached(info, who.instance)
        return known

    def _is_gone(self, known: _Attached) -> bool:
        away = known.line is None and self._clock.monotonic() - known.lost_at > self._gone_after
        return away or (known.left and known.line is None)

    def _not_gone(self, known: _Attached) -> Retryable:
        name = f"{known.info.application}/{known.info.id}"
        if known.line is not None:
            return Retryable(
                f"{name} is attached already, from {known.line.peer}",
                hint="give each process an id of its own (WORMHOLE_ID), or leave the id out",
                code="address-taken",
            )
        left = known.lost_at + self._gone_after - self._clock.monotonic()
        return Retryable(
            f"the process that had the id {name} lost its connection, and a handler of it may run for {left:.0f} s",
            hint="nothing to do: a retry follows; a subscriber that is stopped by SIGTERM leaves at once",
            code="in-progress",
        )

    async def line(self, info: SubscriberInfo) -> AttachedLine:
        """Wait for the next connection of the subscriber's process."""
        known = await self._present(info)
        while True:
            await known.fresh.wait()
            known.fresh.clear()
            if known.line is not None:  # the new line may be lost already
                return known.line

    def left(self, info: SubscriberInfo) -> None:
        """Note that the subscriber sent Goodbye."""
        known = self._known.get((info.application, info.id))
        if known is not None and known.info == info:
            known.left = True
