"""A copy that lacks what was delivered takes the log over, because no complete one comes: what is missing is named, the
flows are held, and an operator does what docs/runbook.md says. At the end each application has what the copy has.

Three applications: two have acknowledged everything, so that updates before their datamarkers are missing. ``compared``
has the callbacks of a verification, ``sent`` has not, and gets whole tables. ``frozen`` has not acknowledged the last
commits that the copy has, nor those that it lacks: it may have processed them, and has to get the former again.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from examples.table_copy import from_text
from tests.support import command_line
from tests.support.databases import DatabaseServer
from tests.support.eventually import until
from tests.support.replicas import promote
from tests.system.harness.candidates import Candidates, Host
from tests.system.harness.copies import MAIN, WEST
from tests.system.harness.ensemble import Application, Plan
from tests.system.harness.logs import Loss
from tests.system.harness.processes import Process
from tests.system.test_failover import Places, move

COMPARED, SENT, FROZEN = "compared", "sent", "frozen"
TABLES: Final = ("shop.default_", "shop.orders")
_SHARD: Final = "db1.0of1"
_PLACES: Final[Places] = {"a": (MAIN, ()), "b": (WEST, ())}
_AFTER: Final = b"after the takeover"
# The program of docs/existing-rows.md; and without the callbacks of a verification, so that a repair sends all rows.
_COPY: Final = """
import sys
from examples.table_copy import TableCopy
from subscriber_sdk import Subscriber, run
from tests.system.harness.child import die_with_parent

class Sent(TableCopy):
    on_verify, on_verify_keys = Subscriber.on_verify, Subscriber.on_verify_keys

die_with_parent()
application, file, coordinator = sys.argv[1:]
run((Sent if application == "sent" else TableCopy)(file), application=application, coordinator=coordinator)
"""

Rows = dict[tuple[str, bytes], bytes]
"""Values by table and key."""


class Scene:
    """A primary, its replica, and a publisher beside each."""

    def __init__(self, flavour: str, folder: Path) -> None:
        applications = {name: Application({name: None}) for name in (COMPARED, SENT)}
        applications[FROZEN] = Application({FROZEN: {"loss": "halt"}})
        plan = Plan(applications, datastore=flavour, shard_by="{ hash = 1 }", tables=("orders",))
        self.flavour, self.folder = flavour, folder
        self._uuid = ""
        self.ensemble = Candidates(plan, folder, _PLACES, patience="2s")
        self.programs = {
            name: Process(name, ["-c", _COPY, name, str(folder / name), str(self.ensemble.config)], folder)
            for name in (COMPARED, SENT)
        }

    def start(self) -> tuple[Host, Host]:
        """Everything, and the first host owns the log; returns both hosts."""
        self.ensemble.start()
        if self.flavour == "mysql":
            ((self._uuid,),) = self.server(MAIN).sql("SELECT @@GLOBAL.server_uuid")
        for program in self.programs.values():
            program.start()
        owner, other = self.ensemble.hosts.values()
        self.ensemble.await_true(lambda: self.ensemble.owner is not None, self.ensemble.owners)
        if self.ensemble.owner is other:  # it started faster
            move(self.ensemble, owner)
        self.ensemble.await_standby(other)
        return owner, other

    def close(self) -> None:
        for program in self.programs.values():
            program.kill()
        self.ensemble.close()

    @property
    def frozen(self) -> Process:
        """The subscriber of `frozen`."""
        return self.ensemble.members[FROZEN]

    # -- the servers

    def server(self, copy: str) -> DatabaseServer:
        return self.ensemble.copies.at(copy)

    def rows(self, copy: str) -> Rows:
        """What the tables of a copy hold."""
        select = "SELECT `key`, value FROM"
        return {(table, key): value for table in TABLES for key, value in self.server(copy).sql(f"{select} {table}")}

    def write(self, commits: int) -> int:
        """So many commits, of every kind, and no more; returns the number of the last one."""
        wanted = self.sequence() + commits
        self.ensemble.tell("go")
        self.ensemble.await_true(lambda: self.sequence() >= wanted, "the writer does not go on")
        self.ensemble.tell("pause")
        self.ensemble.gather()
        return self.sequence()

    def sequence(self) -> int:
        return int(self.ensemble.tell("sequence"))

    def committed(self, after: int, until: int) -> list[str]:
        """The keys of all changes behind one commit, up to another, as `updates` has them."""
        commits = (one for one in self.ensemble.journal.commits if after < one.sequence <= until)
        return [change.key for commit in commits for change in commit.changes]

    def await_replicated(self) -> None:
        """Until the replica has executed everything."""
        place = self.executed(MAIN)
        until(lambda: self.executed(WEST) == place, "the replica is behind")

    def executed(self, copy: str) -> str:
        """What a server has, as GTIDs."""
        variable = "gtid_binlog_pos" if self.flavour == "mariadb" else "gtid_executed"
        return str(self.server(copy).sql(f"SELECT @@GLOBAL.{variable}")[0][0])

    def gtids(self, first: int, last: int) -> str:
        """Transactions of the primary, as a flow names those that are missing."""
        if self.flavour == "mariadb":  # each includes those before it
            return f"0-1-{last}"
        return f"{self._uuid}:{first}-{last}"

    # -- the applications

    def held(self, application: str) -> Rows:
        """The rows that it holds."""
        with closing(sqlite3.connect(self.folder / application, timeout=30)) as database:
            found = [(table, from_text(row)) for table, row in database.execute("SELECT name, row FROM rows")]
        return {(table, row["key"]): row["value"] for table, row in found}

    def await_equal(self, copy: str) -> None:
        """Until `compared` and `sent` hold what the copy holds."""
        there = self.rows(copy)

        def others() -> list[str]:
            return [name for name in self.programs if self.held(name) != there]

        self.ensemble.await_true(
            lambda: not others(),
            lambda: "\n".join([f"not as in {copy}:", *(self.programs[n].tail() for n in others())]),
        )

    def await_marked(self, *applications: str) -> None:
        """Until everything that was committed is known to be delivered to them."""

        def left() -> list[str]:
            return [one for one in self.ensemble.unmarked() if one.partition("/")[0] in applications]

        self.ensemble.await_true(lambda: not left(), lambda: f"{left()}")

    def flow(self, application: str) -> dict[str, Any]:
        """As `wormholectl flows` shows it; empty while no publisher serves it."""
        code, out, _ = command_line.run("flows", "--json", "-c", str(self.ensemble.config))
        flows = [] if code else json.loads(out)["flows"]
        return next((one for one in flows if one["flow"] == f"{application}/{_SHARD}"), {})

    def updates(self) -> list[str]:
        """The keys of what `frozen` was given, in hexadecimal, each time that it was."""
        text = "".join(path.read_text() for path in self.folder.glob(f"{FROZEN}.*.log"))
        return re.findall(r"^U\t.*\tshop\.\w+\t(\w+)\t", text, re.MULTILINE)


@pytest.mark.parametrize("flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def test_a_copy_without_what_was_delivered(flavour: str, tmp_path: Path) -> None:
    with closing(Scene(flavour, tmp_path)) as scene:
        _, other = scene.start()
        marked = scene.write(40)
        scene.await_equal(MAIN)
        scene.ensemble.await_all([FROZEN])
        scene.await_marked(COMPARED, SENT, FROZEN)
        scene.frozen.signal(signal.SIGSTOP)
        shared = scene.write(20)
        scene.await_replicated()

        last = lose_end(scene, shared)
        other.publisher.await_output("which was delivered; it waits 2 s for a copy that has it")
        scene.ensemble.await_owner(other)
        scene.frozen.signal(signal.SIGCONT)
        await_held(scene, shared, last)

        given = scene.updates()
        accept(scene, other)
        scene.await_equal(WEST)
        scene.server(WEST).sql(f"INSERT INTO shop.orders VALUES ('{_AFTER.decode()}', 'live again')")
        scene.ensemble.await_true(lambda: _AFTER.hex() in scene.updates(), "what is committed then does not come")
        scene.await_equal(WEST)
        assert scene.updates() == [*given, *scene.committed(marked, shared), _AFTER.hex()]


def lose_end(scene: Scene, shared: int) -> int:
    """What is committed after ``shared`` is delivered, and then the primary dies with it. Returns its last number."""
    has = scene.rows(WEST)
    promote(scene.server(WEST))  # it replicates no more
    last = scene.write(30)
    scene.await_equal(MAIN)
    scene.await_marked(COMPARED, SENT)
    await_noted(scene, last)
    scene.server(MAIN).kill()
    assert last - shared >= 30
    assert scene.rows(WEST) == has != scene.held(COMPARED)
    return last


def await_noted(scene: Scene, last: int) -> None:
    """Until it is noted that the log was read so far: that is done once a second."""
    assert scene.ensemble.zookeeper is not None
    client = KazooClient(scene.ensemble.zookeeper.hosts)
    client.start()

    def noted() -> str:
        try:
            data, _ = client.get(f"/wormhole/logs/shop/{scene.ensemble.group}/db1/state/read")
        except NoNodeError:
            return ""
        return str(json.loads(zlib.decompress(data))["delivered"])

    try:
        until(lambda: noted().endswith(f"-{last}"), lambda: f"noted is {noted()}, and not {last}")
    finally:
        client.stop()
        client.close()


def await_held(scene: Scene, shared: int, last: int) -> None:
    """Until each flow is held as diverged, and names what is missing: before its datamarker, or behind it."""
    gone = scene.gtids(shared + 1, last)
    why = {
        COMPARED: f"the server has not executed {gone}, which was delivered before ",
        SENT: f"the server has not executed {gone}, which was delivered before ",
        FROZEN: f"{gone} was read behind ",
    }
    scene.ensemble.await_true(
        lambda: all(scene.flow(name).get("loss_pending") for name in why), lambda: f"{list(map(scene.flow, why))}"
    )
    for name, words in why.items():
        flow = scene.flow(name)
        assert flow["state"] == "held"
        assert words in flow["cause"]
        code, out, _ = command_line.run("why-lag", flow["flow"], "-c", str(scene.ensemble.config))
        assert code == 0
        assert words in out
        assert f"wormholectl repair {flow['flow']}" in out
    assert "may have been delivered although it was not acknowledged" in scene.flow(FROZEN)["cause"]
    told = [(one.kind, one.first, one.last) for one in scene.ensemble.entries(FROZEN) if isinstance(one, Loss)]
    assert [(kind, last) for kind, _, last in told] == [("diverged", gone)]
    assert told[0][1] == (f"0-1-{shared + 1}" if scene.flavour == "mariadb" else gone)


def accept(scene: Scene, host: Host) -> None:
    """What docs/runbook.md has for `log-diverged`, on the host that owns the log."""
    operate(scene, host, "repair", f"{COMPARED}/{_SHARD}")
    # In two steps, so that nothing of the copy's log comes again.
    operate(scene, host, "markers", "set", f"{SENT}/{_SHARD}", scene.executed(WEST))
    operate(scene, host, "repair", f"{SENT}/{_SHARD}")
    assert scene.flow(SENT)["updates"] == len(scene.rows(WEST))
    operate(scene, host, "flows", "accept-loss", f"{FROZEN}/{_SHARD}")


def operate(scene: Scene, host: Host, *command: str) -> None:
    code, out, err = command_line.run(*command, "-c", str(scene.folder / f"{host.name}.toml"), "--yes")
    assert code == 0, out + err
