"""The database of an application that keeps its datamarker with its effects, as ``subscriber_sdk.transactional`` does,
and what must hold for it: each effect once, each move of the datamarker adopted once, and none undone.
"""

from __future__ import annotations

from collections.abc import Collection

from subscriber_sdk.subscriber import KeptMarker, ShardNotice
from subscriber_sdk.transactional.marker_row import MarkerRow, start_of
from tests.simulation.world import World
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_bytes

__all__ = ["Target"]


class Target:
    """``rows``: of the shards that were assigned."""

    def __init__(self, world: World, shards: Collection[str]) -> None:
        self.rows: dict[str, MarkerRow] = {}
        self._world = world
        self._moves: dict[str, dict[int, int]] = {shard: {0: 0} for shard in shards}
        """By shard: the place of each move that ZooKeeper holds, by its number."""

    def moved(self, shard: str, move: int, to: int) -> bool:
        """ZooKeeper holds a record of this move. Returns whether that is a later move than before."""
        later = move > max(self._moves[shard])
        if later:
            self._moves[shard][move] = to
        return later

    def was_moved(self, shard: str) -> bool:
        """Whether the datamarker of the shard was ever moved."""
        return max(self._moves[shard]) > 0

    def adopted(self, shard: str) -> bool:
        """Whether the application has adopted the last move."""
        return shard in self.rows and self.rows[shard].move == max(self._moves[shard])

    def holds(self, shard: str, number: int) -> bool:
        """Whether the effects up to this update are stored: an operator may set the datamarker there without a move."""
        return shard in self.rows and self.rows[shard].datamarker.order.offset >= number

    def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch begins. Raises :class:`~wormhole.model.errors.EpochRefused`."""
        row = self.rows.get(notice.shard)
        if row is not None and notice.was_set_back(KeptMarker(row.datamarker, row.move)):
            self._world.violation(f"{notice.shard} is at {row}, and its last acknowledgement is {notice.last_ack}")
        start = start_of(row, notice)
        if start.halt is not None:
            self._world.violation(f"{notice.shard} is halted: {start.halt}")
            return None
        to, move = start.row.datamarker.order.offset, start.row.move
        if row is not None and start.have is None:
            self._world.trace(f"the application adopts move {move} of {notice.shard} to {to}")
            if move <= row.move:
                self._world.violation(f"move {move} of {notice.shard} is adopted after move {row.move}")
        if start.have is None and move and self._moves[notice.shard].get(move) != to:
            self._world.violation(f"move {move} of {notice.shard} is adopted at {to}, and is {self._moves}")
        self.rows[notice.shard] = start.row
        return start.have

    def commit(self, shard: str, begun: MarkerRow, marker: Datamarker, updates: list[int]) -> MarkerRow | None:
        """Store the effects of these updates with the datamarker. ``begun``: the row when the transaction began.
        Returns the row; ``None``: another one has the shard."""
        row = self.rows[shard]
        if (row.epoch, row.version) != (begun.epoch, begun.version):
            return None
        if not updates and row.marker == marker_to_bytes(marker):
            return row
        due = list(range(row.datamarker.order.offset + 1, marker.order.offset + 1))
        if updates != due:
            self._world.violation(f"the effects of {updates} of {shard} are stored, and {due} are due")
        self.rows[shard] = row.advanced(marker, ())
        return self.rows[shard]
