"""A relay beside real servers: no subscriber fills a database's disk, and none makes a publisher read it twice.

What fills a disk is log, and not hours: a day of an application that is away is :data:`HOURS` times as much log as the
server may keep for it (24 in ``make soak``), each with a checkpoint, at which a server removes what it need not keep.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.eventually import until
from tests.support.repeating import repeating
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.logs import Loss, Received

Running = Callable[[Plan], AbstractContextManager[Ensemble]]
Say = Callable[[str], None]

ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "0"))
HOURS: Final = 24 if ROUNDS else 3
MIB: Final = 1 << 20
SLOT_BUDGET: Final = 4 * MIB
HOUR: Final = 2 * SLOT_BUDGET
_COMMIT: Final = 256 << 10
_FILES: Final = 4 * MIB
"""What a server keeps besides: the file that is written, one that is made beforehand, and what checkpoints need."""
_BEHIND: Final = ("frozen", "away")


def _plan(datastore: str, relay: str, names: tuple[str, ...] = ("live", *_BEHIND), **more: Any) -> Plan:
    """Five flows for each name."""
    return Plan(
        {name: Application({f"{name}-1": {"callback": "batch"}}) for name in names},
        datastore=datastore,
        zookeeper=False,
        shard_by="{ hash = 5 }",
        log=relay,
        **more,
    )


def _hold(**more: Any) -> Plan:
    return _plan("small postgres", f'relay = "hold"\nslot_budget = "{SLOT_BUDGET >> 20}MiB"', **more)


def _ask(ensemble: Ensemble, statement: str) -> int:
    return int(ensemble.server.server.sql(statement)[0][0])


def _wal_bytes(ensemble: Ensemble) -> int:
    """The bytes of all files in ``pg_wal``."""
    return _ask(ensemble, "SELECT sum(size) FROM pg_ls_waldir()")


def _held(ensemble: Ensemble) -> int:
    """Up to where the server was told that its log is not needed."""
    slot = "slot_name = 'wormhole_db1_held'"
    return _ask(ensemble, f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE {slot}")


def _end(ensemble: Ensemble) -> int:
    return _ask(ensemble, "SELECT pg_current_wal_insert_lsn() - '0/0'")


def _write(ensemble: Ensemble, size: int) -> None:
    ensemble.tell(f"fill {size // _COMMIT} {_COMMIT}")


def _until_small(ensemble: Ensemble) -> int:
    """Until the server keeps no more than its budget; returns how much it did at most meanwhile."""
    most = 0

    def small() -> bool:
        nonlocal most
        ensemble.server.server.sql("CHECKPOINT")
        most = max(most, _wal_bytes(ensemble))
        return _wal_bytes(ensemble) <= SLOT_BUDGET + _FILES

    ensemble.await_true(small, lambda: f"pg_wal has {_wal_bytes(ensemble) >> 20} MiB")
    return most


@dataclass(slots=True)
class _Views:
    """What a server's own views showed of its readers, at most, asked again and again."""

    readers: int = 0
    copies: int = 0


@contextmanager
def _watched(look: Callable[[_Views], None]) -> Iterator[_Views]:
    """Look from a thread of its own until the end of the block."""
    views = _Views()
    with repeating(lambda: look(views), 0.02):
        yield views


def _look_at_postgres(ensemble: Ensemble) -> Callable[[_Views], None]:
    def look(views: _Views) -> None:
        found = ensemble.server.server.sql(
            "SELECT (SELECT count(*) FROM pg_stat_replication), "
            "(SELECT count(*) FROM pg_replication_slots WHERE temporary)"
        )
        views.readers, views.copies = max(views.readers, int(found[0][0])), max(views.copies, int(found[0][1]))

    return look


def _began_to_read(ensemble: Ensemble) -> int:
    """How many readers the server ever had: it writes each down."""
    log: Path = ensemble.server.server.log
    return log.read_text(errors="replace").count("START_REPLICATION")


@pytest.mark.soak
def test_a_frozen_subscriber_and_one_that_is_away_for_a_day_fill_no_disk(running: Running, say: Say) -> None:
    """PostgreSQL, ``hold``. Then their ten flows catch up, and the server has no reader but the one."""
    with running(_hold()) as ensemble:
        ensemble.tell("fill 5 100")
        ensemble.await_all()
        begin, most, longest = _end(ensemble), 0, 0
        ensemble.members["frozen-1"].signal(signal.SIGSTOP)
        for hour in range(HOURS):
            if hour == 1:
                ensemble.members["away-1"].kill()
            began = _end(ensemble)
            _write(ensemble, HOUR)
            ensemble.await_all(["live"])
            longest = max(longest, _end(ensemble) - began)
            most = max(most, _until_small(ensemble))
        written = _end(ensemble) - begin
        say(f"\n{written >> 20} MiB written, pg_wal had {most >> 20} MiB at most, budget {SLOT_BUDGET >> 20} MiB")
        # What is written in the seconds until it is recorded and synced, and the slot was moved, is there besides.
        assert most <= SLOT_BUDGET + longest + _FILES
        assert written > 2 * SLOT_BUDGET + longest + _FILES
        assert _held(ensemble) > begin + HOUR, "the server was not told that it need not keep its log"
        ensemble.publisher.kill()  # nothing is in the change buffer of the next one
        ensemble.publisher.start()
        ensemble.tell("fill 5 100")
        ensemble.await_all(["live"])
        before = _began_to_read(ensemble)
        with _watched(_look_at_postgres(ensemble)) as views:
            ensemble.members["frozen-1"].signal(signal.SIGCONT)
            ensemble.start_subscriber("away-1")
            ensemble.await_all()
        assert (views.readers, views.copies) == (1, 1), views
        assert _began_to_read(ensemble) == before
        assert ensemble.check_state() == 0
        assert not any(checker.losses for checker in ensemble.checkers.values())


def test_ten_flows_catch_up_from_a_log_that_mariadb_purged(running: Running) -> None:
    """``cache``: the server has one reader, and sends next to nothing."""
    with running(_plan("mariadb", 'relay = "cache"')) as ensemble:
        ensemble.tell("fill 5 100")
        ensemble.await_all()
        server = ensemble.server.server
        for name in _BEHIND:
            ensemble.members[f"{name}-1"].kill()
            _write(ensemble, HOUR)
            ensemble.tell("flush")
            ensemble.await_all(["live"])
        ensemble.publisher.kill()  # nothing is in the change buffer of the next one
        ensemble.publisher.start()
        ensemble.tell("fill 5 100")
        ensemble.await_all(["live"])
        server.sql("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{_binlogs(server)[-1]}'")
        assert len(_binlogs(server)) <= 2, "the server has its log still"

        def look(views: _Views) -> None:
            readers = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
            views.readers = max(views.readers, int(server.sql(readers)[0][0]))

        sent = _sent(server)
        with _watched(look) as views:
            for name in _BEHIND:
                ensemble.start_subscriber(f"{name}-1")
            ensemble.await_all()
        assert views.readers == 1, views
        assert _sent(server) - sent < HOUR // 4, "the server sent log"
        assert ensemble.check_state() == 0
        assert not any(checker.losses for checker in ensemble.checkers.values())


def _binlogs(server: Any) -> list[str]:
    return [str(row[0]) for row in server.sql("SHOW BINARY LOGS")]


def _sent(server: Any) -> int:
    """Bytes that the server sent to anybody."""
    return int(server.sql("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


def test_a_publisher_killed_while_it_records_and_holds_loses_nothing(running: Running, say: Say) -> None:
    rounds = max(2, ROUNDS // 4)
    plan = _hold(names=("live", "away"), seed=SEED)
    with running(plan) as ensemble:
        ensemble.tell("go")
        ensemble.await_all()
        ensemble.members["away-1"].kill()
        left = _end(ensemble)
        for number in range(rounds):
            chance = random.Random(f"{SEED}/{number}")
            _write(ensemble, HOUR)  # beyond the budget: it is held while it is recorded
            time.sleep(chance.uniform(0.0, 3.0))
            ensemble.publisher.kill()
            if chance.random() < 0.5:
                _write(ensemble, HOUR)
            ensemble.publisher.start()
            time.sleep(chance.uniform(0.0, 1.5))  # while it opens its relay and finds its place
            ensemble.publisher.kill()
            ensemble.publisher.start()
            ensemble.await_all(["live"])
            say(f"  round {number} seed {SEED}/{number}: held {(_held(ensemble) - left) >> 20} MiB beyond a datamarker")
        until(lambda: _held(ensemble) > left, lambda: f"nothing is held\n{ensemble.told()}")
        ensemble.tell("pause")
        ensemble.start_subscriber("away-1")
        ensemble.await_all()
        assert ensemble.check_state() == 0
        assert not any(checker.losses for checker in ensemble.checkers.values())


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["lose", "keep_slot"])
def test_a_relay_that_is_full_does_what_its_policy_says(policy: str, running: Running, say: Say) -> None:
    """``lose``: the database's disk stays safe, and the flow that is furthest behind is told the exact range.
    ``keep_slot``: nothing is lost, and the slot keeps what does not fit.
    """
    plan = _hold(names=("live", "away"))
    plan.log += f'\nrelay_budget = "64MiB"\nrelay_compression = "none"\non_relay_full = "{policy}"'
    with running(plan) as ensemble:
        ensemble.tell("fill 5 100")
        ensemble.await_all()
        ensemble.members["away-1"].kill()
        for _ in range(3):
            _write(ensemble, 40 * MIB)
            ensemble.await_all(["live"])
            if policy == "lose":
                _until_small(ensemble)
        kept = _wal_bytes(ensemble)
        say(f"\n{policy}: 120 MiB written, pg_wal has {kept >> 20} MiB")
        folder = sum(file.stat().st_size for file in (ensemble.folder / "state").rglob("relay/*") if file.is_file())
        assert folder <= 64 * MIB + 4 * _COMMIT  # it is looked at behind each write
        ensemble.start_subscriber("away-1", loss="continue")
        if policy == "keep_slot":
            assert kept > 40 * MIB
            ensemble.await_all()
            assert ensemble.check_state() == 0
            return
        ensemble.tell("fill 1 100")
        _await_behind_the_loss(ensemble)


def _await_behind_the_loss(ensemble: Ensemble) -> None:
    """Every flow of ``away`` was told one range, and received what lies before and behind it, and nothing of it."""

    def arrived() -> bool:
        entries = ensemble.entries("away-1")
        losses = {one.shard: one for one in entries if isinstance(one, Loss)}
        newest = {one.shard: one for one in ensemble.entries("live-1") if isinstance(one, Received)}
        last = {one.shard: one for one in entries if isinstance(one, Received)}
        return len(losses) == 5 and all(
            shard in last and last[shard].sequence == one.sequence for shard, one in newest.items()
        )

    ensemble.await_true(arrived, "away does not get on behind the loss")
    told = {one.shard: one for one in ensemble.entries("away-1") if isinstance(one, Loss)}
    for shard, loss in told.items():
        first, last = (int(text.partition(":")[2].replace("/", ""), 16) for text in (loss.first, loss.last))
        live, away = (
            [one for one in ensemble.entries(name) if isinstance(one, Received) and one.shard == shard]
            for name in ("live-1", "away-1")
        )
        missing = {one.sequence for one in live} - {one.sequence for one in away}
        assert missing, shard
        assert first <= min(missing), (shard, loss)
        assert max(missing) <= last, (shard, loss)
        # Killed before it acknowledged, it was told of what it had received in its first epoch too.
        inside = [one for one in away if one.epoch == loss.epoch and first < one.sequence <= last]
        assert not inside, (shard, loss, inside)
