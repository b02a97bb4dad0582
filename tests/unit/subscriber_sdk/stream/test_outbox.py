from __future__ import annotations

from subscriber_sdk.stream.counts import Counts
from subscriber_sdk.stream.flow import SubscriberFlow
from subscriber_sdk.stream.outbox import Outbox
from subscriber_sdk.testing import marker_at
from wormhole.wire.v1 import push_pb2


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
