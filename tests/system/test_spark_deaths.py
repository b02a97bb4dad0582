"""A mass replay on a real standalone cluster of two workers: executors come for its flows and go, and an executor, a
worker, the driver and the publisher are killed. Nothing is lost, and nothing comes out of order.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.spark_cluster import Cluster, cluster
from tests.support.command_line import run
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from tests.support.replay_stage import Stage
from tests.support.rocks_writer import RocksWriter
from tests.support.spark_java import options
from tests.system.harness.processes import Process
from tests.system.test_spark_cluster import SCALED, objects, pushed, submitted

FAMILIES = ("default", *(f"f{number}" for number in range(5)))
ROUNDS = min(5, int(os.environ.get("WORMHOLE_ROUNDS", "1")))
UPDATES, KEYS = 500, 40
"""Updates and keys of each family."""


class Flows(Stage):
    """Six flows of one application, which is slow from the first replayed update on until the file ``go`` is there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = folder / "search.log"
        self._go = folder / "go"
        self.writer = RocksWriter(folder / "store")
        for family in FAMILIES[1:]:
            self.writer.create_family(family)
        ports = {name: free_port() for name in ("s1", "a1")}
        self.config.write_text(f"""version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder / "state"}"
[datasets.shop]
shard_by = "table"
[datasets.shop.archive]
to = "{self.archive}"
flush_every = "200ms"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder / "store"}"
[applications.search]
dataset = "shop"
start = "earliest"
[applications.search.subscribers]
s1 = "127.0.0.1:{ports["s1"]}"
[applications.archive]
dataset = "shop"
start = "earliest"
[applications.archive.subscribers]
a1 = "127.0.0.1:{ports["a1"]}"
""")
        full = UPDATES * len(FAMILIES) + 1
        options = {"id": "s1", "coordinator": str(self.config), "credit": 1 << 20, "handler_timeout": 3600.0}
        hold = {"slow_from": full, "full_at": full, "go": str(self._go)}
        given = {"application": "search", "log": str(self.log), "options": options, **hold}
        self.publisher = self.wormholectl("publisher", "publisher", "run", "-c", str(self.config))
        self.archiver = self.wormholectl("archiver", "archive", "run", "-c", str(self.config))
        self.subscriber = Process("s1", ["-m", "tests.support.replayed_application", json.dumps(given)], folder)

    def processes(self) -> list[Process]:
        """See the class above."""
        return [self.subscriber, self.archiver, self.publisher]

    def close(self) -> None:
        """Kill what still runs."""
        super().close()
        self.writer.exit()

    def write(self) -> None:
        """Changes of all families, in turn."""
        for first in range(0, UPDATES, 50):
            self.writer.write(
                ("put", family, b"k%d" % (number % KEYS), b"%d" % number)
                for number in range(first, first + 50)
                for family in FAMILIES
            )

    def begin(self) -> None:
        """Everything is written, archived, and received live."""
        self.publisher.start()
        self.archiver.start()
        self.subscriber.start()
        self.write()
        every = UPDATES * len(FAMILIES)
        self.wait("all is archived", lambda: self.archived() == every)
        self.wait("the application is live", lambda: len(self.received()) == every)

    def replayed(self) -> int:
        """How many replayed updates the application received."""
        return sum(one[3] == "1" for one in self.received())

    def archived(self) -> int:
        """Rows in the archive."""
        store = self.store()
        manifests = [store.read(f"db1.{family}") for family in FAMILIES] if store else []
        return sum(entry.rows for one in manifests if one for entry in one.files)

    def received(self) -> list[list[str]]:
        """Shard, epoch, number of the change, whether it was replayed, key, value; as they came."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line.split(" ") for line in text.splitlines()]

    def let_go(self) -> None:
        """The application takes everything."""
        self._go.touch()

    def attempts(self) -> int:
        """How often a task opened one of the flows."""
        return sum(flow.replay.attempts for flow in self.flows("search"))


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "cluster", 2, start_s=PATIENCE_S, cores=2, java=options()) as found:
        yield found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Flows]:
    folder = tmp_path / "stage"
    folder.mkdir()
    found = Flows(folder)
    try:
        yield found
    finally:
        found.close()


BEGINS = ("--app", "search", "--from", "earliest", "--mode", "log", "--lease", "10m")


@pytest.mark.soak
@pytest.mark.parametrize("_round", range(ROUNDS))
def test_executors_come_and_go_and_die_and_nothing_is_lost(workers: Cluster, stage: Flows, _round: int) -> None:
    stage.begin()
    settings = SCALED | {"spark.dynamicAllocation.maxExecutors": "4"}
    replay = submitted(workers, settings, stage, *BEGINS)
    replay.start()
    try:
        stage.wait("executors came for four flows", lambda: pushed(replay) == (4, 2))
        former = set(executors(workers))
        assert len(former) == 4

        opened = stage.attempts()
        os.kill(min(former), signal.SIGKILL)
        stage.wait("another executor came", lambda: len(set(executors(workers)) - former) == 1)
        stage.wait("its flow is opened again", lambda: stage.attempts() > opened)

        opened = stage.attempts()
        os.kill(workers.workers[0], signal.SIGKILL)
        stage.wait("its executors went with it", lambda: len(executors(workers)) == 2)

        (number,) = {flow.replay.replay for flow in stage.flows("search")}
        family = descendants(replay.pid)
        for process in family:
            os.kill(process, signal.SIGKILL)
        replay.kill()
        stage.wait("its executors went with the driver", lambda: not executors(workers))

        resumed = submitted(workers, settings, stage, "--resume", number)
        resumed.runs, replay = replay.runs, resumed
        opened = stage.attempts()
        replay.start()
        stage.wait("executors came for two flows", lambda: pushed(replay) == (2, 4))
        assert len(executors(workers)) == 2
        assert stage.attempts() > opened

        change(stage, "pause")
        stage.let_go()
        replay.await_output("the cluster runs no executor")
        assert executors(workers) == []
        change(stage, "resume")
        replay.await_output("executors again")
        assert replay.wait() == 0, replay.tail()
    finally:
        replay.kill()
    came_whole_and_in_order(stage, replay)


def test_the_publisher_dies_in_the_middle_and_nothing_is_lost(workers: Cluster, stage: Flows) -> None:
    """The next run of it has another address. The flows that it had open, and those that wait, go on there behind the
    last acknowledged update.
    """
    stage.begin()
    replay = submitted(workers, SCALED | {"spark.dynamicAllocation.maxExecutors": "2"}, stage, *BEGINS)
    replay.start()
    try:
        stage.wait("two flows are pushed, four wait", lambda: pushed(replay) == (2, 4))
        stage.wait("replayed updates arrive", stage.replayed)
        stage.publisher.kill()
        stage.let_go()  # what is pushed is acknowledged to tasks that cannot store it
        stage.publisher.start()
        assert replay.wait() == 0, replay.tail()
    finally:
        replay.kill()
    came_whole_and_in_order(stage, replay)


def change(stage: Flows, verb: str) -> None:
    for family in FAMILIES:
        code, out, error = run("flows", verb, f"search/db1.{family}", "--yes", "-c", str(stage.config))
        assert code == 0, (out, error)


def came_whole_and_in_order(stage: Flows, replay: Process) -> None:
    flows = objects(replay)[-1]["flows"]
    assert [(one["state"], one["handed_over"]) for one in flows] == [("live", True)] * len(FAMILIES)
    last: dict[tuple[str, int], int] = {}
    newest: dict[str, int] = {}
    replayed: dict[str, set[str]] = {f"db1.{family}": set() for family in FAMILIES}
    state: dict[tuple[str, str], str] = {}
    for shard, epoch, number, was_replayed, key, value in stage.received():
        assert int(epoch) >= newest.get(shard, 0), "an epoch that is over"
        newest[shard] = int(epoch)
        assert int(number) > last.get((shard, int(epoch)), 0), "out of order, or twice in one epoch"
        last[shard, int(epoch)] = int(number)
        if was_replayed == "1":
            replayed[shard].add(value)
        state[shard, key] = value
    assert replayed == {shard: {str(number) for number in range(UPDATES)} for shard in replayed}
    stored = {
        (f"db1.{family}", key.decode()): value.decode()
        for family in FAMILIES
        for key, value in stage.writer.rows(family)
    }
    assert state == stored


def executors(workers: Cluster) -> list[int]:
    """The processes of those that live."""
    return [
        process
        for worker in workers.workers
        for process in descendants(worker)
        if b"CoarseGrainedExecutorBackend" in read(f"/proc/{process}/cmdline")
    ]


def descendants(process: int) -> list[int]:
    """What the process started, and what that started in turn."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*"):
        for child in read(f"{task}/children").split():
            found += [int(child), *descendants(int(child))]
    return found


def read(path: str) -> bytes:
    """Nothing of a process that has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
