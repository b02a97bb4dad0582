"""The transactions of one shard."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from sinks.kafka.clients import Configure, reader_config
from sinks.kafka.failures import REFUSES_RECORD, Connection, creation, target_error
from sinks.kafka.markers import PARTITION, MarkerRecord, last_value
from sinks.kafka.names import is_topic, partition_of, topic_of, transactional_id
from sinks.kafka.settings import KafkaSettings
from sinks.records import Record, RecordRefused
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice, Update
from subscriber_sdk.transactional.marker_row import start_of
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.wire.markers import marker_to_bytes

__all__ = ["ShardProducer"]

log = logging.getLogger("sinks")

_LOOK_S: Final = 30.0
"""Seconds for which a topic's number of partitions is cached."""
_ABORT_S: Final = 1.0
_SLICE_S: Final = 0.1
_BATCH: Final = 1_000_000
_SILENT: Final = logging.Logger("kafka", logging.CRITICAL + 1)  # noqa: LOG001 - no configuration of logs has it
"""A logger that drops the client's lines: it logs fatal errors at any level, and its exceptions contain them too."""


class ShardProducer:
    """The Kafka transactions of one shard, over all its epochs. Calls never overlap. Each call blocks for at most
    ``settings.timeout`` seconds, and ends the open transaction if it fails.

    A producer is not used after an error. The next producer fences it and ends its transaction, even if a commit had
    begun. Then the stored record of the datamarker is read, which shows whether the commit succeeded. A process that
    lost the shard also reads the record before it writes anything, and finds that another process stored it.

    Methods raise :class:`~wormhole.model.errors.TargetUnavailable` when the shard has to be assigned again, and
    :class:`~wormhole.model.errors.TargetRefused` when it has to halt.
    """

    def __init__(self, configure: Configure, settings: KafkaSettings) -> None:
        self._configure = configure
        self._settings = settings
        self._shard = ""
        self._id = ""
        self._until = 0.0
        self._producer: Producer | None = None
        self._looker: Consumer | None = None  # looks topics up, because a producer's lookup may create the topic
        self._open = False  # whether a transaction is open
        self._stored: MarkerRecord | None = None  # the stored record; None: unknown until the next ASSIGNED
        self._confirmed = 0, 0  # epoch and version of the last row that was stored
        self._partitions: dict[str, int] = {}
        self._places: dict[str, tuple[str, int]] = {}  # topic and partitions by table, looked up since...
        self._looked = 0.0
        self._batch = _BATCH  # the most bytes that are sent together; a larger record is sent alone
        self._errors: list[tuple[KafkaError, bytes | None]] = []  # errors of records that did not arrive, and values
        self._connection = Connection()
        self._letters: list[str] = []  # dead letters that the open transaction contains
        self._among_letters = False  # whether dead letters may still come, which precede all other updates of an epoch

    # --- called by the writer ---

    def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin an epoch. Returns the datamarker at which delivery begins; ``None``: at the publisher's datamarker.

        Raises :class:`~wormhole.model.errors.EpochRefused` if the shard has been in a later epoch.
        """
        self.rest()
        self._shard, self._id, self._stored = notice.shard, transactional_id(notice), None
        self._letters.clear()
        with self._working():
            stored = self._connected()
            topic = self._settings.marker_topic
            start = start_of(stored.row if stored else None, notice, f"the topic {topic}", self._confirmed)
            self._partitions = dict(stored.partitions) if stored else {}
            record = MarkerRecord(start.row, dict(self._partitions))
            self._commit(record)
            if start.halt is not None:
                raise start.halt
            self._stored, self._among_letters = record, True
            return start.have

    def is_new(self, update: Update) -> bool:
        """Whether the records of an update are not stored yet. Records of a dead letter may be stored already. Does no
        I/O.
        """
        if not self._among_letters or not update.replayed:
            return True
        row = self._known().row
        if update.id in row.letters or update.id in self._letters:
            return False
        if update.position <= row.datamarker.order:
            self._letters.append(update.id)
        return True

    def write(self, records: Sequence[Record]) -> None:
        """Add records to the transaction, and wait until the brokers have them. Raises
        :class:`~sinks.records.RecordRefused`.
        """
        with self._working():
            self._begin()
            for record in records:
                self._add(record)
            self._flush(records)

    def marked(self, marker: Datamarker) -> None:
        """Commit everything since the last datamarker, and ``marker`` with it."""
        with self._working():
            stored = self._known()
            if not self._open and marker_to_bytes(marker) == stored.row.marker:
                return  # an idle flow offers the same datamarker again
            self._begin()
            after = MarkerRecord(stored.row.advanced(marker, self._letters), dict(self._partitions))
            self._commit(after)
            self._stored = after
            self._letters.clear()
            if after.row.marker != stored.row.marker:
                self._among_letters = False

    def rolled_back(self, to: Datamarker) -> None:
        """Abort the transaction: updates after ``to`` come again. Does not raise."""
        self.rest()
        self._letters.clear()
        if self._stored is not None and self._stored.row.marker != marker_to_bytes(to):
            self._stored = None  # a commit succeeded, and its acknowledgement did not

    def replaying(self) -> None:
        """Note that a replay of older updates begins: an update before the datamarker is no longer a dead letter."""
        self._among_letters = False

    def rest(self) -> KafkaError | None:
        """Abort the open transaction, and drop the producer. Does not raise. Returns the fatal error of the producer;
        ``None``: not known.
        """
        producer, looker, is_open = self._producer, self._looker, self._open
        self._producer, self._looker, self._open = None, None, False
        self._places.clear()
        if looker is not None:
            looker.close()
        if producer is not None and is_open:
            try:
                producer.abort_transaction(max(_ABORT_S, self._left()))
            except KafkaException as error:  # the next producer ends the transaction, or the transaction times out
                log.debug("shard %s: abort: %s", self._shard, error)
                return error.args[0] if error.args[0].fatal() else None
        return None

    # --- inside a call ---

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        self._until = time.monotonic() + self._settings.timeout
        try:
            yield
        except BaseException as error:
            fatal = self.rest()
            # The traceback would keep the producer alive, which would continue to run, and might fence the next one.
            traceback.clear_frames(error.__traceback__)
            # A poll of the client raises fatal errors, before or after the callback for them.
            found = error.__cause__ if isinstance(error, SystemError) else error
            what = f"the records of shard {self._shard} are not written"
            if isinstance(found, KafkaException):
                raise target_error(found.args[0], what, self._connection.error) from None
            if isinstance(error, SystemError):  # the client lost the error of its own call
                if fatal is not None:
                    raise target_error(fatal, what) from None
                raise TargetUnavailable(f"{what}: the client failed; another one is made") from error
            raise

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _known(self) -> MarkerRecord:
        if self._stored is None:
            raise TargetUnavailable(f"what Kafka holds of shard {self._shard} has to be read again")
        return self._stored

    def _connected(self) -> MarkerRecord | None:
        """Fence every former producer, which ends its transaction, and return the record that is stored then."""
        settings, config = self._settings, self._configure()
        self._errors.clear()
        self._connection = Connection()
        self._producer = Producer(
            {
                **config,
                "transactional.id": self._id,
                "transaction.timeout.ms": round(1000 * settings.transaction_timeout),
                "compression.type": settings.compression,
                "message.max.bytes": 1_000_000_000,  # no limit of the client, so that the topic's limit decides
                "batch.size": self._batch,
                "queue.buffering.max.kbytes": 64 << 10,
                "delivery.report.only.error": True,
                "on_delivery": self._undelivered,
                "error_cb": self._connection,
                "logger": _SILENT,
            }
        )
        self._until_done(self._producer.init_transactions)
        reader = reader_config(config)
        self._looker = Consumer(reader)
        topic = settings.marker_topic
        self._look_up(topic)
        value = last_value(reader, topic, self._id.encode(), self._left)
        try:
            return None if value is None else MarkerRecord.from_bytes(value)
        except ValueError as error:
            raise TargetRefused(
                f"the record of shard {self._shard} in the topic {topic} cannot be read: {error}",
                hint="if this sink did not write it, name another topic with marker_topic",
            ) from None

    def _begin(self) -> None:
        if self._open:
            return
        if self._producer is None:
            known = self._known()
            if self._connected() != known:
                self._stored = None
                raise TargetUnavailable(f"another process has written for shard {self._shard} meanwhile")
        assert self._producer is not None
        self._producer.begin_transaction()
        self._open = True

    def _commit(self, record: MarkerRecord) -> None:
        self._begin()
        producer = self._producer
        assert producer is not None
        producer.produce(self._settings.marker_topic, record.to_bytes(), self._id.encode(), PARTITION)
        self._until_done(producer.commit_transaction)
        self._open = False
        self._confirmed = record.row.epoch, record.row.version

    def _until_done(self, call: Callable[[float], None]) -> None:
        """Repeat the call until it is answered, as the client demands. Ends early if no broker can be reached."""
        assert self._producer is not None
        while True:
            try:
                call(min(self._left(), _SLICE_S))
            except KafkaException as error:
                self._producer.poll(0)  # the client reports errors of its connections only in a poll
                if error.args[0].retriable() and self._left() and not self._connection.down:
                    continue
                raise
            return

    def _add(self, record: Record) -> None:
        topic, partitions = self._place(record)
        if record.everywhere:
            for number in range(partitions):
                self._produce(record, topic, b"", number)
            return
        for key in filter(None, (record.old_key, record.key)):
            self._produce(record, topic, key, partition_of(key, partitions))
        if not record.key:
            self._produce(record, topic, None, 0)

    def _produce(self, record: Record, topic: str, key: bytes | None, partition: int) -> None:
        producer = self._producer
        assert producer is not None
        while True:
            try:
                producer.produce(topic, record.value, key, partition)
            except BufferError:
                producer.poll(0.01)
                if not self._left():
                    raise self._late() from None
            except KafkaException as error:
                if error.args[0].code() in REFUSES_RECORD:
                    raise _refused(record, error.args[0]) from None
                raise
            else:
                return

    def _flush(self, records: Sequence[Record]) -> None:
        assert self._producer is not None
        left = self._producer.flush(self._left())
        refused = [(error, value) for error, value in self._errors if error.code() in REFUSES_RECORD]
        if len(refused) > 1 and self._batch > 1:
            self._batch //= 10
            raise TargetUnavailable("a broker refuses several records together: fewer are sent together from now on")
        if refused:
            error, value = refused[0]
            raise _refused(next(record for record in records if record.value == value), error)
        if self._errors:
            raise KafkaException(self._errors[0][0])
        if left:
            raise self._late()

    def _late(self) -> Exception:
        return KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _place(self, record: Record) -> tuple[str, int]:
        """The topic of a record, and the number of its partitions, by which keys are distributed.

        A change of the number of partitions moves keys to other partitions. Their records are then out of order, unless
        readers have read all earlier records first.
        """
        now = time.monotonic()
        if now - self._looked > _LOOK_S:
            self._places.clear()
            self._looked = now
        if (place := self._places.get(record.table)) is not None:
            return place
        topic = topic_of(self._settings.topic, record.table)
        if not is_topic(topic):
            raise RecordRefused(record, "its topic's name would be too long", hint="set topic of the sink")
        if topic == self._settings.marker_topic:
            raise RecordRefused(record, "its topic is that of the datamarkers", hint="set marker_topic of the sink")
        found = self._look_up(topic)
        wanted = self._settings.partitions.get(topic) or self._partitions.get(topic, found)
        if found != wanted:
            raise TargetRefused(
                f"the topic {topic} has {found} partitions, and the records of shard {self._shard} are in {wanted}: "
                "keys would change their partition",
                hint=f"let its readers read to its end; then set partitions = {{ {topic!r} = {found} }} in the sink, "
                "restart it, and resume the flow",
            )
        self._partitions[topic] = found
        place = self._places[record.table] = topic, found
        return place

    def _look_up(self, topic: str) -> int:
        assert self._looker is not None
        described = self._looker.list_topics(topic, timeout=max(0.1, self._left())).topics[topic]
        if described.error is not None and described.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(described.error)
        if not described.partitions:
            hint = f"`{creation(self._settings, topic)}`; the sink continues by itself"
            raise TargetUnavailable(f"Kafka has no topic {topic}", hint=hint)
        return len(described.partitions)

    def _undelivered(self, error: KafkaError, message: Message) -> None:
        self._errors.append((error, message.value()))


def _refused(record: Record, error: KafkaError) -> RecordRefused:
    return RecordRefused(record, error.str(), hint=REFUSES_RECORD[error.code()])
