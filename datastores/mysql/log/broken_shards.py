"""The shards of which something cannot be read: their flows are held, and all others go on."""

from __future__ import annotations

from collections.abc import Iterable

from wormhole.model.errors import DecodeError
from wormhole.model.position import LogPosition

__all__ = ["BrokenShards"]


class BrokenShards(dict[str, DecodeError]):
    """Shards with rows that cannot be read, since the transaction that begins at ``at``, and why."""

    def __init__(self, at: LogPosition) -> None:
        super().__init__()
        self.at = at

    def add(self, shards: Iterable[str], error: DecodeError, place: LogPosition) -> bool:
        """These shards lack something of the transaction that begins at ``place``. Returns whether no other did."""
        fresh = {}
        for shard in shards:
            known = self.get(shard)
            if known is None:
                fresh[shard] = error
            elif known.tables:  # a flow that wants none of these may want what is missing now
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
        """All of them, which are handed out."""
        taken = dict(self)
        self.clear()
        return taken
