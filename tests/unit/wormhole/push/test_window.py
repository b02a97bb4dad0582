"""Credit and room: how much may be on its way and in memory."""

from __future__ import annotations

import pytest

from wormhole.model.errors import ProtocolError
from wormhole.push.allowance import Reading, TokenBucket
from wormhole.push.room import Room, Share
from wormhole.push.window import MOST_BATCHES, MOST_CREDIT, Window

# --- Credit: what may be in flight


@pytest.fixture
def window() -> Window:
    return Window(100)


def test_a_body_fits_while_the_credit_lasts(window: Window) -> None:
    assert window.admits(100)
    assert window.sent(60) == 1
    assert window.admits(40)
    assert not window.admits(41)
    assert window.sent(40) == 2
    assert not window.admits(1)


def test_progress_covers_every_batch_up_to_its_own(window: Window) -> None:
    for size in (10, 20, 30):
        window.sent(size)
    window.returned(2)
    assert window.in_flight == 30
    window.returned(2)
    window.returned(1)
    assert window.in_flight == 30
    window.returned(3)
    assert window.in_flight == 0


def test_a_body_larger_than_the_credit_goes_alone(window: Window) -> None:
    window.sent(1)
    assert not window.admits(101)
    window.returned(1)
    assert window.admits(101)
    window.sent(101)
    assert not window.admits(1)


def test_an_unsent_batch_cannot_have_been_processed(window: Window) -> None:
    with pytest.raises(ProtocolError, match=r"^progress: batch 1 .* 0 \[protocol-broken\]"):
        window.returned(1)


def test_credit_and_the_number_of_batches_have_bounds() -> None:
    window = Window(1 << 63)
    assert window.credit == MOST_CREDIT
    for _ in range(MOST_BATCHES):
        assert window.admits(1)
        window.sent(1)
    assert not window.admits(1)
    assert not window.half_free
    window.returned(MOST_BATCHES // 2)
    assert window.admits(1)
    assert window.half_free


# --- Memory that peers share: who holds the most has to go, whoever asked


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


# --- How long to wait for what was taken, and how much work a subscriber may cause


def test_much_work_is_followed_by_a_rest_and_little_is_not() -> None:
    reading = Reading()
    reading.streams = 1
    allowance = reading.allowance(10.0)
    assert allowance.wait_s(20_000, 10.0) == 0.0
    assert allowance.wait_s(50_000, 10.0) == 0.5
    assert allowance.wait_s(0, 10.5) == 0.0
    assert allowance.wait_s(20_000, 60.0) == 0.0  # no more is saved up than at the beginning
    assert allowance.wait_s(1000, 60.0) == 0.01


def test_many_streams_share_the_work_and_each_is_sure_of_some() -> None:
    reading = Reading()
    rates = []
    for reading.streams in (0, 1, 5, 10, 1000):
        rates.append(reading.rate)
    assert rates == [100_000, 100_000, 100_000, 50_000, 10_000]


def test_over_time_no_more_goes_than_the_rate_says() -> None:
    bucket, now = TokenBucket(lambda: 1000.0, 250.0, 0.0), 0.0
    for _ in range(100):
        now += bucket.wait_s(100, now)
    assert 9.5 < now <= 10.0


def test_a_pause_saves_up_no_more_than_the_bucket_holds() -> None:
    bucket = TokenBucket(lambda: 1000.0, 250.0, 0.0)
    assert bucket.wait_s(250, 100.0) == 0.0
    assert bucket.wait_s(1, 100.0) == 0.001


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(lambda: 0.0, 0.0, 0.0)
    assert [bucket.wait_s(1 << 30, 0.0) for _ in range(3)] == [0.0] * 3
