"""The archiver against the SDK's own flows: what is acknowledged is committed, what is not comes again, and memory
is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_replay.archive import shard_writer
from spark_replay.archive.archiver import Archiver
from spark_replay.archive.layout import manifest_path
from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from subscriber_sdk import RetryPolicy
from subscriber_sdk.testing import Kit, KitFlow, marker_at, read, update
from tests.support.archives import manifest_of
from wormhole.model.errors import ArchiveUnavailable, HandlerFailed

MIB = 1 << 20

pytestmark = pytest.mark.allow_blocking("writes files, in place of the threads that it has in production")


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return open_store(str(tmp_path / "archive"), "test", copy="main", create=True)


class Archivers:
    def __init__(self, kit: Kit, store: ArchiveStore) -> None:
        self.kit = kit
        self.store = store
        self.made: list[Archiver] = []

    def new(self, flush_size: int = MIB, accept_loss: bool = False) -> Archiver:
        archiver = Archiver(
            self.store, flush_every=60, flush_size=flush_size, accept_loss=accept_loss, now=lambda: self.kit.now
        )
        self.made.append(archiver)
        return archiver

    def attach(self, archiver: Archiver | None = None, **options: object) -> KitFlow:
        return self.kit.attach(archiver or self.new(), retry=RetryPolicy(attempts=2), **options)  # type: ignore[arg-type]


@pytest.fixture
def archivers(wormhole_kit: Kit, store: ArchiveStore) -> Iterator[Archivers]:
    found = Archivers(wormhole_kit, store)
    yield found
    wormhole_kit.close()
    for archiver in found.made:
        archiver.close()
    assert not verify(store, deep=True).problems


@pytest.fixture
def flow(archivers: Archivers) -> KitFlow:
    """A flow of a new archiver."""
    return archivers.attach()


def archive(archivers: Archivers, flow: KitFlow, *keys: int) -> None:
    """Write updates with these keys, each until it is committed."""
    for key in keys:
        flow.commit(update("t", key=key))
        archivers.kit.advance(61)


def files(store: ArchiveStore, shard: str) -> Iterator[DataFile]:
    for entry in manifest_of(store, shard).files:
        with DataFile(store.open_data(shard, entry.name), entry.name) as file:
            yield file


def ids(store: ArchiveStore, shard: str = "shop") -> list[str]:
    """The ids of everything that is archived, in order."""
    rows = [row for file in files(store, shard) for batch in file.batches() for row in batch.to_pylist()]
    return [f"{row['tx_number']}:{row['tx_index']}" for row in rows]


def row_groups(store: ArchiveStore, shard: str = "shop") -> list[int]:
    return [file._file.metadata.num_row_groups for file in files(store, shard)]


def test_each_assignment_is_noted_for_merging(archivers: Archivers) -> None:
    archiver = archivers.new()
    assert not archiver.assigned.is_set()
    archivers.attach(archiver)
    assert archiver.assigned.is_set()


def test_it_is_acknowledged_when_it_is_committed(archivers: Archivers, flow: KitFlow) -> None:
    flow.commit(update("t", key=1), update("t", key=2))
    archivers.kit.advance(50)
    assert flow.datamarker == marker_at(0)
    assert ids(archivers.store) == []
    archivers.kit.advance(11)
    assert flow.datamarker == flow.end
    assert ids(archivers.store) == ["1:0", "1:1"]


def test_a_file_ends_at_the_datamarker_that_was_due_and_knows_all_before(archivers: Archivers, flow: KitFlow) -> None:
    for key in range(3):
        flow.commit(update("t", key=key))
        archivers.kit.advance(25)
    (entry,) = manifest_of(archivers.store, "shop").files
    with DataFile(archivers.store.open_data("shop", entry.name), entry.name) as file:
        assert file.footer.markers == (marker_at(1), marker_at(2), marker_at(3))
    assert (entry.begin, entry.end) == (marker_at(0), marker_at(3))


def test_its_size_makes_it_due_too(archivers: Archivers) -> None:
    flow = archivers.attach(archivers.new(flush_size=2000))
    for key in range(10):
        flow.commit(update("t", key=key, after={"v": b"x" * 700}))
    assert flow.datamarker.order > marker_at(5).order
    assert len(ids(archivers.store)) == int(flow.datamarker.delivered)


@pytest.mark.parametrize("committed", [False, True])
def test_killed_before_the_acknowledgement_it_comes_again_once(
    archivers: Archivers, flow: KitFlow, committed: bool
) -> None:
    archive(archivers, flow, 1)
    flow.commit(update("t", key=2))
    archivers.kit.advance(61 * committed)
    flow.crash_and_redeliver(transactions=2, subscriber=archivers.new())  # the kit delivers what the manifest has again
    archive(archivers, flow, 3)
    assert ids(archivers.store) == ["1:0", "2:0", "3:0"]
    assert flow.datamarker == flow.end


def test_a_graceful_end_commits_what_has_its_datamarker(archivers: Archivers, flow: KitFlow) -> None:
    flow.commit(update("t", key=1))
    flow.revoke()
    assert ids(archivers.store) == ["1:0"]
    flow.assign()
    archive(archivers, flow, 2)
    assert ids(archivers.store) == ["1:0", "2:0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_fails_is_made_again_once(
    archivers: Archivers, flow: KitFlow, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Also when it is not known whether it was made."""
    flow.commit(update("t", key=1))
    real, failures = ArchiveStore.commit, [1]

    def failing(self: ArchiveStore, manifest: object) -> None:
        if when == "after":
            real(self, manifest)  # type: ignore[arg-type]
        if failures:
            failures.pop()
            raise ArchiveUnavailable("the answer was lost")
        if when == "before":
            real(self, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveStore, "commit", failing)
    archivers.kit.advance(150)
    assert flow.datamarker == flow.end
    assert ids(archivers.store) == ["1:0"]


def test_the_older_of_two_archivers_cannot_commit(archivers: Archivers) -> None:
    old = archivers.attach()
    old.commit(update("t", key=1))
    new = archivers.attach()  # another publisher's stream to another process: both believe that they have the shard
    new.revoke()
    new.assign()  # in a higher epoch
    new.commit(update("t", key=1))
    archivers.kit.advance(61)
    with pytest.raises(HandlerFailed, match="in epoch 2"):
        old.commit(update("t", key=2))
    assert ids(archivers.store) == ["1:0"]
    assert new.datamarker == new.end
    assert old.datamarker == marker_at(0)


def test_an_archiver_whose_publisher_lost_its_epochs_goes_on_above_those_of_the_archive(
    archivers: Archivers, flow: KitFlow
) -> None:
    """An older marker store was restored, or ZooKeeper is empty: the publisher begins again with a lower epoch."""
    archive(archivers, flow, 1, 2)
    for _ in range(4):
        flow.revoke()
        flow.assign()
    assert manifest_of(archivers.store, "shop").epoch == 5
    flow.revoke()

    flow.epoch, flow.datamarker = 1, marker_at(1)
    flow.crash_and_redeliver(transactions=1, subscriber=archivers.new())
    assert (flow.epoch, manifest_of(archivers.store, "shop").epoch) == (6, 6)
    assert flow.halted is None
    archive(archivers, flow, 3)
    assert ids(archivers.store) == ["1:0", "2:0", "3:0"]
    assert flow.datamarker == flow.end


def test_an_archive_that_is_set_back_under_it_stops_it(archivers: Archivers, flow: KitFlow) -> None:
    archive(archivers, flow, 1, 2)
    store = archivers.store
    store.storage.delete(manifest_path("shop", manifest_of(store, "shop").version))
    flow.commit(update("t", key=3))
    archivers.kit.advance(300)
    with pytest.raises(HandlerFailed, match="its manifests were set back"):
        flow.commit(update("t", key=4))
    assert ids(store) == ["1:0"]
    flow.crash_and_redeliver(transactions=2, subscriber=archivers.new())  # started again it says where the archive ends
    archivers.kit.advance(61)
    assert ids(store) == ["1:0", "2:0", "3:0", "4:0"]
    assert flow.datamarker == flow.end


def test_a_transaction_larger_than_memory(archivers: Archivers, monkeypatch: pytest.MonkeyPatch) -> None:
    archiver = archivers.new(flush_size=256 << 10)
    flow = archivers.attach(archiver)
    most = 0
    real = shard_writer.ShardWriter.add

    def watched(self: shard_writer.ShardWriter, updates: object) -> None:
        nonlocal most
        real(self, updates)  # type: ignore[arg-type]
        most = max(most, self.memory)

    monkeypatch.setattr(shard_writer.ShardWriter, "add", watched)
    flow.commit(*(update("t", key=i, after={"v": b"x" * 4000}) for i in range(800)), pieces=100)
    assert ids(archivers.store) == [f"1:{i}" for i in range(800)]
    (groups,) = row_groups(archivers.store)
    assert groups > 5
    assert most < 400 << 10


def test_many_shards_take_no_more_memory_than_one(archivers: Archivers) -> None:
    """Rows of the largest one go to its file, whoever brought what is too much; what stays small is left."""
    archiver = archivers.new(flush_size=256 << 10)
    flows = [archivers.attach(archiver, shard=f"shop{n}") for n in range(6)]
    for round_ in range(5):
        for flow, size in zip(flows, (40, 10, 10, 10, 1, 1), strict=True):
            flow.commit(update("t", key=round_, after={"v": b"x" * (size * 1000)}))
            shards = archiver._shards.values()
            assert sum(one.writer.memory for one in shards if one.writer) <= 256 << 10
    assert [flow.datamarker for flow in flows] == [marker_at(0)] * 6
    archivers.kit.advance(61)
    assert [len(ids(archivers.store, f"shop{n}")) for n in range(6)] == [5] * 6
    assert row_groups(archivers.store, "shop0")[0] > 1
    assert [row_groups(archivers.store, f"shop{n}") for n in range(1, 6)] == [[1]] * 5


def test_a_spill_for_another_shard_that_fails_is_reported_to_that_one(
    archivers: Archivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = archivers.new(flush_size=256 << 10)
    large, small = (archivers.attach(archiver, shard=name) for name in ("large", "small"))
    large.commit(update("t", key=1, after={"v": b"x" * (200 << 10)}))
    real, failures = shard_writer.ShardWriter.spill, [1]

    def failing(self: shard_writer.ShardWriter) -> None:
        if failures and self.shard == "large":
            failures.pop()
            self._rows.take()  # as one that fails amid its writing
            raise ArchiveUnavailable("no room")
        real(self)

    monkeypatch.setattr(shard_writer.ShardWriter, "spill", failing)
    small.commit(update("t", key=1, after={"v": b"x" * (100 << 10)}))
    assert failures == []
    assert (large.datamarker, small.datamarker) == (marker_at(0), marker_at(0))
    archivers.kit.advance(150)
    assert (large.datamarker, small.datamarker) == (large.end, small.end)
    assert ids(archivers.store, "large") == ids(archivers.store, "small") == ["1:0"]


def test_where_nothing_comes_the_archive_goes_on_without_files(archivers: Archivers, flow: KitFlow) -> None:
    archive(archivers, flow, 1)
    for _ in range(3):
        flow.commit()
        archivers.kit.advance(61)
    manifest = manifest_of(archivers.store, "shop")
    assert len(manifest.files) == 1
    assert manifest.end == manifest.files[0].end == flow.end == flow.datamarker


def test_a_loss_halts_unless_it_is_accepted(archivers: Archivers, flow: KitFlow) -> None:
    archive(archivers, flow, 1)
    flow.lose("2", "2")
    assert flow.datamarker == marker_at(1)


def test_an_accepted_loss_is_in_the_manifest(archivers: Archivers) -> None:
    flow = archivers.attach(archivers.new(accept_loss=True))
    archive(archivers, flow, 1)
    flow.lose("2", "2")
    flow.commit()
    archivers.kit.advance(61)  # nothing came: the file before the hole must not grow over it
    archive(archivers, flow, 4)
    manifest = manifest_of(archivers.store, "shop")
    (loss,) = manifest.losses
    assert (loss.resume, manifest.end) == (marker_at(2), marker_at(4))
    assert [(file.begin, file.end, file.rows) for file in manifest.files] == [
        (marker_at(0), marker_at(1), 1),
        (marker_at(2), marker_at(3), 0),
        (marker_at(3), marker_at(4), 1),
    ]
    assert ids(archivers.store) == ["1:0", "4:0"]


def test_what_it_tells(archivers: Archivers) -> None:
    archiver = archivers.new()
    flow = archivers.attach(archiver)
    flow.commit(update("t", key=1))
    archivers.kit.advance(10)
    told = {sample.metric.name: sample.value for sample in archiver.samples()}
    assert told["wormhole_archive_pending_seconds"] == pytest.approx(10, abs=1)
    assert told["wormhole_archive_pending_bytes"] > 0
    archivers.kit.advance(51)
    told = {sample.metric.name: sample.value for sample in archiver.samples()}
    assert told["wormhole_archive_files_total"] == told["wormhole_archive_updates_total"] == 1
    assert told["wormhole_archive_pending_seconds"] == told["wormhole_archive_pending_bytes"] == 0
    assert told["wormhole_archive_file_bytes_total"] > 0


def test_existing_rows_are_archived_among_changes(archivers: Archivers, store: ArchiveStore) -> None:
    flow = archivers.attach()
    flow.commit(update("users", key=1, after={"name": "ada"}))
    flow.begin_backfill()
    flow.chunk("users", read("users", key=1, after={"name": "ada"}), until=1)
    flow.commit(update("users", key=2, after={"name": "bob"}))
    flow.crash_and_redeliver(2, subscriber=archivers.new())
    flow.chunk("users", read("users", key=2, after={"name": "bob"}), after=1)
    flow.end_scan("users")
    archivers.kit.advance(61)
    assert flow.datamarker == flow.end
    entries = manifest_of(store, "shop").files
    assert sum(entry.ops.get("read", 0) for entry in entries) == 2
    assert sum(entry.ops.get("insert", 0) for entry in entries) == 2
