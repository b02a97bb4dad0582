"""Who owns a log, its epochs and its datamarkers when something is doubled, moved, restored or lost: real processes, real ZooKeeper.

The checker looks at every delivery: an epoch has one process, accepted epochs never fall, nothing is lost.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.support import command_line
from tests.system.harness.ensemble import WORMHOLECTL, Application, Ensemble, Plan
from tests.system.harness.logs import Assigned
from tests.system.harness.processes import Process
from wormhole.ready_file import read_ready, ready_path

PATIENCE_S = 60.0

Running = Callable[[Plan], AbstractContextManager[Ensemble]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def plan(**settings: object) -> Plan:
    return Plan({"app": Application({"app-1": {}})}, tables=("orders",), rate=50.0, **settings)  # type: ignore[arg-type]


class Second(Process):
    """Another publisher of the ensemble's log, on its way to another host: its state folder is its own."""

    def __init__(self, ensemble: Ensemble) -> None:
        folder = ensemble.folder
        self.state_dir = folder / "state-2"
        ensemble.checkers["app"].same_times = False
        config = folder / "second.toml"
        config.write_text(ensemble.config.read_text().replace(f'"{folder / "state"}"', f'"{self.state_dir}"'))
        super().__init__("second", ["-c", WORMHOLECTL, "publisher", "run", "-c", str(config)], folder)

    def flows(self) -> dict[str, dict[str, str]]:
        """What ``wormholectl flows`` says of it, by flow; empty while it does not answer."""
        ready = read_ready(ready_path(self.state_dir, "shop", "main", "db1"))
        if ready is None:
            return {}
        code, out, _ = command_line.run("flows", "-p", ready.admin, "--json")
        return {} if code else {flow["flow"]: flow for flow in json.loads(out)["flows"]}


def pids(ensemble: Ensemble) -> list[int]:
    """The processes that assigned something to the application, in turn."""
    found = [entry.publisher for entry in ensemble.entries("app-1") if isinstance(entry, Assigned)]
    return [int(publisher.rpartition(":")[2]) for publisher in dict.fromkeys(found)]


@pytest.fixture
def ended() -> object:
    """Processes to kill at the end."""
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


def test_a_second_publisher_serves_nothing_until_the_first_is_gone(running: Running, ended: list[Process]) -> None:
    """A log moves to another host while the old publisher lives (markers on each host's own disk)."""
    with running(plan()) as ensemble:
        ensemble.tell("go")
        ensemble.await_all(PATIENCE_S)
        first = ensemble.publisher.pid
        second = Second(ensemble)
        ended.append(second)
        second.start()
        second.await_output("is served by another live publisher", PATIENCE_S)
        ensemble.await_all(PATIENCE_S)
        ensemble.gather()
        assert pids(ensemble) == [first]
        ensemble.publisher.kill()
        ensemble.await_all(PATIENCE_S)
        ensemble.await_true(lambda: pids(ensemble) == [first, second.pid], PATIENCE_S, "the second one serves")
        assert second.stop() == 0, second.tail()


def test_a_publisher_that_was_killed_passes_its_own_entry(running: Running) -> None:
    """Its session lasts a minute: without its lock's proof the next process would wait for that."""
    with running(plan(session_timeout="60s")) as ensemble:
        ensemble.tell("go")
        ensemble.await_all(PATIENCE_S)
        for _ in range(2):
            ensemble.publisher.kill()
            ensemble.publisher.start()
            ensemble.await_all(30.0)


def test_without_zookeeper_two_publishers_do_not_take_flows_from_each_other(
    running: Running, ended: list[Process]
) -> None:
    """Nothing but the subscriber sees both: the one that was there stays, the other one says who it is and takes over at its end."""
    with running(plan(zookeeper=False)) as ensemble:
        ensemble.tell("go")
        ensemble.await_all(PATIENCE_S)
        first = ensemble.publisher.pid
        second = Second(ensemble)
        ended.append(second)
        second.start()
        second.await_output("another publisher, shop/main/db1@", PATIENCE_S)
        ensemble.await_all(PATIENCE_S)
        flow = second.flows()["app/db1.orders"]
        assert flow["state"] == "held"
        assert f":{first}, serves this flow to app-1" in flow["cause"]
        assert "Next: stop the one of the two" in flow["cause"]
        ensemble.gather()
        assert pids(ensemble) == [first]
        ensemble.publisher.kill()
        ensemble.await_true(lambda: pids(ensemble) == [first, second.pid], PATIENCE_S, "the second one serves")
        ensemble.await_all(PATIENCE_S)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["static", "zookeeper"])
def test_an_older_marker_store_goes_on_above_the_epochs_that_were_seen(running: Running, zookeeper: bool) -> None:
    with running(plan(zookeeper=zookeeper)) as ensemble:
        ensemble.tell("go")
        ensemble.await_all(PATIENCE_S)
        assert ensemble.publisher.stop() == 0
        store = ensemble.folder / "state/shop/main/db1/markers.sqlite"
        shutil.copy(store, ensemble.folder / "backup")
        for _ in range(2):  # two epochs more than the backup knows
            ensemble.publisher.start()
            ensemble.await_all(PATIENCE_S)
            ensemble.publisher.kill()
        for path in store.parent.glob("markers.sqlite-*"):
            path.unlink()
        shutil.copy(ensemble.folder / "backup", store)
        ensemble.publisher.start()
        ensemble.publisher.await_output("app-1 has seen epoch", PATIENCE_S)
        assert "comes again" in ensemble.publisher.output.read_text()
        ensemble.await_all(PATIENCE_S)
        ensemble.gather()
        ensemble.check()
