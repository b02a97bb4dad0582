"""A busy publisher and a busy subscriber log almost nothing, and the publisher's metrics count what they did meanwhile.

``make soak`` runs the whole of it: 10,000 updates a second for a minute.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process

SHARDS = 120  # each comes, boards, is given away and goes: one line for each would be too many
RATE, SECONDS = (10_000, 60) if "WORMHOLE_ROUNDS" in os.environ else (10_000, 2)
LINES = 30

SUBSCRIBER = """
import logging, sys
from subscriber_sdk import Subscriber, run

class Nothing(Subscriber):
    async def on_updates(self, batch):
        pass

logging.basicConfig(level=logging.INFO)
run(Nothing(), application="app", coordinator=sys.argv[1])
"""


class Scene:
    """A RocksDB, its publisher, and a subscriber that does nothing."""

    def __init__(self, folder: Path) -> None:
        self.writer = RocksWriter(folder / "store")
        application = f"""[applications.app]
dataset = "shop"
start = "earliest"
subscribers = {{ s1 = "127.0.0.1:{free_port()}" }}"""
        source, shards = f'source = "rocksdb://{self.writer.path}"', f"shard_by = {{ hash = {SHARDS} }}"
        self.publisher = PublisherProcess(folder, source, application, publisher="", dataset=shards)
        self.subscriber = Process("subscriber", ["-c", SUBSCRIBER, str(self.publisher.config)], folder)

    def asked(self, path: str) -> str:
        """What the publisher answers over HTTP; empty while it does not serve."""
        if (ready := self.publisher.serves()) is None:
            return ""
        with urllib.request.urlopen(f"http://{ready.http}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def scraped(self) -> dict[str, float]:
        """Each series of the publisher by name, summed over its labels."""
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(self.asked("/metrics")):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
        return values


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for process in (made.publisher, made.subscriber):
        process.kill()
    made.writer.exit()


def test_ten_thousand_updates_a_second_are_counted_and_not_logged(scene: Scene) -> None:
    for process in (scene.publisher, scene.subscriber):
        process.start()
    until(lambda: scene.scraped().get("wormhole_push_connected"), "a stream does not come")
    before = scene.scraped()
    assert before.get("wormhole_flow_updates_total", 0) == 0
    began = time.monotonic()
    for second in range(SECONDS):
        scene.writer.many(second * RATE, RATE)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
    count = RATE * SECONDS

    def done() -> dict[str, float] | None:
        values = scene.scraped()
        sent, behind = values.get("wormhole_flow_updates_total", 0), values.get("wormhole_flow_in_flight_bytes", 1)
        return values if sent >= count and not behind else None

    after = until(done, "the last update does not come")
    assert after is not None
    assert after["wormhole_reader_updates_total"] == count
    assert after["wormhole_flow_sent_bytes_total"] > count
    assert after["wormhole_push_sent_bytes_total"] > after["wormhole_flow_sent_bytes_total"]
    assert after["wormhole_push_acks_total"] > 0
    assert after["wormhole_publisher_ready"] == 1
    assert after["wormhole_publisher_cpu_seconds_total"] > before["wormhole_publisher_cpu_seconds_total"]
    assert scene.asked("/readyz") == "ready\n"
    for process in (scene.publisher, scene.subscriber):
        assert process.stop() == 0, process.tail()
        assert 0 < len(process.output.read_text().splitlines()) < LINES, process.tail()
    lines = [json.loads(line) for line in scene.publisher.output.read_text().splitlines()]
    assert {(line["dataset"], line["copy"], line["log"]) for line in lines} == {("shop", "main", "db1")}
