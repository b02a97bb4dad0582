"""Sends the records of each shard, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sinks.records import Record, RecordRefused, RecordWriter
from sinks.webhook.message import Origin, message
from sinks.webhook.receiver import Receiver
from sinks.webhook.settings import WebhookSettings
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from wormhole.model.errors import TargetUnavailable

__all__ = ["WebhookWriter"]

_SEARCH_S: Final = 1.5  # with a pause, a last request and the time of a callback, the sum is below 30 s


class WebhookWriter(RecordWriter):
    """See the port."""

    keeps = True

    def __init__(self, application: str, settings: WebhookSettings, receiver: Receiver) -> None:
        self._application = application
        self._receiver = receiver
        self._usual = settings.batch_records
        self._searched = ""  # the shard in which a refused record is searched
        self.most, self.most_bytes = settings.batch_records, settings.batch_size
        self._shards: dict[str, Origin] = {}

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch begins."""
        self._shards[notice.shard] = Origin(self._application, notice.shard, notice.epoch, notice.move)
        return None

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Send the records as one request. If the receiver refuses its content, find the refused record."""
        await self._send(shard, records, asyncio.get_running_loop().time())

    async def marked(self, marker: Datamarker) -> None:
        """End the search for a refused record, because no record before ``marker`` is refused."""
        if marker.shard == self._searched:
            self.most = self._usual

    async def _send(self, shard: str, records: Sequence[Record], began: float) -> None:
        status = await self._receiver.post(message(self._shards[shard], records))
        if not status:
            return
        if len(records) == 1:
            raise RecordRefused(
                records[0], f"{self._receiver.name} answers {status}", hint="the receiver's log shows what it refuses"
            )
        self._searched, self.most = shard, len(records) // 2
        if status == 413:
            self.most_bytes = sum(record.size for record in records) // 2
        for half in (records[: self.most], records[self.most :]):
            if asyncio.get_running_loop().time() > began + _SEARCH_S:
                raise TargetUnavailable(f"{self._receiver.name} is slow: smaller requests follow in another attempt")
            await self._send(shard, half, began)
