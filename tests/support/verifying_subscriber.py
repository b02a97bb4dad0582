"""A scripted subscriber that keeps a copy and compares it with the rows that it is sent, as the SDK does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.copying_subscriber import CopyingSubscriber, running_copy
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.values import Op
from wormhole.wire.rows import encode_key
from wormhole.wire.update import Update
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["VerifyingSubscriber", "verifying_subscriber"]

_Verified = push_pb2.Verified
_IN_FRAME = 500


class VerifyingSubscriber(CopyingSubscriber):
    """``delivered``: keys of READ updates that the application was given; ``removed``: keys that it was told are gone.

    ``extra``: keys that are reported as extra beside those that it holds; ``lists``: cleared, it lists no keys yet,
    and acknowledges what comes.
    """

    def __init__(self, wire: Any) -> None:
        super().__init__(wire)
        wire.verifies = True
        self.verify = push_pb2.VERIFY_NONE
        self.assigns: list[push_pb2.Assign] = []
        self.delivered: list[Any] = []
        self.removed: list[Any] = []
        self.extra: list[tuple[Any, ...]] = []
        self.compared = 0
        self.lists = asyncio.Event()
        self.lists.set()
        self._later: list[push_pb2.ScanEnd] = []
        self._known: dict[str, set[Any]] = {}
        self._named: set[Any] = set()

    async def list_now(self) -> None:
        """What was not listed yet is."""
        self.lists.set()
        for end in self._later:
            await self._list(end)
        self._later.clear()

    def holds(self, table: str, key: Any, row: dict[str, Any]) -> None:
        """The application has this row, whatever was delivered."""
        self.rows.setdefault(table, {})[key] = 0, row

    async def _process(self, frame: push_pb2.PublisherFrame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "assign":
            self.assigns.append(frame.assign)
            self.verify = frame.assign.verify
            self._known, self._named = {}, set()
        if self.verify == push_pb2.VERIFY_NONE:
            await super()._process(frame)
            return
        match kind:
            case "batch":
                self.frames.append("batch")
                await self._compare(frame)
                await self.takes.wait()
                await self.wire.processed(frame)
            case "chunk_end":
                self.frames.append("chunk_end")
                self.chunk_ends.append(frame.chunk_end)
                await self._gone(frame.chunk_end)
            case "scan_end":
                self.frames.append("scan_end")
                self.ends.append(frame.scan_end)
                if self.lists.is_set():
                    await self._list(frame.scan_end)
                else:
                    self._later.append(frame.scan_end)
            case _:
                await super()._process(frame)

    async def _compare(self, frame: push_pb2.PublisherFrame) -> None:
        found: dict[str, _Verified] = {}
        for update in self.wire.updates(frame):
            known, rows = self._known.setdefault(update.table, set()), self.rows.setdefault(update.table, {})
            if update.op is Op.READ:
                known.add(update.key)
                self._compare_row(
                    update,
                    found.setdefault(
                        update.table, _Verified(flow=frame.batch.flow, epoch=frame.batch.epoch, table=update.table)
                    ),
                )
            elif update.op is Op.DELETE:
                known.discard(update.key)
                rows.pop(update.key, None)
            else:
                known.add(update.key)
                rows[update.key] = self.generation, dict(update.after or {})
        for verified in found.values():
            await self.wire.says(verified=verified)

    def _compare_row(self, update: Update, found: _Verified) -> None:
        self.compared += 1
        found.compared += 1
        rows = self.rows[update.table]
        row = dict(update.after or {})
        held = rows.get(update.key)
        if held is None:
            found.missing += 1
            _name(found, push_pb2.Difference.MISSING, update.key)
        elif held[1] != row:
            found.differs += 1
            _name(found, push_pb2.Difference.DIFFERS, update.key, *(n for n in row if held[1].get(n) != row[n]))
        else:
            return
        if self.verify == push_pb2.VERIFY_REPAIR:
            self.delivered.append(update.key)
            rows[update.key] = self.generation, row
            found.repaired += 1

    async def _gone(self, end: push_pb2.ChunkEnd) -> None:
        table = self.wire._schemas[end.schema].table
        for row in end.alone:
            key = tuple(getattr(value, value.WhichOneof("kind") or "") for value in row.values)
            if key in self._named and key not in self._known[table]:
                self.removed.append(key)
                self.rows[table].pop(key, None)
                await self.wire.says(verified=_Verified(flow=end.flow, epoch=end.epoch, table=table, removed=1))

    async def _list(self, end: push_pb2.ScanEnd) -> None:
        again = bool(self._named)
        known = self._known.setdefault(end.table, set())
        found = _Verified(flow=end.flow, epoch=end.epoch, table=end.table)
        if not again:
            for key in [*sorted(self.rows.get(end.table, {}).keys() - known), *self.extra]:
                self._named.add(key)
                found.extra += 1
                _name(found, push_pb2.Difference.EXTRA, key)
                if len(found.differences) >= _IN_FRAME:
                    await self.wire.says(verified=found)
                    found = _Verified(flow=end.flow, epoch=end.epoch, table=end.table)
        found.confirm = self.verify == push_pb2.VERIFY_REPAIR and bool(self._named) and not again
        found.ended = not found.confirm
        await self.wire.says(verified=found)


def _name(found: _Verified, kind: push_pb2.Difference.Kind, key: Any, *columns: str) -> None:
    row = update_pb2.RowKey.FromString(encode_key(key))
    found.differences.add(kind=kind, key=row, columns=columns)


@asynccontextmanager
async def verifying_subscriber(application: str, name: str) -> AsyncIterator[VerifyingSubscriber]:
    """A running one."""
    async with scripted_subscriber(application, name) as wire, running_copy(VerifyingSubscriber(wire)) as copy:
        yield copy
