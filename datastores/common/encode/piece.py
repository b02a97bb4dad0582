"""What an encoder returns: encoded updates by columns, which :mod:`datastores.common.encode.runs` splits by shard."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ALL_SHARDS", "HASHED", "Piece"]

ALL_SHARDS: Final = 0xFFFFFFFF
"""Stands for a shard's ordinal: the update is a barrier that goes to every shard."""
HASHED: Final = 0xFFFFFFFE
"""Stands for the shard of a table whose updates are split by the hash of their key."""


@dataclass(slots=True)
class Piece:
    """What was encoded since an encoder's last ``take``, by columns; see `wormhole.model.segment.Run` for their
    meaning.

    ``schema_of``: ordinal of each update's schema, one entry if all are the same. ``shard_of`` likewise, may hold
    `ALL_SHARDS`. ``tx_source``: ordinal of each transaction's source, empty when all are 0; ``tx_committed_at_us``:
    empty where the log has no times.
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
