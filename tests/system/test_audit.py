"""The audit after ``kill -9`` of publishers: exactly the duplicates that there were, and nothing lost; of a subscriber
those that are proven. What was skipped is named, what a replay delivered counts, and a callback that never ran is
found, until a replay delivers it.

One writer, one archive, one Spark session for all of it: starting these is what takes the time.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.archives import manifest_of
from tests.support.command_line import run
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.logs import Received
from tests.system.harness.programs import Command
from wormhole.admin import admin_service
from wormhole.model.errors import WormholeError
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "1"))
REPLAY = ("--app", "faulty", "--shards", "db1.orders", "--mode", "log", "-c")


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
    monkeypatch.setattr("spark_replay.spark.session.spark_session", lambda *_, **__: Kept(spark))


def duplicates_of(ensemble: Ensemble, application: str) -> int:
    """As the publisher's delivery counts say now."""
    windows = admin_service.audit(ensemble.answer(), admin_pb2.AuditRequest()).windows
    mine = [window for window in windows if window.flow.startswith(f"{application}/")]
    return sum(w.processed + w.set_aside - w.delivered - w.ahead for w in mine)


def delivery_counts(ensemble: Ensemble, application: str) -> tuple[int, int, int]:
    """Updates delivered, processed and set aside, as the publisher's delivery counts say now."""
    try:
        answers = admin_service.ask_each(Where(coordinator=str(ensemble.config)))
    except WormholeError:  # the publisher is only starting
        return 0, 0, 0
    windows = [w for one in answers if one.status for w in admin_service.audit(one, admin_pb2.AuditRequest()).windows]
    mine = [window for window in windows if window.flow.startswith(f"{application}/")]
    return sum(w.delivered for w in mine), sum(w.processed for w in mine), sum(w.set_aside for w in mine)


def audited(ensemble: Ensemble, application: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run("audit", "--app", application, "--json", "-c", str(ensemble.config), *more)
    assert out, err
    return code, json.loads(out)


def figure(told: dict[str, Any], name: str) -> int:
    return sum(window[name] for window in told["windows"])


def change(ensemble: Ensemble, flow: str, **what: Any) -> None:
    """Ask the flow's publisher, as an operator does."""
    admin_service.change(ensemble.answer(), admin_pb2.ChangeRequest(flow=flow, who="test", **what))


def first_update(store: ArchiveStore, shard: str) -> str:
    """Its id."""
    name = manifest_of(store, shard).files[0].name
    with DataFile(store.open_data(shard, name), name) as file:
        row = next(iter(file.batches())).slice(0, 1).to_pylist()[0]
    return f"{row['tx_source']}:{row['tx_number']}:{row['tx_index']}"


def is_replayed(ensemble: Ensemble, flow: str) -> bool:
    return any(one.flow == flow and one.HasField("replay") for one in ensemble.status().flows)


@pytest.mark.usefixtures("one_session")
def test_what_died_was_set_aside_was_replayed_and_never_ran(
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
        dataset='archive = { to = "archive", flush_every = "200ms" }',
        rate=40.0,
    )
    with running(plan) as ensemble:
        archiver = Command("arch", ensemble.folder, "archive", "run", "-c", str(ensemble.config))
        try:
            archiver.start()
            ensemble.tell("go")
            for _ in range(ROUNDS):
                time.sleep(chance.uniform(0.3, 1.0))
                ensemble.publisher.kill()
                ensemble.publisher.start()
                ensemble.await_all(["cache"])
            handled = all_handled(ensemble)
            delivered, processed, _ = delivery_counts(ensemble, "cache")
            assert (delivered, processed) == (len(set(handled)), len(handled)), "of a publisher's death all is known"
            assert duplicates_of(ensemble, "cache") == processed - delivered

            ensemble.tell("go")
            time.sleep(chance.uniform(0.3, 1.0))
            ensemble.members["cache-1"].kill()
            ensemble.start_subscriber("cache-1")
            ensemble.await_all(["cache"])
            handled = all_handled(ensemble)
            distinct = len(set(handled))
            store = open_store(str(ensemble.folder / "archive"), "shop", copy="main")
            target = int(ensemble.tell("sequence"))

            def archived() -> bool:
                manifests = [store.read(f"db1.{table}") for table in plan.tables]
                return all(one is not None and int(one.end.delivered) >= target for one in manifests)

            ensemble.await_true(archived, archiver.tail)
            code, told = audited(ensemble, "cache", "--parquet", str(tmp_path / "audit.parquet"))
            assert (code, told["whole"], told["findings"]) == (0, True, []), told
            assert figure(told, "archived") == figure(told, "delivered") == distinct
            duplicates = len(handled) - distinct
            proven = figure(told, "duplicates")
            assert proven <= duplicates, "of a subscriber's death those that are proven"
            assert pq.read_table(tmp_path / "audit.parquet").num_rows == len(told["windows"])

            skipped = first_update(store, "db1.users")
            change(ensemble, "faulty/db1.users", skip=admin_pb2.Skip(update_id=skipped))
            change(ensemble, "faulty/db1.orders", pause=admin_pb2.Pause())
            ensemble.add("faulty-1", "faulty", {"drop": 100})
            ensemble.await_true(lambda: delivery_counts(ensemble, "faulty")[0] > 0, "its other flows are live")
            config = str(ensemble.config)
            with ThreadPoolExecutor(1) as beside:
                replay = beside.submit(run, "replay", *REPLAY, config)
                ensemble.await_true(lambda: replay.done() or is_replayed(ensemble, "faulty/db1.orders"), "held")
                change(ensemble, "faulty/db1.orders", resume=admin_pb2.Resume())
                code, out, err = replay.result()
            assert code == 0, out + err
            ensemble.await_true(lambda: delivery_counts(ensemble, "faulty")[0] >= distinct, "counted")
            assert delivery_counts(ensemble, "faulty") == (distinct, distinct - 2, 1)
            code, told = audited(ensemble, "faulty")
            aside, unprocessed = sorted(told["findings"], key=lambda one: str(one["kind"]))
            assert (code, unprocessed["kind"], unprocessed["updates"]) == (1, "unprocessed", 1), told
            assert " updates were sent" in unprocessed["where"]
            assert (aside["kind"], aside["flow"], aside["update"]) == ("set_aside", "faulty/db1.users", skipped)
            assert figure(told, "archived") == figure(told, "delivered") == distinct
            lossy = str(unprocessed["flow"]).partition("/")[2]
            begin = str(unprocessed["where"]).removeprefix("between ").partition(" and ")[0]
            code, out, err = run(
                "replay", "--app", "faulty", "--shards", lossy, "--from", begin, "--mode", "log", "-c", config
            )
            assert code == 0, out + err
            code, told = audited(ensemble, "faulty")
            kinds = {one["kind"]: one["updates"] for one in told["findings"]}
            assert (code, kinds) == (0, {"set_aside": 1, "repaired": 1}), told
        finally:
            archiver.kill()
    say(f"audit, kill -9: {ROUNDS} rounds, {distinct} updates, {duplicates} duplicates, {proven} of them proven")


def all_handled(ensemble: Ensemble) -> list[tuple[str, int, int]]:
    """Nothing is written any more; what came to the cache, repeats included, once all of it is acknowledged: before
    that repeats may still be on their way, of a shard of which everything had come once."""

    def handled() -> list[tuple[str, int, int]]:
        return [
            (one.shard, one.sequence, one.index) for one in ensemble.entries("cache-1") if isinstance(one, Received)
        ]

    ensemble.tell("pause")
    ensemble.await_all(["cache"])
    distinct = len(set(handled()))
    ensemble.await_true(lambda: delivery_counts(ensemble, "cache")[0] >= distinct, "counted")
    return handled()
