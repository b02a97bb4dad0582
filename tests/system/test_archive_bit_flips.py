"""One bit of an archive is flipped: every reader gives the rows that were written, or an error that names the file.

Some bits of every region of the files; ``make soak`` flips one in every byte of them, and every bit of a manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.compact import Group, merge
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from spark_replay.audit.archived import Selecting
from spark_replay.audit.auditor import Audit, FlowCounts, audit
from spark_replay.frames import ShardFiles, read, reading
from spark_replay.replay.estimate import estimate
from spark_replay.replay.keyed import LastChanges, rows_of
from spark_replay.replay.pieces import Formats, Selector, log_pieces
from spark_replay.tables.history import history
from spark_replay.tables.rows import read as read_tables
from tests.support.archives import CUSTOMERS, FIRST_US, manifest_of, marker_at, put, row, tx, write_archive
from wormhole.audit.delivery_counts import RangeKind
from wormhole.formats import ValueFormats
from wormhole.model.errors import WormholeError
from wormhole.model.values import Op

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "WORMHOLE_ROUNDS" in os.environ
SEED = int(os.environ.get("WORMHOLE_SEED", "11"))
TRANSACTIONS = 9
ALL = Selector("", "", ValueFormats())

Reader = Callable[[ArchiveStore], object]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    chance = Random(SEED)

    def changes(first: int) -> list[Any]:
        rows = [
            row(Op.UPDATE, (i, f"n{first}", "Rome", i), (i, "n", "Oslo", chance.randrange(99)))
            for i in range(first, first + 12)
        ]
        return [tx(*rows[:6]), tx(*rows[6:], pieces=2), tx(*(put(b"%d" % i, chance.randbytes(40)) for i in range(12)))]

    files = [changes(first) for first in (0, 5, 10)]
    return write_archive(tmp_path_factory.mktemp("flips") / "archive", {"a": files}, row_group=1500)


def chosen(store: ArchiveStore) -> ShardFiles:
    return ShardFiles("a", manifest_of(store).files, marker_at(0), marker_at(TRANSACTIONS))


def rows(store: ArchiveStore) -> object:
    return [one for batch in rows_of(store, chosen(store), SCHEMA.names) for one in batch.to_pylist()]


def pushed(store: ArchiveStore) -> object:
    pieces = log_pieces(store, "a", marker_at(0), marker_at(TRANSACTIONS), ALL)
    return [(one.body and one.body.data, one.offer) for one in pieces]


def folded(store: ArchiveStore) -> object:
    return [one for batch in LastChanges(store, chosen(store)) for one in batch.to_pylist()]


def counted(store: ArchiveStore) -> object:
    return estimate(None, store, [chosen(store)])


def merged(store: ArchiveStore) -> object:
    """By a merge that is taken back, so that the next flip meets the same archive."""
    result = merge(store, Group("a", manifest_of(store).files))
    try:
        return result.state, rows(store)
    finally:
        after = manifest_of(store)
        store.storage.delete(f"a/manifests/{after.version:020}.json")
        store.delete_data("a", after.files[0].name)


def opened_anew(store: ArchiveStore) -> object:
    return rows(open_store(store.to, "orders", copy="main"))


READERS: tuple[Reader, ...] = (rows, pushed, folded, counted, merged)


def regions(path: Path) -> Iterator[tuple[int, int]]:
    """The parts of a data file: the mark, of each column chunk where its first page begins and the rest, footer, its
    length and the mark."""
    size = path.stat().st_size
    footer = size - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little")
    yield 0, 4
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            begin = min(at for at in (column.dictionary_page_offset, column.data_page_offset) if at)
            yield begin, begin + 20
            yield begin + 20, begin + column.total_compressed_size
    for begin in range(footer, size - 8, max(1, (size - 8 - footer) // 20)):
        yield begin, min(begin + 20, size - 8)
    yield size - 8, size


def flips(path: Path) -> Iterator[tuple[int, int]]:
    chance = Random(SEED)
    for begin, end in regions(path):
        for at in range(begin, end) if LONG else [chance.randrange(begin, end)]:
            yield at, 1 << chance.randrange(8)


def flipped(path: Path, at: int, bit: int) -> bytes:
    """Flip it. What the file had before."""
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    return whole


def same_or_named(store: ArchiveStore, reader: Reader, expected: object, path: Path, at: int) -> bool:
    """Whether it was an error. Fails for other rows, and for an error that does not name the file."""
    said = ""
    try:
        found = reader(store)
    except WormholeError as error:
        said = str(error)
    assert path.name in said if said else found == expected, f"{reader}, byte {at} of {path}: {said}"
    return bool(said)


def test_a_flipped_bit_of_a_data_file_changes_no_row(store: ArchiveStore) -> None:
    expected = [(reader, reader(store)) for reader in READERS]
    path = Path(store.data_path("a", manifest_of(store).files[1].name))
    errors = count = 0
    for at, bit in flips(path):
        whole = flipped(path, at, bit)
        try:
            for reader, wanted in expected:
                errors += same_or_named(store, reader, wanted, path, at)
                count += 1
            problems = verify(store, deep=True).problems
            assert [one.file for one in problems] == [path.name], f"byte {at}"
        finally:
            path.write_bytes(whole)
    assert errors == count, "the file is one block: any read of it compares all of it"


def test_a_flipped_bit_of_a_manifest_changes_no_row(store: ArchiveStore) -> None:
    expected = manifest_of(store)
    path = Path(store.storage.path(f"a/manifests/{expected.version:020}.json"))
    chance = Random(SEED)
    size = path.stat().st_size
    some = [(at, bit) for at in range(size) for bit in range(8)]
    for at, bit in some if LONG else chance.sample(some, 400):
        whole = flipped(path, at, 1 << bit)
        try:
            damaged = same_or_named(store, manifest_of, expected, path, at)
            assert damaged, f"byte {at}"
            assert verify(store).problems, f"byte {at}"
        finally:
            path.write_bytes(whole)


def test_a_flipped_bit_of_what_says_whose_archive_it_is_changes_no_row(store: ArchiveStore) -> None:
    expected = rows(store)
    path = Path(store.to, "archive.json")
    for at in range(path.stat().st_size):
        for bit in range(8) if LONG else [at % 8]:
            whole = flipped(path, at, 1 << bit)
            try:
                same_or_named(store, opened_anew, expected, Path(store.to), at)
            finally:
                path.write_bytes(whole)


def test_an_audit_over_a_flipped_bit_counts_nothing_and_names_the_file(
    spark: SparkSession, store: ArchiveStore
) -> None:
    """Rows of a damaged file that were left out would show as updates that were never archived, and as no loss."""
    counts = FlowCounts("cache/a")
    counts.ranges[RangeKind.COUNTED].append((marker_at(0).order, marker_at(TRANSACTIONS).order))
    selecting = Selecting("", (), Formats(), {})

    def audited(store: ArchiveStore) -> Audit:
        return audit(spark, store, ["cache/a"], [counts], selecting, since_s=0, now_s=FIRST_US / 1e6 + 3600)

    expected = audited(store)
    assert any(window.archived for window in expected.windows)
    for entry in manifest_of(store).files[:2]:  # one that the driver reads for its schemas, one that a task reads
        path = Path(store.data_path("a", entry.name))
        at = path.stat().st_size // 2
        whole = flipped(path, at, 1)
        try:
            assert same_or_named(store, audited, expected, path, at)
        finally:
            path.write_bytes(whole)


@pytest.mark.soak  # one flip: test_frames
def test_a_flipped_bit_never_gives_spark_other_rows(spark: SparkSession, store: ArchiveStore) -> None:
    def scanned(store: ArchiveStore) -> object:
        with reading():
            return sorted(map(str, read(spark, store, [chosen(store)]).collect()))

    def versions(store: ArchiveStore) -> object:
        with reading():
            return sorted(map(str, history(read_tables(spark, store), CUSTOMERS.table).collect()))

    readers: tuple[Reader, ...] = (scanned, versions)
    expected = [(reader, reader(store)) for reader in readers]
    path = Path(store.data_path("a", manifest_of(store).files[1].name))
    every = list(flips(path))
    for at, bit in Random(SEED).sample(every, min(len(every), 100)):
        whole = flipped(path, at, bit)
        try:
            for reader, wanted in expected:
                assert same_or_named(store, reader, wanted, path, at)
        finally:
            path.write_bytes(whole)
