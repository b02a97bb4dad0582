"""What is too old goes by whole files from the front, and what the newest snapshot keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.layout import garbage_path
from spark_replay.archive.manifest import KnownLoss, Manifest
from spark_replay.archive.newest_snapshot import (
    NOTE,
    NewestSnapshot,
    continued_at,
    needed_from,
    note_snapshot,
    noted_snapshot,
)
from spark_replay.archive.retention import GRACE_S, expire, outdated, to_delete
from spark_replay.archive.storage import Stored
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support.archives import FIRST_US, copy_of, manifest_of, marker_at, put, tx, write_archive
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.position import LogPosition

# --- retention ---


FIRST_S = FIRST_US // 1_000_000


@pytest.fixture
def store(written: ArchiveStore, tmp_path: Path) -> ArchiveStore:
    """Files of one transaction each; the commit times are one to four seconds after FIRST_S, the files were written
    then too."""
    made = open_store(str(tmp_path / "archive"), "orders", copy="main", create=True)
    shutil.copytree(Path(written.to, "a"), Path(made.to, "a"))
    written_at(made, FIRST_S)
    return made


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    """Shard ``a`` with four files, ``b`` with two, of one transaction each."""
    files = {shard: [[tx(put(b"k%d" % n, b"v"))] for n in range(count)] for shard, count in (("a", 4), ("b", 2))}
    return write_archive(tmp_path_factory.mktemp("retention") / "archive", files)


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


# --- newest snapshot ---


LATER_S = FIRST_US // 1_000_000 + 1000


@pytest.fixture
def two_shards(written: ArchiveStore, tmp_path: Path) -> ArchiveStore:
    return copy_of(written, tmp_path / "archive")


def made(**numbers: int) -> NewestSnapshot:
    """A snapshot up to these transactions."""
    return NewestSnapshot("/s", "2026-05-01T00:00:00Z", {one: marker_at(at).order for one, at in numbers.items()})


def at(**numbers: int) -> Mapping[str, LogPosition]:
    return {shard: marker_at(number).order for shard, number in numbers.items()}


def note(two_shards: ArchiveStore, **numbers: int) -> NewestSnapshot | None:
    note_snapshot(two_shards, made(**numbers), two_shards.manifests())
    return noted_snapshot(two_shards)


def test_the_newest_one_is_noted_and_an_older_one_is_not(two_shards: ArchiveStore) -> None:
    assert needed_from(two_shards) == (None, {})
    assert note(two_shards, a=2, b=1) == made(a=2, b=1)
    assert note(two_shards, a=1, b=1) == made(a=2, b=1)
    assert note(two_shards, a=3, b=0) == made(a=2, b=1)
    assert note(two_shards, a=3, b=1) == made(a=3, b=1)
    assert needed_from(two_shards) == (made(a=3, b=1), at(a=3, b=1))


def test_one_that_cannot_be_continued_is_replaced(two_shards: ArchiveStore) -> None:
    note(two_shards, a=1, b=1)
    two_shards.change("a", lambda now: manifest_of(two_shards, "a").without_first(3))
    assert note(two_shards, a=0, b=0) == made(a=0, b=0)


def shorter(manifest: Manifest) -> Manifest:
    return manifest.without_first(2)


def lossy(manifest: Manifest) -> Manifest:
    return manifest.gap_accepted(KnownLoss(marker_at(6), "purged"), 1)


@pytest.mark.parametrize(
    ("snapshot", "a", "needed"),
    [
        (made(a=1, b=2), None, at(a=1, b=2)),
        (made(a=1), None, at(a=1, b=0)),  # a new shard from its first row on
        (made(a=1, b=2, c=1), None, {}),
        (made(a=5, b=2), None, {}),  # an older archive was restored
        (made(a=2, b=1), shorter, at(a=2, b=1)),
        (made(a=1, b=1), shorter, {}),
        (made(b=1), shorter, {}),
        (made(a=4, b=1), lossy, {}),
        (made(a=6, b=1), lossy, at(a=6, b=1)),
    ],
)
def test_from_where_on_the_next_one_needs_the_archive(
    two_shards: ArchiveStore,
    snapshot: NewestSnapshot,
    a: Callable[[Manifest], Manifest] | None,
    needed: Mapping[str, LogPosition],
) -> None:
    manifests = two_shards.manifests()
    changed = manifests if a is None else {**manifests, "a": a(manifests["a"])}
    assert continued_at(snapshot, changed) == needed


def test_what_the_next_one_needs_is_not_too_old(two_shards: ArchiveStore) -> None:
    for shard, number in (("a", 4), ("b", 2)):
        for one in two_shards.data_files(shard):
            os.utime(two_shards.data_path(shard, one.name), (0, 0))
        assert len(manifest_of(two_shards, shard).files) == number
    note(two_shards, a=2, b=2)
    a, b = expire(two_shards, 1, LATER_S, needed_from=needed_from(two_shards)[1])
    assert ([len(one) for one in (a.dropped, a.needed)], [len(one) for one in (b.dropped, b.needed)]) == (
        [2, 2],
        [2, 0],
    )
    assert manifest_of(two_shards, "a").begin == marker_at(2, "a")
    note(two_shards, a=3, b=2)
    (a,) = expire(two_shards, 1, LATER_S, ["a"], needed_from=needed_from(two_shards)[1])
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 1]
    (a,) = expire(two_shards, None, LATER_S, ["a"], needed_from=needed_from(two_shards)[1])
    assert (a.dropped, a.needed) == ((), ()), "nothing is too old"
    (a,) = expire(two_shards, 1, LATER_S, ["a"])
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 0], "unless that is asked for"


def test_rows_that_were_read_at_the_place_itself_are_needed(two_shards: ArchiveStore) -> None:
    for one in two_shards.data_files("a"):
        os.utime(two_shards.data_path("a", one.name), (0, 0))
    manifest = manifest_of(two_shards, "a")
    second = replace(manifest.files[1], ops={"read": 1})
    files = (manifest.files[0], second, *manifest.files[2:])
    two_shards.commit(replace(manifest, version=manifest.version + 1, files=files))
    (a,) = expire(two_shards, 1, LATER_S, ["a"], dry_run=True, needed_from=at(a=2))
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 3]


def test_a_damaged_note_is_an_error_that_names_it(two_shards: ArchiveStore) -> None:
    note(two_shards, a=2, b=1)
    path = Path(two_shards.storage.path(NOTE))
    whole = path.read_bytes()
    for at_byte in range(0, len(whole), 7):
        path.write_bytes(whole[:at_byte] + bytes([whole[at_byte] ^ 4]) + whole[at_byte + 1 :])
        with pytest.raises(ArchiveError, match=NOTE):
            noted_snapshot(two_shards)
    path.write_bytes(with_checksum({"format": 2}))
    with pytest.raises(ArchiveError, match="was written by a newer release"):
        noted_snapshot(two_shards)
