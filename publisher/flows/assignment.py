"""Which subscriber gets which shard: weighted rendezvous hashing with bounded load.

Pure and decentralised: every publisher computes the same result from the same live subscribers. When a subscriber joins
or leaves, few other shards move. The score is the logarithmic method for weighted rendezvous hashing
(Schindelhauer and Schomaker, 2005): ``-weight / ln(u)`` with ``u`` in (0, 1) from a keyed 64-bit BLAKE2b of shard and
subscriber.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping

__all__ = ["assign"]

SLACK = 1.25
"""A subscriber's largest load, relative to its fair share. With slack, a subscriber that joins or leaves rarely moves
shards between two others."""


def _uniform(shard: str, subscriber: str) -> float:
    digest = hashlib.blake2b(f"{len(shard)}:{shard}{subscriber}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64


def assign(
    shards: Iterable[str], subscribers: Mapping[str, float], pinned: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns shard to subscriber id; empty without subscribers. ``subscribers``: id to weight (more than 0).

    A pinned shard is assigned only to the subscriber of its pin. While that subscriber is absent, the result lacks the
    shard.
    """
    pinned = pinned or {}
    wanted = sorted(set(shards))
    result = {shard: pinned[shard] for shard in wanted if pinned.get(shard) in subscribers}
    free = [shard for shard in wanted if shard not in pinned]
    total = sum(subscribers.values())
    if not subscribers or not free:
        return result
    room = {name: math.ceil(SLACK * len(wanted) * weight / total) for name, weight in subscribers.items()}
    for name in result.values():
        room[name] -= 1
    # Shards late in the order find full subscribers. The order by hash is equal for every publisher, and does not
    # depend on the names.
    for shard in sorted(free, key=lambda name: (_uniform(name, ""), name)):
        ranked = sorted(subscribers, key=lambda name: (subscribers[name] / math.log(_uniform(shard, name)), name))
        result[shard] = next((name for name in ranked if room[name] > 0), ranked[0])
        room[result[shard]] -= 1
    return result
