"""A span for the callbacks of each batch and attempt; a handler's own spans lie within it."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from subscriber_sdk import RetryPolicy, Subscriber, Update, serve
from subscriber_sdk.testing import Change, Kit, body_of, frames, update
from subscriber_sdk.work.tracing import tracing
from tests.support.flows import World
from tests.support.otel import read, reader, spans
from tests.support.ports import free_port
from wormhole import __version__


class _Traced(Subscriber):
    """``failures``: how many calls fail first."""

    def __init__(self, tracer: Tracer, failures: int = 0) -> None:
        self.tracer = tracer
        self.failures = failures

    async def on_update(self, update: Update) -> None:
        with self.tracer.start_as_current_span("mine"):
            if self.failures:
                self.failures -= 1
                raise ValueError("not yet")


class _InThread(Subscriber):
    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def on_update(self, update: Update) -> None:
        self.tracer.start_span("mine").end()


def two_tables() -> list[Change]:
    return [update("shop.users", key=1, after={"id": 1}), update("shop.orders", key=2, after={"id": 2})]


async def push(subscriber: Subscriber, concurrency: int = 1) -> None:
    """One batch to one flow."""
    retry = RetryPolicy(attempts=3, first_wait=0.001)
    world = World(subscriber, retry=retry, concurrency=concurrency)
    publisher, changes = world.dial(), two_tables()
    await world.open(publisher, 4)
    publisher.teach(change.schema for change in changes)
    publisher.send(frames.batch(1, 4, 1, body_of(changes, committed_at_us=1_000_000)))
    await world.shards.settled()
    await world.shards.close()


async def test_each_attempt_of_a_batch_is_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    with spans(monkeypatch) as (exporter, tracer):
        await push(_Traced(tracer, failures=1))
    whole = [span for span in exporter.get_finished_spans() if span.name != "mine"]
    assert [span.name for span in whole] == ["process app/s"] * 2
    assert [span.status.status_code for span in whole] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [event.attributes["exception.message"] for event in whole[0].events if event.attributes] == ["not yet"]
    last = whole[-1]
    found = dict(last.attributes or {})
    lag = found.pop("wormhole.lag_seconds")
    assert isinstance(lag, float)
    assert lag > 1e9  # committed in 1970
    assert last.kind is SpanKind.CONSUMER
    assert found == {
        "messaging.system": "wormhole",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "app",
        "messaging.destination.name": "app/s",
        "messaging.batch.message_count": 2,
        "wormhole.epoch": 4,
        "wormhole.replayed": False,
        "wormhole.tables": ("shop.orders", "shop.users"),
    }


@pytest.mark.parametrize(("handler", "concurrency"), [(_Traced, 1), (_Traced, 2), (_InThread, 1), (_InThread, 2)])
async def test_a_handlers_own_spans_lie_within(
    handler: type[_Traced | _InThread], concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans(monkeypatch) as (exporter, tracer):
        await push(handler(tracer), concurrency=concurrency)
    found = exporter.get_finished_spans()
    [whole] = [span for span in found if span.name != "mine"]
    own = [span for span in found if span.name == "mine"]
    assert len(own) == 2
    assert {span.parent.span_id for span in own if span.parent} == {whole.context.span_id}


def test_no_span_is_made_that_nobody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = tracing("cache", "a", 1)
    assert flow is not None
    assert flow.batch(replayed=False) is flow.batch(replayed=False), "nothing is made for it"
    with flow.batch(replayed=False):
        pass
    with spans(monkeypatch) as (exporter, _):
        flow = tracing("cache", "a", 1)
        assert flow is not None
        with flow.batch(replayed=False):
            pass
    assert [span.name for span in exporter.get_finished_spans()] == ["process cache/a"]


def test_nothing_is_traced_without_the_package(wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    with spans(monkeypatch) as (exporter, tracer):
        monkeypatch.setitem(sys.modules, "opentelemetry", None)
        assert tracing("cache", "a", 1) is None
        flow = wormhole_kit.attach(_InThread(tracer))
        flow.commit(*two_tables())
        assert flow.datamarker == flow.end
    assert {span.name for span in exporter.get_finished_spans()} == {"mine"}


async def test_a_subscriber_exports_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    build = "wormhole_subscriber_build_info", "cache", "one", __version__
    with reader(monkeypatch) as sdk, spans(monkeypatch) as (_, tracer):
        async with serve(_Traced(tracer), application="cache", id="one", listen=f"127.0.0.1:{free_port()}"):
            assert read(sdk)[build] == 1
        assert read(sdk) == {}
