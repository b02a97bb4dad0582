"""Merging small files: what counts stays the same whatever happens on the way; and merging beside the archiver."""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from spark_replay.archive import compactor
from spark_replay.archive.compact import Group, Merged, compact, groups, merge, planned
from spark_replay.archive.compactor import IDLE_S, LEAST_FILES, SOON_S, Compactor, worthwhile
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from spark_replay.archive.reader import DataFile
from spark_replay.archive.run import _compact, _held, _publishers
from spark_replay.archive.store import ArchiveStore, NewFile
from spark_replay.archive.verify import verify
from spark_replay.replay.delivery import SentPiece
from spark_replay.replay.pieces import Selector, log_pieces
from tests.support.archives import (
    CUSTOMERS,
    Change,
    Tx,
    copy_of,
    gone,
    manifest_of,
    marker_at,
    present,
    pushed_ids,
    put,
    row,
    tx,
    write_archive,
)
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, eventually
from wormhole.config import Config
from wormhole.formats import ValueFormats
from wormhole.host.where import Where
from wormhole.model.errors import ArchiveConflict, ArchiveError, ArchiveUnavailable, StreamBroken
from wormhole.model.position import Datamarker
from wormhole.model.values import Op
from wormhole.wire.v1 import admin_pb2

# --- compact ---


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def files() -> list[list[Tx]]:
    """Two tables, a delete, a key change, a partial row, what was too large, a transaction in pieces; the last file
    is left alone."""
    large = Change(Op.UPSERT, (b"k4",), too_large=True)
    moved = row(Op.UPDATE, (2, "Ann", "Rome", 1), (1, "Ann", "Rome", 1))
    return [
        [tx(put(b"k1", b"1"), put(b"k2", b"2")), tx(put(b"k1", b"3"), at_us=0)],
        [tx(gone(b"k2"), marked=False), tx(row(Op.INSERT, (1, "Ann", "Rome", 1)), moved)],
        [tx(*(put(b"n%d" % i, b"x") for i in range(7)), pieces=3), tx(large)],
        [tx(put(b"k9", b"9"))],
    ]


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return write_archive(tmp_path / "archive", {"a": files()})


def content(store: ArchiveStore, shard: str = "a") -> tuple[list[dict[str, Any]], list[Datamarker]]:
    """Every row, and every datamarker, in order."""
    rows: list[dict[str, Any]] = []
    markers: list[Datamarker] = []
    for entry in manifest_of(store, shard).files:
        with DataFile(store.open_data(shard, entry.name), entry.name) as file:
            rows += pa.Table.from_batches(file.batches(), None).to_pylist() if file.rows else []
            markers += file.footer.markers
            assert {one["schema_id"] % (1 << 64) for one in rows} >= file.footer.schemas.keys()
            if entry.end != file.footer.end:
                markers.append(entry.end)
    return rows, markers


def whole(store: ArchiveStore) -> bool:
    return not verify(store, deep=True).problems


def only_group(store: ArchiveStore, shard: str = "a") -> Group:
    (found,) = planned(store, [shard])
    return found


def entry(number: int, size: int, begin: int | None = None) -> FileEntry:
    first = marker_at(number - 1 if begin is None else begin)
    return FileEntry(f"{number}", 1, size, first, marker_at(number), 0, 0, {"upsert": 1}, {"t": 1})


def names(target: int, *entries: FileEntry) -> list[str]:
    manifest = Manifest("orders", "a", 1, 1, entries[0].begin, entries[-1].end, True, entries)
    return ["".join(one.name for one in group) for group in groups(manifest, target)]


@pytest.mark.parametrize(
    ("target", "entries", "merged"),
    [
        (100, [entry(at, 30) for at in range(1, 9)], ["123", "456"]),
        (1000, [entry(at, 30) for at in range(1, 9)], ["1234567"]),
        (100, [entry(at, size) for at, size in enumerate((30, 30, 50, 10, 49, 1), 1)], ["12", "45"]),
        (100, [entry(1, 10)], []),
        (100, [entry(1, 10), entry(2, 10)], []),  # the newest one stays as it is
        (100, [entry(at, size) for at, size in enumerate((10, 60, 10, 10), 1)], []),
        # No file spans a range that was lost.
        (100, [entry(1, 10), entry(2, 10), entry(4, 10, begin=3), entry(5, 10), entry(6, 10)], ["12", "45"]),
    ],
)
def test_small_files_that_adjoin_become_one_up_to_the_target(
    target: int, entries: list[FileEntry], merged: list[str]
) -> None:
    assert names(target, *entries) == merged


def test_a_merged_file_holds_every_row_datamarker_and_schema(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": files()}, row_group=1)
    # The log went on without anything for the shard: a datamarker that no footer has.
    last = marker_at(8)
    store.change("a", lambda present: present.extended(last, 1) if present else pytest.fail("no manifest"))
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"later", b"1"))]]})
    before, old = content(store), manifest_of(store)
    found = merge(store, only_group(store))
    merged, newest = manifest_of(store).files
    assert (found.state, found.files, found.before, found.after) == (
        "merged",
        4,
        sum(one.bytes for one in old.files[:4]),
        merged.bytes,
    )
    assert content(store) == before
    assert last in before[1]
    assert newest == old.files[-1]
    assert (merged.begin, merged.end, merged.rows, merged.merged) == (old.begin, last, 15, 4)
    assert (merged.key_changes, merged.partial, merged.too_large) == (1, 1, 1)
    assert len(merged.schemas) == 2
    assert CUSTOMERS.table in merged.tables
    assert whole(store)
    # Readers may hold the files that are named no more: they are there until retention takes them.
    kept = {one.name for one in store.data_files("a")}
    assert {one.name for one in old.files} < kept
    assert planned(store) == []


def test_where_a_log_went_on_without_updates_is_in_a_merged_file(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": files()[:1]})
    store.change("a", lambda now: present(now).extended(marker_at(5), 1))
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"x", b"1"))], [tx(put(b"y", b"1"))]]})
    before = content(store)
    assert marker_at(5) in before[1]
    assert merge(store, only_group(store)).state == "merged"
    assert content(store) == before


def test_row_groups_become_few(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": files()}, row_group=1)
    merge(store, only_group(store))
    merged = manifest_of(store).files[0]
    with store.open_data("a", merged.name) as source:
        assert pa.parquet.ParquetFile(source).num_row_groups == 1


def test_merged_files_are_merged_again(store: ArchiveStore) -> None:
    before = content(store)
    merge(store, only_group(store))
    write_archive(store.to, {"a": [[tx(put(b"m1", b"1"))], [tx(put(b"m2", b"2"))]]})
    merge(store, only_group(store))
    first = manifest_of(store).files[0]
    assert first.merged == 5
    assert content(store)[0][: len(before[0])] == before[0]
    assert whole(store)


class Interfered(ArchiveStore):
    """Somebody else commits while the file is being written."""

    def __init__(self, store: ArchiveStore, then: Any) -> None:
        super().__init__(store.storage, store.to, store.about)
        self._then = then

    def create_data(self, shard: str, name: str) -> Any:
        self._then()
        return super().create_data(shard, name)


def test_an_archiver_goes_on_meanwhile(store: ArchiveStore) -> None:
    group = only_group(store)
    meddled = Interfered(store, lambda: write_archive(store.to, {"a": [[tx(put(b"new", b"1"))]]}))
    assert merge(meddled, group).state == "merged"
    assert len(manifest_of(store).files) == 3
    assert content(store)[0][-1]["key"].endswith(b"new")
    assert whole(store)


@pytest.mark.parametrize("other", ["retention", "another compaction"])
def test_who_comes_too_late_leaves_nothing(store: ArchiveStore, other: str) -> None:
    group = only_group(store)

    def first() -> None:
        if other == "retention":
            store.change("a", lambda present: present.without_first(1) if present else pytest.fail("no manifest"))
        else:
            merge(store, group)

    assert merge(Interfered(store, first), group).state == "overtaken"
    names = {one.name for one in manifest_of(store).files} | {one.name for one in group.files}
    assert {one.name for one in store.data_files("a")} == names
    # Also before it wrote anything, as when Spark tries a task again that had committed.
    assert merge(store, group) == Merged("a", "overtaken", 3, group.bytes)
    assert whole(store)


def test_a_file_that_is_not_what_its_entry_says_is_merged_into_nothing(store: ArchiveStore) -> None:
    group = only_group(store)
    lies = replace(group, files=(replace(group.files[0], hash=group.files[0].hash ^ 1), *group.files[1:]))
    before, manifest = content(store), manifest_of(store)
    with pytest.raises(ArchiveError, match=r" hash differ \(shard a\) \[archive-damaged\]") as caught:
        merge(store, lies)
    assert "--deep" in str(caught.value.hint)
    assert (content(store), manifest_of(store)) == (before, manifest)
    assert len(store.data_files("a")) == 4


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    noise = random.Random(7).randbytes
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", noise(40_000)))] for _ in range(4)]})
    before = content(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ArchiveUnavailable, match=r"cannot write .*/merged-.*: .*File too large"):
            merge(store, only_group(store))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(store.data_files("a")) == 4
    assert content(store) == before
    assert merge(store, only_group(store)).state == "merged"
    assert content(store) == before


_KILLED = """
import os, signal, sys
from spark_replay.archive import compact
from spark_replay.archive.store import ArchiveStore, NewFile, open_store

class_, name, before = {"written": (NewFile, "close", True), "closed": (ArchiveStore, "commit", True), "committed": (ArchiveStore, "commit", False)}[sys.argv[2]]
plain = getattr(class_, name)

def dies(*arguments):
    if not before:
        plain(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(class_, name, dies)
store = open_store(sys.argv[1], "orders")
compact.merge(store, *compact.planned(store))
"""  # noqa: E501


@pytest.mark.parametrize("at", ["written", "closed", "committed"])
def test_killed_on_the_way_nothing_is_lost_nor_doubled(store: ArchiveStore, at: str) -> None:
    before = content(store)
    done = subprocess.run([sys.executable, "-c", _KILLED, store.to, at], timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGKILL
    assert content(store) == before
    assert len(manifest_of(store).files) == (2 if at == "committed" else 4)
    assert whole(store)
    # The next run does what is left to do.
    for group in planned(store):
        assert merge(store, group).state == "merged"
    assert len(manifest_of(store).files) == 2
    assert content(store) == before


def test_a_manifest_says_what_was_lost_as_before(store: ArchiveStore) -> None:
    loss = KnownLoss(marker_at(20), "the log did not reach back")
    store.change("a", lambda present: present.gap_accepted(loss, 1) if present else pytest.fail("no manifest"))
    write_archive(store.to, {"a": [[tx(put(b"x", b"1"))], [tx(put(b"y", b"1"))], [tx(put(b"z", b"1"))]]})
    before = content(store)
    sizes = [len(group.files) for group in planned(store)]
    assert sorted(sizes) == [2, 4]
    for group in planned(store):
        merge(store, group)
    assert (content(store), manifest_of(store).losses) == (before, (loss,))
    assert whole(store)


def test_spark_merges_every_shard_and_one_that_is_damaged_stops_no_other(spark: SparkSession, tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {shard: files() for shard in ("a", "b", "c")})
    before = {shard: content(store, shard) for shard in ("a", "c")}
    torn = Path(store.data_path("b", manifest_of(store, "b").files[1].name))
    torn.write_bytes(torn.read_bytes()[:-50])
    found = {one.shard: one for one in compact(spark, store, planned(store))}
    assert {shard: one.state for shard, one in found.items()} == {"a": "merged", "b": "failed", "c": "merged"}
    assert torn.name in found["b"].problem
    assert "archive verify" in found["b"].hint
    assert {shard: content(store, shard) for shard in ("a", "c")} == before
    assert [len(manifest_of(store, shard).files) for shard in ("a", "b", "c")] == [2, 4, 2]
    assert compact(spark, store, []) == []


# --- compactor: merging beside the archiver: little at a time, what is worth it, and never beside a replay ---


FILES = LEAST_FILES + 1


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    one = [[tx(put(b"k%d" % number, b"v"))] for number in range(FILES)]
    return write_archive(tmp_path_factory.mktemp("small") / "archive", {"a": one, "b": one, "c": one})


@pytest.fixture
def growing(small_files: ArchiveStore, tmp_path: Path) -> ArchiveStore:
    return copy_of(small_files, tmp_path / "archive")


class Kit:
    """A clock that a test moves, and what others do."""

    def __init__(self, growing: ArchiveStore, *shards: str) -> None:
        self.time = 0.0
        self.held = False
        self.looks = 0
        self.shards = shards or ("a",)
        self.compactor = Compactor(growing, lambda: self.shards, self.is_held, now=lambda: self.time)

    def is_held(self) -> bool:
        self.looks += 1
        return self.held


def counts(growing: ArchiveStore) -> list[int]:
    return [len(manifest_of(growing, shard).files) for shard in ("a", "b", "c")]


def sized(*sizes: int) -> list[FileEntry]:
    return [FileEntry(str(n), 1, size, marker_at(n), marker_at(n + 1), 1, 1, {}, {}) for n, size in enumerate(sizes)]


def test_each_shard_of_this_archiver_has_its_turn_and_no_other(growing: ArchiveStore) -> None:
    kit = Kit(growing, "b", "a")
    assert kit.compactor.step() < IDLE_S
    assert counts(growing) == [2, FILES, FILES]
    kit.compactor.step()
    assert counts(growing) == [2, 2, FILES]
    assert kit.compactor.step() == IDLE_S, "nothing is left to be done"
    assert counts(growing) == [2, 2, FILES]
    assert verify(growing, deep=True).problems == []


def test_it_looks_again_soon_where_no_shard_is_assigned_yet(growing: ArchiveStore) -> None:
    kit = Kit(growing)
    kit.shards = ()
    assert kit.compactor.step() == SOON_S


async def test_an_assignment_ends_the_wait_for_small_files(growing: ArchiveStore) -> None:
    kit, assigned = Kit(growing, "empty"), asyncio.Event()
    task = asyncio.create_task(_compact(kit.compactor, assigned))
    try:
        await eventually(lambda: kit.looks == 1, "nothing to merge in the first shard")
        kit.shards = ("empty", "a")
        assigned.set()
        await eventually(lambda: kit.looks == 3, "merged")
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert await asyncio.to_thread(counts, growing) == [2, FILES, FILES]


def test_a_tenth_of_the_time_is_spent_on_it(growing: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit(growing)

    def slow(*_: object) -> Merged:
        kit.time += 200
        return Merged("a", "merged", 2, 10)

    monkeypatch.setattr("spark_replay.archive.compactor.merge", slow)
    assert kit.compactor.step() == pytest.approx(1800)


def test_nothing_begins_while_a_replay_has_a_lease(growing: ArchiveStore) -> None:
    kit = Kit(growing)
    kit.held = True
    assert kit.compactor.step() == IDLE_S
    assert counts(growing) == [FILES] * 3
    kit.held = False
    kit.compactor.step()
    assert counts(growing)[0] == 2


def test_a_replay_that_begins_while_files_are_merged_reads_each_row_once(
    growing: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_flow_plans` has the places at which a replay may stand when its files are merged."""
    kit = Kit(growing)
    old = manifest_of(growing).files
    pieces = log_pieces(growing, "a", marker_at(0), marker_at(FILES), Selector("", "", ValueFormats()))
    found: list[SentPiece] = []
    create = ArchiveStore.create_data

    def begun(growing: ArchiveStore, shard: str, name: str) -> NewFile:
        kit.held = True
        found.extend(itertools.islice(pieces, 2))
        return create(growing, shard, name)

    monkeypatch.setattr(ArchiveStore, "create_data", begun)
    kit.compactor.step()
    assert counts(growing) == [2, FILES, FILES], "what was begun is brought to its end"
    kit.compactor.step()
    assert counts(growing) == [2, FILES, FILES], "and nothing begins after it"
    for entry in old[:-1]:
        growing.delete_data("a", entry.name)  # as `expire` would a day later
    found += pieces
    assert pushed_ids(found) == [f"source-a:{number}:0" for number in range(1, FILES + 1)]


def test_an_answer_to_the_commit_that_got_lost_takes_no_file_away(
    growing: ArchiveStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S3 may say 409 to a request that a client repeats while its own first one is still being carried out."""
    create = growing.storage.create_if_absent
    lost: list[str] = []

    def conflict(name: str, data: bytes) -> bool:
        assert create(name, data)
        if lost:
            return True
        lost.append(name)
        raise ArchiveConflict("it is being written by another process just now")

    monkeypatch.setattr(growing.storage, "create_if_absent", conflict)
    caplog.set_level("INFO")
    Kit(growing).compactor.step()
    assert len(lost) == 1
    assert "bytes: merged" in caplog.text
    assert counts(growing) == [2, FILES, FILES]
    assert verify(growing, deep=True).problems == []


def test_a_merged_file_that_a_manifest_named_is_left_to_retention(
    growing: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the commit got lost, and others merged its file before it asked again."""
    create = growing.storage.create_if_absent
    named: list[str] = []

    def overtaken(name: str, data: bytes) -> bool:
        assert create(name, data)
        monkeypatch.undo()
        named.append(manifest_of(growing).files[0].name)
        write_archive(growing.to, {"a": [[tx(put(b"more", b"v"))]]})
        assert merge(growing, Group("a", manifest_of(growing).files[:2])).state == "merged"
        raise ArchiveConflict("it is being written by another process just now")

    monkeypatch.setattr(growing.storage, "create_if_absent", overtaken)
    Kit(growing).compactor.step()
    assert {*named} < {one.name for one in growing.data_files("a")}
    assert verify(growing, deep=True).problems == []


@pytest.mark.parametrize(
    ("where", "error", "told"),
    [
        ("held", StreamBroken("no publisher answers"), "not merged just now: no publisher answers"),
        ("merge", ArchiveUnavailable("the disk is full"), "the disk is full"),
        ("merge", ValueError("not enough values to unpack"), "internal error"),
    ],
)
def test_what_goes_wrong_is_tried_again_later(
    growing: ArchiveStore, caplog: pytest.LogCaptureFixture, where: str, error: Exception, told: str
) -> None:
    kit = Kit(growing)
    with mock.patch.object(*(kit.compactor, "_held") if where == "held" else (compactor, "merge"), side_effect=error):
        assert kit.compactor.step() == IDLE_S
    assert told in caplog.text
    assert counts(growing) == [FILES] * 3


SMALL = [1] * 20
FEW = [1] * (LEAST_FILES - 1)


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        (SMALL, 20),
        ([1000, *SMALL], 20),
        ([20, *SMALL], 21),
        ([1000, 20, *SMALL], 21),
        (FEW, 0),
        ([100, *FEW], 0),
        ([], 0),
    ],
)
def test_what_was_merged_is_written_again_when_it_doubles(sizes: list[int], merged: int) -> None:
    assert len(worthwhile(sized(*sizes))) == merged


@pytest.mark.parametrize(
    ("dataset", "lease_s", "held"), [("orders", 12.5, True), ("orders", 0.0, False), ("bank", 9.0, False)]
)
def test_whose_lease_counts(monkeypatch: pytest.MonkeyPatch, dataset: str, lease_s: float, held: bool) -> None:
    status = admin_pb2.PublisherStatus(dataset=dataset)
    status.flows.add(flow="cache/a")
    assert not status.flows[0].HasField("replay")
    monkeypatch.setattr("spark_replay.archive.run.Admin.publishers", lambda _: [status])
    assert not _held(Where(), "orders")
    status.flows.add(flow="cache/b").replay.lease_left_s = lease_s
    assert _held(Where(), "orders") is held


def test_publishers_are_asked_with_the_certificate_of_the_archiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ZooKeeper no file has one; and the one that a file has is the publisher's."""
    authority = Authority(tmp_path)
    publisher, own = authority.issue("publisher"), authority.issue("archiver")
    stored, file = Config(version=1), Config(version=1, tls=publisher)
    assert _publishers(stored, "zk1:2181/w", "archive") == Where(coordinator="zk1:2181/w")
    assert _publishers(file, "shop.toml", "archive") == Where(coordinator="shop.toml", tls=publisher)
    monkeypatch.setenv("WORMHOLE_TLS", f"{own.cert},{own.key},{own.ca}")
    monkeypatch.setenv("WORMHOLE_PUBLISHERS", "publisher")
    assert _publishers(stored, "zk1:2181/w", "archive").tls == own
    assert _publishers(file, "shop.toml", "archive").tls == own
