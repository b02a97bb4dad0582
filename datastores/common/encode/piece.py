"""The result of an encoder: encoded updates by columns, which :mod:`datastores.common.encode.runs` splits by shard."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ALL_SHARDS", "HASHED", "Piece"]

ALL_SHARDS: Final = 0xFFFFFFFF
"""In place of a shard's ordinal: the update is a barrier for every shard."""
HASHED: Final = 0xFFFFFFFE
"""In place of a shard's ordinal: the table's updates are split by the hash of their key."""


@dataclass(slots=True)
class Piece:
    """The updates encoded since an encoder's last ``take``, by columns. See `wormhole.model.segment.Run` for the
    columns' meaning.

    ``schema_of``: ordinal of each update's schema, one entry if all are the same. ``shard_of``: ordinal of each
    update's shard in the same form; may hold `ALL_SHARDS`. ``tx_source``: ordinal of each transaction's source, empty
    if all are 0. ``tx_committed_at_us``: empty if the log has no times.
    """

    blob: bytes
    ends: array[int]
    schema_of: array[int]
    shard_of: array[int]
    tx_number: array[int]
    tx_offset: array[int]
    tx_end: array[int]
    tx_source: array[int] = field(default_factory=lambda: array("I"))
    tx_committed_at_us: array[int] = field(default_factory=lambda: array("q"))
