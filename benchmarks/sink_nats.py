"""Updates per second of the sink of NATS JetStream, beside plain publishing of the same documents in the same run.

    python -m benchmarks.sink_nats [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. What is counted is all
that it does: to decode, make documents, publish and wait for the answers. Plain publishing is that of the client, each
message after the answer to the one before, and with up to 4,000 answers outstanding, which does not keep the order
where one of them is refused.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import nats
import uvloop

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.nats.kind import KIND
from sinks.nats.settings import NatsSettings
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import body_of, marker_at, update
from tests.support.nats_server import NatsServer
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch, Update
from wormholectl.show.printer import print_table

_RUNS: Final = 3
_BATCH: Final = 2_000
_MARKER: Final = 20_000
_STREAM: Final = "bench"

Work = Callable[[NatsServer], Awaitable[None]]


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


async def _by_the_sink(batches: list[tuple[bytes, Schema]], server: NatsServer) -> None:
    sink = KIND.open(_STREAM, NatsSettings(url=server.url))
    subscriber: Any = sink.subscriber
    await subscriber.on_shard_notice(
        ShardNotice(NoticeKind.ASSIGNED, "db1", 1, marker_at(0), dataset="shop", log="db1")
    )
    done = 0
    for body, schema in batches:
        updates = _updates(body, schema)
        await subscriber.on_updates(updates)
        done += len(updates)
        if done % _MARKER == 0:
            await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await sink.close()


async def _plain(outstanding: bool, documents: list[bytes], server: NatsServer) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream()
    for number, document in enumerate(documents):
        headers = {"Nats-Msg-Id": str(number)}
        if outstanding:
            await stream.publish_async(f"{_STREAM}.shop.orders", document, headers=headers)
        else:
            await stream.publish(f"{_STREAM}.shop.orders", document, headers=headers)
    if outstanding:
        await stream.publish_async_completed()
    await client.close()


def _rate(server: NatsServer, count: int, atomic: bool, work: Work) -> float:
    server.make_stream(name=_STREAM, subjects=[f"{_STREAM}.>"], allow_atomic=atomic)
    begin = time.monotonic()
    uvloop.run(work(server))  # type: ignore[arg-type]
    seconds = time.monotonic() - begin
    assert uvloop.run(_removed(server)) == count
    return count / seconds


async def _removed(server: NatsServer) -> int:
    client = await server.connect()
    stored = (await client.jetstream().stream_info(_STREAM)).state.messages
    await client.jetstream().delete_stream(_STREAM)
    await client.close()
    return stored


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    batches = _batches(count)
    envelope = WormholeEnvelope()
    documents = [
        record.value or b""
        for body, schema in batches
        for one in _updates(body, schema)
        for record in envelope.records(one)
    ]
    cases: dict[str, tuple[bool, Work]] = {
        "plain, one after another": (False, partial(_plain, False, documents)),
        "plain, 4,000 outstanding": (False, partial(_plain, True, documents)),
        "sink, atomic batches": (True, partial(_by_the_sink, batches)),
        "sink, one after another": (False, partial(_by_the_sink, batches)),
    }
    with NatsServer() as server:
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(_RUNS):
            for name, (atomic, work) in cases.items():
                found[name].append(_rate(server, count, atomic, work))
    rates = {name: statistics.median(values) for name, values in found.items()}
    base = rates["plain, 4,000 outstanding"]
    rows = [
        [name, f"{rate:,.0f}", f"{min(found[name]):,.0f} - {max(found[name]):,.0f}", f"{rate / base:.2f}"]
        for name, rate in rates.items()
    ]
    title = f"{count:,} updates as documents of {len(documents[0])} bytes, median of {_RUNS}"
    print_table(["case", "updates/s", "min - max", "of 4,000 outstanding"], rows, "", title)


if __name__ == "__main__":
    main()
