"""The queue of frames to be sent on one stream. Of each flow only the newest progress and the newest acknowledgement
wait. They are sent before the flow's next frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from subscriber_sdk.stream.counts import Counts, CountsReport
from subscriber_sdk.stream.flow import SubscriberFlow
from wormhole.audit.window_counts import ProcessedCount, processed_to_messages
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

__all__ = ["Outbox"]

_MESSAGE: Final = 2 << 20
_FRAMES: Final = 4096  # the most frames in one message; publishers accept 65,536
_WINDOWS: Final = 1000  # the most windows whose counts one frame reports; publishers accept 4096


@dataclass(slots=True)
class _Pending:
    """The pending report of one flow: the last processed batch, and the last acknowledged marker with its counts."""

    flow: SubscriberFlow
    progressed: int | None = None
    marker: Datamarker | None = None
    life: int = 0
    windows: dict[int, ProcessedCount] = field(default_factory=dict)


class Outbox:
    """See the module."""

    def __init__(self) -> None:
        self._frames: list[push_pb2.SubscriberFrame] = []
        self._pending: dict[int, _Pending] = {}  # by flow number, in the order in which they began to wait

    def __len__(self) -> int:
        """The number of waiting frames, without pending answers."""
        return len(self._frames)

    def add(self, **kind: Any) -> None:
        """Add a frame of this kind."""
        self._frames.append(push_pb2.SubscriberFrame(**kind))

    def begin(self, flow: SubscriberFlow, counts: Counts) -> CountsReport:
        """Begin to report ``counts`` of a flow that is accepted. Returns the counts from before this epoch."""
        counts.forget()  # so that the counts fit into one frame
        flow.counts = counts
        return flow.new_counts()

    def progress(self, flow: SubscriberFlow) -> None:
        """Queue a report that batches up to ``flow.progressed`` are processed, or that the counts changed."""
        self._of(flow).progressed = flow.progressed

    def ack(self, flow: SubscriberFlow, marker: Datamarker) -> None:
        """The marker is acknowledged."""
        pending, report = self._of(flow), flow.new_counts()
        pending.life = report.life
        pending.windows.update(report.windows)
        pending.marker = marker

    def report(self, flow: SubscriberFlow, report: push_pb2.HandlerReport) -> None:
        """Report on the flow's callbacks. Nothing is sent if nothing changed."""
        if flow.reported != report:
            flow.reported = report
            self.add(report=push_pb2.Report(flow=flow.number, epoch=flow.epoch, handler=report))

    def last(self, flow: SubscriberFlow) -> tuple[int, list[push_pb2.Processed]]:
        """The life and the counts for the flow's last frame, which is sent after all waiting frames."""
        self._send(flow.number)
        report = flow.new_counts()
        return report.life, self._fitting(flow, report.windows)

    def end(self, flow: SubscriberFlow) -> None:
        """Queue the flow's pending answers and all its counts before the next frame, because no callback of the flow
        runs any more."""
        if flow.counts.life:
            self.progress(flow)
        self._send(flow.number)

    def forget(self, number: int) -> None:
        """Send nothing more for the flow."""
        self._pending.pop(number, None)

    def flush(self) -> None:
        """Queue the pending answers of all flows before the next frame."""
        for number in list(self._pending):
            self._send(number)

    def take(self) -> bytes | None:
        """The waiting frames as one message, at most 4096 frames; ``None`` if no frame waits."""
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

    def _of(self, flow: SubscriberFlow) -> _Pending:
        return self._pending.setdefault(flow.number, _Pending(flow))

    def _send(self, number: int) -> None:
        """Queue the pending answers of one flow. Counts are sent in the order in which they were made."""
        pending = self._pending.pop(number, None)
        if pending is None:
            return
        flow = pending.flow
        if pending.marker is not None:
            processed, marker = self._fitting(flow, pending.windows), marker_to_message(pending.marker)
            self.add(
                ack=push_pb2.Ack(flow=number, epoch=flow.epoch, marker=marker, life=pending.life, processed=processed)
            )
        if pending.progressed is not None:
            processed = self._fitting(flow, flow.new_counts().windows)
            flow.unsaid = 0
            self.add(
                progress=push_pb2.Progress(
                    flow=number, epoch=flow.epoch, number=pending.progressed, processed=processed
                )
            )

    def _fitting(self, flow: SubscriberFlow, windows: Mapping[int, ProcessedCount]) -> list[push_pb2.Processed]:
        """The counts for the flow's next frame. Counts beyond the limit of one frame are sent before it."""
        processed = processed_to_messages(windows)
        while len(processed) > _WINDOWS:
            self.add(progress=push_pb2.Progress(flow=flow.number, epoch=flow.epoch, processed=processed[:_WINDOWS]))
            del processed[:_WINDOWS]
        return processed
