"""Measures the Kafka sink in updates per second, beside Kafka's own perf producer with records of the same size in the
same run.

    python -m benchmarks.sink_kafka [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. Its time includes
decoding, making documents, producing and committing. The time of the perf producer excludes the start of its JVM. It
waits for all replicas, with one transaction per second. A producer of the sink's client gets finished documents.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import Producer

from benchmarks.sink_feed import RUNS, Bodies, bodies, documents, feed, show
from sinks.kafka.kind import KIND
from sinks.kafka.settings import KafkaSettings
from tests.support.kafka_server import KafkaServer

_PERF: Final = "org.apache.kafka.tools.ProducerPerformance"

Work = Callable[[KafkaServer, str], float]


def _by_the_sink(given: Bodies, count: int, server: KafkaServer, topic: str) -> float:
    sink = KIND.open("bench", KafkaSettings(url=f"kafka://{server.bootstrap}", topic=topic))
    begin = time.monotonic()
    asyncio.run(feed(sink, given, topic))
    return count / (time.monotonic() - begin)


def _by_the_client(plain: list[bytes], server: KafkaServer, topic: str) -> float:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": topic})
    begin = time.monotonic()
    producer.init_transactions()
    producer.begin_transaction()
    for number, document in enumerate(plain):
        while True:
            try:
                producer.produce(topic, document, b"%d" % number)
                break
            except BufferError:
                producer.poll(0.01)
    producer.commit_transaction()
    return len(plain) / (time.monotonic() - begin)


def _by_perf(count: int, size: int, server: KafkaServer, topic: str) -> float:
    words = f"--topic {topic} --num-records {count} --record-size {size} --throughput -1 --transaction-duration-ms 1000"
    properties = ["--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all"]
    said = subprocess.run(
        [*server.program(_PERF), *words.split(), *properties], capture_output=True, text=True, check=True
    )
    return float(re.findall(r"([\d.]+) records/sec", said.stdout)[-1])


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    given = bodies(count)
    plain = documents(given)
    perf = "Kafka's perf producer"
    cases: dict[str, Work] = {
        perf: partial(_by_perf, count, len(plain[0])),
        "the client's producer, documents as they are": partial(_by_the_client, plain),
        "sink": partial(_by_the_sink, given, count),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with KafkaServer() as server:
        server.create("wormhole-markers", cleanup_policy="compact")
        for run in range(RUNS):
            for number, (name, work) in enumerate(cases.items()):
                topic = f"bench-{run}-{number}"
                server.create(topic, 3)
                found[name].append(work(server, topic))
                assert name == perf or len(server.records(topic)) == count
    show(found, perf, "of perf", f"{count:,} records of {len(plain[0])} bytes")


if __name__ == "__main__":
    main()
