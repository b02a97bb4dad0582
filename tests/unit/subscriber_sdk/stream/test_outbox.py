"""What streams hold: frames on their way out, and a budget for all of them."""

from __future__ import annotations

import pytest

from subscriber_sdk.stream.budget import Account, Budget
from subscriber_sdk.stream.counts import Counts
from subscriber_sdk.stream.flow import SubscriberFlow
from subscriber_sdk.stream.outbox import Outbox
from subscriber_sdk.testing import marker_at
from wormhole.model.errors import ProtocolError
from wormhole.wire.v1 import push_pb2

# --- outbox ---


def flow(number: int = 1, progressed: int = 0) -> SubscriberFlow:
    made = SubscriberFlow(number, 7, "shop", 1 << 20)
    made.progressed = progressed
    return made


def sent(outbox: Outbox) -> list[push_pb2.SubscriberFrame]:
    data = outbox.take()
    return [] if data is None else list(push_pb2.SubscriberMessage.FromString(data).frames)


def test_only_the_newest_of_a_flow_goes_out_and_acknowledgements_go_first() -> None:
    outbox, first, second = Outbox(), flow(1), flow(2)
    for number in (1, 2, 3):
        first.progressed = number
        outbox.progress(first)
        outbox.ack(first, marker_at(number))
    outbox.progress(second)
    frames = sent(outbox)
    assert [frame.WhichOneof("kind") for frame in frames] == ["ack", "progress", "progress"]
    assert (frames[0].ack.marker.order.file, frames[1].progress.number) == (marker_at(3).order.file, 3)
    assert sent(outbox) == []


def test_joined_answers_go_before_a_frame_that_ends_the_flow() -> None:
    outbox, one, counts = Outbox(), flow(progressed=2), Counts()
    outbox.begin(one, counts)
    counts.processed({60: 5})
    outbox.progress(one)
    counts.processed({60: 5, 120: 1})
    outbox.end(one)
    outbox.add(failed=push_pb2.Failed(flow=1, epoch=7))
    progress, failed = sent(outbox)
    assert {one.window: one.updates for one in progress.progress.processed} == {60: 10, 120: 1}
    assert failed.WhichOneof("kind") == "failed"


def test_a_flow_that_is_forgotten_says_nothing() -> None:
    outbox, one = Outbox(), flow()
    outbox.progress(one)
    outbox.forget(one.number)
    assert outbox.take() is None


def test_a_report_is_said_once() -> None:
    outbox, one = Outbox(), flow()
    report = push_pb2.HandlerReport(failures=1)
    outbox.report(one, report)
    outbox.report(one, report)
    assert [frame.WhichOneof("kind") for frame in sent(outbox)] == ["report"]


def test_a_long_message_is_cut_and_counts_go_in_several_frames() -> None:
    outbox, one, counts = Outbox(), flow(), Counts()
    outbox.begin(one, counts)
    counts.processed({60 * window: 1 for window in range(1001)})
    outbox.progress(one)
    frames = sent(outbox)
    assert [len(frame.progress.processed) for frame in frames] == [1000, 1]
    for number in range(5000):
        outbox.add(heartbeat=push_pb2.Heartbeat(number=number))
    assert len(outbox) == 5000
    assert [len(sent(outbox)) for _ in range(3)] == [4096, 904, 0]


# --- budget: whoever holds the most loses its stream; nobody else does ---


class Streams:
    def __init__(self, limit: int) -> None:
        self.budget = Budget(limit, "flows", "raise `max_state`")
        self.ended: list[str] = []

    def open(self, name: str, owner: str = "") -> Account:
        return self.budget.open(owner or name, lambda error: self.ended.append(f"{name}: {error.message}"))


@pytest.fixture
def streams() -> Streams:
    return Streams(100)


def test_what_fits_costs_nobody_anything(streams: Streams) -> None:
    one, two = streams.open("one"), streams.open("two")
    one.charge(60, "a flow")
    two.charge(40, "a flow")
    one.release(60)
    two.charge(60, "a flow")
    assert (streams.budget.used, streams.ended) == (100, [])
    two.close()
    two.close()
    two.release(5)  # what ends later was counted out already
    assert streams.budget.used == 0
    assert "0 of 100 bytes in 1 accounts" in repr(streams.budget)


def test_who_exceeds_it_is_reported_and_holds_nothing_then(streams: Streams) -> None:
    small, large = streams.open("small"), streams.open("large")
    small.charge(30, "a flow")
    large.charge(70, "a flow")
    with pytest.raises(ProtocolError, match=r"schema 7 .* 71 bytes .* 100.*\[protocol-broken\]") as caught:
        large.charge(1, "schema 7")
    assert "max_state" in str(caught.value.hint)
    assert (streams.budget.used, streams.ended) == (100, [])
    large.close()
    large.charge(1000, "a late frame")  # its stream is over
    assert streams.budget.used == 30


def test_room_for_a_small_one_comes_from_the_largest(streams: Streams) -> None:
    small, large = streams.open("small"), streams.open("large")
    large.charge(90, "a flow")
    small.charge(20, "shard s")
    assert streams.budget.used == 20
    assert [ended.partition(" does not fit")[0] for ended in streams.ended] == ["large: shard s"]


def test_many_streams_of_one_publisher_count_together(streams: Streams) -> None:
    honest = streams.open("honest")
    honest.charge(40, "a flow")
    for i in range(5):
        streams.open(f"thief {i}", "thief").charge(10 + i, "a flow")
    honest.charge(10, "a flow")
    assert honest.held == 50
    assert {ended.partition(":")[0] for ended in streams.ended} <= {f"thief {i}" for i in range(5)}
