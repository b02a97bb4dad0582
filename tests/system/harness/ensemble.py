"""A writer, a publisher, subscribers and what finds them, in one folder; and the count of what arrived."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.prepare import ROOT
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.system.harness.checker import Checker, Figures, Wanted, fenced_state
from tests.system.harness.datastores import Datastore, Server, datastore
from tests.system.harness.logs import Entry, Lines, Received, parse
from tests.system.harness.processes import Process
from tests.system.harness.programs import Command, SubscriberProcess, WriterProcess
from tests.system.harness.truth import Journal, Sharder, by_hash, by_table
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.where import Where
from wormhole.model.errors import StreamBroken
from wormhole.wire.v1 import admin_pb2

LOG: Final = "db1"


@dataclass(slots=True)
class Application:
    """``subscribers``: names, each with settings of `tests.system.harness.subscriber` that differ from the plain ones;
    one that is ``None`` is configured and not started (a test plays it).

    ``settings``: further TOML lines; ``wanted`` says the same as the filter in them. ``dials``: its subscribers dial.
    """

    subscribers: dict[str, dict[str, Any] | None]
    settings: str = ""
    wanted: Wanted = lambda _: True
    start: str = "earliest"
    dials: bool = False


@dataclass(slots=True)
class Plan:
    """What to set up. ``datastore``: rocksdb, mariadb, mysql or postgres; ``zookeeper``: coordination through it, else
    static; ``publisher``: TOML lines under [publisher]. ``tree``: the checkout whose code the subscribers run at first.
    ``measured``: what processes take is measured, so they share nothing.
    """

    applications: dict[str, Application]
    datastore: str = "rocksdb"
    zookeeper: bool = True
    markers: str = "local"
    shard_by: str = '"table"'
    tables: tuple[str, ...] = ("orders", "users", "log")
    seed: str = "0"
    rate: float = 40.0  # commits a second; several updates each, for several applications
    publisher: str = ""
    dataset: str = ""
    log: str = ""
    top: str = ""
    session_timeout: str = "2s"
    heartbeat: str = "500ms"
    tree: Path = ROOT
    measured: bool = False

    def sharder(self) -> Sharder:
        """The documented sharding, computed by the tests themselves."""
        return (
            by_table(LOG) if self.shard_by == '"table"' else by_hash(LOG, int(self.shard_by.split("=")[1].strip(" }")))
        )


def read_journal(journal: Journal, lines: Lines, checkers: Iterable[Checker], writer: Process) -> None:
    """Give the checkers what was committed since the last time; waits for the end of a commit that is under way."""

    def whole() -> bool:
        for commit in journal.read(lines.new()):
            for checker in checkers:
                checker.commit(commit)
        return journal.open is None

    until(whole, lambda: f"the writer does not finish a commit\n{writer.tail()}")


class Ensemble:
    """Everything runs after :meth:`start`; :meth:`close` ends it. Blocks; for plain test functions."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.config = folder / "wormhole.toml"
        self.zookeeper = self._new_zookeeper() if plan.zookeeper else None
        self.datastore = self._new_datastore()
        self.journal = Journal(self.datastore.step)
        self._journal_lines = Lines(folder / "journal")
        self.writer = WriterProcess("writer", folder)
        run = ("publisher", "run", "-c", str(self.config))
        self.publisher: Process = Command("publisher", folder, *run, whole=plan.measured)
        self.members: dict[str, SubscriberProcess] = {}
        self.checkers: dict[str, Checker] = {}
        self.ports: dict[str, int] = {}

    # -- life

    def start(self) -> None:
        """Start everything; the writer is there but does not write yet."""
        if self.zookeeper is not None:
            self.zookeeper.start()
        self.datastore.start()
        self.writer.settings = {
            **self.datastore.settings(),
            "journal": str(self.folder / "journal"),
            "tables": self.plan.tables,
            "seed": self.plan.seed,
            "rate": self.plan.rate,
        }
        self._write_config()
        if self.zookeeper is not None:
            asyncio.run(publish_config(load(self.config)))
        base = self.writer.ready()
        for name, application in self.plan.applications.items():
            self.checkers[name] = Checker(name, self.plan.sharder(), application.wanted, base)
        for publisher in self.publishers():
            publisher.start()
        for name, application in self.plan.applications.items():
            for subscriber, settings in application.subscribers.items():
                if settings is not None:
                    self.add(subscriber, name, settings)

    def close(self) -> None:
        """Kill what still runs."""
        for process in (*self.members.values(), *self.publishers(), self.writer):
            process.kill()
        if self.zookeeper is not None:
            self.zookeeper.close()
        self.datastore.close()

    @property
    def server(self) -> Server:
        """The database server."""
        assert isinstance(self.datastore, Server)
        return self.datastore

    def start_subscriber(self, name: str, **settings: Any) -> None:
        """Start a subscriber (again), from now on with ``settings``."""
        self.members[name].settings.update(settings)
        self.members[name].start()

    def tell(self, command: str) -> Any:
        """Give the writer a command; returns its answer."""
        return self.writer.tell(command)

    # -- what arrived

    def kill_and_start(self, victims: str, chance: random.Random) -> None:
        """``kill -9`` of each of ``victims`` ("publisher" or "subscriber", joined by "+") at a moment of the seed, and
        its start.
        """
        for victim in victims.split("+"):
            time.sleep(chance.uniform(0.0, 1.2))
            name = chance.choice(sorted(self.members))
            process = self.publisher if victim == "publisher" else self.members[name]
            process.kill()
            time.sleep(chance.uniform(0.0, 0.8))
            process.start()

    def gather(self) -> None:
        """Read what was logged since the last time and check it. The writer must be alive."""
        fresh = [
            (member.application, run, parse(line)) for member in self.members.values() for run, line in member.fresh()
        ]
        # The journal after the logs: whatever was received is then known to have been intended; wait for its
        # confirmation.
        read_journal(self.journal, self._journal_lines, self.checkers.values(), self.writer)
        self.datastore.count([entry for _, _, entry in fresh], self.journal.commits)
        for application, run, entry in fresh:
            self.checkers[application].told(run, entry)
            self.heard(application, entry)

    def heard(self, application: str, entry: Entry) -> None:
        """One thing that a subscriber of the application was told, for who wants to know more than the checker."""

    def problems(self) -> list[str]:
        """Everything that was found wrong so far."""
        return [problem for checker in self.checkers.values() for problem in checker.check()]

    def check(self) -> None:
        """Fail with what is wrong and with what the processes said."""
        found = self.problems()
        assert not found, "\n".join([*found, "", self.told()])

    def await_all(self, applications: Iterable[str] | None = None) -> None:
        """Wait until everything that is committed now was received."""
        target = int(self.tell("sequence"))
        names = list(self.checkers if applications is None else applications)

        def arrived() -> bool:
            self.gather()
            self.check()
            return all(self.checkers[name].reached_until(target) for name in names)

        self.await_true(arrived, lambda: f"not received: { {n: dict(self.checkers[n].behind()) for n in names} }")

    def await_true(self, condition: Callable[[], object], what: Callable[[], str] | str) -> None:
        """Wait until ``condition``; on the way no process may end that was not ended by the test."""

        def so() -> object:
            found = condition()
            if not found:
                self.nothing_ended()
            return found

        until(so, lambda: f"{what if isinstance(what, str) else what()}\n{self.told()}")

    def nothing_ended(self) -> None:
        """A process that ends by itself is a fault: the others depend on it."""
        for process in self.processes():
            assert not process.ended, f"{process.name} ended by itself\n{process.tail()}"

    def entries(self, name: str) -> list[Entry]:
        """Everything that the subscriber was told so far, in all its runs."""
        return self.members[name].entries()

    def figures(self) -> dict[str, Figures]:
        """Per application."""
        return {name: checker.figures() for name, checker in self.checkers.items()}

    def check_state(self) -> int:
        """What each application would hold that applies what comes is what the store says, as far as its filter lets
        it.

        Returns how many updates came late, from a subscriber whose epoch another one had taken over.
        """
        self.gather()
        store = {(table, key): value for table, content in self.tell("state").items() for key, value in content.items()}
        assert self.journal.state() == store, "the journal and the store disagree: the harness is wrong"
        late = 0
        for name, application in self.plan.applications.items():
            held, outlived = fenced_state(
                entry
                for subscriber, member in self.members.items()
                if member.application == name
                for entry in self.entries(subscriber)
                if isinstance(entry, Received)
            )
            wanted = self.journal.state(application.wanted)
            assert held == wanted, f"{name} holds {len(held)} keys; {len(wanted)} are right"
            late += outlived
        return late

    def publishers(self) -> list[Process]:
        """Those that serve the log, or may."""
        return [self.publisher]

    def processes(self) -> list[Process]:
        """All of them."""
        return [self.writer, *self.publishers(), *self.members.values()]

    def answer(self) -> Answer:
        """What the publisher reports, once it answers."""

        def asked() -> Answer | None:
            try:
                (answer,) = admin_service.ask(Where(coordinator=str(self.config)))
            except StreamBroken:
                return None  # it is only starting, or the machine is busy
            return answer

        return until(asked, self.told)

    def status(self) -> admin_pb2.PublisherStatus:
        """The publisher's status, once it answers."""
        status = self.answer().status
        assert status is not None
        return status

    def told(self) -> str:
        """The end of every process's output, for a failure."""
        return "\n".join(process.tail() for process in self.processes())

    # -- inside

    def _new_zookeeper(self) -> EmbeddedZooKeeper:
        return EmbeddedZooKeeper()

    def _new_datastore(self) -> Datastore:
        return datastore(self.plan.datastore, self.folder)

    def add(self, name: str, application: str, settings: dict[str, Any]) -> None:
        options = {"id": name, "coordinator": str(self.config), **settings.get("options", {})}
        if name in self.ports:
            options = {"listen": f"127.0.0.1:{self.ports[name]}", **options}
        given = {**settings, "options": options}
        member = SubscriberProcess(name, application, self.folder, given, whole=self.plan.measured)
        member.tree = self.plan.tree
        self.members[name] = member
        member.start()

    def _write_config(self) -> None:
        where = f'zookeeper = "{self.zookeeper.hosts}/wormhole"' if self.zookeeper is not None else "static = true"
        self.config.write_text(self._text(where, self.folder / "state", {"main": self.datastore.source()}))

    def _text(self, where: str, state: Path, copies: Mapping[str, str]) -> str:
        """A configuration file. ``where``: the coordinator; ``copies``: the TOML lines of the log in each copy."""
        plan = self.plan
        parts = [
            "version = 1",
            plan.top,
            "[coordinator]",
            where,
            f'session_timeout = "{plan.session_timeout}"',
            "[publisher]",
            f'state_dir = "{state}"',
            f'markers = "{plan.markers}"',
            f'heartbeat = "{plan.heartbeat}"',
            'grace_period = "1s"\nhandler_timeout = "5s"\nstop_timeout = "5s"',
            plan.publisher,
            "[datasets.shop]",
            f"shard_by = {plan.shard_by}",
            plan.dataset,
        ]
        for copy, source in copies.items():
            parts += [f"[datasets.shop.copies.{copy}.logs.{LOG}]", source, plan.log]
        for name, application in plan.applications.items():
            parts += [
                f"[applications.{name}]",
                'dataset = "shop"',
                f'start = "{application.start}"',
                'connect = "publisher"' if application.dials else "",  # an older release does not know it
                application.settings,
            ]
            if self.zookeeper is None and not application.dials:
                self.ports.update((subscriber, free_port()) for subscriber in application.subscribers)
                parts.append(f"[applications.{name}.subscribers]")
                parts += [
                    f'{subscriber} = "127.0.0.1:{self.ports[subscriber]}"' for subscriber in application.subscribers
                ]
        return "\n".join(parts) + "\n"
