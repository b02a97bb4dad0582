"""The record in a compacted topic that stores a shard's datamarker, and the function that reads it."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from subscriber_sdk.transactional.marker_row import MarkerRow
from wormhole.model.errors import TargetUnavailable

__all__ = ["PARTITION", "MarkerRecord", "last_value"]

PARTITION: Final = 0
"""The partition of all these records, so that a change of the number of partitions hides no record."""

_FORM: Final = 1
_SPAN: Final = 1000
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class MarkerRecord:
    """The stored state of a shard: its marker row, as in a database's table, and the number of partitions of each topic
    to which the shard writes.
    """

    row: MarkerRow
    partitions: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The value of the record."""
        row = self.row
        document = {
            "form": _FORM,
            "epoch": row.epoch,
            "version": row.version,
            "move": row.move,
            "marker": base64.b64encode(row.marker).decode(),
            "letters": row.letters,
            "partitions": dict(self.partitions),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> MarkerRecord:
        """Inverse of :meth:`to_bytes`. Raises ``ValueError`` for anything else."""
        document = json.loads(value)
        try:
            if document["form"] != _FORM:
                raise ValueError(f"its form is {document['form']!r:.20}")
            row = MarkerRow(
                int(document["epoch"]),
                int(document["version"]),
                int(document["move"]),
                base64.b64decode(document["marker"], validate=True),
                letters=tuple(map(str, document["letters"])),
            )
            partitions = {str(topic): int(count) for topic, count in document["partitions"].items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return cls(row, partitions)


def last_value(config: Mapping[str, Any], topic: str, key: bytes, left: Callable[[], float]) -> bytes | None:
    """The value of the last committed record with this key; ``None``: there is none. ``left``: returns the seconds for
    which this may still block.

    The caller has fenced every producer that wrote the key, so their transactions have ended. Transactions of other
    shards may be open, and hide later records from a reader of committed records. So this function finds the end of the
    partition, waits until the transactions before it have ended, and reads backwards in growing portions.

    Raises ``KafkaException``, and :class:`~wormhole.model.errors.TargetUnavailable` if those transactions stay open.
    """
    ends = Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        low, end = ends.get_watermark_offsets(TopicPartition(topic, PARTITION), timeout=left())
    finally:
        ends.close()
    reader = Consumer({**config, "isolation.level": "read_committed", "enable.partition.eof": True})
    span = _SPAN
    try:
        while end > low:
            begin = max(low, end - span)
            found = _last_between(
                reader, TopicPartition(topic, PARTITION, begin), end, key, left, config["bootstrap.servers"]
            )
            if found is not None:
                return found
            end, span = begin, 4 * span
    finally:
        reader.close()
    return None


def _last_between(
    reader: Consumer, begin: TopicPartition, end: int, key: bytes, left: Callable[[], float], brokers: str
) -> bytes | None:
    found: bytes | None = None
    reader.assign([begin])
    while (seconds := left()) > 0:
        message = reader.poll(seconds)
        if message is None:
            continue
        if _is_past(message, end):
            return found
        if message.error() is None and message.key() == key:
            found = message.value()
    raise _hidden(reader, begin.topic, brokers)


def _hidden(reader: Consumer, topic: str, brokers: str) -> TargetUnavailable:
    """The error for a transaction that does not end, and so hides the committed records after its first record."""
    tool, place = f"kafka-transactions.sh --bootstrap-server {brokers}", f"--topic {topic} --partition {PARTITION}"
    begun = "OFFSET"
    with contextlib.suppress(KafkaException):
        begun = str(reader.get_watermark_offsets(TopicPartition(topic, PARTITION), timeout=_LOOK_S)[1])
    return TargetUnavailable(
        f"transactions of other shards in the topic {topic} have not ended",
        hint="a transaction whose process is gone ends after its transaction_timeout. If it does not, and "
        f"`{tool} find-hanging {place}` lists it, `{tool} abort {place} --start-offset {begun}` ends it",
    )


def _is_past(message: Message, end: int) -> bool:
    error, offset = message.error(), message.offset()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False  # the error concerns the consumer group, which this client never joins
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    assert offset is not None
    return offset >= end
