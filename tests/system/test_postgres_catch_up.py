"""Applications that are far behind catch up from PostgreSQL, each from its own place, while another one is live."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.support.eventually import until
from tests.system.harness.ensemble import Application, Ensemble, Plan
from wormhole.wire.v1 import admin_pb2

Running = Callable[[Plan], AbstractContextManager[Ensemble]]

_LATE = ("late", "later")
_CHANGE_BUFFER = "2MiB"
_MORE_THAN_A_CHANGE_BUFFER = "fill 400 10000"


def _plan() -> Plan:
    names = ("live", *_LATE)
    return Plan(
        {name: Application({f"{name}-1": {"callback": "batch"}}) for name in names},
        datastore="postgres",
        zookeeper=False,
        shard_by="{ hash = 2 }",
        publisher=f'change_buffer = "{_CHANGE_BUFFER}"',
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


def _copies_read(ensemble: Ensemble) -> set[str]:
    """Every copy of a slot that was ever read, as the server wrote it down."""
    written = ensemble.server.server.log.read_text(errors="replace")
    return set(re.findall(r'starting logical decoding for slot "(wormhole_db1_[^"]+)"', written))


def _started(ensemble: Ensemble, application: str) -> list[int]:
    """Where caravans for the application's flows were started, as the publisher's history has it."""
    started = (event.what for event in ensemble.status().events if event.kind == admin_pb2.CaravanEvent.STARTED)
    return [int(one[1]) for what in started if (one := re.match(rf"starts at \d+/0/(\d+): {application}/", what))]


def test_a_mass_catch_up_reads_copies_of_the_slots(running: Running) -> None:
    """The held slot stays at the oldest datamarker, and the lead's goes on; both follow in the end."""
    with running(_plan()) as ensemble:
        ensemble.tell("fill 20 100")
        ensemble.await_all()
        left, running_still = [], ["live", *_LATE]
        for name in _LATE:
            ensemble.members[f"{name}-1"].stop()  # which acknowledges what it has
            running_still.remove(name)
            ensemble.tell(_MORE_THAN_A_CHANGE_BUFFER)
            ensemble.await_all(running_still)
            left.append(_end(ensemble))
        ensemble.publisher.stop()  # nothing is in the change buffer of the next one
        ensemble.publisher.start()
        ensemble.tell("fill 20 100")
        ensemble.await_all(["live"])
        until(lambda: _place(ensemble, "lead") > left[-1], "the lead's slot does not follow")
        assert _place(ensemble, "held") < left[0], "the held slot passed what an application has not got"
        copies = _copies_read(ensemble)
        # From the front: no caravan is behind a flow that comes, and none holds its place, however fast they are.
        for name, bound in zip(reversed(_LATE), reversed(left), strict=True):
            ensemble.start_subscriber(f"{name}-1")
            (start, *_) = until(partial(_started, ensemble, name), lambda: f"no caravan starts\n{ensemble.told()}")
            assert start < bound, "it was not behind"
        assert len(_copies_read(ensemble) - copies) >= len(_LATE)
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
