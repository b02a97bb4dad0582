"""One epoch of a flow: its grammar, the port's promise, and what is counted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.stream.counts import MOST_WINDOWS, Counts, windows_in
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow import SubscriberFlow, SubscriberFlowPhase
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.testing import ScriptedPublisher, frames, marker_at
from subscriber_sdk.work.shards import Shards
from tests.support.flows import Idle
from tests.support.letters import letter
from tests.unit.wormhole.wire.test_tally import ROW, SCHEMA, US
from wormhole.audit.delivery_counts import KEPT_LIVES
from wormhole.audit.window_counts import ProcessedCount
from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.v1 import push_pb2

# --- flow: the grammar of one epoch of a flow: numbers, credit, parts ---


def opened(credit: int = 100, max_body: int = 1000) -> SubscriberFlow:
    flow = SubscriberFlow(1, 1, "s", max_body)
    flow.phase, flow.credit = SubscriberFlowPhase.OPEN, credit
    return flow


def batch(number: int, size: int = 10) -> push_pb2.Batch:
    return frames.batch(1, 1, number, bytes(size)).batch


def parts(number: int, body: bytes, size: int) -> list[push_pb2.Part]:
    return [frame.part for frame in frames.parts(1, 1, number, body, size)]


@pytest.fixture
def flow() -> SubscriberFlow:
    return opened()


@pytest.mark.parametrize(
    ("before", "wrong", "why"),
    [
        ([1, 2], batch(4), r"batch.number of flow 1 epoch 1: 4 came where 3 was due"),
        ([], batch(0), r"batch\.number"),
        ([1], batch(1), r"batch\.number"),
        ([], batch(1, 0), "batch.body .*empty"),
    ],
    ids=["a hole", "from one on", "again", "empty"],
)
def test_batches_are_numbered_without_a_hole(
    flow: SubscriberFlow, before: list[int], wrong: push_pb2.Batch, why: str
) -> None:
    for number in before:
        assert flow.batch(batch(number)) == bytes(10)
    with pytest.raises(ProtocolError, match=why):
        flow.batch(wrong)


def test_nothing_may_come_before_accepted() -> None:
    with pytest.raises(ProtocolError, match="before Accepted"):
        SubscriberFlow(1, 1, "s", 10).batch(batch(1))


def test_credit_counts_bytes_until_progress() -> None:
    flow = opened(credit=25)
    flow.batch(batch(1))
    flow.batch(batch(2))
    assert flow.in_flight == 20
    flow.progress(1)
    assert flow.in_flight == 10
    flow.batch(batch(3))
    with pytest.raises(ProtocolError, match=r"go over the credit of 25"):
        flow.batch(batch(4))


def test_one_body_of_any_size_may_come_when_nothing_is_in_flight() -> None:
    flow = opened(credit=5, max_body=50)
    flow.batch(batch(1, 50))
    flow.progress(1)
    with pytest.raises(ProtocolError, match="at most 50"):
        flow.batch(batch(2, 51))


@given(st.binary(min_size=1, max_size=60), st.integers(1, 20))
def test_parts_joined_are_the_body(body: bytes, size: int) -> None:
    flow = opened()
    results = [flow.part(part) for part in parts(1, body, size)]
    assert results[:-1] == [None] * (len(results) - 1)
    assert results[-1] == body
    assert flow.in_flight == len(body)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"index": 2}, "part.index"),
        ({"index": 0}, "part.index"),
        ({"number": 2}, "part.number"),
        ({"total_bytes": 31}, "part.total_bytes"),
        ({"data": b""}, "part.data"),
        ({"data": bytes(25)}, "part.data"),
        ({"last": True}, "part.data"),
    ],
)
def test_a_part_that_does_not_fit_is_named(flow: SubscriberFlow, change: dict[str, object], named: str) -> None:
    first, second, _ = parts(1, bytes(30), 10)
    flow.part(first)
    for field, value in change.items():
        setattr(second, field, value)
    with pytest.raises(ProtocolError, match=named):
        flow.part(second)


def test_a_batch_does_not_begin_in_its_middle() -> None:
    with pytest.raises(ProtocolError, match=r"part\.index"):
        opened().part(parts(1, bytes(30), 10)[1])


def test_parts_are_refused_by_their_announced_size_before_they_fill_memory() -> None:
    first = parts(1, bytes(30), 10)[0]
    first.total_bytes = 1 << 40
    with pytest.raises(ProtocolError, match=r"part.total_bytes"):
        opened().part(first)


@pytest.mark.parametrize("kind", ["datamarker", "notice", "data_loss"])
def test_nothing_comes_between_the_parts_of_a_batch(flow: SubscriberFlow, kind: str) -> None:
    flow.part(parts(1, bytes(30), 10)[0])
    with pytest.raises(ProtocolError, match=rf"{kind}.flow .*amid the parts"):
        flow.between(kind)
    with pytest.raises(ProtocolError, match="amid the parts"):
        flow.batch(batch(2))


def test_closing_forgets_a_half_received_batch(flow: SubscriberFlow) -> None:
    flow.part(parts(1, bytes(30), 10)[0])
    flow.close(SubscriberFlowPhase.FAILED)
    assert flow.phase is SubscriberFlowPhase.FAILED


# --- flow port ---


ANSWERS: dict[str, Callable[[FlowPort], object]] = {
    "accept": lambda port: port.accept(1000, None, Counts(), 0),
    "progress": lambda port: port.progress(1),
    "ack": lambda port: port.ack(marker_at(1)),
    "release": lambda port: port.release(None),
    "fail": lambda port: port.fail(push_pb2.Failed.HANDLER, "", "no"),
    "park": lambda port: port.park("a:1", letter(5)[1], letter(5)[0].place, ""),
    "verified": lambda port: port.verified(push_pb2.Verified(table="users")),
    "decide_loss": lambda port: port.decide_loss(proceed=True),
    "refuse": lambda port: port.refuse(ProtocolError("no")),
}


class Kept(Shards):
    """Takes no flow: the test answers in its place."""

    port: FlowPort

    def assign(self, port: FlowPort, assigned: Assigned) -> None:
        self.port = port


def test_every_method_is_asked() -> None:
    methods = {name for name, value in vars(FlowPort).items() if inspect.isfunction(value) and name[0] != "_"}
    assert methods == {*ANSWERS, "schema", "hold"}


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_nothing_is_said_of_a_flow_that_is_not_the_streams_any_more(name: str, gone: bool) -> None:
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Kept(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"), frames.assign(1, 1, "app", "s", marker_at(0)))
    port: Any = shards.port
    if name == "progress":
        port.accept(1000, None, Counts(), 0)
    if gone:
        publisher.send(frames.assign(1, 2, "app", "s", marker_at(0)))
    publisher.received.clear()
    ANSWERS[name](port)
    assert bool(publisher.received) != gone


# --- counts: what the SDK tells of what it processed ---


def body(*transactions: tuple[int, int], cut: bool = False) -> ParsedBody:
    """A body of transactions, each (commit time, updates); ``cut``: the last one goes on in the next body."""
    builder = RunsBuilder()
    for number, (at, updates) in enumerate(transactions):
        builder.begin("s", number, at, LogPosition(1, 2, number))
        for _ in range(updates):
            builder.add(["x"], SCHEMA, ROW)
        if not cut or number < len(transactions) - 1:
            builder.end(LogPosition(1, 2, number + 1))
    built = build_body(builder.take()["x"], 1)
    assert built is not None
    return parse_body(built.data)


def test_updates_are_counted_by_window() -> None:
    assert windows_in(body((5, 2), (9, 1))) == {0: 3}
    several = body((US, 2), (5, 1), (US + 1, 3), cut=True)
    assert windows_in(several) == {1: 5, 0: 1}
    assert [windows_in(several, n) for n in range(5)] == [{}, {1: 1}, {1: 2}, {1: 2, 0: 1}, {1: 3, 0: 1}]


@pytest.fixture
def counts() -> Counts:
    return Counts()


def test_counts_go_up_and_only_what_changed_is_reported(counts: Counts) -> None:
    counts.processed({3: 5, 4: 1})
    first = counts.report()
    assert (first.life, first.windows) == (counts.life, {3: ProcessedCount(5), 4: ProcessedCount(1)})
    assert counts.report(first.at).windows == {}
    counts.processed({4: 2})
    counts.set_aside(4, 2**64 - 1)
    counts.set_aside(4, 3)
    assert counts.report(first.at).windows == {4: ProcessedCount(1, 2, 2)}
    assert counts.report().windows == {3: ProcessedCount(5), 4: ProcessedCount(1, 2, 2)}


def test_what_is_rolled_back_is_in_vain_and_what_is_acknowledged_is_not(counts: Counts) -> None:
    counts.begin(1)
    counts.processed({3: 5})
    counts.acknowledged()
    counts.processed({3: 2, 4: 1})
    counts.set_aside(4, 7)
    counts.rolled_back()
    counts.rolled_back()
    assert counts.report().windows == {3: ProcessedCount(7, 0, 0, 2), 4: ProcessedCount(0, 1, 7, 1)}
    counts.processed({3: 2})
    counts.acknowledged()
    counts.rolled_back()
    assert counts.report().windows[3] == ProcessedCount(9, 0, 0, 2)


def test_another_epoch_goes_on_in_the_same_life_and_what_the_one_before_left_is_in_vain(counts: Counts) -> None:
    life = counts.life
    for epoch in (1, 3):
        counts.assigned(epoch)
        counts.begin(epoch)
        counts.processed({3: 5})
    counts.assigned(4)
    counts.begin(4)
    assert (counts.life, counts.epochs, counts.report().windows) == (life, (1, 3, 4), {3: ProcessedCount(10, 0, 0, 10)})


def test_after_more_epochs_than_publishers_remember_another_life_begins(counts: Counts) -> None:
    counts.begin(1)
    counts.processed({3: 5})
    life = counts.life
    counts.begin(1 + KEPT_LIVES)
    assert (counts.life, bool(counts.report().windows)) == (life, True)
    counts.begin(2 + 2 * KEPT_LIVES)
    assert 0 != counts.life != life
    assert (counts.epochs, counts.report().windows) == ((2 + 2 * KEPT_LIVES,), {})


def test_windows_are_bounded_and_the_earliest_go_but_for_what_has_no_time(counts: Counts) -> None:
    counts.processed(dict.fromkeys(range(MOST_WINDOWS + 5), 1))
    assert len(counts.report().windows) == MOST_WINDOWS + 5  # told once before they are forgotten
    assert sorted(counts.report().windows) == [0, *range(6, MOST_WINDOWS + 5)]
    again = Counts()
    again.processed(dict.fromkeys(range(MOST_WINDOWS + 5), 1))
    again.forget()
    assert len(again.report().windows) == MOST_WINDOWS, "with a new epoch no more is reported than is remembered"
