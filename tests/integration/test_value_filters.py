"""Filters on values beside a real RocksDB store whose values are JSON, MessagePack and protobuf."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from datastores.rocksdb.source import RocksSource
from tests.integration.publisher.conftest import World
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.rocks_writer import RocksWriter
from tests.support.scripted_subscriber import scripted_subscriber
from tests.support.value_formats import ORDER_MESSAGE, order, write_descriptor_set
from wormhole.formats import FormatSpec, open_formats
from wormhole.model.sharding import Sharding


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RocksWriter]:
    started = RocksWriter(tmp_path / "store")
    yield started
    started.exit()


def wormholectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from wormholectl import main; main()", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S)


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def document(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "amount": number * 1.5, "note": "x" * 200, **more}).encode()


def test_tail_and_explain_read_values(tmp_path: Path, writer: RocksWriter) -> None:
    writer.create_family("orders")
    writer.create_family("packed")
    for n in range(20):
        writer.put(b"user:%d" % n, document(n, status="paid" if n % 4 == 0 else "open", mail=None if n == 4 else "a@b"))
    writer.write([("delete", "default", b"user:1"), ("put", "default", b"broken", b"{")])
    writer.put(b"o1", order(id=1, status=1, customer={"name": "Ada"}), "orders")
    writer.put(b"o2", order(id=2), "orders")
    writer.put(b"p1", msgpack.packb({"status": "paid"}), "packed")
    descriptors = tmp_path / "shop.desc"
    write_descriptor_set(descriptors)
    url = f"rocksdb://{writer.path}"
    formats = ["json", f"orders=protobuf:{descriptors}:{ORDER_MESSAGE}", "packed=msgpack"]
    options = [part for one in formats for part in ("--value-format", one)]
    tail = ["tail", url, "--from", "earliest", "--no-follow", "--json", *options]

    paid = objects(wormholectl(*tail, "--filter", 'status in ("paid", "PAID")'))
    whole = [found["key"][0] for found in paid if not found["left"]]
    assert whole == ["user:0", "user:4", "user:8", "user:12", "user:16", "user:1", "broken", "o1", "p1"]
    left = [found for found in paid if found["left"]]
    assert len(left) == 15 + 1
    assert {(found["op"], found["after"] is None) for found in left} == {("upsert", True)}

    exact = objects(
        wormholectl(*tail, "--filter", 'amount > 25.4 and not left and op == "upsert" and table == "default"')
    )
    assert [found["key"][0] for found in exact] == ["user:17", "user:18", "user:19", "broken"]
    null = objects(
        wormholectl(*tail, "--filter", 'mail is null and not left and op == "upsert" and table == "default"')
    )
    assert [found["key"][0] for found in null] == ["user:4", "broken"]
    ada = objects(wormholectl(*tail, "--table", "orders", "--filter", 'customer.name startswith "A" and not left'))
    # o2 has no customer: absent, so that nobody can tell, unless the filter says what that means.
    assert [found["key"][0] for found in ada] == ["o1", "o2"]
    sure = 'customer is not absent and customer.name startswith "A" and not left'
    assert [one["key"][0] for one in objects(wormholectl(*tail, "--table", "orders", "--filter", sure))] == ["o1"]

    (explained,) = objects(
        wormholectl("filters", "explain", 'status == "paid"', "--table", "default", "--source", url, "--json", *options)
    )
    tables = {table["table"]: table for table in explained["log"]["tables"]}
    assert explained["log"]["updates"] == 25
    assert (tables["default"]["updates"], tables["default"]["kept"], tables["default"]["key_only"]) == (22, 22, 15)
    assert tables["default"]["bad_values"] == 1
    assert tables["default"]["bytes"] - tables["default"]["sent_bytes"] > 15 * 200
    assert (tables["orders"]["kept"], tables["packed"]["kept"]) == (0, 0)

    refused = wormholectl(*tail, "--filter", "changed(status)")
    assert refused.returncode == 2
    assert "changed(status) needs the row before the change, which the log of RocksDB does not hold" in refused.stderr


async def test_a_filter_changed_while_its_flow_is_behind_a_real_log(tmp_path: Path, writer: RocksWriter) -> None:
    """Published from the store itself: revoked, released, and served anew from the marker under the new filter."""
    world = World()
    source = RocksSource(
        writer.path,
        log="log",
        state_dir=tmp_path / "state",
        sharding=Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=1 << 30,
    )
    await asyncio.to_thread(source.start)
    world.source = source  # type: ignore[assignment]
    world.formats = open_formats(FormatSpec("json"), {})
    world.application(where='status == "open" and not left')
    try:
        async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
            await world.register(s1)
            before = await s1.accepts(await s1.hears_later("assign"), credit=1)
            flow = publisher.assigner.flows[("app", "log")]
            await asyncio.to_thread(writer.put, b"1", document(1, status="open"))
            frame = await s1.hears_later("batch")
            assert [update.key for update in s1.updates(frame)] == [(b"1",)]
            await s1.processed(frame)
            offered = await s1.hears_later("datamarker")
            await s1.acks(offered)
            await eventually(lambda: flow.delivery.durable.delivered == offered.datamarker.marker.delivered, "stored")
            for n in range(2, 8):  # one is on its way, the others wait for credit
                await asyncio.to_thread(writer.put, b"%d" % n, document(n, status="open" if n % 2 else "paid"))
            await s1.hears_later("batch")
            world.application(where='status == "paid" and amount > 5')
            revoke = (await s1.hears_later("revoke")).revoke
            assert revoke.cause == "its filter changed"
            await s1.releases(before)
            after = await s1.accepts(await s1.hears_later("assign"))
            assert after.epoch > before.epoch
            seen: list[tuple[object, bool]] = []
            while len(seen) < 6:
                frame = await s1.hears_later("batch")
                seen += [(update.key[0], update.left) for update in s1.updates(frame)]
                await s1.processed(frame)
            assert seen == [(b"2", True), (b"3", True), (b"4", False), (b"5", True), (b"6", False), (b"7", True)]
    finally:
        await asyncio.to_thread(source.stop)
