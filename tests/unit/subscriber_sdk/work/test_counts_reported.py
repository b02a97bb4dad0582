"""What a flow reports of what it processed: counts, and spans."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from subscriber_sdk import Subscriber, Update, serve
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Ending
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.options.subscriber_options import Options, RetryPolicy
from subscriber_sdk.stream.counts import Counts, CountsReport
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.testing import Change, Kit, body_of, frames, marker_at, update
from subscriber_sdk.work.acks import BatchItem, MarkerItem
from subscriber_sdk.work.flow_worker import FlowWorker
from subscriber_sdk.work.recovery import KeptOverEpochs
from subscriber_sdk.work.tracing import tracing
from tests.support.eventually import eventually
from tests.support.flows import World
from tests.support.otel import read, reader, spans
from tests.support.ports import free_port
from wormhole import __version__
from wormhole.wire.tally import update_hash

# --- counts reported: what a flow tells of what it processed: what was called, and how often ---


CHANGES = [update("users", key=number, after={"name": "ada"}) for number in range(6)]


class Port:
    """Answers of one epoch, and all that is counted with each of them."""

    peer = SimpleNamespace(dataset="", log="")

    def __init__(self, *, is_over: bool = False) -> None:
        self.is_over = is_over
        self.last: object = None
        self.counts = Counts()
        self.told: list[CountsReport] = []
        self.lives: list[int] = []
        self.progressed: list[CountsReport] = []
        self.released: CountsReport | None = None

    def accept(self, credit: int, have: object, counts: Counts, move: int) -> None:
        self.counts = counts
        self.lives.append(counts.life)

    def ack(self, marker: object) -> bool:
        self.told.append(self.counts.report())
        return not self.is_over

    def release(self, marker: object) -> None:
        self.released, self.last = self.counts.report(), marker

    def progress(self, number: int | None) -> None:
        self.progressed.append(self.counts.report())

    def fail(self, *given: Any) -> None:
        raise AssertionError(given)

    def schema(self, id_: int) -> Any:
        return CHANGES[0].schema


class Heard(Subscriber):
    """Fails once at ``at``."""

    def __init__(self, at: int = -1) -> None:
        self.calls = 0
        self.at = at

    async def on_update(self, update: Update) -> None:
        if update.index == self.at:
            self.at = -1
            raise RuntimeError("once")
        self.calls += 1


class Together(Subscriber):
    async def on_updates(self, updates: Sequence[Update]) -> None:
        pass


class Threaded(Subscriber):
    def on_update(self, update: Update) -> None:
        pass


def new_worker(subscriber: Subscriber, port: Port, counts: Counts, *skip: str, concurrency: int = 1) -> FlowWorker:
    return FlowWorker(
        Handlers(subscriber, None),
        Options(application="app", listen="127.0.0.1:1", concurrency=concurrency),
        port,  # type: ignore[arg-type]  # what it is asked for here
        Assigned(1, 1, "db1", marker_at(0), False, skip),
        KeptOverEpochs(Retry(RetryPolicy(first_wait=0.001), lambda: 0.0), counts),
        credit=1 << 20,
    )


async def told_by(
    subscriber: Subscriber, counts: Counts, *skip: str, concurrency: int = 1, is_over: bool = False
) -> Port:
    """One epoch with one batch of six updates and a datamarker, then given back."""
    port = Port(is_over=is_over)
    worker = new_worker(subscriber, port, counts, *skip, concurrency=concurrency)
    task = worker.start()
    worker.feed(BatchItem(1, False, body_of(CHANGES, number=7)))
    worker.feed(MarkerItem(marker_at(7)))
    await eventually(lambda: bool(port.told), "an acknowledgement")
    worker.end(Ending.REVOKED)
    await task
    return port


def figures(told: CountsReport) -> tuple[int, int]:
    """Processed and set aside."""
    return sum(one.updates for one in told.windows.values()), sum(one.aside for one in told.windows.values())


def rolled_back(told: CountsReport) -> int:
    """Processed or set aside, and to come again."""
    return sum(one.rolled_back for one in told.windows.values())


@pytest.mark.parametrize(("kind", "concurrency"), [(Heard, 1), (Heard, 3), (Together, 1), (Threaded, 1)])
async def test_what_was_called_is_reported_and_the_life_goes_on(kind: type[Subscriber], concurrency: int) -> None:
    counts = Counts()
    life = counts.life
    port = await told_by(kind(), counts, concurrency=concurrency)
    assert [figures(told) for told in port.told] == [(6, 0)]
    assert port.lives == [life] == [port.told[0].life]
    assert port.released == port.told[0]
    assert (counts.life, rolled_back(port.told[0])) == (life, 0)


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_datamarker_whose_ack_is_not_sent_is_not_the_last_one(is_over: bool) -> None:
    port = await told_by(Heard(), Counts(), is_over=is_over)
    assert port.last == (None if is_over else marker_at(7))


async def test_callbacks_that_run_again_after_a_failure_are_counted_again() -> None:
    heard = Heard(at=4)
    port = await told_by(heard, Counts())
    assert figures(port.told[0]) == (heard.calls, 0) == (10, 0)
    assert rolled_back(port.told[0]) == 4
    assert [figures(told) for told in port.progressed] == [(4, 0), (10, 0)], "the failure is told before the second try"


async def test_side_by_side_too() -> None:
    heard = Heard(at=5)
    port = await told_by(heard, Counts(), concurrency=2)
    assert figures(port.told[0]) == (heard.calls, 0)
    assert rolled_back(port.told[0]) == heard.calls - 6


async def test_what_is_passed_over_is_counted_apart_with_its_hash() -> None:
    port = await told_by(Heard(), Counts(), "test:7:2")
    assert figures(port.told[0]) == (5, 1)
    (one,) = port.told[0].windows.values()
    assert one.aside_hash == update_hash("test", 7, 2)


async def test_callbacks_before_a_revocation_are_reported_with_the_release() -> None:
    class Slow(Subscriber):
        def __init__(self) -> None:
            self.calls = 0
            self.reached = asyncio.Event()
            self.go = asyncio.Event()

        async def on_update(self, update: Update) -> None:
            self.calls += 1
            if self.calls == 3:
                self.reached.set()
                await self.go.wait()

    slow, port = Slow(), Port()
    worker = new_worker(slow, port, Counts())
    task = worker.start()
    worker.feed(BatchItem(1, False, body_of(CHANGES, number=7)))
    await slow.reached.wait()
    worker.end(Ending.REVOKED)
    slow.go.set()
    await task
    assert slow.calls == 3
    assert port.released is not None
    assert figures(port.released) == (3, 0)


async def test_an_update_that_was_not_called_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    each = Callbacks._each

    async def without_one(calls: Callbacks, updates: list[Update]) -> bool:
        return await each(calls, updates[1:])

    monkeypatch.setattr(Callbacks, "_each", without_one)  # a fault of the SDK: what it returns is not what it called
    port = await told_by(Heard(), Counts())
    assert figures(port.told[0]) == (5, 0)


# --- tracing: A span for the callbacks of each batch and attempt; a handler's own spans lie within it ---


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
