"""Repairs after a loss of log whose rows are known: only these are sent, and none of them is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from caravan.backfill.progress import BackfillRequest, FlowBackfill
from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from publisher.flows.backfills import Backfills
from publisher.operate.control import Control
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from publisher.relay.lost_key_files import LostKeyFiles
from publisher.relay.settings import RelayIdentity
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, served
from tests.integration.publisher.receiving import KEY
from tests.support.copying_subscriber import running_copy
from tests.support.eventually import eventually
from tests.support.halting_copy import HaltingCopy
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.errors import MarkerStoreError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.changes import Change
from wormhole.ports.marker_store import BackfillControl
from wormhole.wire.v1 import admin_pb2

PAUSE = admin_pb2.ChangeRequest(who="m@o", flow=FLOW, backfill_pause=admin_pb2.BackfillPause())


class LosingSource(MemorySource):
    """A log that notes what it loses, as a relay does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(log="log", sharding=Sharding("table"))
        self.noted = LostKeyFiles(folder, RelayIdentity("log", "memory", "table", 1 << 20, ""))
        self.kept: LogPosition | None = None

    def lose(self) -> None:
        """Everything that was committed so far."""
        begin, segments, segment = self.earliest(), list[Segment](), None
        reader = self.open(begin)
        while (segment := reader.read(1 << 20, 0.0)) is not None:
            segments.append(segment)
        self.noted.note(segments, begin.order, segments[-1].end)
        self.purge()

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """See the port."""
        return self.noted.keys(shard, begin, end)

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        """See the port."""
        self.kept = oldest

    def trim(self, keep_bytes: int) -> None:
        """See the port."""
        self.noted.clear()


class Scene(World):
    """A copy of a table with 600 rows."""

    def __init__(self, world: World, folder: Path, copy: HaltingCopy) -> None:
        self.__dict__.update(world.__dict__)
        self.source: LosingSource = LosingSource(folder)
        self.relay = self.source
        self.tables = MemoryTables(self.source)
        self.copy = copy

    def equals(self) -> bool:
        """Whether the copy is the table."""
        return self.copy.copy().get("t") == self.tables.all_rows().get("t")

    async def lose(self) -> None:
        """The log of all that was committed so far is gone."""
        await asyncio.to_thread(self.source.lose)

    async def begin(self) -> None:
        """The application holds its table, and stops."""
        self.commit(*(f"k{number:03}" for number in range(600)))
        self.application()
        await self.register(self.copy.wire)
        async with self.publisher() as publisher:
            await eventually(self.equals, "the copy is made")
            await eventually(lambda: flow_of(publisher).delivery.durable.order == self.source.latest().order, "stored")
        self.source.purge()

    def change(self, *numbers: int) -> None:
        """Rows that are updated; ten behind each one is deleted, and twenty behind it one moves."""
        for number in numbers:
            self.source.commit(
                [
                    (Op.UPDATE, "t", b"k%03d" % number, {"value": b"new"}),
                    (Op.DELETE, "t", b"k%03d" % (number + 10)),
                    Change(Op.UPDATE, "t", b"moved%03d" % number, {"value": b"m"}, old_key=b"k%03d" % (number + 20)),
                ]
            )


@pytest.fixture
async def scene(world: World, tmp_path: Path) -> AsyncIterator[Scene]:
    async with scripted_subscriber("app", "s1") as wire, running_copy(HaltingCopy(wire)) as copy:
        scene = Scene(world, tmp_path, copy)
        await scene.begin()
        yield scene


def flow_of(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[KEY]


@asynccontextmanager
async def held(scene: Scene) -> AsyncIterator[tuple[Publisher, Control, PublisherFlow]]:
    """A publisher, what operators change of it, and its flow, which is held at a loss."""
    async with scene.publisher() as publisher:
        control = await served(publisher)
        await eventually(lambda: KEY in publisher.assigner.flows and flow_of(publisher).stage is Stage.DECLINED, "held")
        yield publisher, control, flow_of(publisher)


def repair(*, preview: bool = False) -> admin_pb2.ChangeRequest:
    return admin_pb2.ChangeRequest(
        who="maria@ops", flow=FLOW, preview=preview, backfill_start=admin_pb2.BackfillStart(lost=True)
    )


async def accept(control: Control, publisher: Publisher) -> None:
    def held() -> bool:
        flow = flow_of(publisher)
        return flow.stage is Stage.DECLINED and publisher.backfills.progress_of(flow) is not None

    await eventually(held, "held with its backfill")
    await control.change(
        admin_pb2.ChangeRequest(who="maria@ops", flow=FLOW, accept_loss=admin_pb2.AcceptLoss(), preview=False)
    )


def control_of(scene: Scene) -> BackfillControl:
    found = scene.markers.records[KEY].control.backfill
    assert found is not None
    return found


async def done(scene: Scene) -> None:
    await eventually(lambda: control_of(scene).ended == "done", "done")
    await eventually(scene.equals, "equal")


async def asked_for_a_repair(scene: Scene) -> None:
    """An operator asked for the rows of a loss, and the publisher ended before the loss was accepted."""
    scene.change(1)
    await scene.lose()
    async with held(scene) as (_, control, _):
        await control.change(repair())


async def test_only_rows_that_changed_are_sent(scene: Scene) -> None:
    scene.change(1, 2)
    await scene.lose()
    scene.change(3)
    async with held(scene) as (publisher, control, flow):
        assert flow.loss.repair == "8 keys of 1 table, from the relay"
        assert "(8 keys of 1 table, from the relay)" in flow.problem.hint
        assert control._reports.status(flow).repair == flow.loss.repair
        planned = (await control.change(repair(preview=True))).after.backfill
        assert (planned.lost, planned.rows_estimate) == (flow.loss.repair, 8)
        await control.change(repair())
        assert control_of(scene).lost
        await accept(control, publisher)
        await done(scene)
        assert control._reports.status(flow_of(publisher)).backfill.lost == "8 keys of 1 table, from the relay"
        assert scene.copy.reads == 4
        assert scene.copy.ends == []
        await publisher.housekeeping.release()
        assert scene.source.kept is not None


async def test_keys_are_kept_while_a_repair_needs_them(scene: Scene) -> None:
    before = scene.markers.records[KEY].marker.order
    scene.change(1)
    await scene.lose()
    async with held(scene) as (publisher, control, _):
        await control.change(repair())
        await control.change(PAUSE)
        await accept(control, publisher)
        await eventually(lambda: flow_of(publisher).delivery.durable.order > before, "the flow has passed the loss")
        await publisher.housekeeping.release()
        assert scene.source.kept == before


async def test_more_log_is_lost_before_the_first_loss_is_accepted(scene: Scene) -> None:
    """The process dies between the request and the acceptance, and what it lacks grows meanwhile."""
    await asked_for_a_repair(scene)
    [(begin, _)], first = control_of(scene).lost, control_of(scene).generation
    scene.change(2)
    await scene.lose()
    scene.change(3)
    async with held(scene) as (publisher, control, flow):
        assert flow.loss.repair == "8 keys of 1 table, from the relay"
        [(same, end)] = control_of(scene).lost
        assert same == begin
        assert end > begin
        assert control_of(scene).generation == first
        await accept(control, publisher)
        await done(scene)
    assert scene.copy.ends == []


async def test_more_log_is_lost_after_rows_were_sent(scene: Scene) -> None:
    await asked_for_a_repair(scene)
    record, first = scene.markers.records[KEY], control_of(scene)
    sent = FlowBackfill(BackfillRequest(first.generation), first.filter_hash)
    sent.rows = 1
    marker = replace(record.marker, backfill=sent.to_bytes())
    scene.markers.records[KEY] = replace(record, marker=marker)
    scene.change(2)
    await scene.lose()
    async with scene.publisher() as publisher:
        control = await served(publisher)
        await eventually(lambda: control_of(scene).generation > first.generation, "begun anew")
        await accept(control, publisher)
        await done(scene)
        assert len(control_of(scene).lost) == 1
        assert scene.copy.ends == []


@pytest.mark.parametrize("gone", ["before", "between", "after"])
async def test_what_is_not_known_any_more_is_read_as_whole_tables(scene: Scene, gone: str) -> None:
    scene.change(1)
    await scene.lose()
    if gone == "before":
        await asyncio.to_thread(scene.source.noted.clear)
    async with held(scene) as (publisher, control, flow):
        known = gone != "before"
        assert flow.loss.repair.startswith("4 keys" if known else "whole tables: the relay has not noted")
        made = await control.change(repair())
        assert bool(made.after.backfill.lost) == known
        assert any("whole tables are read" in note for note in made.notes) != known
        if gone == "after":
            scene.copy.takes.clear()
            await accept(control, publisher)
            await eventually(lambda: flow_of(publisher).stage is Stage.OPEN, "it goes on")
    scene.copy.takes.set()
    if gone != "before":
        await asyncio.to_thread(scene.source.noted.clear)
    scene.change(2)
    async with scene.publisher() as publisher:
        control = await served(publisher)
        if gone != "after":
            await accept(control, publisher)
        await done(scene)
        assert control_of(scene).lost == ()
        assert [end.table for end in scene.copy.ends] == ["t"]


async def test_more_lost_log_that_is_not_known_costs_the_shortcut(scene: Scene) -> None:
    await asked_for_a_repair(scene)
    scene.change(2)
    scene.source.purge()
    async with held(scene) as (publisher, control, flow):
        assert flow.loss.repair.startswith("whole tables")
        await accept(control, publisher)
        await done(scene)
    assert control_of(scene).lost == ()
    assert [end.table for end in scene.copy.ends] == ["t"]


async def test_a_repair_that_cannot_be_extended_is_one_of_whole_tables(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> bool:
        raise MarkerStoreError("the disk is full")

    await asked_for_a_repair(scene)
    scene.change(2)
    await scene.lose()
    monkeypatch.setattr(Backfills, "cover", broken)
    async with scene.publisher() as publisher:
        control = await served(publisher)
        await accept(control, publisher)
        await done(scene)
    assert [end.table for end in scene.copy.ends] == ["t"]


async def test_an_application_without_on_range_gets_whole_tables(scene: Scene) -> None:
    scene.copy.wire.takes_ranges = False
    scene.change(1)
    await scene.lose()
    async with held(scene) as (_, control, _):
        made = await control.change(repair())
        assert any("app has no on_range" in note for note in made.notes)
        await control.change(PAUSE)
        made = await control.change(repair())
        assert any("it was paused" in note for note in made.notes)


async def test_a_flow_that_is_not_held_gets_whole_tables_and_a_table_that_is_gone_is_named(scene: Scene) -> None:
    async with scene.publisher() as publisher:
        control = await served(publisher)
        await eventually(lambda: flow_of(publisher).stage is Stage.OPEN, "open")
        planned = await control.change(repair(preview=True))
        assert any("not held at a loss" in note for note in planned.notes)
