"""Verifications at a publisher over memory parts: what a subscriber is sent, and what is known of the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from tests.support.verifying_subscriber import VerifyingSubscriber, verifying_subscriber
from wormhole.model.values import Op
from wormhole.model.verification import MOST_DIFFERENCES, DifferenceKind, TableVerification, VerifyMode
from wormhole.ports.marker_store import BackfillControl
from wormhole.wire.rows import encode_key
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormhole.wire.verification_status import has_no_table


@pytest.fixture
async def copy() -> AsyncIterator[VerifyingSubscriber]:
    async with verifying_subscriber("app", "s1") as subscriber:
        yield subscriber


def control_of(world: World) -> BackfillControl:
    found = world.markers.records[KEY].control.backfill
    assert found is not None
    return found


@asynccontextmanager
async def prepared(
    world: World, copy: VerifyingSubscriber, *keys: str, **settings: Any
) -> AsyncIterator[tuple[Publisher, PublisherFlow]]:
    """A publisher and its flow, of which the application holds all rows."""
    world.commit(*keys)
    world.application(start="existing", **settings)
    await world.register(copy.wire)

    def is_made() -> bool:
        found = publisher.assigner.flows.get(KEY)
        return found is not None and (made := found.control.backfill) is not None and made.ended == "done"

    async with world.publisher() as publisher:
        await eventually(is_made, "the publisher knows that the backfill is done")
        yield publisher, publisher.assigner.flows[KEY]


async def verify(publisher: Publisher, flow: PublisherFlow, mode: VerifyMode, *tables: str) -> None:
    await publisher.backfills.start(flow, await publisher.backfills.plan(flow, tables, "", None, "maria", mode))


async def test_rows_are_compared_and_nothing_is_delivered(world: World, copy: VerifyingSubscriber) -> None:
    async with prepared(world, copy, *(f"k{number}" for number in range(9))) as (publisher, flow):
        copy.rows["t"][(b"k1",)] = 1, {"value": b"x"}
        del copy.rows["t"][(b"k2",)]
        copy.holds("t", (b"left",), {"value": b"v"})
        await verify(publisher, flow, VerifyMode.COMPARE)
        await eventually(lambda: control_of(world).ended == "done", "compared")
        [found] = publisher.backfills.verifications(flow)
        assert (found.compared, found.differs, found.missing, found.extra, found.ended) == (9, 1, 1, 1, True)
        assert {(one.kind, one.key): one.columns for one in found.differences} == {
            (DifferenceKind.DIFFERS, encode_key((b"k1",))): ("value",),
            (DifferenceKind.MISSING, encode_key((b"k2",))): (),
            (DifferenceKind.EXTRA, encode_key((b"left",))): (),
        }
        assert (copy.delivered, copy.removed) == ([], [])
        assert [(one.generation, one.verify) for one in copy.assigns] == [
            (1, push_pb2.VERIFY_NONE),
            (2, push_pb2.VERIFY_COMPARE),
        ]
        assert control_of(world).verify is VerifyMode.COMPARE
        copy.wire.hang_up()
        await eventually(lambda: len(copy.assigns) == 3, "assigned again")
        assert (copy.assigns[-1].generation, copy.assigns[-1].verify) == (2, push_pb2.VERIFY_NONE)


@pytest.mark.parametrize("wanted", ["t", "other"])
async def test_a_flow_that_wants_no_table_reports_the_whole_share(
    world: World, copy: VerifyingSubscriber, wanted: str
) -> None:
    async with prepared(world, copy, "k1", tables=(wanted,)) as (publisher, flow):
        await verify(publisher, flow, VerifyMode.COMPARE)

        def status() -> admin_pb2.BackfillStatus:
            found = operated(publisher).flow_reports.backfills.status(flow)
            assert found is not None
            return found

        await eventually(lambda: status().state == "done", "the publisher knows that it is done")
        assert has_no_table(status()) is (wanted == "other")


def held(copy: VerifyingSubscriber) -> dict[str, dict[object, object]]:
    return {table: dict(rows) for table, rows in copy.copy().items()}


def is_equal(world: World, copy: VerifyingSubscriber) -> bool:
    return held(copy) == world.tables.all_rows()


async def test_what_differs_is_delivered_and_what_is_gone_is_removed(world: World, copy: VerifyingSubscriber) -> None:
    async with prepared(world, copy, *(f"k{number}" for number in range(9))) as (publisher, flow):
        copy.rows["t"][(b"k1",)] = 1, {"value": b"x"}
        del copy.rows["t"][(b"k2",)]
        for number in range(1200):
            copy.holds("t", (b"left%d" % number,), {"value": b"v"})
        await verify(publisher, flow, VerifyMode.REPAIR)
        await eventually(lambda: control_of(world).ended == "done", "repaired")
        [found] = publisher.backfills.verifications(flow)
        assert (found.compared, found.differs, found.missing, found.repaired) == (9, 1, 1, 2)
        assert (found.extra, found.removed, found.not_compared, found.trouble) == (1200, 1200, 0, "")
        assert len(found.differences) == MOST_DIFFERENCES
        assert sorted(copy.delivered) == [(b"k1",), (b"k2",)]
        assert is_equal(world, copy)
        told = [len(end.alone) for end in copy.chunk_ends if end.alone]
        assert sum(told) == 1200
        assert max(told) <= 500
        assert [(end.table, end.rows) for end in copy.ends if end.generation == 2] == [("t", 9), ("t", 9)]


async def test_an_extra_key_that_came_meanwhile_is_compared_and_kept(world: World, copy: VerifyingSubscriber) -> None:
    async with prepared(world, copy, "k1") as (publisher, flow):
        copy.extra.append((b"k1",))
        await verify(publisher, flow, VerifyMode.REPAIR)
        await eventually(lambda: control_of(world).ended == "done", "repaired")
        [found] = publisher.backfills.verifications(flow)
        assert (found.compared, found.extra, found.removed) == (2, 1, 0), "its row is sent"
        assert is_equal(world, copy)
        assert copy.removed == []


def missing(publisher: Publisher, flow: PublisherFlow) -> int:
    return sum(found.missing for found in publisher.backfills.verifications(flow))


async def test_a_new_epoch_begins_it_anew(world_of_either_direction: World, copy: VerifyingSubscriber) -> None:
    """What the application held when it was compared may have changed, and what exists in the source is not known."""
    world = world_of_either_direction
    async with prepared(world, copy, "k1", "k2") as (publisher, flow):
        del copy.rows["t"][(b"k2",)]
        copy.takes.clear()
        await verify(publisher, flow, VerifyMode.COMPARE)
        await eventually(lambda: missing(publisher, flow) == 1, "compared, and not acknowledged")
        copy.holds("t", (b"k2",), {"value": b"v"})
        copy.wire.hang_up()
        copy.takes.set()
        await eventually(lambda: control_of(world).ended == "done", "compared again")
        [found] = publisher.backfills.verifications(flow)
        assert found == TableVerification("t", compared=2, ended=True)
        assert [one.generation for one in copy.assigns] == [1, 2, 2]
        assert copy.assigns[1].epoch < copy.assigns[2].epoch


async def test_an_application_that_cannot_compare_is_refused(world: World, copy: VerifyingSubscriber) -> None:
    copy.wire.verifies = False
    async with prepared(world, copy, "k1") as (publisher, flow):
        reads = copy.reads
        await verify(publisher, flow, VerifyMode.REPAIR)  # as it is started where no subscriber is there
        await eventually(
            lambda: "subscriber s1 cannot compare rows" in operated(publisher).flow_reports.cause(flow).text, "named"
        )
        world.commit("new")
        await eventually(lambda: (b"new",) in copy.rows["t"], "changes go on")
        assert copy.reads == reads
        assert copy.assigns[-1].verify == push_pb2.VERIFY_NONE


async def test_a_cancelled_one_compares_no_more(world: World, copy: VerifyingSubscriber) -> None:
    async with prepared(world, copy, "k1") as (publisher, flow):
        copy.takes.clear()
        await verify(publisher, flow, VerifyMode.COMPARE)
        await eventually(lambda: copy.compared, "under way")
        await publisher.backfills.cancel(flow)
        copy.takes.set()
        await eventually(lambda: any(end.generation == 2 for end in copy.ends), "what was on its way came")
        world.commit("new")
        await eventually(lambda: (b"new",) in copy.rows["t"], "changes go on")
        assert control_of(world).ended == "cancelled"
        plan = await publisher.backfills.plan(flow, (), "", None, "maria")
        await publisher.backfills.start(flow, plan)
        await eventually(lambda: control_of(world).ended == "done", "existing rows are delivered")
        assert (copy.generation, publisher.backfills.verifications(flow)) == (3, ())


async def test_writes_go_on_while_rows_are_compared(world: World, copy: VerifyingSubscriber) -> None:
    """Both sides stand at the same place of the log: nothing has to be quiet."""
    async with prepared(world, copy, *(f"k{number:04}" for number in range(3000))) as (publisher, flow):
        await verify(publisher, flow, VerifyMode.COMPARE)
        number = 0
        while control_of(world).ended != "done":
            number += 1
            key = b"k%04d" % (number * 7 % 3000)
            world.source.commit([(Op.UPSERT, "t", key, {"value": b"%d" % number})])
            world.source.commit([(Op.DELETE, "t", b"k%04d" % (number * 11 % 3000), None)])
            await asyncio.sleep(0)
        [found] = publisher.backfills.verifications(flow)
        assert found.equal, found


async def test_it_is_done_when_the_application_has_listed_its_keys(world: World, copy: VerifyingSubscriber) -> None:
    """Also where everything that was sent is acknowledged before."""
    async with prepared(world, copy, "k1") as (publisher, flow):
        copy.lists.clear()
        await verify(publisher, flow, VerifyMode.COMPARE)

        def acknowledged() -> bool:
            backfill, caravan_flow = publisher.backfills.progress_of(flow), flow.delivery.caravan_flow
            if backfill is None or caravan_flow is None or backfill.generation != 2 or not backfill.finished:
                return False
            return (
                bool(flow.delivery.durable.backfill) and flow.delivery.durable.backfill == caravan_flow.marker.backfill
            )

        await eventually(acknowledged, "all that was sent is durable")
        publisher.backfills.look()
        assert control_of(world).ended == ""
        world.commit("new")
        await eventually(lambda: (b"new",) in copy.rows["t"], "changes go on")
        publisher.backfills.look()
        assert control_of(world).ended == ""
        await copy.list_now()
        await eventually(lambda: control_of(world).ended == "done", "compared")
