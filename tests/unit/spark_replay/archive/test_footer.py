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
