"""A task's work: its shard, its passes, and passes of the last changes whose grounds change."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_replay.replay.task as task_module
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay.pieces import Formats
from spark_replay.replay.publisher import Reach
from spark_replay.replay.task import Ended, Task, TaskOutcome, push_latest, push_log
from subscriber_sdk import EpochRefused, NoticeKind, ShardNotice, Subscriber, Update, serve
from tests.support.archives import batches_of, manifest_of, marker_at, put, tx, write_archive
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.replay_plans import archived
from tests.support.scripted_replay import Refused, ScriptedReplay, pushed, replay_publisher, takes_all
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.config import TlsFiles
from wormhole.host.trust import Trust
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.wire.v1 import admin_pb2

# --- task ---


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return write_archive(
        tmp_path / "archive", {"a": [[tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2"))], [tx(put(b"k3", b"v3"))]]}
    )


def task(store: ArchiveStore, reach: str, *, until: int = 3, patience_s: float = 30.0) -> Task:
    return Task(
        flow="cache/a",
        replay="r",
        ticket="t",
        name="n1",
        publisher=Reach(reach),
        store=store,
        shard="a",
        begin=marker_at(0),
        until=marker_at(until),
        where="",
        formats=Formats(),
        rate=0.0,
        patience_s=patience_s,
        tls=None,
        heartbeat_s=5.0,
        max_frame=1 << 20,
    )


def of_pass(store: ArchiveStore, reach: str, by_values: bool | None = None) -> Task:
    """As :func:`task`, for rows of the archive that come one per key."""
    schemas = schemas_of(store, [ShardFiles("a", manifest_of(store).files)])
    return replace(task(store, reach), schemas=schemas, by_values=by_values)


async def test_a_subscriber_that_dies_is_dialled_again_where_it_was_acknowledged(store: ArchiveStore) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        first = await takes_all(subscriber, hangs_up_after=1)
        rest = await takes_all(subscriber)
        outcome = await running
    assert first
    assert [update.id for update in rest] == ["source-a:1:0", "source-a:2:0", "source-a:3:0"], (
        "nothing was acknowledged before"
    )
    assert (outcome.ended, outcome.epoch, outcome.marker, outcome.updates) == (Ended.DONE, 2, marker_at(3), 3)
    assert script.marker == marker_at(3)


async def test_what_is_stored_counts_although_no_update_was_wanted(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "_FRUITLESS", 1)
    async with pushed(marker_at(0)) as (subscriber, script):
        script.filter = "key == 'none'"
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        await subscriber.hears("hello")
        subscriber.hang_up()
        await subscriber.hears("hello")
        await subscriber.accepts(await subscriber.hears("assign"))
        await subscriber.acks(await subscriber.hears_later("datamarker"))
        await subscriber.hears_later("revoke")  # it was stored
        subscriber.hang_up()
        assert await takes_all(subscriber) == []
        outcome = await running
    assert (outcome.ended, outcome.updates, outcome.marker) == (Ended.DONE, 0, marker_at(3))


async def test_an_attempt_that_another_one_replaced_leaves_it_the_flow(store: ArchiveStore) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.refuses["advance"] = [Refused(grpc.StatusCode.ABORTED, "a newer epoch is there")]
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        taking = asyncio.create_task(takes_all(subscriber))
        await eventually(lambda: "advance" in script.asked, "it stores")
        script.epoch += 1
        script.opener = "somebody else"
        outcome = await running
        taking.cancel()
    assert outcome.ended is Ended.SUPERSEDED
    assert script.asked.count("open") == 1


async def test_an_attempt_of_its_own_whose_answer_was_lost_is_not_another_s(store: ArchiveStore) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        await subscriber.hears("hello")
        script.loses.add("open")
        subscriber.hang_up()
        await takes_all(subscriber)
        outcome = await running
    assert (outcome.ended, outcome.epoch) == (Ended.DONE, 3)


async def test_a_paused_flow_gives_its_slot_back(store: ArchiveStore) -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        script.paused, script.causes = "maria", [Problem("paused by maria")]
        outcome = await asyncio.to_thread(push_log, task(store, script.reach))
        assert (outcome.ended, script.asked) == (Ended.PAUSED, ["open"])


async def test_what_a_flow_waits_for_in_vain_is_reported_with_what_to_do(store: ArchiveStore) -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        for cause, hint in ((Problem("3 are parked", "mend it"), "mend it"), (Problem("no s1"), "start a subscriber")):
            script.causes = [cause]
            outcome = await asyncio.to_thread(push_log, task(store, script.reach, patience_s=0.0))
            assert outcome.ended is Ended.UNREACHABLE
            assert outcome.message == f"no subscriber takes it for 0 s: {cause.text}"
            assert outcome.hint.startswith(hint)


async def test_what_does_not_pass_comes_back_as_an_outcome(store: ArchiveStore) -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        script.address = "127.0.0.1:1"
        for code, ended in (
            (grpc.StatusCode.UNAUTHENTICATED, Ended.TICKET_LOST),
            (grpc.StatusCode.FAILED_PRECONDITION, Ended.FAILED),
        ):
            script.refuses["open"] = [Refused(code, "no", "do that")]
            outcome = await asyncio.to_thread(push_log, task(store, script.reach))
            assert (outcome.ended, outcome.message, outcome.hint) == (ended, "no", "do that")
        nobody = await asyncio.to_thread(push_log, task(store, script.reach, patience_s=0.0))
        assert nobody.ended is Ended.UNREACHABLE
        assert "cannot be reached" in nobody.message


async def outcome_of(store: ArchiveStore, **more: Any) -> TaskOutcome:
    """What a task comes to whose subscriber takes everything."""
    async with pushed(marker_at(0)) as (subscriber, script):
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach, **more)))
        taking = asyncio.create_task(takes_all(subscriber))
        outcome = await running
        taking.cancel()
        return outcome


async def test_a_range_that_is_not_held_ends_it(store: ArchiveStore) -> None:
    outcome = await outcome_of(store, until=9)
    assert (outcome.ended, "is not held" in outcome.message) == (Ended.FAILED, True)
    assert outcome.hint.startswith("put the newer manifests back")


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flipped(path: Path) -> None:
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == "update")
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 0x40
    path.write_bytes(data)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"place": [b"x"]}), path)


def another(path: Path) -> None:
    shutil.copy(min(path.parent.iterdir()), path)


@pytest.mark.parametrize(
    ("spoils", "says"),
    [
        (torn, "it has 100 bytes, the manifest records"),
        (flipped, "checksum differs from the one that was kept"),
        (foreign, "it is damaged, or another file"),
        (another, "it is damaged, or another file"),
        (Path.unlink, "is not there, and the newest manifest names it"),
    ],
)
async def test_a_file_that_is_not_what_the_manifest_says_ends_it_with_its_name_and_range(
    store: ArchiveStore, tmp_path: Path, spoils: Callable[[Path], None], says: str
) -> None:
    manifest = await asyncio.to_thread(manifest_of, store)
    path = tmp_path / "archive" / "a" / "data" / manifest.files[-1].name
    spoils(path)
    outcome = await outcome_of(store)
    assert (outcome.ended, outcome.marker) == (Ended.FAILED, None)
    assert outcome.message.startswith(str(path))
    assert says in outcome.message
    assert outcome.message.endswith("(1/1/200 to 1/1/300)")
    assert "`wormholectl archive verify`" in outcome.hint


async def test_what_somebody_put_into_the_folder_is_nobody_s(store: ArchiveStore, tmp_path: Path) -> None:
    data = tmp_path / "archive" / "a" / "data"
    await asyncio.to_thread(foreign, data / "0.parquet")
    await asyncio.to_thread(another, data / "z.parquet")
    outcome = await outcome_of(store)
    assert (outcome.ended, outcome.updates) == (Ended.DONE, 3)


@pytest.fixture
def batches(store: ArchiveStore) -> list[pa.RecordBatch]:
    return batches_of(store)


async def test_a_pass_goes_on_behind_what_was_stored_of_it(store: ArchiveStore, batches: list[pa.RecordBatch]) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.progress = batches[0]["place"][1].as_py()
        given = await asyncio.to_thread(of_pass, store, script.reach)
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(batches)))
        taken = await takes_all(subscriber)
        outcome = await running
    assert [update.id for update in taken] == ["source-a:3:0"]
    assert (outcome.ended, script.marker) == (Ended.DONE, marker_at(3)), (
        "only the end of the range moves the datamarker"
    )


class Keeper(Subscriber):
    """Keeps its own datamarker, which is at ``kept``."""

    def __init__(self, kept: int) -> None:
        self.kept: Datamarker | None = marker_at(kept)
        self.ids: list[str] = []
        self.rewound = False

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
        if notice.kind is not NoticeKind.ASSIGNED:
            return None
        self.rewound = notice.rewound
        return self.kept

    async def on_update(self, update: Update) -> None:
        self.ids.append(update.id)

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.kept = marker


@pytest.mark.parametrize(("rewound", "came"), [(True, [1, 2, 3]), (False, [])])
async def test_an_application_that_keeps_its_own_datamarker_gets_what_it_was_set_back_to(
    store: ArchiveStore, rewound: bool, came: list[int]
) -> None:
    keeper = Keeper(5)
    listen = f"127.0.0.1:{free_port()}"
    async with serve(keeper, application="cache", id="s1", listen=listen) as running:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address, script.rewound = running.address, rewound
            outcome = await asyncio.to_thread(push_log, task(store, script.reach))
    assert keeper.ids == [f"source-a:{number}:0" for number in came]
    assert (outcome.ended, script.marker.order) == (Ended.DONE, marker_at(3 if rewound else 5).order)
    assert (keeper.rewound, keeper.kept) == (rewound, script.marker)


@pytest.mark.parametrize("by_values", [None, False, True])
async def test_an_application_is_notified_that_only_last_changes_come(
    store: ArchiveStore, batches: list[pa.RecordBatch], by_values: bool | None
) -> None:
    begun: list[bool] = []

    class Noting(Keeper):
        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            if notice.kind is NoticeKind.REPLAY_BEGIN:
                begun.append(notice.latest)
            return None

    listen = f"127.0.0.1:{free_port()}"
    async with serve(Noting(0), application="cache", id="s1", listen=listen) as running:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address = running.address
            given = await asyncio.to_thread(of_pass, store, script.reach, by_values)
            await asyncio.to_thread(push_latest, given, iter(batches))
    assert begun == [by_values is not None], "rows of a snapshot replace"


async def test_a_subscriber_that_holds_a_later_epoch_gets_the_flow_above_it(store: ArchiveStore) -> None:
    """The publisher's marker store was restored. The application of the test stores epochs itself."""

    class Fenced(Keeper):
        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            if notice.kind is NoticeKind.ASSIGNED and notice.epoch <= 400:
                raise EpochRefused("of the table", held_epoch=400)
            return await super().on_shard_notice(notice)

    fenced, listen = Fenced(0), f"127.0.0.1:{free_port()}"
    async with serve(fenced, application="cache", id="s1", listen=listen) as running:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address = running.address
            outcome = await asyncio.to_thread(push_log, task(store, script.reach))
    assert (outcome.ended, outcome.epoch) == (Ended.DONE, 401)
    assert fenced.ids == ["source-a:1:0", "source-a:2:0", "source-a:3:0"]


@pytest.mark.parametrize(("have", "begins"), [(marker_at(5), 1), (marker_at(2), 3)])
async def test_a_subscriber_of_an_earlier_release_gets_what_it_was_set_back_to(
    store: ArchiveStore, have: Datamarker, begins: int
) -> None:
    async with pushed(marker_at(0 if begins == 1 else 2)) as (subscriber, script):
        script.rewound = True
        running = asyncio.create_task(asyncio.to_thread(push_log, task(store, script.reach)))
        taken = await takes_all(subscriber, have=have)
        outcome = await running
    assert [update.id for update in taken] == [f"source-a:{number}:0" for number in range(begins, 4)]
    assert (outcome.ended, outcome.marker) == (Ended.DONE, marker_at(3))


async def test_with_mutual_tls(store: ArchiveStore, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "tls"), Authority(tmp_path / "other", "stranger")
    mine, strange = authority.issue("replay"), stranger.issue("replay")
    theirs = (await asyncio.to_thread(Trust, authority.issue("s1"))).server_credentials()
    publisher = (await asyncio.to_thread(Trust, authority.issue("publisher"))).server_credentials()
    async with scripted_subscriber("cache", "s1", credentials=theirs) as subscriber:
        with replay_publisher(ScriptedReplay(marker_at(0)), publisher) as script:
            script.address = subscriber.address

            def dialled(tls: TlsFiles, **more: Any) -> Task:
                reach = Reach(script.reach, tls, "publisher")
                return replace(task(store, script.reach, **more), tls=tls, publisher=reach)

            running = asyncio.create_task(asyncio.to_thread(push_log, dialled(mine)))
            taken = await takes_all(subscriber)
            assert (await running).ended is Ended.DONE
            assert len(taken) == 3

            refused = await asyncio.to_thread(push_log, dialled(strange, patience_s=0.0))
            assert refused.ended is Ended.UNREACHABLE
            plain = await asyncio.to_thread(push_log, task(store, script.reach, patience_s=0.0))
            assert plain.ended is Ended.UNREACHABLE
            script.subscriber = "s2"  # whose certificate says s1
            other = await asyncio.to_thread(push_log, dialled(mine, patience_s=0.0))
            assert (other.ended, "has the names s1" in other.message) == (Ended.UNREACHABLE, True)
            mine.key.unlink()
            gone = await asyncio.to_thread(push_log, dialled(mine))
            assert (gone.ended, str(mine.key) in gone.message) == (Ended.FAILED, True), (
                "told, and not tried again by Spark"
            )


async def test_a_task_of_a_limited_replay_pushes_once_it_is_told_its_share(store: ArchiveStore) -> None:
    async with scripted_subscriber("cache", "s1") as subscriber:
        with replay_publisher(ScriptedReplay(marker_at(0))) as script:
            script.address, came = subscriber.address, list[str]()

            def told(_: admin_pb2.ReplayRequest) -> None:
                if script.asked.count("advance") == 1:
                    came.append("granted")
                    script.rate = 1e9

            script.before["advance"] = told
            limited = replace(task(store, script.reach), rate=1e9)
            running = asyncio.create_task(asyncio.to_thread(push_log, limited))
            await takes_all(subscriber, see=lambda frame: came.append(str(frame.WhichOneof("kind"))))
            assert came.index("granted") < came.index("batch")
            assert (await running).ended is Ended.DONE


async def test_a_publisher_of_an_earlier_release_leaves_a_task_its_fixed_part(store: ArchiveStore) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.tells = False
        limited = replace(task(store, script.reach), rate=1e9)
        running = asyncio.create_task(asyncio.to_thread(push_log, limited))
        await takes_all(subscriber)
        assert (await running).ended is Ended.DONE


# --- task latest: passes of the last changes, when what they rest on changes between two connections ---


@pytest.fixture
def changed(tmp_path: Path) -> ArchiveStore:
    return archived(tmp_path)


@pytest.fixture
def changed_batches(changed: ArchiveStore) -> list[pa.RecordBatch]:
    return batches_of(changed)


async def test_what_the_application_has_already_is_not_set_back(
    changed: ArchiveStore, changed_batches: list[pa.RecordBatch]
) -> None:
    for further, expected in ((2, ["source-a:3:0"]), (4, [])):
        async with pushed(marker_at(0)) as (subscriber, script):
            given = await asyncio.to_thread(of_pass, changed, script.reach)
            running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(changed_batches)))
            taken = await takes_all(subscriber, have=marker_at(further))
            outcome = await running
        assert [update.id for update in taken] == expected, f"it has everything up to {further}"
        assert (outcome.ended, script.marker) == (Ended.DONE, marker_at(max(3, further)))


async def test_another_filter_of_the_application_holds_from_the_next_connection_on(
    changed: ArchiveStore, changed_batches: list[pa.RecordBatch]
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        script.filter = "key in ('k2')"
        given = await asyncio.to_thread(of_pass, changed, script.reach)
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(changed_batches)))
        first = await takes_all(subscriber, hangs_up_after=1)
        script.filter = "key in ('k1')"
        rest = await takes_all(subscriber)
        await running
    assert [update.id for update in first] == ["source-a:2:0"]
    assert [update.id for update in rest] == ["source-a:1:0", "source-a:3:0"]


async def test_another_filter_that_asks_what_kind_of_change_it_was_ends_the_pass(
    changed: ArchiveStore, changed_batches: list[pa.RecordBatch]
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        given = await asyncio.to_thread(of_pass, changed, script.reach, False)
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(changed_batches)))
        await subscriber.hears("hello")
        script.filter = "op == 'delete'"
        subscriber.hang_up()
        outcome = await running
    assert (outcome.ended, outcome.message.startswith("the application's filter changed")) == (Ended.FAILED, True)
    assert "asks what kind of change it is" in outcome.message


async def test_rows_that_were_read_are_pushed_although_their_files_are_gone(
    changed: ArchiveStore, changed_batches: list[pa.RecordBatch], tmp_path: Path
) -> None:
    async with pushed(marker_at(0)) as (subscriber, script):
        given = await asyncio.to_thread(of_pass, changed, script.reach)
        await asyncio.to_thread(shutil.rmtree, tmp_path / "archive" / "a")
        running = asyncio.create_task(asyncio.to_thread(push_latest, given, iter(changed_batches)))
        await takes_all(subscriber)
        outcome = await running
    assert (outcome.ended, outcome.updates) == (Ended.DONE, 3)
