"""What matters for a sink in its brokers and in the topic of datamarkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import TopicMetadata

from sinks.kafka.failures import Connection, target_error
from sinks.kafka.settings import KafkaSettings
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Report, Severity

__all__ = ["examine"]

_CHECK: Final = "target_topic"
_TRANSACTION_MS: Final = "transaction.max.timeout.ms"
_REPLICAS: Final = 3


def examine(settings: KafkaSettings, config: Mapping[str, Any], report: Report) -> None:
    """Add what is found to ``report``. Each request blocks for ``settings.timeout`` seconds at most.

    Raises :class:`~wormhole.model.errors.TargetUnavailable` and :class:`~wormhole.model.errors.TargetRefused`.
    """
    connection = Connection()
    try:
        given: dict[str, Any] = {**config, "error_cb": connection}
        admin = AdminClient(given)
        try:
            cluster = admin.list_topics(timeout=settings.timeout)
        finally:
            admin.poll(0)  # it reports its connections here only
    except KafkaException as error:
        raise target_error(error.args[0], f"{settings.brokers} cannot be examined", connection.error) from None
    report.facts |= {"brokers": str(len(cluster.brokers)), "topics": str(len(cluster.topics))}
    markers = cluster.topics.get(settings.marker_topic)
    if markers is None:
        report.add(
            _CHECK,
            Severity.PROBLEM,
            f"Kafka has no topic {settings.marker_topic} for datamarkers",
            because="every flow of the sink waits for it",
            next_step=f"kafka-topics.sh --bootstrap-server {settings.brokers} --create --topic {settings.marker_topic} "
            "--partitions 1 --config cleanup.policy=compact",
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
            next_step=f"kafka-configs.sh --bootstrap-server {settings.brokers} --alter --topic {name} "
            "--add-config cleanup.policy=compact",
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
