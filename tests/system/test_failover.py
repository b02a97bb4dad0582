"""Several hosts for one log: whatever stops the one that serves it, another one goes on, and nothing is lost.

Each round stops, cuts off or replaces something at a moment that the seed chooses, under a live writer, and waits until
another host owns the log and everything that was committed by then has arrived. The checker looks at every line
meanwhile: order, nothing lost, one publisher and one subscriber for each epoch of a flow. A round is repeated with
``WORMHOLE_SEED=<seed> pytest tests/system/test_failover.py`` as far as the operating system repeats itself.

Seconds to recover are from the fault to the first update of the last flow by the next owner.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import command_line
from tests.support.fault_proxy import FaultProxy
from tests.support.seed import SEED
from tests.system.harness.candidates import Candidates, Host
from tests.system.harness.ensemble import Plan
from tests.system.harness.quorum import Quorum
from tests.system.test_kill_nine import applications

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "3"))
LONG = "WORMHOLE_ROUNDS" in os.environ
RATE = 100.0 if LONG else 40.0
SESSION_S = 2.0
CLOCK_AHEAD = "import time; right = time.time; time.time = lambda: right() + 5 * 3600.0; "

Say = Callable[[str], None]
Places = dict[str, tuple[str, tuple[str, ...]]]

ONE_COPY: Places = {"a": ("main", ("pair-1",)), "b": ("main", ("pair-2",))}
TWO_COPIES: Places = {"a": ("main", ("pair-1",)), "b": ("west", ("pair-2",))}


@dataclass(frozen=True, slots=True)
class Setting:
    """``rounds``: how many of 50 it gets. ``kinds``: of rounds; the first ones come first. ``tested``: those of
    `make test`."""

    datastore: str
    places: Places
    rounds: int
    kinds: tuple[str, ...]
    tested: tuple[str, ...] = ()
    quorum: bool = False


_ANYWHERE = (
    "owner frozen", "host killed", "moved", "ZooKeeper does not hear the owner", "the owner does not hear ZooKeeper",
    "the owner loses ZooKeeper", "standby frozen", "subscriber does not hear", "subscriber is not heard",
)  # fmt: skip
_ONE_COPY = (
    "the database does not hear the owner", "the owner does not hear the database", "the owner loses the database",
    "database killed",
)  # fmt: skip
SETTINGS = {
    "mariadb, one copy": Setting(
        "mariadb", ONE_COPY, 17, (*_ANYWHERE, *_ONE_COPY, "ZooKeeper killed", "host and ZooKeeper killed"),
        ("owner frozen",)
    ),
    "mariadb, two copies": Setting(
        "mariadb", TWO_COPIES, 18, ("primary killed", "primary killed", "moved", "primary killed", *_ANYWHERE,
                                    "host and primary killed", "primary killed"),
        ("primary killed", "moved"),
    ),
    "postgres, one copy, three ZooKeepers": Setting(
        "postgres", ONE_COPY, 15, ("leader killed", "host killed", "leader and host killed", *_ANYWHERE, *_ONE_COPY,
                                                     "host and ZooKeeper killed"),
        quorum=True,
    ),
}  # fmt: skip


@contextmanager
def running(setting: Setting, folder: Path, seed: str, before: Mapping[str, str] | None = None) -> Iterator[Candidates]:
    """Everything runs, the first host owns the log and the second one stands by. ``before``: per host, Python that its
    publisher runs first."""
    wanted = {name: one for name, one in applications("shop.").items() if name != "thread"}
    plan = Plan(wanted, datastore=setting.datastore, shard_by="{ hash = 4 }", seed=seed, rate=RATE)
    ensemble = Candidates(plan, folder, setting.places, quorum=setting.quorum, before=before)
    try:
        ensemble.start()
        first, second = ensemble.hosts.values()
        ensemble.tell("go")
        ensemble.await_true(lambda: ensemble.owner is not None, lambda: f"no owner: {ensemble.owners()}")
        if ensemble.owner is second:  # it started faster
            move(ensemble, first)
        ensemble.await_standby(second)
        ensemble.await_all()
        yield ensemble
    finally:
        ensemble.close()


def move(ensemble: Candidates, to: Host) -> None:
    """Move the log, and wait until it is there."""
    ensemble.await_true(lambda: ensemble.candidate(to).get("ready"), lambda: f"not ready: {ensemble.owners()}")
    words = ["publishers", "move", "shop/db1", "--to", to.candidate, "-c", str(ensemble.config), "--yes"]
    code, out, err = command_line.run(*words)
    assert code == 0, out + err
    ensemble.await_owner(to)


CUTS: dict[str, tuple[str, Callable[[FaultProxy], None]]] = {
    "ZooKeeper does not hear the owner": ("zookeeper", FaultProxy.mute),
    "the owner does not hear ZooKeeper": ("zookeeper", FaultProxy.deafen),
    "the owner loses ZooKeeper": ("zookeeper", FaultProxy.stall),
    "the database does not hear the owner": ("database", FaultProxy.mute),
    "the owner does not hear the database": ("database", FaultProxy.deafen),
    "the owner loses the database": ("database", FaultProxy.stall),
    "subscriber does not hear": ("subscriber", FaultProxy.mute),
    "subscriber is not heard": ("subscriber", FaultProxy.deafen),
}
"""Rounds that cut a link, and how."""


class Round:
    """One way to do each thing; ``chance`` chooses the moments. Each returns the seconds to recover, or ``None`` where
    the log stays where it is."""

    def __init__(self, ensemble: Candidates, chance: random.Random) -> None:
        self.ensemble = ensemble
        self.chance = chance

    def run(self, kind: str) -> float | None:
        """Do what ``kind`` names, and undo it."""
        self.ensemble.await_more(self.chance.randrange(100))
        if kind in CUTS:
            which, cut = CUTS[kind]
            if which != "subscriber":
                return self._cut_off(which, cut)
            self._without_subscriber(cut)
            return None
        does: Callable[[], float | None] = getattr(self, "_" + kind.replace(" ", "_").lower())
        return does()

    def sides(self) -> tuple[Host, Host]:
        """The owner and the other one."""
        first, second = self.ensemble.hosts.values()
        return (first, second) if self.ensemble.owner is first else (second, first)

    def _taken(self, host: Host, since: float) -> float:
        """Until the host serves, and everything came."""
        self.ensemble.await_owner(host)
        self.ensemble.await_all()
        self.ensemble.await_more(50)  # fifty updates of every flow
        return self.ensemble.recovered(since, host)

    # -- processes and hosts

    def _owner_frozen(self) -> float:
        """A garbage collection of the machine: beyond its session, and it wakes up while another one serves."""
        owner, other = self.sides()
        since = time.monotonic()
        owner.publisher.signal(signal.SIGSTOP)
        took = self._taken(other, since)
        owner.publisher.signal(signal.SIGCONT)
        self.ensemble.await_standby(owner)
        return took

    def _standby_frozen(self) -> None:
        _, other = self.sides()
        other.publisher.signal(signal.SIGSTOP)
        self.ensemble.await_all_of(20)
        other.publisher.signal(signal.SIGCONT)
        self.ensemble.await_standby(other)

    def _host_killed(self) -> float:
        owner, other = self.sides()
        since = time.monotonic()
        self.ensemble.kill_host(owner)
        took = self._taken(other, since)
        self.ensemble.start_host(owner)
        self.ensemble.await_standby(owner)
        return took

    def _moved(self) -> float:
        owner, other = self.sides()
        since = time.monotonic()
        move(self.ensemble, other)
        took = self._taken(other, since)
        self.ensemble.await_standby(owner)
        return took

    # -- networks

    def _cut_off(self, which: str, cut: Callable[[FaultProxy], None]) -> float:
        """The owner is, from ZooKeeper or the database, for as long as another one needs to take over."""
        owner, other = self.sides()
        links: tuple[FaultProxy, ...] = getattr(owner, which)
        since = time.monotonic()
        for link in links:
            cut(link)
        took = self._taken(other, since)
        for link in links:
            link.pass_through()
        self.ensemble.await_standby(owner)
        return took

    def _without_subscriber(self, cut: Callable[[FaultProxy], None]) -> None:
        """Its flows go to the other one of the application."""
        link = self.ensemble.fronts[self.chance.choice(["pair-1", "pair-2"])]
        cut(link)
        self.ensemble.await_all_of(20)
        link.pass_through()

    # -- servers

    def _zookeeper_killed(self) -> None:
        assert self.ensemble.zookeeper is not None
        self.ensemble.zookeeper.kill()
        self.ensemble.zookeeper.start()

    def _leader_killed(self) -> None:
        """The log stays where it is: the session outlives an election."""
        quorum = self.ensemble.zookeeper
        assert isinstance(quorum, Quorum)
        quorum.kill_leader()
        self.ensemble.await_all_of(20)
        quorum.start()

    def _leader_and_host_killed(self) -> float:
        owner, other = self.sides()
        quorum = self.ensemble.zookeeper
        assert isinstance(quorum, Quorum)
        since = time.monotonic()
        quorum.kill_leader()
        self.ensemble.kill_host(owner)
        took = self._taken(other, since)
        quorum.start()
        self.ensemble.start_host(owner)
        self.ensemble.await_standby(owner)
        return took

    def _host_and_zookeeper_killed(self) -> float:
        """All of ZooKeeper, at some moment of the other host's taking over."""
        owner, other = self.sides()
        since = time.monotonic()
        self.ensemble.kill_host(owner)
        self.ensemble.await_true(self._passed(self.chance.uniform(0, 2 * SESSION_S)), "the clock stands")
        self._zookeeper_killed()
        took = self._taken(other, since)
        self.ensemble.start_host(owner)
        self.ensemble.await_standby(owner)
        return took

    @staticmethod
    def _passed(seconds: float) -> Callable[[], bool]:
        until = time.monotonic() + seconds
        return lambda: time.monotonic() >= until

    def _database_killed(self) -> None:
        self.ensemble.server.kill()
        self.ensemble.server.back()

    def _primary_killed(self) -> float:
        """Promotion of the other copy; the killed one comes back as its replica."""
        owner, other = self._with_primary()
        since = self.ensemble.copies.fail_over()
        took = self._taken(other, since)
        self.ensemble.copies.rejoin()
        self.ensemble.await_standby(owner)
        return took

    def _host_and_primary_killed(self) -> float:
        owner, other = self._with_primary()
        self.ensemble.kill_host(owner)
        since = self.ensemble.copies.fail_over()
        took = self._taken(other, since)
        self.ensemble.copies.rejoin()
        self.ensemble.start_host(owner)
        self.ensemble.await_standby(owner)
        return took

    def _with_primary(self) -> tuple[Host, Host]:
        """As :meth:`sides`; the owner serves the copy that is written to."""
        owner, other = self.sides()
        if owner.copy != self.ensemble.copies.other:
            return owner, other
        move(self.ensemble, other)
        self.ensemble.await_standby(owner)
        return other, owner


def share(setting: Setting) -> int:
    """How many of the rounds it gets."""
    if not LONG:
        return len(setting.tested)
    return max(1, round(ROUNDS * setting.rounds / sum(one.rounds for one in SETTINGS.values())))


def percentile(values: Iterable[float], part: float) -> float:
    """The least value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, id=one.replace(", ", "-"), marks=[] if SETTINGS[one].tested else pytest.mark.soak)
     for one in SETTINGS],
)  # fmt: skip
def test_nothing_is_lost(name: str, tmp_path: Path, say: Say) -> None:
    setting = SETTINGS[name]
    seed = f"{SEED}/{list(SETTINGS).index(name)}"
    order, took = random.Random(seed), dict[str, list[float]]()
    count = share(setting)
    kinds = list((setting.kinds if LONG else setting.tested)[::-1])
    say(f"\nfailover, {count} rounds, {name}, seed {seed}")
    with running(setting, tmp_path, seed) as ensemble:
        for number in range(count):
            if not kinds:
                kinds = order.sample(setting.kinds, len(setting.kinds))
            kind, began = kinds.pop(), time.monotonic()
            if order.random() < 0.5:
                ensemble.tell("flush")
            seconds = Round(ensemble, random.Random(f"{seed}/{number}")).run(kind)
            ensemble.await_all()
            figures = ensemble.figures().values()
            recovered = "" if seconds is None else f"recovered after {seconds:4.1f} s; "
            say(
                f"  round {number:2} seed {seed}/{number}: {kind:<36} {time.monotonic() - began:5.1f} s; {recovered}"
                f"term {ensemble.term}, updates {sum(f.updates for f in figures)}, "
                f"repeated {sum(f.duplicates for f in figures)}, epochs {sum(f.epochs for f in figures)}"
            )
            if seconds is not None:
                took.setdefault("moved" if kind == "moved" else "taken over", []).append(seconds)
        finish(ensemble, say)
    for what, each in took.items():
        say(
            f"  {name}, {what} {len(each)} times: p50 {percentile(each, 0.5):.1f} s, "
            f"p95 {percentile(each, 0.95):.1f} s; session timeout {SESSION_S:g} s"
        )


def finish(ensemble: Candidates, say: Say) -> None:
    """The writer pauses, everything is marked as delivered, ends in order, and the count is whole."""
    ensemble.tell("pause")
    ensemble.await_all()
    ensemble.await_true(lambda: not ensemble.unmarked(), lambda: f"{ensemble.unmarked()}")
    if late := ensemble.check_state():
        say(f"  {late} updates came to a subscriber whose shard had moved; its epoch told")
    owner = ensemble.owner
    assert owner is not None
    others = [host.publisher for host in ensemble.hosts.values() if host is not owner]
    for process in (*ensemble.members.values(), *others, owner.publisher):
        process.await_output("listens at" if process not in ensemble.publishers() else "")
        assert process.stop() == 0, process.tail()
    ensemble.gather()
    ensemble.check()
    for checker in ensemble.checkers.values():
        assert checker.reached(), checker.behind()
        assert not checker.losses


@pytest.mark.soak
def test_clocks_that_are_hours_apart_decide_nothing(tmp_path: Path, say: Say) -> None:
    with running(SETTINGS["mariadb, one copy"], tmp_path, f"{SEED}/clocks", before={"b": CLOCK_AHEAD}) as ensemble:
        for number, kind in enumerate(("owner frozen", "host killed", "owner frozen", "moved")):
            seconds = Round(ensemble, random.Random(number)).run(kind)
            say(f"  clocks five hours apart: {kind}: recovered after {seconds:.1f} s")
        finish(ensemble, say)
