"""Publishes the records of each shard, in order.

A message that the server loses or refuses must not be followed by a later message. So messages are published in atomic
batches if the stream allows them. Otherwise, or if the stream refuses a batch, messages are published one after
another, and each waits for its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from sinks.nats.connection import Connected, Message, Servers, TooLarge
from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import Subjects
from sinks.records import Record, RecordRefused, RecordWriter
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from wormhole.model.errors import TargetRefused
from wormhole.model.position import LogPosition
from wormhole.model.units import format_size, rounded_size

__all__ = ["NatsWriter"]

_AT_ONCE: Final = 8  # batches at the same time; a stream refuses more than 50 from all its clients together
_LONGEST_SUBJECT: Final = 1024  # bytes; a server ends the connection at 4096 bytes of subjects and lengths
_TOGETHER: Final = 1000  # the most messages of a batch; a server refuses more
_ONE_BY_ONE: Final = 100  # the most messages of one call that are published one after another


@dataclass(slots=True)
class _Shard:
    """The state of one shard. Numbers are sequence numbers in the stream. ``prefix``: the prefix of message ids.
    ``last``: the number of the last record since delivery began. ``kept``: the number of the last confirmed record
    since the datamarker ``begin``, which is not sent again; 0: there is none. ``highest``: the highest one confirmed.
    """

    subjects: Subjects
    prefix: str
    epoch: int
    begin: LogPosition | None
    last: int = 0
    kept: int = 0
    highest: int = 0


class NatsWriter(RecordWriter):
    """See the port."""

    keeps = True

    def __init__(self, stream: str, settings: NatsSettings, servers: Servers) -> None:
        self._stream = stream
        self._settings = settings
        self._servers = servers
        self._shards: dict[str, _Shard] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Connect, and begin an epoch."""
        connected = await self._servers.connected()
        self.most = _TOGETHER if connected.info.config.allow_atomic else _ONE_BY_ONE
        # The stream drops a message whose id it knows. So ids change when an operator moves the datamarker back, who
        # wants the updates once more.
        names = (notice.application, notice.dataset, notice.shard, str(notice.move))
        prefix = "/".join(quote(name, safe="") for name in names)
        subjects = Subjects(self._settings.subject, stream=self._stream, dataset=notice.dataset, log=notice.log)
        former = self._shards.pop(notice.shard, None)
        highest = former.highest if former is not None else 0
        if highest and (last := (await connected.look()).state.last_seq) < highest:
            raise TargetRefused(  # only once, because the operator resumes the flow afterwards
                f"stream {self._stream} of {self._settings.url} ends at {last}, and has confirmed {highest}",
                hint="an older copy was restored, or the stream was made again. What it lost is not published again: "
                "`wormholectl backfill start` delivers the existing rows. Then resume the flow",
            )
        begin = None if notice.marker is None else notice.marker.order
        shard = self._shards[notice.shard] = _Shard(subjects, prefix, notice.epoch, begin, highest=highest)
        if former is not None and (former.prefix, former.epoch + 1, former.begin) == (prefix, notice.epoch, begin):
            shard.last = shard.kept = former.kept  # no other process had the shard in between
        return None

    async def rolled_back(self, to: Datamarker, *, kept: bool) -> None:
        """Expect records again: from the last datamarker on, or if ``kept`` from the last confirmed record on."""
        state = self._shards[to.shard]
        state.last = state.kept = state.kept if kept else 0

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Publish the records."""
        state = self._shards[shard]
        records = [record for record in records if record.value is not None]
        try:
            await self._publish_all(state, records)
        except TargetRefused:
            state.highest = 0  # an operator has to examine the stream before the flow continues
            raise

    async def _publish_all(self, state: _Shard, records: Sequence[Record]) -> None:
        connected = await self._servers.connected()
        async with self._at_once:
            messages = [self._message(state, record, connected) for record in records]
            if len(messages) > 1 and connected.info.config.allow_atomic:
                last = await connected.publish_together(messages)
                if last is not None:
                    state.last = state.kept = state.highest = last
                    return
            for record, message in zip(records, messages, strict=True):
                state.last = await self._publish(state, connected, record, message)
            state.kept = state.highest = state.last

    async def marked(self, marker: Datamarker) -> None:
        """Note that no record before ``marker`` comes again, unless the acknowledgement is lost."""
        state = self._shards[marker.shard]
        state.kept, state.begin = 0, marker.order

    async def _publish(self, state: _Shard, connected: Connected, record: Record, message: Message) -> int:
        """Publish one message. Returns its number in the stream."""
        published, repeats = message, 0
        while True:
            try:
                answer = await connected.publish(published)
            except TooLarge as error:
                raise _too_large(record, message.size, connected.info.config.max_msg_size or 0) from error
            if not answer.duplicate or answer.seq > state.last:
                return answer.seq
            # The stream knows this record's id, but forgot the id of the record before, which it has stored again
            # behind this one. If this record were dropped, an earlier state of its row would be the last one.
            repeats += 1
            published = message.again(repeats)

    def _message(self, state: _Shard, record: Record, connected: Connected) -> Message:
        message = Message(state.subjects.of(record), f"{state.prefix}/{record.id}", record.value or b"")
        if message.size > connected.largest:
            raise _too_large(record, message.size, connected.largest)
        if len(message.subject) > _LONGEST_SUBJECT:
            raise RecordRefused(
                record,
                f"its subject has more than {_LONGEST_SUBJECT} bytes",
                hint="leave {key} out of subject of the sink" if self._settings.keys_in_subjects else None,
            )
        return message


def _too_large(record: Record, size: int, most: int) -> RecordRefused:
    return RecordRefused(
        record,
        f"it has about {rounded_size(size)}, and the limit there is {format_size(most)}",
        hint="raise max_payload of the server, or max_msg_size of the stream",
    )
