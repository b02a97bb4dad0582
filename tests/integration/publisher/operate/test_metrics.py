"""Values move with what happens, and every metric of the list is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from publisher.flows.lag_and_headroom import FlowLag
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY, taken
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.metrics import METRICS, Exporter, HistogramSample
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.log_source import RelayStatus, SlotStatus
from wormhole.wire.v1 import push_pb2

FLOW = ("shop", "main", "log", "app", "log.t")
LOG = ("shop", "main", "log")


async def values(publisher: Publisher) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name, *sample.labels): sum(sample.counts)
        if isinstance(sample, HistogramSample)
        else sample.value
        for sample in await operated(publisher).metrics.collect()
    }


async def test_a_flow_from_its_commit_to_its_stored_marker(world: World) -> None:
    world.application()
    world.commit("a", "b")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        batch = await s1.hears("batch")
        before = await values(publisher)
        assert before["wormhole_flow_updates_total", *FLOW] == 2
        assert before["wormhole_flow_in_flight_bytes", *FLOW] > 0
        assert before["wormhole_flow_lag_seconds", *FLOW] >= 0
        assert before["wormhole_reader_updates_total", *LOG] == 2
        assert before["wormhole_push_connected", *LOG, "app", "s1"] == 1
        assert before["wormhole_push_connections_total", *LOG, "app", "s1"] == 1
        assert before["wormhole_push_batches_total", *LOG, "app", "s1"] == 1
        assert before["wormhole_push_acks_total", *LOG, "app", "s1"] == 0
        states = ("live", "catching_up")  # which one depends on how fast its caravan reaches the lead
        assert sum(before.get(("wormhole_flows", *LOG, "app", state), 0) for state in states) == 1
        assert sum(before["wormhole_caravan_flows", *LOG, role] for role in ("lead", "other")) == 1
        assert before["wormhole_publisher_coordination_connected", *LOG] == 1

        await s1.processed(batch)
        await s1.acks(await s1.hears("datamarker"))
        await eventually(lambda: publisher.assigner.flows[KEY].delivery.durable.order.offset > 0, "stored")
        after = await values(publisher)
        assert after["wormhole_flow_in_flight_bytes", *FLOW] == 0
        assert after["wormhole_flow_lag_bytes", *FLOW] == 0
        assert after["wormhole_push_acks_total", *LOG, "app", "s1"] == 1
        assert after["wormhole_ack_age_seconds", *LOG, "app"] == 1
        assert after["wormhole_marker_write_seconds", *LOG] >= 1
        assert after["wormhole_markers_waiting", *LOG] == 0
        sent = "wormhole_push_sent_bytes_total"
        assert after[sent, *LOG, "app", "s1"] >= before[sent, *LOG, "app", "s1"] > 0

        world.commit("c")
        await s1.hears("batch")
        assert (await values(publisher))["wormhole_flow_updates_total", *FLOW] == 3


async def test_the_lag_is_that_of_the_place_in_the_present_history(world: World) -> None:
    world.application()
    world.commit("a")
    async with scripted_subscriber("app", "s1") as s1, world.publisher() as publisher:
        await world.register(s1)
        await taken(s1)
        await s1.hears("batch")
        reads = publisher.assigner.flows[KEY].delivery.caravan_flow
        assert reads is not None
        reads.go_over(replace(reads.marker, order=LogPosition(2, 1, 700)))
        publisher.log.watch.lag = (  # type: ignore[method-assign]
            lambda shard, marker, now: FlowLag(float(marker.order.incarnation), 1, 1)
        )
        assert (await values(publisher))["wormhole_flow_lag_seconds", *FLOW] == 2.0


@pytest.mark.usefixtures("first")
async def test_a_lag_that_nobody_knows_is_left_out(world: World, publisher: Publisher) -> None:
    await eventually(lambda: KEY in publisher.assigner.flows and publisher.log.watch.status is not None, "a flow")
    publisher.log.watch.lag = lambda shard, marker, now: FlowLag(0.0, 100, None)  # type: ignore[method-assign]
    found = await values(publisher)
    assert ("wormhole_flow_lag_seconds", *FLOW) not in found
    assert found["wormhole_flow_lag_bytes", *FLOW] == 100


@pytest.mark.usefixtures("first", "assign")
async def test_every_metric_of_a_publisher_is_reported_with_its_labels(
    world: World, s1: ScriptedSubscriber, publisher: Publisher
) -> None:
    await s1.processed(await s1.hears("batch"))
    await s1.acks(await s1.hears("datamarker"))
    flow = publisher.assigner.flows[KEY]
    flow.holding.reported(push_pb2.HandlerReport(updates=1, busy_s=0.5), 0.0)
    await eventually(lambda: publisher.log.watch.status is not None and publisher.records.ack_ages, "asked and acked")
    found = {sample.metric: sample for sample in await operated(publisher).metrics.collect()}
    # These need what this small world has not: a problem of the log, a growing log with a budget, contact that
    # expires, TLS, slots, a relay, a backfill (test_control_backfills), a verification (test_control_verifications),
    # another publisher that could own the log (test_standby), subscribers that dial (test_attach_reports).
    absent = {
        "wormhole_attach_listens",
        "wormhole_attach_connected",
        "wormhole_attach_refused_total",
        "wormhole_attach_unfinished_total",
        "wormhole_flow_backfill_rows",
        "wormhole_flow_backfill_share",
        "wormhole_flow_backfill_refused_tables",
        "wormhole_flow_verify_compared_rows",
        "wormhole_flow_verify_differences",
        "wormhole_flow_headroom_seconds",
        "wormhole_log_growth_bytes_per_second",
        "wormhole_log_budget_bytes",
        "wormhole_log_problems",
        "wormhole_log_slot_kept_bytes",
        "wormhole_log_slot_left_bytes",
        "wormhole_log_slot_lost",
        "wormhole_log_slot_unsynced",
        "wormhole_log_slot_catalog_age_transactions",
        "wormhole_publisher_coordination_silence_seconds",
        "wormhole_publisher_certificate_end_time_seconds",
        "wormhole_publisher_certificate_reloads_total",
        "wormhole_publisher_owns",
        "wormhole_publisher_term",
        "wormhole_publisher_standby_ready",
    }
    missing = {metric.name for metric in METRICS if metric.exporter is Exporter.PUBLISHER} - {
        metric.name for metric in found
    }
    assert {name for name in missing if not name.startswith("wormhole_relay_")} <= absent
    for metric, sample in found.items():
        assert len(sample.labels) == len(metric.labels)


async def test_slots_that_keep_the_log_are_reported(world: World, publisher: Publisher) -> None:
    await eventually(lambda: publisher.log.watch.status is not None, "the log was asked")
    status = publisher.log.watch.status
    assert status is not None
    bounded = SlotStatus("held", 100, 7, lost=False, unsynced=True, catalog_age=5)
    status.slots = (bounded, SlotStatus("lead", 0, None, lost=True, unsynced=None, catalog_age=0))
    found = await values(publisher)
    names = ("kept_bytes", "left_bytes", "lost", "unsynced", "catalog_age_transactions")
    of_slot = {
        slot: [found.get((f"wormhole_log_slot_{name}", *LOG, slot)) for name in names] for slot in ("held", "lead")
    }
    assert of_slot == {"held": [100, 7, 0, 1, 5], "lead": [0, None, 1, None, 0]}


async def test_a_relay_is_reported(world: World, publisher: Publisher) -> None:
    await eventually(lambda: publisher.log.watch.status is not None, "the log was asked")
    status = publisher.log.watch.status
    assert status is not None
    begin, end = LogPosition(1, 1, 0), LogPosition(1, 1, 500)
    first = Datamarker(begin, "", begin, committed_at_us=int((publisher.clock.wall() - 60) * 1e6))
    whole = RelayStatus(
        "hold", first, Datamarker(end, "", end), end, ((begin, end),), None, 100, 500, 900, 50, False, 2
    )

    async def figures(relay: RelayStatus) -> dict[str, float]:
        status.relay = relay
        found = await values(publisher)
        return {name.removeprefix("wormhole_relay_"): found[name, *LOG] for name, *_ in found if "_relay_" in name}

    found = await figures(whole)
    assert 60 <= found.pop("oldest_age_seconds") < 70
    assert found == {
        "recording": 1,
        "bytes": 100,
        "budget_bytes": 900,
        "log_bytes": 500,
        "unsynced_bytes": 0,
        "holes": 0,
        "readers": 2,
        "only": 0,
    }
    torn = ((begin, LogPosition(1, 1, 100)), (LogPosition(1, 1, 300), end))
    found = await figures(replace(whole, mode="cache", begin=None, stretches=torn, problem=Problem("full"), held=end))
    assert "oldest_age_seconds" not in found
    assert "unsynced_bytes" not in found
    assert (found["recording"], found["holes"], found["only"]) == (0, 1, 1)
    answer = await operated(publisher).reports.whole()
    assert (answer.relay.mode, len(answer.relay.stretches), answer.relay.problem.text) == ("cache", 2, "full")
    assert answer.relay.HasField("held")
    assert not answer.relay.HasField("begin")


async def test_many_flows_leave_the_loop_its_turns(world: World) -> None:
    world.application()
    for number in range(120):
        world.commit("a", table=f"t{number}")
    async with world.publisher() as publisher:
        await eventually(lambda: len(publisher.assigner.flows) == 120, "all shards are known")
        found = await values(publisher)
        assert sum(name == "wormhole_flow_held" for name, *_ in found) == 120
        assert found["wormhole_flows", *LOG, "app", "unassigned"] == 120


async def test_problems_of_the_log_are_counted_by_their_code(publisher: Publisher) -> None:
    await eventually(lambda: publisher.log.watch.status is not None, "measured")
    status = publisher.log.watch.status
    assert status is not None
    shared, of_another_package = Problem("it is read twice", code="log-shared"), Problem("it is odd")
    found = replace(status, problems=(shared, replace(shared, text="it is read thrice"), of_another_package))
    publisher.log.watch.measured(found, publisher.clock.monotonic())
    counted = {key[-1]: value for key, value in (await values(publisher)).items() if key[0] == "wormhole_log_problems"}
    assert counted == {"log-shared": 2, "other": 1}
