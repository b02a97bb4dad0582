"""Data files, their footers, and what is on its way into the archive."""

from __future__ import annotations

import gc
import io
import itertools
import json
import random
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import FORMAT, METADATA_KEY, SCHEMA
from spark_replay.archive.footer import Footer, footer_to_bytes, read_footer
from spark_replay.archive.layout import manifest_path
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.rows import Rows
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import verify
from spark_replay.archive.writer import DataFileWriter
from tests.support.archives import (
    CUSTOMERS,
    FIRST_US,
    KEYS,
    Change,
    Tx,
    gone,
    manifest_of,
    marker_at,
    put,
    row,
    segments,
    tx,
    updates_of,
)
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, EpochRefused
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.tally import tally_run, total
from wormhole.wire.update import Update

# --- writer: A data file: what its entry says of it, and what Parquet readers other than ours find in it ---


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


# --- shard writer ---


@pytest.fixture
def writer(store: ArchiveStore) -> ShardWriter:
    """The first of its shard."""
    return ShardWriter.claim(store, "a", 1, marker_at(0))


def archive(writer: ShardWriter, *numbers: int) -> FileEntry | None:
    """Commit these transactions together."""
    for number in numbers:
        writer.add(updates(number))
    return writer.commit(marker_at(numbers[-1]))


def updates(number: int) -> list[Update]:
    (found,) = batches(number, tx(put(b"k", b"v")))
    return found


def batches(number: int, *transactions: Tx) -> list[list[Update]]:
    """From transaction ``number`` on, a batch for each piece of log."""
    return [updates_of(piece) for piece in segments("a", transactions, number)]


def rows(store: ArchiveStore) -> list[int]:
    """How many each file holds; nothing is wrong with them."""
    assert verify(store, deep=True).problems == []
    return [entry.rows for entry in manifest_of(store).files]


def test_a_claim_fences_who_came_before(store: ArchiveStore) -> None:
    old = ShardWriter.claim(store, "a", 1, marker_at(0))
    old.add(updates(1))
    new = ShardWriter.claim(store, "a", 2, marker_at(0))
    with pytest.raises(EpochRefused, match=r" epoch 2, .* in 1 \(shard a\) \[owner-elsewhere\]"):
        old.commit(marker_at(1))
    archive(new, 1)
    with pytest.raises(EpochRefused, match=r"^a .* epoch 2; .* epoch 1 \(shard a\) \[owner-elsewhere\]"):
        ShardWriter.claim(store, "a", 1, marker_at(0))


def test_a_claim_in_the_same_epoch_changes_nothing(store: ArchiveStore) -> None:
    first = ShardWriter.claim(store, "a", 1, marker_at(0)).manifest
    assert ShardWriter.claim(store, "a", 1, marker_at(5)).manifest == first


def test_the_manifest_names_complete_files_only(
    store: ArchiveStore, writer: ShardWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.add(updates(1))
    seen: list[int] = []
    real = ArchiveStore.commit

    def commit(self: ArchiveStore, manifest: object) -> None:
        (stored,) = self.data_files("a")
        with self.open_data("a", stored.name) as file:
            seen.append(file.size())
            assert file.read_at(4, file.size() - 4) == b"PAR1"
        real(self, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveStore, "commit", commit)
    entry = writer.commit(marker_at(1))
    assert entry is not None
    assert seen == [entry.bytes]


def test_what_was_archived_is_not_archived_again(store: ArchiveStore, writer: ShardWriter) -> None:
    archive(writer, 1)
    archive(writer, 1, 2)
    assert rows(store) == [1, 1]


def test_manifests_that_vanish_are_reported(
    store: ArchiveStore, writer: ShardWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.add(updates(1))
    monkeypatch.setattr(ArchiveStore, "head", lambda *_, **__: None)
    with pytest.raises(ArchiveError, match=r"the manifests of a are gone"):
        writer.commit(marker_at(1))


@pytest.mark.parametrize(
    ("delivered", "file", "whole"),
    [("0", 4, True), ("7", 1, False), ("", 1, True), ("", 2, False), ("u:1-5", 1, False)],
)
def test_whether_it_begins_where_the_store_did(store: ArchiveStore, delivered: str, file: int, whole: bool) -> None:
    place = LogPosition(1, file, 0)
    assert ShardWriter.claim(store, "a", 1, Datamarker(place, delivered, place)).manifest.whole is whole


def test_what_was_archived_in_pieces_is_passed_over_whole(store: ArchiveStore, writer: ShardWriter) -> None:
    """Its first pieces came with the place where it begins, which the archive is past."""
    log = batches(1, tx(put(b"a", b"1")), tx(*(put(b"%d" % n, b"2") for n in range(6)), pieces=3))
    for batch in log:
        writer.add(batch)
    writer.commit(marker_at(2))
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)  # nobody knew whether it was committed
    for batch in [*log, *batches(3, tx(*(put(b"%d" % n, b"3") for n in range(4)), pieces=2))]:
        writer.add(batch)
    writer.commit(marker_at(3))
    assert rows(store) == [7, 4]


@pytest.mark.parametrize("nothing_came", [True, False])
def test_an_archive_that_was_set_back_gets_no_hole(
    store: ArchiveStore, writer: ShardWriter, nothing_came: bool
) -> None:
    """Somebody restored manifests from a backup, while what they lack was acknowledged and does not come again."""
    archive(writer, 1)
    archive(writer, 2)
    store.storage.delete(manifest_path("a", writer.manifest.version))
    if not nothing_came:
        writer.add(updates(3))
    with pytest.raises(ArchiveError, match=r" 1/1/100.* 1/1/200.*\[archive-damaged\]"):
        writer.commit(marker_at(3))
    with pytest.raises(ArchiveError, match="set back"):
        ShardWriter.claim(store, "a", 1, marker_at(2), acknowledged=True)
    assert rows(store) == [1]
    # Assigned anew, it is asked where to begin.
    writer = ShardWriter.claim(store, "a", 2, marker_at(2))
    assert writer.manifest.end == marker_at(1)
    archive(writer, 2, 3)
    assert rows(store) == [1, 2]


def test_a_shard_whose_folder_is_gone_does_not_begin_anew_unasked(store: ArchiveStore) -> None:
    ShardWriter.claim(store, "a", 1, marker_at(0))
    store.storage.delete(manifest_path("a", 1))
    with pytest.raises(ArchiveError, match=r" 1/1/100 \(shard a\) \[archive-damaged\]"):
        ShardWriter.claim(store, "a", 1, marker_at(1), acknowledged=True)
    assert store.read("a") is None


def test_of_two_archivers_in_one_epoch_neither_makes_a_hole(store: ArchiveStore) -> None:
    """A publisher's state came back from a backup, and its epochs came twice."""
    first, second = (ShardWriter.claim(store, "a", 1, marker_at(0)) for _ in range(2))
    archive(first, 1)
    with pytest.raises(ArchiveError, match=r" 1/1/0 to 1/1/100 .* epoch 1 \(shard a\) \[archive-conflict\]"):
        second.commit(marker_at(2))
    second.abandon()
    second = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    archive(second, 1, 2)
    assert rows(store) == [1, 1]


@pytest.mark.parametrize("step", ["spill", "commit"])
def test_a_full_disk_is_reported_and_leaves_nothing(store: ArchiveStore, writer: ShardWriter, step: str) -> None:
    value = random.Random(7).randbytes(100_000)
    (large,) = batches(1, tx(put(b"k", value)))
    writer.add(large)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(ArchiveUnavailable, match=r"cannot write .*/a/data/.*\.parquet: .*File too large") as caught:
            writer.spill() if step == "spill" else writer.commit(marker_at(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "make room" in str(caught.value.hint)
    writer.abandon()
    assert not store.data_files("a")
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    writer.add(large)
    writer.commit(marker_at(1))
    assert rows(store) == [1]


def test_what_was_committed_unheard_never_goes_back(store: ArchiveStore, writer: ShardWriter) -> None:
    """Two datamarkers were committed, nobody heard of it, and the first is all that came again when the shard goes."""
    for number in (1, 2):
        writer.add(updates(number))
        writer.mark(marker_at(number))
    writer.commit(marker_at(2))
    writer = ShardWriter.claim(store, "a", 1, marker_at(0), acknowledged=True)
    writer.add(updates(1))
    writer.mark(marker_at(1))
    assert writer.last_marker is None, "there is nothing to commit when the shard goes"
    assert writer.commit(marker_at(1)) is None
    writer.add(updates(2))
    writer.add(updates(3))
    writer.mark(marker_at(3))
    writer.commit(marker_at(3))
    assert rows(store) == [2, 1]


def test_where_retention_took_every_file_an_empty_one_goes_on(store: ArchiveStore, writer: ShardWriter) -> None:
    archive(writer, 1)
    store.change("a", lambda present: present.without_first(1) if present else pytest.fail("no manifest"))
    writer.commit(marker_at(2))
    writer.commit(marker_at(3))
    assert rows(store) == [0]
    assert writer.manifest.end == marker_at(3)


# --- footer: the footer by which a file can be read alone ---


FOOTER = Footer(
    "d",
    "db1.orders",
    4,
    marker_at(0),
    marker_at(2),
    (marker_at(1), marker_at(2)),
    {schema.id: schema for schema in (KEYS, CUSTOMERS)},
)


def metadata(data: bytes | None, schema: pa.Schema = SCHEMA) -> pq.FileMetaData:
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, schema)
    if data is not None:
        writer.add_key_value_metadata({METADATA_KEY: data})
    writer.close()
    return pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata


def test_it_comes_back() -> None:
    assert read_footer(metadata(footer_to_bytes(FOOTER)), "x") == FOOTER


def test_a_file_without_one_is_none_of_an_archive() -> None:
    with pytest.raises(ArchiveError, match=r"x\.parquet.*\[archive-damaged\]"):
        read_footer(metadata(None), "x.parquet")


def changed(**given: object) -> bytes:
    return json.dumps(json.loads(footer_to_bytes(FOOTER)) | given).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        *((data, "damaged") for data in (b"", b"{}", b"[]", b"\xff", b'{"format": "1"}', b'{"format": 1}')),
        (changed(begin="%"), "damaged"),
        (changed(end="AAAA"), "damaged"),
        (changed(schemas=["////"]), "damaged"),
        (changed(markers=1), "damaged"),
        (changed(format=FORMAT + 1), f"written by a newer release: its format is {FORMAT + 1}"),
    ],
)
def test_damage(data: bytes, told: str) -> None:
    with pytest.raises(ArchiveError, match=rf"x\.parquet (is|was) {told}"):
        read_footer(metadata(data), "x.parquet")


def test_other_columns() -> None:
    with pytest.raises(ArchiveError, match="its columns are place"):
        read_footer(metadata(footer_to_bytes(FOOTER), pa.schema([SCHEMA.field("place")])), "x.parquet")
