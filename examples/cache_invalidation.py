"""Drops cached users whose row changed. Run it beside the cache; WORMHOLE_COORDINATOR names where publishers are found.

python -m examples.cache_invalidation
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from subscriber_sdk import Subscriber, Update, run

__all__ = ["CacheInvalidator"]


class CacheInvalidator(Subscriber):
    """Forgetting twice does no harm, so at-least-once delivery needs no more care than this."""

    def __init__(self, cache: MutableMapping[Any, Any]) -> None:
        self.cache = cache

    async def on_update(self, update: Update) -> None:
        """Forget what changed."""
        self.cache.pop(update.key[0], None)


if __name__ == "__main__":
    run(CacheInvalidator({}), application="cache")
