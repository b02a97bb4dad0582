"""Memory that peers share: who holds the most has to go, whoever asked."""

from __future__ import annotations

import pytest

from wormhole.model.errors import ProtocolError
from wormhole.push.room import Room, Share


class Peer:
    """Gives back what it holds when it is evicted, unless it is ``stubborn``: then it is being stored just now."""

    def __init__(self, room: Room, *, stubborn: bool = False) -> None:
        self.evicted: list[str] = []
        self.stubborn = stubborn
        self.share: Share = room.share(self._evict)

    def _evict(self, error: ProtocolError) -> None:
        self.evicted.append(error.message)
        if not self.stubborn:
            self.share.give(self.share.held)


@pytest.fixture
def room() -> Room:
    return Room(100)


def test_one_may_have_all_while_no_other_needs_it(room: Room) -> None:
    one = Peer(room)
    one.share.take(60)
    one.share.take(40)
    assert (room.used, one.share.held) == (100, 100)
    one.share.give(100)
    assert room.used == 0


def test_who_asks_for_too_much_is_refused_and_holds_what_it_had(room: Room) -> None:
    one = Peer(room)
    one.share.take(60)
    with pytest.raises(ProtocolError, match="park: 101 bytes of updates are not stored yet"):
        one.share.take(41)
    assert (room.used, one.evicted) == (60, [])


def test_who_holds_the_most_goes_for_one_that_holds_little(room: Room) -> None:
    large, small = Peer(room), Peer(room)
    large.share.take(95)
    small.share.take(10)
    assert len(large.evicted) == 1
    assert (small.evicted, room.used) == ([], 10)


def test_where_the_largest_cannot_go_the_next_one_has_to(room: Room) -> None:
    storing, middle, small = Peer(room, stubborn=True), Peer(room), Peer(room)
    storing.share.take(60)
    middle.share.take(30)
    small.share.take(20)
    assert (len(storing.evicted), len(middle.evicted), room.used) == (1, 1, 80)
    with pytest.raises(ProtocolError):
        small.share.take(30)
    assert (small.share.held, room.used) == (20, 80)
