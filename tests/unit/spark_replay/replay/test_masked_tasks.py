"""A task sends of archived updates what the application receives of live ones."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.task import Ended, push_latest, push_log
from tests.support.archives import manifest_of, marker_at, row, tx, write_archive
from tests.support.scripted_replay import ScriptedReplay, pushed, replay_publisher, takes_all
from tests.support.scripted_subscriber import scripted_subscriber
from tests.unit.spark_replay.replay.test_task import of_pass, task
from wormhole.filters import MaskKey
from wormhole.model.values import Op
from wormhole.wire.v1 import admin_pb2

SECRET = b"0123456789abcdef0123456789abcdef"
ADA, BOB = ("ada lovelace", "london"), ("bob dylan", "duluth")
PRIVATE = [text.encode() for text in (*ADA, *BOB)]


def hashed(text: str) -> str:
    return hmac.new(SECRET, text.encode(), "sha256").hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    first = (1, *ADA, 10)
    changes = [
        row(Op.INSERT, first),
        row(Op.UPDATE, (1, *BOB, 20), first),
        row(Op.DELETE, before=(1, *BOB, 20)),
    ]
    return write_archive(tmp_path / "archive", {"a": [[tx(one) for one in changes]]})


@pytest.fixture
def batches(store: ArchiveStore) -> list[pa.RecordBatch]:
    (entry,) = manifest_of(store).files
    with DataFile(store.open_data("a", entry.name), entry.name) as file:
        return list(file.batches())


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "mask.key"
    path.write_bytes(SECRET + b"\n")
    return path


def masks() -> admin_pb2.Projection:
    check = MaskKey(SECRET).check
    return admin_pb2.Projection(columns=["-credit"], mask={"name": "hash", "city": "null"}, key_check=check)


@pytest.mark.parametrize(
    ("latest", "filter_", "where"),
    [(False, "", ""), (True, "", ""), (False, "credit > 1", ""), (False, "", "city in ('london', 'duluth')")],
)
async def test_what_is_masked_live_is_masked_in_a_replay(
    store: ArchiveStore, batches: list[pa.RecordBatch], key_file: Path, latest: bool, filter_: str, where: str
) -> None:
    async with scripted_subscriber("cache", "s1") as subscriber:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address, script.projection, script.filter = subscriber.address, masks(), filter_
            given = await asyncio.to_thread(of_pass if latest else task, store, script.reach)
            given = replace(given, mask_key_file=key_file, where=where)
            work = (push_latest, given, iter(batches)) if latest else (push_log, given)
            running = asyncio.create_task(asyncio.to_thread(*work))
            found = await takes_all(subscriber)
            outcome = await running
    assert (outcome.ended, outcome.updates) == (Ended.DONE, 3)
    ada, bob = ({"id": 1, "name": hashed(one[0]), "city": None} for one in (ADA, BOB))
    assert [(update.key, update.after, update.before) for update in found] == [
        ((1,), ada, None),
        ((1,), bob, ada),
        ((1,), None, bob),
    ]
    assert hashed(ADA[0]).encode() in subscriber.wire
    assert not [text for text in PRIVATE if text in subscriber.wire]


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        (None, "publisher.mask_key_file is not set"),
        (b"short", "has 5 bytes, at least 32 are needed"),
        (b"another secret that is long enough", "holds another key than the publisher's"),
    ],
)
async def test_without_the_publishers_key_nothing_is_sent(
    store: ArchiveStore, tmp_path: Path, secret: bytes | None, problem: str
) -> None:
    path = tmp_path / "other.key" if secret is not None else None
    if path is not None and secret is not None:
        path.write_bytes(secret)
    async with pushed(marker_at(0)) as (subscriber, script):
        script.projection = masks()
        given = replace(task(store, script.reach), mask_key_file=path)
        outcome = await asyncio.to_thread(push_log, given)
    assert (outcome.ended, problem in outcome.message) == (Ended.FAILED, True), outcome
    assert outcome.hint
    assert not subscriber.wire


async def test_a_mask_on_a_key_ends_the_replay(store: ArchiveStore, key_file: Path) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.projection = admin_pb2.Projection(mask={"id": "null"})
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        await subscriber.hears("hello")
        await subscriber.accepts(await subscriber.hears("assign"))
        outcome = await running
    assert outcome.ended is Ended.FAILED
    assert "mask: id names id, a column of the key of shop.customers" in outcome.message
    assert not [text for text in PRIVATE if text in subscriber.wire]
