"""Every way in which an archive can be broken is found, and named."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.layout import manifest_path
from spark_replay.archive.manifest import KnownLoss
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import FileProblem, verify
from spark_replay.archive.writer import parquet_settings
from tests.support.archives import (
    blocks_at,
    copy_of,
    crc_at,
    gone,
    manifest_of,
    marker_at,
    put,
    row,
    tx,
    write_archive,
)
from wormhole.model.errors import ArchiveUnavailable
from wormhole.model.values import Op

FILES = {
    "a": [
        [tx(put(b"k1", b"v1"), put(b"k2", b"v2")), tx(gone(b"k1"), at_us=0)],
        [tx(*(put(b"k%d" % n, b"v" * 50) for n in range(40)), pieces=4)],
        [tx(put(b"k9", b"v9"))],
    ],
    "b": [
        [tx(row(Op.INSERT, (1, "Ann", "Bern", 5))), tx(row(Op.UPDATE, (2, "Ann", "Bern", 5), (1, "Ann", "Bern", 5)))]
    ],
}


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    return write_archive(tmp_path_factory.mktemp("whole") / "archive", FILES, row_group=1000)


@pytest.fixture
def store(whole_store: ArchiveStore, tmp_path: Path) -> ArchiveStore:
    return copy_of(whole_store, tmp_path / "archive")


def commit(store: ArchiveStore, **changes: Any) -> None:
    manifest = manifest_of(store)
    store.commit(replace(manifest, version=manifest.version + 1, **changes))


def with_entry(store: ArchiveStore, number: int, **changes: Any) -> None:
    files = list(manifest_of(store).files)
    files[number] = replace(files[number], **changes)
    commit(store, files=tuple(files))


def found(store: ArchiveStore, deep: bool) -> list[FileProblem]:
    return verify(store, deep=deep).problems


def path_of(store: ArchiveStore, number: int) -> Path:
    return Path(store.data_path("a", manifest_of(store).files[number].name))


def rewrite(store: ArchiveStore, number: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows behind the manifest's back; size and footer are as they should be."""
    path = path_of(store, number)
    table = pq.read_table(path)
    metadata = pq.read_metadata(path).metadata
    with pq.ParquetWriter(path, SCHEMA, **parquet_settings()) as writer:
        writer.write_table(change(table).cast(SCHEMA), row_group_size=10)
        writer.add_key_value_metadata({key: value for key, value in metadata.items() if key.startswith(b"wormhole")})
    seal(store, number)


def seal(store: ArchiveStore, number: int) -> None:
    """The manifest says of a file's bytes what they are now."""
    path = path_of(store, number)
    with_entry(store, number, bytes=path.stat().st_size, footer_crc=crc_at(path), blocks=blocks_at(path))


def edit(store: ArchiveStore, change: Callable[[bytes], bytes], sealed: bool = False) -> None:
    """Change the bytes of the second file. ``sealed``: and what the manifest says of them."""
    path = path_of(store, 1)
    path.write_bytes(change(path.read_bytes()))
    if sealed:
        seal(store, 1)


def foreign() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), sink)
    return sink.getvalue()


def of_another_shard(store: ArchiveStore) -> None:
    edit(store, lambda _: Path(store.data_path("b", manifest_of(store, "b").files[0].name)).read_bytes(), sealed=True)


def last_index(table: pa.Table) -> pa.Table:
    column = table.column("tx_index").to_pylist()
    return table.set_column(3, SCHEMA.field("tx_index"), pa.array([*column[:-1], 99], pa.int32()))


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_one(store: ArchiveStore, deep: bool) -> None:
    store.create_data("a", "left.parquet").close()
    progress: list[tuple[str, int, int]] = []
    report = verify(store, deep=deep, on_progress=lambda *one: progress.append(one))
    assert report.problems == []
    assert (report.shards, report.files, report.rows, report.unnamed) == (2, 4, 46, 1)
    assert progress == [("a", 0, 3), ("a", 1, 3), ("a", 2, 3), ("b", 0, 1)]
    assert verify(store, ["b", "b"]).shards == 1


DAMAGE: list[tuple[str, Callable[[ArchiveStore], object]]] = [
    ("is not there", lambda store: path_of(store, 1).unlink()),
    ("bytes, the manifest records", lambda store: edit(store, lambda data: data[:-100])),
    ("cannot be read as a file of the archive", lambda store: edit(store, lambda _: b"no Parquet", sealed=True)),
    ("is a Parquet file, but none of an archive", lambda store: edit(store, lambda _: foreign(), sealed=True)),
    ("is of dataset orders, shard b", of_another_shard),
    ("differs from its own checksum", lambda store: store.storage.create_if_absent(manifest_path("a", 9), b"{}")),
    ("has 40 rows, the manifest records 41", lambda store: with_entry(store, 1, rows=41, ops={"upsert": 41})),
    ("do not make 40 rows", lambda store: with_entry(store, 1, ops={"upsert": 39})),
    ("do not make 40 rows", lambda store: with_entry(store, 1, tables={})),
    ("behind its end", lambda store: rewrite(store, 1, lambda _: pq.read_table(path_of(store, 2)).take([0] * 40))),
    (
        "overlap: its rows from 1/1/200+0 do not come after",
        lambda store: rewrite(store, 2, lambda _: pq.read_table(path_of(store, 1)).slice(0, 1)),
    ),
]
DEEP: list[tuple[str, Callable[[ArchiveStore], object]]] = [
    ("checksum differs from", lambda store: edit(store, lambda data: data[:1] + bytes([data[1] ^ 4]) + data[2:])),
    ("do not ascend by place", lambda store: rewrite(store, 1, lambda table: table.take([1, 0, *range(2, 40)]))),
    ("checksum", lambda store: rewrite(store, 1, last_index)),
    (
        "its footer lacks schema 0000000000000005, which rows refer to",
        lambda store: rewrite(
            store, 1, lambda table: table.set_column(10, SCHEMA.field("schema_id"), pa.array([5] * 40, pa.int64()))
        ),
    ),
    ("rows by operation", lambda store: with_entry(store, 1, ops={"delete": 40})),
    ("rows by table", lambda store: with_entry(store, 1, tables={"other": 40})),
    ("changed keys: 0, the manifest records 1", lambda store: with_entry(store, 1, key_changes=1)),
    ("rows that lack columns: 0, the manifest records 1", lambda store: with_entry(store, 1, partial=1)),
    ("first commit time", lambda store: with_entry(store, 1, first_us=5)),
    ("last commit time", lambda store: with_entry(store, 1, last_us=5)),
    ("checksum", lambda store: with_entry(store, 1, hash=5)),
]


@pytest.mark.parametrize(
    ("deep", "told", "damage"), [*((False, *one) for one in DAMAGE), *((True, *one) for one in [*DEEP, DAMAGE[-1]])]
)
def test_damage_is_found_and_said_of_its_shard(
    store: ArchiveStore, deep: bool, told: str, damage: Callable[[ArchiveStore], object]
) -> None:
    damage(store)
    problems = found(store, deep)
    assert told in " ".join(one.text for one in problems)
    assert {one.shard for one in problems} == {"a"}
    assert len(problems) == (2 if "41" in told else 1)


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_whole_too(store: ArchiveStore, deep: bool) -> None:
    # A shard without rows for a while, and one that goes on behind a known loss.
    store.commit(manifest_of(store).extended(marker_at(7), 1))
    store.commit(manifest_of(store).gap_accepted(KnownLoss(marker_at(9), "purged"), 1))
    assert found(store, deep) == []


def test_a_quick_look_opens_no_file(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = verify(store).rows
    monkeypatch.setattr(ArchiveStore, "open_data", None)
    report = verify(store, quick=True)
    assert (report.problems, report.rows) == ([], rows)
    path_of(store, 0).write_bytes(b"x")
    path_of(store, 1).unlink()
    said = [one.text.partition(",")[0].partition(":")[0] for one in verify(store, quick=True).problems]
    assert said == ["has 1 bytes", "is not there"]


def test_a_flipped_bit_of_any_column_is_found_by_reading(store: ArchiveStore) -> None:
    path = path_of(store, 1)
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        data = bytearray(whole)
        data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 5] ^= 1
        path.write_bytes(data)
        [problem] = found(store, True)
        assert problem.file == path.name, column.path_in_schema


def test_holes_and_overlaps(store: ArchiveStore) -> None:
    files = manifest_of(store).files
    commit(store, files=(files[0], files[2]))
    [problem] = found(store, False)
    assert problem.text.startswith("hole between 1/1/200 and 1/1/300")
    commit(store, files=(files[0], files[1], files[1], files[2]))
    texts = [one.text for one in found(store, False)]
    assert any(text.startswith("overlap: ") for text in texts)
    assert f"{files[1].name} is named twice" in texts


def test_markers_of_footer_and_manifest(store: ArchiveStore) -> None:
    first = manifest_of(store).files[0]
    with_entry(store, 0, begin=marker_at(1))
    commit(store, begin=marker_at(1))
    assert f"begins at {first.begin.order}, the manifest records 1/1/100" in [one.text for one in found(store, False)]
    with_entry(store, 1, end=replace(marker_at(3), order=replace(marker_at(3).order, offset=250)))
    assert any("ends at 1/1/300, the manifest records 1/1/250" in one.text for one in found(store, False))


@pytest.mark.parametrize("deep", [False, True])
def test_a_flipped_bit_anywhere_in_a_footer(store: ArchiveStore, deep: bool) -> None:
    # Some of these end the process when Arrow reads them (a column chunk's type, for one).
    path = path_of(store, 1)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little") + 8
    for at in range(len(whole) - length, len(whole), 201 if deep else 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        [problem] = found(store, deep)
        assert "checksum differs from the one that was kept" in problem.text


def test_a_storage_that_is_away_is_no_problem_of_the_archive(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OSError(errno.EIO, "away")

    monkeypatch.setattr("os.stat", away)
    with pytest.raises(ArchiveUnavailable):
        verify(store)


def test_a_folder_that_cannot_be_listed_hides_no_other_shard(store: ArchiveStore, tmp_path: Path) -> None:
    folder = tmp_path / "archive" / "a" / "data"
    folder.rename(folder.with_name("away"))
    folder.touch()
    report = verify(store)
    assert [(one.shard, one.file) for one in report.problems] == [("a", "")]
    assert "cannot list" in report.problems[0].text
    assert report.shards == 2
