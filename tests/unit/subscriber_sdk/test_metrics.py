"""A subscriber's own figures, without a metrics library."""

from __future__ import annotations

import asyncio
import sys

from subscriber_sdk import RetryPolicy, Subscriber, Update
from subscriber_sdk.metrics import samples
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.runner import Running
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.testing import ScriptedPublisher, body_of, frames, marker_at, update
from subscriber_sdk.work.shards import Shards
from wormhole.metrics import METRICS, Exporter
from wormhole.metrics import catalogue as c


class _Once(Subscriber):
    """Fails the first time."""

    def __init__(self) -> None:
        self.failed = False

    async def on_update(self, update: Update) -> None:
        if not self.failed:
            self.failed = True
            raise ValueError("not yet")


async def test_figures_of_a_flow_and_every_metric_of_the_list() -> None:
    options = Options(
        application="cache", id="one", listen="127.0.0.1:1", retry=RetryPolicy(attempts=3, first_wait=0.001)
    )
    shards = Shards(_Once(), options)
    publisher = ScriptedPublisher(shards, options)
    running = Running(options, shards, PushServer(shards, options))
    changes = [update("t", key=number, after={"id": number}) for number in (1, 2)]
    publisher.send(frames.hello("cache"), frames.assign(1, 1, "cache", "a", marker_at(0)))
    await shards.settled()
    publisher.teach(change.schema for change in changes)
    publisher.send(frames.batch(1, 1, 1, body_of(changes)))
    await shards.settled()
    found = {(sample.metric.name, *sample.labels): sample.value for sample in samples(running)}
    who = ("cache", "one")
    assert found["wormhole_subscriber_updates_total", *who, "a"] == 2
    assert found["wormhole_subscriber_handler_failures_total", *who, "a"] == 1
    assert found["wormhole_subscriber_queued_bytes", *who, "a"] == 0
    assert found["wormhole_subscriber_rollback_bytes", *who, "a"] > 0
    assert found["wormhole_subscriber_flows", *who, "resting"] == 1
    wanted = {metric.name for metric in METRICS if metric.exporter is Exporter.SUBSCRIBER}
    of_tls = {c.SUBSCRIBER_CERTIFICATE_ENDS.name, c.SUBSCRIBER_CERTIFICATE_RELOADS.name}
    assert {name for name, *_ in found} == wanted - of_tls
    await shards.close()


def test_no_metrics_library_is_needed() -> None:
    code = "import sys, subscriber_sdk.metrics; sys.exit('prometheus_client' in sys.modules)"

    async def run() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await process.wait()

    assert asyncio.run(run()) == 0
