"""Jobs of a replay on a real Spark, to a subscriber that says what the test tells it to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay import keyed
from spark_replay.replay.flow import ReplayFlow
from spark_replay.replay.flow_plans import plan
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.pieces import Formats
from spark_replay.replay.publisher import Reach
from spark_replay.replay.rate import Shares
from spark_replay.replay.task import Ended, Task
from spark_replay.tables.snapshot import write_snapshot
from spark_replay.tables.start import start_rows
from subscriber_sdk import FlowHalted, Update, serve
from subscriber_sdk.transactional import Transactional, TransactionalHandler
from subscriber_sdk.transactional.sqlalchemy import SqlAlchemyStore
from tests.support.archives import gone, manifest_of, marker_at, present, put, tx, write_archive
from tests.support.eventually import PATIENCE_S, eventually, until
from tests.support.ports import free_port
from tests.support.replay_plans import Listener, flow, seen, setting, wish
from tests.support.scripted_replay import ScriptedReplay, replay_publisher, takes_all
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.errors import ReplayError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    files = [
        [tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2")), tx(put(b"k1", b"v3")), tx(gone(b"k2")), tx(put(b"k3", b"v4"))],
        [tx(put(b"k3", b"v5")), tx(put(b"k4", b"v6"))],
    ]
    return write_archive(tmp_path / "archive", {"a": files})


async def begins_with(
    spark: SparkSession, store: ArchiveStore, folder: str, marker: Datamarker, first: Datamarker
) -> None:
    """Replay a flow at ``marker`` from a snapshot up to the fifth transaction. Its datamarker is ``first`` until all of
    the snapshot's rows are there."""
    with replay_publisher(ScriptedReplay(marker)) as script:
        asked, found = wish(snapshot=folder, patience_s=60.0), seen(flow("a", marker), reach=script.reach)
        settings = await asyncio.to_thread(setting, store)
        (one,) = await asyncio.to_thread(plan, asked, settings, [found])
        assert (one.first, one.range.begin, one.range.until) == (first, marker_at(5), marker_at(7))
        jobs = Jobs(spark, await asyncio.to_thread(start_rows, spark, folder, "orders", "main"))
        one.snapshot_rows = (await asyncio.to_thread(jobs.snapshot_rows))["a"]
        run = ReplayFlow(one, asked, settings, lambda wanted: [found], jobs, Listener(), Shares(0.0, 0.0))
        await asyncio.to_thread(run.begin)
        script.marker = first  # as the publisher does when the first task opens it
        async with scripted_subscriber("cache", "s1") as subscriber:
            script.address = subscriber.address
            running = asyncio.create_task(asyncio.to_thread(run.run))
            rows = await takes_all(subscriber)
            assert script.marker == marker_at(5), (
                "the datamarker moves once all rows are there, to where the archive goes on"
            )
            rest = await takes_all(subscriber)
            report = await running
    assert [(update.key, (update.after or {}).get("value")) for update in rows] == [
        ((b"k1",), b"v3"),
        ((b"k3",), b"v4"),
    ]
    assert [update.id for update in rest] == ["source-a:6:0", "source-a:7:0"]
    assert (report.handed_over, report.updates, script.marker) == (True, 4, marker_at(7))
    assert script.begun == ([first] if first != marker else [])


async def snapshot(spark: SparkSession, store: ArchiveStore, folder: Path, stop: int, previous: str = "") -> str:
    until = Asked("there", place=marker_at(stop).order)
    written = await asyncio.to_thread(
        write_snapshot, spark, store, str(folder), until=until, previous=previous, now=datetime.now(UTC)
    )
    assert not written.problems
    return written.to


async def test_a_snapshot_comes_first_and_then_what_the_archive_has_behind_it(
    spark: SparkSession, store: ArchiveStore, tmp_path: Path
) -> None:
    folder = await snapshot(spark, store, tmp_path / "snapshot", 5)
    # The datamarker goes back to the first row until all of them are there.
    await begins_with(spark, store, folder, marker_at(6), marker_at(0))


async def test_an_application_begins_from_a_snapshot_of_a_trimmed_archive(
    spark: SparkSession, store: ArchiveStore, tmp_path: Path
) -> None:
    first = await snapshot(spark, store, tmp_path / "1", 3)
    second = await snapshot(spark, store, tmp_path / "2", 5, first)

    await asyncio.to_thread(lambda: store.delete_data("a", manifest_of(store).files[0].name))
    await asyncio.to_thread(store.change, "a", lambda now: present(now).without_first(1))
    # An application that has not begun yet.
    await begins_with(spark, store, second, marker_at(0), marker_at(0))


def task_of(store: ArchiveStore, reach: str) -> Task:
    return Task(
        flow="cache/a",
        replay="r",
        ticket="t",
        name="n1",
        publisher=Reach(reach),
        store=store,
        shard="a",
        begin=marker_at(0),
        until=marker_at(7),
        where="",
        formats=Formats(),
        rate=0.0,
        patience_s=60.0,
        tls=None,
        heartbeat_s=5.0,
        max_frame=1 << 20,
    )


def workers() -> Iterator[int]:
    """Python's workers of this process' Spark: what its daemon forked."""
    parents, daemons = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.worker" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))
            except OSError:
                continue
    for process in daemons:
        if parents[process] in daemons and parents.get(parents.get(parents[process], 0)) == os.getpid():
            yield process


async def test_a_worker_that_is_killed_is_replaced_and_goes_on_in_a_higher_epoch(
    spark: SparkSession, store: ArchiveStore
) -> None:
    jobs = Jobs(spark)
    killed: list[int] = []
    await asyncio.to_thread(jobs.warm)

    def kill(frame: push_pb2.PublisherFrame) -> None:
        if frame.WhichOneof("kind") == "batch" and not killed:
            for process in workers():
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        task = task_of(store, script.reach)
        async with scripted_subscriber("cache", "s1") as subscriber:
            script.address = subscriber.address
            running = asyncio.create_task(asyncio.to_thread(jobs.log, task))
            await takes_all(subscriber, see=kill, hangs_up_after=1)
            taken = await takes_all(subscriber)
            outcome = await running
    assert killed
    assert [update.id for update in taken] == [f"source-a:{number}:0" for number in range(1, 8)]
    assert (outcome.ended, outcome.epoch > 1, script.marker) == (Ended.DONE, True, marker_at(7))


def test_a_task_that_is_withdrawn_leaves_its_slot_and_its_worker_ends(spark: SparkSession, store: ArchiveStore) -> None:
    """Also while it dials a publisher that is gone."""
    jobs, tracker = Jobs(spark), spark.sparkContext.statusTracker()
    jobs.warm()
    former = replace(task_of(store, f"127.0.0.1:{free_port()}"), patience_s=3600.0)
    waiting = [replace(former, name=f"n{number}") for number in range(jobs.slots)]

    def running() -> int:
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(one.numActiveTasks for one in infos if one is not None)

    with ThreadPoolExecutor(len(waiting)) as pool:
        futures = [pool.submit(jobs.log, task) for task in waiting]
        until(lambda: running() == jobs.slots, "every slot is taken")
        busy = set(workers())
        for task in waiting:
            jobs.withdraw(task)
        for future in futures:
            with pytest.raises(ReplayError):
                future.result(PATIENCE_S)
    jobs.warm()
    until(lambda: not busy & set(workers()), "the workers of the tasks ended")


def files_of(store: ArchiveStore) -> tuple[FileEntry, ...]:
    return manifest_of(store).files


@pytest.mark.parametrize("part", [1 << 20, 300])
async def test_the_last_changes_come_by_place_from_one_task_or_from_many(
    spark: SparkSession, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(keyed, "PART_BYTES", part)
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        async with scripted_subscriber("cache", "s1") as subscriber:
            script.address = subscriber.address
            task, chosen = (
                task_of(store, script.reach),
                ShardFiles("a", await asyncio.to_thread(files_of, store), marker_at(0), marker_at(7)),
            )
            running = asyncio.create_task(asyncio.to_thread(Jobs(spark).latest, task, chosen, by_values=False))
            taken = await takes_all(subscriber)
            assert (await running).ended is Ended.DONE
    assert [update.id for update in taken] == [f"source-a:{number}:0" for number in (3, 4, 6, 7)]
    assert script.marker == marker_at(7)


class States(TransactionalHandler[Any]):
    """Keeps the value of each key; ``halted``: codes of what halted its flow."""

    def __init__(self) -> None:
        self.halted: list[str] = []

    def on_update(self, update: Update, connection: Any) -> None:
        key, value = update.key[0], None if update.after is None else update.after["value"]
        statement = "INSERT INTO states VALUES (:key, :value)" if value else "DELETE FROM states WHERE key = :key"
        connection.execute(text(statement), {"key": key, "value": value})

    def on_error(self, error: FlowHalted) -> None:
        assert isinstance(error.cause, WormholeError)
        self.halted.append(error.cause.code)


@pytest.mark.parametrize("state_only", [True, False])
async def test_the_last_changes_reach_a_handler_whose_effects_are_states(
    spark: SparkSession, store: ArchiveStore, tmp_path: Path, state_only: bool
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/target.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE states (key BLOB PRIMARY KEY, value BLOB)"))
    handler = States()
    handler.state_only = state_only
    jobs, address = Jobs(spark), f"127.0.0.1:{free_port()}"
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        script.address = address
        task = task_of(store, script.reach)
        chosen = ShardFiles("a", await asyncio.to_thread(files_of, store), marker_at(0), marker_at(7))
        async with serve(Transactional(handler, SqlAlchemyStore(engine)), application="cache", id="s1", listen=address):
            outcome = await asyncio.to_thread(jobs.latest, task, chosen, by_values=False)
            if not state_only:
                await eventually(lambda: handler.halted, "the flow is halted")
            assert outcome.ended is (Ended.DONE if state_only else Ended.FAILED), outcome.message
    with engine.begin() as connection:
        found = [tuple(row) for row in connection.execute(text("SELECT key, value FROM states ORDER BY key"))]
    engine.dispose()
    assert found == ([(b"k1", b"v3"), (b"k3", b"v5"), (b"k4", b"v6")] if state_only else [])
    assert script.marker == marker_at(7 if state_only else 0)
    assert set(handler.halted) == (set() if state_only else {"latest-refused"})


async def test_a_range_without_rows_is_acknowledged_to_its_end(spark: SparkSession, store: ArchiveStore) -> None:
    with replay_publisher(ScriptedReplay(marker_at(7))) as script:
        async with scripted_subscriber("cache", "s1") as subscriber:
            script.address = subscriber.address
            task, chosen = replace(task_of(store, script.reach), begin=marker_at(7)), ShardFiles("a", ())
            running = asyncio.create_task(asyncio.to_thread(Jobs(spark).latest, task, chosen, by_values=False))
            assert not await takes_all(subscriber)
            assert (await running).ended is Ended.DONE
    assert script.marker == marker_at(7)
