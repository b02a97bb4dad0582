"""Manifests name checkpoints of their older files: what a commit writes does not grow, and nothing is lost by it."""

from __future__ import annotations

import contextlib
import json
import random
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive.checkpoints import INLINE, LARGEST, Listed, arranged, held_chunks, joined
from spark_replay.archive.checksums import Blocks
from spark_replay.archive.coverage import chain_problems
from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.layout import KEPT_VERSIONS, checkpoint_path, manifest_path
from spark_replay.archive.manifest import (
    Checkpoint,
    FileEntry,
    Manifest,
    checkpoint_to_json,
    manifest_from_json,
    manifest_to_json,
)
from spark_replay.archive.retention import GRACE_S, expire
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support.archives import (
    manifest_of,
    marker_at,
    present,
    put,
    segments,
    tx,
    write_archive,
    write_file,
)
from tests.support.memory_storage import MemoryStorage, memory_store
from tests.support.power_cuts import PowerCut, cut_after, steps_left
from wormhole.model.errors import ArchiveConflict, ArchiveError, ArchiveUnavailable
from wormhole.model.position import LogPosition

START = Manifest("orders", "a", 1, 1, marker_at(0), marker_at(0), True, copy="main", log="a")
BLOCKS = Blocks(crcs=bytes(4))
marker = cache(marker_at)


@pytest.fixture
def store() -> ArchiveStore:
    """In memory: what is written here is small and often."""
    return memory_store()[0]


def entry(number: int, until: int = 0) -> FileEntry:
    begin, end = marker(number), marker(until or number + 1)
    rows = (until or number + 1) - number
    name = f"{number}-{until or number + 1}.parquet"
    return FileEntry(
        name, rows, 900, begin, end, 1, 2, {"upsert": rows}, {"t": rows}, {"00000000000000aa": "t"}, blocks=BLOCKS
    )


def appended(number: int) -> Callable[[Manifest | None], Manifest]:
    def decide(present: Manifest | None) -> Manifest:
        if present is None:
            return replace(START, end=marker(1), files=(entry(0),))
        return present.appended(entry(number), present.epoch)

    return decide


def grown(store: ArchiveStore, until: int, begin: int = 0) -> None:
    """Files of one transaction each, one commit for each."""
    for number in range(begin, until):
        store.change_newest("a", appended(number))


def numbers(store: ArchiveStore) -> list[str]:
    return [one.name for one in manifest_of(store).files]


def entries(count: int) -> list[str]:
    return [entry(number).name for number in range(count)]


# --- which checkpoints there are: pure ---


class Lists:
    """What is stored, as the store would do it; every list is counted that is written."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[FileEntry, ...]] = {}
        self.named: list[Checkpoint] = []
        self.rest: tuple[FileEntry, ...] = ()
        self.written = 0

    @property
    def files(self) -> tuple[FileEntry, ...]:
        return (*(one for each in self.named for one in self.stored[each.name]), *self.rest)

    def commit(self, files: tuple[FileEntry, ...], read: bool) -> None:
        if read:
            known = [Listed(one.files, one, self.stored[one.name]) for one in self.named]
            chunks, rest = held_chunks(files, known)
        else:
            chunks = [Listed(one.files, one) for one in self.named]
            rest = files[sum(one.files for one in self.named) :]
        groups, self.rest = arranged(chunks, rest)
        self.named = []
        for group in groups:
            if len(group) == 1 and group[0].stored:
                self.named.append(group[0].stored)
                continue
            made = joined(group, lambda one: self.stored[one.name])
            place = made[0].begin.order
            self.named.append(Checkpoint(str(len(self.stored)), len(made), 0, 0, place, place))
            self.stored[str(len(self.stored))] = made
            self.written += len(made)
        assert self.files == files
        assert bool(self.rest) == bool(files)
        assert len(self.rest) <= INLINE
        assert max((one.files for one in self.named), default=0) <= LARGEST


def test_a_file_is_listed_in_three_checkpoints_in_its_life() -> None:
    lists, files = Lists(), tuple(entry(number) for number in range(2 * LARGEST + 100))
    for count in range(1, len(files) + 1):
        lists.commit(files[:count], read=False)
        assert len(lists.named) <= 15 + 15 + count // LARGEST
    assert lists.written <= 3 * len(files)
    assert [one.files for one in lists.named[:2]] == [LARGEST, LARGEST]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_done_to_files_they_are_listed_once_and_in_order(seed: int) -> None:
    choice, lists, number = random.Random(seed), Lists(), 0
    files: tuple[FileEntry, ...] = ()
    for _ in range(150):
        what = choice.randrange(6)
        if what < 4 or len(files) < 3:
            count = choice.choice([1, 1, 1, 2, 40, 700])
            added = tuple(entry(one) for one in range(number, number + count))
            number += count
            files, read = (*files, *added), choice.random() < 0.3
        elif what == 4:  # merged
            at = choice.randrange(len(files) - 1)
            until = choice.randrange(at, min(len(files) - 1, at + choice.choice([2, 60, 900]))) + 1
            one = FileEntry(
                f"m{number}-{at}-{_}", 1, 1, files[at].begin, files[until - 1].end, 1, 1, {}, {}, blocks=BLOCKS
            )
            files, read = (*files[:at], one, *files[until:]), True
        else:
            files, read = files[choice.randrange(1, len(files)) :], True
        lists.commit(files, read)
        if number > 15_000:
            break
    before = lists.written
    lists.commit(files, read=True)
    assert lists.written == before, "what stays as it is is not written again"


def test_a_manifest_lists_the_newest_file_itself_whatever_goes() -> None:
    files = tuple(entry(number) for number in range(INLINE))
    assert held_chunks(
        files, [Listed(INLINE, Checkpoint("x", INLINE, 0, 0, START.begin.order, START.end.order), files)]
    ) == (
        [],
        files,
    )


def test_many_files_at_once_are_listed_in_as_few_checkpoints_as_can_be() -> None:
    lists = Lists()
    lists.commit(tuple(entry(number) for number in range(2 * LARGEST + 300)), read=True)
    assert [one.files for one in lists.named] == [LARGEST, LARGEST, 256, 16, 16]
    assert len(lists.rest) == 12


# --- the store ---


def test_older_files_are_in_checkpoints(any_store: ArchiveStore) -> None:
    grown(any_store, 2 * INLINE + 3)
    head = present(any_store.head("a"))
    assert ([one.files for one in head.older], len(head.files)) == ([INLINE, INLINE], 3)
    assert [(one.begin, one.end) for one in head.older] == [
        (marker(16 * n).order, marker(16 * n + 16).order) for n in range(2)
    ]
    manifest = manifest_of(any_store)
    assert (manifest.older, manifest.version, numbers(any_store)) == ((), 35, entries(35))
    assert chain_problems(manifest) == []
    assert any_store.heads() == {"a": head}
    assert any_store.named_checkpoints("a") == {one.name for one in any_store.checkpoints("a")}
    # What takes files away, and what swaps them, keeps the lists that are not touched.
    any_store.change("a", lambda one: present(one).swapped([entry(n).name for n in (2, 3)], entry(2, 4)))
    after = present(any_store.head("a"))
    assert ([one.files for one in after.older], after.older[1]) == ([15, INLINE], head.older[1])
    any_store.change("a", lambda one: present(one).without_first(20))
    assert numbers(any_store) == entries(35)[21:]
    assert any_store.head("a") == replace(manifest_of(any_store), older=())


def test_what_a_commit_writes_and_reads_does_not_grow() -> None:
    store, storage = memory_store()
    grown(store, 200)

    def cost(begin: int) -> tuple[float, float]:
        storage.written = storage.got = 0
        grown(store, begin + 256, begin)
        return storage.written / 256, storage.got / 256

    def many(one: Manifest | None) -> Manifest:
        files = (*present(one).files, *(entry(number) for number in range(456, 4500)))
        return replace(present(one), version=present(one).version + 1, files=files, end=marker(4500))

    early = cost(200)
    store.change("a", many)
    late = cost(4500)
    assert all(one < 1.5 * other for one, other in zip(late, early, strict=True)), (early, late)
    assert late[0] < 12_000


def test_only_who_read_every_file_may_change_them(store: ArchiveStore) -> None:
    grown(store, 20)
    head = present(store.head("a"))
    for change, decide, told in (
        (store.change_newest, lambda one: one.without_first(1), "the older files of a were not read"),
        (
            store.change_newest,
            lambda one: one.swapped([entry(19).name], entry(19)),
            "the older files of a were not read",
        ),
        (store.change_newest, lambda one: replace(one.claimed(2), older=()), "has other checkpoints than the one"),
        (store.change, lambda one: replace(one.claimed(2), older=head.older), "has other checkpoints than the one"),
    ):
        with pytest.raises(ValueError, match=told):
            change("a", decide)
    assert numbers(store) == entries(20)


# --- what dies, and who races ---


@pytest.mark.parametrize("count", [INLINE, 16 * INLINE])
def test_the_writer_dies_at_each_step_of_a_commit_with_a_checkpoint(count: int) -> None:
    """``count``: files before it; the next one makes a checkpoint, or one of sixteen."""
    store, storage = memory_store()
    grown(store, count)
    before = storage.saved()
    step, done = 0, False
    while not done:
        store, storage = memory_store()
        storage.restore(before)
        storage.step = steps_left(step)
        with contextlib.suppress(PowerCut):
            grown(store, count + 1, count)
            done = True
        storage.step = lambda _: None
        found = numbers(store)
        assert found in (entries(count), entries(count + 1))
        assert found == entries(count + 1) or not done
        # The next one goes on, and what was left is garbage after a day.
        grown(store, len(found) + KEPT_VERSIONS + 1, len(found))
        assert numbers(store) == entries(len(found) + KEPT_VERSIONS + 1)
        for day in range(3):
            expire(store, None, (day + 1) * GRACE_S)
        assert {one.name for one in store.checkpoints("a")} == store.named_checkpoints("a")
        assert numbers(store) == entries(len(found) + KEPT_VERSIONS + 1)
        step += 1
    assert step >= 5


def test_power_cuts_on_a_disk_while_a_checkpoint_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every durable step of a real disk: links, syncs, removals."""
    store = open_store(str(tmp_path / "archive"), "orders", copy="main", create=True)
    for number in range(INLINE):
        write_file(store, "a", segments("a", [tx(put(b"k", b"w"))], number + 1), marker_at(number + 1))
    step, done, at = 0, False, INLINE
    while not done:
        with monkeypatch.context() as patched:
            cut_after(step, patched)
            with contextlib.suppress(PowerCut):
                write_file(store, "a", segments("a", [tx(put(b"k", b"w"))], at + 1), marker_at(at + 1))
                done = True
        found = len(store.read("a", settled=True).files)  # type: ignore[union-attr]
        assert found in (at, at + 1)
        assert found == at + 1 or not done
        at = found
        if at > INLINE:
            break
        step += 1
    assert step >= 9, "the checkpoint's own steps were not among them"
    assert verify(store, deep=True).problems == []


def test_of_many_writers_that_all_make_checkpoints_each_adds_its_own(store: ArchiveStore) -> None:
    store.commit(START)

    def add(writer: int) -> None:
        for number in range(20):
            name = f"w{writer}-{number}"
            while True:
                with contextlib.suppress(ArchiveConflict):
                    store.change_newest(
                        "a",
                        lambda one, name=name: replace(  # type: ignore[misc]
                            present(one),
                            version=present(one).version + 1,
                            files=(*present(one).files, replace(entry(0), name=name)),
                        ),
                    )
                    break

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(add, range(3)))
    found = numbers(store)
    assert sorted(found) == sorted(f"w{writer}-{number}" for writer in range(3) for number in range(20))
    for writer in range(3):
        assert [one for one in found if one.startswith(f"w{writer}")] == [f"w{writer}-{n}" for n in range(20)]


def test_who_is_overtaken_decides_again_and_its_checkpoint_counts_for_nobody() -> None:
    store, storage = memory_store()
    grown(store, INLINE)
    overtaken = False

    def other(what: str) -> None:
        nonlocal overtaken
        if what.startswith("after a/checkpoints") and not overtaken:
            overtaken = True
            store.change_newest("a", lambda one: present(one).claimed(1))

    storage.step = other
    store.change_newest("a", appended(INLINE), pause=lambda _: None)
    assert overtaken
    assert (numbers(store), manifest_of(store).version) == (entries(INLINE + 1), INLINE + 2)
    lying = {one.name for one in store.checkpoints("a")}
    assert len(lying - store.named_checkpoints("a")) == 1
    expire(store, None, 2 * GRACE_S)
    assert {one.name for one in store.checkpoints("a")} == lying, "it may be somebody's who is about to commit"
    expire(store, None, 3 * GRACE_S)
    assert {one.name for one in store.checkpoints("a")} == store.named_checkpoints("a")
    assert numbers(store) == entries(INLINE + 1)


def test_an_answer_that_got_lost_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    store, storage = memory_store()
    grown(store, INLINE)
    make = storage.create_if_absent
    monkeypatch.setattr(storage, "create_if_absent", lambda *given: make(*given) and False)
    grown(store, INLINE + 1, INLINE)
    assert numbers(store) == entries(INLINE + 1)
    monkeypatch.setattr(
        storage, "create_if_absent", lambda name, data: "/checkpoints/" not in name and make(name, data)
    )
    with pytest.raises(ArchiveUnavailable, match="is there with other contents"):
        grown(store, 2 * INLINE + 1, INLINE + 1)


# --- a checkpoint is lost, damaged, or another one ---


def lose(store: ArchiveStore, number: int = 0) -> str:
    head = present(store.head("a"))
    store.delete_checkpoint("a", head.older[number].name)
    return head.older[number].name


def test_a_checkpoint_that_is_lost_is_one_clear_error(store: ArchiveStore) -> None:
    grown(store, 40)
    name = lose(store, 1)
    with pytest.raises(ArchiveError) as caught:
        store.read("a")
    assert str(caught.value.message) == (
        f"{store.storage.path(checkpoint_path('a', name))} is gone; manifest 40 of a names it for 16 files between "
        "1/1/1600 and 1/1/3200"
    )
    assert "restore the file from a backup" in str(caught.value.hint)
    [problem] = verify(store).problems
    assert (problem.shard, "is gone; manifest 40 of a" in problem.text) == ("a", True)
    # What was restored elsewhere is the same again.
    with pytest.raises(ArchiveError, match="is gone"):
        expire(store, None, GRACE_S)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"rows":1', b'"rows":2', 1),
        lambda data: data[:-1],
        lambda _: b"",
        lambda data: data + b" ",
    ],
)
def test_a_checkpoint_that_is_damaged_or_older_is_named(store: ArchiveStore, change: Callable[[bytes], bytes]) -> None:
    grown(store, 40)
    path = checkpoint_path("a", present(store.head("a")).older[0].name)
    store.storage.replace(path, change(store.storage.read(path) or b""))
    with pytest.raises(ArchiveError, match=r"manifest 40 of a .*\[archive-damaged\]"):
        store.read("a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: given.pop("files"), "is no checkpoint: KeyError"),
        (lambda given: given.update(shard="b"), "of dataset orders, copy main, shard b"),
        (lambda given: given.update(files=given["files"][1:]), "it lists 15 files"),
        (lambda given: given.update(format=3), "written by a newer release: its format is 3"),
        (lambda given: given["files"][0].update(schemas=None), "is no checkpoint: AttributeError"),
        (lambda given: given["files"][0].update(name="../x"), "is no name of a file"),
    ],
)
def test_a_checkpoint_that_somebody_made_is_refused(
    store: ArchiveStore, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    grown(store, 20)
    head = present(store.head("a"))
    [one] = head.older
    path = checkpoint_path("a", one.name)
    given = json.loads(store.storage.read(path) or b"")
    change(given)
    data = json.dumps(given).encode()
    store.storage.replace(path, data)
    named = replace(one, bytes=len(data), crc32=zlib.crc32(data))
    store.commit(replace(head, version=head.version + 1, older=(named,)))
    with pytest.raises(ArchiveError, match=said):
        store.read("a")


def test_a_checkpoint_at_no_place_is_named(store: ArchiveStore) -> None:
    grown(store, 20)
    head = present(store.head("a"))
    data = manifest_to_json(replace(head, version=head.version + 1)).replace(b"1/1/1600", b"1o1o1600")
    with pytest.raises(ArchiveError, match="is no manifest"):
        manifest_from_json(with_checksum({k: v for k, v in json.loads(data).items() if k != "crc32"}), "x")


def test_a_manifest_with_checkpoints_and_no_file_of_its_own_is_none(store: ArchiveStore) -> None:
    grown(store, 20)
    head = present(store.head("a"))
    store.commit(replace(head, version=head.version + 1, files=()))
    with pytest.raises(ArchiveError, match="it names checkpoints, and no newest file"):
        store.head("a")


def test_the_archiver_goes_on_where_a_checkpoint_is_lost(store: ArchiveStore, caplog: pytest.LogCaptureFixture) -> None:
    """What it adds needs no older file, and the log must not be kept for them."""
    grown(store, 20)
    name = lose(store)
    grown(store, 16 * INLINE + 2, 20)
    assert f"{name} is gone" in caplog.text
    head = present(store.head("a"))
    assert [one.files for one in head.older] == [INLINE] * 16
    assert head.end == marker(16 * INLINE + 2)
    # The file comes back from a backup: everything is there again, and becomes one list.
    files = tuple(entry(number) for number in range(INLINE))
    store.storage.create_if_absent(checkpoint_path("a", name), checkpoint_to_json(head, files))
    assert numbers(store) == entries(16 * INLINE + 2)
    grown(store, 16 * INLINE + 3, 16 * INLINE + 2)
    assert [one.files for one in present(store.head("a")).older] == [256]
    assert numbers(store) == entries(16 * INLINE + 3)


def test_a_storage_that_is_away_while_lists_are_joined_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store, storage = memory_store()
    grown(store, 16 * INLINE)
    read = storage.read

    def away(name: str) -> bytes | None:
        if "/checkpoints/" in name:
            raise ArchiveUnavailable("away")
        return read(name)

    monkeypatch.setattr(storage, "read", away)
    with pytest.raises(ArchiveUnavailable):
        grown(store, 16 * INLINE + 1, 16 * INLINE)
    monkeypatch.undo()
    assert numbers(store) == entries(16 * INLINE)


def test_an_older_manifest_that_counts_again_has_its_checkpoints() -> None:
    """Somebody moves newer ones away, within the twenty that stay, on any day."""
    store, storage = memory_store()
    grown(store, 16 * INLINE - 6)
    heads = {}
    for number in range(16 * INLINE - 6, 16 * INLINE + 6):
        grown(store, number + 1, number)
        heads[number + 1] = manifest_of(store)
    for day in range(1, 4):
        expire(store, None, day * GRACE_S)
    for count in sorted(heads, reverse=True)[:-1]:
        assert manifest_of(store) == heads[count]
        storage.delete(manifest_path("a", count))


def test_a_folder_set_back_stops_an_archiver_that_knows_better(store: ArchiveStore) -> None:
    grown(store, 20)
    writer = ShardWriter.claim(store, "a", 1, marker(20))
    assert (writer.manifest.older, len(writer.manifest.files)) == ((), 1)
    for version in range(18, 21):
        store.storage.delete(manifest_path("a", version))
    with pytest.raises(ArchiveError, match="its manifests were set back"):
        ShardWriter.claim(store, "a", 1, marker(20), acknowledged=True)
    assert numbers(store) == entries(17)


def test_retention_leaves_lists_that_are_still_named(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k%d" % n, b"v"))] for n in range(20)]})
    before = {one.name for one in store.checkpoints("a")}
    now = 4_000_000_000
    for day in range(3):
        expire(store, None, now + day * GRACE_S)
    assert {one.name for one in store.checkpoints("a")} == before
    # Retention takes every file of the list; it goes when no manifest names it, and has been seen so for a day.
    expire(store, 0, now + 4 * GRACE_S)
    assert manifest_of(store).files == ()
    for _ in range(KEPT_VERSIONS):
        store.change_newest("a", lambda one: present(one).claimed(1))
    for day in range(5, 8):
        expire(store, None, now + day * GRACE_S)
    assert store.checkpoints("a") == []
    assert LogPosition(1, 1, 2000) == manifest_of(store).end.order


def test_an_older_manifest_that_is_damaged_does_not_stop_retention() -> None:
    store, storage = memory_store()
    assert isinstance(storage, MemoryStorage)
    grown(store, 20)
    named = store.named_checkpoints("a")
    storage.replace(manifest_path("a", 19), b"{")
    assert store.named_checkpoints("a") == named
