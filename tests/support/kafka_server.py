"""A private Kafka on loopback: a broker that is its own controller (KRaft), in a JVM with a small heap.

Tests share one server, each with topics of its own names; a test that stops or kills a server, or that needs settings,
starts its own. A start takes two seconds, so these tests are in `make extended`.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from scripts import pinned_jars
from tests.support import jars as pinned
from tests.support.eventually import PATIENCE_S, until
from tests.support.ports import free_port
from wormhole.host.private_server import PrivateServer

__all__ = ["CLASSES", "KafkaController", "KafkaRecord", "KafkaServer", "jars", "kafka_server"]

CLASSES: Final = "classes.jsa"
"""The jars' classes as the JVM keeps them, beside the jars. A JVM that they do not fit ignores them."""
_JVM: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xlog:cds*=off",  # classes of another Java are no news
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# One broker holds every replica, and its own topics are small. Records are handed to the operating system before they
# are acknowledged: that survives `kill -9` of the broker.
_OPTIONS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed registers again when its former session has ended, by default after 9 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "log.cleaner.dedupe.buffer.size": "16777216",  # the default is half of the heap
}
_ANSWER_S: Final = 2.0


class KafkaRecord(NamedTuple):
    """What a reader gets."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def jars() -> Path:
    """The folder of Kafka's jars. Skips the test where they cannot be had."""
    return pinned.folder(pinned_jars.KAFKA, "kafka", "Kafka")


class KafkaServer(PrivateServer):
    """One broker. ``options``: settings over the defaults, by the names of ``server.properties``. ``jvm``: further
    options of its JVM. ``controller``: a process beside it; ``None``: the broker is its own controller. ``pem``: its
    key and certificate, with which it listens for logins on :attr:`secure` too.
    """

    flavour: ClassVar[str] = "kafka"
    start_timeout_s: ClassVar[float] = 120.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        options: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        controller: KafkaController | None = None,
        pem: Path | None = None,
    ) -> None:
        super().__init__(folder)
        roles = {} if controller is None else {"process.roles": "broker", "node.id": "2"}
        self.options: dict[str, str] = {**_OPTIONS, **roles, **(options or {})}
        self.controller_port = 0
        self.secure = f"{self.host}:{free_port()}" if pem else ""
        self._pem = pem
        self._jvm = jvm
        self._controller = controller
        # The first byte is fixed: a name that begins with "-" is no argument of the program that formats the storage.
        own = base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._cluster: str = own if controller is None else controller._cluster

    @property
    def bootstrap(self) -> str:
        """Its address for clients (``bootstrap.servers``)."""
        return f"{self.host}:{self.port}"

    def program(self, main: str, *options: str) -> list[str]:
        """The words that start a Java program of Kafka, for example
        ``org.apache.kafka.tools.ProducerPerformance``; ``options`` are the JVM's.
        """
        java = shutil.which("java")
        if java is None:
            pytest.skip("there is no Java on this machine, which Kafka needs")
        folder = jars()
        classes = [f"-XX:SharedArchiveFile={folder / CLASSES}"] if (folder / CLASSES).exists() else []
        path = os.pathsep.join(map(str, sorted(folder.glob("*.jar"))))
        return [java, *_JVM, *classes, *options, "-cp", path, main]

    # -- talking to it

    def admin(self, **settings: Any) -> AdminClient:
        """A client for topics and settings."""
        return AdminClient({"bootstrap.servers": self.bootstrap, **settings})

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic. ``settings``: of the topic, with ``_`` for ``.``, for example ``cleanup_policy="compact"``."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin = self.admin()  # without a name it ends, and its requests with it
        admin.create_topics([new])[topic].result(PATIENCE_S)
        until(lambda: topic in admin.list_topics(timeout=PATIENCE_S).topics, f"the broker does not know {topic}")

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)

    def alter(self, topic: str, setting: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def records(self, topic: str, isolation: str = "read_committed") -> list[KafkaRecord]:
        """Everything that a new reader of ``topic`` gets now, the records of each partition in their order."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # an end is found after a wait for more
        }
        consumer = Consumer(settings)
        try:
            return _until_the_end(consumer, topic)
        finally:
            consumer.close()

    def settle(self, *topics: str) -> None:
        """Wait until the transactions that were committed or aborted have ended in the first partition of ``topics``.

        A broker that is its own controller and is killed before may never end them: when it starts again it takes the
        partitions for deleted, as long as they have no leader.
        """
        ends = [
            Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests", "isolation.level": isolation})
            for isolation in ("read_committed", "read_uncommitted")
        ]
        try:
            for topic in topics:
                until(partial(_agree, ends, TopicPartition(topic, 0)), f"{topic} has open transactions")
        finally:
            for end in ends:
                end.close()

    # -- what a private server needs

    def find_programs(self) -> None:
        self.program("kafka.Kafka")

    def prepare(self) -> None:
        self.controller_port = self.controller_port or free_port()
        if self.data.exists():
            return
        format_it = ["format", "--cluster-id", self._cluster, "--config", str(self._settings())]
        subprocess.run([*self.program("kafka.tools.StorageTool"), *format_it], check=True, stdout=subprocess.DEVNULL)

    def start_command(self) -> list[str]:
        folder = f"-Djava.io.tmpdir={self.folder / 'tmp'}"
        return [*self.program("kafka.Kafka", folder, *self._jvm), str(self._settings())]

    def answers(self) -> bool:
        try:
            found: Any = self.admin(log_level=0).list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        return bool(found.cluster_id == self._cluster and found.brokers)

    def _settings(self) -> Path:
        """The file of its settings, written for the port that it has now."""
        controller, listeners = self._controller or self, [f"PLAINTEXT://{self.bootstrap}"]
        if self._pem is not None:
            listeners.append(f"SASL_SSL://{self.secure}")
        advertised = ",".join(listeners)
        if self._controller is None:
            listeners.append(f"CONTROLLER://{self.host}:{self.controller_port}")
        places = {
            "controller.quorum.voters": f"1@{self.host}:{controller.controller_port}",
            "listeners": ",".join(listeners),
            "advertised.listeners": advertised,
            "log.dirs": str(self.data),
        }
        return self._written({**places, **_secured(self._pem)})

    def _written(self, places: Mapping[str, str]) -> Path:
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**self.options, **places}.items()))
        return file


class KafkaController(KafkaServer):
    """A controller without a broker. A broker that is killed is not its controller's end then, as in production."""

    flavour: ClassVar[str] = "kafka-controller"

    def __init__(self) -> None:
        super().__init__(options={"process.roles": "controller"})

    def prepare(self) -> None:
        self.controller_port = self.port = self.port or free_port()
        super().prepare()

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), _ANSWER_S):
            return True
        return False

    def _settings(self) -> Path:
        place = f"{self.host}:{self.port}"
        listeners = {"listeners": f"CONTROLLER://{place}", "controller.quorum.voters": f"1@{place}"}
        return self._written({**listeners, "log.dirs": str(self.data)})


def _secured(pem: Path | None) -> dict[str, str]:
    """Logins with SCRAM over TLS, and only what rules allow; whatever connects without a login may do everything."""
    if pem is None:
        return {}
    scram = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        scram: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }


def _agree(ends: Sequence[Consumer], place: TopicPartition) -> bool:
    return len({end.get_watermark_offsets(place, timeout=PATIENCE_S) for end in ends}) == 1


def _until_the_end(consumer: Consumer, topic: str) -> list[KafkaRecord]:
    described = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    partitions = described.partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    left, found = set(partitions), []
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"no answer about partitions {left} of {topic}"
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None
        if error is None:
            assert offset is not None
            headers: Any = message.headers() or []
            found.append(KafkaRecord(partition, offset, message.key(), message.value(), headers))
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(partition)
        else:
            raise KafkaException(error)
    return found


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """The broker that tests share: each has topics of its own."""
    with KafkaServer() as server:
        yield server
