"""Existing rows at a publisher over memory parts: what a subscriber is sent, and what is stored of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY
from tests.support.copying_subscriber import CopyingSubscriber, copying_subscriber
from tests.support.eventually import eventually
from wormhole.filters import Filter
from wormhole.model.errors import MarkerStoreError, SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.values import Op
from wormhole.ports.marker_store import BackfillControl, FlowKey
from wormhole.ports.table_source import Chunk, ChunkLimits


@pytest.fixture
async def copy() -> AsyncIterator[CopyingSubscriber]:
    async with copying_subscriber("app", "s1") as subscriber:
        yield subscriber


class Reads:
    """Chunks of a hundred rows, and no more of them than the test allows."""

    def __init__(self, world: World, allowed: int) -> None:
        self.chunks = 0
        self._allowed, self._unlimited = threading.Semaphore(allowed), threading.Event()
        self._tables = world.tables
        self._chunk = world.tables.chunk
        world.tables.chunk = self.chunk  # type: ignore[method-assign]

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        self._tables._interrupted = False
        while not (self._unlimited.is_set() or self._allowed.acquire(timeout=0.02)):
            if self._tables._interrupted:
                raise SourceUnavailable("the read was interrupted")
        self.chunks += 1
        return self._chunk(table, after, until, replace(limits, rows=100), not_before)

    def go_on(self) -> None:
        self._unlimited.set()


def filled(world: World, rows: int, table: str = "t") -> None:
    for first in range(0, rows, 100):
        keys = [f"k{number:06}" for number in range(first, min(first + 100, rows))]
        world.commit(*keys, table=table)


def deleted(world: World, *keys: str, table: str = "t") -> None:
    world.source.commit([(Op.DELETE, table, key.encode(), None) for key in keys])


def backfill(world: World) -> BackfillControl:
    found = world.markers.records[KEY].control.backfill
    assert found is not None
    return found


def is_equal(world: World, copy: CopyingSubscriber) -> bool:
    return {table: rows for table, rows in copy.copy().items() if rows} == {
        table: rows for table, rows in world.tables.all_rows().items() if rows
    }


async def begin(world: World, copy: CopyingSubscriber, rows: int, start: str = "existing") -> None:
    """The table has so many rows as the application is configured and its subscriber registered."""
    filled(world, rows)
    world.application(start=start)
    await world.register(copy.wire)


async def begun(world: World, copy: CopyingSubscriber, chunks: int = 5) -> Reads:
    """The application begins with 2,000 rows, of which so many chunks may be read."""
    filled(world, 2000)
    reads = Reads(world, chunks)
    world.application(start="existing")
    await world.register(copy.wire)
    return reads


async def in_a_new_generation(world: World, copy: CopyingSubscriber) -> None:
    """The backfill began anew, and ends."""
    await eventually(lambda: backfill(world).ended == "done", "the backfill is done")
    assert backfill(world).generation == copy.generation == 2
    assert is_equal(world, copy)


async def test_an_application_begins_with_the_rows_that_are_there(world: World, copy: CopyingSubscriber) -> None:
    await begin(world, copy, 1000)
    async with world.publisher():
        await eventually(lambda: KEY in world.markers.records and backfill(world).ended, "the backfill is done")
        assert is_equal(world, copy)
        assert (copy.reads, copy.generation) == (1000, 1)
        assert [(end.table, end.generation, end.rows) for end in copy.ends] == [("t", 1, 1000)]
        assert sum(end.rows for end in copy.chunk_ends) == 1000
        assert copy.frames.index("batch") < copy.frames.index("chunk_end") < copy.frames.index("scan_end")
        assert "datamarker" in copy.frames[copy.frames.index("scan_end") :]
        assert backfill(world).ended == "done"
        world.commit("after")
        await eventually(lambda: is_equal(world, copy), "changes go on")
        assert copy.rows["t"][(b"after",)][0] == 1, "in the generation of the backfill"
    async with world.publisher() as publisher:  # which knows how many rows were sent
        flow = await _live(publisher)
        status = operated(publisher).flow_reports.backfills.status(flow)
        assert status is not None
        assert (status.state, status.rows, backfill(world).rows) == ("done", 1000, 1000)
        await publisher.backfills.start(flow, await publisher.backfills.plan(flow, (), "", None, "maria"))
        assert backfill(world).rows == 0, "another generation"


async def test_rows_go_on_where_they_were_after_a_publisher_died(
    world_of_either_direction: World, copy: CopyingSubscriber
) -> None:
    """What was not acknowledged is read again, and nothing else; what is deleted meanwhile is gone at the end."""
    world = world_of_either_direction
    reads = await begun(world, copy)
    async with world.publisher():
        await eventually(lambda: world.markers.records[KEY].marker.backfill if KEY in world.markers.records else 0, "")
        sent = copy.reads
        assert 0 < sent < 2000
    deleted(world, "k000001", "k001999")
    reads.go_on()
    async with world.publisher():
        await eventually(lambda: backfill(world).ended, "the backfill is done")
        assert is_equal(world, copy)
        assert copy.reads < 2000 + sent, "not everything again"
        assert reads.chunks < 20 + 5
        assert backfill(world).generation == copy.generation == 1


async def test_an_operator_asks_for_rows_of_a_flow_that_is_served(world: World, copy: CopyingSubscriber) -> None:
    await begin(world, copy, 300, start="latest")
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        plan = await publisher.backfills.plan(flow, (), "", None, "maria@ops")
        assert [table.name for table in plan.tables] == ["t"]
        await publisher.backfills.start(flow, plan)
        await eventually(lambda: backfill(world).ended, "the backfill is done")
        assert is_equal(world, copy)
        assert backfill(world).who == "maria@ops"
        assert copy.generation == backfill(world).generation
        first = copy.generation
        world.source.commit([(Op.DELETE, "t", b"k000007", None)])
        await eventually(lambda: is_equal(world, copy), "a change")
        copy.rows["t"][(b"stale",)] = first, {"value": b"of a change that was lost"}
        await publisher.backfills.start(flow, await publisher.backfills.plan(flow, (), "", None, "maria@ops"))
        await eventually(lambda: backfill(world).generation > first and backfill(world).ended, "done again")
        assert is_equal(world, copy), "deletes converge"


async def test_two_applications_share_a_scan(world: World, copy: CopyingSubscriber) -> None:
    filled(world, 3000)
    reads = Reads(world, 10)
    world.application(start="existing")
    world.application("other", start="latest")
    await world.register(copy.wire)
    async with copying_subscriber("other", "s2") as late, world.publisher() as publisher:
        await world.register(late.wire)
        flow = await _live(publisher, ("other", "log.t"))
        await eventually(lambda: copy.reads, "the first one is under way")
        await publisher.backfills.start(flow, await publisher.backfills.plan(flow, (), "", None, "maria"))
        await eventually(lambda: publisher.backfills.progress_of(flow), "the second one joins")
        reads.go_on()
        other = world.markers.records
        key = ("other", "log.t")
        await eventually(lambda: backfill(world).ended and (c := other[key].control.backfill) and c.ended, "both done")
        assert is_equal(world, copy)
        assert is_equal(world, late)
        assert reads.chunks <= 30 + 12, "of the second pass only what the late one had missed"


async def test_paused_rows_wait_over_restarts_and_changes_go_on(world: World, copy: CopyingSubscriber) -> None:
    reads = await begun(world, copy)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: copy.reads, "under way")
        await publisher.backfills.pause(flow, "maria at noon")
        assert backfill(world).paused == "maria at noon"
    reads.go_on()
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        before = copy.reads
        world.commit("new")
        await eventually(lambda: (b"new",) in copy.rows["t"], "changes go on")
        await eventually(lambda: publisher.scans.status.waits, "the scan waits")
        assert copy.reads == before
        await publisher.backfills.resume(flow)
        await eventually(lambda: backfill(world).ended == "done", "the backfill is done")
        assert is_equal(world, copy)


async def test_a_cancelled_backfill_sends_no_more_and_keeps_its_generation_and_its_count(
    world: World, copy: CopyingSubscriber
) -> None:
    reads = await begun(world, copy)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: copy.reads, "under way")
        await publisher.backfills.cancel(flow)
        assert (backfill(world).generation, backfill(world).ended) == (1, "cancelled")
        await eventually(lambda: not publisher.scans.running, "the tables are closed")
        world.commit("new")
        await eventually(lambda: (b"new",) in copy.rows["t"], "changes go on")
        assert copy.reads < 2000
        assert not copy.ends
        assert 0 < (sent := backfill(world).rows) < 2000
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        status = operated(publisher).flow_reports.backfills.status(flow)
        assert status is not None
        assert (status.state, status.rows) == ("cancelled", sent)
        reads.go_on()
        await publisher.backfills.start(flow, await publisher.backfills.plan(flow, (), "", 1e9, "maria"))
        await eventually(lambda: backfill(world).ended == "done", "the next one is done")
        assert backfill(world).generation == copy.generation == 2
        assert is_equal(world, copy)


async def test_another_filter_begins_a_new_generation(world: World, copy: CopyingSubscriber) -> None:
    filled(world, 2000)
    reads = Reads(world, 5)
    world.application(start="existing", where='key != b"k000001"')
    await world.register(copy.wire)
    async with world.publisher():
        await eventually(lambda: copy.reads, "under way")
        world.application(start="existing")
        reads.go_on()
        await in_a_new_generation(world, copy)


async def test_a_set_datamarker_begins_a_new_generation(world: World, copy: CopyingSubscriber) -> None:
    reads = await begun(world, copy)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: flow.delivery.durable.backfill, "some of it is durable")
        world.commit("jumped over")
        await publisher.records.move(flow, world.source.latest())
        reads.go_on()
        await in_a_new_generation(world, copy)


@pytest.mark.parametrize("sent", [True, False])
async def test_lost_log_begins_a_new_generation_of_what_was_sent_before_it(
    sent: bool, world: World, copy: CopyingSubscriber
) -> None:
    """Rows may have changed in the missing range after they were sent."""
    reads = await begun(world, copy, 5 if sent else 0)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        if sent:
            await eventually(lambda: flow.delivery.durable.backfill, "some of it is durable")
        world.source.skip()
        world.commit("behind the gap")
        await eventually(lambda: flow.loss.count, "the loss is accepted")
        reads.go_on()
        await eventually(lambda: backfill(world).ended == "done", "the backfill is done")
        assert backfill(world).generation == copy.generation == (2 if sent else 1)
        assert is_equal(world, copy)


async def test_another_type_of_key_begins_a_new_generation(
    world: World, copy: CopyingSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the application holds by keys of the former type go, also those of a table that was through."""
    filled(world, 300, "a")
    filled(world, 1000)
    reads = Reads(world, 6)
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher():
        await eventually(lambda: any(end.table == "a" for end in copy.ends), "the first table is through")
        copy.rows["a"][(b"by a former key",)] = 1, {"value": b"of before"}
        described = world.tables.tables
        monkeypatch.setattr(
            world.tables,
            "tables",
            lambda wanted, named=(): [replace(one, fingerprint="other") for one in described(wanted, named)],
        )
        monkeypatch.setattr("caravan.scan.scanner._DESCRIBED_S", 0.0)
        reads.go_on()
        await in_a_new_generation(world, copy)


async def test_another_table_in_its_place_begins_a_new_generation(world: World, copy: CopyingSubscriber) -> None:
    """The log has none of its rows, and nothing says which rows of the former one are gone."""
    reads = await begun(world, copy)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: flow.delivery.durable.backfill, "some of it is durable")
        world.commit("of the former table")
        world.tables.replace("t", {(b"k000500",): {"value": b"other"}, (b"z",): {"value": b"last"}})
        world.commit("of the present table")
        reads.go_on()
        await in_a_new_generation(world, copy)


async def test_after_a_backfill_a_table_in_the_place_of_another_is_reported(
    world: World, copy: CopyingSubscriber, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(world, copy, 100)
    async with world.publisher():
        await eventually(lambda: KEY in world.markers.records and backfill(world).ended, "the backfill is done")
        world.tables.replace("t", {(b"z",): {"value": b"last"}})
        await eventually(lambda: "rows of t changed, and the log does not have them" in caplog.text, "it is reported")
        assert "`wormholectl backfill start app --tables t`" in caplog.text


async def test_an_application_that_asked_for_no_rows_is_told_too_until_it_asks(
    world: World, copy: CopyingSubscriber
) -> None:
    await begin(world, copy, 100, start="latest")
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        world.tables.replace("t", {(b"z",): {"value": b"last"}})
        await eventually(
            lambda: "rows of t changed" in operated(publisher).flow_reports.cause(flow).text, "it is reported"
        )
        assert "`wormholectl backfill start app --tables t`" in (
            operated(publisher).flow_reports.cause(flow).hint or ""
        )
        await eventually(lambda: world.markers.records[KEY].control.unlogged == ("t",), "it is stored")
    async with world.publisher() as publisher:  # whose flow begins behind that place
        flow = await _live(publisher)
        await eventually(
            lambda: "rows of t changed" in operated(publisher).flow_reports.cause(flow).text, "it is still reported"
        )
        await publisher.backfills.start(flow, await publisher.backfills.plan(flow, (), "", None, "maria"))
        await eventually(lambda: not world.markers.records[KEY].control.unlogged, "rows are sent")
        assert "rows of t changed" not in operated(publisher).flow_reports.cause(flow).text


async def test_a_record_that_vanished_is_a_fault_of_its_flow_alone(world: World) -> None:
    """The changed filter of that flow cannot be stored. The other flows are assigned to their subscribers."""
    filled(world, 10)
    world.application(start="existing")
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        flow = publisher.assigner.flows[KEY]
        flow.configure(Filter.parse('key != b"x"'), halts_on_bad_value=False, parks=False)
        del world.markers.records[KEY]
        with pytest.raises(MarkerStoreError, match="its datamarker is missing") as caught:
            await publisher.backfills.prepare(flow)
        assert caught.value.flow == "app/log.t"


async def test_rows_wait_for_credit(world: World, copy: CopyingSubscriber) -> None:
    filled(world, 2000)
    Reads(world, 1_000_000)
    copy.credit = 4096
    copy.takes.clear()
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: flow.holding.waiting_credit_since or publisher.scans.status.waits, "it waits")
        assert copy.reads < 2000
        copy.takes.set()
        await eventually(lambda: backfill(world).ended == "done", "the backfill is done")
        assert is_equal(world, copy)


async def test_an_empty_log_has_no_rows_and_the_backfill_is_done(world: World, copy: CopyingSubscriber) -> None:
    world.commit("k")
    deleted(world, "k")
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher():
        await eventually(lambda: KEY in world.markers.records and backfill(world).ended, "the backfill is done")
        assert copy.reads == 0


async def test_a_log_of_refused_tables_alone_is_done_and_says_so(
    world: World, copy: CopyingSubscriber, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    filled(world, 10)
    world.tables.refused["t"] = Problem("it has no key", "give it one")
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher():
        await eventually(lambda: KEY in world.markers.records and backfill(world).ended, "the backfill is done")
    assert "the backfill of app/log.t is done: 0 rows in generation 1, without t" in caplog.text


async def _live(publisher: Publisher, key: FlowKey = KEY) -> PublisherFlow:
    def is_open() -> bool:
        flow = publisher.assigner.flows.get(key)
        return flow is not None and flow.delivery.caravan_flow is not None

    await eventually(is_open, "the flow is open")
    return publisher.assigner.flows[key]


async def test_a_hidden_table_that_the_configuration_names_is_refused_by_name(
    world: World, copy: CopyingSubscriber
) -> None:
    filled(world, 10)
    world.tables.refused["secret"] = Problem("the account may not see it", "GRANT SELECT")
    world.tables.refused["another"] = Problem("nobody named it", "nothing")
    world.application(start="existing", tables=("t", "secret", "a*"))
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        plan = publisher.backfills.last_progress_of(flow)
        assert plan is not None
        await eventually(lambda: backfill(world).ended, "the backfill is done")
        assert plan.refused == {"secret": Problem("the account may not see it", "GRANT SELECT")}


async def test_rows_that_were_sent_are_known_after_a_restart_without_a_subscriber(
    world: World, copy: CopyingSubscriber
) -> None:
    await begun(world, copy)
    async with world.publisher():
        await eventually(lambda: world.markers.records[KEY].marker.backfill if KEY in world.markers.records else 0, "")
    await world.leaves(copy.wire)
    async with world.publisher() as publisher:
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        known = publisher.backfills.last_progress_of(publisher.assigner.flows[KEY])
        assert known is not None
        assert known.rows > 0


async def test_it_is_done_only_when_that_is_durable(world: World, copy: CopyingSubscriber) -> None:
    """Ended before, a crash would lose what was sent and not acknowledged."""
    filled(world, 100)
    copy.acks.clear()
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        flow = await _live(publisher)
        await eventually(lambda: (one := publisher.backfills.progress_of(flow)) and one.finished, "all is sent")
        publisher.backfills.look()
        assert len(publisher.background) == 0, "nothing is being stored"
        assert not backfill(world).ended
        status = operated(publisher).flow_reports.backfills.status(flow)
        assert status is not None
        assert (status.state, status.share) == ("running", 1.0)
        copy.acks.set()
        await eventually(lambda: backfill(world).ended == "done", "the backfill is done")
