"""Three hosts through what hosts go through: one dies whole, ZooKeeper stands still, a publisher cannot run, monitors
are restarted.

While all of it happens every log is written to. At every step each log has one publisher, on its host; each epoch of a
flow has one publisher and one subscriber; and nothing is lost, repeated out of turn, or out of order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.marked import marked
from tests.system.harness.ensemble import Application
from tests.system.harness.fleet import Fleet, Host
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

OUTAGE_S = 30.0 if "WORMHOLE_ROUNDS" in os.environ else 6.0
"""Sessions are lost after two seconds: the short outage takes everybody's away as the long one of `make soak` does."""

Say = Callable[[str], None]


@pytest.fixture
def fleet(tmp_path: Path, own_zookeeper: EmbeddedZooKeeper) -> Iterator[Fleet]:
    slow = {"callback": "batch", "pause": 0.01}
    only = 'tables = ["orders", "users"]\nwhere = \'op != "delete"\''
    fleet = Fleet(
        tmp_path,
        own_zookeeper,
        hosts={"h1": "local", "h2": "local", "h3": "zookeeper"},
        places={"db1": "h1", "db2": "h2", "db3": "h3", "db4": "h2", "cache-1": "h1", "cache-2": "h2", "search-1": "h3"},
        applications={
            "cache": Application({"cache-1": slow, "cache-2": slow}),
            "search": Application({"search-1": {}}, only, lambda c: c.table != "default" and c.op != "delete"),
        },
    )
    yield fleet
    fleet.close()


class Story:
    """What the steps have in common. ``broken``: the log that cannot be served for a while."""

    def __init__(self, fleet: Fleet, say: Say) -> None:
        self.fleet = fleet
        self.well = {"db1", "db2", "db3"}
        self.pids: dict[str, int] = {}
        self._say = say
        self._began = time.monotonic()

    def host(self, name: str) -> Host:
        return self.fleet.hosts[name]

    def goes_on(self, what: str, *, moved: tuple[str, ...] = ()) -> None:
        """Every log that can be is served, by the process that did before unless it is one of ``moved``, and all
        that was committed arrives."""
        now = self.fleet.await_serving(self.well)
        changed = {log for log in now if self.pids.get(log) != now[log]}
        assert changed == set(moved), f"{what}: {self.pids}, now {now}\n{self.fleet.told()}"
        self.pids = now
        self.fleet.await_all(self.well)
        self._say(f"  {time.monotonic() - self._began:5.1f} s: {what}")


@pytest.mark.soak
def test_three_hosts(fleet: Fleet, say: Say) -> None:
    say(f"\nthree hosts, an outage of {OUTAGE_S:g} s")
    story = Story(fleet, say)
    h1, h2, h3 = (story.host(name) for name in ("h1", "h2", "h3"))

    # Configuration is applied once. Each host runs its own logs and no other; one publisher crashes in a loop: given
    # up, and told.
    obstacle = h2.folder / "state/shop/main/db4/markers.sqlite"
    obstacle.mkdir(parents=True)
    fleet.apply()
    fleet.start_writers()
    for host in fleet.hosts.values():
        fleet.start(host, *(["--leave-running"] if host is h3 else []))
    fleet.await_said(h2, "shop/main/db4: given up, it ended 2 times within 600 s: ")
    story.goes_on("configured; a crash loop is given up", moved=("db1", "db2", "db3"))

    # Another configuration is tried, and is wrong: its host lists no such source. Given up at once, and told.
    obstacle.rmdir()
    fleet.apply(db4='source = "somewhere-else"\nkind = "rocksdb"')
    fleet.await_said(h2, "shop/main/db4: given up, its request is wrong: ")
    story.goes_on("a source that the host does not list is given up")

    # A host dies whole, a subscriber with it. What others publish goes to who is left; back again, it goes on where it
    # was.
    for name in story.well:
        fleet.logs[name].tell("fill 100 50")  # handlers take a second for these
    fleet.kill(h1)
    assert "db1" not in fleet.publishers()
    fleet.await_all(story.well - {"db1"})
    fleet.start(h1)
    story.goes_on("a host was killed and is back", moved=("db1",))

    # ZooKeeper stands still for longer than sessions last: what flows with markers on the host's own disk goes on.
    os.kill(fleet.zookeeper.pid, signal.SIGSTOP)
    ends = time.monotonic() + OUTAGE_S
    for host in fleet.hosts.values():
        fleet.await_said(host, "coordination: lost; this host continues with the configuration that was read last")
    local = [name for name in sorted(story.well) if fleet.logs[name].host.markers == "local"]
    while True:
        fleet.await_all(local)
        if time.monotonic() >= ends:
            break
    assert fleet.publishers() == story.pids
    os.kill(fleet.zookeeper.pid, signal.SIGCONT)
    story.goes_on(f"ZooKeeper stood still for {OUTAGE_S:g} s")

    # The configuration is put right: only what it is about is started.
    fleet.apply()
    story.well.add("db4")
    story.goes_on("the log that could not be served is", moved=("db4",))

    # Monitors are replaced, one by kill -9 and one in peace: publishers are taken over.
    h2.monitor.kill()
    h2.start()
    h3.monitor.signal(signal.SIGTERM)
    assert h3.monitor.wait() == 0
    assert fleet.publishers() == story.pids
    h3.start()
    for name in ("db2", "db3", "db4"):
        fleet.await_said(fleet.logs[name].host, f"shop/main/{name}: process {story.pids[name]} keeps running")
    for host in (h2, h3):
        fleet.await_said(host, "configuration: current, from ZooKeeper")
    story.goes_on("two monitors were replaced")

    # And the end of each is the end of all that it runs.
    for log in fleet.logs.values():
        log.tell("pause")
    fleet.await_all()
    for member in fleet.members.values():
        assert member.process.stop() == 0, member.process.tail()
    for host in fleet.hosts.values():
        assert host.monitor.stop() == 0, fleet.told()
        assert list((host.folder / "state/monitor/running").iterdir()) == []
    assert marked(fleet.mark) == {}
    fleet.gather()
    fleet.check()
    for log in fleet.logs.values():
        assert all(checker.reached() and not checker.losses for checker in log.checkers.values())
        assert all(checker.figures().updates > 0 for checker in log.checkers.values())
