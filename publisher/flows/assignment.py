"""Which subscriber gets which shard: weighted rendezvous hashing with bounded load.

Pure and decentralised: every publisher computes the same from the same live subscribers. When a subscriber joins or
leaves, few shards move beyond those that have to. The score is the logarithmic method for weighted rendezvous hashing
(Schindelhauer and Schomaker, 2005): ``-weight / ln(u)`` with ``u`` in (0, 1) from a keyed 64-bit BLAKE2b of shard and
subscriber.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping

__all__ = ["assign"]

SLACK = 1.25
"""How far above its fair share a subscriber may be loaded, so that one more or less rarely moves a third one's shards.
"""


def _uniform(shard: str, subscriber: str) -> float:
    digest = hashlib.blake2b(f"{len(shard)}:{shard}{subscriber}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64


def assign(
    shards: Iterable[str], subscribers: Mapping[str, float], pinned: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Shard to subscriber id. ``subscribers``: id to weight (more than 0). A shard that is pinned to a live subscriber
    is assigned to it. A shard that is pinned to an absent subscriber has no owner, because a pin permits no other
    subscriber. Empty without subscribers.
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
    # Shards later in the order find full subscribers. Ordering by a hash makes the order equal for every publisher and
    # independent of names.
    for shard in sorted(free, key=lambda name: (_uniform(name, ""), name)):
        ranked = sorted(subscribers, key=lambda name: (subscribers[name] / math.log(_uniform(shard, name)), name))
        result[shard] = next((name for name in ranked if room[name] > 0), ranked[0])
        room[result[shard]] -= 1
    return result
