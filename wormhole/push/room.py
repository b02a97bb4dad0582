"""Limits the memory for data that peers sent and that is not stored yet, by one budget for all peers. Pure.

The budget is shared without being divided: one peer may fill it while no other needs it. When it is full, the peer that
holds the most loses its stream, even if another peer requests more. So a peer that holds little is never refused
because of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wormhole.model.errors import ProtocolError

__all__ = ["Room", "RoomFullError", "Share"]

_HINT: Final = "park fewer and smaller updates at a time; the stream is dialled again and they may be sent again"


class RoomFullError(ProtocolError):
    """A peer holds ``held`` bytes of ``most``, more than any other, and the memory is full."""

    def __init__(self, held: int, most: int) -> None:
        super().__init__(
            (
                f"park: {held} bytes of updates are not stored yet, more than of any other peer, and {most} bytes are "
                "all there is"
            ),
            hint=_HINT,
        )


class Room:
    """The budget: ``most`` bytes for all shares together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._shares: set[Share] = set()

    def share(self, evict: Callable[[RoomFullError], None]) -> Share:
        """A share for one peer. ``evict``: ends the peer's stream with the error, and drops its unfinished data."""
        return Share(self, evict)

    def _largest_but(self, passed: set[Share]) -> Share | None:
        return max((share for share in self._shares if share not in passed), key=lambda share: share.held, default=None)


class Share:
    """The memory that one peer holds."""

    __slots__ = ("_evict", "_room", "held")

    def __init__(self, room: Room, evict: Callable[[RoomFullError], None]) -> None:
        self.held = 0
        self._room = room
        self._evict = evict

    def take(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises :class:`RoomFullError`, and holds no more, when this peer holds the most."""
        room = self._room
        self.held += size
        room.used += size
        room._shares.add(self)
        passed: set[Share] = set()
        while room.used > room.most:
            largest = room._largest_but(passed)
            if largest is None or largest is self:
                held = self.held
                self.give(size)
                raise RoomFullError(held, room.most)
            passed.add(largest)
            largest._evict(RoomFullError(largest.held, room.most))

    def give(self, size: int) -> None:
        """Release ``size`` bytes."""
        self.held -= size
        self._room.used -= size
        if not self.held:
            self._room._shares.discard(self)
