"""The last changes of a range in one task: the same rows as by the fold of what Spark has sorted, in the order of
their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.compact import Group, merge
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay import keyed
from spark_replay.replay.keyed import MOST_PARTS, PART_BYTES, LastChanges, last_changes, parts, slices
from tests.support.archives import CUSTOMERS, gone, manifest_of, marker_at, put, row, tx, write_archive
from tests.support.eventually import until
from tests.unit.spark_replay.replay.test_latest import (
    SCHEMAS,
    Change,
    histories,
    latest,
    rows_of,
    with_keyless,
)
from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, values_of

ALSO = Schema("also", CUSTOMERS.key, CUSTOMERS.columns)


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    files = [
        [tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2")), tx(put(b"k1", b"v3"))],
        [tx(gone(b"k2")), tx(put(b"k3", b"v4")), tx(put(b"k1", b"v5"))],
    ]
    return write_archive(tmp_path / "archive", {"a": files})


def of(store: ArchiveStore, begin: int, until: int) -> ShardFiles:
    return ShardFiles("a", manifest_of(store).files, marker_at(begin), marker_at(until))


CUTS = st.lists(st.integers(0, 12), max_size=4)


def as_in_files(changes: Sequence[Change], cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """Ascending by place, cut anywhere, each batch with dictionaries of its own."""
    rows = sorted(rows_of(changes).to_pylist(), key=lambda one: one["place"])
    ends = [*sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    found = [rows[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    return [pa.RecordBatch.from_pylist(some, SCHEMA) for some in found]


@given(histories().map(lambda history: history[1]) | with_keyless(), CUTS, st.booleans(), st.integers(1, 2000))
def test_the_rows_are_those_of_the_fold_by_place(
    changes: list[Change], cuts: list[int], by_values: bool, batch: int
) -> None:
    before, keyed._BATCH_BYTES = keyed._BATCH_BYTES, batch  # type: ignore[misc]
    try:
        found = list(last_changes(as_in_files(changes, cuts), SCHEMAS, by_values))
    finally:
        keyed._BATCH_BYTES = before  # type: ignore[misc]
    rows = [one for some in found for one in some.to_pylist()]
    expected = latest(changes, by_values=by_values)
    assert [(one["place"], one["update"], one["op"]) for one in rows] == [
        (one["place"], one["update"], one["op"]) for one in expected
    ]


def test_only_the_range_counts(store: ArchiveStore) -> None:
    def found(begin: int, until: int) -> list[tuple[str, int]]:
        batches = list(LastChanges(store, of(store, begin, until)))
        return [(one["op"], one["tx_number"]) for some in batches for one in some.to_pylist()]

    assert found(0, 6) == [("delete", 4), ("upsert", 5), ("upsert", 6)]
    assert found(1, 4) == [("upsert", 3), ("delete", 4)]
    assert found(6, 6) == []


def test_one_key_in_two_tables_is_two_keys(tmp_path: Path) -> None:
    first = [row(Op.INSERT, (1, "Ann", "Rome", 10)), row(Op.INSERT, (1, "Bob", "Oslo", 20), schema=ALSO)]
    last = [
        row(Op.UPDATE, (1, name, "Bonn", 1), (1, "", "", 1), schema) for name, schema in (("A", CUSTOMERS), ("B", ALSO))
    ]
    store = write_archive(tmp_path / "archive", {"a": [[tx(*first)], [tx(*last)]]})
    rows = [one for some in LastChanges(store, of(store, 0, 2)) for one in some.to_pylist()]
    assert [(one["table"], one["op"]) for one in rows] == [(CUSTOMERS.table, "insert"), (ALSO.table, "insert")]
    assert [values_of(decode_row(one["update"]).after)[1] for one in rows] == ["A", "B"]


def test_a_table_without_a_key_keeps_all_its_rows(tmp_path: Path) -> None:
    keyless = Schema("shop.visits", (), CUSTOMERS.columns)
    visits = [tx(replace(row(Op.INSERT, (1, "Ann", "Rome", 10), schema=keyless), key=())) for _ in range(88)]
    keyed_rows = [tx(row(Op.UPDATE, (1, "Ann", "Rome", credit), (1, "Ann", "Rome", 0))) for credit in range(12)]
    store = write_archive(tmp_path / "archive", {"a": [[*visits[:40], *keyed_rows], visits[40:]]})
    rows = [one for some in LastChanges(store, of(store, 0, 100)) for one in some.to_pylist()]
    assert [one["table"] for one in rows] == [*["shop.visits"] * 40, CUSTOMERS.table, *["shop.visits"] * 48]


def test_a_file_that_is_gone_is_reported_and_may_be_back(store: ArchiveStore) -> None:
    chosen = of(store, 0, 6)
    changes = LastChanges(store, chosen)
    path = Path(store.data_path("a", chosen.files[1].name))
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ArchiveError, match=path.name):
        list(changes)
    path.write_bytes(content)
    assert sum(some.num_rows for some in changes) == 3


def test_files_that_were_merged_meanwhile_are_read_where_they_went(store: ArchiveStore) -> None:
    write_archive(Path(store.to), {"a": [[tx(put(b"k9", b"v"))]]})
    chosen = of(store, 0, 6)
    changes = LastChanges(store, chosen)
    assert merge(store, Group("a", chosen.files[:2])).state == "merged"
    for entry in chosen.files[:2]:
        store.delete_data("a", entry.name)
    assert sum(some.num_rows for some in changes) == 3


def test_parts_come_from_what_the_manifest_says_of_rows_in_memory(store: ArchiveStore) -> None:
    def entry(raw: int) -> FileEntry:
        return replace(of(store, 0, 6).files[0], raw=raw)

    assert parts([]) == parts([entry(PART_BYTES)]) == 1
    assert parts([entry(PART_BYTES), entry(1)]) == 2
    assert parts([entry(10 * PART_BYTES)]) == 10
    terabyte = [entry(PART_BYTES)] * (1 << 13)
    assert parts(terabyte) * len(slices(terabyte)) <= MOST_PARTS << 13, "blocks of a shuffle grow with the range alone"


def test_what_the_writer_says_of_rows_in_memory_is_what_they_take(store: ArchiveStore) -> None:
    chosen = of(store, 0, 6)
    rows = list(keyed.rows_of(store, chosen))
    assert sum(entry.raw for entry in chosen.files) == pytest.approx(sum(some.nbytes for some in rows), rel=0.2)


def test_what_was_folded_is_let_go(tmp_path: Path) -> None:
    changes = [tx(*(put(b"%d" % i, b"x" * 1000) for i in range(100))) for _ in range(50)]
    store = write_archive(tmp_path / "archive", {"a": [changes]})
    chosen = of(store, 0, 50)
    before = pa.total_allocated_bytes()
    assert next(iter(LastChanges(store, chosen))).num_rows == 100
    least = 0.2 * chosen.files[0].raw  # Arrow's threads that read may let go of theirs later
    until(lambda: pa.total_allocated_bytes() - before < least, "what was read is let go of")
