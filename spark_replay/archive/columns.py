"""The columns of an archive file, one row per update, in the order of its shard's log.

What selects and orders updates is in columns of its own; the update itself is the bytes that travelled
(``wormhole.wire.v1.Update``), so a replay hands on what the live log did. Within one shard rows ascend by ``place``
strictly, within a file and from file to file.
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
"""Version of the archive's format; a reader refuses a newer one."""

METADATA_KEY: Final = b"wormhole.archive"
"""Key of the JSON in a file's footer: format, dataset, shard, epoch, ``begin`` and ``end`` datamarkers, every
datamarker in between (``markers``) and the schemas by id, so that a file can be read alone.
"""

SCHEMA: Final = pa.schema(
    [
        # See place_bytes; compared as bytes.
        pa.field("place", pa.binary(PLACE_BYTES), nullable=False),
        # The id of the update is "<tx_source>:<tx_number>:<tx_index>"; numbers of 64 bits in two's complement.
        pa.field("tx_source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("tx_number", pa.int64(), nullable=False),
        pa.field("tx_index", pa.int32(), nullable=False),
        pa.field("ends_tx", pa.bool_(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC")),
        # wormhole.model.values.Op, in lower case.
        pa.field("op", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("table", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # The bytes of the update's key fields, equal for equal keys of a table; empty where the update has none
        # (TRUNCATE).
        pa.field("key", pa.binary(), nullable=False),
        # The key before a key change, in the same form.
        pa.field("old_key", pa.binary()),
        pa.field("schema_id", pa.int64(), nullable=False),
        # Whether `after` may lack columns (UNAVAILABLE); never false when it does.
        pa.field("partial", pa.bool_(), nullable=False),
        pa.field("update", pa.binary(), nullable=False),
    ]
)

_TAIL: Final = struct.Struct(">BI")
_READS: Final = 1 << 31  # indexes of a log's updates are below it


def check_format(version: object, where: str, newest: int = FORMAT) -> None:
    """Refuse what a newer release wrote: what is above ``newest``. Raises ``TypeError`` for what is no version, and
    :class:`~wormhole.model.errors.ArchiveError`.
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
    """What orders an update in its shard: the place after its transaction, or of one that was not finished where it
    came in the place where that begins with ``inside``; then the index in it. Twenty-five bytes; see ``UpdatePlace`` in
    push.proto.
    """
    return position.to_bytes() + _TAIL.pack(inside, index)


def read_place(position: LogPosition, number: int) -> bytes:
    """What orders a row that a backfill read: behind every update of the log at its position, and in the order in which
    such rows came, which ``number`` counts from 0 at each position.
    """
    return place_bytes(position, False, _READS + number)


def before_reads(position: LogPosition) -> bytes:
    """The bound between the updates of the log at a position and before it, and what follows: the rows that a backfill
    read there first.
    """
    return place_bytes(position, False, _READS - 1)


def read_number(place: bytes) -> int | None:
    """The number in :func:`read_place`; ``None`` for the place of an update of the log."""
    inside, index = _TAIL.unpack_from(place, LogPosition.SIZE)
    return index - _READS if not inside and index >= _READS else None


def position_of(place: bytes) -> LogPosition:
    """The position in :func:`place_bytes`. Raises :class:`~wormhole.model.errors.PositionError` for fewer bytes."""
    return LogPosition.from_bytes(place[: LogPosition.SIZE])
