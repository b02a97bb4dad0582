"""The columns of an archive file, one row per update, in the order of its shard's log.

The values by which updates are selected and ordered have their own columns. The update itself is stored as the bytes of
the wire (``wormhole.wire.v1.Update``), so a replay delivers the same bytes as the live log. The rows of one shard
strictly ascend by ``place``, within a file and from file to file.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from wormhole.model.errors import ArchiveError
from wormhole.model.position import LogPosition
from wormhole.wire.columns import PLACE_BYTES

__all__ = ["FORMAT", "METADATA_KEY", "PLACE_BYTES", "SCHEMA"]
__all__ += ["before_reads", "check_format", "place_bytes", "position_of", "read_number", "read_place"]

FORMAT: Final = 1
"""The version of the archive's format. A reader refuses a newer one."""

METADATA_KEY: Final = b"wormhole.archive"
"""Key of the JSON in a file's footer: format, dataset, shard, epoch, ``begin`` and ``end`` datamarkers, every
datamarker in between (``markers``) and the schemas by id, so that a file can be read alone.
"""

SCHEMA: Final = pa.schema(
    [
        # The form is that of place_bytes. Values are compared as bytes.
        pa.field("place", pa.binary(PLACE_BYTES), nullable=False),
        # The id of the update is "<tx_source>:<tx_number>:<tx_index>"; numbers of 64 bits in two's complement.
        pa.field("tx_source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("tx_number", pa.int64(), nullable=False),
        pa.field("tx_index", pa.int32(), nullable=False),
        pa.field("ends_tx", pa.bool_(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC")),
        # The name of a wormhole.model.values.Op, in lower case.
        pa.field("op", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("table", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # The bytes of the update's key fields, equal for equal keys of a table; empty for an update without a key
        # (TRUNCATE).
        pa.field("key", pa.binary(), nullable=False),
        # The key before a key change, in the same form.
        pa.field("old_key", pa.binary()),
        pa.field("schema_id", pa.int64(), nullable=False),
        # Whether `after` may lack columns (UNAVAILABLE). If it lacks any, this is true.
        pa.field("partial", pa.bool_(), nullable=False),
        pa.field("update", pa.binary(), nullable=False),
    ]
)

_TAIL: Final = struct.Struct(">BI")
_READS: Final = 1 << 31  # indexes of a log's updates are below it


def check_format(version: object, where: str, newest: int = FORMAT) -> None:
    """Refuse a version above ``newest``, which a newer release wrote.

    Raises :class:`~wormhole.model.errors.ArchiveError`, and ``TypeError`` for a value that is not a version.
    """
    if not isinstance(version, int):
        raise TypeError("format is no number")
    if version > newest:
        raise ArchiveError(
            f"{where} was written by a newer release: its format is {version}, this release reads up to {newest}",
            hint="install the release that wrote it, or a later one",
            code="release-too-old",
        )


def place_bytes(position: LogPosition, inside: bool, index: int) -> bytes:
    """Twenty-five bytes that order an update in its shard: a position, ``inside`` and the index in the transaction.

    The position is the one after the transaction. If the transaction was unfinished when the update came, it is the
    position where the transaction begins, and ``inside`` is true. See ``UpdatePlace`` in push.proto.
    """
    return position.to_bytes() + _TAIL.pack(inside, index)


def read_place(position: LogPosition, number: int) -> bytes:
    """The bytes that order a row that a backfill read: after every update of the log at its position.

    ``number`` counts such rows in the order in which they came, from 0 at each position.
    """
    return place_bytes(position, False, _READS + number)


def before_reads(position: LogPosition) -> bytes:
    """The bound after the updates of the log up to ``position``. Rows that a backfill read there follow first."""
    return place_bytes(position, False, _READS - 1)


def read_number(place: bytes) -> int | None:
    """The number in :func:`read_place`; ``None`` for the place of an update of the log."""
    inside, index = _TAIL.unpack_from(place, LogPosition.SIZE)
    return index - _READS if not inside and index >= _READS else None


def position_of(place: bytes) -> LogPosition:
    """The position in :func:`place_bytes`. Raises :class:`~wormhole.model.errors.PositionError` for fewer bytes."""
    return LogPosition.from_bytes(place[: LogPosition.SIZE])
