"""How an archive is laid out, what its manifests cover, and the checksums of all that is read."""

from __future__ import annotations

import io
import itertools
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.checksums import BLOCK_BYTES, Blocks, BrokenBlockError, CheckedSource, SummingSink
from spark_replay.archive.columns import METADATA_KEY, PLACE_BYTES, SCHEMA, place_bytes, position_of
from spark_replay.archive.coverage import chain_problems, coverage, missing, time_of
from spark_replay.archive.json_checksum import check_checksum, with_checksum
from spark_replay.archive.layout import (
    About,
    about_from_json,
    about_to_json,
    manifest_path,
    version_of,
)
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest, manifest_from_json
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.pieces import Selector
from tests.support.archives import (
    blocks_at,
    copy_of,
    crc_at,
    manifest_given,
    manifest_of,
    marker_at,
    put,
    tx,
    write_archive,
)
from wormhole.formats import ValueFormats
from wormhole.model.errors import ArchiveError, PositionError
from wormhole.model.position import LogPosition

# --- layout: names within an archive, and whose it is ---


FOR_EVER = b'{"format": 1, "dataset": "d", "copy": "c", "created": Infinity}'


def test_manifests_sort_as_their_numbers_do() -> None:
    names = [manifest_path("db1", number) for number in (1, 9, 10, 2**64 - 1)]
    assert names == sorted(names)
    assert [version_of(name.rpartition("/")[2]) for name in names] == [1, 9, 10, 2**64 - 1]
    others = [".00000000000000000001.json.ab", "1.json", "00000000000000000001.json.bak", "x"]
    assert not any(map(version_of, others))


def test_whose_archive_it_is() -> None:
    about = About("orders", "main", 7)
    assert about_from_json(about_to_json(about), "x") == about


NONE = [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": 1}', b"\xff", b"[" * 100_000, FOR_EVER]


@pytest.mark.parametrize(
    ("data", "told", "hint"),
    [
        *((data, "does not name the dataset", "") for data in NONE),
        (b'{"format": 99}', "was written by a newer release: its format is 99", "install the release that wrote it"),
    ],
)
def test_what_does_not_say_it(data: bytes, told: str, hint: str) -> None:
    with pytest.raises(ArchiveError, match=f"^/a/archive.json {told}") as caught:
        about_from_json(data, "/a/archive.json")
    assert hint in str(caught.value.hint)


# --- columns: places: they order updates as their log does, compared as bytes ---


def test_bytes_order_as_places_do() -> None:
    """Incarnation, file and offset first; at one position what ends there is before what only begins there; then the
    index."""
    positions = [LogPosition(*parts) for parts in itertools.product((1, 2), (1, 256), (0, 255, 1 << 40))]
    places = [(at, inside, index) for at in positions for inside in (False, True) for index in (0, 1, 1 << 31)]
    assert sorted(random.Random(1).sample(places, len(places)), key=lambda place: place_bytes(*place)) == places
    assert {len(place_bytes(*place)) for place in places} == {PLACE_BYTES}
    assert SCHEMA.field("place").type.byte_width == PLACE_BYTES
    assert [position_of(place_bytes(*place)) for place in places] == [place[0] for place in places]


def test_a_part_of_a_place_is_refused() -> None:
    with pytest.raises(PositionError):
        position_of(b"\x00" * 5)


# --- coverage: what a manifest covers, and what is wrong with one ---


def entry(begin: int, end: int, rows: int = 1) -> FileEntry:
    times = (begin * 1000 + 1, end * 1000)
    return FileEntry(
        f"{begin}-{end}", rows, 100 * rows, marker_at(begin), marker_at(end), *times, {"upsert": rows}, {"t": rows}
    )


def manifest(*files: FileEntry, begin: int = 0, end: int | None = None, losses: tuple[int, ...] = ()) -> Manifest:
    last = marker_at(end) if end is not None else files[-1].end
    known = tuple(KnownLoss(marker_at(one), f"lost before {one}") for one in losses)
    return Manifest("orders", "a", 3, 1, marker_at(begin), last, True, files, known, copy="main")


def at(number: int) -> LogPosition:
    return marker_at(number).order


LOST = manifest(entry(0, 2), entry(4, 5), losses=(4,))
LOST_AT_THE_END = manifest(entry(0, 2), end=4, losses=(4,))


@pytest.mark.parametrize(
    ("given", "spans"),
    [
        (manifest(entry(0, 2), entry(2, 5, rows=4)), [(0, 5, 2, 1, 5000)]),
        (LOST, [(0, 2, 1, 1, 2000), (4, 5, 1, 4001, 5000)]),
        (LOST_AT_THE_END, [(0, 2, 1, 1, 2000), (4, 4, 0, 0, 0)]),
        (manifest(begin=3, end=3), [(3, 3, 0, 0, 0)]),
    ],
)
def test_a_loss_splits_what_is_covered(given: Manifest, spans: list[tuple[int, ...]]) -> None:
    held = coverage(given)
    expected = [(marker_at(begin), marker_at(end), *rest) for begin, end, *rest in spans]
    assert [(one.begin, one.end, one.files, one.first_us, one.last_us) for one in held.spans] == expected
    total = (len(given.files), sum(one.rows for one in given.files), sum(one.bytes for one in given.files), True)
    assert (held.files, held.rows, held.bytes, held.whole) == total


@pytest.mark.parametrize(
    ("begin", "end", "lacks"),
    [
        (2, 4, []),
        (3, 7, [(4, 6)]),
        (0, 9, [(0, 2), (4, 6), (8, 9)]),
        (0, 1, [(0, 1)]),
        (4, 5, [(4, 5)]),
        (5, 5, []),
    ],
)
def test_what_is_missing(begin: int, end: int, lacks: list[tuple[int, int]]) -> None:
    held = manifest(entry(2, 4), entry(6, 8), begin=2, losses=(6,))
    assert missing(held, at(begin), at(end)) == tuple((at(one), at(other)) for one, other in lacks)
    assert missing(None, at(1), at(2)) == ((at(1), at(2)),)


def test_the_time_of_a_file_is_that_of_its_youngest_update() -> None:
    silent = replace(entry(1, 2), last_us=0)
    assert time_of(silent) == marker_at(2).committed_at_us
    assert time_of(replace(silent, last_us=2**60)) == 2**60
    assert time_of(replace(silent, end=replace(silent.end, committed_at_us=0))) == 0


BACKWARDS = replace(entry(2, 3), name="x", end=marker_at(1))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (manifest(entry(0, 2), entry(2, 5)), ""),
        (LOST, ""),
        (LOST_AT_THE_END, ""),
        (manifest(entry(0, 2), entry(3, 5)), "hole between 1/1/200 and 1/1/300: nothing lies between 0-2 and 3-5"),
        (manifest(entry(0, 3), entry(2, 5)), "overlap: 2-5 begins at 1/1/200, 0-3 goes up to 1/1/300"),
        (manifest(entry(1, 2), end=2), "hole between 1/1/0 and 1/1/100: nothing lies between the archive and 1-2"),
        (manifest(entry(0, 2), end=3), "hole between 1/1/200 and 1/1/300: nothing lies between 0-2 and the end"),
        (manifest(entry(0, 2), end=1), "overlap: the end begins at 1/1/100, 0-2 goes up to 1/1/200"),
        (manifest(entry(0, 2), BACKWARDS), "x ends at 1/1/100, before it begins at 1/1/200"),
        (manifest(entry(0, 2), entry(0, 2)), "0-2 is named twice"),
    ],
)
def test_problems_of_a_chain(given: Manifest, problem: str) -> None:
    found = chain_problems(given)
    assert problem in found if problem else found == []


# --- json checksum: A JSON file that begins with a checksum of itself ---


GIVEN = {"format": 1, "name": "naïve", "crc32 of another": '{"crc32":"00000000",'}


@pytest.mark.parametrize("how", [{}, {"separators": (",", ":")}, {"indent": 1, "ensure_ascii": False}])
def test_every_flipped_bit_of_a_document_is_found(how: dict[str, object]) -> None:
    data = with_checksum(GIVEN, **how)
    check_checksum(data)
    found = json.loads(data)
    assert found.pop("crc32") != "00000000"
    assert found == GIVEN
    for at in range(len(data)):
        for bit in range(8):
            with pytest.raises(ValueError, match="differs from its own checksum"):
                check_checksum(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def test_a_file_without_a_checksum_is_refused() -> None:
    with pytest.raises(ValueError, match="differs from its own checksum"):
        check_checksum(json.dumps(GIVEN).encode())


# --- manifest: what somebody else put into an archive: one error that names the file, whatever it is ---


ALL = Selector("", "", ValueFormats())


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    one = [[tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2"))], [tx(put(b"k3", b"v3"))]]
    other = [[tx(put(b"x1", b"v1")), tx(put(b"x2", b"v2"))], [tx(put(b"x3", b"v3"))]]
    return write_archive(tmp_path_factory.mktemp("layout") / "archive", {"a": one, "b": other})


@pytest.fixture
def store(unchanged: ArchiveStore, tmp_path: Path) -> ArchiveStore:
    return copy_of(unchanged, tmp_path / "archive")


def path_of(store: ArchiveStore, shard: str, file: int) -> Path:
    return Path(store.data_path(shard, manifest_of(store, shard).files[file].name))


def measured(path: Path) -> dict[str, Any]:
    """What the manifest would say if the archiver had written this."""
    return {"bytes": path.stat().st_size, "footer_crc": crc_at(path), "blocks": blocks_at(path)}


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> dict[str, Any]:
    """Another file with the same footer; what the manifest would say if the archiver had written it."""
    with pq.ParquetFile(path) as file:
        rows, footer = change(file.read()), file.metadata.metadata[METADATA_KEY]
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({METADATA_KEY: footer})
    return measured(path)


NUMBERS = pa.field("place", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows.slice(0, 1), "with 1 rows"),
        (lambda rows: rows.set_column(SCHEMA.get_field_index("place"), NUMBERS, pa.array([1, 2])), "place int64"),
    ],
)
def test_a_file_with_other_rows_or_columns_is_refused(
    store: ArchiveStore, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    made = rewrite(path_of(store, "a", 0), change)
    with pytest.raises(ArchiveError, match=told):
        open_file(store, "a", replace(manifest_of(store, "a").files[0], **made))


@pytest.mark.parametrize(("shard", "file"), [("b", 0), ("a", 1)])
def test_a_file_of_another_shard_or_place_is_refused_though_its_checksums_fit(
    store: ArchiveStore, shard: str, file: int
) -> None:
    """A manifest was written by hand, or data files and manifests of several archives were mixed."""
    entry = replace(manifest_of(store, "a").files[0], **measured(path_of(store, shard, file)))
    shutil.copy(path_of(store, shard, file), path_of(store, "a", 0))
    with pytest.raises(ArchiveError, match=f"another file than the manifest records: dataset orders, shard {shard}, "):
        open_file(store, "a", entry)


def test_files_that_are_no_chain_are_not_replayed(store: ArchiveStore) -> None:
    from spark_replay.archive.ranges import Asked, range_of

    given = manifest_given(manifest_of(store, "a"))
    given["files"].pop(0)
    damaged = manifest_from_json(with_checksum(given), "x")
    with pytest.raises(ArchiveError, match="the manifest of a is damaged: hole between"):
        range_of(damaged, marker_at(0), Asked(), Asked(), lambda entry: ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", float("inf")),
        ("rows", "12"),
        ("rows", -1),
        ("rows", True),
        ("bytes", 1.5),
        ("hash", 1 << 64),
        ("footer_crc", "0"),
        ("ops", {"upsert": "many"}),
        ("tables", []),
        ("schemas", {"x": "t"}),
        ("name", ""),
        ("name", "../x.parquet"),
        ("name", "a\\b"),
        ("name", "a\0b"),
        ("name", "\ud800"),
        ("name", 7),
        ("first_us", float("nan")),
        ("", {"version": float("inf")}),
        ("", {"epoch": "1"}),
        ("", {"dataset": 1}),
        ("", {"copy": None}),
        ("", {"losses": [{}]}),
    ],
)
def test_an_entry_of_a_manifest_that_cannot_be(unchanged: ArchiveStore, key: str, value: object) -> None:
    given = manifest_given(manifest_of(unchanged, "a"))
    given.update(value if isinstance(value, dict) and not key else {"files": [{**given["files"][0], key: value}]})
    with pytest.raises(ArchiveError, match=r"x\.json is no manifest"):
        manifest_from_json(with_checksum(given), "x.json")


# --- checksums: no byte is read that was not compared ---


def summed(data: bytes, pieces: int = 1) -> Blocks:
    kept = io.BytesIO()
    sink = SummingSink(kept)
    step = len(data) // pieces + 1
    for at in range(0, len(data), step):
        assert sink.write(data[at : at + step]) == len(data[at : at + step])
    assert (kept.getvalue(), sink.written) == (data, len(data))
    return sink.blocks()


def opened(data: bytes, blocks: Blocks) -> CheckedSource:
    return CheckedSource(pa.PythonFile(io.BytesIO(data), mode="r"), len(data), blocks)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7])
def test_the_checksums_do_not_depend_on_how_the_bytes_come(size: int) -> None:
    data = Random(size).randbytes(size)
    blocks = summed(data)
    assert summed(data, 1000) == blocks
    assert blocks.cover(size)
    assert not blocks.cover(size + BLOCK_BYTES)
    opened(data, blocks).check()


def test_reads_of_any_part_are_those_of_the_file() -> None:
    chance = Random(7)
    data = chance.randbytes(12 * BLOCK_BYTES + 5)
    source = opened(data, summed(data))
    for _ in range(60):
        at, count = chance.randrange(len(data) + 10), chance.choice([0, 1, 100, BLOCK_BYTES, 3 * BLOCK_BYTES, -1])
        assert source.seek(at) == source.tell() == at
        assert source.read(count) == (data[at:] if count < 0 else data[at : at + count])
    assert (source.seek(-5, 2), source.read()) == (len(data) - 5, data[-5:])
    assert source.size() == len(data)


def test_what_is_in_memory_does_not_grow_with_the_file() -> None:
    data = bytes(20 * BLOCK_BYTES)
    source = opened(data, summed(data))
    source.check()
    assert len(source._kept) == 8


def test_only_the_blocks_that_are_asked_for_are_read() -> None:
    data = bytearray(Random(1).randbytes(3 * BLOCK_BYTES))
    blocks = summed(bytes(data))
    data[BLOCK_BYTES + 9] ^= 1
    source = opened(bytes(data), blocks)
    assert source.read(BLOCK_BYTES) == data[:BLOCK_BYTES]
    source.seek(2 * BLOCK_BYTES)
    assert source.read() == data[2 * BLOCK_BYTES :]
    source.seek(BLOCK_BYTES - 1)
    with pytest.raises(BrokenBlockError, match=r"bytes 1,048,576 to 2,097,152 are not those that were written"):
        source.read(2)
    with pytest.raises(BrokenBlockError):
        source.check()


@pytest.mark.parametrize("seed", range(5))
def test_every_flipped_bit_is_found(seed: int) -> None:
    chance = Random(seed)
    data = bytearray(chance.randbytes(BLOCK_BYTES + 1000))
    blocks = summed(bytes(data))
    for _ in range(20):
        at, bit = chance.randrange(len(data)), 1 << chance.randrange(8)
        data[at] ^= bit
        with pytest.raises(BrokenBlockError):
            opened(bytes(data), blocks).check()
        data[at] ^= bit


def test_a_source_that_ends_early_is_reported() -> None:
    data = bytes(100)
    source = CheckedSource(pa.PythonFile(io.BytesIO(data[:50]), mode="r"), 100, summed(data))
    with pytest.raises(BrokenBlockError):
        source.read()
    source.close()
    assert source.closed
