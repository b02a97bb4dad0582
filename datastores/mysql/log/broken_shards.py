"""Collects the shards with unreadable updates. Their flows are held, and all other flows continue."""

from __future__ import annotations

from collections.abc import Iterable

from wormhole.model.errors import DecodeError
from wormhole.model.position import LogPosition

__all__ = ["BrokenShards"]


class BrokenShards(dict[str, DecodeError]):
    """Shards with unreadable rows, and the reasons. ``at``: the beginning of the first transaction with such a row."""

    def __init__(self, at: LogPosition) -> None:
        super().__init__()
        self.at = at

    def add(self, shards: Iterable[str], error: DecodeError, place: LogPosition) -> bool:
        """Add shards that lack updates of the transaction that begins at ``place``. Returns whether any shard is
        new."""
        fresh = {}
        for shard in shards:
            known = self.get(shard)
            if known is None:
                fresh[shard] = error
            elif known.tables:  # a flow without the known tables may need the new one
                known.tables = known.tables + error.tables if error.tables else ()
        if not fresh:
            return False
        error.at(position=str(place))
        first = not self
        if first:
            self.at = place
        self.update(fresh)
        return first

    def take(self) -> dict[str, DecodeError]:
        """Remove and return all broken shards."""
        taken = dict(self)
        self.clear()
        return taken
