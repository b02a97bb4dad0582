"""Hosts that may serve one log, on one machine: each reaches ZooKeeper and its copy through proxies of its own, so that
its network can be cut, in one direction too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from publisher.stores.markers.rules import flow_from_json
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from tests.system.harness.checker import owners_in_turn
from tests.system.harness.copies import MAIN, WEST, Copies
from tests.system.harness.datastores import Datastore, Server
from tests.system.harness.ensemble import LOG, Ensemble, Plan
from tests.system.harness.logs import Assigned, Entry, Marker, Received, number_of
from tests.system.harness.processes import Process
from tests.system.harness.programs import Command
from tests.system.harness.quorum import Quorum
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

_ROOT: Final = "/wormhole"


@dataclass(slots=True)
class Host:
    """``copy``: the one that it serves. ``subscribers``: those that go with it when it dies.

    ``zookeeper``, ``database``: its links to them.
    """

    name: str
    copy: str
    subscribers: tuple[str, ...]
    publisher: Process
    zookeeper: tuple[FaultProxy, ...] = ()
    database: tuple[FaultProxy, ...] = ()

    @property
    def candidate(self) -> str:
        """What it is called among those that may own the log."""
        return f"{self.copy}@{self.name}"


class Candidates(Ensemble):
    """``places``: host to the copy that its publisher serves and the subscribers that run there. ``quorum``: three
    ZooKeeper servers. ``patience``: of the failover.
    ``before``: per host, Python that its publisher runs first.

    The first host is the preferred one. ``fronts``: by subscriber, the link at which every publisher reaches it.
    Subscribers reach ZooKeeper without one.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        places: Mapping[str, tuple[str, tuple[str, ...]]],
        *,
        quorum: bool = False,
        patience: str = "30s",
        before: Mapping[str, str] | None = None,
    ) -> None:
        self._several = {copy for copy, _ in places.values()} == {MAIN, WEST}
        self._quorum, self._patience = quorum, patience
        self.hosts = {
            name: Host(name, copy, subscribers, _publisher(folder, name, copy, (before or {}).get(name, "")))
            for name, (copy, subscribers) in places.items()
        }
        super().__init__(replace(plan, markers="zookeeper"), folder)
        self.fronts: dict[str, FaultProxy] = {}
        self._links = ExitStack()
        self._owners: dict[str, list[tuple[int, str]]] = {}
        self._firsts: dict[tuple[str, int], float] = {}
        self._seen = 0
        self._client: Any = None

    @property
    def group(self) -> str:
        """Who contends for the log."""
        return "@failover" if self._several else MAIN

    @property
    def copies(self) -> Copies:
        """The two servers."""
        assert isinstance(self.datastore, Copies)
        return self.datastore

    # -- life

    def start(self) -> None:
        super().start()
        for checker in self.checkers.values():
            checker.same_places = not self._several

    def close(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._client.close()
        super().close()
        self._links.close()

    def publishers(self) -> list[Process]:
        return [host.publisher for host in self.hosts.values()]

    def kill_host(self, host: Host) -> None:
        """``kill -9`` of all that runs there."""
        host.publisher.kill()
        for name in host.subscribers:
            self.members[name].kill()

    def start_host(self, host: Host) -> None:
        """Start it again."""
        host.publisher.start()
        for name in host.subscribers:
            self.start_subscriber(name)

    def add(self, name: str, application: str, settings: dict[str, Any]) -> None:
        port = free_port()
        front = self.fronts[name] = self._link("127.0.0.1", port)
        options = {"listen": f"127.0.0.1:{port}", "advertise": f"{front.host}:{front.port}"}
        super().add(name, application, {**settings, "options": {**options, **settings.get("options", {})}})

    # -- who owns the log

    def read(self, node: str) -> dict[str, Any]:
        """A node of the log; empty: there is none."""
        try:
            data, _ = self._client.retry(self._client.get, f"{_ROOT}/logs/shop/{self.group}/{LOG}/{node}")
        except NoNodeError:
            return {}
        found: dict[str, Any] = json.loads(data)
        return found

    @property
    def owner(self) -> Host | None:
        """The host that owns the log; ``None``: none does."""
        pid = self.read("owner").get("pid", 0)
        return next((host for host in self._running() if host.publisher.pid == pid), None)

    @property
    def term(self) -> int:
        """How many times the log was taken."""
        return int(self.read("term").get("number", 0))

    def candidate(self, host: Host) -> dict[str, Any]:
        """What the host's present publisher is announced with; empty: it is not."""
        found = self.read(f"candidates/{host.candidate}")
        return found if host.publisher.alive and found.get("pid") == host.publisher.pid else {}

    def await_owner(self, host: Host) -> None:
        """Until it owns the log."""
        self.await_true(lambda: self.owner is host, lambda: f"{host.name} does not own the log: {self.owners()}")

    def await_standby(self, host: Host) -> None:
        """Until it could take the log, and another host owns it."""

        def so() -> bool:
            return self.owner not in (None, host) and bool(self.candidate(host).get("ready"))

        self.await_true(so, lambda: f"{host.name} does not stand by: {self.owners()}")

    def owners(self) -> str:
        """Everything about it, for a failure."""
        candidates = {host.candidate: self.candidate(host) for host in self.hosts.values()}
        return f"owner {self.read('owner')}, candidates {candidates}, term {self.read('term')}"

    # -- what arrived

    def heard(self, application: str, entry: Entry) -> None:
        flow = f"{application}/{entry.shard}"
        if isinstance(entry, Assigned):
            assert entry.publisher, f"no publisher is named that assigns {flow}"
            self._owners.setdefault(flow, []).append((entry.epoch, entry.publisher))
        elif isinstance(entry, Received):
            self._seen += 1
            self._firsts.setdefault((flow, entry.epoch), entry.at)

    def problems(self) -> list[str]:
        found = super().problems()
        for flow, owners in self._owners.items():
            found += owners_in_turn(flow, owners, may_return=True)
        return found

    def await_more(self, updates: int) -> None:
        """Until so many more updates were delivered: a moment that is not measured in seconds."""
        self.gather()
        wanted = self._seen + updates

        def come() -> bool:
            self.gather()
            self.check()
            return self._seen >= wanted

        self.await_true(come, lambda: f"{wanted - self._seen} of {updates} updates do not come: {self.owners()}")

    def await_all_of(self, commits: int) -> None:
        """Until everything has come of at least so many commits that follow now."""
        wanted = int(self.tell("sequence")) + commits
        self.await_true(lambda: int(self.tell("sequence")) >= wanted, "the writer does not go on")
        self.await_all()

    def recovered(self, since: float, host: Host) -> float:
        """Seconds from ``since`` until the last of all flows got an update from the host's present publisher."""
        suffix = f":{host.publisher.pid}"
        firsts: dict[str, float] = {}
        for flow, owners in self._owners.items():
            epochs = {epoch for epoch, publisher in owners if publisher.endswith(suffix)}
            found = [at for (one, epoch), at in self._firsts.items() if one == flow and epoch in epochs and at > since]
            if found:
                firsts[flow] = min(found)
        assert firsts, f"{host.name} delivered nothing"
        return max(firsts.values()) - since

    def unmarked(self) -> list[str]:
        """Flows whose datamarker in ZooKeeper does not cover everything that was committed for them."""
        found = []
        for name, checker in self.checkers.items():
            for shard, end in checker.ends().items():
                path = f"{_ROOT}/applications/{name}/markers/{shard}"
                marker = flow_from_json((name, shard), self._client.retry(self._client.get, path)[0], path).marker
                entry = Marker(0.0, shard, 0, str(marker.order), number_of(marker.delivered))
                self.datastore.count([entry], self.journal.commits)
                if entry.delivered < end:
                    found.append(f"{name}/{shard} is marked at {marker.delivered} ({entry.delivered}), not at {end}")
        return found

    # -- inside

    def _running(self) -> Iterator[Host]:
        return (host for host in self.hosts.values() if host.publisher.alive)

    def _new_zookeeper(self) -> EmbeddedZooKeeper:
        return Quorum(self.folder / "zookeeper") if self._quorum else super()._new_zookeeper()

    def _new_datastore(self) -> Datastore:
        return Copies(self.plan.datastore) if self._several else super()._new_datastore()

    def _write_config(self) -> None:
        """Everything that is known once ZooKeeper and the database run."""
        assert self.zookeeper is not None
        server = self.datastore
        assert isinstance(server, Server)
        servers = self.zookeeper.hosts.split(",")
        self._client = KazooClient(self.zookeeper.hosts)
        self._client.start()
        copies = dict.fromkeys(host.copy for host in self.hosts.values())
        self.config.write_text(self._of_host(servers, self.folder / "state", {c: server.at(c).port for c in copies}))
        for host in self.hosts.values():
            host.zookeeper = tuple(self._link(*at.split(":")) for at in servers)
            host.database = (self._link(server.at(host.copy).host, server.at(host.copy).port),)
            ways = [f"{link.host}:{link.port}" for link in host.zookeeper]
            ports = {c: host.database[0].port if c == host.copy else server.at(c).port for c in copies}
            file = self.folder / f"{host.name}.toml"
            text = self._of_host(ways, self.folder / f"state-{host.name}", ports)
            file.write_text(f'{text}[monitor]\nhost = "{host.name}"\n')

    def _of_host(self, zookeeper: list[str], state: Path, ports: Mapping[str, int]) -> str:
        """The file of one host. ``ports``: where it reaches each copy."""
        assert isinstance(self.datastore, Server)
        copies = {}
        for copy, port in ports.items():
            names = [host.name for host in self.hosts.values() if host.copy == copy]
            where = f"hosts = {json.dumps(names)}" if len(names) > 1 else f'host = "{names[0]}"'
            copies[copy] = f"{self.datastore.source_at(port)}\n{where}"
        text = self._text(f'zookeeper = "{",".join(zookeeper)}{_ROOT}"', state, copies)
        if self._several:
            text += f'[datasets.shop.failover]\ncopies = {json.dumps(list(copies))}\npatience = "{self._patience}"\n'
        return text

    def _link(self, host: str, port: int | str) -> FaultProxy:
        return self._links.enter_context(FaultProxy(host, int(port)))


def _publisher(folder: Path, host: str, copy: str, before: str) -> Process:
    run = ["publisher", "run", "-c", str(folder / f"{host}.toml"), "--log", f"shop/{copy}/{LOG}"]
    return Command(f"publisher-{host}", folder, *run, before=before)
