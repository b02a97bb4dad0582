"""Passes of the last changes, when what they rest on changes between two connections."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.task import Ended, push_latest
from tests.support.archives import batches_of, marker_at
from tests.support.replay_plans import archived
from tests.support.scripted_replay import pushed, takes_all
from tests.unit.spark_replay.replay.test_task import of_pass


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return archived(tmp_path)


@pytest.fixture
def batches(store: ArchiveStore) -> list[pa.RecordBatch]:
    return batches_of(store)


async def test_what_the_application_has_already_is_not_set_back(
    store: ArchiveStore, batches: list[pa.RecordBatch]
) -> None:
    for further, expected in ((2, ["source-a:3:0"]), (4, [])):
        async with pushed(marker_at(0)) as (subscriber, script):
            given = await asyncio.to_thread(of_pass, store, script.reach)
            running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(batches)))
            taken = await takes_all(subscriber, have=marker_at(further))
            outcome = await running
        assert [update.id for update in taken] == expected, f"it has everything up to {further}"
        assert (outcome.ended, script.marker) == (Ended.DONE, marker_at(max(3, further)))


async def test_another_filter_of_the_application_holds_from_the_next_connection_on(
    store: ArchiveStore, batches: list[pa.RecordBatch]
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.filter = "key in ('k2')"
        given = await asyncio.to_thread(of_pass, store, script.reach)
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(batches)))
        first = await takes_all(subscriber, hangs_up_after=1)
        script.filter = "key in ('k1')"
        rest = await takes_all(subscriber)
        await running
    assert [update.id for update in first] == ["source-a:2:0"]
    assert [update.id for update in rest] == ["source-a:1:0", "source-a:3:0"]


async def test_another_filter_that_asks_what_kind_of_change_it_was_ends_the_pass(
    store: ArchiveStore, batches: list[pa.RecordBatch]
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        given = await asyncio.to_thread(of_pass, store, script.reach, False)
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(batches)))
        await subscriber.hears("hello")
        script.filter = "op == 'delete'"
        subscriber.hang_up()
        outcome = await running
    assert (outcome.ended, outcome.message.startswith("the application's filter changed")) == (Ended.FAILED, True)
    assert "asks what kind of change it is" in outcome.message


async def test_rows_that_were_read_are_pushed_although_their_files_are_gone(
    store: ArchiveStore, batches: list[pa.RecordBatch], tmp_path: Path
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        given = await asyncio.to_thread(of_pass, store, script.reach)
        await asyncio.to_thread(shutil.rmtree, tmp_path / "archive" / "a")
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(batches)))
        await takes_all(subscriber)
        outcome = await running
    assert (outcome.ended, outcome.updates) == (Ended.DONE, 3)
