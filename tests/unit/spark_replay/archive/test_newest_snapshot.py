"""What the archive knows of the newest snapshot, and what retention keeps for the next one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.manifest import KnownLoss, Manifest
from spark_replay.archive.newest_snapshot import (
    NOTE,
    NewestSnapshot,
    continued_at,
    needed_from,
    note_snapshot,
    noted_snapshot,
)
from spark_replay.archive.retention import expire
from spark_replay.archive.store import ArchiveStore
from tests.support.archives import FIRST_US, manifest_of, marker_at, put, tx, write_archive
from wormhole.model.errors import ArchiveError
from wormhole.model.position import LogPosition

LATER_S = FIRST_US // 1_000_000 + 1000


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """Shard ``a`` with four files, ``b`` with two, of one transaction each."""
    files = {shard: [[tx(put(b"k%d" % n, b"v"))] for n in range(count)] for shard, count in (("a", 4), ("b", 2))}
    return write_archive(tmp_path / "archive", files)


def made(**numbers: int) -> NewestSnapshot:
    """A snapshot up to these transactions."""
    return NewestSnapshot("/s", "2026-05-01T00:00:00Z", {one: marker_at(at).order for one, at in numbers.items()})


def at(**numbers: int) -> Mapping[str, LogPosition]:
    return {shard: marker_at(number).order for shard, number in numbers.items()}


def note(store: ArchiveStore, **numbers: int) -> NewestSnapshot | None:
    note_snapshot(store, made(**numbers), store.manifests())
    return noted_snapshot(store)


def test_the_newest_one_is_noted_and_an_older_one_is_not(store: ArchiveStore) -> None:
    assert needed_from(store) == (None, {})
    assert note(store, a=2, b=1) == made(a=2, b=1)
    assert note(store, a=1, b=1) == made(a=2, b=1)
    assert note(store, a=3, b=0) == made(a=2, b=1)
    assert note(store, a=3, b=1) == made(a=3, b=1)
    assert needed_from(store) == (made(a=3, b=1), at(a=3, b=1))


def test_one_that_cannot_be_continued_is_replaced(store: ArchiveStore) -> None:
    note(store, a=1, b=1)
    store.change("a", lambda now: manifest_of(store, "a").without_first(3))
    assert note(store, a=0, b=0) == made(a=0, b=0)


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
    store: ArchiveStore,
    snapshot: NewestSnapshot,
    a: Callable[[Manifest], Manifest] | None,
    needed: Mapping[str, LogPosition],
) -> None:
    manifests = store.manifests()
    changed = manifests if a is None else {**manifests, "a": a(manifests["a"])}
    assert continued_at(snapshot, changed) == needed


def test_what_the_next_one_needs_is_not_too_old(store: ArchiveStore) -> None:
    for shard, number in (("a", 4), ("b", 2)):
        for one in store.data_files(shard):
            os.utime(store.data_path(shard, one.name), (0, 0))
        assert len(manifest_of(store, shard).files) == number
    note(store, a=2, b=2)
    a, b = expire(store, 1, LATER_S, needed_from=needed_from(store)[1])
    assert ([len(one) for one in (a.dropped, a.needed)], [len(one) for one in (b.dropped, b.needed)]) == (
        [2, 2],
        [2, 0],
    )
    assert manifest_of(store, "a").begin == marker_at(2, "a")
    note(store, a=3, b=2)
    (a,) = expire(store, 1, LATER_S, ["a"], needed_from=needed_from(store)[1])
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 1]
    (a,) = expire(store, None, LATER_S, ["a"], needed_from=needed_from(store)[1])
    assert (a.dropped, a.needed) == ((), ()), "nothing is too old"
    (a,) = expire(store, 1, LATER_S, ["a"])
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 0], "unless that is asked for"


def test_rows_that_were_read_at_the_place_itself_are_needed(store: ArchiveStore) -> None:
    for one in store.data_files("a"):
        os.utime(store.data_path("a", one.name), (0, 0))
    manifest = manifest_of(store, "a")
    second = replace(manifest.files[1], ops={"read": 1})
    files = (manifest.files[0], second, *manifest.files[2:])
    store.commit(replace(manifest, version=manifest.version + 1, files=files))
    (a,) = expire(store, 1, LATER_S, ["a"], dry_run=True, needed_from=at(a=2))
    assert [len(one) for one in (a.dropped, a.needed)] == [1, 3]


def test_a_damaged_note_is_an_error_that_names_it(store: ArchiveStore) -> None:
    note(store, a=2, b=1)
    path = Path(store.storage.path(NOTE))
    whole = path.read_bytes()
    for at_byte in range(0, len(whole), 7):
        path.write_bytes(whole[:at_byte] + bytes([whole[at_byte] ^ 4]) + whole[at_byte + 1 :])
        with pytest.raises(ArchiveError, match=NOTE):
            noted_snapshot(store)
    path.write_bytes(b'{"format": 2}')
    with pytest.raises(ArchiveError, match="was written by a newer release"):
        noted_snapshot(store)
