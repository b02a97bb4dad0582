"""The result of an encoder: a batch of encoded updates by columns, which ``runs`` splits by shard."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ALL_SHARDS", "HASHED", "Piece"]

ALL_SHARDS: Final = 0xFFFFFFFF
"""The shard ordinal of a barrier: an update that goes to every shard."""
HASHED: Final = 0xFFFFFFFE
"""The shard ordinal of a table whose updates are split by the hash of their key."""


@dataclass(slots=True)
class Piece:
    """The updates encoded since an encoder's last ``take``, by columns. `wormhole.model.segment.Run` describes the
    columns.

    ``schema_of``: the ordinal of each update's schema; a single entry applies to all updates. ``shard_of``: the ordinal
    of each update's shard, in the same form; `ALL_SHARDS` is possible. ``tx_source``: the ordinal of each transaction's
    source; empty: all are 0. ``tx_committed_at_us``: commit times; empty: the log has none.
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
