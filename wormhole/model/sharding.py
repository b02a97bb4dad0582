"""How one log is split into shards: the unit of order and of assignment.

The hash of ``{hash = N}`` is documented because every tool that looks for a key's shard must be able to compute it:
**CRC-32** (the one of zlib, gzip and PNG, RFC 1952 section 8) of the key's bytes, modulo N. The key's bytes are the
serialized ``Value`` messages of the key columns, joined. If the key is a single bytes column, they are the bytes of its
value.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Literal

__all__ = ["Sharding", "hash_shards", "shard_of_hash", "shard_of_table"]

_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Sharding:
    """``by``: log, database, table or hash; ``count``: number of hash shards (0 otherwise)."""

    by: Literal["log", "database", "table", "hash"]
    count: int = 0


def shard_of_table(log: str, table: str) -> str:
    """The name of the shard of a table (or database): ``log.table``.

    Other characters than letters, digits, ``_`` and ``-`` are percent-encoded, so that the name fits a path.
    """
    quoted = _PLAIN.sub(lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), table)
    return f"{log}.{quoted}"


def hash_shards(log: str, count: int) -> tuple[str, ...]:
    """The names of a log's hash shards."""
    return tuple(f"{log}.{k}of{count}" for k in range(count))


def shard_of_hash(log: str, key: bytes, count: int) -> str:
    """Name of the hash shard that holds ``key``: ``log.<k>of<count>``."""
    return f"{log}.{zlib.crc32(key) % count}of{count}"
