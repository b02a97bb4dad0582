"""The audit after ``kill -9`` of publishers: exactly the duplicates that there were, and nothing lost. And a callback that never ran is found.

One writer, one archive, one Spark session for all of it: starting these is what takes the time.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark_replay.archive.store import open_store
from tests.support.command_line import run
from tests.system.harness.ensemble import WORMHOLECTL, Application, Ensemble, Plan
from tests.system.harness.logs import Received
from tests.system.harness.processes import Process
from wormhole.cli import admin_client
from wormhole.cli.discovery import Where
from wormhole.errors import WormholeError
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "3"))
SEED = int(os.environ.get("WORMHOLE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PATIENCE_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Kept:
    """The tests' session in place of the command's own: it is not the command's to end."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_replay.spark.session.spark_session", lambda *_: Kept(spark))


def books(ensemble: Ensemble, application: str) -> tuple[int, int, int]:
    """Updates delivered, processed and set aside, as the publisher's books say now."""
    try:
        answers = admin_client.ask_each(Where(coordinator=str(ensemble.config)))
    except WormholeError:  # the publisher is only starting
        return 0, 0, 0
    windows = [w for one in answers if one.status for w in admin_client.audit(one, admin_pb2.AuditRequest()).windows]
    mine = [window for window in windows if window.flow.startswith(f"{application}/")]
    return sum(w.delivered for w in mine), sum(w.processed for w in mine), sum(w.set_aside for w in mine)


def audited(ensemble: Ensemble, application: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run("audit", "--app", application, "--json", "-c", str(ensemble.config), *more)
    assert out, err
    return code, json.loads(out)


def figure(told: dict[str, Any], name: str) -> int:
    return sum(window[name] for window in told["windows"])


@pytest.mark.usefixtures("one_session")
def test_kill_nine_rounds_and_a_callback_that_never_ran(
    running: Callable[[Plan], AbstractContextManager[Ensemble]], say: Callable[[str], None], tmp_path: Path
) -> None:
    say(f"\naudit, kill -9: seed {SEED}")
    chance = random.Random(SEED)
    plan = Plan(
        {
            "cache": Application({"cache-1": {"options": {"credit": 64 << 10}, "pause": 0.001}}),
            "faulty": Application({"faulty-1": None}),
            "archive": Application({"arch": None}),
        },
        zookeeper=False,
        dataset='archive = { to = "archive", flush_every = "1s" }',
        rate=40.0,
    )
    with running(plan) as ensemble:
        archiver = Process("arch", ["-c", WORMHOLECTL, "archive", "run", "-c", str(ensemble.config)], ensemble.folder)
        try:
            archiver.start()
            ensemble.tell("go")
            for _ in range(ROUNDS):
                time.sleep(chance.uniform(0.3, 1.5))
                ensemble.publisher.kill()
                ensemble.publisher.start()
                ensemble.await_all(PATIENCE_S, ["cache"])
            ensemble.tell("pause")
            ensemble.await_all(PATIENCE_S, ["cache"])
            handled = [
                (one.shard, one.sequence, one.index) for one in ensemble.entries("cache-1") if isinstance(one, Received)
            ]
            distinct = len(set(handled))
            ensemble.await_true(lambda: books(ensemble, "cache")[0] >= distinct, PATIENCE_S, "booked")
            store = open_store(str(ensemble.folder / "archive"), "shop", copy="main")
            target = int(ensemble.tell("sequence"))

            def archived() -> bool:
                manifests = [store.read(f"db1.{table}") for table in plan.tables]
                return all(one is not None and int(one.end.delivered) >= target for one in manifests)

            ensemble.await_true(archived, PATIENCE_S, archiver.tail)

            code, told = audited(ensemble, "cache", "--parquet", str(tmp_path / "audit.parquet"))
            assert (code, told["whole"], told["findings"]) == (0, True, []), told
            assert figure(told, "archived") == figure(told, "delivered") == distinct
            assert figure(told, "duplicates") == len(handled) - distinct
            assert pq.read_table(tmp_path / "audit.parquet").num_rows == len(told["windows"])

            ensemble.add("faulty-1", "faulty", {"drop": 100})
            ensemble.await_true(lambda: books(ensemble, "faulty")[0] >= distinct, PATIENCE_S, "booked")
            assert books(ensemble, "faulty") == (distinct, distinct - 1, 0)
            code, told = audited(ensemble, "faulty")
            (found,) = told["findings"]
            assert (code, found["kind"], found["updates"]) == (1, "unprocessed", 1), told
            assert " updates were sent" in found["where"]
        finally:
            archiver.kill()
    say(f"audit, kill -9: {ROUNDS} rounds, {distinct} updates, {len(handled) - distinct} duplicates")
