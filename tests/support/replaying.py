"""A mass replay by hand: asks a publisher for one flow as a driver and its tasks do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.eventually import patience
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import DeadLetter, Parcel
from wormhole.push.parking import park_frames
from wormhole.wire.markers import marker_from_message, marker_to_message
from wormhole.wire.v1 import admin_pb2

_ASKS_S = 0.02


class ReplayClient:
    """``ask`` carries a request to the publisher, and raises what that refuses.

    ``ticket``, ``epoch`` and ``marker``: as it was told last."""

    def __init__(
        self,
        ask: Callable[[admin_pb2.ReplayRequest], Awaitable[admin_pb2.ReplayReply]],
        flow: str,
        replay: str = "r1",
        lease_s: float = 0,
    ) -> None:
        self._lease_s = lease_s
        self._ask = ask
        self.flow = flow
        self.replay = replay
        self.ticket = ""
        self.epoch = 0
        self.marker: Datamarker | None = None

    def _request(self) -> admin_pb2.ReplayRequest:
        return admin_pb2.ReplayRequest(flow=self.flow, replay=self.replay, ticket=self.ticket)

    async def begin(
        self,
        *,
        begin: Datamarker | None = None,
        until: Datamarker | None = None,
        mode: admin_pb2.ReplayMode = admin_pb2.LOG,
        lease_s: float | None = None,
        preview: bool = False,
        who: str = "maria@ops",
        resumes: float = 0.0,
    ) -> admin_pb2.ReplayReply:
        asked = self._request()
        asked.begin.CopyFrom(admin_pb2.BeginReplay(who=who, preview=preview, mode=mode, resumes=resumes))
        asked.begin.lease_s = self._lease_s if lease_s is None else lease_s
        if begin is not None:
            asked.begin.begin.CopyFrom(marker_to_message(begin))
        if until is not None:
            asked.begin.until.CopyFrom(marker_to_message(until))
        reply = await self._ask(asked)
        self.ticket = reply.ticket
        return reply

    async def tries_to_open(
        self, *, parks: bool = True, projects: bool = True, above: int = 0
    ) -> admin_pb2.ReplayReply:
        """Ask once.

        ``parks``, ``projects``: as a task that knows of parked updates, of columns that are not sent; ``above``: the
        epoch that its subscriber holds."""
        asked = self._request()
        asked.open.CopyFrom(admin_pb2.OpenReplay(parks=parks, projects=projects, opener="task", above=above))
        reply = await self._ask(asked)
        if reply.HasField("opened"):
            self.epoch = reply.opened.epoch
            self.marker = marker_from_message(reply.opened.marker)
        return reply

    async def opens(self) -> admin_pb2.OpenedReplay:
        """Ask until it is open."""
        async with patience():
            while not (reply := await self.tries_to_open()).HasField("opened"):  # noqa: ASYNC110 - as a driver asks
                await asyncio.sleep(_ASKS_S)
        return reply.opened

    async def advances(
        self,
        marker: Datamarker | None = None,
        *,
        progress: bytes = b"",
        updates: int = 0,
        size: int = 0,
        settled: admin_pb2.Settled | None = None,
    ) -> admin_pb2.ReplayReply:
        asked = self._request()
        asked.advance.CopyFrom(
            admin_pb2.AdvanceReplay(epoch=self.epoch, progress=progress, updates=updates, bytes=size, settled=settled)
        )
        if marker is not None:
            asked.advance.marker.CopyFrom(marker_to_message(marker))
        return await self._ask(asked)

    async def parks(self, letter: DeadLetter, parcel: Parcel, *, piece: int = 1 << 20) -> str:
        """Have an update parked, its body in requests of ``piece`` bytes; why it is refused."""
        refused = ""
        for frame in park_frames(letter.id, parcel, letter.place, letter.error, piece):
            asked = self._request()
            asked.park.CopyFrom(admin_pb2.ParkReplay(epoch=self.epoch, park=frame))
            refused = (await self._ask(asked)).refused
        return refused

    async def renews(self, rate: float | None = None) -> admin_pb2.ReplayReply:
        """``rate``: as a driver grants it; ``None``: as a task asks."""
        asked = self._request()
        asked.renew.CopyFrom(admin_pb2.RenewReplay(rate=rate))
        return await self._ask(asked)

    async def finishes(self, marker: Datamarker, *, accept_gap: bool = False) -> admin_pb2.ReplayReply:
        asked = self._request()
        asked.finish.CopyFrom(
            admin_pb2.FinishReplay(epoch=self.epoch, marker=marker_to_message(marker), accept_gap=accept_gap)
        )
        return await self._ask(asked)

    async def cancels(self, *, as_operator: bool = False) -> admin_pb2.ReplayReply:
        asked = self._request()
        asked.cancel.who = "maria@ops"
        if as_operator:
            asked.ticket = ""
        return await self._ask(asked)
