"""Backfills that operators start, pause, resume and cancel, and what the status says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, history, refused, request, served
from tests.integration.publisher.receiving import KEY
from tests.support.copying_subscriber import CopyingSubscriber, copying_subscriber
from tests.support.eventually import eventually
from wormhole.metrics import Sample, catalogue
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.problem import Problem
from wormhole.model.values import Op
from wormhole.wire.v1 import admin_pb2


@pytest.fixture
async def copy(world: World) -> AsyncIterator[CopyingSubscriber]:
    async with copying_subscriber("app", "s1") as subscriber:
        yield subscriber


def start(*tables: str, preview: bool = False, **settings: Any) -> admin_pb2.ChangeRequest:
    wanted = admin_pb2.BackfillStart(tables=tables, **settings)
    return admin_pb2.ChangeRequest(who="maria@ops", flow=FLOW, preview=preview, backfill_start=wanted)


def flow_of(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[KEY]


async def test_a_start_is_shown_first_and_made_then(world: World, copy: CopyingSubscriber) -> None:
    world.commit("a", "b")
    world.application(start="latest")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        control = await served(publisher)
        await eventually(lambda: flow_of(publisher).delivery.caravan_flow, "open")
        shown = (await control.change(start(preview=True))).after.backfill
        assert [(one.table, one.state, one.rows_estimate) for one in shown.progress] == [("t", "waiting", 2)]
        assert (shown.rows_estimate, shown.who, shown.generation) == (
            2,
            "maria@ops",
            flow_of(publisher).holding.epoch + 1,
        )
        assert flow_of(publisher).control.backfill is None
        assert history(world) == []
        await control.change(start())
        assert history(world) == [("maria@ops", "backfill-start", FLOW)]

        def status() -> admin_pb2.BackfillStatus:
            return control._reports.status(flow_of(publisher)).backfill

        await eventually(lambda: status().state == "done", "done")
        assert (status().rows, status().share) == (2, 1.0)
        assert [(one.table, one.state, one.rows) for one in status().progress] == [("t", "done", 2)]
        await eventually(lambda: not publisher.scans.running, "the tables are closed")
        figures = {
            sample.metric: sample.value
            for sample in await operated(publisher).metrics.collect()
            if isinstance(sample, Sample)
        }
        assert figures[catalogue.ROWS_READ] == figures[catalogue.FLOW_BACKFILL_ROWS] == 2
        assert (figures[catalogue.ROWS_CHUNKS], figures[catalogue.FLOW_BACKFILL_SHARE]) == (1, 1.0)
        assert (figures[catalogue.ROWS_DISCARDED], figures[catalogue.FLOW_BACKFILL_REFUSED]) == (0, 0)


async def test_it_is_paused_resumed_and_cancelled(world: World, publisher: Publisher) -> None:
    world.application(start="existing")
    world.commit("a")
    control = await served(publisher)
    reply = await control.change(request("backfill_pause"))
    assert reply.before.backfill.state == "waiting"
    assert reply.before.backfill.waits.text == "no subscriber is there"
    assert reply.after.backfill.state == "paused"
    assert reply.after.backfill.paused.startswith("maria@ops at ")
    assert "is paused already, by maria@ops" in str(await refused(control, request("backfill_pause")))
    await control.change(request("backfill_resume"))
    assert "is not paused" in str(await refused(control, request("backfill_resume")))
    reply = await control.change(request("backfill_cancel"))
    assert (reply.after.backfill.state, reply.after.backfill.generation) == ("cancelled", 1)
    why = await refused(control, request("backfill_cancel"))
    assert "no backfill runs, the last one is cancelled" in str(why)
    assert "`wormholectl backfill start app`" in str(why)
    assert [what for _, what, _ in history(world)] == ["backfill-pause", "backfill-resume", "backfill-cancel"]


async def test_two_requests_for_one_flow(world: World, publisher: Publisher) -> None:
    world.application(start="latest")
    world.commit("a")
    control = await served(publisher)
    await control.change(start())
    why = await refused(control, start())
    assert "the backfill that maria@ops started runs" in str(why)
    assert "wait until it has ended, or `wormholectl backfill cancel app`" in str(why)
    await control.change(request("backfill_pause"))
    assert "was paused by maria@ops" in str(await refused(control, start(where='key == b"x"')))
    reply = await control.change(start(rate=1e6))
    backfill = flow_of(publisher).control.backfill
    assert backfill is not None
    assert (backfill.paused, backfill.generation, backfill.rate) == ("", reply.before.backfill.generation, 1e6)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (start(rate=0), "rate 0: no row would ever be sent"),
        (start(rate=-1), "rate -1: no row"),
        (start(rate=float("nan")), "rate nan"),
        (start("x"), "there is no table x"),
        (start("other"), "app receives nothing of other, by its tables or its filter"),
        (start(""), "a table has an empty name"),
        (start(where="key =="), "key =="),
        (start(where="left"), "an existing row is none"),
        (start(where='op == "delete"'), "an existing row is none"),
        (start(*(f"t{number}" for number in range(1001))), "at most 1000 tables"),
        (start(where="x" * 70_000), "at most"),
    ],
)
async def test_bad_input_is_one_error_and_changes_nothing(
    world: World, publisher: Publisher, wanted: admin_pb2.ChangeRequest, complaint: str
) -> None:
    world.application(start="latest", tables=("t",))
    world.commit("a")
    world.commit("a", table="other")
    control = await served(publisher)
    with pytest.raises(WormholeError) as caught:
        await control.change(wanted)
    assert complaint in str(caught.value)
    assert isinstance(caught.value, UsageError), "a fault of the request"
    assert flow_of(publisher).control.backfill is None
    assert history(world) == []


@pytest.mark.parametrize("tables", [(), ("t", "other")])
async def test_a_filter_on_a_column_that_no_table_has_is_refused(
    world: World, publisher: Publisher, tables: tuple[str, ...]
) -> None:
    """The test would be unknown for every row, and so every row would be sent."""
    world.application(start="latest")
    world.commit("a")
    world.commit("a", table="other")
    control = await served(publisher)
    why = await refused(control, start(*tables, where="nosuch > 3"))
    assert "none of 2 tables has the column nosuch" in str(why)
    assert "correct the name in --where" in str(why)
    why = await refused(control, start(*tables, where='valu == b"v" and nosuch > 3'))
    assert "none of 2 tables has the columns nosuch, valu" in str(why)
    assert "did you mean value for valu?" in str(why)
    assert flow_of(publisher).control.backfill is None


async def test_tables_that_lack_a_column_of_the_filter_are_named(world: World, publisher: Publisher) -> None:
    world.application(start="latest")
    world.commit("a")
    world.commit("a", table="other")
    world.source.commit([(Op.UPSERT, "wide", b"a", {"size": 1})])
    control = await served(publisher)
    notes = (await control.change(start(where="size > 3", preview=True))).notes
    assert "other, t have no column size: that test is unknown there, which passes, so all their rows are sent" in notes
    notes = (await control.change(start(where='size > 3 and key == b"a"', preview=True))).notes
    assert "other, t have no column size: that test is unknown there, the rest of the filter decides" in notes
    notes = (await control.change(start("wide", where="size > 3", preview=True))).notes
    assert not any("no column" in note for note in notes)
    notes = (await control.change(start(where='table != "t" and table != "other" and size > 3', preview=True))).notes
    assert not any("no column" in note for note in notes)


async def test_a_table_that_cannot_be_read_has_no_columns_to_compare(world: World, publisher: Publisher) -> None:
    world.application(start="latest")
    world.commit("a")
    world.source.commit([(Op.UPSERT, "wide", b"a", {"size": 1})])
    world.tables.refused["wide"] = Problem("it has no key", "give it a primary key")
    control = await served(publisher)
    assert "the table t has no column size" in str(await refused(control, start(where="size > 3")))


async def test_a_shard_without_the_column_is_no_mistake(world: World) -> None:
    """With shards by table, the column may be that of another shard's table."""
    world.shard_by = "table"
    world.application(start="latest")
    world.commit("a")
    world.source.commit([(Op.UPSERT, "wide", b"a", {"size": 1})])
    async with world.publisher() as publisher:
        control = await served(publisher)
        wanted = admin_pb2.BackfillStart(where="size > 3")
        flow = "app/log.t"
        reply = await control.change(
            admin_pb2.ChangeRequest(who="maria@ops", flow=flow, preview=True, backfill_start=wanted)
        )
        assert "t has no column size: that test is unknown there, which passes, so all its rows are sent" in reply.notes
        wanted.where = "nosuch > 3"
        asked = admin_pb2.ChangeRequest(who="maria@ops", flow=flow, preview=True, backfill_start=wanted)
        assert "none of 2 tables has the column nosuch" in str(await refused(control, asked))


async def test_tables_that_cannot_be_read_are_named(world: World, publisher: Publisher) -> None:
    world.application(start="latest")
    world.commit("a")
    world.tables.refused["t"] = Problem("it has no key", "give it a primary key")
    control = await served(publisher)
    reply = await control.change(start(preview=True))
    assert "not sent, as these cannot be read: t" in reply.notes
    (table,) = reply.after.backfill.progress
    assert (table.state, table.refused.hint) == ("refused", "give it a primary key")


async def test_a_forgotten_flow_begins_with_its_rows_in_a_new_generation(world: World, publisher: Publisher) -> None:
    """The application may hold rows of the former generations."""
    world.application(start="existing")
    world.commit("a")
    control = await served(publisher)
    await control.change(request("forget"))
    backfill = flow_of(publisher).control.backfill
    assert backfill is not None
    assert (backfill.generation, backfill.ended) == (3, "")
