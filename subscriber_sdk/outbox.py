"""What waits to be sent on one stream: frames in their order, and of each flow the newest progress and acknowledgement,
joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from subscriber_sdk.counts import NOTHING_TOLD, Counts, Told
from subscriber_sdk.inflow import InFlow
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

__all__ = ["Outbox", "processed_of"]

_MESSAGE: Final = 2 << 20
_FRAMES: Final = 4096  # of one message; publishers take 65,536
_WINDOWS: Final = 1000  # whose counts one frame reports; publishers take 4096


@dataclass(slots=True)
class _Joined:
    """Of one flow: the last batch that was processed, the last marker that was acknowledged with what it tells of each
    window.
    """

    flow: InFlow
    progressed: int | None = None
    marker: Datamarker | None = None
    told: Told = NOTHING_TOLD


class Outbox:
    """See the module. A flow is known from :meth:`begin` to :meth:`forget`."""

    def __init__(self) -> None:
        self._frames: list[push_pb2.SubscriberFrame] = []
        self._joined: dict[int, _Joined] = {}
        self._counts: dict[int, Counts] = {}
        self._told_at: dict[int, int] = {}  # of the counts, how far they were told in this epoch
        self._reports: dict[int, push_pb2.HandlerReport] = {}

    def __len__(self) -> int:
        """Frames that wait, without the joined ones."""
        return len(self._frames)

    def add(self, **kind: Any) -> None:
        """A frame of this kind."""
        self._frames.append(push_pb2.SubscriberFrame(**kind))

    def begin(self, flow: InFlow, counts: Counts | None) -> Told:
        """The flow is accepted; ``counts``: what is told of from here on. Returns what is from before."""
        if counts is not None:
            counts.forget()  # what is from before goes in one frame
            self._counts[flow.number] = counts
        return self._tell(flow)

    def progress(self, flow: InFlow) -> None:
        """Batches up to ``flow.progressed`` are processed, or what was counted changed."""
        self._join(flow).progressed = flow.progressed

    def ack(self, flow: InFlow, marker: Datamarker) -> None:
        """The marker is acknowledged."""
        joined, told = self._join(flow), self._tell(flow)
        joined.told = told if joined.marker is None else Told(told.life, {**joined.told.windows, **told.windows})
        joined.marker = marker

    def report(self, flow: InFlow, report: push_pb2.HandlerReport) -> None:
        """How the flow's callbacks do; nothing is said when it is what was said last."""
        if self._reports.get(flow.number) != report:
            self._reports[flow.number] = report
            self.add(report=push_pb2.Report(flow=flow.number, epoch=flow.epoch, handler=report))

    def last(self, flow: InFlow) -> tuple[int, list[push_pb2.Processed]]:
        """What the flow's last frame tells of counts (the life they are of, and the counts), behind what waits."""
        self._send(flow.number)
        told = self._tell(flow)
        return told.life, self._rest(flow, told)

    def end(self, flow: InFlow) -> None:
        """Nothing of the flow runs any more: what waits, and all that was counted, goes before the next frame."""
        if flow.number in self._counts:
            self.progress(flow)
        self._send(flow.number)

    def forget(self, number: int) -> None:
        """Nothing more is said about the flow."""
        self._joined.pop(number, None)
        self._counts.pop(number, None)
        self._told_at.pop(number, None)
        self._reports.pop(number, None)

    def flush(self) -> None:
        """What is joined goes before the next frame."""
        for number in list(self._joined):
            self._send(number)

    def take(self) -> bytes | None:
        """What waits as one message (a very long one is cut), ``None`` when nothing does."""
        self.flush()
        if not self._frames:
            return None
        count = size = 0
        for frame in self._frames:
            size += frame.ByteSize()
            if count and (size > _MESSAGE or count == _FRAMES):
                break
            count += 1
        data = push_pb2.SubscriberMessage(frames=self._frames[:count]).SerializeToString()
        del self._frames[:count]
        return data

    def _join(self, flow: InFlow) -> _Joined:
        return self._joined.setdefault(flow.number, _Joined(flow))

    def _send(self, number: int) -> None:
        """Joined answers of one flow; what they tell of counts in the order in which that was so."""
        joined = self._joined.pop(number, None)
        if joined is None:
            return
        flow = joined.flow
        if joined.marker is not None:
            ack = push_pb2.Ack(
                flow=number,
                epoch=flow.epoch,
                marker=marker_to_message(joined.marker),
                life=joined.told.life,
                processed=self._rest(flow, joined.told),
            )
            self.add(ack=ack)
        if joined.progressed is not None:
            processed = self._rest(flow, self._tell(flow))
            self.add(
                progress=push_pb2.Progress(flow=number, epoch=flow.epoch, number=joined.progressed, processed=processed)
            )

    def _rest(self, flow: InFlow, told: Told) -> list[push_pb2.Processed]:
        """What the next frame of the flow tells of counts; what is more than one frame may carry goes before it."""
        processed = processed_of(told)
        while len(processed) > _WINDOWS:
            self.add(progress=push_pb2.Progress(flow=flow.number, epoch=flow.epoch, processed=processed[:_WINDOWS]))
            del processed[:_WINDOWS]
        return processed

    def _tell(self, flow: InFlow) -> Told:
        """What was counted since it was told last in this epoch."""
        counts = self._counts.get(flow.number)
        if counts is None:
            return NOTHING_TOLD
        told = counts.tell(self._told_at.get(flow.number, 0))
        self._told_at[flow.number] = told.at
        return told


def processed_of(told: Told) -> list[push_pb2.Processed]:
    """As the protocol has it."""
    return [
        push_pb2.Processed(
            window=window,
            updates=one.updates,
            set_aside=one.aside,
            set_aside_hash=one.aside_hash,
            in_vain=one.in_vain,
        )
        for window, one in told.windows.items()
    ]
