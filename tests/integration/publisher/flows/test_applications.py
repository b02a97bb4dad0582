"""Filters at work: on values, on values that cannot be read, and changed while flows are behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.publisher.conftest import World
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.config import DatasetConfig, FailoverConfig
from wormhole.formats import FormatSpec, open_formats
from wormhole.model.position import Datamarker
from wormhole.model.values import Op
from wormhole.push import session
from wormhole.wire.markers import marker_from_message
from wormhole.wire.update import Update
from wormhole.wire.v1 import push_pb2

OPEN, PAID, BROKEN = b'{"status": "open"}', b'{"status": "paid"}', b"{"


@pytest.fixture
def store(world: World) -> World:
    """A world whose values are JSON."""
    world.formats = open_formats(FormatSpec("json"), {})
    return world


def write(world: World, **values: bytes | None) -> Datamarker:
    """One transaction: key to value, ``None`` deletes."""
    return world.source.commit(
        [
            (Op.DELETE, "t", key.encode(), None) if value is None else (Op.UPSERT, "t", key.encode(), {"value": value})
            for key, value in values.items()
        ]
    )


async def taken(subscriber: ScriptedSubscriber, *, credit: int = 1 << 20) -> push_pb2.Assign:
    return await subscriber.accepts(await subscriber.hears_later("assign"), credit=credit)


async def batch(subscriber: ScriptedSubscriber) -> list[Update]:
    frame = await subscriber.hears_later("batch")
    await subscriber.processed(frame)
    return subscriber.updates(frame)


async def test_what_does_not_pass_comes_with_its_key_and_marked(store: World) -> None:
    store.application(where='status == "paid"')
    write(store, a=PAID, b=OPEN, c=None, d=BROKEN)
    async with scripted_subscriber("app", "s1") as s1, store.publisher() as publisher:
        await store.register(s1)
        await taken(s1)
        found = await batch(s1)
        assert [(u.key, u.op, u.left, u.after) for u in found] == [
            ((b"a",), Op.UPSERT, False, {"value": PAID}),
            ((b"b",), Op.UPSERT, True, None),
            ((b"c",), Op.DELETE, False, None),
            ((b"d",), Op.UPSERT, False, {"value": BROKEN}),
        ]
        (flow,) = publisher.assigner.flows.values()
        assert flow.delivery.bad_values == 1


async def test_an_application_may_halt_at_a_bad_value(store: World, caplog: pytest.LogCaptureFixture) -> None:
    store.application(where='status == "paid"', on_bad_value="halt")
    store.application("other", where='status == "paid"')
    first = write(store, a=PAID)
    async with (
        scripted_subscriber("app", "s1") as s1,
        scripted_subscriber("other", "o1") as other,
        store.publisher() as publisher,
    ):
        await store.register(s1)
        await store.register(other)
        await taken(s1)
        await taken(other)
        assert [u.key for u in await batch(s1)] == [(b"a",)]
        offered = await s1.hears("datamarker")
        assert offered.datamarker.marker.order.offset == first.order.offset
        await s1.acks(offered)
        write(store, b=BROKEN)
        flow = publisher.assigner.flows[("app", "log.t")]
        await eventually(lambda: flow.state(frozenset()).value == "held", "held")
        assert flow.cause.startswith("held before mem:2:0 at 1/1/")
        assert "the value in t is not what value_format says: no valid JSON" in flow.cause
        assert any(flow.cause in message for message in caplog.messages)
        assert "app/log.t" in [getattr(record, "flow", None) for record in caplog.records]
        assert flow.delivery.updates == 1  # no more than what was before it
        heard: list[object] = []
        while len(heard) < 2:  # in one batch or in two, as the second write and the first send fall
            heard += [u.key for u in await batch(other)]
        assert heard == [(b"a",), (b"b",)]  # it delivers and counts
        assert (flow.delivery.bad_values, publisher.assigner.flows[("other", "log.t")].delivery.bad_values) == (0, 1)

        store.application(where='status == "paid"', on_bad_value="deliver")
        revoked = (await s1.hears_later("revoke")).revoke
        await s1.releases(push_pb2.Assign(flow=revoked.flow, epoch=revoked.epoch))
        again = await taken(s1)
        assert again.epoch == revoked.epoch + 1
        assert [u.after for u in await batch(s1)] == [{"value": BROKEN}]


async def test_an_application_may_want_datamarkers_sooner(store: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MARKER_EVERY_S", 1e9)
    store.application(marker_interval=0.05)
    first = write(store, a=PAID)
    async with scripted_subscriber("app", "s1") as s1, store.publisher():
        await store.register(s1)
        await taken(s1)
        await s1.hears_later("batch")
        assert marker_from_message((await s1.hears_later("datamarker")).datamarker.marker).order == first.order


async def test_a_filter_that_changes_while_its_flow_is_behind_applies_from_the_marker_in_a_new_epoch(
    store: World,
) -> None:
    """Credit for one batch: the flow has log before it when its filter changes."""
    store.application(where='key startswith "a"')
    first = write(store, a1=PAID, b1=PAID)
    async with scripted_subscriber("app", "s1") as s1, store.publisher() as publisher:
        await store.register(s1)
        before = await taken(s1, credit=1)
        frame = await s1.hears("batch")
        assert [u.key for u in s1.updates(frame)] == [(b"a1",)]
        await s1.processed(frame)
        offered = await s1.hears("datamarker")
        await s1.acks(offered)
        flow = publisher.assigner.flows[("app", "log.t")]
        await eventually(lambda: flow.delivery.durable.order == first.order, "stored")
        write(store, a2=PAID, b2=OPEN)
        behind = await s1.hears("batch")
        assert [u.key for u in s1.updates(behind)] == [(b"a2",)]
        write(store, a3=OPEN, b3=PAID)  # waits for credit
        old = flow.filter.hash
        store.application(where='key startswith "b" and status == "paid"')
        revoke = (await s1.hears_later("revoke")).revoke
        assert (revoke.epoch, revoke.cause) == (before.epoch, "its filter changed")
        await s1.releases(before)
        after = await taken(s1)
        assert after.epoch == before.epoch + 1
        assert after.marker.order.offset == first.order.offset
        found = await batch(s1)
        if len(found) == 1:
            found += await batch(s1)
        # From the marker on, and not before it: b1 was decided by the filter that held then.
        assert [(u.key, u.left) for u in found] == [((b"b2",), True), ((b"b3",), False)]
        offered = await s1.hears_later("datamarker")
        await s1.acks(offered)
        await eventually(lambda: flow.delivery.durable.order > first.order, "stored")
        assert store.markers.records[("app", "log.t")].filter_hash == flow.filter.hash != old


async def test_a_wrong_new_filter_leaves_the_old_one_in_force(store: World, caplog: pytest.LogCaptureFixture) -> None:
    store.application(where='key startswith "a"')
    async with scripted_subscriber("app", "s1") as s1, store.publisher() as publisher:
        await store.register(s1)
        write(store, a1=PAID)
        await taken(s1)
        await batch(s1)
        store.application(where="nonsense ===")
        await eventually(lambda: "app" in publisher.applications.unserved, "refused")
        write(store, a2=PAID, b2=PAID)
        assert [u.key for u in await batch(s1)] == [(b"a2",)]
    assert "not served as configured" in caplog.text


@pytest.mark.parametrize(
    ("copy", "served"), [("main", {"any"}), ("west", {"any"}), ("east", {"of-east"})], ids=["main", "west", "east"]
)
async def test_the_copies_of_a_failover_serve_the_applications_that_name_none(
    copy: str, served: set[str], world: World
) -> None:
    logs: dict[str, Any] = {"logs": {"log": {"source": "log", "kind": "mysql"}}}
    copies: Any = dict.fromkeys(("main", "west", "east"), logs)
    names = {"any": "", "of-main": "main", "of-east": "east"}
    for name, from_copy in names.items():
        world.application(name, from_copy=from_copy)
    async with world.publisher() as publisher:
        failover = FailoverConfig(copies=("main", "west"))
        dataset = DatasetConfig(name="shop", copies=copies, failover=failover)
        publisher.applications._served = replace(publisher.served, dataset=dataset, copy=copy)
        await publisher.applications.known.wait()
        assert {name for name in names if name in publisher.applications} == served


async def test_subscribers_are_dialled_while_their_flows_are_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.application()
    world.commit("a")
    answers, latest = threading.Event(), world.source.latest

    def late() -> Datamarker:
        assert answers.wait(PATIENCE_S)
        return latest()

    monkeypatch.setattr(world.source, "latest", late)
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await eventually(lambda: [one.connected for one in publisher.assigner.streams()] == [True], "dialled")
        assert not publisher.assigner.flows
        answers.set()
        await taken(s1)
