"""``start = "existing"`` of a RocksDB, beside the program that has it open, and a backfill with ``--where``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.support.eventually import until
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.copied_table import CopiedTable
from tests.system.harness.copying import reads

ROWS = 3_000


class Scene(CopiedTable):
    """A store with rows that are in no log any more, and the application ``app``."""

    def __init__(self, folder: Path) -> None:
        self.writer = RocksWriter(folder / "store")
        self.held: dict[bytes, bytes] = {}
        for first in range(0, ROWS, 500):
            self.put(*(f"k{number:05}".encode() for number in range(first, first + 500)))
        self.writer.flush()
        dataset = 'shard_by = "log"\ncaravans = { max_total_read_rate = "1MiB/s" }\nexisting_rows = { memory = "4MiB" }'
        source = f'source = "rocksdb://{self.writer.path}"'
        super().__init__(folder, "default", source, dataset, {"app": "existing"})

    def rows(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.held.items()}

    def put(self, *keys: bytes, value: bytes = b"v" * 300) -> None:
        self.held |= dict.fromkeys(keys, value)
        self.writer.write(("put", "default", key, value) for key in keys)

    def delete(self, *keys: bytes) -> None:
        for key in keys:
            del self.held[key]
        self.writer.write(("delete", "default", key) for key in keys)

    def close(self) -> None:
        super().close()
        self.writer.exit()


def test_the_copy_equals_the_store_and_where_sends_what_it_selects(tmp_path: Path) -> None:
    with closing(Scene(tmp_path)) as scene:
        scene.publisher.start()
        scene.subscribers["app"].start()
        until(lambda: reads(scene.copy()), lambda: f"no rows come: {scene.publisher.tail()}")
        scene.publisher.kill()
        scene.put(b"k00007", b"k02990", b"new", value=b"written")
        scene.delete(b"k00008", b"k02991")
        scene.publisher.start()
        scene.await_done()
        until(scene.is_equal, "the copy does not equal the store")

        before = reads(scene.copy())
        scene.publisher.change("app", "backfill_start", where='key startswith "k0001"')
        scene.await_done(generation=2)
        until(lambda: reads(scene.copy()) >= before + 10, "the selected rows do not come")
        assert reads(scene.copy()) == before + 10
        assert scene.is_equal()  # nothing follows from rows that were not selected
