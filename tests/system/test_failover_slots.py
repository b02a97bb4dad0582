"""A log of PostgreSQL whose standby has the slots, as docs/failover.md recommends it: the primary dies, the standby is
promoted, and the publisher of that copy takes over.

For version 17 and later: ``WORMHOLE_POSTGRES`` names a server where Debian has an earlier one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import command_line
from tests.system.harness.candidates import Candidates, Host
from tests.system.harness.copies import WithSyncedSlots
from tests.system.harness.datastores import DATABASE
from tests.system.harness.logs import Received
from tests.system.test_failover import TWO_COPIES, finish
from tests.system.test_failover_refused import lost, started

pytestmark = pytest.mark.soak  # Debian 12 has 15

Say = Callable[[str], None]


@pytest.mark.parametrize(
    ("with_host", "bounded"),
    [(False, False), (False, True), (True, False)],
    ids=["primary", "primary-bounded", "host-and-primary"],
)
def test_a_primary_that_dies_under_load(tmp_path: Path, say: Say, *, with_host: bool, bounded: bool) -> None:
    """Its standby is promoted with everything: nothing is lost, the order is kept, and no loss is reported. Slots that
    wait for a standby of the former primary stay where they are, which is reported."""
    server = WithSyncedSlots(bounded=bounded)
    with started(tmp_path, TWO_COPIES, copies=server) as ensemble:
        owner, other = serving(ensemble, server)
        ensemble.await_more(200)
        if with_host:
            ensemble.kill_host(owner)
        since = server.fail_over()
        ensemble.await_owner(other)
        ensemble.await_all()
        ensemble.await_more(200)
        say(f"  PostgreSQL with synchronized slots: recovered after {ensemble.recovered(since, other):.1f} s")
        assert lost(ensemble) == []
        if bounded:
            other.publisher.await_output("synchronized_standby_slots names standby, which the server does not have")
            server.name_no_standby()
        before = server.confirmed()
        ensemble.await_true(lambda: server.confirmed() > before, "the slots do not follow on the new primary")
        if with_host:
            ensemble.start_host(owner)
        finish(ensemble, say)


@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_a_standby_that_lacks_what_was_delivered(tmp_path: Path, *, bounded: bool) -> None:
    """It waits for its patience, and then its flows are held as diverged, with what is missing: what is delivered does
    not wait for the standby, whether the slots do or not."""
    server = WithSyncedSlots(bounded=bounded)
    with started(tmp_path, TWO_COPIES, copies=server, patience="1s") as ensemble:
        _, other = serving(ensemble, server)
        ensemble.tell("pause")
        ensemble.await_all()
        server.cut_off()
        ensemble.tell("fill 5 10")
        ensemble.await_all()
        ensemble.await_true(lambda: not ensemble.unmarked(), lambda: f"{ensemble.unmarked()}")
        server.lose_end()
        ensemble.await_true(lambda: ensemble.candidate(other).get("lacking"), ensemble.owners)
        ensemble.await_owner(other)
        await_held(ensemble, "lacks what was delivered behind that")
        accept(ensemble, server, other)


def test_a_standby_that_lacks_what_was_not_acknowledged(tmp_path: Path) -> None:
    """Nothing before a datamarker is missing, so it takes over at once. What is missing behind them may have been
    processed all the same, which is reported."""
    server = WithSyncedSlots()
    with started(tmp_path, TWO_COPIES, copies=server) as ensemble:
        _, other = serving(ensemble, server)
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.await_true(lambda: not ensemble.unmarked(), lambda: f"{ensemble.unmarked()}")
        for member in ensemble.members.values():
            member.process.signal(signal.SIGSTOP)
        server.cut_off()
        ensemble.tell("fill 5 10")
        ensemble.await_true(lambda: any(in_flight for *_, in_flight in held_or_not(ensemble)), "nothing is sent")
        server.lose_end()
        ensemble.await_owner(other)
        for member in ensemble.members.values():
            member.process.signal(signal.SIGCONT)
        await_held(ensemble, "may have been delivered although it was not acknowledged")
        accept(ensemble, server, other)


def serving(ensemble: Candidates, server: WithSyncedSlots) -> tuple[Host, Host]:
    """The host of the primary, which owns the log, and that of the standby, which has the slots; under load."""
    owner, other = ensemble.hosts.values()
    ensemble.tell("go")
    ensemble.await_owner(owner)
    ensemble.await_all()
    server.await_synced()
    ensemble.await_true(lambda: "once it is promoted" in ensemble.candidate(other).get("waits", ""), ensemble.owners)
    assert not ensemble.candidate(other)["ready"]
    return owner, other


def await_held(ensemble: Candidates, why: str) -> None:
    """Until both flows are, as diverged, with what is missing and with this in the cause."""

    def so() -> bool:
        found = held_or_not(ensemble)
        return len(found) == 2 and all(state == "held" and why in cause for _, state, cause, _ in found)

    ensemble.await_true(so, lambda: f"not held: {held_or_not(ensemble)}")
    ensemble.await_true(lambda: lost(ensemble) == ["diverged"] * 2, lambda: f"told: {lost(ensemble)}")
    for checker in ensemble.checkers.values():
        assert all(loss.first.startswith("1:") and loss.last.startswith("1:") for loss in checker.losses)


def accept(ensemble: Candidates, server: WithSyncedSlots, host: Host) -> None:
    """An operator on the owner's host does, and what is committed on the new primary comes."""
    for name, *_ in held_or_not(ensemble):
        file = ensemble.folder / f"{host.name}.toml"
        code, out, err = command_line.run("flows", "accept-loss", name, "-c", str(file), "--yes")
        assert code == 0, out + err
    server.standby.sql("INSERT INTO shop.default_ VALUES ('after it', '')", database=DATABASE)

    def come() -> bool:
        entries = (entry for name in ensemble.members for entry in ensemble.entries(name))
        return any(isinstance(entry, Received) and entry.content.key == b"after it".hex() for entry in entries)

    ensemble.await_true(come, "what is committed after the loss does not come")


def held_or_not(ensemble: Candidates) -> list[tuple[str, str, str, int]]:
    """Name, state, cause and bytes in flight of each flow; empty while nobody says so."""
    code, out, _ = command_line.run("flows", "--json", "-c", str(ensemble.config))
    flows = [] if code else json.loads(out)["flows"]
    return [(flow["flow"], flow["state"], flow["cause"] or "", flow["in_flight"]) for flow in flows]
