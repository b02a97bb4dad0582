"""Merging beside the archiver: little at a time, what is worth it, and never beside a replay."""

from __future__ import annotations

import itertools
from pathlib import Path
from unittest import mock

import pytest

from spark_replay.archive import compactor
from spark_replay.archive.compact import Group, Merged, merge
from spark_replay.archive.compactor import IDLE_S, LEAST_FILES, SOON_S, Compactor, worthwhile
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.run import _held, _publishers
from spark_replay.archive.store import ArchiveStore, NewFile
from spark_replay.archive.verify import verify
from spark_replay.replay.delivery import SentPiece
from spark_replay.replay.pieces import Selector, log_pieces
from tests.support.archives import manifest_of, marker_at, pushed_ids, put, tx, write_archive
from tests.support.certificates import Authority
from wormhole.config import Config
from wormhole.formats import ValueFormats
from wormhole.host.where import Where
from wormhole.model.errors import ArchiveConflict, ArchiveUnavailable, StreamBroken
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


@pytest.mark.parametrize("read", [0, 1, 2, 9])
def test_a_replay_that_begins_while_files_are_merged_reads_each_row_once(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    kit = Kit(store)
    old = manifest_of(store).files
    pieces = log_pieces(store, "a", marker_at(0), marker_at(FILES), Selector("", "", ValueFormats()))
    found: list[SentPiece] = []
    create = ArchiveStore.create_data

    def begun(store: ArchiveStore, shard: str, name: str) -> NewFile:
        kit.held = True
        found.extend(itertools.islice(pieces, read))
        return create(store, shard, name)

    monkeypatch.setattr(ArchiveStore, "create_data", begun)
    kit.compactor.step()
    assert counts(store) == [2, FILES, FILES], "what was begun is brought to its end"
    kit.compactor.step()
    assert counts(store) == [2, FILES, FILES], "and nothing begins after it"
    for entry in old[:-1]:
        store.delete_data("a", entry.name)  # as `expire` would a day later
    found += pieces
    assert pushed_ids(found) == [f"source-a:{number}:0" for number in range(1, FILES + 1)]


def test_an_answer_to_the_commit_that_got_lost_takes_no_file_away(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S3 may say 409 to a request that a client repeats while its own first one is still being carried out."""
    create = store.storage.create_if_absent
    lost: list[str] = []

    def conflict(name: str, data: bytes) -> bool:
        assert create(name, data)
        if lost:
            return True
        lost.append(name)
        raise ArchiveConflict("it is being written by somebody else just now")

    monkeypatch.setattr(store.storage, "create_if_absent", conflict)
    caplog.set_level("INFO")
    Kit(store).compactor.step()
    assert len(lost) == 1
    assert "bytes: merged" in caplog.text
    assert counts(store) == [2, FILES, FILES]
    assert verify(store, deep=True).problems == []


def test_a_merged_file_that_a_manifest_named_is_left_to_retention(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the commit got lost, and others merged its file before it asked again."""
    create = store.storage.create_if_absent
    named: list[str] = []

    def overtaken(name: str, data: bytes) -> bool:
        assert create(name, data)
        monkeypatch.undo()
        named.append(manifest_of(store).files[0].name)
        write_archive(store.to, {"a": [[tx(put(b"more", b"v"))]]})
        assert merge(store, Group("a", manifest_of(store).files[:2])).state == "merged"
        raise ArchiveConflict("it is being written by somebody else just now")

    monkeypatch.setattr(store.storage, "create_if_absent", overtaken)
    Kit(store).compactor.step()
    assert {*named} < {one.name for one in store.data_files("a")}
    assert verify(store, deep=True).problems == []


@pytest.mark.parametrize(
    ("where", "error", "told"),
    [
        ("held", StreamBroken("no publisher answers"), "not merged just now: no publisher answers"),
        ("merge", ArchiveUnavailable("the disk is full"), "the disk is full"),
        ("merge", ValueError("not enough values to unpack"), "internal error"),
    ],
)
def test_what_goes_wrong_is_tried_again_later(
    store: ArchiveStore, caplog: pytest.LogCaptureFixture, where: str, error: Exception, told: str
) -> None:
    kit = Kit(store)
    with mock.patch.object(*(kit.compactor, "_held") if where == "held" else (compactor, "merge"), side_effect=error):
        assert kit.compactor.step() == IDLE_S
    assert told in caplog.text
    assert counts(store) == [FILES] * 3


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
