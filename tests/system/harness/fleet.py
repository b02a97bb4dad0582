"""Several hosts on one machine: a monitor each, logs with their writers, subscribers, one ZooKeeper; and what must
hold at every moment."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT
from tests.support.eventually import until
from tests.support.marked import MARK, marked
from tests.system.harness.checker import Checker, owners_in_turn
from tests.system.harness.ensemble import Application, read_journal
from tests.system.harness.logs import Assigned, Lines, parse
from tests.system.harness.processes import Process
from tests.system.harness.programs import WORMHOLECTL, SubscriberProcess, WriterProcess
from tests.system.harness.truth import Journal, by_table
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.ready_file import read_ready, ready_path

TABLES: Final = ("orders", "users")
_LOG_OF: Final = re.compile(r"publisher run .*--log shop/main/(\w+)")


class Host:
    """A monitor with a name, a folder and an address of its own. ``markers``: where its publishers keep theirs."""

    def __init__(self, name: str, folder: Path, zookeeper: EmbeddedZooKeeper, mark: str, markers: str) -> None:
        self.name, self.folder, self.markers = name, folder / name, markers
        self.folder.mkdir()
        self.file = self.folder / "host.toml"
        self.file.write_text(f"""version = 1
[coordinator]
zookeeper = "{zookeeper.hosts}/wormhole"
session_timeout = "2s"
[publisher]
state_dir = "{self.folder}/state"
markers = "{markers}"
heartbeat = "500ms"
grace_period = "1s"
handler_timeout = "5s"
stop_timeout = "5s"
[monitor]
host = "{name}"
listen = "127.0.0.1:0"
restart = {{ first_wait = "50ms", longest_wait = "200ms", crashes = 2, within = "10m" }}
""")
        self.arguments = ["-c", WORMHOLECTL, "monitor", "run", "-c", str(self.file)]
        self.monitor = Process(f"monitor-{name}", self.arguments, folder, environment={MARK: mark})

    def start(self) -> None:
        """Start its monitor."""
        self.monitor.arguments = self.arguments
        self.monitor.start()


@dataclass(slots=True)
class Log:
    """A store, who writes to it, and what of it arrived: a checker per application."""

    name: str
    host: Host
    store: Path
    writer: WriterProcess
    lines: Lines
    journal: Journal = field(default_factory=Journal)
    checkers: dict[str, Checker] = field(default_factory=dict)

    def ready_pid(self) -> int | None:
        """The process that says it serves the log."""
        ready = read_ready(ready_path(self.host.folder / "state", "shop", "main", self.name))
        return None if ready is None else ready.pid


class Fleet:
    """Nothing runs before it is told to; :meth:`close` ends everything. Blocks; for plain test functions.

    ``hosts``: name to kind of markers; ``places``: log or subscriber to the host where it is.
    """

    def __init__(
        self,
        folder: Path,
        zookeeper: EmbeddedZooKeeper,
        hosts: dict[str, str],
        places: dict[str, str],
        applications: dict[str, Application],
    ) -> None:
        self.folder, self.file = folder, folder / "fleet.toml"
        self.zookeeper = zookeeper
        self.mark = uuid.uuid4().hex
        self.problems: list[str] = []
        self.hosts = {name: Host(name, folder, zookeeper, self.mark, markers) for name, markers in hosts.items()}
        self.applications = applications
        members = {
            name: SubscriberProcess(name, application, folder, {"options": self._options(name), **(settings or {})})
            for application, one in applications.items()
            for name, settings in one.subscribers.items()
        }
        self.members = members
        self.logs = {name: self._log(name, self.hosts[host]) for name, host in places.items() if name not in members}
        self._owners: dict[str, list[tuple[int, str]]] = {}
        self._sweeper = subprocess.Popen(
            [sys.executable, "-m", "tests.system.harness.sweeper", self.mark], stdin=subprocess.PIPE, cwd=ROOT
        )

    def _log(self, name: str, host: Host) -> Log:
        settings = {
            "path": str(self.folder / f"store-{name}"),
            "journal": str(self.folder / f"journal-{name}"),
            "tables": TABLES,
            "seed": name,
            "rate": 10.0,
        }
        writer = WriterProcess(f"writer-{name}", self.folder, settings)
        with host.file.open("a") as file:
            file.write(f'[sources."shop/main/{name}"]\nsource = "rocksdb://{self.folder}/store-{name}"\n')
        return Log(name, host, self.folder / f"store-{name}", writer, Lines(self.folder / f"journal-{name}"))

    def _options(self, name: str) -> dict[str, str]:
        return {"id": name, "coordinator": str(self.file)}

    # -- life

    def start_writers(self) -> None:
        """Start what owns the stores, and let it write."""
        for log in self.logs.values():
            base = log.writer.ready()
            for name, application in self.applications.items():
                log.checkers[name] = Checker(name, by_table(log.name), application.wanted, base)
            log.writer.tell("go")

    def write_file(self) -> None:
        """Write what is to be applied."""
        parts = ["version = 1", "[coordinator]", f'zookeeper = "{self.zookeeper.hosts}/wormhole"']
        parts += ['session_timeout = "2s"', "[datasets.shop]", 'shard_by = "table"']
        for name, log in self.logs.items():
            parts += [f"[datasets.shop.copies.main.logs.{name}]", f'host = "{log.host.name}"']
            parts.append(f'source = "rocksdb://{log.store}"')
        for name, application in self.applications.items():
            parts += [f"[applications.{name}]", 'dataset = "shop"', 'start = "earliest"', application.settings]
        self.file.write_text("\n".join(parts) + "\n")

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes():
            process.kill()
        assert self._sweeper.stdin is not None
        self._sweeper.stdin.close()
        self._sweeper.wait()

    # -- what holds

    def publishers(self) -> dict[str, int]:
        """Log to process of what runs. That a log has two is a problem."""
        found: dict[str, int] = {}
        for pid, command in marked(self.mark).items():
            match = _LOG_OF.search(command)
            if match is None:
                continue
            if match[1] in found:
                self.problems.append(f"TWO PUBLISHERS: {match[1]} at {found[match[1]]} and at {pid}: {command}")
            if f"{self.logs[match[1]].host.folder}/" not in command:
                self.problems.append(f"ELSEWHERE: {match[1]} runs as {command}")
            found[match[1]] = pid
        return found

    def await_serving(self, names: Iterable[str]) -> dict[str, int]:
        """Wait until just these logs have a publisher that is ready; returns the processes."""
        wanted = sorted(names)
        found: dict[str, int] = {}

        def so() -> bool:
            nonlocal found
            found = self.publishers()
            self.check()
            return sorted(found) == wanted and all(self.logs[name].ready_pid() == found[name] for name in wanted)

        self.await_true(so, lambda: f"{wanted} are not served, but {found}")
        return found

    def gather(self) -> None:
        """Read what was journalled since the last time. The writers must be alive."""
        fresh = [(run, member.application, line) for member in self.members.values() for run, line in member.fresh()]
        # The journals after that: whatever was received is then known to have been intended; wait for its confirmation.
        for log in self.logs.values():
            read_journal(log.journal, log.lines, log.checkers.values(), log.writer)
        for run, application, line in fresh:
            entry = parse(line)
            self.logs[entry.shard.partition(".")[0]].checkers[application].told(run, entry)
            if isinstance(entry, Assigned):
                assert entry.publisher, f"{run} was not told who assigns: {line}"
                self._owners.setdefault(f"{application}/{entry.shard}", []).append((entry.epoch, entry.publisher))

    def check(self) -> None:
        """Fail with everything that was found wrong so far."""
        found = [*self.problems]
        for log in self.logs.values():
            for checker in log.checkers.values():
                found += checker.check()
        for flow, owners in self._owners.items():
            found += owners_in_turn(flow, owners)
        assert not found, "\n".join([*found, "", self.told()])

    def await_all(self) -> None:
        """Wait until everything was received that is committed now."""
        targets = [(log, int(log.writer.tell("sequence"))) for log in self.logs.values()]

        def arrived() -> bool:
            self.gather()
            self.publishers()
            self.check()
            return all(checker.reached_until(target) for log, target in targets for checker in log.checkers.values())

        def behind() -> str:
            return (
                "not received: "
                f"{ {(log.name, n): dict(c.behind()) for log, _ in targets for n, c in log.checkers.items()} }"
            )

        self.await_true(arrived, behind)

    def await_true(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until ``condition``; on the way no process may end that was not ended by the test."""

        def so() -> bool:
            for process in self.processes():
                assert not process.ended, f"{process.name} ended by itself\n{process.tail()}"
            return condition()

        until(so, lambda: f"{what()}\n{self.told()}")

    def processes(self) -> list[Process]:
        """All that the test started itself: publishers are the monitors' own."""
        writers = [log.writer for log in self.logs.values()]
        return [*(host.monitor for host in self.hosts.values()), *writers, *self.members.values()]

    def told(self) -> str:
        """The end of every process's output, for a failure."""
        outputs = self.folder.glob("h*/state/monitor/logs/*.log")
        of_publishers = [f"--- {path.name}:\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(outputs)]
        return "\n".join([*(process.tail() for process in self.processes()), *of_publishers])
