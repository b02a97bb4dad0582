"""Commits: one of several writers makes each, and what was committed stays committed."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive.checksums import Blocks
from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.layout import ABOUT, KEPT_VERSIONS, about_from_json, manifest_path
from spark_replay.archive.manifest import FileEntry, Manifest, manifest_to_json
from spark_replay.archive.store import ArchiveStore, open_store, store_of
from spark_replay.archive.verify import verify
from tests.support.archives import (
    manifest_given,
    manifest_of,
    marker_at,
    present,
    put,
    segments,
    tx,
    write_archive,
    write_file,
)
from tests.support.power_cuts import PowerCut, cut_after
from wormhole.config import FAILOVER, parse
from wormhole.model.errors import (
    ArchiveConflict,
    ArchiveError,
    ArchiveUnavailable,
    ConfigError,
    EpochRefused,
    UsageError,
)

START = Manifest("orders", "a", 1, 1, marker_at(0), marker_at(0), True, copy="main", log="a")


def entry(begin: int, end: int) -> FileEntry:
    return FileEntry(
        f"{begin}-{end}",
        1,
        9,
        marker_at(begin),
        marker_at(end),
        1,
        2,
        {"upsert": 1},
        {"t": 1},
        blocks=Blocks(crcs=bytes(4)),
    )


def following(manifest: Manifest | None, version: int = 0, **changes: Any) -> Manifest:
    """The next version, or another one, with these changes."""
    return replace(present(manifest), version=version or present(manifest).version + 1, **changes)


def test_from_nothing_to_files(any_store: ArchiveStore) -> None:
    assert any_store.shards() == []
    assert any_store.read("a") is None
    written = write_file(any_store, "a", segments("a", [tx(put(b"k", b"v"))]), marker_at(1))
    assert any_store.read("a", settled=True) == written
    assert any_store.shards() == any_store.chosen([]) == any_store.chosen(["a"]) == ["a"]
    [file] = written.files
    assert [(one.name, one.bytes) for one in any_store.data_files("a")] == [(file.name, file.bytes)]
    with any_store.open_data("a", file.name) as source:
        assert source.read_at(4, 0) == b"PAR1"
    assert open_store(any_store.to, "orders", copy="main", create=True).read("a") == written
    with pytest.raises(UsageError, match="nothing is archived of shard b"):
        any_store.chosen(["b"])


def test_of_many_commits_of_one_version_one_is_made(any_store: ArchiveStore) -> None:
    any_store.commit(START)
    made: list[int] = []
    lost: list[ArchiveConflict] = []
    begin = threading.Barrier(5)

    def commit(epoch: int) -> None:
        begin.wait()
        try:
            any_store.commit(replace(START, version=2, epoch=epoch))
            made.append(epoch)
        except ArchiveConflict as error:
            lost.append(error)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(commit, range(2, 7)))
    found = manifest_of(any_store)
    assert (made, len(lost)) == ([found.epoch], 4)
    assert "another writer committed version 2 of the archive of a first" in str(lost[0])
    # Who is told of its own work that somebody was first, since an answer was lost, has committed.
    any_store.commit(found)


def test_the_archiver_that_is_second_gets_the_reason(store: ArchiveStore) -> None:
    store.commit(replace(START, epoch=2))
    store.change("a", lambda one: present(one).appended(entry(0, 1), 2))
    with pytest.raises(ArchiveError, match=r" 1/1/0, .* 1/1/100 \(shard a\) \[archive-damaged\]"):
        store.change("a", lambda one: present(one).appended(entry(0, 1), 2))
    with pytest.raises(EpochRefused):
        store.change("a", lambda one: present(one).claimed(1))


def test_a_wish_for_nothing_commits_nothing(store: ArchiveStore) -> None:
    store.commit(START)
    assert store.change("a", present).version == 1
    with pytest.raises(ValueError, match="does not follow"):
        store.change("a", lambda one: following(one, 5))


def test_others_that_are_first_for_ever(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(START)
    tries: list[int] = []

    def always(manifest: Manifest) -> None:
        tries.append(manifest.version)
        raise ArchiveConflict("first")

    monkeypatch.setattr(store, "commit", always)
    with pytest.raises(ArchiveConflict):
        store.change("a", following, pause=lambda _: None)
    assert tries == [2] * 10


def test_old_manifests_go_and_who_slept_since_is_refused(store: ArchiveStore) -> None:
    for version in range(1, KEPT_VERSIONS + 6):
        store.commit(replace(START, version=version))
    kept = [one.name for one in store.storage.files("a/manifests")]
    assert len(kept) == KEPT_VERSIONS
    # Version 3 is free again.
    with pytest.raises(ArchiveConflict):
        store.commit(replace(START, version=3, epoch=99))
    assert [one.name for one in store.storage.files("a/manifests")] == kept


def test_a_disk_that_is_not_there_any_more(store: ArchiveStore, tmp_path: Path) -> None:
    store.commit(START)
    (tmp_path / "archive").rename(tmp_path / "away")
    (tmp_path / "archive").mkdir()
    with pytest.raises(ArchiveUnavailable, match="is gone") as caught:
        store.read("a")
    assert "mounted" in str(caught.value.hint)
    with pytest.raises(ArchiveUnavailable, match="before version 2 are gone"):
        store.commit(replace(START, version=2))
    assert store.storage.files("a/manifests") == []
    with pytest.raises(UsageError, match="there is no archive in"):
        open_store(store.to, "orders")


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (b"", r"00002\.json is no manifest"),
        (b"{", r"00002\.json is no manifest"),
        (manifest_to_json(replace(START, version=2))[:-20], r"00002\.json is no manifest"),
        (with_checksum({**manifest_given(replace(START, version=2)), "format": 3}), "written by a newer release"),
        (manifest_to_json(following(START, dataset="other")), "is of another place"),
        (manifest_to_json(following(START, copy="eu")), "is of another place"),
        (manifest_to_json(following(START, shard="b")), "is of another place"),
        (manifest_to_json(following(START, 3)), "is of another place"),
    ],
)
def test_a_manifest_that_is_none_of_this_place_is_named(store: ArchiveStore, kept: bytes, told: str) -> None:
    store.commit(START)
    store.storage.create_if_absent(manifest_path("a", 2), kept)
    with pytest.raises(ArchiveError, match=told):
        store.read("a")


def test_whose_folder_it_is(store: ArchiveStore, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r" orders, copy main; .* bank.*\[archive-misplaced\]"):
        open_store(store.to, "bank")
    with pytest.raises(ArchiveError, match="wanted is orders, copy eu"):
        open_store(store.to, "orders", copy="eu", create=True)
    assert (open_store(store.to, "orders").copy, store.dataset) == ("main", "orders")
    with pytest.raises(ArchiveError, match=r" archive \[archive-misplaced\]"):
        open_store(str(tmp_path), "orders", copy="main", create=True)
    (tmp_path / "archive" / ABOUT).unlink()
    store.commit(START)
    with pytest.raises(ArchiveError, match=r"restore its archive\.json"):
        open_store(store.to, "orders", copy="main", create=True)
    (tmp_path / "new" / "lost+found").mkdir(parents=True)
    open_store(str(tmp_path / "new"), "orders", copy="main", create=True)
    assert about_from_json((tmp_path / "new" / ABOUT).read_bytes(), "").dataset == "orders"


def test_a_storage_that_overwrites_is_found_out(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(store.storage), "create_if_absent", lambda *_: True)
    with pytest.raises(ArchiveError, match="two archivers could overwrite"):
        open_store(store.to, "orders", copy="main", create=True)


def test_a_crash_between_file_and_manifest_leaves_what_does_not_count(store: ArchiveStore) -> None:
    write_archive(store.to, {"a": [[tx(put(b"k", b"v"))]]})
    before = store.read("a")
    store.create_data("a", "crashed.parquet").close()
    assert store.read("a") == before
    assert len(store.data_files("a")) == 2


@pytest.mark.parametrize("step", range(9))
def test_the_power_goes_at_each_step_of_a_commit(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    write_archive(store.to, {"a": [[tx(put(b"k", b"v"))]]})
    before = store.read("a")
    acknowledged = False
    cut_after(step, monkeypatch)
    with contextlib.suppress(PowerCut):
        write_file(store, "a", segments("a", [tx(put(b"k", b"w"))], 2), marker_at(2))
        acknowledged = True
    monkeypatch.undo()
    after = present(store.read("a", settled=True))
    assert acknowledged == (step == 8), "the steps are others now: as many have to be tried"
    assert after == before or len(after.files) == 2
    assert len(after.files) == 2 or not acknowledged
    assert verify(store, deep=True).problems == []
    # The next one goes on where this one came to.
    number = len(after.files) + 1
    write_file(store, "a", segments("a", [tx(put(b"k", b"w"))], number), marker_at(number))
    assert verify(store, deep=True).problems == []


def test_a_file_that_is_given_up_is_gone(store: ArchiveStore) -> None:
    with pytest.raises(ZeroDivisionError), store.create_data("a", "x") as file:
        file.sink.write(b"abc")
        raise ZeroDivisionError
    assert store.data_files("a") == []
    with store.create_data("a", "y") as file:
        file.sink.write(b"abc")
        file.sink.close()
    assert [(one.name, one.bytes) for one in store.data_files("a")] == [("y", 3)]
    store.delete_data("a", "y")
    file.abort()
    assert store.data_files("a") == []


def test_a_file_whose_durability_is_not_certain_is_not_there(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = store.create_data("a", "x")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ArchiveUnavailable, match=r"cannot write .*/a/data/x: Input/output error"), file:
        file.sink.write(b"abc")
    assert store.data_files("a") == []


def test_it_travels_to_executors(store: ArchiveStore) -> None:
    store.commit(START)
    assert pickle.loads(pickle.dumps(store)).read("a") == START


CONFIG = """version = 1
[datasets.orders.copies.main.logs.a]
source = "rocksdb:///x"
[datasets.bank.copies.eu.logs.b]
source = "rocksdb:///y"
[datasets.orders.archive]
to = "archive"
[applications.archive]
dataset = "orders"
start = "latest"
"""


def test_the_one_that_is_configured(store: ArchiveStore, tmp_path: Path) -> None:
    config = parse(CONFIG, "site.toml", folder=tmp_path)
    assert store_of(config, "orders").to == store.to
    with pytest.raises(ConfigError, match="no dataset 'order' is configured"):
        store_of(config, "order")
    with pytest.raises(ConfigError, match="dataset bank has no archive"):
        store_of(config, "bank")
    text = CONFIG.replace("copies.main", "copies.eu")
    with pytest.raises(ArchiveError, match="wanted is orders, copy eu"):
        store_of(parse(text, "site.toml", folder=tmp_path), "orders")


FAILS_OVER = """version = 1
[datasets.orders.failover]
copies = ["main", "west"]
[datasets.orders.copies.main.logs.a]
source = "a"
kind = "mysql"
[datasets.orders.copies.west.logs.a]
source = "a"
kind = "mysql"
[datasets.orders.copies.east.logs.a]
source = "a"
kind = "mysql"
[datasets.orders.archive]
to = "{to}"
[applications.archive]
dataset = "orders"
start = "latest"
"""


def test_an_archive_of_a_failover_is_of_whichever_copy_serves(tmp_path: Path) -> None:
    config = parse(FAILS_OVER.format(to="archive"), "site.toml", folder=tmp_path)
    made = store_of(config, "orders", create=True)
    assert made.copy == FAILOVER
    made.commit(replace(START, copy=FAILOVER))
    turned = parse(FAILS_OVER.format(to="archive").replace('"main", "west"', '"west", "main"'), "x", folder=tmp_path)
    assert store_of(turned, "orders").read("a") == replace(START, copy=FAILOVER)


def test_an_archive_goes_on_when_its_copy_gets_others_to_serve_for_it(store: ArchiveStore, tmp_path: Path) -> None:
    store.commit(START)
    config = parse(FAILS_OVER.format(to="archive"), "site.toml", folder=tmp_path)
    again = store_of(config, "orders", create=True)
    assert (again.copy, again.read("a")) == ("main", START), "what it is called stays, in every manifest"
    open_store(str(tmp_path / "other"), "orders", copy="east", create=True)
    with pytest.raises(ArchiveError, match=r"copy east; .* orders, copy @failover \[archive-misplaced\]"):
        store_of(parse(FAILS_OVER.format(to="other"), "site.toml", folder=tmp_path), "orders")
    alone = FAILS_OVER.format(to="archive").replace('start = "latest"', 'start = "latest"\ncopy = "east"')
    with pytest.raises(ArchiveError, match="copy main; what is wanted is orders, copy east"):
        store_of(parse(alone, "site.toml", folder=tmp_path), "orders")
