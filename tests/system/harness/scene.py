"""One log with everything around it, for a disaster: a database, a publisher, subscribers, and the count of what
arrived.

Every commit writes one row under a key of its own, so that an update is known again in whatever history of the log it
comes. :class:`Scene` knows which commits survive, which were delivered and which were reported as lost.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support import command_line
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.system.harness.copied_stores import CopiedStore, copied_store
from tests.system.harness.logs import number_of
from tests.system.harness.processes import Process
from tests.system.harness.programs import Command, SubscriberProcess
from wormhole.config import load
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

FLOW: Final = "app/db1"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scene is made of.

    ``database``: mariadb, mysql, postgres or rocksdb; ``coordination``: static or zookeeper. ``relay``: its mode, in a
    folder of its own; empty: the default. ``hosts``: so many may serve the log; the publisher of the first one does.
    """

    database: str = "mariadb"
    markers: str = "local"
    coordination: str = "static"
    start: str = "earliest"
    subscribers: int = 1
    archive: bool = False
    relay: str = ""
    hosts: int = 1

    def __str__(self) -> str:
        markers = "ZooKeeper" if self.markers == "zookeeper" else "local"
        return (
            f"{_NAMES[self.database]}, {markers} markers, {'static' if self.coordination == 'static' else 'ZooKeeper'}"
            + (f", relay `{self.relay}`" if self.relay else "")
            + (", two hosts" if self.hosts > 1 else "")
        )


_NAMES: Final = {"mariadb": "MariaDB", "mysql": "MySQL", "postgres": "PostgreSQL", "rocksdb": "RocksDB"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, both streams, and its exit code."""

    command: str
    code: int
    text: str


@dataclass(slots=True)
class _Commit:
    """One committed row: its number, its key's text, and the number that the log gives it."""

    number: int
    sequence: int
    survives: bool = True


@dataclass(slots=True)
class Reported:
    """A call of ``on_data_loss``: the kind, the range, and how many commits there were then."""

    kind: str
    first: str
    last: str
    commits: int


@dataclass(slots=True)
class _Side:
    """A publisher with the configuration file that it runs with; ``values``: what the file says otherwise than the
    scene's."""

    process: Process
    file: Path
    values: dict[str, str] = field(default_factory=dict)


class Scene:
    """Nothing runs before :meth:`start`; :meth:`close` ends everything. Blocks; for plain test functions."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.folder, self.setting = folder, setting
        self.database: CopiedStore = copied_store(setting.database, folder)
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper") if setting.coordination == "zookeeper" else None
        self.values: dict[str, str] = {
            "state_dir": str(folder / "state"),
            "markers": setting.markers,
            "relay_folder": str(folder / "relay"),
            "host": "a",
        }
        self.sides: dict[str, _Side] = {}
        self.commits: list[_Commit] = []
        self.losses: list[Reported] = []
        self.passed = False
        self.answers: list[Answer] = []
        self.received: dict[int, int] = {}
        self.never: set[int] = set()
        """Commits of a history that was dropped before anybody received them."""
        self.owners: dict[tuple[str, int], list[str]] = {}
        self.extra: list[Callable[[], None]] = []
        """What :meth:`close` ends besides."""
        self.helpers: dict[str, Process] = {}
        """Processes beside publishers and subscribers, by name."""
        self.notes: dict[str, str] = {}
        """What one function here leaves for another."""
        self._subscribers: dict[str, SubscriberProcess] = {}
        self._ports = {f"sub-{n}": free_port() for n in range(1, setting.subscribers + 1)}
        if setting.archive:
            self._ports["arch"] = free_port()

    # -- life

    def start(self) -> None:
        """Start everything and see the first commits delivered."""
        if self.zookeeper is not None:
            self.zookeeper.start()
            self.values["zookeeper"] = self.zookeeper.hosts
        self.database.start()
        self.values["source"] = self.database.source()
        self.side("publisher")
        self.configure()
        self.sides["publisher"].process.start()
        for name in self._ports:
            if name != "arch":
                self.start_subscriber(name)
        self.commit(5)
        self.await_delivered()
        if self.setting.hosts > 1:
            self.side("standby", state_dir=str(self.folder / "state-b"), host="b").process.start()
            self.await_standby("standby")

    def close(self) -> None:
        """Kill what still runs."""
        for end in reversed(self.extra):
            end()
        for process in (
            *self.helpers.values(),
            *self._subscribers.values(),
            *(side.process for side in self.sides.values()),
        ):
            process.kill()
        self.database.close()
        if self.zookeeper is not None:
            self.zookeeper.close()

    @property
    def publisher(self) -> Process:
        """The first publisher."""
        return self.sides["publisher"].process

    @property
    def config(self) -> Path:
        """The configuration file of the first publisher."""
        return self.sides["publisher"].file

    @property
    def relay(self) -> Path:
        """The folder of the relay."""
        return Path(self.values["relay_folder"])

    @property
    def state(self) -> Path:
        """Where the first publisher keeps what it knows of the log."""
        return Path(self.values["state_dir"]) / "shop" / "main" / "db1"

    def side(self, name: str, **values: str) -> _Side:
        """Another publisher, not started; ``values``: what its file says otherwise."""
        file = self.folder / f"{name}.toml"
        publisher = Command(name, self.folder, "publisher", "run", "-c", str(file))
        side = self.sides[name] = _Side(publisher, file, values)
        self._write(side)
        return side

    def configure(self, **values: str) -> None:
        """Write every configuration file, with ``values`` from now on, and publish it where there is a ZooKeeper."""
        self.values |= values
        for side in self.sides.values():
            self._write(side)
        if self.zookeeper is not None:
            asyncio.run(publish_config(load(self.config)))

    def start_subscriber(self, name: str) -> None:
        """Start a subscriber (again)."""
        if name not in self._subscribers:
            options = {"id": name, "coordinator": str(self.config)}
            if self.zookeeper is None:
                options["listen"] = f"127.0.0.1:{self._ports[name]}"
            self._subscribers[name] = SubscriberProcess(name, "app", self.folder, {"options": options})
        self._subscribers[name].start()

    def end_subscriber(self, name: str) -> None:
        """``kill -9`` of a subscriber."""
        self._subscribers[name].kill()

    def restart_publisher(self) -> None:
        """SIGTERM, and SIGKILL to one that does not end in time, as a service manager does; then start it again."""
        self.publisher.stop()
        self.publisher.start()
        if self.setting.hosts > 1:
            self.await_standby("publisher")

    def restart_subscribers(self) -> None:
        """The same for every subscriber."""
        for name, process in self._subscribers.items():
            process.stop()
            self.start_subscriber(name)

    # -- the history

    def commit(self, count: int) -> None:
        """So many transactions of one row each."""
        for _ in range(count):
            number = len(self.commits)
            sequence = self.database.commit(number)
            self.commits.append(_Commit(number, sequence))

    def forget_since(self, count: int) -> None:
        """The database came back with its first ``count`` commits: what came after them never happened."""
        for commit in self.commits[count:]:
            commit.survives = False

    # -- what arrived

    def gather(self) -> None:
        """Read what subscribers wrote since the last time."""
        for subscriber in self._subscribers.values():
            for run, line in subscriber.fresh():
                kind, _, shard, epoch, *rest = line.split("\t")
                if kind == "U":
                    number = int(bytes.fromhex(rest[8]).decode().removeprefix("k"))
                    self.received[number] = self.received.get(number, 0) + 1
                elif kind == "A":
                    self.owners.setdefault((shard, int(epoch)), []).append(run)
                elif kind == "L":
                    self.losses.append(Reported(rest[0], rest[1], rest[2], len(self.commits)))

    def missing(self) -> list[int]:
        """Commits that survive and were not delivered."""
        self.gather()
        return [one.number for one in self.commits if one.survives and one.number not in self.received]

    def unexplained(self) -> list[int]:
        """Those of :meth:`missing` that lie in no reported range."""
        return [
            number for number in self.missing() if not any(_covers(loss, self.commits[number]) for loss in self.losses)
        ]

    def passed_over(self) -> None:
        """An operator set a datamarker: the loss of what was committed by now is known."""
        self.passed = True
        self.losses.append(Reported("operator", "", "", len(self.commits)))

    def await_delivered(self, numbers: list[int] | None = None) -> None:
        """Until these commits (all that survive) were delivered."""
        wanted = {one.number for one in self.commits if one.survives} if numbers is None else set(numbers)
        self.await_true(lambda: not wanted.intersection(self.missing()), lambda: f"not delivered: {self.missing()}")

    def await_marked(self) -> None:
        """Until everything that survives was delivered and acknowledged; a publisher that is stopped in order stores
        that."""
        self.await_delivered()
        want = max(one.sequence for one in self.commits if one.survives)

        def marked() -> bool:
            flow = self.flow()
            return flow is not None and _number(str(flow["delivered"])) >= want

        self.await_true(marked, lambda: f"no datamarker at {want}: {self.flow()}")

    def await_standby(self, name: str) -> None:
        """Until this publisher knows that another one owns the log."""
        self.sides[name].process.await_output("stands by: ")

    def await_true(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Until ``condition``. Raises ``AssertionError`` with ``what`` and what the processes said."""
        until(condition, lambda: f"{what()}\n{self.told()}")

    # -- what an operator sees

    def ctl(self, command: str, *, file: Path | None = None) -> Answer:
        """Run a line of the documentation, ``wormholectl …``, on the first publisher's configuration; of two hosts on
        that of the one whose publisher is asked."""
        words = command.split()
        assert words[0] == "wormholectl", command
        for side in self.sides.values():
            # `config apply` is given the file itself.
            config = str(file or side.file)
            where = [config] if words[1:3] == ["config", "apply"] else ["-c", config]
            code, out, err = command_line.run(*words[1:], *where)
            answer = Answer(command, code, out + err)
            self.answers.append(answer)
            if self.setting.hosts == 1 or "run this on the publisher's host" not in answer.text:
                break
        return answer

    def flow(self) -> dict[str, Any] | None:
        """The flow as ``wormholectl flows --json`` shows it."""
        code, out, _ = command_line.run("flows", "--json", "-c", str(self.config))
        if code:
            return None
        flows = [flow for flow in json.loads(out)["flows"] if flow["flow"].startswith("app/")]
        return flows[0] if flows else None

    def process(self, name: str = "") -> Process:
        """A publisher or a helper by its name; the first publisher without one."""
        return self.helpers[name] if name in self.helpers else self.sides[name or "publisher"].process

    def told(self) -> str:
        """The end of what every process said, and what the commands answered last."""
        processes = [
            *(side.process for side in self.sides.values()),
            *self._subscribers.values(),
            *self.helpers.values(),
        ]
        answers = [f"--- {one.command} ({one.code}):\n{one.text}" for one in self.answers[-3:]]
        return "\n".join(
            [*(process.tail() for process in processes), *answers, f"flow: {self.flow()}", f"{self.losses}"]
        )

    # -- inside

    def _write(self, side: _Side) -> None:
        values = self.values | side.values
        where = f'zookeeper = "{values["zookeeper"]}/wormhole"' if self.zookeeper is not None else "static = true"
        parts = [
            "version = 1\n[coordinator]",
            where,
            'session_timeout = "2s"\n[publisher]',
            f'state_dir = "{values["state_dir"]}"\nmarkers = "{values["markers"]}"\nheartbeat = "500ms"',
            'grace_period = "1s"\nhandler_timeout = "5s"\nstop_timeout = "5s"',
            '[datasets.shop]\nshard_by = "log"',
        ]
        if self.setting.archive:
            parts.append(f'archive = {{ to = "{values.get("archive", "archive")}", flush_every = "200ms" }}')
        parts += ["[datasets.shop.copies.main.logs.db1]", values["source"]]
        if self.setting.hosts > 1:
            parts.append('hosts = ["a", "b"]')
        if self.setting.relay:
            parts.append(f'relay = "{self.setting.relay}"\nrelay_folder = "{values["relay_folder"]}"')
            parts.append('relay_compression = "none"')
            parts.append('slot_budget = "1MiB"' if self.setting.relay == "hold" else "")
        members = {
            "app": [name for name in self._ports if name != "arch"],
            "archive": ["arch"] if self.setting.archive else [],
        }
        for application, names in members.items():
            if names:
                start = self.setting.start if application == "app" else "earliest"
                parts.append(f'[applications.{application}]\ndataset = "shop"\nstart = "{start}"')
                if self.zookeeper is None:
                    parts.append(f"[applications.{application}.subscribers]")
                    parts += [f'{name} = "127.0.0.1:{self._ports[name]}"' for name in names]
        if self.setting.hosts > 1:
            parts.append(f'[monitor]\nhost = "{values["host"]}"')
        side.file.write_text("\n".join(parts) + "\n")


def state_of(scene: Scene) -> str:
    """The flow's state, empty while no publisher serves it."""
    flow = scene.flow()
    return "" if flow is None else str(flow["state"])


def copy_folder(source: Path, target: Path) -> None:
    """Replace ``target`` by a copy of ``source``, without its sockets, which this function of the library cannot
    copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def _covers(loss: Reported, commit: _Commit) -> bool:
    """Whether a reported range holds the commit; one without limits holds everything that was committed by then."""
    first, last = _number(loss.first), _number(loss.last)
    return (not loss.first or first <= commit.sequence) and (
        commit.sequence <= last if loss.last else commit.number < loss.commits
    )


def _number(text: str) -> int:
    """The number behind the last dash or colon of a GTID set, a sequence number, or an LSN; 0 for an empty text."""
    if "/" in text:
        return number_of(text)
    return int(text.replace(":", "-").rpartition("-")[2] or 0)
