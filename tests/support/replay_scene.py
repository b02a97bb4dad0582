"""A RocksDB with its publisher, its archiver and an application, each a process; and what the application came to, against the store."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from wormhole.cli import admin_client
from wormhole.cli.discovery import Where
from wormhole.wire.v1 import admin_pb2

__all__ = ["Scene"]

PATIENCE_S = 90.0
_START = "from tests.system.harness.child import die_with_parent as d; d(); from wormhole.cli import main; main()"


class Scene:
    """Shards are column families: ``db1.default`` and ``db1.users``. The log is kept for ``pin_budget`` bytes only."""

    def __init__(self, folder: Path, *, pin_budget: str = "64KiB") -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.writer = RocksWriter(folder / "store")
        self.writer.create_family("users")
        ports = {name: free_port() for name in ("s1", "s2", "a1")}
        self.config = folder / "wormhole.toml"
        self.config.write_text(f"""version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder / "state"}"
heartbeat = "500ms"
grace_period = "300ms"
handler_timeout = "5s"
[datasets.shop]
shard_by = "table"
[datasets.shop.archive]
to = "{self.archive}"
flush_every = "200ms"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder / "store"}"
pin_budget = "{pin_budget}"
[applications.cache]
dataset = "shop"
start = "earliest"
[applications.cache.subscribers]
s1 = "127.0.0.1:{ports["s1"]}"
s2 = "127.0.0.1:{ports["s2"]}"
[applications.archive]
dataset = "shop"
start = "earliest"
[applications.archive.subscribers]
a1 = "127.0.0.1:{ports["a1"]}"
""")
        self.where = Where(coordinator=str(self.config))
        self.publisher = self._process("publisher", "publisher", "run", "-c", str(self.config))
        self.archiver = self._process("archiver", "archive", "run", "-c", str(self.config))
        self.subscribers = {}
        for name in ("s1", "s2"):
            options = {"id": name, "coordinator": str(self.config), "credit": 64 << 10}
            given = {"application": "cache", "log": str(folder / "log"), "options": options}
            arguments = ["-m", "tests.support.replayed_application", json.dumps(given)]
            self.subscribers[name] = Process(name, arguments, folder)

    def _process(self, name: str, *arguments: str) -> Process:
        return Process(name, ["-c", _START, *arguments], self.folder)

    def replay(self, *arguments: str) -> Process:
        """``wormholectl replay`` as a process of its own."""
        return self._process("replay", "replay", "-c", str(self.config), *arguments)

    def close(self) -> None:
        for process in (*self.subscribers.values(), self.archiver, self.publisher):
            process.kill()
        self.writer.exit()

    def wait(self, what: str, holds: Callable[[], Any]) -> Any:
        """Until ``holds`` gives something true; what went wrong, and what the processes said, when it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            if time.monotonic() > deadline:
                tails = [one.tail() for one in (self.publisher, self.archiver, *self.subscribers.values()) if one.runs]
                raise AssertionError("\n".join([f"{what} within {PATIENCE_S:g} s", *tails]))
            time.sleep(0.05)
        return found

    def flows(self) -> dict[str, admin_pb2.FlowStatus]:
        """By name, as the publisher tells; empty while it does not answer."""
        try:
            answers = admin_client.ask_each(self.where)
        except Exception:
            return {}
        return {flow.flow: flow for one in answers if one.status is not None for flow in one.status.flows}

    def until_archived(self) -> None:
        """The archive holds all that was written."""
        wanted = self.sequence()

        def there() -> bool:
            store = self.store()
            manifests = [store.read(shard) for shard in ("db1.default", "db1.users")] if store is not None else [None]
            return all(one is not None and int(one.end.delivered) >= wanted for one in manifests)

        self.wait("the archive is complete", there)

    def store(self) -> ArchiveStore | None:
        return open_store(str(self.archive), "shop") if (self.archive / "archive.json").exists() else None

    def sequence(self) -> int:
        """The number of the store's last change."""
        return self.writer.write([("put", "default", b"~mark", b"%d" % time.monotonic_ns())])

    def handled(self) -> list[tuple[str, int, int, str, str]]:
        """What the application was told, in order: shard, epoch, sequence number, key, value (empty: deleted)."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        found = []
        for line in lines:
            shard, epoch, sequence, key, value = line.split(" ")
            found.append((shard, int(epoch), int(sequence), key, value))
        return found

    def state(self) -> dict[tuple[str, str], str]:
        """What it came to."""
        held: dict[tuple[str, str], str] = {}
        for shard, _, _, key, value in self.handled():
            held[shard, key] = value
        return {at: value for at, value in held.items() if value}

    def stored(self) -> dict[tuple[str, str], str]:
        """What the store holds."""
        return {
            (f"db1.{family}", key.hex()): value.hex()
            for family in ("default", "users")
            for key, value in self.writer.rows(family)
        }

    def check_order(self) -> None:
        """In each epoch of a shard updates come in the order of the log, and none is left out where the next one begins."""
        by_epoch: dict[tuple[str, int], list[int]] = defaultdict(list)
        for shard, epoch, sequence, _, _ in self.handled():
            if epoch:
                by_epoch[shard, epoch].append(sequence)
        for at, numbers in by_epoch.items():
            assert numbers == sorted(numbers), f"{at}: another order"

    def missing(self, shard: str, numbers: set[int]) -> set[int]:
        """Of the changes of a shard, those that never came."""
        return numbers - {sequence for name, _, sequence, _, _ in self.handled() if name == shard}
