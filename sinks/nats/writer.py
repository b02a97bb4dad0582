"""Publishes the records of each shard, in order.

A message that the server loses or refuses must not be followed by a later one. So messages are published as a batch
that is stored whole or not at all, where the stream allows it, and one after another where it does not, or refuses the
batch. Then each message gets its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from sinks.nats.connection import Connected, Message, Servers, TooLarge
from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import Subjects
from sinks.records import Record, RecordRefused, RecordWriter
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice
from wormhole.model.errors import TargetUnavailable
from wormhole.model.units import format_size

__all__ = ["NatsWriter"]

_MOST: Final = 1000  # messages of a batch; a server refuses more
_BYTES: Final = 1 << 20
_AT_ONCE: Final = 8  # a stream refuses more than 50 of all its clients
_LONGEST_SUBJECT: Final = 1024  # a server ends the connection at 4096 bytes of subjects and lengths
_LONGEST_S: Final = 20.0  # the SDK ends a callback after 30 s
_MOST_KNOWN: Final = 50_000


@dataclass(slots=True)
class _Shard:
    """``prefix``: of the ids of messages. ``last``: the highest number in the stream of a record since delivery began.
    ``known``: the numbers of records since the last datamarker, by id: all or the first ones.
    """

    subjects: Subjects
    prefix: str
    epoch: int
    last: int = 0
    known: dict[str, int] = field(default_factory=dict)


class NatsWriter(RecordWriter):
    """See the port."""

    def __init__(self, stream: str, settings: NatsSettings, servers: Servers) -> None:
        self._stream = stream
        self._settings = settings
        self._servers = servers
        self._shards: dict[str, _Shard] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Connect, and begin an epoch."""
        await self._servers.connected()
        # An id is compared with those of all messages of the stream. An operator who moves the datamarker back wants
        # the updates once more.
        names = (notice.application, notice.dataset, notice.shard, str(notice.move))
        prefix = "/".join(quote(name, safe="") for name in names)
        subjects = Subjects(self._settings.subject, stream=self._stream, dataset=notice.dataset, log=notice.log)
        former = self._shards.get(notice.shard)
        shard = self._shards[notice.shard] = _Shard(subjects, prefix, notice.epoch)
        if former is not None and (former.prefix, former.epoch + 1) == (prefix, notice.epoch):
            shard.known = former.known  # nothing else had the shard in between
        return None

    async def rolled_back(self, shard: str) -> None:
        """Records come again, from the last datamarker on."""
        self._shards[shard].last = 0

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Publish the records."""
        state = self._shards[shard]
        until = asyncio.get_running_loop().time() + _LONGEST_S
        async with self._at_once:
            connected = await self._servers.connected()
            for portion in _portions(_unknown(state, records)):
                messages = [self._message(state, record, connected) for record in portion]
                if len(messages) > 1 and connected.info.config.allow_atomic:
                    last = await connected.publish_together(messages)
                    if last is not None:
                        for number, record in enumerate(portion, last - len(portion) + 1):
                            _stored(state, record, number)
                        continue
                for record, message in zip(portion, messages, strict=True):
                    _stored(state, record, await self._publish(state, connected, record, message))
                    if asyncio.get_running_loop().time() > until:
                        raise TargetUnavailable(
                            f"stream {self._stream} takes records slowly: the rest follows in another attempt",
                            hint="allow atomic batches (allow_atomic) in the stream",
                        )

    async def marked(self, marker: Datamarker) -> None:
        """Nothing before ``marker`` comes again, unless the acknowledgement is lost."""
        self._shards[marker.shard].known.clear()

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
            # The stream still knows this record, and no longer the one before, which it has stored again behind this
            # one. Dropped, it would leave an earlier state of its row as the last one.
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


def _unknown(state: _Shard, records: Sequence[Record]) -> list[Record]:
    """The records without those at the beginning that this process knows to be stored, and without tombstones."""
    rest = [record for record in records if record.value is not None]
    for at, record in enumerate(rest):
        number = state.known.get(record.id, 0)
        if number <= state.last:
            return rest[at:]
        state.last = number
    return []


def _stored(state: _Shard, record: Record, number: int) -> None:
    state.last = number
    if len(state.known) < _MOST_KNOWN:
        state.known[record.id] = number


def _portions(records: Sequence[Record]) -> Iterator[list[Record]]:
    portion: list[Record] = []
    size = 0
    for record in records:
        if portion and (len(portion) == _MOST or size + record.size > _BYTES):
            yield portion
            portion, size = [], 0
        portion.append(record)
        size += record.size
    if portion:
        yield portion


def _too_large(record: Record, size: int, most: int) -> RecordRefused:
    return RecordRefused(
        record,
        f"it has about {format_size(size)}, and the limit there is {format_size(most)}",
        hint="raise max_payload of the server, or max_msg_size of the stream",
    )
