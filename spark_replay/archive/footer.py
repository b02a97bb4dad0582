"""The footer of an archive file, so that the file can be read alone."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError as ProtobufDecodeError

from spark_replay.archive.columns import FORMAT, METADATA_KEY, SCHEMA, check_format
from spark_replay.archive.manifest import marker_from_text, marker_to_text
from wormhole.model.errors import ArchiveError, ProtocolError
from wormhole.model.json_input import read_json
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

__all__ = ["Footer", "crc_of_footer", "footer_to_bytes", "read_footer"]

_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, ProtocolError, ProtobufDecodeError)


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file, which has every update of ``shard`` between ``begin`` and ``end``.

    ``markers``: the datamarkers of the publisher after ``begin``, ascending; ``end`` is the last. A replay may report
    its progress at them. ``schemas``: the schemas of the rows, by id. ``epoch``: the epoch of the flow in which the
    file was written.
    """

    dataset: str
    shard: str
    epoch: int
    begin: Datamarker
    end: Datamarker
    markers: tuple[Datamarker, ...]
    schemas: Mapping[int, Schema]


def footer_to_bytes(footer: Footer) -> bytes:
    """The stored form, the value of :data:`~spark_replay.archive.columns.METADATA_KEY`."""
    given = {
        "format": FORMAT,
        "dataset": footer.dataset,
        "shard": footer.shard,
        "epoch": footer.epoch,
        "begin": marker_to_text(footer.begin),
        "end": marker_to_text(footer.end),
        "markers": [marker_to_text(marker) for marker in footer.markers],
        "schemas": [base64.b64encode(schema.canonical).decode() for schema in footer.schemas.values()],
    }
    return json.dumps(given, separators=(",", ":")).encode()


def crc_of_footer(metadata: pq.FileMetaData) -> int:
    """CRC-32 of the footer that a writer with this metadata has just written, with its length and the mark at the
    end."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return zlib.crc32(sink.getvalue()[4:])  # after the "PAR1" at the beginning of every file


def read_footer(metadata: pq.FileMetaData, where: str) -> Footer:
    """The footer of a Parquet file. ``where``: its path, for the message.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a file that no archive wrote, or a newer release.
    """
    data = (metadata.metadata or {}).get(METADATA_KEY)
    if data is None:
        raise ArchiveError(
            f"{where} is a Parquet file, but none of an archive",
            hint=(
                "it was put there, or a file was replaced: look where it comes from, and restore the archive's own "
                "from a backup"
            ),
        )
    try:
        given: dict[str, Any] = read_json(data)
        check_format(given["format"], where)
        columns = metadata.schema.to_arrow_schema()
        if not columns.equals(SCHEMA):
            raise ValueError(f"its columns are {', '.join(f'{one.name} {one.type}' for one in columns)}")
        schemas = [Schema.from_canonical(base64.b64decode(text, validate=True)) for text in given["schemas"]]
        return Footer(
            dataset=given["dataset"],
            shard=given["shard"],
            epoch=int(given["epoch"]),
            begin=marker_from_text(given["begin"]),
            end=marker_from_text(given["end"]),
            markers=tuple(map(marker_from_text, given["markers"])),
            schemas={schema.id: schema for schema in schemas},
        )
    except ArchiveError:
        raise
    except _DAMAGED as error:
        raise ArchiveError(
            f"the footer of {where} is damaged: {type(error).__name__} {error}",
            hint="restore the file from a backup, or archive the range again into a new folder while the log holds it",
        ) from error
