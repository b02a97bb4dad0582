"""A busy publisher and a busy subscriber log almost nothing, and the publisher's metrics say what they did meanwhile.

``make soak`` runs the whole of it: 10,000 updates a second for a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from wormhole.host.ready_file import read_ready, ready_path

SHARDS = 120  # each comes, boards, is given away and goes: one line for each would be too many
RATE, SECONDS = (10_000, 60) if "WORMHOLE_ROUNDS" in os.environ else (10_000, 2)
LINES = 30

T = TypeVar("T")

SUBSCRIBER = """
import logging, sys
from subscriber_sdk import Subscriber, run

class Nothing(Subscriber):
    async def on_updates(self, batch):
        pass

logging.basicConfig(level=logging.INFO)
run(Nothing(), application="app", coordinator=sys.argv[1])
"""


def toml(folder: Path, store: Path, port: int) -> Path:
    path = folder / "shop.toml"
    path.write_text(f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder / "state"}"
[datasets.shop]
shard_by = {{ hash = {SHARDS} }}
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{store}"
[applications.app]
dataset = "shop"
start = "earliest"
subscribers = {{ s1 = "127.0.0.1:{port}" }}
""")
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process whose standard error goes to ``NAME.log``."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("wb") as log:
            environment = {name: value for name, value in os.environ.items() if name != "WORMHOLE_LOG"}
            process = subprocess.Popen([sys.executable, *arguments], stderr=log, env=environment)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def scraped(address: str) -> dict[str, float]:
    """Each series of a publisher by name, summed over its labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values


def from_publisher(found: Callable[[], T | None], what: str, process: subprocess.Popen[bytes]) -> T:
    def look() -> T | None:
        assert process.poll() is None, f"the publisher ended while {what} was waited for"
        return found()

    value = until(look, f"{what} did not come")
    assert value is not None
    return value


def test_ten_thousand_updates_a_second_are_counted_and_not_logged(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    writer = RocksWriter(tmp_path / "store")
    try:
        config = toml(tmp_path, writer.path, free_port())
        publisher = start("publisher", "-m", "wormholectl", "publisher", "run", "-c", str(config))
        subscriber = start("subscriber", "-c", SUBSCRIBER, str(config))
        path = ready_path(tmp_path / "state", "shop", "main", "db1")
        address = from_publisher(
            lambda: found.http if (found := read_ready(path)) else None, "the ready file", publisher
        )
        before = from_publisher(
            lambda: values if (values := scraped(address)).get("wormhole_push_connected") else None,
            "a stream",
            publisher,
        )
        assert before.get("wormhole_flow_updates_total", 0) == 0
        began = time.monotonic()
        for second in range(SECONDS):
            writer.many(second * RATE, RATE)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        count = RATE * SECONDS

        def done() -> dict[str, float] | None:
            values = scraped(address)
            sent, behind = values.get("wormhole_flow_updates_total", 0), values.get("wormhole_flow_in_flight_bytes", 1)
            return values if sent >= count and not behind else None

        after = from_publisher(done, "the last update", publisher)
        assert after["wormhole_reader_updates_total"] == count
        assert after["wormhole_flow_sent_bytes_total"] > count
        assert after["wormhole_push_sent_bytes_total"] > after["wormhole_flow_sent_bytes_total"]
        assert after["wormhole_push_acks_total"] > 0
        assert after["wormhole_publisher_ready"] == 1
        assert after["wormhole_publisher_cpu_seconds_total"] > before["wormhole_publisher_cpu_seconds_total"]
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=PATIENCE_S) as answer:
            assert answer.read() == b"ready\n"
        for process in (publisher, subscriber):
            process.terminate()
        assert publisher.wait() == 0
        assert subscriber.wait() == 0
    finally:
        writer.exit()
    said = (tmp_path / "publisher.log").read_text().splitlines()
    assert 0 < len(said) < LINES, "\n".join(said)
    lines = [json.loads(line) for line in said]
    assert {(line["dataset"], line["copy"], line["log"]) for line in lines} == {("shop", "main", "db1")}
    heard = (tmp_path / "subscriber.log").read_text().splitlines()
    assert 0 < len(heard) < LINES, "\n".join(heard)
