"""What is sent is counted when it is acknowledged."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import pytest

from publisher.flows.delivery_counter import DeliveryCounter
from publisher.push.flow import PublisherFlow
from publisher.stores.markers.memory import MemoryMarkerStore
from tests.support.letters import letter
from tests.support.markers import CACHE, marker
from tests.support.present import present
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA
from wormhole.audit.delivery_counts import DeliveryCounts
from wormhole.audit.sent_counts import SentCounts, Settled
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
    return present(build_body(builder.take()["x"], marker(0).order.incarnation))


def told(updates: int, aside: int = 0, window: int = WINDOW, rolled_back: int = 0) -> list[push_pb2.Processed]:
    return [push_pb2.Processed(window=window, updates=updates, set_aside=aside, in_vain=rolled_back)]


class World:
    """One flow, its delivery counts in a store, epoch after epoch. Its subscriber's life is 5 by default."""

    def __init__(self) -> None:
        self.store = MemoryMarkerStore()
        self.store.open()
        self.store.register(CACHE, marker(0), "latest")
        self.counter = DeliveryCounter(self.store)
        self.flow = PublisherFlow(*CACHE, Filter.parse(None), marker(0), marker(9).order)

    @property
    def counts(self) -> SentCounts:
        return self.flow.delivery.sent_counts

    async def assign(self, life: int = 5, before: int = 0, epochs: Sequence[int] = ()) -> None:
        self.flow.holding.raised(self.store.raise_epoch(CACHE))
        await self.counter.load((self.flow,))
        self.counter.open(self.flow)
        self.counts.opened(life, told(before) if before else (), epochs)

    def send(self, first: int, transactions: int) -> None:
        """Transactions, and a datamarker behind them."""
        self.counts.sent(body(first, transactions))
        self.counts.offered(marker(first + transactions))

    def ack(self, to: int, updates: int, aside: int = 0, *, stored: bool = True, rolled_back: int = 0) -> None:
        """The subscriber acknowledges, and reports what it has processed in all."""
        self.counts.reported(told(updates, aside, rolled_back=rolled_back))
        pages = self.counter.acknowledged(self.flow, marker(to))
        if stored:
            self.flow.acked(marker(to))
            assert not self.store.store([MarkerWrite(CACHE, self.flow.holding.epoch, marker(to), "", pages)])

    def restarted(self) -> None:
        """The publisher died: only what is stored is known."""
        self.counter = DeliveryCounter(self.store)
        self.flow = PublisherFlow(*CACHE, Filter.parse(None), self.store.load()[CACHE].marker, marker(9).order)

    def window(self) -> admin_pb2.AuditWindow:
        (found,) = self.counter.report(admin_pb2.AuditRequest(), [self.flow]).windows
        return found

    def duplicates(self) -> int:
        """How many updates were certainly processed again."""
        found = self.window()
        return found.processed + found.set_aside + found.missing_first - found.delivered - found.ahead

    def figures(self) -> tuple[int, int, int]:
        found = self.window()
        return found.delivered, found.processed, found.set_aside


@pytest.fixture
def fresh() -> World:
    return World()


@pytest.fixture
async def world(fresh: World) -> World:
    """Its flow is assigned."""
    await fresh.assign()
    return fresh


async def test_what_was_acknowledged_is_counted_and_what_was_not_is_not(world: World) -> None:
    """One acknowledgement stands for several datamarkers."""
    for number in range(4):
        world.send(number, 1)
    world.ack(3, 6)
    assert world.figures() == (6, 6, 0)
    assert world.window().hash == total(body(0, 3).tallies).hash
    assert not world.window().problems


async def test_after_a_crash_of_the_publisher_repeats_are_known_and_nothing_is_delivered_twice(world: World) -> None:
    world.send(0, 2)
    world.ack(2, 4)
    world.send(2, 2)
    world.ack(4, 8, stored=False)
    world.restarted()
    await world.assign(before=8, epochs=[1])
    world.send(2, 2)
    world.ack(4, 12)
    assert world.figures() == (8, 12, 0)
    assert world.window().hash == total(body(0, 4).tallies).hash
    assert world.duplicates() == 4


async def test_what_ran_before_a_crash_of_the_publisher_is_a_duplicate_only_as_it_comes_again(world: World) -> None:
    world.send(0, 2)
    world.ack(2, 4)
    world.restarted()
    await world.assign(before=8, epochs=[1])
    for number in (2, 3):
        world.counts.sent(body(number, 1))
        world.counts.offered(marker(number + 1))
    world.ack(3, 10)
    assert world.duplicates() == 2, "of four that had run two came again"
    world.ack(4, 12)
    assert world.duplicates() == 4


async def test_what_a_subscriber_did_before_it_died_counts_as_far_as_it_was_reported(world: World) -> None:
    world.send(0, 3)
    world.counts.reported(told(4))
    assert world.counter.closed(world.flow)
    assert world.duplicates() == 0, "nothing came a second time yet"
    await world.assign(life=6)
    world.send(0, 2)
    world.send(2, 1)
    world.ack(2, 4)
    assert (world.figures(), world.duplicates()) == ((4, 8, 0), 4)
    world.ack(3, 6)
    assert (world.figures(), world.duplicates()) == ((6, 10, 0), 4)


async def test_what_a_broken_stream_did_not_report_is_known_when_the_same_life_reports_it(world: World) -> None:
    world.counts.sent(body(0, 2))
    world.counts.reported(told(2))
    world.counter.closed(world.flow)
    assert world.duplicates() == 0
    await world.assign(before=3, epochs=[1])
    world.send(0, 2)
    world.ack(2, 7)
    assert (world.figures(), world.duplicates()) == ((4, 7, 0), 3)


async def test_a_subscriber_that_dies_with_its_publisher_reports_when_it_was_not_dead(world: World) -> None:
    world.send(0, 1)
    world.ack(1, 2)
    world.counts.sent(body(1, 2))
    world.restarted()
    await world.assign(life=6)
    world.send(1, 1)
    world.ack(2, 2)
    assert (world.figures(), world.duplicates()) == ((4, 4, 0), 0)
    world.counter.closed(world.flow)
    await world.assign(life=5, before=6, epochs=[1])
    world.counter.closed(world.flow)
    assert world.figures() == (4, 8, 0)


async def test_reports_of_an_epoch_that_a_rewind_ended_count_when_the_counts_are_read_again(world: World) -> None:
    world.send(0, 2)
    world.ack(2, 4)
    world.counts.sent(body(2, 1))
    world.counts.reported(told(5))
    epoch = world.store.rewind(CACHE, marker(1))
    world.flow.moved(epoch, marker(1), epoch)
    assert not world.counter.closed(world.flow)
    await world.assign(life=6)
    world.send(1, 2)
    world.ack(3, 4)
    assert (world.figures(), world.duplicates()) == ((6, 9, 0), 3)


async def test_a_released_flow_reports_what_was_done_since_its_last_acknowledgement(world: World) -> None:
    world.counts.sent(body(0, 2))
    world.counts.reported(told(4))
    pages = world.counter.closed(world.flow)
    assert DeliveryCounts(pages).windows.keys() == {(world.flow.filter.hash, WINDOW)}
    assert (world.figures(), world.duplicates()) == ((0, 4, 0), 0), "what it did comes again"


async def test_fewer_processed_than_sent_is_reported_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(0, 3)
    with caplog.at_level(logging.ERROR):
        world.ack(3, 4, 1)
    assert world.counter.mismatches == {"cache": 1}
    (problem,) = world.window().problems
    assert (
        problem
        == f"between {marker(0).order} and {marker(3).order}: 6 updates were sent, 5 were processed or set aside"
    )
    assert "lost updates" in caplog.text


async def test_a_window_that_was_not_reported_was_not_processed(world: World) -> None:
    world.send(0, 1)
    world.counts.reported([])
    world.counter.acknowledged(world.flow, marker(1))
    assert world.counter.mismatches == {"cache": 1}


async def test_a_subscriber_that_reports_nothing_is_not_suspected(fresh: World) -> None:
    await fresh.assign(life=0)
    fresh.send(0, 1)
    fresh.counter.acknowledged(fresh.flow, marker(1))
    assert (fresh.counter.mismatches, fresh.window().told, fresh.window().delivered) == ({}, False, 2)


async def test_after_a_rewind_what_is_counted_already_is_not_delivered_again(world: World) -> None:
    world.send(0, 3)
    world.ack(3, 6)
    epoch = world.store.rewind(CACHE, marker(1))
    world.flow.moved(epoch, marker(1), epoch)
    await world.assign(before=6, epochs=[1])
    world.counts.sent(body(1, 3))  # the third is new
    world.counts.offered(marker(4))
    world.ack(4, 12)
    world.send(4, 1)
    world.ack(5, 14)
    assert world.figures() == (10, 14, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    assert not world.counter.mismatches


async def test_a_marker_of_the_applications_own_leaves_a_range_out(world: World) -> None:
    world.counter.acknowledged(world.flow, marker(7))
    world.send(7, 1)
    world.ack(8, 2)
    (covered,) = world.counter.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert [covered.begin.offset, covered.end.offset] == [marker(7).order.offset, marker(8).order.offset]


async def test_a_parked_update_that_is_delivered_again_is_set_aside_no_more(world: World) -> None:
    parked, parcel = letter(3)[0], letter(3)[1]
    world.counts.letter(parcel.body)
    world.counts.offered(marker(0))
    window = next(iter(world.counts._open.sent), None)
    assert window is None  # what was parked was sent before: it does not count as sent again
    assert parked.id


async def test_a_report_is_of_the_flow_and_the_windows_that_were_asked_for(world: World) -> None:
    world.counts.sent(body(0, 1))
    world.counts.sent(body(1, 1, 0))
    world.counts.offered(marker(2))
    world.counts.reported([*told(2), *told(2, window=0)])
    world.counter.acknowledged(world.flow, marker(2))

    def windows(**asked: Any) -> list[int]:
        reply = world.counter.report(admin_pb2.AuditRequest(**asked), [world.flow])
        return [window.window for window in reply.windows]

    assert windows() == [0, WINDOW]
    assert windows(first_window=1) == [WINDOW]
    assert windows(last_window=1) == [0]
    assert windows(flow="cache/other") == []


async def test_counts_are_read_again_when_another_publisher_may_have_written(world: World) -> None:
    assert not world.store.store([MarkerWrite(CACHE, 1, marker(1), "", {"ranges": b'{"f":[[[1,1,0],[1,1,5]]]}'})])
    world.store.raise_epoch(CACHE)  # by another publisher
    await world.assign()
    (covered,) = world.counter.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert (covered.begin.offset, covered.end.offset) == (0, 5)
    assert LogPosition(covered.end.incarnation, covered.end.file, covered.end.offset) == LogPosition(1, 1, 5)


def replayed(
    begin: int, end: int, life_total: int, counted_to: LogPosition | None, *, before: int = 0, partial: bool = False
) -> Settled:
    """What a task of a replay hands over; its subscriber's life is 5, and reported ``before`` already."""
    counts = SentCounts(marker(begin).order, None if partial else counted_to, partial=partial)
    counts.opened(5, told(before) if before else (), [1])
    counts.sent(body(begin, end - begin))
    counts.offered(marker(end))
    counts.reported(told(life_total))
    settled = present(counts.acknowledged(marker(end)))
    return Settled.from_message(settled.to_message())


async def test_what_a_replay_delivered_is_counted_each_update_once(world: World) -> None:
    world.send(0, 2)
    world.ack(2, 4)
    world.flow.holding.raised(world.store.rewind(CACHE, marker(1)))
    counted_to = await world.counter.open_replay(world.flow)
    assert counted_to == marker(2).order
    pages = world.counter.count(world.flow, replayed(1, 5, 12, counted_to, before=4), marker(5).order)
    assert not world.store.store([MarkerWrite(CACHE, world.flow.holding.epoch, marker(5), "", pages)])
    assert world.figures() == (10, 12, 0)
    assert world.window().hash == total(body(0, 5).tallies).hash
    counted, again = world.counter.report(admin_pb2.AuditRequest(), [world.flow]).ranges
    assert (counted.end.offset, counted.partly, counted.again) == (marker(5).order.offset, False, False)
    assert (again.begin.offset, again.end.offset, again.again) == (
        marker(1).order.offset,
        marker(2).order.offset,
        True,
    )
    world.restarted()
    assert await world.counter.open_replay(world.flow) == marker(5).order


async def test_a_replay_that_was_less_than_the_log_says_where_and_counts_nothing(fresh: World) -> None:
    fresh.flow.holding.raised(fresh.store.raise_epoch(CACHE))
    await fresh.counter.open_replay(fresh.flow)
    fresh.counter.count(fresh.flow, replayed(0, 4, 3, None, partial=True), marker(4).order)
    await fresh.assign(before=3, epochs=[1])
    fresh.counts.place = marker(4).order
    fresh.send(4, 1)
    fresh.ack(5, 5)
    found = fresh.window()
    assert (found.delivered, found.processed, found.processed_partly) == (2, 2, 3)
    ranges = fresh.counter.report(admin_pb2.AuditRequest(), [fresh.flow]).ranges
    assert [(one.begin.offset, one.end.offset, one.partly) for one in ranges] == [
        (marker(4).order.offset, marker(5).order.offset, False),
        (marker(0).order.offset, marker(4).order.offset, True),
    ]
    assert not fresh.counter.mismatches


async def test_a_replays_callback_that_did_not_run_is_reported_at_once(fresh: World) -> None:
    fresh.flow.holding.raised(fresh.store.raise_epoch(CACHE))
    await fresh.counter.open_replay(fresh.flow)
    fresh.counter.count(fresh.flow, replayed(0, 2, 3, None), marker(2).order)
    assert fresh.counter.mismatches == {CACHE[0]: 1}


async def test_callbacks_that_never_ran_are_found_until_a_replay_has_delivered_all_of_the_range(world: World) -> None:
    world.send(0, 3)
    world.ack(3, 4)
    assert (world.window().missing, world.duplicates()) == (2, 0)
    counted_to = marker(3).order
    world.flow.holding.raised(world.store.raise_epoch(CACHE))
    await world.counter.open_replay(world.flow)
    world.counter.count(world.flow, replayed(0, 2, 8, counted_to, before=4), marker(2).order)
    assert (world.window().missing, world.window().repaired) == (2, 0)
    world.counter.count(world.flow, replayed(2, 3, 9, counted_to, before=8), marker(3).order)
    assert world.window().missing == 2 + 1, "one of what came again did not run either"
    world.counter.count(world.flow, replayed(0, 3, 15, counted_to, before=9), marker(3).order)
    found = world.window()
    assert (found.missing, found.repaired, list(found.problems)) == (0, 3, [])
    assert "between" in found.repairs[0]
    assert world.duplicates() == 9


async def test_a_loss_is_seen_beside_repeats_of_the_same_range(world: World) -> None:
    world.send(0, 3)
    world.ack(3, 5 + 5, rolled_back=5)
    assert (world.window().missing, world.duplicates()) == (1, 5)
