"""A scripted subscriber that keeps a copy of the tables, each row with the generation that it was received in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.values import Op
from wormhole.wire.v1 import push_pb2

__all__ = ["CopyingSubscriber", "copying_subscriber", "running_copy"]

_Copy = TypeVar("_Copy", bound="CopyingSubscriber")

Row = tuple[int, dict[str, Any]]
"""The generation, and the columns."""


class CopyingSubscriber:
    """``rows``: by table and key. ``acks``: cleared, no datamarker is acknowledged; ``takes``: cleared, no callback
    returns. ``frames``: kinds of frames, in order. ``reads``: READ updates that came.
    """

    def __init__(self, wire: ScriptedSubscriber) -> None:
        self.wire = wire
        self.rows: dict[str, dict[Any, Row]] = {}
        self.generation = 0
        self.reads = 0
        self.frames: list[str] = []
        self.ends: list[push_pb2.ScanEnd] = []
        self.chunk_ends: list[push_pb2.ChunkEnd] = []
        self.acks, self.takes = asyncio.Event(), asyncio.Event()
        self.acks.set()
        self.takes.set()
        self.credit = 1 << 20

    def copy(self) -> dict[str, dict[Any, dict[str, Any]]]:
        """Without the generations."""
        return {table: {key: row for key, (_, row) in rows.items()} for table, rows in self.rows.items()}

    async def run(self) -> None:
        """Process what comes until it is cancelled."""
        while True:
            frame = await self.wire._received.get()
            connection = self.wire.connections
            try:
                await self._process(frame)
            except Exception:  # what is of a connection that ended meanwhile cannot be answered
                if self.wire.connections == connection and not self.wire._end.is_set():
                    raise

    async def live(self) -> None:
        """A publisher whose clock is fast hears of a subscriber that has nothing to say."""
        while True:
            await asyncio.sleep(0.2)
            if self.wire.connections:
                with suppress(Exception):  # the connection ended
                    await self.wire.says(heartbeat=push_pb2.Heartbeat(number=1))

    async def _process(self, frame: push_pb2.PublisherFrame) -> None:
        kind = frame.WhichOneof("kind") or ""
        self.frames.append(kind)
        match kind:
            case "assign":
                self.generation = frame.assign.generation
                await self.wire.accepts(frame, credit=self.credit)
            case "batch":
                self._apply(frame)
                await self.takes.wait()
                await self.wire.processed(frame)
            case "scan_end":
                self.ends.append(frame.scan_end)
                self._sweep(frame.scan_end)
            case "chunk_end":
                self.chunk_ends.append(frame.chunk_end)
            case "datamarker":
                await self.acks.wait()
                await self.wire.acks(frame)
            case "data_loss":
                loss = frame.data_loss
                decision = push_pb2.LossDecision(flow=loss.flow, epoch=loss.epoch, proceed=True)
                await self.wire.says(loss_decision=decision)
            case "revoke":
                revoke = frame.revoke
                await self.wire.says(released=push_pb2.Released(flow=revoke.flow, epoch=revoke.epoch))

    def _apply(self, frame: push_pb2.PublisherFrame) -> None:
        for update in self.wire.updates(frame):
            rows = self.rows.setdefault(update.table, {})
            self.reads += update.op is Op.READ
            if update.op is Op.DELETE:
                rows.pop(update.key, None)
            else:
                rows[update.key] = self.generation, dict(update.after or {})

    def _sweep(self, end: push_pb2.ScanEnd) -> None:
        rows = self.rows.get(end.table, {})
        for key in [key for key, (generation, _) in rows.items() if generation < end.generation]:
            del rows[key]


@asynccontextmanager
async def running_copy(copy: _Copy) -> AsyncIterator[_Copy]:
    """``copy`` processes what comes."""
    tasks = [asyncio.create_task(copy.run()), asyncio.create_task(copy.live())]
    try:
        yield copy
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def copying_subscriber(application: str, name: str) -> AsyncIterator[CopyingSubscriber]:
    """A running one."""
    async with scripted_subscriber(application, name) as wire, running_copy(CopyingSubscriber(wire)) as copy:
        yield copy
