"""What several candidates of one log are given wrong: one clear error, or an outcome that is told, each; nothing is
lost in silence.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import command_line
from tests.support.databases import DatabaseServer, start_server
from tests.system.harness.candidates import Candidates, Host
from tests.system.harness.copies import MAIN, Copies, WithStandby
from tests.system.harness.datastores import Server
from tests.system.harness.ensemble import Application, Plan
from tests.system.harness.logs import Received
from tests.system.test_failover import ONE_COPY, TWO_COPIES, Places, Round, ask_to_move, finish, move

Say = Callable[[str], None]

CLOCK_AHEAD = "import time; right = time.time; time.time = lambda: right() + 5 * 3600.0; "


@contextmanager
def started(
    folder: Path, places: Places, *, copies: Server | None = None, patience: str = "30s", before: str = "",
    session_timeout: str = "2s", loss: str = "halt",
) -> Iterator[Candidates]:  # fmt: skip
    """Two hosts; the second one runs ``before`` first. ``loss``: what the application does at one."""
    pair = Application({"pair-1": {"loss": loss}, "pair-2": {"loss": loss}})
    plan = Plan({"pair": pair}, datastore="mariadb", tables=("orders",), rate=50.0, session_timeout=session_timeout)
    ensemble = Candidates(plan, folder, places, copies=copies, patience=patience, before={"b": before})
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.close()


def serving(ensemble: Candidates) -> tuple[Host, Host]:
    """The owner and the one that stands by, once everything that was committed has come."""
    first, second = ensemble.hosts.values()
    ensemble.tell("go")
    ensemble.await_true(lambda: ensemble.owner is not None, ensemble.owners)
    if ensemble.owner is second:
        first, second = second, first
    ensemble.await_standby(second)
    ensemble.await_all()
    return first, second


def lead(ensemble: Candidates, host: Host, server: DatabaseServer) -> None:
    """The host's file names another server from now on; its publisher is started again."""
    host.publisher.kill()
    for link in host.database:
        link.lead_to(server.host, server.port)
        link.cut()
    host.publisher.start()
    ensemble.await_true(lambda: bool(ensemble.candidate(host)), ensemble.owners)


def lost(ensemble: Candidates) -> list[str]:
    """The kinds of losses that applications were told of."""
    ensemble.gather()
    return [loss.kind for checker in ensemble.checkers.values() for loss in checker.losses]


@pytest.fixture
def another() -> Iterator[DatabaseServer]:
    """A server with other data, in tables of the same names, and other transactions."""
    with start_server("mariadb", server_id="7", log_slave_updates="ON") as server:
        columns = "`key` VARBINARY(64) PRIMARY KEY, value LONGBLOB NOT NULL"
        server.sql(
            "CREATE DATABASE shop", *(f"CREATE TABLE shop.{name} ({columns})" for name in ("default_", "orders"))
        )
        yield server


def test_candidates_with_local_markers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'version = 1\n[coordinator]\nzookeeper = "127.0.0.1:1/wormhole"\n[publisher]\nmarkers = "local"\n'
        '[datasets.shop.copies.main.logs.db1]\nsource = "mariadb://wormhole@127.0.0.1:1/"\nhosts = ["a", "b"]\n'
    )
    for command in (["config", "check", str(file)], ["publisher", "run", "-c", str(file)]):
        code, out, err = command_line.run(*command)
        assert code != 0
        assert 'needs publisher.markers = "zookeeper"' in out + err


@pytest.mark.soak
def test_one_copy_that_is_two_servers(tmp_path: Path, another: DatabaseServer) -> None:
    """The host that reads the wrong one says so; if no other is left it serves, and what it lacks is told. Put right,
    the log goes on where it was."""
    with started(tmp_path, ONE_COPY) as ensemble:
        owner, other = serving(ensemble)
        for checker in ensemble.checkers.values():
            checker.same_places = False  # each change of servers begins another history
        lead(ensemble, other, another)
        other.publisher.await_output("under the same copy main")
        assert ensemble.owner is owner
        ensemble.await_all()
        ensemble.tell("pause")
        owner.publisher.kill()
        ensemble.await_owner(other)
        ensemble.await_true(lambda: "diverged" in lost(ensemble), lambda: f"told: {lost(ensemble)}")
        other.publisher.kill()
        owner.publisher.start()
        lead(ensemble, other, ensemble.server.at(MAIN))
        ensemble.tell("go")
        ensemble.await_all()


@pytest.mark.soak
@pytest.mark.parametrize("number", [0, 1_000_000], ids=["behind", "ahead"])
def test_a_copy_of_another_dataset(tmp_path: Path, another: DatabaseServer, number: int) -> None:
    """Its transactions are others, whether they are counted less far or further: it lacks what was delivered, which
    is told, and it serves only when no other copy comes, which is told too."""
    if number:
        insert = "INSERT INTO shop.orders VALUES ('other', 'other')"
        another.sql(f"SET SESSION gtid_seq_no = {number}", insert)
    with started(tmp_path, TWO_COPIES, patience="1s") as ensemble:
        owner, other = serving(ensemble)
        lead(ensemble, other, another)
        ensemble.await_true(lambda: ensemble.candidate(other).get("lacking"), ensemble.owners)
        ensemble.await_all()
        ensemble.tell("pause")
        ensemble.await_all()
        owner.publisher.kill()
        ensemble.await_owner(other)
        ensemble.await_true(lambda: "diverged" in lost(ensemble), lambda: f"told: {lost(ensemble)}")
        owner.publisher.start()
        move(ensemble, owner)
        ensemble.tell("go")
        ensemble.await_all()


@pytest.mark.soak
def test_clocks_that_are_hours_apart(tmp_path: Path, say: Say) -> None:
    """Nothing is decided by them."""
    with started(tmp_path, ONE_COPY, before=CLOCK_AHEAD) as ensemble:
        serving(ensemble)
        for number, kind in enumerate(("owner frozen", "host killed", "owner frozen", "moved")):
            seconds = Round(ensemble, random.Random(number)).run(kind)
            say(f"  clocks five hours apart: {kind}: recovered after {seconds:.1f} s")
        finish(ensemble, say)


@pytest.mark.soak
def test_a_log_that_is_moved_to_a_host_that_does_not_answer(tmp_path: Path) -> None:
    """It does not take it, so the one that had it goes on."""
    with started(tmp_path, ONE_COPY, session_timeout="10s") as ensemble:
        owner, other = serving(ensemble)
        term = ensemble.term
        other.publisher.signal(signal.SIGSTOP)
        code, said = ask_to_move(ensemble, other)
        assert code != 0
        assert f"{owner.candidate} took shop/main/db1 instead of {other.candidate}" in said
        ensemble.await_true(lambda: ensemble.term > term and ensemble.owner is owner, ensemble.owners)
        ensemble.await_all()
        other.publisher.signal(signal.SIGCONT)
        ensemble.await_standby(other)
        ensemble.await_all()


@pytest.mark.soak
def test_a_candidate_that_does_not_reach_its_database(tmp_path: Path) -> None:
    """It says so, and does not take the log; once it does reach it, it does."""
    with started(tmp_path, ONE_COPY) as ensemble:
        owner, other = serving(ensemble)
        other.publisher.kill()
        (link,) = other.database
        link.stall()
        other.publisher.start()
        ensemble.await_true(lambda: ensemble.candidate(other).get("hint"), ensemble.owners)
        assert not ensemble.candidate(other)["ready"]
        ensemble.kill_host(owner)
        ensemble.await_true(lambda: ensemble.read("owner") == {}, ensemble.owners)
        link.pass_through()
        ensemble.await_owner(other)
        ensemble.await_all()


@pytest.mark.soak
def test_copies_without_gtids(tmp_path: Path) -> None:
    """What was delivered from one cannot be found in the other: neither serves, and says why."""
    copies = Copies("mysql", related=False, gtid_mode="OFF", enforce_gtid_consistency="OFF")
    with started(tmp_path, TWO_COPIES, copies=copies) as ensemble:
        hosts = ensemble.hosts.values()
        ensemble.await_true(lambda: all(ensemble.candidate(host).get("hint") for host in hosts), ensemble.owners)
        for found in map(ensemble.candidate, hosts):
            assert not found["ready"]
            assert "gtid" in found["waits"].lower()
        assert ensemble.owner is None


@pytest.mark.soak
def test_a_promoted_standby_of_postgres(tmp_path: Path) -> None:
    """A standby of PostgreSQL 15 has no slots, so nothing proves what its log lacks: it cannot serve before somebody
    makes them, and what nobody delivered by then is told as lost."""
    server = WithStandby()
    with started(tmp_path, TWO_COPIES, copies=server, patience="1s", loss="continue") as ensemble:
        owner, other = next(iter(ensemble.hosts.values())), list(ensemble.hosts.values())[1]
        ensemble.tell("go")
        ensemble.await_owner(owner)
        ensemble.await_all()
        ensemble.tell("pause")
        ensemble.await_all()
        owner.database[0].stall()
        ensemble.tell("fill 5 10")
        server.promote()
        ensemble.await_true(lambda: "slot" in ensemble.candidate(other).get("waits", ""), ensemble.owners)
        assert ensemble.candidate(other)["hint"]
        server.make_slots()
        ensemble.await_owner(other)
        ensemble.await_true(lambda: lost(ensemble), "no loss was told")
        ensemble.tell("fill 5 10")
        sequence = int(ensemble.tell("sequence"))
        ensemble.await_true(lambda: sequence in received(ensemble), "what was committed last does not come")


def received(ensemble: Candidates) -> set[int]:
    """The numbers of what came, as the log has them; the checker would call what is lost a problem."""
    ensemble.gather()
    entries = [entry for name in ensemble.members for entry in ensemble.entries(name)]
    ensemble.datastore.count(entries, ensemble.journal.commits)
    return {entry.sequence for entry in entries if isinstance(entry, Received)}
