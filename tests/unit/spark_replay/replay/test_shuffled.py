"""The last changes of a range: of keys in one task, and shuffled over many."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.compact import Group, merge
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay import keyed, shelf
from spark_replay.replay import shuffled as module
from spark_replay.replay.keyed import MOST_PARTS, PART_BYTES, LastChanges, last_changes, parts
from spark_replay.replay.keyed import slices as keyed_slices
from spark_replay.replay.packed import Folding, Pushing
from spark_replay.replay.shuffled import Slice, fold, in_order, slices, split
from tests.support.archives import CUSTOMERS, copy_of, gone, manifest_of, marker_at, put, row, tx, write_archive
from tests.support.eventually import until
from tests.unit.spark_replay.replay.test_latest import (
    KEYLESS,
    NEW,
    SCHEMAS,
    Change,
    histories,
    latest,
    puts,
    rows_of,
    with_keyless,
)
from wormhole.model.errors import ArchiveError, ArchiveUnavailable
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, op_of, values_of

# --- keyed ---


ALSO = Schema("also", CUSTOMERS.key, CUSTOMERS.columns)


@pytest.fixture
def keyed_store(tmp_path: Path) -> ArchiveStore:
    files = [
        [tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2")), tx(put(b"k1", b"v3"))],
        [tx(gone(b"k2")), tx(put(b"k3", b"v4")), tx(put(b"k1", b"v5"))],
    ]
    return write_archive(tmp_path / "archive", {"a": files})


def of(keyed_store: ArchiveStore, begin: int, until: int) -> ShardFiles:
    return ShardFiles("a", manifest_of(keyed_store).files, marker_at(begin), marker_at(until))


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


def test_only_the_range_counts(keyed_store: ArchiveStore) -> None:
    def found(begin: int, until: int) -> list[tuple[str, int]]:
        batches = list(LastChanges(keyed_store, of(keyed_store, begin, until)))
        return [(one["op"], one["tx_number"]) for some in batches for one in some.to_pylist()]

    assert found(0, 6) == [("delete", 4), ("upsert", 5), ("upsert", 6)]
    assert found(1, 4) == [("upsert", 3), ("delete", 4)]
    assert found(6, 6) == []


def test_one_key_in_two_tables_is_two_keys(tmp_path: Path) -> None:
    first = [row(Op.INSERT, (1, "Ann", "Rome", 10)), row(Op.INSERT, (1, "Bob", "Oslo", 20), schema=ALSO)]
    last = [
        row(Op.UPDATE, (1, name, "Bonn", 1), (1, "", "", 1), schema) for name, schema in (("A", CUSTOMERS), ("B", ALSO))
    ]
    keyed_store = write_archive(tmp_path / "archive", {"a": [[tx(*first)], [tx(*last)]]})
    rows = [one for some in LastChanges(keyed_store, of(keyed_store, 0, 2)) for one in some.to_pylist()]
    assert [(one["table"], one["op"]) for one in rows] == [(CUSTOMERS.table, "insert"), (ALSO.table, "insert")]
    assert [values_of(decode_row(one["update"]).after)[1] for one in rows] == ["A", "B"]


def test_a_table_without_a_key_keeps_all_its_rows(tmp_path: Path) -> None:
    keyless = Schema("shop.visits", (), CUSTOMERS.columns)
    visits = [tx(replace(row(Op.INSERT, (1, "Ann", "Rome", 10), schema=keyless), key=())) for _ in range(88)]
    keyed_rows = [tx(row(Op.UPDATE, (1, "Ann", "Rome", credit), (1, "Ann", "Rome", 0))) for credit in range(12)]
    keyed_store = write_archive(tmp_path / "archive", {"a": [[*visits[:40], *keyed_rows], visits[40:]]})
    rows = [one for some in LastChanges(keyed_store, of(keyed_store, 0, 100)) for one in some.to_pylist()]
    assert [one["table"] for one in rows] == [*["shop.visits"] * 40, CUSTOMERS.table, *["shop.visits"] * 48]


def test_a_file_that_is_gone_is_reported_and_may_be_back(keyed_store: ArchiveStore) -> None:
    chosen = of(keyed_store, 0, 6)
    changes = LastChanges(keyed_store, chosen)
    path = Path(keyed_store.data_path("a", chosen.files[1].name))
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ArchiveError, match=path.name):
        list(changes)
    path.write_bytes(content)
    assert sum(some.num_rows for some in changes) == 3


def test_files_that_were_merged_meanwhile_are_read_where_they_went(keyed_store: ArchiveStore) -> None:
    write_archive(Path(keyed_store.to), {"a": [[tx(put(b"k9", b"v"))]]})
    chosen = of(keyed_store, 0, 6)
    changes = LastChanges(keyed_store, chosen)
    assert merge(keyed_store, Group("a", chosen.files[:2])).state == "merged"
    for entry in chosen.files[:2]:
        keyed_store.delete_data("a", entry.name)
    assert sum(some.num_rows for some in changes) == 3


def test_parts_come_from_what_the_manifest_says_of_rows_in_memory(keyed_store: ArchiveStore) -> None:
    def entry(raw: int) -> FileEntry:
        return replace(of(keyed_store, 0, 6).files[0], raw=raw)

    assert parts([]) == parts([entry(PART_BYTES)]) == 1
    assert parts([entry(PART_BYTES), entry(1)]) == 2
    assert parts([entry(10 * PART_BYTES)]) == 10
    terabyte = [entry(PART_BYTES)] * (1 << 13)
    assert parts(terabyte) * len(keyed_slices(terabyte)) <= MOST_PARTS << 13, (
        "blocks of a shuffle grow with the range alone"
    )


def test_what_the_writer_says_of_rows_in_memory_is_what_they_take(keyed_store: ArchiveStore) -> None:
    chosen = of(keyed_store, 0, 6)
    rows = list(keyed.rows_of(keyed_store, chosen))
    assert sum(entry.raw for entry in chosen.files) == pytest.approx(sum(some.nbytes for some in rows), rel=0.2)


def test_what_was_folded_is_let_go(tmp_path: Path) -> None:
    changes = [tx(*(put(b"%d" % i, b"x" * 1000) for i in range(100))) for _ in range(50)]
    keyed_store = write_archive(tmp_path / "archive", {"a": [changes]})
    chosen = of(keyed_store, 0, 50)
    before = pa.total_allocated_bytes()
    assert next(iter(LastChanges(keyed_store, chosen))).num_rows == 100
    least = 0.2 * chosen.files[0].raw  # Arrow's threads that read may let go of theirs later
    until(lambda: pa.total_allocated_bytes() - before < least, "what was read is let go of")


# --- shuffled ---


Row = Mapping[str, Any]
LONG = "x" * 200_000


def steps(
    batches: Sequence[pa.RecordBatch], parts: int, chance: Random, *, by_values: bool = False, most: int = 1 << 30
) -> list[Row]:
    """Each batch in a slice of its own; what Spark moves comes in any order. ``most``: bytes that a task holds."""
    with (
        patch.object(module, "_rows", lambda _, one: [one.files.slice(at, 1) for at in range(one.files.num_rows)]),
        patch.object(keyed, "PART_BYTES", most),
        patch.object(shelf, "SHELF_BYTES", most),
        patch.object(module, "_WINDOW_BYTES", most),
    ):
        cut: list[Any] = [Slice("a", batch, b"", b"", number) for number, batch in enumerate(batches)]
        rows = [one for each in cut for one in split(None, SCHEMAS, parts, each)]  # type: ignore[arg-type]
        chance.shuffle(rows)
        pieces = [
            piece
            for part in range(parts)
            for piece in fold(SCHEMAS, by_values, [one for one in rows if one[0] == part], parts)
        ]
        chance.shuffle(pieces)
        return [row for batch in in_order(sorted(pieces, key=itemgetter(0))) for row in batch.to_pylist()]


def said(row: Row) -> object:
    update = decode_row(row["update"])
    values = [values_of(each) for each in (update.key, update.after, update.before)]
    return row["place"], row["schema_id"], op_of(update), *values


HISTORIES = (
    histories(alters=3).map(itemgetter(1)) | histories(partial=False).map(itemgetter(1)) | puts() | with_keyless()
)


@given(HISTORIES, CUTS, st.integers(1, 4), st.booleans(), st.randoms(), st.sampled_from([1, 300, 1 << 30]))
def test_the_rows_are_those_of_one_task(
    changes: list[Change], cuts: list[int], parts: int, by_values: bool, chance: Random, most: int
) -> None:
    found = steps(as_in_files(changes, cuts), parts, chance, by_values=by_values, most=most)
    assert list(map(said, found)) == list(map(said, latest(changes, by_values=by_values)))


INSERTED_AGAIN = [
    *[Change(Op.UPDATE, 0, {"a": 0}, {"a": 0, "b": 0})] * 3,
    Change(Op.DELETE, 0, before={"a": 0, "b": 0}),
    Change(Op.INSERT, 0, {"a": 0}),
    Change(Op.UPDATE, 0, {"b": 0}, {"a": 0}),
    Change(Op.UPDATE, 0, {"a": 0}, {"a": 0, "b": 0}, NEW),
]
"""A row that is whole again after a DELETE, and then lacks a column that its table got."""


@example((None, INSERTED_AGAIN), 1, Random(0))
@given(histories(keys=1, alters=3), st.integers(1, 3), st.randoms())
def test_a_key_whose_changes_lie_in_every_slice(history: tuple[Any, list[Change]], most: int, chance: Random) -> None:
    _, changes = history
    found = steps(as_in_files(changes, range(13)), 2, chance, most=most)
    assert list(map(said, found)) == list(map(said, latest(changes)))


def hot(whole: bool) -> list[Change]:
    """One row of 200 KB that changes all the time, and another one between."""
    values: list[dict[str, Any]] = [{"a": at, "b": LONG} if whole or at == 3 else {"a": at} for at in range(400)]
    return [Change(Op.INSERT, 2, {"a": 1, "b": 1}), *(Change(Op.UPDATE, 1, one) for one in values)]


@pytest.mark.parametrize("whole", [True, False])
def test_of_a_row_that_changes_all_the_time_little_travels_and_is_held(whole: bool) -> None:
    batches = as_in_files(hot(whole), range(0, 400, 20))
    rows = [piece for number, batch in enumerate(batches) for piece in pieces_of(batch, number)]
    sizes = [len(message) for _, (_, (_, message)) in rows]
    assert len(sizes) == len(batches)
    assert sum(sizes) < (2.1 * len(LONG) * len(batches) if whole else 2.1 * len(LONG))
    before, most = pa.total_allocated_bytes(), 0
    with patch.object(keyed, "PART_BYTES", 3 * len(LONG)):
        held = module._Held(SCHEMAS)
        for _, (_, (sources, message)) in rows:
            held.add(Folding(SCHEMAS).unpack(sources, pa.py_buffer(message)))
            most = max(most, pa.total_allocated_bytes() - before)
        (found, other) = [row for batch in fold(SCHEMAS, False, rows) for row in unpacked(batch)][::-1]
    assert most < 12 * len(LONG)
    assert values_of(decode_row(found["update"]).after) == (399, LONG)
    assert values_of(decode_row(other["update"]).after) == (1, 1)


def pieces_of(batch: pa.RecordBatch, number: int) -> list[Any]:
    with patch.object(module, "_rows", lambda _, one: [batch]):
        return list(split(None, SCHEMAS, 1, Slice("a", (), b"", b"", number)))  # type: ignore[arg-type]


def unpacked(piece: module.Piece) -> list[Row]:
    found: list[Row] = Pushing().unpack(piece[1][0], pa.py_buffer(piece[1][1])).to_pylist()
    return found


def test_a_part_that_is_too_large_is_divided_by_the_task_that_folds_it(tmp_path: Path) -> None:
    """By other bits of the key than those by which the parts were divided, and one piece for each slice comes of it."""
    changes = [Change(Op.UPSERT, at % 250, {"a": at, "b": 1}) for at in range(500)]
    rows = [one for number, batch in enumerate(as_in_files(changes, [250])) for one in parted(batch, number)]
    mine = [one for one in rows if one[0] == 3]
    size = sum(len(message) for _, (_, (_, message)) in mine)
    seen: list[int] = []
    held = module._folded

    def noted(schemas: Any, by_values: bool, part: shelf.Shelf) -> Any:
        seen.append(part.bytes)
        return held(schemas, by_values, part)

    with patch.object(keyed, "PART_BYTES", size // 4), patch.object(module, "_folded", noted):
        found = list(fold(SCHEMAS, False, mine, 8))
    assert len(seen) in {4, 5}
    assert max(seen) < size / 2
    assert [number for number, _ in found] == [1], "of each key the last change, all of them in the second slice"
    assert sorted(map(repr, map(said, unpacked(found[0])))) == sorted(
        repr(said(row)) for _, piece in enumerate(fold(SCHEMAS, False, mine, 8)) for row in unpacked(piece)
    )


def parted(batch: pa.RecordBatch, number: int) -> list[Any]:
    with patch.object(module, "_rows", lambda _, one: [batch]):
        return list(split(None, SCHEMAS, 8, Slice("a", (), b"", b"", number)))  # type: ignore[arg-type]


def test_rows_without_a_key_are_spread_over_the_parts() -> None:
    changes = [Change(Op.INSERT, 0, {"a": 1, "b": 1}, schema=KEYLESS) for _ in range(1000)]
    with patch.object(module, "_rows", lambda _, one: as_in_files(changes, [])):
        found = list(split(None, SCHEMAS, 4, Slice("a", (), b"", b"", 0)))  # type: ignore[arg-type]
    form = Folding(SCHEMAS)
    sizes = [form.unpack(sources, pa.py_buffer(message)).num_rows for _, (_, (sources, message)) in found]
    assert sum(sizes) == 1000
    assert len(sizes) == 4
    assert max(sizes) < 400


def test_a_small_piece_has_no_schema() -> None:
    change = Change(Op.UPSERT, 1, {"a": 1, "b": 1})
    [(_, (_, (sources, message)))] = pieces_of(as_in_files([change], [])[0], 0)
    assert (sources, len(message) < 2 << 10) == (("s",), True)
    assert b"tx_number" not in message


def test_a_piece_out_of_order_is_refused() -> None:
    pieces = [
        piece
        for one in (1, 0)
        for piece in fold(SCHEMAS, False, pieces_of(as_in_files([Change(Op.DELETE, 1)], [])[0], one))
    ]
    with pytest.raises(RuntimeError, match="piece 0 came after piece 1"):
        list(in_order(pieces))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    def files(first: int) -> list[Any]:
        return [tx(*(put(b"%d" % (i % 7), b"%d" % (first + i) * 10) for i in range(10))) for _ in range(9)]

    shards = {"a": [files(0), [tx(gone(b"3"))], files(50)]}
    return write_archive(tmp_path_factory.mktemp("shuffled") / "archive", shards, row_group=400)


@pytest.mark.parametrize("part", [1, 9_000, 1 << 30])
@pytest.mark.parametrize(("begin", "until"), [(0, 19), (4, 15), (9, 10), (19, 19)])
def test_the_slices_are_the_range(
    store: ArchiveStore, part: int, begin: int, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "PART_BYTES", part)
    chosen = ShardFiles("a", manifest_of(store).files, marker_at(begin), marker_at(until))
    cut = slices(store, chosen)
    assert [one.number for one in cut] == list(range(len(cut)))
    assert all(one.until <= other.after or one.files != other.files for one, other in pairwise(cut))
    rows = [row for one in cut for batch in module._rows(store, one) for row in batch["place"].to_pylist()]
    assert rows == [row for batch in keyed.rows_of(store, chosen) for row in batch["place"].to_pylist()]
    if begin == 0:
        assert len(cut) == {1: 19, 9_000: 5, 1 << 30: 1}[part]
    schemas = schemas_of(store, [chosen])
    read = [one for each in cut for one in split(store, schemas, 2, each)]
    folded = [piece for part in (0, 1) for piece in fold(schemas, False, [one for one in read if one[0] == part])]
    found = [row for batch in in_order(sorted(folded, key=itemgetter(0))) for row in batch.to_pylist()]
    expected = [row for batch in LastChanges(store, chosen) for row in batch.to_pylist()]
    assert [(row["place"], row["update"]) for row in found] == [(row["place"], row["update"]) for row in expected]


def test_a_file_that_is_gone_may_have_been_merged(store: ArchiveStore, tmp_path: Path) -> None:
    store = copy_of(store, tmp_path / "archive")
    manifest = manifest_of(store)
    chosen = ShardFiles("a", manifest.files)
    schemas, (one,) = schemas_of(store, [chosen]), slices(store, chosen)
    store.delete_data("a", manifest.files[1].name)
    with pytest.raises(ArchiveUnavailable, match=manifest.files[1].name):
        list(split(store, schemas, 2, one))


def test_a_part_without_rows_is_nothing() -> None:
    assert list(fold(SCHEMAS, False, [])) == []


def test_what_is_more_than_the_memory_for_it_is_on_the_disk_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    used = Mock(side_effect=tempfile.TemporaryFile)
    monkeypatch.setattr(tempfile, "TemporaryFile", used)
    kept = shelf.Shelf(10)
    for number in (3, 1, 2, 1):
        kept.put(number, (str(number),), bytes([number]) * 7)
    assert [(number, about, data.to_pybytes()) for number, about, data in kept] == [
        (number, (str(number),), bytes([number]) * 7) for number in (1, 1, 2, 3)
    ]
    used.assert_called_once_with(dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_last_window_ends_with_the_last_row_even_if_that_has_no_bytes() -> None:
    rows = pa.record_batch({"place": [b"1", b"2", b"3"], "update": [b"xx", b"x", b""]})
    assert module._bounds([rows], 2) == [b"1", b"3"]
