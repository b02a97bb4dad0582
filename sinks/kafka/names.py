"""Names of topics and transactions, and the partitions of keys. Pure."""

from __future__ import annotations

import re
from typing import Final

from subscriber_sdk import ShardNotice

__all__ = ["is_topic", "partition_of", "topic_of", "transactional_id"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_OTHER: Final = re.compile(r"[^A-Za-z0-9._]", re.ASCII)
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def is_topic(name: str) -> bool:
    """Whether Kafka allows a topic with this name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def topic_of(template: str, table: str) -> str:
    """The topic of a table. Each byte of the table's name that a topic's name cannot have, and each ``-``, becomes
    ``-`` and two hexadecimal digits, so that two tables never share a topic. The result may be too long.
    """
    return template.replace("{table}", _OTHER.sub(_escaped, table))


def transactional_id(notice: ShardNotice) -> str:
    """The ``transactional.id`` of a shard's transactions. The first three names contain no ``/``."""
    return f"wormhole/{notice.application}/{notice.dataset}/{notice.log}/{notice.shard}"


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's producer chooses for a key, by the hash murmur2 of 32 bits."""
    length = len(key)
    whole = length & ~3
    hashed = 0x9747B28C ^ length
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        hashed = (hashed * _M ^ (word ^ word >> 24) * _M) & _MASK
    if whole < length:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"-{byte:02X}" for byte in found[0].encode())
