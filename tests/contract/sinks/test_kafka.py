"""The contract of sinks over a broker of Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from sinks.kafka.kind import KIND
from sinks.port import SinkKind
from sinks.testing.contract import RecordSinkContract
from sinks.testing.harness import TABLES, RecordHarness
from subscriber_sdk.testing import update
from tests.support.kafka_server import KafkaServer

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


class KafkaHarness(RecordHarness):
    """A topic for both tables, with one partition, because the suite asks for one order."""

    kind: ClassVar[SinkKind[Any]] = KIND
    refused = update(TABLES[0], key=9, after={"text": "x" * 30_000})

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._topic = f"t{uuid.uuid4().hex}"
        server.create(self._topic, max_message_bytes="20000")
        server.create(f"{self._topic}-markers", cleanup_policy="compact")

    @property
    def settings(self) -> Mapping[str, object]:
        return {
            "url": f"kafka://{self._server.bootstrap}",
            "topic": self._topic,
            "marker_topic": f"{self._topic}-markers",
            "timeout": "5s",
        }

    @contextmanager
    def away(self) -> Iterator[None]:
        self._server.settle(self._topic, f"{self._topic}-markers")
        self._server.kill()
        try:
            yield
        finally:
            self._server.start()

    def ids(self) -> Sequence[str]:
        documents = [(record.key, json.loads(record.value or b"")) for record in self._server.records(self._topic)]
        # A change of a key is there under both.
        return [found["id"] for key, found in documents if key in (b"", _dump(found["key"]))]


def _dump(key: object) -> bytes:
    return json.dumps(key, separators=(",", ":")).encode()


@pytest.fixture
def harness(kafka_server: KafkaServer) -> KafkaHarness:
    return KafkaHarness(kafka_server)


class TestKafka(RecordSinkContract):
    pass
