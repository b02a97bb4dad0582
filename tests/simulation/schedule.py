"""One schedule: a small fleet, what goes wrong in it under one seed, and the peace after that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal

from publisher.publisher import Publisher
from publisher.stores.markers.rules import flow_to_json
from tests.simulation.attaching import attach_address
from tests.simulation.checks import Checks, Known
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.patches import Present
from tests.simulation.publisher import Desk, serve
from tests.simulation.stream import Around, place
from tests.simulation.subscriber import Subscriber
from tests.simulation.threads import Threads
from tests.simulation.world import Process, World
from tests.simulation.zookeeper import Ensemble, Op, Snapshot
from tests.simulation.zookeeper_client import VirtualClient
from wormhole.config import ApplicationConfig, CoordinatorConfig, DatasetConfig, PublisherConfig, to_json
from wormhole.coordination.records import Paths
from wormhole.model.errors import WormholeError
from wormhole.ports.marker_store import StoredFlow

__all__ = ["Outcome", "run"]

_SESSION_S: Final = 2.0
_HEARTBEAT_S: Final = 0.3
_GRACE_S: Final = 0.6
_HANDLER_S: Final = 4.5
_STOP_S: Final = 1.5
_FAULTS_S: Final = (2.5, 6.5)
"""Faults begin for so long."""
_PEACE_S: Final = 60.0
_UPDATES: Final = 24
"""Updates of each shard, evenly over the time of the faults."""
_ISOLATE: Final = 5
"""How often a follower is isolated, beside the other faults."""
_SHARDS: Final = ("log.a", "log.b")
_SUBSCRIBERS: Final = ("s0", "s1")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schedule. ``violation``: empty when all went well. ``seconds``: of virtual time."""

    seed: int
    violation: str
    lines: tuple[str, ...]
    seconds: float
    terms: int
    epochs: int
    overlaps: int


@lru_cache
def _settings(hosts: int) -> tuple[CoordinatorConfig, PublisherConfig, DatasetConfig, ApplicationConfig]:
    names = [f"h{number}" for number in range(hosts)]
    log = {"source": "server", "kind": "mysql", "hosts": names}
    dataset = DatasetConfig.model_validate(
        {"name": "shop", "shard_by": "database", "copies": {"main": {"logs": {"log": log}}}}
    )
    publishing = PublisherConfig(
        markers="zookeeper",
        grace_period=_GRACE_S,
        handler_timeout=_HANDLER_S,
        heartbeat=_HEARTBEAT_S,
        stop_timeout=_STOP_S,
    )
    application = ApplicationConfig(name="app", dataset="shop", start="earliest")
    return CoordinatorConfig(zookeeper="zk:2181/sim", session_timeout=_SESSION_S), publishing, dataset, application


class _Schedule:
    """See the module."""

    def __init__(self, seed: int, *, traced: bool, moves: bool, attach: bool) -> None:
        self.moves, self.attach = moves, attach
        world = self.world = Present.world = World(seed, traced=traced)
        chance = self.chance = world.chance
        random.seed(seed)
        self.threads = Present.threads = Threads(world)
        servers = 1 if chance.random() < 0.5 else 3
        self.ensemble = Present.ensemble = Ensemble(world, self.threads, _SESSION_S, servers)
        self.usual_s = chance.choice((0.002, 0.002, 0.002, 0.03, 0.1))
        """The longest delay of a message to or from ZooKeeper while it is not slow."""
        self.usual_watches_s = chance.choice((0.001, 0.001, 0.001, 0.3, 1.5))
        Present.disk = {}
        self.network = Network(world, _HEARTBEAT_S)
        hosts = 2 if chance.random() < 0.75 else 3
        settings, publishing, dataset, application = _settings(hosts)
        self.paths = Paths("/sim")
        self.desk = Desk(settings, publishing, dataset, "main", "log", _SHARDS)
        self.hosts = [f"h{number}" for number in range(hosts)]
        self.desk.ranks = {host: number for number, host in enumerate(self.hosts)}
        self.checks = Checks(
            world,
            self.paths,
            "app",
            self.desk.group,
            _SHARDS,
            handler_s=_HANDLER_S,
            lost_s=2 * _HEARTBEAT_S,
            lease_s=_SESSION_S,
        )
        self.publishers: dict[str, Process] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.loops: list[SimulatedLoop] = []
        self.peace = False
        self.faults_s = chance.uniform(*_FAULTS_S)
        self._pids = 100
        self._application = application
        self.doubles: list[Subscriber] = []
        """Processes of an id that another process has as well."""
        self._prepare()

    def _prepare(self) -> None:
        """What an operator and earlier runs left in ZooKeeper."""
        ensemble, paths = self.ensemble, self.paths
        for server in ensemble.servers[1:]:
            server.follow = server.applied  # type: ignore[method-assign]
        for path in (*paths.top, paths.config, paths.subscribers("app"), paths.flows("app"), paths.markers("app")):
            ensemble.commit(None, None, "ensure", [Op("ensure", path)])
        self.connect("publisher" if self.attach and self.chance.random() < 0.8 else "subscriber")
        for shard in _SHARDS:
            ensemble.put(paths.marker("app", shard), flow_to_json(StoredFlow(place(0), 0, "earliest")))
        for server in ensemble.servers[1:]:
            del server.follow
        ensemble.observer = self.checks.committed

    def connect(self, side: Literal["publisher", "subscriber"]) -> None:
        """An operator configures which side dials the other: it is ``side`` that is dialled."""
        self.world.trace(f"the {side} is dialled from now on")
        config = self._application.model_copy(update={"connect": side})
        self.ensemble.put(self.paths.application("app"), to_json(config).encode())
        self.ensemble.put(self.paths.config, b"1")

    @property
    def dials(self) -> bool:
        """Whether subscribers dial, as ZooKeeper has it."""
        return b'"publisher"' in (self.ensemble.data(self.paths.application("app")) or b"")

    def end(self) -> int:
        """Number of the last update of each shard."""
        return min(_UPDATES, int(self.world.now / self.faults_s * _UPDATES))

    # -- processes

    def _process(self, name: str, host: str) -> Process:
        self._pids += 1
        return Process(self.world, f"{name}.{self._pids}", host, self._pids, self.chance.uniform(0.9, 1.1))

    def start_publisher(self, host: str) -> None:
        """Run a publisher on the host, unless one runs there."""
        before = self.publishers.get(host)
        if before is not None and not before.dead:
            return
        process = self.publishers[host] = self._process(host, host)
        loop = SimulatedLoop(self.world, self.threads, process)
        self.loops.append(loop)
        clock = process.clock(asyncio.sleep, self.threads.pause)
        hello = (process.name, f"{host}:{process.pid}")
        around = Around(self.network, process, clock, self.checks, self, hello)
        self.world.trace(f"{process.name} starts")
        serve(self.desk, around, host, loop)

    def start_subscriber(self, name: str) -> None:
        """Run the subscriber, unless it runs."""
        before = self.subscribers.get(name)
        if before is None or before.process.dead:
            self.subscribers[name] = self._subscriber(name)

    def double_subscriber(self, name: str) -> None:
        """Run another process of the subscriber's id, beside the first one."""
        if self.dials and not self.peace:
            self.doubles.append(self.subscribers[name])
            self.subscribers[name] = self._subscriber(name, f"{name}-another")

    def _subscriber(self, name: str, host: str = "") -> Subscriber:
        process = self._process(name, host or name)
        self.world.trace(f"{process.name} starts")
        dials = tuple(map(attach_address, self.hosts)) if self.dials else ()
        one = Subscriber(
            self.world, self.ensemble, self.network, self.paths, self.checks, process, name, dials=dials,
            coordinator=not dials or self.chance.random() < 0.5,
        )  # fmt: skip
        one.calm, one.keeps = self.peace, self.moves
        return one

    # -- the schedule

    def run(self) -> None:
        """All of it."""
        world, chance = self.world, self.chance
        for host in self.hosts:
            world.at(chance.random() * 0.4, self.start_publisher, host)
        for name in _SUBSCRIBERS:
            world.at(chance.random() * 0.4, self.start_subscriber, name)
        self.ensemble.slow_s, self.ensemble.slow_watches_s = self.usual_s, self.usual_watches_s
        faults = Faults(self)
        for _ in range(chance.randint(3, 9)):
            world.at(chance.uniform(0.5, self.faults_s), faults.one)
        world.at(self.faults_s, self._make_peace)
        world.run(self.faults_s + _PEACE_S)
        if not world.over:
            stored = {shard: number for shard, (number, _) in self.checks.stored.items()}
            idle = [one.name for one in self.publishers.values() if not self._takes_part(one)]
            world.violation(
                f"no end: {self.checks.owner} owns the log, {idle} neither own it nor stand by, stored: {stored} of "
                f"{_UPDATES} updates"
            )

    def _make_peace(self) -> None:
        self.world.trace("faults end")
        self.peace = True
        ensemble, network = self.ensemble, self.network
        ensemble.trap = None
        ensemble.slow_s, ensemble.lag_s, ensemble.slow_watches_s, network.slow_s = 0.002, 0.02, 0.001, 0.003
        self.desk.unready.clear()
        for server in ensemble.servers:
            server.heal()
        for client in ensemble.clients:
            client.partition(hears=True, speaks=True)
        for pair in sorted(network.blocked):
            network.block(*pair, blocked=False)
        for host in self.hosts:
            self.start_publisher(host)
        for double in self.doubles:
            double.process.kill()
        for name in _SUBSCRIBERS:
            self.start_subscriber(name)
            self.subscribers[name].calm = True
        self.world.after(0.25, self._look)

    def _look(self) -> None:
        stored = all(number == _UPDATES for number, _ in self.checks.stored.values())
        if self.moves:
            stored = stored and all(map(self.checks.target.adopted, _SHARDS))
        if stored and all(map(self._takes_part, self.publishers.values())):
            self.world.trace("everything is stored")
            self.world.over = True
        else:
            for host in self.hosts:  # one that was asked to end may have done so meanwhile
                self.start_publisher(host)
            for name in _SUBSCRIBERS:
                if self.subscribers[name].dials != self.dials:
                    self.subscribers[name].leave()
                self.start_subscriber(name)
            self.world.after(0.25, self._look)

    def _takes_part(self, publisher: Process) -> bool:
        """Whether the process owns the log, or stands by."""
        name = f"{self.desk.copy}@{publisher.host}"
        announced = self.ensemble.data(self.paths.candidate(self.desk.group, name)) is not None
        return publisher is self.checks.owner or (announced and self.checks.owner is not None)

    def close(self) -> None:
        """Throw everything away."""
        self.world.over = True
        self.threads.close()
        for loop in self.loops:
            loop.close()


class Faults:
    """What goes wrong: each call of :meth:`one` begins one fault, which ends by itself."""

    def __init__(self, schedule: _Schedule) -> None:
        self._schedule = schedule
        self._world, self._chance = schedule.world, schedule.chance
        kinds: list[tuple[int, Callable[[], None]]] = [
            (6, self._partition),
            (3, self._cut),
            (6, self._pause),
            (5, self._kill),
            (2, self._stop),
            (2, self._move),
            (3, self._freeze),
            (4, self._network),
            (3, self._pause_subscriber),
            (2, self._kill_subscriber),
            (1, self._leave_subscriber),
            (2, self._partition_subscriber),
            (2, self._forget_busy_subscriber),
            (2, self._slow),
            (2, self._lag),
            (1, self._unready),
            (8, self._trap),
            (30, self._set_marker) if schedule.moves else (5, self._put_back),
        ]
        if len(schedule.ensemble.servers) > 1:
            kinds.append((_ISOLATE, self._isolate))
        if schedule.attach:
            kinds += [(4, self._switch), (4, self._double)]
        self._kinds = [kind for weight, kind in kinds for _ in range(weight)]

    def one(self) -> None:
        """Begin a fault."""
        if not self._schedule.peace:
            self._chance.choice(self._kinds)()

    def _publisher(self) -> Process:
        """Mostly the one that owns the log."""
        owner = self._schedule.checks.owner
        if owner is not None and not owner.dead and self._chance.random() < 0.65:
            return owner
        return self._schedule.publishers[self._chance.choice(self._schedule.hosts)]

    def _subscriber(self) -> Subscriber:
        return self._schedule.subscribers[self._chance.choice(_SUBSCRIBERS)]

    def _seconds(self) -> float:
        """How long a fault lasts: about a third of a session, about one, or longer."""
        low, high = self._chance.choice(((0.05, 0.8), (0.8, 2.2), (2.0, 5.0)))
        return self._chance.uniform(low, high)

    def _partition(self) -> None:
        self._partition_of(self._publisher(), self._seconds())

    def _partition_of(self, process: Process, seconds: float) -> None:
        clients = [one for one in process.noticing if isinstance(one, VirtualClient)]
        if len(clients) > 1 and self._chance.random() < 0.3:
            clients = [self._chance.choice(clients)]
        hears, speaks = self._chance.choice(((False, False), (False, False), (True, False), (False, True)))
        self._world.trace(f"{process.name} is parted from ZooKeeper for {seconds:.2f} s: {hears=} {speaks=}")
        for client in clients:
            client.partition(hears=hears, speaks=speaks)
            self._world.after(seconds, partial(client.partition, hears=True, speaks=True))

    def _cut(self) -> None:
        for client in self._publisher().noticing:
            if isinstance(client, VirtualClient):
                client.cut()

    def _pause(self) -> None:
        self._publisher().pause(self._seconds())

    def _kill(self) -> None:
        self._kill_process(self._publisher())

    def _kill_process(self, process: Process) -> None:
        process.kill()
        self._world.after(self._chance.uniform(0.1, 3.0), self._schedule.start_publisher, process.host)

    def _stop(self) -> None:
        self._stop_process(self._publisher())

    def _stop_process(self, process: Process) -> None:
        """As ``systemctl stop``, and a start soon after."""
        told = self._schedule.desk.leaving.get(process)
        if told is not None and not process.dead:
            self._world.trace(f"{process.name} is asked to end")
            process.deliver(self._world.now, told.set)
            self._world.after(self._chance.uniform(1.0, 3.0), self._schedule.start_publisher, process.host)

    def _move(self) -> None:
        to = f"main@{self._chance.choice(self._schedule.hosts)}"
        self._world.trace(f"an operator moves the log to {to}")
        request = {"to": to, "by": "operator", "at": 1.0}
        schedule = self._schedule
        schedule.ensemble.put(schedule.paths.move(schedule.desk.group), json.dumps(request).encode())

    def _set_marker(self) -> None:
        """An operator moves a datamarker, and publishers die soon after that, one after the other."""
        schedule, chance, owner = self._schedule, self._chance, self._schedule.checks.owner
        publisher = None if owner is None or owner.dead else schedule.desk.serving.get(owner)
        shard, to = chance.choice(_SHARDS), chance.randint(0, schedule.end())
        if owner is None or publisher is None or shard not in schedule.checks.target.rows:
            return  # a target without a row, of a flow that was moved, waits for an operator
        self._world.trace(f"an operator sets {shard} to {to}")
        owner.deliver(self._world.now, lambda: owner.loop.create_task(_moved(publisher, shard, to)))
        for _ in range(chance.choice((0, 1, 2, 2))):
            self._world.after(chance.uniform(0.0, 2.0), self._die)

    def _die(self) -> None:
        if not self._schedule.peace:
            self._kill()

    def _freeze(self) -> None:
        self._schedule.ensemble.freeze(self._chance.uniform(0.2, 2.0))

    def _network(self) -> None:
        network, host, name = self._schedule.network, self._publisher().host, self._chance.choice(_SUBSCRIBERS)
        seconds = self._seconds()
        self._world.trace(f"{host} is parted from {name} for {seconds:.2f} s")
        network.block(host, name, blocked=True)
        self._world.after(seconds, partial(network.block, host, name, blocked=False))

    def _pause_subscriber(self) -> None:
        self._subscriber().process.pause(self._seconds())

    def _kill_subscriber(self) -> None:
        one = self._subscriber()
        one.process.kill()
        self._world.after(self._chance.uniform(0.1, 3.0), self._schedule.start_subscriber, one.name)

    def _leave_subscriber(self) -> None:
        one = self._subscriber()
        one.leave()
        self._world.after(self._chance.uniform(1.0, 4.0), self._schedule.start_subscriber, one.name)

    def _switch(self) -> None:
        """An operator changes which side dials, and restarts the subscribers then."""
        self._schedule.connect("subscriber" if self._schedule.dials else "publisher")
        for name in _SUBSCRIBERS:
            self._world.after(self._chance.uniform(0.0, 2.0), self._renew, name)

    def _renew(self, name: str) -> None:
        one = self._schedule.subscribers[name]
        if self._chance.random() < 0.5:
            one.process.kill()
        else:
            one.leave()
        self._world.after(self._chance.uniform(0.0, 3.0), self._schedule.start_subscriber, name)

    def _double(self) -> None:
        """Another process of an id. The first one ends or stops soon, or another owner comes while a handler of it
        works.
        """
        one, chance, owner = self._subscriber(), self._chance, self._schedule.checks.owner
        what = chance.choice((one.process.kill, one.leave, partial(one.process.pause, self._seconds())))
        if owner is not None and chance.random() < 0.5:
            one.busy = self._world.now + 0.5, _HANDLER_S * chance.uniform(0.7, 0.9)
            what = partial(self._end, owner)
            self._part_from_others(one, owner, self._seconds())
        self._schedule.double_subscriber(one.name)
        self._world.after(chance.uniform(0.0, 2.0), what)

    def _partition_subscriber(self) -> None:
        self._partition_of(self._subscriber().process, self._seconds())

    def _forget_busy_subscriber(self) -> None:
        """A handler works for nearly as long as it may, and its subscriber's entry is gone when another owner comes."""
        one, chance, owner = self._subscriber(), self._chance, self._schedule.checks.owner
        one.busy = self._world.now + 0.5, _HANDLER_S * chance.uniform(0.7, 0.9)
        seconds = chance.uniform(*_FAULTS_S)
        self._partition_of(one.process, seconds)
        if one.dials and owner is not None:
            self._part_from_others(one, owner, seconds)
        if owner is not None:
            self._world.after(chance.uniform(0.2, 1.2) * _SESSION_S, self._end, owner)

    def _part_from_others(self, one: Subscriber, owner: Process, seconds: float) -> None:
        """The subscriber does not reach the publishers that may be the next owner."""
        network, at = self._schedule.network, one.process.host
        for host in self._schedule.hosts:
            if host != owner.host:
                network.block(host, at, blocked=True)
                self._world.after(seconds, partial(network.block, host, at, blocked=False))

    def _end(self, process: Process) -> None:
        """Ask it to end, or kill it."""
        if self._schedule.peace:
            return
        if self._chance.random() < 0.5:
            self._stop_process(process)
        elif not process.dead:
            self._kill_process(process)

    def _slow(self) -> None:
        ensemble, network, chance = self._schedule.ensemble, self._schedule.network, self._chance
        what = chance.choice(("ZooKeeper", "watches", "network"))
        self._world.trace(f"{what} is slow")
        if what == "ZooKeeper":
            ensemble.slow_s = chance.uniform(0.05, 0.4)
        elif what == "watches":
            ensemble.slow_watches_s = chance.uniform(0.1, 2.0)
        else:
            network.slow_s = chance.uniform(0.05, 0.4)
        self._world.after(self._seconds(), self._not_slow)

    def _not_slow(self) -> None:
        schedule, ensemble = self._schedule, self._schedule.ensemble
        ensemble.slow_s, ensemble.slow_watches_s = schedule.usual_s, schedule.usual_watches_s
        schedule.network.slow_s = 0.003

    def _lag(self) -> None:
        self._schedule.ensemble.lag_s = self._chance.uniform(0.1, 1.0)

    def _unready(self) -> None:
        host = self._chance.choice(self._schedule.hosts)
        self._schedule.desk.unready.add(host)
        self._world.after(self._seconds(), self._schedule.desk.unready.discard, host)

    def _isolate(self) -> None:
        """At once, or right before the follower would have reported which sessions it has heard, perhaps after a pause
        in which it heard nothing of one.
        """
        when, kind = self._world.now, self._chance.choice(("at once", "before a report", "after a pause"))
        if kind == "after a pause":
            process, seconds = self._publisher(), self._chance.uniform(0.2, 0.8) * _SESSION_S
            process.pause(seconds)
            when = process.paused_until
        if kind != "at once":
            when = self._schedule.ensemble.next_report(when + 0.02) - self._chance.random() * 0.02
        self._world.at(when, self._isolate_now)

    def _isolate_now(self) -> None:
        """Mostly the server of the log's owner."""
        if self._schedule.peace:
            return
        leader, *followers = self._schedule.ensemble.servers
        clients = [one for one in self._publisher().noticing if isinstance(one, VirtualClient)]
        servers = [one.server for one in clients if one.server not in (None, leader)]
        server = self._chance.choice([one for one in servers if one is not None] or followers)
        longest_s = 2.5 * _SESSION_S
        server.isolate(self._chance.uniform(0.1, longest_s), self._chance.uniform(_SESSION_S, longest_s))

    def _put_back(self) -> None:
        """All of ZooKeeper's data becomes what it is now, somewhat later.

        Now means once a datamarker of each flow was acknowledged: a flow without one, of which a subscriber knows, is
        held until an operator decides.
        """
        schedule = self._schedule
        if not all(number for number, _ in schedule.checks.stored.values()):
            if not schedule.peace:
                self._world.after(0.1, self._put_back)
            return
        snapshot, known = schedule.ensemble.snapshot(), schedule.checks.snapshot()
        later_s = self._chance.uniform(0.05, max(0.1, schedule.faults_s - self._world.now))
        self._world.after(later_s, self._put_back_to, snapshot, known)

    def _put_back_to(self, snapshot: Snapshot, known: Known) -> None:
        schedule, chance, ensemble = self._schedule, self._chance, self._schedule.ensemble
        if schedule.peace or ensemble.era != snapshot.era:
            return
        down_s = chance.choice((0.0, chance.uniform(0.0, 0.5), chance.uniform(0.5, 2.5)))
        above, sessions = chance.random() < 0.5, snapshot.sessions if chance.random() < 0.7 else ()
        # A session may be continued until it ends; a process learns with the first answer that its claim is gone.
        schedule.checks.put_back(known, sessions, down_s + _SESSION_S * 4 / 3 + _SESSION_S)
        ensemble.put_back(snapshot, above=above, down_s=down_s)
        if not sessions:
            ensemble.end_sessions()

    def _trap(self) -> None:
        """Something happens right after the effect of one of the next writes, before its answer."""
        chance, ensemble, count = self._chance, self._schedule.ensemble, self._chance.randint(1, 10)

        def trap(client: VirtualClient, ops: Sequence[Op]) -> None:
            nonlocal count
            process = client.process
            if process not in self._schedule.publishers.values():
                return
            count -= 1
            if count > 0:
                return
            ensemble.trap = None
            kind = chance.choice(("cut", "pause", "pause", "partition", "kill", "freeze", "cut and pause", "stop"))
            self._world.trace(f"{kind} at {process.name}, after {[f'{op.kind} {op.path}' for op in ops]}")
            if "cut" in kind:
                client.cut()
            if "pause" in kind:
                process.pause(self._seconds())
            elif kind == "partition":
                self._partition_of(process, self._seconds())
            elif kind == "kill":
                self._kill_process(process)
            elif kind == "freeze":
                ensemble.freeze(chance.uniform(0.2, 2.0))
            elif kind == "stop":
                self._stop_process(process)

        ensemble.trap = trap


async def _moved(publisher: Publisher, shard: str, to: int) -> None:
    flow = publisher.assigner.flows.get(("app", shard))
    if flow is not None:
        with contextlib.suppress(WormholeError, KeyError):
            await publisher.records.move(flow, place(to))


def run(seed: int, *, traced: bool = False, moves: bool = False, attach: bool = False) -> Outcome:
    """The schedule of this seed. ``moves``: of an application that keeps its datamarker, whose flows are moved.
    ``attach``: subscribers dial, or begin or cease to."""
    schedule = _Schedule(seed, traced=traced, moves=moves, attach=attach)
    try:
        schedule.run()
    finally:
        schedule.close()
    world, checks = schedule.world, schedule.checks
    violation = world.violations[0] if world.violations else ""
    return Outcome(seed, violation, tuple(world.lines), world.now, checks.terms, checks.epochs, checks.overlaps)
