"""What is on its way into the archive, where the order of steps matters. The rest is in ``test_archiver.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.building import Building
from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.archives import KEYS, marker_at, put, segments, tx
from wormhole.errors import ArchiveError, ArchiveUnavailable, EpochRefused
from wormhole.position import Datamarker, LogPosition
from wormhole.update import Batch, Update
from wormhole.wire.body import build_body, parse_body


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return open_store(str(tmp_path / "archive"), "orders", copy="main", create=True)


def updates(number: int) -> list[Update]:
    (piece,) = segments("a", [tx(put(b"k", b"v"))], number)
    body = build_body(piece.runs["a"], 1)
    assert body is not None
    return Batch(parse_body(body.data), "a", 1, False, {KEYS.id: KEYS}.__getitem__).updates()


def test_a_claim_fences_who_came_before(store: ArchiveStore) -> None:
    old = Building.claim(store, "a", 1, marker_at(0))
    old.add(updates(1))
    new = Building.claim(store, "a", 2, marker_at(0))
    with pytest.raises(EpochRefused, match="another archiver writes a in epoch 2, this one had it in 1"):
        old.commit(marker_at(1))
    new.add(updates(1))
    new.commit(marker_at(1))
    with pytest.raises(EpochRefused, match="archived in epoch 2; this archiver has it in epoch 1"):
        Building.claim(store, "a", 1, marker_at(0))


def test_a_claim_in_the_same_epoch_changes_nothing(store: ArchiveStore) -> None:
    first = Building.claim(store, "a", 1, marker_at(0)).manifest
    assert Building.claim(store, "a", 1, marker_at(5)).manifest == first


def test_the_manifest_names_complete_files_only(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    building = Building.claim(store, "a", 1, marker_at(0))
    building.add(updates(1))
    seen: list[int] = []
    real = ArchiveStore.commit

    def commit(self: ArchiveStore, manifest: object) -> None:
        (stored,) = self.data_files("a")
        with self.open_data("a", stored.name) as file:
            seen.append(file.size())
            assert file.read_at(4, file.size() - 4) == b"PAR1"
        real(self, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveStore, "commit", commit)
    entry = building.commit(marker_at(1))
    assert entry is not None
    assert seen == [entry.bytes]


def test_what_was_archived_is_not_archived_again(store: ArchiveStore) -> None:
    building = Building.claim(store, "a", 1, marker_at(0))
    building.add(updates(1))
    building.commit(marker_at(1))
    building.add(updates(1))
    building.add(updates(2))
    entry = building.commit(marker_at(2))
    assert entry is not None
    assert entry.rows == 1


def test_abandoning_leaves_no_file(store: ArchiveStore) -> None:
    building = Building.claim(store, "a", 1, marker_at(0))
    building.add(updates(1))
    building.spill()
    building.abandon()
    assert not store.data_files("a")
    assert building.size == 0


def test_a_file_that_cannot_be_completed_is_removed(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_replay.archive.store import NewFile

    def full(self: NewFile) -> int:
        raise ArchiveUnavailable("no space left")

    building = Building.claim(store, "a", 1, marker_at(0))
    building.add(updates(1))
    monkeypatch.setattr(NewFile, "close", full)
    with pytest.raises(ArchiveUnavailable):
        building.commit(marker_at(1))
    assert not store.data_files("a")
    assert store.read("a").files == ()  # type: ignore[union-attr]


def test_manifests_that_vanish_are_told(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    building = Building.claim(store, "a", 1, marker_at(0))
    building.add(updates(1))
    monkeypatch.setattr(ArchiveStore, "read", lambda *_, **__: None)
    with pytest.raises(ArchiveError, match="the manifests of a are gone"):
        building.commit(marker_at(1))


@pytest.mark.parametrize(
    ("delivered", "file", "whole"),
    [("0", 4, True), ("7", 1, False), ("", 1, True), ("", 2, False), ("u:1-5", 1, False)],
)
def test_whether_it_begins_where_the_store_did(store: ArchiveStore, delivered: str, file: int, whole: bool) -> None:
    place = LogPosition(1, file, 0)
    assert Building.claim(store, "a", 1, Datamarker(place, delivered, place)).manifest.whole is whole
