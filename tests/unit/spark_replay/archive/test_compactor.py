"""Merging beside the archiver: little at a time, what is worth it, and never beside a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.compact import Merged
from spark_replay.archive.compactor import IDLE_S, LEAST_FILES, SOON_S, Compactor, worthwhile
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.run import _held
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import verify
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from wormhole.host.where import Where
from wormhole.model.errors import ArchiveUnavailable, StreamBroken
from wormhole.wire.v1 import admin_pb2

FILES = LEAST_FILES + 1


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    one = [[tx(put(b"k%d" % number, b"v"))] for number in range(FILES)]
    return write_archive(tmp_path / "archive", {"a": one, "b": one, "c": one})


class Kit:
    """A clock that a test moves, and what others do."""

    def __init__(self, store: ArchiveStore, *shards: str) -> None:
        self.time = 0.0
        self.held = False
        self.shards = shards or ("a",)
        self.compactor = Compactor(store, lambda: self.shards, self.is_held, now=lambda: self.time)

    def is_held(self) -> bool:
        return self.held


def counts(store: ArchiveStore) -> list[int]:
    return [len(manifest_of(store, shard).files) for shard in ("a", "b", "c")]


def sized(*sizes: int) -> list[FileEntry]:
    return [FileEntry(str(n), 1, size, marker_at(n), marker_at(n + 1), 1, 1, {}, {}) for n, size in enumerate(sizes)]


def test_each_shard_of_this_archiver_has_its_turn_and_no_other(store: ArchiveStore) -> None:
    kit = Kit(store, "b", "a")
    assert kit.compactor.step() < IDLE_S
    assert counts(store) == [2, FILES, FILES]
    kit.compactor.step()
    assert counts(store) == [2, 2, FILES]
    assert kit.compactor.step() == IDLE_S, "nothing is left to be done"
    assert counts(store) == [2, 2, FILES]
    assert verify(store, deep=True).problems == []


def test_it_looks_again_soon_where_no_shard_is_assigned_yet(store: ArchiveStore) -> None:
    kit = Kit(store)
    kit.shards = ()
    assert kit.compactor.step() == SOON_S


def test_a_tenth_of_the_time_is_spent_on_it(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit(store)

    def slow(*_: object) -> Merged:
        kit.time += 200
        return Merged("a", "merged", 2, 10)

    monkeypatch.setattr("spark_replay.archive.compactor.merge", slow)
    assert kit.compactor.step() == pytest.approx(1800)


def test_nothing_begins_while_a_replay_has_a_lease(store: ArchiveStore) -> None:
    kit = Kit(store)
    kit.held = True
    assert kit.compactor.step() == IDLE_S
    assert counts(store) == [FILES] * 3
    kit.held = False
    kit.compactor.step()
    assert counts(store)[0] == 2


def test_what_goes_wrong_is_tried_again_later(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(store)

    def unknown() -> bool:
        raise StreamBroken("no publisher answers")

    monkeypatch.setattr(kit.compactor, "_held", unknown)
    assert kit.compactor.step() == IDLE_S
    assert "not merged just now: no publisher answers" in caplog.text
    monkeypatch.setattr(kit.compactor, "_held", lambda: False)

    def away(*_: object) -> None:
        raise ArchiveUnavailable("the disk is full")

    monkeypatch.setattr("spark_replay.archive.compactor.merge", away)
    assert kit.compactor.step() == IDLE_S
    assert counts(store) == [FILES] * 3


def test_what_was_merged_is_written_again_when_it_doubles() -> None:
    small = [1] * 20
    assert len(worthwhile(sized(*small))) == 20
    assert len(worthwhile(sized(1000, *small))) == 20
    assert len(worthwhile(sized(20, *small))) == 21
    assert len(worthwhile(sized(1000, 20, *small))) == 21
    assert worthwhile(sized(*[1] * (LEAST_FILES - 1))) == ()
    assert worthwhile(sized(100, *[1] * (LEAST_FILES - 1))) == ()
    assert worthwhile([]) == ()


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
