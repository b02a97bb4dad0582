"""The grammar of one epoch of a flow: numbers, credit, parts."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk.stream.flow import SubscriberFlow, SubscriberFlowPhase
from subscriber_sdk.testing import frames
from wormhole.model.errors import ProtocolError
from wormhole.wire.v1 import push_pb2


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
