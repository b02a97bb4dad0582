"""The steps of a large range, one after the other as Spark runs them; on Spark itself: ``test_replay_jobs``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay import keyed, shelf
from spark_replay.replay import shuffled as module
from spark_replay.replay.keyed import LastChanges
from spark_replay.replay.packed import Folding, Pushing
from spark_replay.replay.shuffled import Slice, fold, in_order, slices, split
from tests.support.archives import gone, manifest_of, marker_at, put, tx, write_archive
from tests.unit.spark_replay.replay.test_keyed import CUTS, as_in_files
from tests.unit.spark_replay.replay.test_latest import (
    KEYLESS,
    SCHEMAS,
    Change,
    histories,
    latest,
    puts,
    with_keyless,
)
from wormhole.model.errors import ArchiveUnavailable
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, op_of, values_of

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


HISTORIES = histories().map(itemgetter(1)) | histories(partial=False).map(itemgetter(1)) | puts() | with_keyless()


@given(HISTORIES, CUTS, st.integers(1, 4), st.booleans(), st.randoms(), st.sampled_from([1, 300, 1 << 30]))
def test_the_rows_are_those_of_one_task(
    changes: list[Change], cuts: list[int], parts: int, by_values: bool, chance: Random, most: int
) -> None:
    found = steps(as_in_files(changes, cuts), parts, chance, by_values=by_values, most=most)
    assert list(map(said, found)) == list(map(said, latest(changes, by_values=by_values)))


@given(histories(keys=1), st.integers(1, 3), st.randoms())
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


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    def files(first: int) -> list[Any]:
        return [tx(*(put(b"%d" % (i % 7), b"%d" % (first + i) * 10) for i in range(10))) for _ in range(9)]

    return write_archive(tmp_path / "archive", {"a": [files(0), [tx(gone(b"3"))], files(50)]}, row_group=400)


@pytest.mark.parametrize("part", [1, 3_000, 9_000, 1 << 30])
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
        assert len(cut) == {1: 19, 3_000: 9, 9_000: 5, 1 << 30: 1}[part]
    schemas = schemas_of(store, [chosen])
    read = [one for each in cut for one in split(store, schemas, 2, each)]
    folded = [piece for part in (0, 1) for piece in fold(schemas, False, [one for one in read if one[0] == part])]
    found = [row for batch in in_order(sorted(folded, key=itemgetter(0))) for row in batch.to_pylist()]
    expected = [row for batch in LastChanges(store, chosen) for row in batch.to_pylist()]
    assert [(row["place"], row["update"]) for row in found] == [(row["place"], row["update"]) for row in expected]


def test_a_file_that_is_gone_may_have_been_merged(store: ArchiveStore) -> None:
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
