"""The footer by which a file can be read alone."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import FORMAT, METADATA_KEY, SCHEMA
from spark_replay.archive.footer import Footer, footer_to_bytes, read_footer
from tests.support.archives import CUSTOMERS, KEYS, marker_at
from wormhole.model.errors import ArchiveError

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
    with pytest.raises(ArchiveError, match=r"x\.parquet is a Parquet file, but none of an archive"):
        read_footer(metadata(None), "x.parquet")


def test_a_newer_format_names_both_releases() -> None:
    given = json.loads(footer_to_bytes(FOOTER))
    given["format"] = FORMAT + 1
    with pytest.raises(ArchiveError, match=f"written by a newer release: its format is {FORMAT + 1}"):
        read_footer(metadata(json.dumps(given).encode()), "x.parquet")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"format": "1"}', b'{"format": 1}'])
def test_damage(data: bytes) -> None:
    with pytest.raises(ArchiveError, match=r"the footer of x\.parquet is damaged"):
        read_footer(metadata(data), "x.parquet")


@pytest.mark.parametrize(("name", "value"), [("begin", "%"), ("end", "AAAA"), ("schemas", ["////"]), ("markers", 1)])
def test_damage_within(name: str, value: object) -> None:
    given = json.loads(footer_to_bytes(FOOTER)) | {name: value}
    with pytest.raises(ArchiveError, match="is damaged"):
        read_footer(metadata(json.dumps(given).encode()), "x.parquet")


def test_other_columns() -> None:
    with pytest.raises(ArchiveError, match="its columns are place"):
        read_footer(metadata(footer_to_bytes(FOOTER), pa.schema([SCHEMA.field("place")])), "x.parquet")
