"""A data file: what its entry says of it, and what Parquet readers other than ours find in it."""

from __future__ import annotations

import gc
import io
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.footer import read_footer
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.rows import Rows
from spark_replay.archive.writer import DataFileWriter
from tests.support.archives import (
    CUSTOMERS,
    FIRST_US,
    KEYS,
    Change,
    Tx,
    gone,
    marker_at,
    put,
    row,
    segments,
    tx,
    updates_of,
)
from wormhole.model.errors import ArchiveError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.tally import tally_run, total

SCHEMAS = {schema.id: schema for schema in (KEYS, CUSTOMERS)}


def written(*transactions: Tx, end: int = 0) -> tuple[FileEntry, pq.ParquetFile]:
    """One row group per transaction. ``end``: where the file ends; 0: behind all of them."""
    sink = io.BytesIO()
    writer = DataFileWriter(sink, "one.parquet", dataset="d", shard="a", epoch=7, begin=marker_at(0))
    for piece in segments("a", transactions):
        rows = Rows()
        if piece.runs:
            rows.add(updates_of(piece))
        too_large = rows.too_large
        writer.write(rows.take(), rows.schemas, too_large)
        if piece.marker is not None:
            writer.mark(piece.marker)
    entry = writer.finish(marker_at(end or len(transactions)))
    return entry, pq.ParquetFile(io.BytesIO(sink.getvalue()))


MIXED = (
    tx(put(b"k1", b"v"), gone(b"k2")),
    tx(
        row(Op.UPDATE, (2, UNAVAILABLE, "x", 0), (1, "a", "x", 0)),
        Change(Op.UPSERT, (b"big",), too_large=True),
        pieces=2,
    ),
    tx(put(b"k3", b"v"), at_us=0),
)


def test_the_entry_counts_everything() -> None:
    entry, file = written(*MIXED)
    assert entry.rows == 5
    assert entry.ops == {"upsert": 3, "delete": 1, "update": 1}
    assert entry.tables == {"default": 4, "shop.customers": 1}
    assert entry.schemas == {f"{KEYS.id:016x}": "default", f"{CUSTOMERS.id:016x}": "shop.customers"}
    assert (entry.key_changes, entry.partial, entry.too_large) == (1, 2, 1)
    assert (entry.first_us, entry.last_us) == (FIRST_US + 1_000_000, FIRST_US + 2_000_000)
    assert (entry.begin, entry.end) == (marker_at(0), marker_at(3))
    tallies = [total(tally_run(run)) for piece in segments("a", MIXED) for run in piece.runs.values()]
    assert entry.hash == sum(one.hash for one in tallies) % (1 << 64)
    assert file.metadata.num_rows == 5


def test_row_groups_say_between_which_places_they_are() -> None:
    _, file = written(*MIXED)
    groups = [file.metadata.row_group(i).column(0).statistics for i in range(file.metadata.num_row_groups)]
    assert all(one.has_min_max for one in groups)
    assert [a.max < b.min for a, b in itertools.pairwise(groups)] == [True] * 3


def test_the_footer_has_every_datamarker_once() -> None:
    _, file = written(*MIXED)
    footer = read_footer(file.metadata, "one.parquet")
    assert footer.markers[:2] == (marker_at(1), marker_at(2))
    assert [marker.order for marker in footer.markers] == [marker_at(i).order for i in (1, 2, 3)]
    assert (footer.epoch, footer.shard, dict(footer.schemas)) == (7, "a", SCHEMAS)


def test_rows_behind_the_end_are_refused() -> None:
    """Nobody would look for them in this file."""
    with pytest.raises(ArchiveError, match="behind the datamarker after them"):
        written(*MIXED, end=2)


def test_nothing_but_a_footer() -> None:
    entry, file = written(tx())
    assert (entry.rows, entry.first_us, entry.ops, entry.hash) == (0, 0, {}, 0)
    assert file.metadata.num_row_groups == 0


def test_it_is_compressed() -> None:
    entry, file = written(tx(*(put(b"%d" % i, b"v" * 500) for i in range(100))))
    assert entry.bytes < 20_000
    assert file.metadata.row_group(0).column(12).compression == "ZSTD"


def test_a_file_that_is_given_up_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow would end it when it lets go of the writer, and complain that its sink is closed."""
    _, whole = written(*MIXED)
    with pa.OSFile(str(tmp_path / "x"), "wb") as sink:
        writer = DataFileWriter(sink, "x", dataset="d", shard="a", epoch=7, begin=marker_at(0))
        writer.write(whole.read_row_group(0).cast(SCHEMA).to_batches()[0], SCHEMAS)
    unraised: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: unraised.append(str(told.exc_value)))
    del writer
    gc.collect()
    assert unraised == []
