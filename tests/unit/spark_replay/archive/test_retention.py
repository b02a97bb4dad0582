"""What is too old goes by whole files from the front; what nobody names goes a day after it was seen."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.layout import garbage_path
from spark_replay.archive.retention import GRACE_S, expire, outdated, to_delete
from spark_replay.archive.storage import Stored
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import verify
from tests.support.archives import FIRST_US, manifest_of, marker_at, put, tx, write_archive
from wormhole.model.errors import UsageError

FIRST_S = FIRST_US // 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """Files of one transaction each; the commit times are one to four seconds after FIRST_S, the files were written
    then too."""
    made = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k%d" % n, b"v"))] for n in range(4)]})
    written_at(made, FIRST_S)
    return made


def written_at(store: ArchiveStore, at_s: int) -> None:
    for one in store.data_files("a"):
        os.utime(store.data_path("a", one.name), (at_s, at_s))


def names(store: ArchiveStore) -> list[str]:
    return [entry.name for entry in manifest_of(store).files]


def test_first_unnamed_then_deleted(store: ArchiveStore) -> None:
    before, now = names(store), FIRST_S + 1000
    [done] = expire(store, 998, now)
    assert [one.name for one in done.dropped] == before[:1]
    assert (done.deleted, [one.name for one in done.waiting]) == ((), before[:1])
    assert names(store) == before[1:]
    manifest = manifest_of(store)
    assert (manifest.begin, manifest.whole) == (marker_at(1), False)
    assert verify(store, deep=True).problems == []

    [later] = expire(store, None, now + GRACE_S - 1)
    assert (later.dropped, later.deleted, len(later.waiting)) == ((), (), 1)
    assert len(store.data_files("a")) == 4

    [last] = expire(store, None, now + GRACE_S)
    assert [one.name for one in last.deleted] == before[:1]
    assert [one.name for one in store.data_files("a")] == before[1:]
    assert expire(store, None, now + 2 * GRACE_S)[0].waiting == ()
    assert store.storage.read(garbage_path("a")) == b"{}"


def test_for_ever_is_for_ever(store: ArchiveStore) -> None:
    before = store.read("a")
    assert expire(store, None, FIRST_S * 2, ["a"])[0].dropped == ()
    assert store.read("a") == before
    with pytest.raises(UsageError, match="nothing is archived of shard b"):
        expire(store, None, FIRST_S, ["b"])


def test_what_a_dead_writer_left_goes_but_not_what_is_being_written(store: ArchiveStore) -> None:
    now = FIRST_S + 10 * GRACE_S
    for name, at_s in (("left", now), ("growing", now + 3 * GRACE_S)):
        store.create_data("a", name).close()
        os.utime(store.data_path("a", name), (at_s, at_s))
    assert expire(store, None, now)[0].deleted == ()
    [done] = expire(store, None, now + GRACE_S)
    assert [one.name for one in done.deleted] == ["left"]
    assert [one.name for one in done.waiting] == ["growing"]


@pytest.mark.parametrize("kept", [b"", b"[]", b"{", b'{"x": "y"}', b"\xff"])
def test_a_damaged_list_makes_all_wait_again(store: ArchiveStore, kept: bytes) -> None:
    store.create_data("a", "left").close()
    store.storage.replace(garbage_path("a"), kept)
    assert [one.name for one in expire(store, None, FIRST_S * 2)[0].waiting] == ["left"]


def test_the_first_young_file_keeps_what_is_behind_it(store: ArchiveStore) -> None:
    manifest = manifest_of(store)
    a, b, c, d = manifest.files
    mixed = replace(manifest, files=(a, replace(b, last_us=FIRST_US * 2), c, d))
    assert outdated(mixed, FIRST_US + 10_000_000, {}) == 1
    assert outdated(manifest, FIRST_US + 3_000_000, {}) == 2


def test_without_times_that_of_writing_counts(store: ArchiveStore) -> None:
    manifest = manifest_of(store)
    silent = replace(
        manifest,
        files=tuple(replace(one, last_us=0, end=replace(one.end, committed_at_us=0)) for one in manifest.files),
    )
    written = {one.name: at for one, at in zip(manifest.files, (1, 2, 9, 1), strict=True)}
    assert outdated(silent, 5, written) == 2
    # Not known at all: kept.
    assert outdated(silent, 5, {}) == 0


def test_both_ages_count() -> None:
    files = [Stored("a", 1, 0), Stored("b", 1, 90), Stored("c", 1, 0)]
    gone, still = to_delete(files, {"a": 10, "b": 10, "other": 1}, 100, grace_s=50)
    assert [one.name for one in gone] == ["a"]
    assert still == {"b": 10, "c": 100}


def test_a_clock_that_was_ahead_keeps_nothing_for_ever() -> None:
    """What it saw in years to come would wait until then."""
    unnamed = Stored("x", 1, FIRST_S)
    gone, seen = to_delete([unnamed], {}, FIRST_S + 3_000_000_000)
    assert (gone, list(seen)) == ((), ["x"])
    now = FIRST_S + 1000
    gone, seen = to_delete([unnamed], seen, now)
    assert (gone, seen) == ((), {"x": now})
    assert to_delete([unnamed], seen, now + GRACE_S) == ((unnamed,), {})
