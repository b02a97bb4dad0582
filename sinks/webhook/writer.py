"""Sends the records of each shard, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sinks.records import Record, RecordRefused, RecordWriter
from sinks.webhook.message import Origin, message, portions
from sinks.webhook.receiver import Receiver
from sinks.webhook.settings import WebhookSettings
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from wormhole.model.errors import TargetUnavailable

__all__ = ["WebhookWriter"]

_CALL_S: Final = 28.0  # a call may take it; the SDK cancels a callback after 30 s, and counts that as an attempt
_MOST_CONFIRMED: Final = 100_000  # ids, all shards together


@dataclass(slots=True)
class _Shard:
    """``most_bytes``: of a request. ``confirmed``: ids of records that the receiver accepted since the last marker."""

    origin: Origin
    most_bytes: int
    confirmed: set[str] = field(default_factory=set)


class WebhookWriter(RecordWriter):
    """See the port.

    Where a receiver is too slow for all records of a call, they come again: what it accepted is then left out. So a
    large transaction makes progress.
    """

    def __init__(self, application: str, settings: WebhookSettings, receiver: Receiver) -> None:
        self._application = application
        self._receiver = receiver
        self._most = settings.batch_records
        self._most_bytes = settings.batch_size
        self._call_s = _CALL_S - settings.timeout
        self._shards: dict[str, _Shard] = {}

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch begins."""
        origin = Origin(self._application, notice.shard, notice.epoch, notice.move)
        former = self._shards.get(notice.shard)
        shard = self._shards[notice.shard] = _Shard(origin, self._most_bytes)
        # Without an epoch between them no other process has sent older records since.
        if former is not None and (former.origin.epoch + 1, former.origin.move) == (notice.epoch, notice.move):
            shard.confirmed = former.confirmed
        return None

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Send the records."""
        state = self._shards[shard]
        latest = asyncio.get_running_loop().time() + self._call_s
        left = [record for record in records if record.id not in state.confirmed]
        for portion in portions(left, self._most, state.most_bytes):
            await self._send(state, portion, latest)

    async def marked(self, marker: Datamarker) -> None:
        """What was confirmed is not sent again."""
        self._shards[marker.shard].confirmed.clear()

    async def _send(self, shard: _Shard, records: Sequence[Record], latest: float) -> None:
        if asyncio.get_running_loop().time() > latest:
            raise TargetUnavailable(f"{self._receiver.name} is slow: {len(records)} records and more are left")
        status = await self._receiver.post(message(shard.origin, records), latest)
        if not status:
            if sum(len(one.confirmed) for one in self._shards.values()) < _MOST_CONFIRMED:
                shard.confirmed.update(record.id for record in records)
        elif len(records) == 1:
            raise RecordRefused(
                records[0], f"{self._receiver.name} answers {status}", hint="the receiver's log says what it refuses"
            )
        else:
            half = len(records) // 2
            if status == 413:
                shard.most_bytes = sum(record.size for record in records) // 2
            await self._send(shard, records[:half], latest)
            await self._send(shard, records[half:], latest)
