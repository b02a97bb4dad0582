"""What is sent is booked when it is acknowledged."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from publisher.books import Bookkeeper
from publisher.markers.memory import MemoryMarkerStore
from publisher.push.feed import Feed
from tests.support.letters import letter
from tests.support.markers import CACHE, marker
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA
from wormhole.books import Books
from wormhole.filters import Filter
from wormhole.marker_store import MarkerWrite
from wormhole.position import LogPosition
from wormhole.push.ledger import Ledger, Settled
from wormhole.wire.body import Body, build_body
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.tally import WINDOW_S, total
from wormhole.wire.v1 import admin_pb2, push_pb2

WINDOW = int(time.time() // WINDOW_S)
AT_US = WINDOW * WINDOW_S * 1_000_000


def body(first: int, transactions: int, at_us: int = AT_US) -> Body:
    """Transactions of two updates that end at ``marker(first + 1)`` and on."""
    builder = RunsBuilder()
    for number in range(first, first + transactions):
        builder.begin("s", number, at_us, marker(number).order)
        builder.add(["x"], SCHEMA, ROW)
        builder.add(["x"], SCHEMA, ROW)
        builder.end(marker(number + 1).order)
    built = build_body(builder.take()["x"], marker(0).order.incarnation)
    assert built is not None
    return built


def told(updates: int, aside: int = 0, window: int = WINDOW) -> list[push_pb2.Processed]:
    return [push_pb2.Processed(window=window, updates=updates, set_aside=aside)]


class World:
    """One flow, its books in a store, epoch after epoch."""

    def __init__(self) -> None:
        self.store = MemoryMarkerStore()
        self.store.open()
        self.store.register(CACHE, marker(0), "latest")
        self.keeper = Bookkeeper(self.store)
        self.feed = Feed(*CACHE, Filter.parse(None), marker(0), marker(0).order)

    async def assign(self, life: int = 5) -> Ledger:
        self.feed.epoch = self.store.raise_epoch(CACHE)
        await self.keeper.load(self.feed)
        self.keeper.open(self.feed)
        ledger = self.feed.ledger
        assert ledger is not None
        ledger.life = life
        return ledger

    def ack(self, to: int, updates: int, aside: int = 0, *, stored: bool = True) -> None:
        """The subscriber acknowledges, and tells what it has processed in all."""
        assert self.feed.ledger is not None
        self.feed.ledger.heard(5, told(updates, aside))
        pages = self.keeper.acknowledged(self.feed, marker(to))
        if stored:
            self.feed.marker = marker(to)
            assert not self.store.store([MarkerWrite(CACHE, self.feed.epoch, marker(to), "", pages)])

    def restarted(self) -> None:
        """The publisher died: only what is stored is known."""
        self.keeper = Bookkeeper(self.store)
        self.feed = Feed(*CACHE, Filter.parse(None), self.store.load()[CACHE].marker, marker(0).order)

    def window(self) -> admin_pb2.AuditWindow:
        (found,) = self.keeper.report(admin_pb2.AuditRequest(), [self.feed]).windows
        return found

    def figures(self) -> tuple[int, int, int]:
        found = self.window()
        return found.delivered, found.processed, found.set_aside


async def test_what_was_acknowledged_is_booked_and_what_was_not_is_not() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    ledger.sent(2, body(3, 1))
    ledger.offered(marker(4))
    world.ack(3, 6)
    assert world.figures() == (6, 6, 0)
    assert world.window().hash == total(body(0, 3).tallies).hash
    assert not world.window().problems


async def test_one_acknowledgement_may_stand_for_several_datamarkers() -> None:
    world = World()
    ledger = await world.assign()
    for number in range(3):
        ledger.sent(number + 1, body(number, 1))
        ledger.offered(marker(number + 1))
    world.ack(3, 6)
    assert world.figures() == (6, 6, 0)


async def test_after_a_crash_of_the_publisher_repeats_are_known_and_nothing_is_delivered_twice() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    ledger.sent(2, body(2, 2))
    ledger.offered(marker(4))
    world.ack(4, 8, stored=False)
    world.restarted()
    ledger = await world.assign()
    ledger.sent(1, body(2, 2))
    ledger.offered(marker(4))
    world.ack(4, 12)
    assert world.figures() == (8, 12, 0)
    assert world.window().hash == total(body(0, 4).tallies).hash


async def test_what_a_subscriber_did_before_it_died_counts_as_far_as_progress_was_told() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 1))
    ledger.sent(2, body(1, 1))
    ledger.sent(3, body(2, 1))
    ledger.offered(marker(3))
    ledger.returned(2)
    assert world.keeper.closed(world.feed, released=False)
    ledger = await world.assign(life=6)
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(6, told(6))
    world.keeper.acknowledged(world.feed, marker(3))
    assert world.figures() == (6, 10, 0)


async def test_progress_before_a_broken_stream_is_not_counted_again_when_the_same_life_tells_it() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 2))
    ledger.returned(1)
    world.keeper.closed(world.feed, released=False)
    ledger = await world.assign()
    ledger.sent(1, body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 8)
    assert world.figures() == (4, 8, 0)


async def test_who_gives_a_flow_back_tells_what_it_did_since_its_last_acknowledgement() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 2))
    ledger.returned(1)
    ledger.heard(5, told(4))
    pages = world.keeper.closed(world.feed, released=True)
    assert Books(pages).pages.keys() == {(world.feed.filter.hash, WINDOW)}
    assert world.figures() == (0, 4, 0)


async def test_fewer_processed_than_sent_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    with caplog.at_level(logging.ERROR):
        world.ack(3, 4, 1)
    assert world.keeper.mismatches == {"cache": 1}
    (problem,) = world.window().problems
    assert (
        problem
        == f"between {marker(0).order} and {marker(3).order}: 6 updates were sent, 5 were processed or set aside"
    )
    assert "lost updates" in caplog.text


async def test_a_window_that_was_not_told_of_was_not_processed() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 1))
    ledger.offered(marker(1))
    ledger.heard(5, [])
    world.keeper.acknowledged(world.feed, marker(1))
    assert world.keeper.mismatches == {"cache": 1}


async def test_a_subscriber_that_tells_nothing_is_not_suspected() -> None:
    world = World()
    ledger = await world.assign(life=0)
    ledger.sent(1, body(0, 1))
    ledger.offered(marker(1))
    world.keeper.acknowledged(world.feed, marker(1))
    assert (world.keeper.mismatches, world.window().told, world.window().delivered) == ({}, False, 2)


async def test_after_a_rewind_what_the_books_have_is_not_delivered_again() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 3))
    ledger.offered(marker(3))
    world.ack(3, 6)
    world.feed.marker = marker(1)
    world.feed.epoch = world.store.rewind(CACHE, marker(1))
    ledger = await world.assign()
    ledger.sent(1, body(1, 3))  # the third is new
    ledger.offered(marker(4))
    world.ack(4, 12)
    ledger.sent(2, body(4, 1))
    ledger.offered(marker(5))
    world.ack(5, 14)
    assert world.figures() == (10, 14, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    assert not world.keeper.mismatches


async def test_a_marker_of_the_applications_own_leaves_a_range_out() -> None:
    world = World()
    ledger = await world.assign()
    world.keeper.acknowledged(world.feed, marker(7))
    ledger.sent(1, body(7, 1))
    ledger.offered(marker(8))
    world.ack(8, 2)
    (covered,) = world.keeper.report(admin_pb2.AuditRequest(), [world.feed]).ranges
    assert [covered.begin.offset, covered.end.offset] == [marker(7).order.offset, marker(8).order.offset]


async def test_a_parked_update_that_is_delivered_again_is_set_aside_no_more() -> None:
    world = World()
    ledger = await world.assign()
    parked, parcel = letter(3)[0], letter(3)[1]
    ledger.letter(1, parcel.body)
    ledger.offered(marker(0))
    window = next(iter(ledger._open.sent), None)
    assert window is None  # what was parked was sent before: it does not count as sent again
    assert parked.id


async def test_a_report_is_of_the_flow_and_the_windows_that_were_asked_for() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 1))
    ledger.sent(2, body(1, 1, 0))
    ledger.offered(marker(2))
    ledger.heard(5, [*told(2), *told(2, window=0)])
    world.keeper.acknowledged(world.feed, marker(2))

    def windows(**asked: Any) -> list[int]:
        reply = world.keeper.report(admin_pb2.AuditRequest(**asked), [world.feed])
        return [window.window for window in reply.windows]

    assert windows() == [0, WINDOW]
    assert windows(first_window=1) == [WINDOW]
    assert windows(last_window=1) == [0]
    assert windows(flow="cache/other") == []


async def test_books_are_read_again_when_somebody_else_may_have_written() -> None:
    world = World()
    await world.assign()
    assert not world.store.store([MarkerWrite(CACHE, 1, marker(1), "", {"ranges": b'{"f":[[[1,1,0],[1,1,5]]]}'})])
    world.store.raise_epoch(CACHE)  # by another publisher
    await world.assign()
    (covered,) = world.keeper.report(admin_pb2.AuditRequest(), [world.feed]).ranges
    assert (covered.begin.offset, covered.end.offset) == (0, 5)
    assert LogPosition(covered.end.incarnation, covered.end.file, covered.end.offset) == LogPosition(1, 1, 5)


def replayed(begin: int, end: int, life_total: int, counted_to: LogPosition | None, *, partly: bool = False) -> Settled:
    """What a task of a replay hands over; its subscriber's life is 5."""
    ledger = Ledger(marker(begin).order, None if partly else counted_to, partly=partly)
    ledger.sent(1, body(begin, end - begin))
    ledger.offered(marker(end))
    ledger.heard(5, told(life_total))
    settled = ledger.acknowledged(marker(end))
    assert settled is not None
    return Settled.from_message(settled.to_message())


async def test_what_a_replay_delivered_is_booked_each_update_once() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(1, body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    world.feed.epoch = world.store.rewind(CACHE, marker(1))
    counted_to = await world.keeper.open_replay(world.feed)
    assert counted_to == marker(2).order
    pages = world.keeper.replayed(world.feed, replayed(1, 5, 12, counted_to), marker(5).order)
    assert not world.store.store([MarkerWrite(CACHE, world.feed.epoch, marker(5), "", pages)])
    assert world.figures() == (10, 12, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    counted, again = world.keeper.report(admin_pb2.AuditRequest(), [world.feed]).ranges
    assert (counted.end.offset, counted.partly, counted.again) == (marker(5).order.offset, False, False)
    assert (again.begin.offset, again.end.offset, again.again) == (
        marker(1).order.offset,
        marker(2).order.offset,
        True,
    )
    world.restarted()
    assert await world.keeper.open_replay(world.feed) == marker(5).order


async def test_a_replay_that_was_less_than_the_log_says_where_and_counts_nothing() -> None:
    world = World()
    world.feed.epoch = world.store.raise_epoch(CACHE)
    await world.keeper.open_replay(world.feed)
    world.keeper.replayed(world.feed, replayed(0, 4, 3, None, partly=True), marker(4).order)
    ledger = await world.assign()
    ledger.place = marker(4).order
    ledger.sent(1, body(4, 1))
    ledger.offered(marker(5))
    world.ack(5, 5)
    found = world.window()
    assert (found.delivered, found.processed, found.processed_partly) == (2, 2, 3)
    ranges = world.keeper.report(admin_pb2.AuditRequest(), [world.feed]).ranges
    assert [(one.begin.offset, one.end.offset, one.partly) for one in ranges] == [
        (marker(4).order.offset, marker(5).order.offset, False),
        (marker(0).order.offset, marker(4).order.offset, True),
    ]
    assert not world.keeper.mismatches


async def test_a_replays_callback_that_did_not_run_is_told_at_once() -> None:
    world = World()
    world.feed.epoch = world.store.raise_epoch(CACHE)
    await world.keeper.open_replay(world.feed)
    world.keeper.replayed(world.feed, replayed(0, 2, 3, None), marker(2).order)
    assert world.keeper.mismatches == {CACHE[0]: 1}
