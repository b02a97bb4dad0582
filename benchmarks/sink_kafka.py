"""Updates per second of the sink of Kafka, beside Kafka's own perf producer with records of the same size in the same
run.

    python -m benchmarks.sink_kafka [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. What is counted is all
that it does: to decode, make documents, produce and commit. The perf producer is counted by itself, without the start
of its JVM, with all replicas to confirm and a transaction each second. The producer of the sink's client gets the
documents as they are.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka import Producer

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.kafka.kind import KIND
from sinks.kafka.settings import KafkaSettings
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import body_of, marker_at, update
from tests.support.kafka_server import KafkaServer
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch, Update
from wormholectl.show.printer import print_table

_RUNS: Final = 3
_BATCH: Final = 2_000
_MARKER: Final = 20_000
_PERF: Final = "org.apache.kafka.tools.ProducerPerformance"

Work = Callable[[KafkaServer, str], float]


def _schema(schema: Schema, _: int) -> Schema:
    return schema


def _batches(count: int) -> list[tuple[bytes, Schema]]:
    made = []
    for begin in range(0, count, _BATCH):
        changes = [
            update("shop.orders", key=key, before={"status": "new"}, after={"status": "paid", "note": f"{key:080d}"})
            for key in range(begin, min(count, begin + _BATCH))
        ]
        made.append((body_of(changes, number=begin + 1), changes[0].schema))
    return made


def _updates(body: bytes, schema: Schema) -> list[Update]:
    return list(Batch(parse_body(body), "db1", 1, False, partial(_schema, schema)).updates())


def _by_the_sink(batches: list[tuple[bytes, Schema]], server: KafkaServer, topic: str) -> float:
    return asyncio.run(_sink(batches, server, topic))


async def _sink(batches: list[tuple[bytes, Schema]], server: KafkaServer, topic: str) -> float:
    sink = KIND.open("bench", KafkaSettings(url=f"kafka://{server.bootstrap}", topic=topic))
    subscriber: Any = sink.subscriber
    notice = ShardNotice(NoticeKind.ASSIGNED, "db1", 1, marker_at(0), application=topic, dataset="shop", log="db1")
    begin = time.monotonic()
    await subscriber.on_shard_notice(notice)
    done = 0
    for body, schema in batches:
        updates = _updates(body, schema)
        await subscriber.on_updates(updates)
        done += len(updates)
        if done % _MARKER == 0:
            await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    seconds = time.monotonic() - begin
    await sink.close()
    return done / seconds


def _by_the_client(documents: list[bytes], server: KafkaServer, topic: str) -> float:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": topic})
    begin = time.monotonic()
    producer.init_transactions()
    producer.begin_transaction()
    for number, document in enumerate(documents):
        while True:
            try:
                producer.produce(topic, document, b"%d" % number)
                break
            except BufferError:
                producer.poll(0.01)
    producer.commit_transaction()
    return len(documents) / (time.monotonic() - begin)


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
    batches = _batches(count)
    envelope = WormholeEnvelope()
    documents = [
        record.value or b""
        for body, schema in batches
        for one in _updates(body, schema)
        for record in envelope.records(one)
    ]
    perf = "Kafka's perf producer"
    cases: dict[str, Work] = {
        perf: partial(_by_perf, count, len(documents[0])),
        "the client's producer, documents as they are": partial(_by_the_client, documents),
        "sink": partial(_by_the_sink, batches),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with KafkaServer() as server:
        server.create("wormhole-markers", cleanup_policy="compact")
        for run in range(_RUNS):
            for number, (name, work) in enumerate(cases.items()):
                topic = f"bench-{run}-{number}"
                server.create(topic, 3)
                found[name].append(work(server, topic))
                assert name == perf or len(server.records(topic)) == count
    rates = {name: statistics.median(values) for name, values in found.items()}
    rows = [
        [name, f"{rate:,.0f}", f"{min(found[name]):,.0f} - {max(found[name]):,.0f}", f"{rate / rates[perf]:.2f}"]
        for name, rate in rates.items()
    ]
    title = f"{count:,} records of {len(documents[0])} bytes, median of {_RUNS}"
    print_table(["case", "records/s", "min - max", "of perf"], rows, "", title)


if __name__ == "__main__":
    main()
