"""Turns an error of the Kafka client into an error of the port: the sink retries, or an operator has to act."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from sinks.kafka.settings import KafkaSettings
from wormhole.host.tls import untrusted
from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["REFUSES_RECORD", "Connection", "creation", "target_error"]

REFUSES_RECORD: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or leave the column out (columns)",
    KafkaError.INVALID_RECORD: "its topic is compacted, so that it takes no row without a key: give it another policy",
}
"""Codes of errors for a record that the broker will never take, with the hint for each."""

_UNANSWERED: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
_REPLACED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_LOGIN: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_RIGHTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_OPERATOR: Final = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower transaction_timeout of the sink, or raise "
    "transaction.max.timeout.ms of the brokers",
    KafkaError._UNSUPPORTED_FEATURE: "the sink needs brokers of Kafka 0.11 or later, with transactions",
    KafkaError._INVALID_ARG: "correct the settings of the sink",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic of datamarkers",
}


def creation(settings: KafkaSettings, topic: str) -> str:
    """The command that makes a topic."""
    kind = " --partitions 1 --config cleanup.policy=compact" if topic == settings.marker_topic else ""
    return f"kafka-topics.sh --bootstrap-server {settings.brokers} --create --topic {topic}{kind}"


class Connection:
    """The errors of a client's connections. ``error``: the last one; ``down``: whether no broker could be reached."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.down = False

    def __call__(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down = True
        elif error.code() != KafkaError._TRANSPORT or self.error is None:  # a refused one is reported twice
            self.error = error


def target_error(error: KafkaError, doing: str, cause: KafkaError | None = None) -> TargetUnavailable | TargetRefused:
    """The error of the port: refused if the call cannot succeed before an operator has changed something, or else
    unavailable. ``cause``: the last error of the client's connections, which a timeout does not contain.
    """
    if error.code() in _UNANSWERED and cause is not None:
        error = cause
    code = error.code()
    text = f"{doing}: {error.str()}"
    if code == KafkaError._SSL:
        return untrusted("a broker", error.str())
    if code in _REPLACED:
        return TargetUnavailable(
            f"{doing}: another process has taken the shard over, or transaction_timeout has passed",
            hint="if this repeats, two processes have the shard: end one of them, or the publisher that assigns it",
        )
    if code in _LOGIN:
        return TargetRefused(
            text, hint="correct the user, mechanism or password_file of the sink", code="login-refused"
        )
    if code in _RIGHTS:
        hint = (
            "allow the user Write and Describe on the topics, Write, Read and Describe on the topic of datamarkers, "
            "and Write and Describe on transactional ids with the prefix wormhole/"
        )
        return TargetRefused(text, hint=hint, code="account-lacks-rights")
    if code in _OPERATOR:
        return TargetRefused(text, hint=_OPERATOR[code])
    return TargetUnavailable(text)
