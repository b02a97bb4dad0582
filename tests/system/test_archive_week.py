"""An archive of a week: planning a replay, verifying and retention take seconds, and memory that does not grow with it.

Data files are names and sizes only, as none of the three opens one here (``verify --quick``). ``make soak`` has 600,000
files of 60 shards and prints what each step takes.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from spark_replay.archive.checksums import Blocks
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.newest_snapshot import needed_from
from spark_replay.archive.ranges import Asked, files_between, range_of
from spark_replay.archive.retention import GRACE_S, expire
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support.archives import FIRST_US, manifest_of, marker_at
from tests.support.memory_storage import MemoryStorage, memory_store

LONG: Final = "WORMHOLE_ROUNDS" in os.environ
SHARDS, FILES = (60, 10_000) if LONG else (3, 600)
MONTH, COMMITS = (43_200, 512) if LONG else (600, 64)
STEP_S: Final = 60
NOW_S: Final = FIRST_US // 1_000_000 + (FILES + 1) * STEP_S


def entries(shard: str, count: int) -> Iterator[FileEntry]:
    """A file a minute, as an archiver writes them."""
    begin = marker_at(0, shard)
    for number in range(1, count + 1):
        end = marker_at(number, shard, FIRST_US + number * STEP_S * 1_000_000)
        yield FileEntry(
            f"00000001-{number:08d}-{number * 2654435761 % 2**32:08x}.parquet",
            1000 + number,
            120_000 + number,
            begin,
            end,
            begin.committed_at_us or FIRST_US,
            end.committed_at_us,
            {"insert": 500, "update": 400 + number, "delete": 100},
            {"shop.customers": 700 + number, "shop.orders": 300},
            {"68b7556e2085c8a3": "shop.customers", "68b7556e2085c8a4": "shop.orders"},
            hash=number * 11400714819323198485 % 2**64,
            footer_crc=number * 2654435761 % 2**32,
            raw=400_000,
            blocks=Blocks(crcs=b"abcd"),
        )
        begin = end


def fill(store: ArchiveStore, storage: MemoryStorage, shard: str) -> None:
    files = tuple(entries(shard, FILES))
    manifest = Manifest("orders", shard, 1, 1, marker_at(0, shard), files[-1].end, True, files, copy="main", log=shard)
    store.change(shard, lambda _: manifest)
    for one in files:
        storage.lay(f"{shard}/data/{one.name}", one.bytes, FIRST_US // 1_000_000)


def archive(shards: int) -> tuple[ArchiveStore, MemoryStorage]:
    """Each shard with a file a minute."""
    store, storage = memory_store()
    for number in range(shards):
        fill(store, storage, f"db{number}")
    return store, storage


def planned(store: ArchiveStore) -> None:
    """Every flow from the beginning, by the manifests; a driver keeps the files of the ranges beside that."""
    for shard in store.chosen([]):
        manifest = manifest_of(store, shard)
        range_ = range_of(manifest, manifest.begin, Asked("earliest", earliest=True), Asked(), lambda _: ())
        rows = sum(one.rows for one in files_between(manifest, range_.begin, range_.until))
        assert rows == sum(1000 + number for number in range(1, FILES + 1))


def verified(store: ArchiveStore) -> None:
    """By manifests, names and sizes."""
    report = verify(store, quick=True)
    assert (report.problems, report.files, report.unnamed) == ([], FILES * len(store.shards()), 0)


def expired(store: ArchiveStore) -> None:
    """Half of the files are older than they are kept; nothing is changed."""
    assert needed_from(store) == (None, {})
    for shard in store.shards():
        (found,) = expire(store, FILES // 2 * STEP_S, NOW_S, [shard], dry_run=True)
        assert len(found.dropped) == FILES // 2


def deleted(store: ArchiveStore) -> None:
    """The same in earnest, and what is not named any more a day later."""
    for shard in store.shards():
        assert len(expire(store, FILES // 2 * STEP_S, NOW_S, [shard])[0].dropped) == FILES // 2
        assert len(expire(store, None, NOW_S + GRACE_S, [shard])[0].deleted) == FILES // 2


STEPS: Final = (planned, verified, expired)


def peaks(shards: int) -> list[int]:
    """The most memory that each step takes, beside what the archive itself takes here."""
    store, _ = archive(shards)
    found = []
    tracemalloc.start()
    for step in STEPS:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        step(store)
        found.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return found


def test_memory_does_not_grow_with_the_shards() -> None:
    one, four = peaks(1), peaks(4)
    assert all(more < 2.5 * few for few, more in zip(one, four, strict=True)), (one, four)  # the last and the next


def test_a_week(say: Callable[[str], None]) -> None:
    store, storage = archive(SHARDS)
    size = sum(len(data) for data in storage.data.values())
    say(f"\n{SHARDS * FILES:,} files of {SHARDS} shards, manifests and checkpoints of {size / 1e6:,.0f} MB")
    for step in (*STEPS, deleted):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.process_time()
        step(store)
        took = time.process_time() - begin
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
        say(f"{step.__name__}: {took:,.1f} s of processor time, {more >> 10:,} MiB more memory")
    report = verify(store, quick=True)
    assert (report.problems, report.files, report.unnamed) == ([], SHARDS * FILES // 2, 0)


def present(manifest: Manifest | None) -> Manifest:
    assert manifest is not None
    return manifest


def test_what_a_commit_costs(say: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk, at first and after a month of a file a minute."""
    store = open_store(str(tmp_path / "archive"), "orders", copy="main", create=True)
    files = tuple(entries("db", MONTH + COMMITS))
    start = Manifest("orders", "db", 1, 1, files[0].begin, files[0].begin, True, copy="main", log="db")
    written: list[int] = []
    create = store.storage.create_if_absent

    def counted(name: str, data: bytes) -> bool:
        written.append(len(data))
        return create(name, data)

    monkeypatch.setattr(store.storage, "create_if_absent", counted)

    def grown(one: Manifest | None) -> Manifest:
        end = files[MONTH].begin
        return replace(present(one), version=present(one).version + 1, end=end, files=files[:MONTH])

    def cost(some: Iterable[FileEntry]) -> tuple[float, float]:
        written.clear()
        times = []
        for entry in some:
            begin = time.perf_counter()
            store.change_newest("db", lambda one, entry=entry: present(one).appended(entry, 1))  # type: ignore[misc]
            times.append(time.perf_counter() - begin)
        return sum(written) / len(times), 1000 * statistics.median(times)

    store.commit(start)
    early = cost(files[:COMMITS])
    store.change("db", grown)
    late = cost(files[MONTH:])
    for when, (size, took) in (("the first", early), (f"those after {MONTH:,} files", late)):
        say(f"{COMMITS} commits, {when}: {size / 1000:,.1f} kB each, median {took:.1f} ms")
    assert late[0] < 2.5 * early[0]
    assert len(present(store.read("db")).files) == len(files)
