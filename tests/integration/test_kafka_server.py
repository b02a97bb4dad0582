"""What tests rely on of the private Kafka; what all kinds of servers have is in
`tests/contract/test_private_server.py`."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from tests.support.kafka_server import KafkaServer


def producer(server: KafkaServer) -> Producer:
    # Without a log of what a killed broker does to it.
    started = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    started.init_transactions()
    return started


def test_a_committed_transaction_outlives_a_kill_and_an_open_one_is_unseen(kafka_server: KafkaServer) -> None:
    kafka_server.create("orders", 2, cleanup_policy="compact")
    first = producer(kafka_server)
    first.begin_transaction()
    first.produce("orders", b"one", b"k", partition=1, headers=[("h", b"x")])
    first.commit_transaction()
    second = producer(kafka_server)
    second.begin_transaction()
    second.produce("orders", b"two", b"k", partition=1)
    second.flush()
    for end in (None, kafka_server.kill):
        if end is not None:
            end()
            kafka_server.start()
        committed = kafka_server.records("orders")
        assert [record[2:] for record in committed] == [(b"k", b"one", [("h", b"x")])]
        written = kafka_server.records("orders", "read_uncommitted")
        assert [record.value for record in written] == [b"one", b"two"]
    second.abort_transaction()
    assert kafka_server.records("orders") == committed
