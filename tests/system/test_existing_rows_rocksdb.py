"""``start = "existing"`` of a RocksDB, beside the program that has it open, and a backfill with ``--where``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.copying import copied, reads
from tests.system.harness.processes import Process
from wormhole.wire.v1 import admin_pb2

ROWS = 3_000


class Scene:
    """A store with rows that are in no log any more, its publisher, and a program that keeps a copy."""

    def __init__(self, folder: Path) -> None:
        self.writer = RocksWriter(folder / "store")
        self.rows: dict[bytes, bytes] = {}
        self.copy = folder / "copy.sqlite"
        for first in range(0, ROWS, 500):
            self.put(*(f"k{number:05}".encode() for number in range(first, first + 500)))
        self.writer.flush()
        application = f"""[applications.copy]
dataset = "shop"
start = "existing"
subscribers = {{ copy-1 = "127.0.0.1:{free_port()}" }}
"""
        dataset = 'shard_by = "log"\ncaravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { memory = "4MiB" }'
        settings = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"'
        source = f'source = "rocksdb://{self.writer.path}"'
        self.publisher = PublisherProcess(folder, source, application, publisher=settings, dataset=dataset)
        given = {
            "application": "copy",
            "copy": str(self.copy),
            "options": {"id": "copy-1", "coordinator": str(self.publisher.config)},
        }
        self.subscriber = Process("copy", ["-m", "tests.system.harness.copying", json.dumps(given)], folder)

    def put(self, *keys: bytes, value: bytes = b"v" * 300) -> None:
        self.rows |= dict.fromkeys(keys, value)
        self.writer.write(("put", "default", key, value) for key in keys)

    def delete(self, *keys: bytes) -> None:
        for key in keys:
            del self.rows[key]
        self.writer.write(("delete", "default", key) for key in keys)

    def is_equal(self) -> bool:
        return copied(self.copy, "default") == {str(key): str(value) for key, value in self.rows.items()}

    def backfill(self) -> admin_pb2.BackfillStatus:
        flow = self.publisher.flow("copy")
        return admin_pb2.BackfillStatus() if flow is None else flow.backfill

    def is_done(self, generation: int) -> bool:
        return self.backfill().state == "done" and self.backfill().generation == generation

    def close(self) -> None:
        self.publisher.kill()
        self.subscriber.kill()
        self.writer.exit()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_the_copy_equals_the_store_and_where_sends_what_it_selects(scene: Scene) -> None:
    scene.publisher.start()
    scene.subscriber.start()
    until(lambda: reads(scene.copy), lambda: f"rows come: {scene.publisher.tail()}")
    scene.publisher.kill()
    scene.put(b"k00007", b"k02990", b"new", value=b"written")
    scene.delete(b"k00008", b"k02991")
    scene.publisher.start()
    until(lambda: scene.is_done(1), lambda: f"done: {scene.backfill()}, {scene.publisher.tail()}")
    until(scene.is_equal, "the copy equals the store")

    before = reads(scene.copy)
    scene.publisher.change("copy", "backfill_start", where='key startswith "k0001"')
    until(lambda: scene.is_done(2), lambda: f"done again: {scene.backfill()}")
    until(lambda: reads(scene.copy) >= before + 10, "the selected rows came")
    assert reads(scene.copy) == before + 10
    assert scene.is_equal()  # nothing follows from rows that were not selected
