"""What is sent is booked when it is acknowledged."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import pytest

from publisher.flows.books import Bookkeeper
from publisher.push.flow import PublisherFlow
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA
from wormhole.audit.books import Books
from wormhole.audit.ledger import Ledger, Settled
from wormhole.filters import Filter
from wormhole.model.position import LogPosition
from wormhole.ports.marker_store import MarkerWrite
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


def told(updates: int, aside: int = 0, window: int = WINDOW, in_vain: int = 0) -> list[push_pb2.Processed]:
    return [push_pb2.Processed(window=window, updates=updates, set_aside=aside, in_vain=in_vain)]


class World:
    """One flow, its books in a store, epoch after epoch. Its subscriber's life is 5 where nothing else is said."""

    def __init__(self) -> None:
        self.store = MemoryMarkerStore()
        self.store.open()
        self.store.register(CACHE, marker(0), "latest")
        self.keeper = Bookkeeper(self.store)
        self.flow = PublisherFlow(*CACHE, Filter.parse(None), marker(0), marker(9).order)

    async def assign(self, life: int = 5, before: int = 0, epochs: Sequence[int] = ()) -> Ledger:
        self.flow.raised(self.store.raise_epoch(CACHE))
        await self.keeper.load(self.flow)
        self.keeper.open(self.flow)
        ledger = self.flow.ledger
        assert ledger is not None
        ledger.opened(life, told(before) if before else (), epochs)
        return ledger

    def ack(self, to: int, updates: int, aside: int = 0, *, stored: bool = True, in_vain: int = 0) -> None:
        """The subscriber acknowledges, and tells what it has processed in all."""
        assert self.flow.ledger is not None
        self.flow.ledger.heard(told(updates, aside, in_vain=in_vain))
        pages = self.keeper.acknowledged(self.flow, marker(to))
        if stored:
            self.flow.acked(marker(to))
            assert not self.store.store([MarkerWrite(CACHE, self.flow.epoch, marker(to), "", pages)])

    def restarted(self) -> None:
        """The publisher died: only what is stored is known."""
        self.keeper = Bookkeeper(self.store)
        self.flow = PublisherFlow(*CACHE, Filter.parse(None), self.store.load()[CACHE].marker, marker(9).order)

    def window(self) -> admin_pb2.AuditWindow:
        (found,) = self.keeper.report(admin_pb2.AuditRequest(), [self.flow]).windows
        return found

    def bounds(self) -> tuple[int, int]:
        """How many repeats there were at least and at most."""
        found = self.window()
        least = found.processed + found.set_aside + found.missing_first - found.delivered - found.ahead
        return least, least + found.ahead + found.unheard + found.missing - found.missing_first

    def silent(self) -> list[tuple[int, int]]:
        """Between which places nobody knows whether somebody processed something."""
        ranges = self.keeper.report(admin_pb2.AuditRequest(), [self.flow]).ranges
        return [(one.begin.offset, one.end.offset) for one in ranges if one.unheard]

    def figures(self) -> tuple[int, int, int]:
        found = self.window()
        return found.delivered, found.processed, found.set_aside


async def test_what_was_acknowledged_is_booked_and_what_was_not_is_not() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    ledger.sent(body(3, 1))
    ledger.offered(marker(4))
    world.ack(3, 6)
    assert world.figures() == (6, 6, 0)
    assert world.window().hash == total(body(0, 3).tallies).hash
    assert not world.window().problems


async def test_one_acknowledgement_may_stand_for_several_datamarkers() -> None:
    world = World()
    ledger = await world.assign()
    for number in range(3):
        ledger.sent(body(number, 1))
        ledger.offered(marker(number + 1))
    world.ack(3, 6)
    assert world.figures() == (6, 6, 0)


async def test_after_a_crash_of_the_publisher_repeats_are_known_and_nothing_is_delivered_twice() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    ledger.sent(body(2, 2))
    ledger.offered(marker(4))
    world.ack(4, 8, stored=False)
    world.restarted()
    ledger = await world.assign(before=8, epochs=[1])
    ledger.sent(body(2, 2))
    ledger.offered(marker(4))
    world.ack(4, 12)
    assert world.figures() == (8, 12, 0)
    assert world.window().hash == total(body(0, 4).tallies).hash
    assert world.bounds() == (4, 4)


async def test_what_ran_before_a_crash_of_the_publisher_is_a_duplicate_only_as_it_comes_again() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    world.restarted()
    ledger = await world.assign(before=8, epochs=[1])
    for number in (2, 3):
        ledger.sent(body(number, 1))
        ledger.offered(marker(number + 1))
    world.ack(3, 10)
    assert world.bounds() == (2, 4), "of four that had run two came again"
    world.ack(4, 12)
    assert world.bounds() == (4, 4)


async def test_what_a_subscriber_did_before_it_died_counts_as_far_as_it_was_told_and_the_rest_is_possible() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    ledger.heard(told(4))
    assert world.keeper.closed(world.flow, released=False)
    assert world.bounds() == (0, 6), "nothing came a second time yet"
    ledger = await world.assign(life=6)
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    ledger.sent(body(2, 1))
    ledger.offered(marker(3))
    world.ack(2, 4)
    assert (world.figures(), world.bounds()) == ((4, 8, 0), (4, 6))
    world.ack(3, 6)
    assert (world.figures(), world.bounds()) == ((6, 10, 0), (4, 6))


async def test_what_a_broken_stream_left_unheard_is_known_when_the_same_life_tells_it() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.heard(told(2))
    world.keeper.closed(world.flow, released=False)
    assert world.bounds() == (0, 4)
    ledger = await world.assign(before=3, epochs=[1])
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 7)
    assert (world.figures(), world.bounds()) == ((4, 7, 0), (3, 3))


async def test_nobody_tells_of_a_subscriber_that_dies_with_its_publisher_but_where_that_was_is_known() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 1))
    ledger.offered(marker(1))
    world.ack(1, 2)
    ledger.sent(body(1, 2))
    world.restarted()
    ledger = await world.assign(life=6)
    ledger.sent(body(1, 1))
    ledger.offered(marker(2))
    world.ack(2, 2)
    assert world.silent() == [(marker(1).order.offset, marker(9).order.offset)]
    world.restarted()
    await world.assign(life=6, before=2, epochs=[2])
    assert world.silent() == [(marker(1).order.offset, marker(9).order.offset)]
    world.keeper.closed(world.flow, released=True)
    await world.assign(life=5, before=6, epochs=[1])
    world.keeper.closed(world.flow, released=True)
    assert world.silent() == [], "it was not dead"
    assert world.figures() == (4, 8, 0)


async def test_what_was_told_of_an_epoch_that_a_rewind_ended_is_booked_when_the_books_are_read_again() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    ledger.sent(body(2, 1))
    ledger.heard(told(5))
    world.flow.moved(world.store.rewind(CACHE, marker(1)), marker(1))
    assert not world.keeper.moved(world.flow, past=False)
    assert not world.keeper.closed(world.flow, released=False)
    ledger = await world.assign(life=6)
    ledger.sent(body(1, 2))
    ledger.offered(marker(3))
    world.ack(3, 4)
    assert (world.figures(), world.bounds(), world.silent()) == ((6, 9, 0), (3, 4), [])


async def test_who_gives_a_flow_back_tells_what_it_did_since_its_last_acknowledgement() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.heard(told(4))
    pages = world.keeper.closed(world.flow, released=True)
    assert Books(pages).pages.keys() == {(world.flow.filter.hash, WINDOW)}
    assert (world.figures(), world.bounds()) == ((0, 4, 0), (0, 4)), "what it did comes again"


async def test_fewer_processed_than_sent_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
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
    ledger.sent(body(0, 1))
    ledger.offered(marker(1))
    ledger.heard([])
    world.keeper.acknowledged(world.flow, marker(1))
    assert world.keeper.mismatches == {"cache": 1}


async def test_a_subscriber_that_tells_nothing_is_not_suspected() -> None:
    world = World()
    ledger = await world.assign(life=0)
    ledger.sent(body(0, 1))
    ledger.offered(marker(1))
    world.keeper.acknowledged(world.flow, marker(1))
    assert (world.keeper.mismatches, world.window().told, world.window().delivered) == ({}, False, 2)


async def test_after_a_rewind_what_the_books_have_is_not_delivered_again() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    world.ack(3, 6)
    world.flow.moved(world.store.rewind(CACHE, marker(1)), marker(1))
    ledger = await world.assign(before=6, epochs=[1])
    ledger.sent(body(1, 3))  # the third is new
    ledger.offered(marker(4))
    world.ack(4, 12)
    ledger.sent(body(4, 1))
    ledger.offered(marker(5))
    world.ack(5, 14)
    assert world.figures() == (10, 14, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    assert not world.keeper.mismatches


async def test_a_marker_of_the_applications_own_leaves_a_range_out() -> None:
    world = World()
    ledger = await world.assign()
    world.keeper.acknowledged(world.flow, marker(7))
    ledger.sent(body(7, 1))
    ledger.offered(marker(8))
    world.ack(8, 2)
    (covered,) = world.keeper.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert [covered.begin.offset, covered.end.offset] == [marker(7).order.offset, marker(8).order.offset]


async def test_a_parked_update_that_is_delivered_again_is_set_aside_no_more() -> None:
    world = World()
    ledger = await world.assign()
    parked, parcel = letter(3)[0], letter(3)[1]
    ledger.letter(parcel.body)
    ledger.offered(marker(0))
    window = next(iter(ledger._open.sent), None)
    assert window is None  # what was parked was sent before: it does not count as sent again
    assert parked.id


async def test_a_report_is_of_the_flow_and_the_windows_that_were_asked_for() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 1))
    ledger.sent(body(1, 1, 0))
    ledger.offered(marker(2))
    ledger.heard([*told(2), *told(2, window=0)])
    world.keeper.acknowledged(world.flow, marker(2))

    def windows(**asked: Any) -> list[int]:
        reply = world.keeper.report(admin_pb2.AuditRequest(**asked), [world.flow])
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
    (covered,) = world.keeper.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert (covered.begin.offset, covered.end.offset) == (0, 5)
    assert LogPosition(covered.end.incarnation, covered.end.file, covered.end.offset) == LogPosition(1, 1, 5)


def replayed(
    begin: int, end: int, life_total: int, counted_to: LogPosition | None, *, before: int = 0, partly: bool = False
) -> Settled:
    """What a task of a replay hands over; its subscriber's life is 5, and told ``before`` already."""
    ledger = Ledger(marker(begin).order, None if partly else counted_to, partly=partly)
    ledger.opened(5, told(before) if before else (), [1])
    ledger.sent(body(begin, end - begin))
    ledger.offered(marker(end))
    ledger.heard(told(life_total))
    settled = ledger.acknowledged(marker(end))
    assert settled is not None
    return Settled.from_message(settled.to_message())


async def test_what_a_replay_delivered_is_booked_each_update_once() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 2))
    ledger.offered(marker(2))
    world.ack(2, 4)
    world.flow.raised(world.store.rewind(CACHE, marker(1)))
    counted_to = await world.keeper.open_replay(world.flow)
    assert counted_to == marker(2).order
    pages = world.keeper.book(world.flow, replayed(1, 5, 12, counted_to, before=4), marker(5).order)
    assert not world.store.store([MarkerWrite(CACHE, world.flow.epoch, marker(5), "", pages)])
    assert world.figures() == (10, 12, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    counted, again = world.keeper.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert (counted.end.offset, counted.partly, counted.again) == (marker(5).order.offset, False, False)
    assert (again.begin.offset, again.end.offset, again.again) == (
        marker(1).order.offset,
        marker(2).order.offset,
        True,
    )
    world.restarted()
    assert await world.keeper.open_replay(world.flow) == marker(5).order


async def test_a_replay_that_was_less_than_the_log_says_where_and_counts_nothing() -> None:
    world = World()
    world.flow.raised(world.store.raise_epoch(CACHE))
    await world.keeper.open_replay(world.flow)
    world.keeper.book(world.flow, replayed(0, 4, 3, None, partly=True), marker(4).order)
    ledger = await world.assign(before=3, epochs=[1])
    ledger.place = marker(4).order
    ledger.sent(body(4, 1))
    ledger.offered(marker(5))
    world.ack(5, 5)
    found = world.window()
    assert (found.delivered, found.processed, found.processed_partly) == (2, 2, 3)
    ranges = world.keeper.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert [(one.begin.offset, one.end.offset, one.partly) for one in ranges] == [
        (marker(4).order.offset, marker(5).order.offset, False),
        (marker(0).order.offset, marker(4).order.offset, True),
    ]
    assert not world.keeper.mismatches


async def test_a_replays_callback_that_did_not_run_is_told_at_once() -> None:
    world = World()
    world.flow.raised(world.store.raise_epoch(CACHE))
    await world.keeper.open_replay(world.flow)
    world.keeper.book(world.flow, replayed(0, 2, 3, None), marker(2).order)
    assert world.keeper.mismatches == {CACHE[0]: 1}


async def test_callbacks_that_never_ran_are_found_until_a_replay_has_delivered_all_of_the_range() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    world.ack(3, 4)
    assert (world.window().missing, world.bounds()) == (2, (0, 0))
    counted_to = marker(3).order
    world.flow.raised(world.store.raise_epoch(CACHE))
    await world.keeper.open_replay(world.flow)
    world.keeper.book(world.flow, replayed(0, 2, 8, counted_to, before=4), marker(2).order)
    assert (world.window().missing, world.window().repaired) == (2, 0)
    world.keeper.book(world.flow, replayed(2, 3, 9, counted_to, before=8), marker(3).order)
    assert world.window().missing == 2 + 1, "one of what came again did not run either"
    world.keeper.book(world.flow, replayed(0, 3, 15, counted_to, before=9), marker(3).order)
    found = world.window()
    assert (found.missing, found.repaired, list(found.problems)) == (0, 3, [])
    assert "between" in found.repairs[0]
    assert world.bounds() == (9, 9)


async def test_a_loss_is_seen_beside_repeats_of_the_same_range() -> None:
    world = World()
    ledger = await world.assign()
    ledger.sent(body(0, 3))
    ledger.offered(marker(3))
    world.ack(3, 5 + 5, in_vain=5)
    assert (world.window().missing, world.bounds()) == (1, (5, 5))
