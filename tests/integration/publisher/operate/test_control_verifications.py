"""Verifications that operators ask for, and what the status and the metrics say of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from publisher.operate import backfill_status
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.operate.changes import FLOW, refused, request, served
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from tests.support.verifying_subscriber import VerifyingSubscriber, verifying_subscriber
from wormhole.metrics import Sample, catalogue
from wormhole.model.errors import UsageError
from wormhole.wire.v1 import admin_pb2, push_pb2


@pytest.fixture
async def copy() -> AsyncIterator[VerifyingSubscriber]:
    async with verifying_subscriber("app", "s1") as subscriber:
        yield subscriber


def start(
    verify: push_pb2.Verify = push_pb2.VERIFY_COMPARE, *, preview: bool = False, **settings: Any
) -> admin_pb2.ChangeRequest:
    wanted = admin_pb2.BackfillStart(verify=verify, **settings)
    return admin_pb2.ChangeRequest(who="maria@ops", flow=FLOW, preview=preview, backfill_start=wanted)


def flow_of(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[KEY]


async def test_what_was_found_is_shown(
    world: World, copy: VerifyingSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_status, "_MOST_DIFFERENCES", 30)
    world.commit("a", "b")
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        control = await served(publisher)

        def flow() -> admin_pb2.FlowStatus:
            return control._reports.status(flow_of(publisher))

        await eventually(lambda: flow().backfill.state == "done", "the copy is made")
        assert flow().verifies
        copy.rows["t"][(b"a",)] = 1, {"value": b"x"}
        for number in range(40):
            copy.holds("t", (b"left%02d" % number,), {"value": b"v"})
        shown = await control.change(start(push_pb2.VERIFY_REPAIR, preview=True))
        assert any("keys that are gone are reported" in note for note in shown.notes)
        assert shown.after.backfill.verify == push_pb2.VERIFY_REPAIR
        await control.change(start())
        await eventually(lambda: flow().backfill.generation == 2 and flow().backfill.state == "done", "compared")
        status = flow().backfill
        assert status.verify == push_pb2.VERIFY_COMPARE
        [found] = status.verified
        assert (found.table, found.compared, found.differs, found.extra, found.ended) == ("t", 2, 1, 40, True)
        assert len(found.differences) == 30, "a report on all flows has a bound"
        named = {(one.kind, one.key): list(one.columns) for one in found.differences}
        assert named[("differs", "t:0x61")] == ["value"]
        assert named[("extra", "t:0x" + b"left07".hex())] == []
        figures = {
            sample.metric: sample.value
            for sample in await operated(publisher).metrics.collect()
            if isinstance(sample, Sample)
        }
        assert figures[catalogue.FLOW_VERIFY_COMPARED] == 2
        assert figures[catalogue.FLOW_VERIFY_DIFFERENCES] == 41


async def test_it_waits_for_the_application_and_says_so(world: World, copy: VerifyingSubscriber) -> None:
    world.commit("a")
    world.application(start="existing")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        control = await served(publisher)

        def status() -> admin_pb2.BackfillStatus:
            return control._reports.status(flow_of(publisher)).backfill

        await eventually(lambda: status().state == "done", "the copy is made")
        copy.takes.clear()
        await control.change(start())
        await eventually(lambda: "s1 lists the keys" in status().waits.text, "it says for whom it waits")
        assert "the verification that maria@ops started runs" in str(await refused(control, start()))
        reply = await control.change(request("backfill_cancel"))
        assert any("what was repaired stays repaired" in note for note in reply.notes)
        copy.takes.set()


async def test_an_application_that_cannot_compare_is_refused_with_the_next_step(
    world: World, copy: VerifyingSubscriber
) -> None:
    copy.wire.verifies = False
    world.commit("a")
    world.application(start="latest")
    await world.register(copy.wire)
    async with world.publisher() as publisher:
        control = await served(publisher)
        await eventually(lambda: flow_of(publisher).delivery.caravan_flow, "open")
        why = await refused(control, start())
        assert "subscriber s1 cannot compare rows: its application has no on_verify and on_verify_keys" in str(why)
        assert "add both to the application" in str(why)
        assert not control._reports.status(flow_of(publisher)).verifies
        assert flow_of(publisher).control.backfill is None


async def test_bad_input(world: World, publisher: Publisher) -> None:
    world.application(start="latest")
    world.commit("a")
    control = await served(publisher)
    with pytest.raises(UsageError, match="a verification compares whole tables, and has no filter of its own"):
        await control.change(start(where='key == b"x"'))
    why = await refused(control, start(9))  # type: ignore[arg-type]
    assert "verify 9 is a mode that this release does not know" in str(why)
    await control.change(start())
    await control.change(request("backfill_pause"))
    assert "was paused by maria@ops" in str(await refused(control, start(push_pb2.VERIFY_NONE)))
    reply = await control.change(start())
    assert reply.after.backfill.verify == push_pb2.VERIFY_COMPARE, "the same request resumes it"
