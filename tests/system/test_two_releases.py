"""Monitors, publishers and subscribers of the release before work with those of this one, and each continues from the
state of the other.

The code of before is taken from the history of this checkout; it runs interpreted. Files and frames of it are read in
tests/compatibility.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from scripts.prepare import ROOT
from tests.support.eventually import until
from tests.support.marked import marked
from tests.support.seed import SEED
from tests.system.harness.copying import copied, opened, reads
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.fleet import Fleet, Host
from tests.system.harness.processes import Process
from tests.system.harness.programs import WORMHOLECTL
from tests.system.test_existing_rows import Scene
from tests.system.test_kill_nine import Round, applications
from wormhole import __version__
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

BEFORE = "1d498d0d"
PLANS: dict[str, Callable[[], Plan]] = {
    "rocksdb, static, local markers": lambda: Plan(applications(), zookeeper=False),
    "mysql, zookeeper, zookeeper markers, hash shards": lambda: Plan(
        applications("shop."), datastore="mysql", markers="zookeeper", shard_by="{ hash = 4 }"
    ),
    "mariadb, zookeeper, zookeeper markers, hash shards": lambda: Plan(
        applications("shop."), datastore="mariadb", markers="zookeeper", shard_by="{ hash = 4 }"
    ),
}

Say = Callable[[str], None]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of that commit."""
    packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True)
    if packed.returncode:
        pytest.skip(f"this checkout has no commit {BEFORE}: fetch its history")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    # Each release has a version of its own, by which a monitor recognizes publishers of another release.
    package = folder / "wormhole/__init__.py"
    package.write_text(package.read_text().replace(f'"{__version__}"', '"0.0.1"'))
    # It names its datastores in its code. Entry points of the installed release would name them a second time.
    about = folder / "wormhole_pubsub-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: wormhole-pubsub\nVersion: 0.0.1\n")
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("name", PLANS, ids=[name.replace(", ", "-") for name in PLANS])
def test_nothing_is_lost_between_two_releases(name: str, before: Path, tmp_path: Path, say: Say) -> None:
    plan = PLANS[name]()
    plan.seed, plan.tree = f"{SEED}/{name}", before
    say(f"\ntwo releases, {name}, seed {plan.seed}")
    chance = random.Random(plan.seed)
    ensemble = Ensemble(plan, tmp_path)
    try:
        publisher_of(ensemble, before)
        ensemble.start()
        ensemble.tell("go")
        ensemble.await_all()
        publisher_of(ensemble, ROOT)
        rounds(ensemble, chance, "publisher of this release, subscribers of the one before", say)
        for subscriber, member in ensemble.members.items():
            member.kill()
            member.tree = ROOT
            ensemble.start_subscriber(subscriber)
        publisher_of(ensemble, before)
        rounds(ensemble, chance, "publisher of the release before, subscribers of this one", say)
        publisher_of(ensemble, ROOT)
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        assert all(checker.reached() for checker in ensemble.checkers.values())
        assert not any(checker.losses for checker in ensemble.checkers.values())
    finally:
        ensemble.close()


def publisher_of(ensemble: Ensemble, tree: Path) -> None:
    """``kill -9`` of the publisher where one runs, and another release in its place."""
    running = ensemble.publisher.alive
    ensemble.publisher.kill()
    change_markers(ensemble.folder / "state", tree)
    ensemble.publisher.tree = tree
    if running:
        ensemble.publisher.start()


def change_markers(state: Path, tree: Path) -> None:
    """Copy the local marker stores before an upgrade. Put the copy back before a former release starts, which refuses
    what this one wrote (docs/upgrade.md)."""
    kept = state.with_name("markers-before")
    if tree == ROOT:
        for store in state.rglob("markers.sqlite"):
            copy = kept / store.relative_to(state)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            with closing(sqlite3.connect(store)) as present, closing(sqlite3.connect(copy)) as target:
                present.backup(target)
        return
    for copy in kept.rglob("markers.sqlite"):
        store = state / copy.relative_to(kept)
        for file in store.parent.glob("markers.sqlite*"):
            file.unlink()
        shutil.copy(copy, store)


def rounds(ensemble: Ensemble, chance: random.Random, who: str, say: Say) -> None:
    """Kill either side, and both, while the log goes on in another file."""
    for kind in ("publisher", "subscriber", "publisher+subscriber"):
        if ensemble.plan.markers != "local":  # a copy of local markers needs the log since it was made
            ensemble.tell("flush")
        Round(ensemble, chance).run(kind)
        ensemble.await_all()
    figures = ensemble.figures().values()
    repeated, epochs = sum(one.duplicates for one in figures), sum(one.epochs for one in figures)
    say(f"  {who}: updates {sum(one.updates for one in figures)}, repeated {repeated}, epochs {epochs}")


SLOW, QUICK = "2KiB/s", "8MiB/s"
KEYS = ("one", "two", "three")


class Unfinished(Scene):
    """A backfill (``early``), a flow that is paused, and one whose handler refuses ``KEYS``, which are parked."""

    def __init__(self, server: DatabaseServer, folder: Path, zookeeper: EmbeddedZooKeeper) -> None:
        super().__init__(server, folder, {"early": "existing", "paused": "earliest", "parks": "earliest"})
        parks = "[applications.parks]\n"
        retry = 'on_failure = "park"\nretry = { attempts = 2, first_wait = "5ms", longest_wait = "5ms" }\n'
        self.configure(parks, parks + retry)
        self.configure('"2MiB/s"', f'"{SLOW}"')
        self.configure('"1MiB/s"', f'"{QUICK}"')
        self.configure('"500ms"', '"3s"')  # the release before runs interpreted
        self.configure("static = true", f'zookeeper = "{zookeeper.hosts}/{self.database}"')
        self.configure("[publisher]\n", '[publisher]\nmarkers = "zookeeper"\n')
        text = re.sub("subscribers = .*", "", self.publisher.config.read_text())
        self.publisher.config.write_text(text)
        self.refused = set(KEYS)
        self.letters = 0
        for key in KEYS:
            refuse = f"WHEN NEW.key = '{key}' BEGIN SELECT RAISE(ROLLBACK, 'refused'); END"
            self._handle(f"CREATE TRIGGER {key} BEFORE INSERT ON rows {refuse}")

    def configure(self, old: str, new: str) -> None:
        """Change what the next publisher reads."""
        text = self.publisher.config.read_text()
        assert old in text
        self.publisher.config.write_text(text.replace(old, new))

    def apply(self) -> None:
        asyncio.run(publish_config(load(self.publisher.config)))

    def leg(self, publisher: Path, subscribers: Path) -> None:
        """``kill -9`` of everything; these releases continue the backfill and park what is refused."""
        read = reads(self.copy("early"))
        for process, tree in ((self.publisher, publisher), *((one, subscribers) for one in self.subscribers.values())):
            process.kill()
            process.tree = tree
            process.start()
        for key in KEYS:
            self.server.sql(f"REPLACE INTO {self.table} (id, value) VALUES ('{key}', 'run {self.publisher.runs}')")
        self._await_letters(len(self.refused))
        until(lambda: reads(self.copy("early")) > read, lambda: f"no rows come {self.publisher.tail()}")
        assert self.backfill("early").state == "running"

    def mend(self, key: str) -> None:
        """The handler accepts the key, and the updates of it that were parked are delivered."""
        self.refused.remove(key)
        self._handle(f"DROP TRIGGER {key}")
        self.publisher.change("parks", "retry_dead_letters", key=f"{self.table}:{key}")
        self._await_letters(-self.publisher.runs)
        (value,) = self.server.sql(f"SELECT value FROM {self.table} WHERE id = '{key}'")[0]
        assert copied(self.copy("parks"), self.table)[key] == value

    def _handle(self, sql: str) -> None:
        with closing(opened(self.copy("parks"))) as database:
            database.execute(sql)

    def _await_letters(self, more: int) -> None:
        self.letters += more

        def parked() -> bool:
            flow = self.publisher.flow("parks")
            return flow is not None and flow.dead_letters == self.letters

        until(parked, lambda: f"not {self.letters}: {self.publisher.flow('parks')} {self.publisher.tail()}")


@pytest.mark.soak
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_what_is_unfinished_goes_on_in_each_release(
    database_server: DatabaseServer, before: Path, tmp_path: Path, own_zookeeper: EmbeddedZooKeeper
) -> None:
    """A backfill, a pause and dead letters: publishers of either release take turns on one state folder. What they
    store in ZooKeeper is read by both. A former release refuses a later one's local marker store."""
    with closing(Unfinished(database_server, tmp_path, own_zookeeper)) as scene:
        scene.apply()
        with scene.changing():
            scene.leg(before, before)
            until(lambda: copied(scene.copy("paused"), scene.table), "nothing is received before the pause")
            scene.publisher.change("paused", "pause")
            scene.becomes("paused", application="paused")
            frozen = copied(scene.copy("paused"), scene.table)
            for key, publisher, subscribers in zip(KEYS, (ROOT, before, ROOT), (before, ROOT, ROOT), strict=True):
                scene.leg(publisher, subscribers)
                scene.mend(key)
                scene.becomes("paused", application="paused")
                assert copied(scene.copy("paused"), scene.table) == frozen
        scene.configure(SLOW, QUICK)
        scene.apply()
        scene.publisher.kill()
        scene.publisher.start()
        scene.await_done("early")
        scene.publisher.change("paused", "resume")
        for name in scene.subscribers:
            until(lambda name=name: scene.is_equal(name), f"{name} does not equal the table, seed {SEED}")  # type: ignore[misc]


@pytest.mark.soak
def test_a_rolling_upgrade_of_two_hosts_and_back(
    before: Path, tmp_path: Path, own_zookeeper: EmbeddedZooKeeper, say: Say
) -> None:
    """The order of docs/upgrade.md, then the same in reverse, while every log is written to."""
    fleet = Fleet(
        tmp_path,
        own_zookeeper,
        hosts={"h1": "local", "h2": "zookeeper"},
        places={"db1": "h1", "db2": "h2", "cache-1": "h1", "cache-2": "h2"},
        applications={"cache": Application({"cache-1": {}, "cache-2": {"callback": "batch"}})},
    )
    upgrade = Upgrade(fleet, before, say)
    h1, h2 = fleet.hosts.values()
    try:
        upgrade.config_apply(before)
        fleet.start_writers()
        for host in (h1, h2):
            monitor_of(host, before)
            host.start()
        for member in fleet.members.values():
            member.tree = before
            member.start()
        upgrade.goes_on("everything is of the release before", db1=before, db2=before)

        upgrade.replace_monitor(h1, ROOT)
        upgrade.goes_on("the first host is upgraded", db1=ROOT, db2=before)
        upgrade.replace_monitor(h2, ROOT)
        upgrade.goes_on("the second host is upgraded", db1=ROOT, db2=ROOT)
        for name in fleet.members:
            upgrade.replace_subscriber(name, ROOT)
            upgrade.goes_on(f"subscriber {name} is upgraded", db1=ROOT, db2=ROOT)
        upgrade.config_apply(ROOT)

        upgrade.config_apply(before)
        for name in fleet.members:
            upgrade.replace_subscriber(name, before)
            upgrade.goes_on(f"subscriber {name} is of the release before", db1=ROOT, db2=ROOT)
        upgrade.replace_monitor(h1, before)
        upgrade.goes_on("the first host is of the release before", db1=before, db2=ROOT)
        upgrade.replace_monitor(h2, before)
        upgrade.goes_on("the second host is of the release before", db1=before, db2=before)

        for log in fleet.logs.values():
            log.writer.tell("pause")
        fleet.await_all()
        for log in fleet.logs.values():
            assert all(checker.reached() and not checker.losses for checker in log.checkers.values())
            assert all(checker.figures().updates > 0 for checker in log.checkers.values())
    finally:
        fleet.close()


class Upgrade:
    """Replaces one process at a time in a fleet."""

    def __init__(self, fleet: Fleet, before: Path, say: Say) -> None:
        self.fleet, self._say = fleet, say

    def config_apply(self, tree: Path) -> None:
        """With ``wormholectl`` of that checkout."""
        self.fleet.write_file()
        arguments = ["-c", WORMHOLECTL, "config", "apply", str(self.fleet.file), "--yes"]
        command = Process("config-apply", arguments, self.fleet.folder)
        command.tree = tree
        command.start()
        assert command.wait() == 0, command.tail()

    def replace_monitor(self, host: Host, tree: Path) -> None:
        """``kill -9`` and start that of another checkout: it finds publishers that run and have to be replaced. Those
        with local markers are ended before an earlier release starts."""
        host.monitor.kill()
        if host.markers == "local":
            if tree != ROOT:
                self._end_publishers(host)
            change_markers(host.folder / "state", tree)
        monitor_of(host, tree)
        host.start()

    def _end_publishers(self, host: Host) -> None:
        of_host = [pid for name, pid in self.fleet.publishers().items() if self.fleet.logs[name].host is host]
        for pid in of_host:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not marked(self.fleet.mark).keys() & set(of_host), f"{of_host} do not end")

    def replace_subscriber(self, name: str, tree: Path) -> None:
        """Stop it, which gives its shards back, and start that of another checkout."""
        member = self.fleet.members[name]
        assert member.stop() == 0, member.tail()
        member.tree = tree
        member.start()

    def goes_on(self, what: str, **trees: Path) -> None:
        """Each log has one publisher, of this checkout; and what is committed now arrives at every application."""
        self.fleet.await_true(
            lambda: all(self._tree(name) == str(tree) for name, tree in trees.items()),
            lambda: f"{what}: they run in { {name: self._tree(name) for name in trees} }",
        )
        self.fleet.await_serving(trees)
        self.fleet.await_all()
        received = sum(
            checker.figures().updates for log in self.fleet.logs.values() for checker in log.checkers.values()
        )
        self._say(f"  {what}: updates {received}")

    def _tree(self, log: str) -> str:
        """The checkout whose code its publisher runs; empty while none runs."""
        pid = self.fleet.publishers().get(log)
        try:
            environment = b"" if pid is None else Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone meanwhile
            return ""
        return environment.partition(b"PYTHONPATH=")[2].partition(b"\0")[0].decode()


def monitor_of(host: Host, tree: Path) -> None:
    """The next run of its monitor has the code of another checkout."""
    host.monitor.tree = tree
