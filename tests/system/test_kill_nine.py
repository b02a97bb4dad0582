"""Promise 1: ``kill -9`` of any process at any moment loses nothing. And promises 2 and 3 with it.

Each round kills something under a live writer at a moment that the seed chooses, starts it again (or lets another take
over), and waits until everything that was committed by then has arrived. The checker looks at every line meanwhile. A
round is repeated with ``WORMHOLE_SEED=<seed> pytest tests/system/test_kill_nine.py`` as far as the operating system
repeats itself.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.support.ports import free_port
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "5"))
RATE = 100.0 if "WORMHOLE_ROUNDS" in os.environ else 40.0
"""Commits a second. Each kill meets some under way at either rate; the rest is time."""

Say = Callable[[str], None]
Running = Callable[[Plan], AbstractContextManager[Ensemble]]


DIALLED = "static, local markers, dialled by subscribers"


def dialling() -> Plan:
    """The subscribers dial the publisher."""
    address = f"127.0.0.1:{free_port()}"
    dial = {"options": {"dial": [address]}}
    pair = Application({"pair-1": dial, "pair-2": {"callback": "batch", **dial}}, dials=True)
    publisher = f'attach_listen = "{address}"'
    return Plan({"pair": pair}, zookeeper=False, shard_by="{ hash = 4 }", publisher=publisher)


def applications(database: str = "") -> dict[str, Application]:
    """Two that want everything, one of them by two subscribers, and one with a filter that drops ends of transactions.

    ``database``: with a dot, before the names of tables.
    """
    orders, users = f"{database}orders", f"{database}users"
    return {
        "pair": Application({"pair-1": {}, "pair-2": {"callback": "batch"}}),
        "thread": Application({"thread-1": {"callback": "thread"}}),
        "some": Application(
            {"some-1": {}},
            f'tables = ["{orders}", "{users}"]\nwhere = \'op != "delete" or key startswith "key-00"\'',
            lambda c: c.table in {orders, users} and (c.op != "delete" or bytes.fromhex(c.key).startswith(b"key-00")),
        ),
    }


PLANS = {
    "zookeeper, local markers": lambda: Plan(applications()),
    "zookeeper, zookeeper markers, hash shards": lambda: Plan(
        applications(), markers="zookeeper", shard_by="{ hash = 4 }"
    ),
    "static, local markers": lambda: Plan(applications(), zookeeper=False),
    "mariadb, zookeeper, zookeeper markers, hash shards": lambda: Plan(
        applications("shop."), datastore="mariadb", markers="zookeeper", shard_by="{ hash = 4 }"
    ),
    "mysql, static, local markers": lambda: Plan(applications("shop."), datastore="mysql", zookeeper=False),
    "postgres, static, local markers": lambda: Plan(applications("shop."), datastore="postgres", zookeeper=False),
    DIALLED: dialling,
}
KINDS = {
    "zookeeper, local markers": ["publisher+subscriber", "moved", "publisher", "subscriber", "zookeeper", "writer", "zookeeper+publisher"],  # noqa: E501
    "zookeeper, zookeeper markers, hash shards": ["zookeeper+publisher", "subscriber", "zookeeper", "publisher", "moved", "publisher+subscriber", "long outage"],  # noqa: E501
    "static, local markers": ["publisher twice", "subscriber", "publisher", "publisher+subscriber", "writer", "publisher"],  # noqa: E501
    "mariadb, zookeeper, zookeeper markers, hash shards": ["publisher+database", "database", "writer+subscriber+database", "database twice", "database+zookeeper"],  # noqa: E501
    "mysql, static, local markers": ["database+publisher", "database", "writer+database", "subscriber+database", "database twice"],  # noqa: E501
    "postgres, static, local markers": ["publisher+database", "database", "subscriber+publisher", "writer+database", "database twice", "publisher twice"],  # noqa: E501
    DIALLED: ["publisher+subscriber", "subscriber", "publisher twice", "moved", "publisher", "writer"],
}  # fmt: skip


class Round:
    """One way to kill each thing; ``chance`` chooses the moments."""

    def __init__(self, ensemble: Ensemble, chance: random.Random) -> None:
        self.ensemble = ensemble
        self.chance = chance

    def run(self, kind: str) -> None:
        """Kill what ``kind`` names and bring it back."""
        self._moment(1.2)
        for index, victim in enumerate(kind.split("+")):
            if index:
                self._moment(0.3)
            getattr(self, "_" + victim.replace(" ", "_"))()

    def _moment(self, most: float) -> None:
        time.sleep(self.chance.uniform(0.0, most))

    def _publisher(self) -> None:
        self.ensemble.publisher.kill()
        self._moment(0.8)
        self.ensemble.publisher.start()

    def _publisher_twice(self) -> None:
        self._publisher()
        self._moment(1.5)  # while it starts, opens its store, dials
        self._publisher()

    def _subscriber(self) -> None:
        name = self.chance.choice(sorted(self.ensemble.members))
        self.ensemble.members[name].kill()
        self._moment(0.8)
        self.ensemble.start_subscriber(name)

    def _moved(self) -> None:
        """It stays away until everything has moved to the other one."""
        name = self.chance.choice(["pair-1", "pair-2"])
        self.ensemble.members[name].kill()
        self.ensemble.await_all()
        self.ensemble.start_subscriber(name)

    def _zookeeper(self, least: float = 0.0) -> None:
        assert self.ensemble.zookeeper is not None
        self.ensemble.zookeeper.kill()
        time.sleep(least)
        self._moment(1.0)
        self.ensemble.zookeeper.start()

    def _long_outage(self) -> None:
        """Longer than the session: everybody's entries are gone when it comes back."""
        self._zookeeper(3.0)

    def _database(self) -> None:
        self.ensemble.server.kill()
        self._moment(0.5)
        self.ensemble.server.back()

    def _database_twice(self) -> None:
        self._database()
        self._moment(0.5)  # while it recovers, and is connected to again
        self._database()

    def _writer(self) -> None:
        self.ensemble.writer.kill()
        self._moment(0.3)
        self.ensemble.writer.ready()
        self.ensemble.tell("go")


WEIGHTS = (7, 7, 6, 3, 3, 4, 6)
"""How many of 30 rounds each plan gets: a database server takes seconds to come back.

The first kinds of a plan come first."""


def share(index: int) -> int:
    """How many of the rounds the plan of this number gets."""
    return max(1, round(ROUNDS * WEIGHTS[index] / sum(WEIGHTS)))


LONG = {"static, local markers", "mysql, static, local markers"}
"""Plans of a soak only: PostgreSQL's has the same coordination and markers, MariaDB's the same reader as MySQL's."""


@pytest.mark.parametrize(
    ("index", "name"),
    [
        pytest.param(index, name, id=name.replace(", ", "-"), marks=[pytest.mark.soak] * (name in LONG))
        for index, name in enumerate(PLANS)
        if name != DIALLED
    ],
)
def test_nothing_is_lost(index: int, name: str, running: Running, say: Say) -> None:
    kills(index, name, share(index), running, say)


def test_nothing_is_lost_when_subscribers_dial(running: Running, say: Say) -> None:
    index = list(PLANS).index(DIALLED)
    kills(index, DIALLED, max(2, share(index)), running, say)


def kills(index: int, name: str, rounds: int, running: Running, say: Say) -> None:
    """So many rounds of a plan."""
    seed = f"{SEED}/{index}"
    plan = PLANS[name]()
    plan.seed, plan.rate = seed, RATE
    order = random.Random(seed)
    kinds = KINDS[name][1::-1]
    say(f"\nkill -9, {rounds} rounds, {name}, seed {seed}")
    with running(plan) as ensemble:
        ensemble.tell("go")
        ensemble.await_all()
        for number in range(rounds):
            if not kinds:
                kinds = order.sample(KINDS[name], len(KINDS[name]))
            kind = kinds.pop()
            began = time.monotonic()
            chance = random.Random(f"{seed}/{number}")
            if chance.random() < 0.5:
                # RocksDB deletes its log now. At most one flush while a publisher is away: two could outrun any
                # tailing. A server goes on in another binlog file, and alters a table.
                ensemble.tell("flush")
            Round(ensemble, chance).run(kind)
            ensemble.await_all()
            figures = ensemble.figures()
            say(
                f"  round {number:2} seed {seed}/{number}: {kind:<20} {time.monotonic() - began:5.1f} s; "
                f"updates {sum(f.updates for f in figures.values())}, repeated "
                f"{sum(f.duplicates for f in figures.values())}, "
                f"epochs {sum(f.epochs for f in figures.values())}"
            )
        ensemble.tell("pause")
        ensemble.await_all()
        if late := ensemble.check_state():
            say(f"  {late} updates came to a subscriber whose shard had moved; its epoch told")
        for member in ensemble.members.values():
            # One that was started this moment, with no shard yet, would not hear the signal.
            member.await_output("dials" if plan.applications[member.application].dials else "listens at")
            assert member.stop() == 0, member.tail()
        assert ensemble.publisher.stop() == 0, ensemble.publisher.tail()
        ensemble.gather()
        ensemble.check()
        assert all(checker.reached() for checker in ensemble.checkers.values())
        assert not any(checker.losses for checker in ensemble.checkers.values())
