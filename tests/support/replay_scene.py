"""A RocksDB with its publisher, its archiver and two applications, each a process; and what they were told, against
the store."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support import spark_java
from tests.support.mass_received import Received
from tests.support.mass_workload import FAMILIES
from tests.support.ports import free_port
from tests.support.repeating import repeating
from tests.support.replay_stage import Stage
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from wormhole.wire.markers import marker_from_message

APPLICATIONS = {"cache": ("c1", "c2"), "search": ("s1",)}
_PIN_BUDGET = 64 << 10


class Scene(Stage):
    """Shards are column families. The log is kept for 64 KiB only once the store wants it no more.

    ``keys``: of each family; ``credit``: bytes that a subscriber lets come ahead;
    ``holds``: subscribers that are slow from so many updates on, and full at so many, see `replayed_application`.
    """

    def __init__(
        self, folder: Path, *, keys: int, credit: int, holds: Mapping[str, tuple[int, int]], archive: str = ""
    ) -> None:
        super().__init__(folder, archive)
        self.keys = keys
        self.writer = RocksWriter(folder / "store")
        for family in FAMILIES[1:]:
            self.writer.create_family(family)
        self.written = 0
        self._writes = threading.Lock()
        ports = {name: free_port() for names in (*APPLICATIONS.values(), ("a1",)) for name in names}
        self.config.write_text(f"""version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder / "state"}"
grace_period = "300ms"
[datasets.shop]
shard_by = "table"
[datasets.shop.archive]
to = "{self.archive}"
flush_every = "200ms"
compact = "auto"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder / "store"}"
pin_budget = "{_PIN_BUDGET}B"
""")
        for name, subscribers in {**APPLICATIONS, "archive": ("a1",)}.items():
            with self.config.open("a") as file:
                file.write(f'[applications.{name}]\ndataset = "shop"\nstart = "earliest"\n')
                file.write(f"[applications.{name}.subscribers]\n")
                file.writelines(f'{one} = "127.0.0.1:{ports[one]}"\n' for one in subscribers)
        self.publisher = self.wormholectl("publisher", "publisher", "run", "-c", str(self.config))
        self.archiver = self.wormholectl("archiver", "archive", "run", "-c", str(self.config))
        self.replayer = self.wormholectl("replay", environment=spark_java.environment())
        self._go = folder / "go"
        self.subscribers: dict[str, Process] = {}
        self.received: dict[str, Received] = {}
        for name, subscribers in APPLICATIONS.items():
            log = folder / f"{name}.log"
            self.received[name] = Received(log, keys)
            for one in subscribers:
                options = {"id": one, "coordinator": str(self.config), "credit": credit}
                slow_from, full_at = holds.get(one, (sys.maxsize, sys.maxsize))
                hold = {"slow_from": slow_from, "full_at": full_at, "go": str(self._go)}
                given = json.dumps({"application": name, "log": str(log), "options": options, **hold})
                self.subscribers[one] = Process(one, ["-m", "tests.support.replayed_application", given], folder)

    def close(self) -> None:
        """Kill what still runs."""
        super().close()
        self.writer.exit()

    def processes(self) -> list[Process]:
        """See the class above."""
        return [self.replayer, *self.subscribers.values(), self.archiver, self.publisher]

    def problems(self) -> list[str]:
        """See the class above."""
        return [problem for one in self.received.values() for problem in one.problems]

    # -- what is done

    def write(self, count: int) -> int:
        """So many changes; the number of the last."""
        with self._writes:
            number = self.writer.mass(self.written + 1, count, self.keys)
            self.written += count
            assert number == self.written, "the store numbers changes otherwise"
            return number

    def live(self) -> AbstractContextManager[None]:
        """For as long as the block lasts, a few changes come again and again."""
        return repeating(lambda: self.write(15), 0.1)

    def cut_log(self) -> int:
        """Everything that was written until now is archived, and in the log no more; up to where."""
        last = self.write(3 * _PIN_BUDGET // 40)
        self.until_archived(last)
        self.writer.flush()
        return last

    def lost(self, application: str) -> int:
        """How many flows the application was told a loss of."""
        return len({shard for shard, _, kind, *_ in self.notices(application) if kind == "loss"})

    def let_go(self) -> None:
        """No subscriber holds back any more."""
        self._go.touch()

    def replay(self, *arguments: str) -> Process:
        """``wormholectl replay``, started."""
        self.replayer.arguments[2:] = ["replay", "-c", str(self.config), "--json", *arguments]
        self.replayer.start()
        return self.replayer

    # -- what is seen

    def connected(self, application: str) -> set[str]:
        """The application's subscribers that the publisher reaches."""
        told = [one for status in self.statuses() for one in status.subscribers]
        return {one.subscriber for one in told if one.application == application and one.state == "connected"}

    def acknowledged(self, application: str) -> int:
        """Up to which change all its flows' datamarkers are."""
        flows = self.flows(application)
        markers = [marker_from_message(flow.marker) for flow in flows if flow.HasField("marker")]
        return min(int(one.delivered) for one in markers) if len(markers) == len(FAMILIES) else 0

    def until_archived(self, number: int) -> None:
        """The archive holds everything up to this change."""
        self.wait(f"{number} is archived", lambda: all(end >= number for end in self.archived().values()))

    def archived(self) -> dict[str, int]:
        """Up to which change each shard is archived."""
        store = self.store()
        manifests = {f"db1.{one}": store and store.read(f"db1.{one}") for one in FAMILIES}
        return {shard: int(one.end.delivered) if one else 0 for shard, one in manifests.items()}

    def stored(self) -> dict[tuple[str, str], str]:
        """What the store holds."""
        return {
            (f"db1.{family}", key.decode()): value.decode()
            for family in FAMILIES
            for key, value in self.writer.rows(family)
        }

    def notices(self, application: str) -> list[list[str]]:
        """What the application was told besides updates: shard, epoch, kind, and for a loss its range."""
        path = self.folder / f"{application}.log.notices"
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []
