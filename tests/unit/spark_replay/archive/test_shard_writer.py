"""What is on its way into the archive, where the order of steps matters. The rest is in ``test_archiver.py``."""

from __future__ import annotations

import random
import resource

import pytest

from spark_replay.archive.layout import manifest_path
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import verify
from tests.support.archives import Tx, manifest_of, marker_at, put, segments, tx, updates_of
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, EpochRefused
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.update import Update


@pytest.fixture
def writer(store: ArchiveStore) -> ShardWriter:
    """The first of its shard."""
    return ShardWriter.claim(store, "a", 1, marker_at(0))


def archive(writer: ShardWriter, *numbers: int) -> FileEntry | None:
    """Commit these transactions together."""
    for number in numbers:
        writer.add(updates(number))
    return writer.commit(marker_at(numbers[-1]))


def updates(number: int) -> list[Update]:
    (found,) = batches(number, tx(put(b"k", b"v")))
    return found


def batches(number: int, *transactions: Tx) -> list[list[Update]]:
    """From transaction ``number`` on, a batch for each piece of log."""
    return [updates_of(piece) for piece in segments("a", transactions, number)]


def rows(store: ArchiveStore) -> list[int]:
    """How many each file holds; nothing is wrong with them."""
    assert verify(store, deep=True).problems == []
    return [entry.rows for entry in manifest_of(store).files]


def test_a_claim_fences_who_came_before(store: ArchiveStore) -> None:
    old = ShardWriter.claim(store, "a", 1, marker_at(0))
    old.add(updates(1))
    new = ShardWriter.claim(store, "a", 2, marker_at(0))
    with pytest.raises(EpochRefused, match="another archiver writes a in epoch 2, this one had it in 1"):
        old.commit(marker_at(1))
    archive(new, 1)
    with pytest.raises(EpochRefused, match="archived in epoch 2; this archiver has it in epoch 1"):
        ShardWriter.claim(store, "a", 1, marker_at(0))


def test_a_claim_in_the_same_epoch_changes_nothing(store: ArchiveStore) -> None:
    first = ShardWriter.claim(store, "a", 1, marker_at(0)).manifest
    assert ShardWriter.claim(store, "a", 1, marker_at(5)).manifest == first


def test_the_manifest_names_complete_files_only(
    store: ArchiveStore, writer: ShardWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.add(updates(1))
    seen: list[int] = []
    real = ArchiveStore.commit

    def commit(self: ArchiveStore, manifest: object) -> None:
        (stored,) = self.data_files("a")
        with self.open_data("a", stored.name) as file:
            seen.append(file.size())
            assert file.read_at(4, file.size() - 4) == b"PAR1"
        real(self, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveStore, "commit", commit)
    entry = writer.commit(marker_at(1))
    assert entry is not None
    assert seen == [entry.bytes]


def test_what_was_archived_is_not_archived_again(store: ArchiveStore, writer: ShardWriter) -> None:
    archive(writer, 1)
    archive(writer, 1, 2)
    assert rows(store) == [1, 1]


def test_manifests_that_vanish_are_reported(
    store: ArchiveStore, writer: ShardWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.add(updates(1))
    monkeypatch.setattr(ArchiveStore, "head", lambda *_, **__: None)
    with pytest.raises(ArchiveError, match=r"the manifests of a are gone"):
        writer.commit(marker_at(1))


@pytest.mark.parametrize(
    ("delivered", "file", "whole"),
    [("0", 4, True), ("7", 1, False), ("", 1, True), ("", 2, False), ("u:1-5", 1, False)],
)
def test_whether_it_begins_where_the_store_did(store: ArchiveStore, delivered: str, file: int, whole: bool) -> None:
    place = LogPosition(1, file, 0)
    assert ShardWriter.claim(store, "a", 1, Datamarker(place, delivered, place)).manifest.whole is whole


def test_what_was_archived_in_pieces_is_passed_over_whole(store: ArchiveStore, writer: ShardWriter) -> None:
    """Its first pieces came with the place where it begins, which the archive is past."""
    log = batches(1, tx(put(b"a", b"1")), tx(*(put(b"%d" % n, b"2") for n in range(6)), pieces=3))
    for batch in log:
        writer.add(batch)
    writer.commit(marker_at(2))
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)  # nobody knew whether it was committed
    for batch in [*log, *batches(3, tx(*(put(b"%d" % n, b"3") for n in range(4)), pieces=2))]:
        writer.add(batch)
    writer.commit(marker_at(3))
    assert rows(store) == [7, 4]


@pytest.mark.parametrize("nothing_came", [True, False])
def test_an_archive_that_was_set_back_gets_no_hole(
    store: ArchiveStore, writer: ShardWriter, nothing_came: bool
) -> None:
    """Somebody restored manifests from a backup, while what they lack was acknowledged and does not come again."""
    archive(writer, 1)
    archive(writer, 2)
    store.storage.delete(manifest_path("a", writer.manifest.version))
    if not nothing_came:
        writer.add(updates(3))
    with pytest.raises(
        ArchiveError, match="ends at 1/1/100, and had been committed up to 1/1/200: its manifests were set back"
    ):
        writer.commit(marker_at(3))
    with pytest.raises(ArchiveError, match="set back"):
        ShardWriter.claim(store, "a", 1, marker_at(2), acknowledged=True)
    assert rows(store) == [1]
    # Assigned anew, it is asked where to begin.
    writer = ShardWriter.claim(store, "a", 2, marker_at(2))
    assert writer.manifest.end == marker_at(1)
    archive(writer, 2, 3)
    assert rows(store) == [1, 2]


def test_a_shard_whose_folder_is_gone_does_not_begin_anew_unasked(store: ArchiveStore) -> None:
    ShardWriter.claim(store, "a", 1, marker_at(0))
    store.storage.delete(manifest_path("a", 1))
    with pytest.raises(ArchiveError, match=r"the manifests of a are gone from .*; it was archived up to 1/1/100"):
        ShardWriter.claim(store, "a", 1, marker_at(1), acknowledged=True)
    assert store.read("a") is None


def test_of_two_archivers_in_one_epoch_neither_makes_a_hole(store: ArchiveStore) -> None:
    """A publisher's state came back from a backup, and its epochs came twice."""
    first, second = (ShardWriter.claim(store, "a", 1, marker_at(0)) for _ in range(2))
    archive(first, 1)
    with pytest.raises(ArchiveError, match="was archived from 1/1/0 to 1/1/100 meanwhile, in the same epoch 1"):
        second.commit(marker_at(2))
    second.abandon()
    second = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    archive(second, 1, 2)
    assert rows(store) == [1, 1]


@pytest.mark.parametrize("step", ["spill", "commit"])
def test_a_full_disk_is_reported_and_leaves_nothing(store: ArchiveStore, writer: ShardWriter, step: str) -> None:
    value = random.Random(7).randbytes(100_000)
    (large,) = batches(1, tx(put(b"k", value)))
    writer.add(large)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(ArchiveUnavailable, match=r"cannot write .*/a/data/.*\.parquet: .*File too large") as caught:
            writer.spill() if step == "spill" else writer.commit(marker_at(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "make room" in str(caught.value.hint)
    writer.abandon()
    assert not store.data_files("a")
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    writer.add(large)
    writer.commit(marker_at(1))
    assert rows(store) == [1]


def test_what_was_committed_unheard_never_goes_back(store: ArchiveStore, writer: ShardWriter) -> None:
    """Two datamarkers were committed, nobody heard of it, and the first is all that came again when the shard goes."""
    for number in (1, 2):
        writer.add(updates(number))
        writer.mark(marker_at(number))
    writer.commit(marker_at(2))
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    writer.add(updates(1))
    writer.mark(marker_at(1))
    assert writer.last_marker is None, "there is nothing to commit when the shard goes"
    assert writer.commit(marker_at(1)) is None
    writer.add(updates(2))
    writer.add(updates(3))
    writer.mark(marker_at(3))
    writer.commit(marker_at(3))
    assert rows(store) == [2, 1]


def test_where_retention_took_every_file_an_empty_one_goes_on(store: ArchiveStore, writer: ShardWriter) -> None:
    archive(writer, 1)
    store.change("a", lambda present: present.without_first(1) if present else pytest.fail("no manifest"))
    writer.commit(marker_at(2))
    writer.commit(marker_at(3))
    assert rows(store) == [0]
    assert writer.manifest.end == marker_at(3)
