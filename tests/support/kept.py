"""What tests start servers and JVMs from, made once for an environment: ``python -m tests.support.kept``.

The data folders of the database servers, the classes of ZooKeeper, Kafka and Spark as the JVM keeps them, RocksJava,
and Hypothesis' table of Unicode. `make test` prepares them. What is missing later is made by the first test that needs
it, or gone without.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import strategies
from kazoo.client import KazooClient

from scripts.prepare import ZOOKEEPER
from tests.support import databases, kafka_server, postgres_server, rocks_java, spark_java
from tests.support.eventually import until
from tests.support.kafka_server import KafkaServer
from wormhole.coordination.embedded_zookeeper import CLASSES, EmbeddedZooKeeper
from wormhole.model.errors import WormholeError

__all__ = ["kafka_classes", "make", "zookeeper_classes"]


def zookeeper_classes(jars: Path = ZOOKEEPER) -> None:
    """Put the archive of a server's classes beside its jars. Each start takes a third less processor time then."""
    kept = jars / CLASSES
    draft = jars / f"{CLASSES}.draft"
    for file in (kept, draft):
        file.unlink(missing_ok=True)
    with EmbeddedZooKeeper(jars=jars, options=[f"-XX:ArchiveClassesAtExit={draft}"]) as server:
        client = KazooClient(server.hosts)
        client.start()
        client.create("/one", b"", ephemeral=True)
        client.transaction().commit()
        client.stop()
        client.close()
        os.kill(server.pid, signal.SIGTERM)  # it writes them at its end, which may take longer than anybody else waits
        until(lambda: not server.alive, "the server does not end")
    draft.rename(kept)


def kafka_classes() -> None:
    """Put the archive of a broker's classes beside its jars. Each start takes a third less time then."""
    kept = kafka_server.jars() / kafka_server.CLASSES
    draft = kept.with_suffix(".draft")
    for file in (kept, draft):
        file.unlink(missing_ok=True)
    with KafkaServer(jvm=[f"-XX:ArchiveClassesAtExit={draft}"]) as server:
        server.create("one")
        # It is silent: the broker goes first.
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "one", "log_level": 0})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("one", b"")
        producer.commit_transaction()
        server.records("one")
        os.kill(server.pid, signal.SIGTERM)  # it writes them at its end
        until(lambda: not server.alive, "the broker does not end")
    draft.rename(kept)


def make() -> None:
    """Make what there is on this machine to make, in two threads: most steps wait for one process or the network."""
    fetched: list[Callable[[], object]] = [kafka_classes, rocks_java.jars]  # Maven runs once at a time
    # text(): Hypothesis keeps its table of Unicode, which takes each process of a run more than a second to make.
    others: list[Callable[[], object]] = [zookeeper_classes, spark_java.options, strategies.text().validate]
    others += [partial(postgres_server.template, version) for version in postgres_server.VERSIONS]
    others += [partial(databases.template, flavour) for flavour in databases.FLAVOURS]
    with ThreadPoolExecutor() as beside:
        list(beside.map(_make_each, (fetched, others)))


def _make_each(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        with contextlib.suppress(WormholeError, pytest.skip.Exception):  # its tests say what is missing
            step()


if __name__ == "__main__":
    make()
