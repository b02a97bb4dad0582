"""What somebody else put into an archive: one error that names the file, whatever it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import METADATA_KEY, SCHEMA
from spark_replay.archive.manifest import manifest_from_json
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.pieces import Selector
from tests.support.archives import blocks_at, crc_at, manifest_given, manifest_of, marker_at, put, tx, write_archive
from wormhole.formats import ValueFormats
from wormhole.model.errors import ArchiveError

ALL = Selector("", "", ValueFormats())


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    one = [[tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2"))], [tx(put(b"k3", b"v3"))]]
    other = [[tx(put(b"x1", b"v1")), tx(put(b"x2", b"v2"))], [tx(put(b"x3", b"v3"))]]
    return write_archive(tmp_path / "archive", {"a": one, "b": other})


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
    with pytest.raises(ArchiveError, match=f"another file than the manifest says: dataset orders, shard {shard}, "):
        open_file(store, "a", entry)


def test_files_that_are_no_chain_are_not_replayed(store: ArchiveStore) -> None:
    from spark_replay.archive.ranges import Asked, range_of

    given = manifest_given(manifest_of(store, "a"))
    given["files"].pop(0)
    damaged = manifest_from_json(json.dumps(given).encode(), "x")
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
def test_an_entry_of_a_manifest_that_cannot_be(store: ArchiveStore, key: str, value: object) -> None:
    given = manifest_given(manifest_of(store, "a"))
    given.update(value if isinstance(value, dict) and not key else {"files": [{**given["files"][0], key: value}]})
    with pytest.raises(ArchiveError, match=r"x\.json is no manifest"):
        manifest_from_json(json.dumps(given).encode(), "x.json")
