"""What a sink of Kafka decides without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinks.kafka.clients import client_config
from sinks.kafka.failures import Connection, target_error
from sinks.kafka.kind import KIND
from sinks.kafka.markers import MarkerRecord
from sinks.kafka.names import is_topic, partition_of, topic_of
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.shard import ShardProducer
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.marker_row import MarkerRow
from tests.support.certificates import Authority
from wormhole.model.errors import TargetRefused, TargetUnavailable, UsageError


def settings(**given: Any) -> KafkaSettings:
    return KafkaSettings.model_validate({"url": "kafka://a:9092,b:9093", **given})


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_has_the_partition_that_java_s_producer_chooses(key: bytes, hashed: int) -> None:
    """The values are those of the test of Kafka's own murmur2."""
    assert partition_of(key, 1 << 31) == hashed & 0x7FFFFFFF
    assert partition_of(key, 12) == (hashed & 0x7FFFFFFF) % 12


def test_topics_of_two_tables_differ() -> None:
    tables = ["shop.orders", "shop.orders-2D", "shop.orders-", "shop.Bücher", "shop.B-C3-BCcher", "a b", "a-20b"]
    topics = [topic_of("x-{table}", table) for table in tables]
    assert topics[0] == "x-shop.orders"
    assert len(set(topics)) == len(tables)
    assert all(map(is_topic, topics))
    assert not any(map(is_topic, ("", ".", "..", "a/b", "é", "x" * 250)))


def test_a_record_of_a_datamarker_is_read_back() -> None:
    row = MarkerRow(3, 7, 2, b"\0\xff", letters=("a:1:0", "ü"))
    record = MarkerRecord(row, {"shop.orders": 12})
    assert MarkerRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"7",
        b'{"form":2}',
        b"{}",
        MarkerRecord(MarkerRow(1, 1, 1, b"")).to_bytes()[:-3] + b"7}",
    ],
)
def test_another_record_is_no_datamarker(value: bytes) -> None:
    with pytest.raises(ValueError):
        MarkerRecord.from_bytes(value)


@pytest.mark.parametrize(
    "url",
    ["kafka://", "kafka://host", "kafka://host:9092/topic", "kafka://host:9092?acks=all", "kafka://a:1,b", "kafka:x"],
)
def test_a_url_lists_brokers_with_their_ports(url: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        settings(url=url)


@pytest.mark.parametrize("wrong", [{"topic": "a/{table}"}, {"marker_topic": "a b"}, {"partitions": {"a": 0}}])
def test_names_of_topics_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        settings(**wrong)


def test_a_login_needs_a_user_and_a_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    ca = Authority(tmp_path).ca
    user = settings(url="kafka://us%40er@a:9092", password_file=str(file), tls={"ca": str(ca)})
    found = client_config("lines", user)
    assert found["bootstrap.servers"] == "a:9092"
    assert found["security.protocol"] == "SASL_SSL"
    assert (found["sasl.username"], found["sasl.password"]) == ("us@er", "secret")
    assert found["ssl.ca.location"] == str(ca)
    assert client_config("lines", settings())["security.protocol"] == "PLAINTEXT"
    for half in (settings(password_file=str(file)), settings(url="kafka://user@a:9092")):
        with pytest.raises(UsageError, match="password_file"):
            KIND.open("lines", half)


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (KafkaError._TRANSPORT, TargetUnavailable, "target-unavailable"),
        (KafkaError._FENCED, TargetUnavailable, "target-unavailable"),
        (KafkaError._AUTHENTICATION, TargetRefused, "login-refused"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TargetRefused, "account-lacks-rights"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TargetRefused, "account-lacks-rights"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, TargetRefused, "target-refused"),
    ],
)
def test_only_what_an_operator_can_change_is_refused(code: int, kind: type[Exception], name: str) -> None:
    error = target_error(KafkaError(code), "it")
    assert (type(error), error.code) == (kind, name)
    late = target_error(KafkaError(KafkaError._TIMED_OUT), "it", KafkaError(code))
    assert (type(late), late.code) == (kind, name)


@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
def test_a_process_that_was_replaced_reports_it(code: int) -> None:
    error = target_error(KafkaError(code), "it")
    assert (error.message, error.hint is not None) == (
        "it: another process has taken the shard over, or transaction_timeout has passed",
        True,
    )


@pytest.mark.parametrize(("lost", "code"), [(True, "target-unavailable"), (False, "login-refused")])
def test_an_error_that_the_client_loses_is_waited_for(monkeypatch: pytest.MonkeyPatch, lost: bool, code: str) -> None:
    """It raises SystemError where its poll raised an error that it cannot return, with or without that one."""

    def polls(_: ShardProducer) -> None:
        raise SystemError from None if lost else KafkaException(KafkaError(KafkaError._AUTHENTICATION))

    monkeypatch.setattr(ShardProducer, "_connected", polls)
    producer = ShardProducer(dict, settings())
    with pytest.raises(TargetUnavailable if lost else TargetRefused) as raised:
        producer.assigned(ShardNotice(NoticeKind.ASSIGNED, "shop", 1, marker_at(0), application="lines"))
    assert raised.value.code == code


def test_the_reason_of_a_lost_connection_is_kept() -> None:
    connection = Connection()
    for code in (KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        connection(KafkaError(code))
    assert connection.down
    assert connection.error == KafkaError(KafkaError._SSL)
    error = target_error(KafkaError(KafkaError._TRANSPORT), "it", connection.error)
    assert (type(error), error.code) == (TargetUnavailable, "certificate-refused")
