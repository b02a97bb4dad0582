"""Passes of the last changes, when what they rest on changes between two connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.task import Ended, push_latest
from tests.support.archives import marker_at
from tests.support.replay_plans import archived
from tests.support.scripted_replay import ScriptedReplay, replay_publisher, takes_all
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from tests.unit.spark_replay.replay.test_task import task
from wormhole.position import Datamarker


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return archived(tmp_path)


@pytest.fixture
def batches(store: ArchiveStore) -> list[pa.RecordBatch]:
    manifest = store.read("a")
    assert manifest is not None
    found: list[pa.RecordBatch] = []
    for entry in manifest.files:
        with DataFile(store.open_data("a", entry.name), entry.name) as file:
            found += file.batches()
    return found


def has(subscriber: ScriptedSubscriber, marker: Datamarker) -> None:
    """Its application keeps datamarkers itself, and says that it has everything up to this one."""
    accepts = subscriber.accepts
    subscriber.accepts = lambda assign, **more: accepts(assign, have=marker, **more)  # type: ignore[method-assign]


async def test_what_the_application_has_already_is_not_set_back(
    store: ArchiveStore, batches: list[pa.RecordBatch]
) -> None:
    for further, expected in ((2, ["source-a:3:0"]), (4, [])):
        async with scripted_subscriber("cache", "s1") as subscriber:
            has(subscriber, marker_at(further))
            with replay_publisher(ScriptedReplay(marker_at(0))) as script:
                script.address = subscriber.address
                running = asyncio.create_task(asyncio.to_thread(push_latest, task(store, script.reach), iter(batches)))
                taken = await takes_all(subscriber)
                outcome = await running
        assert [update.id for update in taken] == expected, f"it has everything up to {further}"
        assert (outcome.ended, script.marker) == (Ended.DONE, marker_at(max(3, further)))


async def test_another_filter_of_the_application_holds_from_the_next_connection_on(
    store: ArchiveStore, batches: list[pa.RecordBatch]
) -> None:
    async with scripted_subscriber("cache", "s1") as subscriber:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address, script.filter = subscriber.address, "key in ('k2')"
            running = asyncio.create_task(asyncio.to_thread(push_latest, task(store, script.reach), iter(batches)))
            first = await takes_all(subscriber, hangs_up_after=1)
            script.filter = "key in ('k1')"
            rest = await takes_all(subscriber)
            await running
    assert [update.id for update in first] == ["source-a:2:0"]
    assert [update.id for update in rest] == ["source-a:1:0", "source-a:3:0"]
