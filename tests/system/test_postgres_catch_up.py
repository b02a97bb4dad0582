"""Applications that are far behind catch up from PostgreSQL, each from its own place, while another one is live."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.support.eventually import until
from tests.system.harness.ensemble import Application, Ensemble, Plan

Running = Callable[[Plan], AbstractContextManager[Ensemble]]

_LATE = ("late", "later")


def _plan() -> Plan:
    names = ("live", *_LATE)
    return Plan(
        {name: Application({f"{name}-1": {"callback": "batch"}}) for name in names},
        datastore="postgres",
        zookeeper=False,
        shard_by="{ hash = 2 }",
        log='relay = "off"',  # else nobody reads a copy
    )


def _place(ensemble: Ensemble, slot: str) -> int:
    """Up to where one of the two slots is confirmed."""
    found = ensemble.server.server.sql(
        f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'wormhole_db1_{slot}'"
    )
    return int(found[0][0])


def _end(ensemble: Ensemble) -> int:
    return int(ensemble.server.server.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])


def _readers(ensemble: Ensemble) -> int:
    return int(ensemble.server.server.sql("SELECT count(*) FROM pg_replication_slots WHERE temporary")[0][0])


def test_a_mass_catch_up_reads_copies_of_the_slots(running: Running) -> None:
    """The held slot stays at the oldest datamarker, and the lead's goes on; both follow in the end."""
    with running(_plan()) as ensemble:
        ensemble.tell("fill 20 100")
        ensemble.await_all()
        left = []
        for name in _LATE:
            ensemble.members[f"{name}-1"].process.kill()
            ensemble.tell("fill 500 2000")
            left.append(_end(ensemble))
        ensemble.await_all(["live"])
        ensemble.publisher.kill()  # nothing is in the change buffer of the next one
        ensemble.publisher.start()
        ensemble.tell("fill 20 100")
        ensemble.await_all(["live"])
        until(lambda: _place(ensemble, "lead") > left[-1], "the lead's slot does not follow")
        assert _place(ensemble, "held") < left[0], "the held slot passed what an application has not got"
        for name in _LATE:
            ensemble.start_subscriber(f"{name}-1", pause=0.05)
        until(lambda: _readers(ensemble) >= 2, lambda: f"nobody reads a copy\n{ensemble.told()}")
        ensemble.await_all()
        until(lambda: _place(ensemble, "held") > left[-1], "the held slot does not follow")
        until(lambda: _readers(ensemble) == 1, "copies are left")


@pytest.mark.soak
def test_posthog_83333_an_idle_publication_beside_a_busy_database(running: Running) -> None:
    """For minutes: `restart_lsn` follows again and again, and a restart finds its place.

    ``WORMHOLE_IDLE_ROUNDS=20`` takes ten minutes and more.
    """
    with running(_plan()) as ensemble:
        ensemble.tell("fill 5 100")
        ensemble.await_all()
        server = ensemble.server.server
        server.sql("CREATE TABLE busy (v text)")
        held = "SELECT restart_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'wormhole_db1_held'"
        begin, furthest = _end(ensemble), 0
        for _ in range(int(os.environ.get("WORMHOLE_IDLE_ROUNDS", "6"))):
            server.sql("INSERT INTO busy SELECT repeat('x', 900) FROM generate_series(1, 20000)", "TRUNCATE busy")
            end = _end(ensemble)

            def follows(end: int = end) -> bool:
                nonlocal furthest
                server.sql("INSERT INTO busy VALUES ('x')", "CHECKPOINT")
                restart = int(server.sql(held)[0][0])
                furthest = max(furthest, _end(ensemble) - restart)
                return restart > end

            until(follows, lambda: f"it does not follow\n{ensemble.told()}")
        written = _end(ensemble) - begin
        print(f"written {written >> 20} MiB, restart_lsn behind by at most {furthest >> 20} MiB")
        assert furthest < written
        ensemble.publisher.kill()
        ensemble.publisher.start()
        ensemble.tell("fill 5 100")
        ensemble.await_all()
