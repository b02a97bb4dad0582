"""Who owns a log, its epochs and its datamarkers when something is doubled, moved, restored or lost: real processes,
real ZooKeeper.

The checker looks at every delivery: an epoch has one process, accepted epochs never fall, nothing is lost.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.support import command_line
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.logs import Assigned
from tests.system.harness.programs import Command
from wormhole.host.ready_file import read_ready, ready_path

Running = Callable[[Plan], AbstractContextManager[Ensemble]]
Beside = Callable[[Ensemble], "Second"]


def plan(**settings: object) -> Plan:
    return Plan({"app": Application({"app-1": {}})}, tables=("orders",), rate=50.0, **settings)  # type: ignore[arg-type]


class Second(Command):
    """Another publisher of the ensemble's log, on its way to another host: its state folder is its own."""

    def __init__(self, ensemble: Ensemble) -> None:
        folder = ensemble.folder
        self.state_dir = folder / "state-2"
        ensemble.checkers["app"].same_times = False
        self.config = config = folder / "second.toml"
        config.write_text(ensemble.config.read_text().replace(f'"{folder / "state"}"', f'"{self.state_dir}"'))
        super().__init__("second", folder, "publisher", "run", "-c", str(config))

    def ask(self, *command: str) -> str:
        """What ``wormholectl`` prints when it asks this publisher; empty while it does not answer."""
        ready = read_ready(ready_path(self.state_dir, "shop", "main", "db1"))
        code, out, _ = (
            (1, "", "")
            if ready is None
            else command_line.run(*command, "-p", ready.admin, "--state-dir", str(self.state_dir))
        )
        return "" if code else out

    def flows(self) -> dict[str, dict[str, str]]:
        """What ``wormholectl flows`` says of it, by flow."""
        return {flow["flow"]: flow for flow in json.loads(self.ask("flows", "--json") or '{"flows": []}')["flows"]}


def copy_state(ensemble: Ensemble) -> None:
    """Give the second publisher the first one's state folder as it is at one moment."""
    here = ensemble.folder / "state"
    ensemble.publisher.signal(signal.SIGSTOP)
    shutil.copytree(here, here.with_name("state-2"), ignore=shutil.ignore_patterns("*.sock", "ready*"))
    ensemble.publisher.signal(signal.SIGCONT)


def pids(ensemble: Ensemble) -> list[int]:
    """The processes that assigned something to the application, in turn."""
    found = [entry.publisher for entry in ensemble.entries("app-1") if isinstance(entry, Assigned)]
    return [int(publisher.rpartition(":")[2]) for publisher in dict.fromkeys(found)]


@pytest.fixture
def beside() -> Iterator[Beside]:
    """Starts another publisher while the first one serves; it is killed at the end."""
    started: list[Second] = []

    def start(ensemble: Ensemble) -> Second:
        ensemble.tell("go")
        ensemble.await_all()
        started.append(Second(ensemble))
        started[-1].start()
        return started[-1]

    yield start
    for process in started:
        process.kill()


def test_a_second_publisher_serves_nothing_until_the_first_is_gone(running: Running, beside: Beside) -> None:
    """A log moves to another host while the old publisher lives (markers on each host's own disk)."""
    with running(plan()) as ensemble:
        first, second = ensemble.publisher.pid, beside(ensemble)
        second.await_output("is served by another live publisher")
        ensemble.await_all()
        ensemble.gather()
        assert pids(ensemble) == [first]
        assert json.loads(second.ask("flows", "--json"))["flows"] == []
        ensemble.publisher.kill()
        # Its own store has no datamarkers of flows that were served: it does not begin them anew in silence.
        names = ["app/db1.default", "app/db1.orders"]
        ensemble.await_true(lambda: sorted(second.flows()) == names, "the second one has the log")
        for name in names:
            flow = second.flows()[name]
            assert flow["state"] == "held", flow
            assert f"wormholectl markers set {name}" in flow["cause"], flow
            assert second.ask("markers", "set", name, "earliest", "--yes"), second.tail()
        ensemble.await_all()
        ensemble.await_true(lambda: pids(ensemble) == [first, second.pid], "the second one serves")
        assert second.stop() == 0, second.tail()


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def test_without_zookeeper_two_publishers_do_not_take_flows_from_each_other(
    running: Running, beside: Beside, server: str
) -> None:
    """Nothing but the subscriber and the database sees both: the one that was there stays, the other one says who it is
    and takes over at its end. On MariaDB a dump with the same replication id would end the first one's.
    """
    with running(plan(zookeeper=False, datastore=server)) as ensemble:
        first, second = ensemble.publisher.pid, beside(ensemble)
        second.await_output("another reader uses replication id")

        def refused() -> bool:
            flows = second.flows().values()
            return bool(flows) and all(f":{first}, serves this flow to app-1" in flow["cause"] for flow in flows)

        ensemble.await_true(refused, "the second one is not refused")
        ensemble.await_all()
        flow = second.flows()["app/db1.shop.orders"]
        assert flow["state"] == "held"
        assert "Next: stop the one of the two" in flow["cause"]
        for command in (["doctor"], ["why-lag", flow["flow"]]):  # both name the other one, and the way on
            _, said, _ = command_line.run(*command, "-c", str(second.config))
            assert f":{first}, serves this flow to app-1" in said
            assert "next: stop the one of the two" in said
        ensemble.gather()
        assert pids(ensemble) == [first]
        assert "showed the server the same id" not in ensemble.publisher.output.read_text()
        ensemble.publisher.kill()
        ensemble.await_true(lambda: pids(ensemble) == [first, second.pid], "the second one serves")
        ensemble.await_all()
        assert second.stop() == 0, second.tail()


def test_a_second_publisher_with_a_copy_of_the_state_folder_continues(running: Running, beside: Beside) -> None:
    """A host was cloned with what it held. Its datamarkers are older, so updates come twice and none is missing."""
    with running(plan()) as ensemble:
        ensemble.tell("go")
        ensemble.await_all()
        copy_state(ensemble)
        first, second = ensemble.publisher.pid, beside(ensemble)
        second.await_output("is served by another live publisher")
        ensemble.await_all()
        ensemble.gather()
        assert pids(ensemble) == [first]
        ensemble.publisher.kill()
        ensemble.await_true(lambda: pids(ensemble) == [first, second.pid], "the second one serves")
        ensemble.await_all()
        assert {flow["state"] for flow in second.flows().values()} == {"live"}


@pytest.mark.parametrize("datastore", ["rocksdb", pytest.param("mariadb", marks=pytest.mark.soak)])
def test_an_older_state_folder_is_put_back(running: Running, datastore: str) -> None:
    """ZooKeeper still has the later epochs. Updates come twice with the same content, none is missing, and no epoch is
    accepted again."""
    with running(plan(datastore=datastore)) as ensemble:
        # RocksDB's log has no commit times, and the folder has none of later updates than its own.
        ensemble.checkers["app"].same_times = datastore != "rocksdb"
        here, older = ensemble.folder / "state", ensemble.folder / "state-2"
        ensemble.tell("go")
        ensemble.await_all()
        copy_state(ensemble)
        ensemble.publisher.kill()  # another process begins the next epochs
        ensemble.publisher.start()
        ensemble.await_all()
        ensemble.await_true(lambda: pids(ensemble)[-1] == ensemble.publisher.pid, "the second process serves")
        ensemble.await_all()
        ensemble.publisher.kill()
        ensemble.gather()
        before = ensemble.figures()["app"].duplicates
        shutil.rmtree(here)
        older.rename(here)
        ensemble.publisher.start()
        ensemble.await_true(lambda: pids(ensemble)[-1] == ensemble.publisher.pid, "the third process serves")
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        assert not ensemble.checkers["app"].losses
        assert ensemble.figures()["app"].duplicates > before
