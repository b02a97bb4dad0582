"""Observations, with which ``wormholectl subscribe`` shows an operator the updates that an application receives.

An observation has its own flows, which read the buffer of the lead caravan. The fleet does not know these flows: it
reads and keeps no log for them, moves no shard, and stores nothing. An observation that reads too slowly loses its
place in the buffer and ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from caravan.buffer import ChangeBuffer
from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, Piece
from publisher.push.attached import AttachedLine
from publisher.push.messages import Messages
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.host.waiting import cancel_all, wait_at_most
from wormhole.model.errors import ProtocolError, Retryable, StreamBroken, WormholeError
from wormhole.model.position import Datamarker
from wormhole.push.attaching import Attaching
from wormhole.push.session import PushFlow, PushSession
from wormhole.wire.v1 import push_pb2

__all__ = ["Observers"]

_MOST: Final = 8
_ROUND: Final = 1 << 20  # bytes that are collected before they are written
_TICK_S: Final = 0.25


class Observers:
    """See the module. ``wanted``: returns the filter of a served application, or ``None``. ``may_send``: returns
    whether the publisher owns its log.
    """

    def __init__(
        self,
        hello: push_pb2.Hello,
        fleet: Fleet,
        wanted: Callable[[str], Filter | None],
        may_send: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._hello = hello
        self._fleet = fleet
        self._wanted = wanted
        self._may_send = may_send
        self._clock = clock
        self._advanced: set[asyncio.Event] = set()

    def advanced(self) -> None:
        """Wake all observations, because a caravan read a segment."""
        for event in self._advanced:
            event.set()

    async def observe(self, who: Attaching, line: AttachedLine) -> None:
        """Send the application's updates from now on, for ``who.observes`` seconds. Raises
        :class:`~wormhole.model.errors.WormholeError` if the observation cannot begin, or has to end earlier.
        """
        if not who.observes:
            raise ProtocolError("metadata wormhole-observe is missing: for how many seconds")
        wanted = self._wanted(who.application)
        if wanted is None or self._fleet.lead is None or not self._may_send():
            raise Retryable(
                f"this publisher serves no log to {who.application} just now",
                hint="dial the publisher that owns the log (`wormholectl publishers`)",
                code="stands-by",
            )
        if len(self._advanced) >= _MOST:
            raise Retryable(f"{_MOST} observations are open already", hint="end one of them")
        hello = push_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.application, hello.subscriber = who.application, who.subscriber
        observation = _Observation(hello, wanted, self._fleet, self._clock)
        event = asyncio.Event()
        self._advanced.add(event)
        sending = asyncio.create_task(self._send(observation, event, line.write))
        refused = asyncio.ensure_future(line.until_refused())
        try:
            await asyncio.wait([sending, refused], timeout=who.observes, return_when=asyncio.FIRST_COMPLETED)
            for one in (refused, sending):
                if one.done():
                    one.result()
        finally:
            self._advanced.discard(event)
            await cancel_all(sending, refused)

    async def _send(
        self, observation: _Observation, event: asyncio.Event, write: Callable[[bytes], Awaitable[object]]
    ) -> None:
        heartbeat_s = self._hello.heartbeat_ms / 1000
        await write(observation.session.start())
        sent_at = self._clock.monotonic()
        while True:
            event.clear()
            if not self._may_send():
                raise StreamBroken("the publisher does not own the log any more", code="owner-elsewhere")
            now = self._clock.monotonic()
            messages = list(observation.messages(now))
            if not messages and now - sent_at >= heartbeat_s:
                messages = [observation.session.heartbeat()]
            for message in messages:
                await write(message)
                sent_at = now
            if not observation.more:
                await wait_at_most(event, _TICK_S)


class _Observation:
    """One observation. ``more``: whether the next round can begin immediately."""

    def __init__(self, hello: push_pb2.Hello, wanted: Filter, fleet: Fleet, clock: Clock) -> None:
        self.session = PushSession(hello)
        self.more = False
        self._application = hello.application
        self._filter = wanted
        self._fleet = fleet
        self._clock = clock
        self._buffer: ChangeBuffer | None = None
        self._next = 0  # the number of the first segment whose shards are not added yet
        self._begin: Datamarker  # the place at which the flow of a new shard begins
        self._flows: dict[str, tuple[PushFlow, CaravanFlow]] = {}

    def messages(self, now: float) -> Iterator[bytes]:
        """The messages with the updates that were read since the last call, at most one round."""
        out = Messages(self.session.max_frame_bytes)
        lead = self._fleet.lead
        self.more = False
        if lead is not None and self._follow(lead.buffer, lead.marker):
            for shard in self._shards(lead.buffer):
                self._add(shard, lead.buffer, now, out)
            self._next, self._begin = lead.buffer.end, lead.marker
            for push, flow in self._flows.values():
                if flow.cursor is None or flow.cursor < lead.buffer.first:
                    raise self._late()
                self._take(push, flow, out)
        return out.take()

    def _follow(self, buffer: ChangeBuffer, marker: Datamarker) -> bool:
        """Read ``buffer`` from now on. Returns whether that is possible now."""
        if buffer is self._buffer:
            return True
        if self._buffer is None:
            if buffer.inside:
                return False  # an observation begins between transactions
            self._next, self._begin = buffer.end, marker
        else:
            places = {shard: buffer.join(flow.place) for shard, (_, flow) in self._flows.items()}
            begin = buffer.join(self._begin.order)
            if begin is None or None in places.values():
                raise self._late()
            self._next = begin
            for shard, cursor in places.items():
                assert cursor is not None
                self._flows[shard][1].board(buffer, cursor)
        self._buffer = buffer
        return True

    def _shards(self, buffer: ChangeBuffer) -> list[str]:
        """The shards of segments that the observation has not seen yet."""
        if self._next < buffer.first:
            raise self._late()
        numbers = range(self._next, buffer.end)
        return list(dict.fromkeys(shard for number in numbers for shard in buffer.segment(number).runs))

    def _add(self, shard: str, buffer: ChangeBuffer, now: float, out: Messages) -> None:
        if shard in self._flows:
            return
        flow = CaravanFlow(self._application, shard, self._filter, self._begin, 0, lambda: None)
        flow.board(buffer, self._next)
        push, frame = self.session.assign(self._application, shard, 0, self._begin, None, now)
        self._flows[shard] = push, flow
        out.add(frame)

    def _take(self, push: PushFlow, flow: CaravanFlow, out: Messages) -> None:
        while (piece := flow.peek()) is not None:
            if out.bytes >= _ROUND:
                self.more = True
                return
            if why := _why_it_ends(piece):
                raise StreamBroken(f"{why[0]}, at {flow.place}", code=why[1])
            if (body := piece.body) is not None:
                for schema in self.session.schemas(body.schemas):
                    out.add(schema)
                for frame in self.session.batch(push, body.pieces, flow.place, unfinished=body.unfinished):
                    out.add(*frame)
            flow.take()

    def _late(self) -> WormholeError:
        place = min((flow.place for _, flow in self._flows.values()), default=self._begin.order)
        return StreamBroken(
            f"it was read too slowly: what was committed after {place} is not in memory any more",
            hint="select less with --filter or --table, or send the output to a file",
        )


def _why_it_ends(piece: Piece) -> tuple[str, str] | None:
    """The reason and its code why the observation ends at ``piece``; ``None`` if it continues. The application's flow
    would wait there for a decision."""
    if piece.broken is not None:
        return piece.broken.message, piece.broken.code
    if piece.gap is not None:
        return f"log is missing: {piece.gap.message}", "data-lost"
    if piece.undone:
        return f"transaction {piece.undone} was rolled back after a part of it was sent", "transaction-rolled-back"
    return None
