"""The open sink of Kafka: its subscriber, and the examination of its topics."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

from sinks.envelopes import envelope_named
from sinks.kafka.clients import client_config
from sinks.kafka.failures import Connection, creation, target_error
from sinks.kafka.names import is_topic, topic_of
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.writer import KafkaWriter
from sinks.port import Sink
from sinks.records import Envelope, RecordSubscriber
from sinks.records.held import Budget
from subscriber_sdk import KeptMarker, NoticeKind, ShardNotice, Subscriber, Update
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Finding, Report, Severity
from wormhole.model.table_definition import TableDefinition

__all__ = ["KafkaSink"]


_CHECK: Final = "target_topic"
_WAITS: Final = "the flows that write to it wait for it"
_TRANSACTION_MS: Final = "transaction.max.timeout.ms"
_REPLICAS: Final = 3
_USUAL_BYTES: Final = 1_048_588  # the brokers' default for the largest size of a record


def examine(settings: KafkaSettings, config: Mapping[str, Any], report: Report) -> None:
    """Add the findings about brokers and topics to ``report``. Each request blocks for ``settings.timeout`` seconds at
    most.

    Raises :class:`~wormhole.model.errors.TargetUnavailable` and :class:`~wormhole.model.errors.TargetRefused`.
    """
    admin, cluster = _connected(settings, config)
    report.facts |= {"brokers": str(len(cluster.brokers)), "topics": str(len(cluster.topics))}
    markers = cluster.topics.get(settings.marker_topic)
    if markers is None:
        report.add(
            _CHECK,
            Severity.PROBLEM,
            f"Kafka has no topic {settings.marker_topic} for datamarkers",
            because=_WAITS,
            next_step=creation(settings, settings.marker_topic),
            code="target-unavailable",
        )
    else:
        _markers(settings, admin, markers, min(_REPLICAS, len(cluster.brokers)), report)
    try:
        longest = int(_values(admin, ConfigResource.Type.BROKER, str(min(cluster.brokers)), settings)[_TRANSACTION_MS])
    except TargetRefused as refused:
        report.add("target_transactions", Severity.WARN, refused.message, because="the longest timeout is not known")
        return
    if longest < 1000 * settings.transaction_timeout:
        report.add(
            "target_transactions",
            Severity.PROBLEM,
            f"the brokers allow transactions of {longest / 1000:g} s, and transaction_timeout is longer",
            because="every flow of the sink halts",
            next_step=f"set transaction_timeout of the sink to {longest // 1000}s or less",
            code="target-refused",
        )


def compare(settings: KafkaSettings, config: Mapping[str, Any], tables: Sequence[TableDefinition]) -> list[Finding]:
    """Findings about the topics for the records of these tables. Blocks and raises as :func:`examine`."""
    admin, cluster = _connected(settings, config)
    findings = list[Finding]()
    topics: dict[str, list[TableDefinition]] = {}
    for table in tables:
        topics.setdefault(topic_of(settings.topic, table.name), []).append(table)
    for name, written in topics.items():
        found = cluster.topics.get(name)
        if not is_topic(name) or name == settings.marker_topic:
            what, step = (
                f"{written[0].name:.60} cannot have the topic {name:.60}",
                "set topic or marker_topic",
            )
            findings.append(Finding(_CHECK, Severity.PROBLEM, what, "its updates are parked", step, "record-refused"))
        elif found is None:
            step = creation(settings, name)
            what = f"Kafka has no topic {name}"
            findings.append(Finding(_CHECK, Severity.PROBLEM, what, _WAITS, step, "target-unavailable"))
        else:
            findings.append(_topic(settings, admin, name, len(found.partitions), written))
    return findings


def _topic(
    settings: KafkaSettings, admin: AdminClient, name: str, count: int, written: Sequence[TableDefinition]
) -> Finding:
    wanted = settings.partitions.get(name, count)
    if count != wanted:
        what, step = f"the topic {name} has {count} partitions, and the sink is set to {wanted}", "correct partitions"
        return Finding(_CHECK, Severity.PROBLEM, what, "every flow of the sink halts", step, "target-refused")
    try:
        values = _values(admin, ConfigResource.Type.TOPIC, name, settings)
    except TargetRefused as refused:
        return Finding(_CHECK, Severity.WARN, refused.message, "its limits are not known", code=refused.code)
    without = [table.name for table in written if not table.key]
    if "compact" in values["cleanup.policy"] and without:
        what = f"the topic {name} is compacted, and {without[0]} has no key"
        step = f"{_alter(settings, name)} cleanup.policy=delete"
        return Finding(_CHECK, Severity.PROBLEM, what, "its updates are parked", step, "record-refused")
    size = int(values["max.message.bytes"])
    if size < _USUAL_BYTES:
        what, step = f"the topic {name} takes records of {size} bytes", f"{_alter(settings, name)} max.message.bytes="
        why = "larger ones are parked"
        return Finding(_CHECK, Severity.WARN, what, why, f"{step}{_USUAL_BYTES}", "record-refused")
    return Finding(_CHECK, Severity.OK, f"the topic {name} has {count} partitions, and takes records of {size} bytes")


def _connected(settings: KafkaSettings, config: Mapping[str, Any]) -> tuple[AdminClient, ClusterMetadata]:
    connection = Connection()
    try:
        given: dict[str, Any] = {**config, "error_cb": connection}
        admin = AdminClient(given)
        try:
            return admin, admin.list_topics(timeout=settings.timeout)
        finally:
            admin.poll(0)  # the client reports errors of its connections only in a poll
    except KafkaException as error:
        raise target_error(error.args[0], f"{settings.brokers} cannot be examined", connection.error) from None


def _alter(settings: KafkaSettings, topic: str) -> str:
    return f"kafka-configs.sh --bootstrap-server {settings.brokers} --alter --topic {topic} --add-config"


def _markers(settings: KafkaSettings, admin: AdminClient, topic: TopicMetadata, replicas: int, report: Report) -> None:
    name = settings.marker_topic
    try:
        values = _values(admin, ConfigResource.Type.TOPIC, name, settings)
    except TargetRefused as refused:
        report.add(_CHECK, Severity.WARN, refused.message, because="its policy is not known")
        return
    fewest = min(len(partition.replicas) for partition in topic.partitions.values())
    if values["cleanup.policy"] != "compact":
        report.add(
            _CHECK,
            Severity.PROBLEM,
            f"the policy of the topic {name} is {values['cleanup.policy']}",
            because="Kafka deletes the datamarker of a flow that rests, and the flow halts",
            next_step=f"{_alter(settings, name)} cleanup.policy=compact",
            code="target-refused",
        )
    elif fewest < replicas:
        report.add(
            _CHECK,
            Severity.WARN,
            f"the topic {name} has {fewest} replicas",
            because="a broker that is lost takes datamarkers with it",
            next_step=f"give it {replicas}, and min.insync.replicas of {max(1, replicas - 1)}, with "
            "kafka-reassign-partitions.sh",
            code="target-refused",
        )
    else:
        report.add(
            _CHECK,
            Severity.OK,
            f"the topic {name} is compacted, and has {fewest} replicas of which "
            f"{values['min.insync.replicas']} confirm a record",
        )


def _values(admin: AdminClient, kind: Any, name: str, settings: KafkaSettings) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    try:
        found = admin.describe_configs([resource], request_timeout=settings.timeout)[resource].result()
    except KafkaException as error:
        raise target_error(error.args[0], f"the settings of {name} cannot be read") from None
    return {setting: entry.value for setting, entry in found.items()}


class KafkaSubscriber(RecordSubscriber):
    """Writes records at once, without a buffer for incomplete transactions, because Kafka can abort a transaction."""

    def __init__(self, envelope: Envelope, writer: KafkaWriter) -> None:
        super().__init__(envelope, writer, Budget(sys.maxsize, 0))
        self._kafka = writer

    async def on_updates(self, batch: Sequence[Update]) -> None:
        """Write the records of the batch."""
        if new := [update for update in batch if self._kafka.is_new(update)]:
            await super().on_updates(new)

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        """Handle the beginning or the end of an epoch or a replay."""
        if notice.kind is NoticeKind.REPLAY_BEGIN:
            self._kafka.replaying(notice.shard)
        return await super().on_shard_notice(notice)


class KafkaSink(Sink):
    """See the port."""

    def __init__(self, name: str, settings: KafkaSettings) -> None:
        self._settings = settings
        self._configure = partial(client_config, name, settings)
        self._writer = KafkaWriter(self._configure, settings)
        envelope = envelope_named(settings.envelope, settings.source_database)
        self._subscriber = KafkaSubscriber(envelope, self._writer)
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        await asyncio.to_thread(self._examine, report)
        return report

    async def compare(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        return await asyncio.to_thread(lambda: compare(self._settings, self._configure(), tables))

    def _examine(self, report: Report) -> None:
        examine(self._settings, self._configure(), report)

    async def close(self) -> None:
        await self._writer.close()
