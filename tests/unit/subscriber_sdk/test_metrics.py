"""A subscriber's own figures, without a metrics library."""

from __future__ import annotations

import asyncio
import sys

from subscriber_sdk import RetryPolicy
from subscriber_sdk.metrics import samples
from subscriber_sdk.runner import Running
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.testing import body_of, frames, update
from tests.support.flows import NewWorld, Recorder, failing
from wormhole.metrics import METRICS, Exporter
from wormhole.metrics import catalogue as c


async def test_figures_of_a_flow_and_every_metric_of_the_list(new_world: NewWorld) -> None:
    world, publisher = new_world(Recorder(failing(1)), retry=RetryPolicy(attempts=3, first_wait=0.001))
    running = Running(world.options, world.shards, PushServer(world.shards, world.options))
    await world.open(publisher)
    changes = [update("t", key=number) for number in (1, 2)]
    publisher.teach(change.schema for change in changes)
    publisher.send(frames.batch(1, 1, 1, body_of(changes)))
    await world.shards.settled()
    found = {(sample.metric.name, *sample.labels): sample.value for sample in samples(running)}
    who = ("app", "one")
    assert found["wormhole_subscriber_updates_total", *who, "s"] == 2
    assert found["wormhole_subscriber_handler_failures_total", *who, "s"] == 1
    assert found["wormhole_subscriber_queued_bytes", *who, "s"] == 0
    assert found["wormhole_subscriber_rollback_bytes", *who, "s"] > 0
    assert found["wormhole_subscriber_flows", *who, "resting"] == 1
    wanted = {metric.name for metric in METRICS if metric.exporter is Exporter.SUBSCRIBER}
    of_tls = {c.SUBSCRIBER_CERTIFICATE_ENDS.name, c.SUBSCRIBER_CERTIFICATE_RELOADS.name}
    assert {name for name, *_ in found} == wanted - of_tls


def test_no_metrics_library_is_needed() -> None:
    code = "import sys, subscriber_sdk.metrics; sys.exit('prometheus_client' in sys.modules)"

    async def run() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await process.wait()

    assert asyncio.run(run()) == 0
