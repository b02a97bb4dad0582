"""Receives updates, and leaves out dead letters whose records are stored."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sinks.kafka.writer import KafkaWriter
from sinks.records import Envelope, RecordSubscriber
from sinks.records.held import Budget
from subscriber_sdk import KeptMarker, NoticeKind, ShardNotice, Update

__all__ = ["KafkaSubscriber"]


class KafkaSubscriber(RecordSubscriber):
    """Holds nothing, because Kafka aborts what is not complete."""

    def __init__(self, envelope: Envelope, writer: KafkaWriter) -> None:
        super().__init__(envelope, writer, Budget(sys.maxsize, 0))
        self._kafka = writer

    async def on_updates(self, batch: Sequence[Update]) -> None:
        """As in the base class."""
        if new := [update for update in batch if self._kafka.is_new(update)]:
            await super().on_updates(new)

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch begins or ends, or a replay does."""
        if notice.kind is NoticeKind.REPLAY_BEGIN:
            self._kafka.replaying(notice.shard)
        return await super().on_shard_notice(notice)
