"""Shared code of the benchmarks of sinks: the updates that every sink receives, and the table of the rates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.port import Sink
from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import body_of, marker_at, update
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch, Update
from wormholectl.show.printer import print_table

__all__ = ["RUNS", "Bodies", "bodies", "documents", "feed", "show"]

RUNS: Final = 3
_BATCH: Final = 2_000
_MARKER: Final = 20_000

Bodies = Sequence[tuple[bytes, Schema]]
"""Batch bodies as a publisher sends them, each with its schema."""


def bodies(count: int) -> Bodies:
    """``count`` updates of as many rows of ``shop.orders``."""
    made = []
    for begin in range(0, count, _BATCH):
        changes = [
            update("shop.orders", key=key, before={"status": "new"}, after={"status": "paid", "note": f"{key:080d}"})
            for key in range(begin, min(count, begin + _BATCH))
        ]
        made.append((body_of(changes, number=begin + 1), changes[0].schema))
    return made


def documents(given: Bodies) -> list[bytes]:
    """The documents of the updates in our own envelope."""
    envelope = WormholeEnvelope()
    found = (
        record.value for body, schema in given for one in _updates(body, schema) for record in envelope.records(one)
    )
    return [value for value in found if value is not None]


async def feed(sink: Sink, given: Bodies, application: str) -> None:
    """Give the sink the updates of one shard, as the SDK does, with a datamarker every 20,000 updates. Close it."""
    subscriber: Any = sink.subscriber
    await subscriber.on_shard_notice(
        ShardNotice(NoticeKind.ASSIGNED, "db1", 1, marker_at(0), application=application, dataset="shop", log="db1")
    )
    done = 0
    for body, schema in given:
        updates = _updates(body, schema)
        await subscriber.on_updates(updates)
        done += len(updates)
        if done % _MARKER == 0:
            await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await subscriber.on_datamarker(replace(marker_at(done), shard="db1"))
    await sink.close()


def show(found: Mapping[str, Sequence[float]], base: str, of: str, title: str) -> None:
    """Print the rates of each case, and their ratio to those of the case ``base``."""
    rates = {name: statistics.median(values) for name, values in found.items()}
    rows = [
        [name, f"{rate:,.0f}", f"{min(found[name]):,.0f} - {max(found[name]):,.0f}", f"{rate / rates[base]:.2f}"]
        for name, rate in rates.items()
    ]
    print_table(["case", "updates/s", "min - max", of], rows, "", f"{title}, median of {RUNS}")


def _updates(body: bytes, schema: Schema) -> Sequence[Update]:
    return Batch(parse_body(body), "db1", 1, False, partial(_same, schema)).updates()


def _same(schema: Schema, _: int) -> Schema:
    return schema
