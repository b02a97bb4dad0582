"""One epoch of a flow on its stream. Checks the publisher's frames, and returns reports of counts. Pure.

The grammar of an epoch, publisher's frames only::

    flow   = Assign [ opened ] [ Revoke ]          opened only after our Accepted
    opened = { batch | Datamarker | DataLoss | ShardNotice | ChunkEnd | ScanEnd }
    batch  = Batch | Part{index 0} ... Part{last}   numbered 1, 2, 3 ...; no other frame of the flow between its parts
    ChunkEnd and ScanEnd come at the end of a transaction
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from subscriber_sdk.stream.counts import NO_COUNTS, CountsReport
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker
from wormhole.wire.v1 import push_pb2

__all__ = ["SubscriberFlow", "SubscriberFlowPhase"]

_LEAST_BODY: Final = 64  # bytes; a body with one update has more
_LEAST_IN_FLIGHT: Final = 1024
_OWED: Final = 4  # credit is owed once a quarter of it was processed and not yet reported


class SubscriberFlowPhase(Enum):
    """The state of an epoch of a flow."""

    ASSIGNED = "assigned"
    """Assign arrived. The publisher may not send anything before our Accepted."""
    OPEN = "open"
    FAILED = "failed"
    """We sent Failed. Frames are dropped until the publisher revokes the flow, or assigns it again."""
    REVOKED = "revoked"
    """Revoke arrived. Our Released was not sent."""


class SubscriberFlow:
    """One epoch of one flow. Methods that take a frame raise :class:`~wormhole.model.errors.ProtocolError`, which names
    the field.

    ``max_body_bytes``: the largest batch body that is accepted, whatever the credit.
    """

    __slots__ = (
        "_counts_at",
        "_kept",
        "_last",
        "_max_body",
        "_parts",
        "_parts_index",
        "_parts_total",
        "_sizes",
        "_unfinished",
        "counts",
        "credit",
        "deciding",
        "epoch",
        "excess_charged",
        "generation",
        "in_flight",
        "kept",
        "number",
        "phase",
        "progressed",
        "reported",
        "shard",
        "unsaid",
    )

    def __init__(self, number: int, epoch: int, shard: str, max_body_bytes: int, generation: int = 0) -> None:
        self.number = number
        self.epoch = epoch
        self.shard = shard
        self.generation = generation
        """The generation of the flow's last backfill; 0: no backfill was requested."""
        self.phase = SubscriberFlowPhase.ASSIGNED
        self.credit = 0
        self._max_body = max_body_bytes
        self._last = 0  # number of the newest batch that began
        self._unfinished = False  # whether the last transaction of the newest batch continues in the next batch
        self.in_flight = 0
        """Bytes of bodies that arrived and are not yet reported as progress."""
        self.progressed = 0
        """The number of the last batch that was reported as progress."""
        self.unsaid = 0
        """Bytes of processed batches whose progress was not sent to the publisher yet."""
        self._sizes: deque[tuple[int, int]] = deque()  # (number, bytes) not yet reported as progress
        self._parts: bytearray | None = None
        self._parts_index = 0
        self._parts_total = 0
        self._kept: deque[tuple[Datamarker | None, int]] = deque()
        self.kept = 0
        """Bytes that :meth:`keep` counted and :meth:`acknowledged` did not give back."""
        self.deciding = False
        """Whether the publisher reported a data loss, and the application has not decided about it yet."""
        self.excess_charged = 0
        """Bytes above the credit that are charged to the stream's account."""
        self.counts = NO_COUNTS
        """The delivery counts of the shard, which every answer reports once the flow is accepted."""
        self._counts_at = 0  # ``CountsReport.at`` of the last report in this epoch
        self.reported: push_pb2.HandlerReport | None = None
        """The last report about the flow's callbacks."""

    @property
    def owes_credit(self) -> bool:
        """Whether the publisher lacks so much credit for processed updates that it may have to wait."""
        return _OWED * self.unsaid >= self.credit

    @property
    def excess(self) -> int:
        """Bytes by which the last batch is larger than the credit. Such a batch is sent alone."""
        return max(0, self.in_flight - self.credit) if self.credit else 0

    def batch(self, frame: push_pb2.Batch) -> bytes:
        """Check a whole batch, and return its body."""
        self.between("batch")
        body = frame.body
        self._begin("batch", frame.number, len(body), "body")
        self._unfinished = frame.unfinished
        return body

    def part(self, frame: push_pb2.Part) -> bytes | None:
        """Check a part of a batch. Returns the whole body after the last part, ``None`` before."""
        self._opened("part")
        if self._parts is None:
            if frame.index:
                raise self._broken("part", "index", f"{frame.index} begins a batch; 0 was due")
            self._begin("part", frame.number, frame.total_bytes, "total_bytes")
            self._parts = bytearray()
            self._parts_index = 0
            self._parts_total = frame.total_bytes
        elif frame.number != self._last:
            raise self._broken("part", "number", f"{frame.number} comes amid the parts of batch {self._last}")
        elif frame.index != self._parts_index:
            raise self._broken("part", "index", f"{frame.index} came where {self._parts_index} was due")
        elif frame.total_bytes != self._parts_total:
            raise self._broken(
                "part", "total_bytes", f"{frame.total_bytes} here, {self._parts_total} in the first part"
            )
        if not frame.data:
            raise self._broken("part", "data", "empty")
        self._parts += frame.data
        self._parts_index += 1
        got = len(self._parts)
        if got > self._parts_total or (frame.last and got != self._parts_total):
            raise self._broken("part", "data", f"{got} bytes so far, total_bytes is {self._parts_total}")
        if not frame.last:
            return None
        body, self._parts = bytes(self._parts), None
        self._unfinished = frame.unfinished
        return body

    def between(self, kind: str) -> None:
        """Check a frame of ``kind``, which may come only between batches."""
        self._opened(kind)
        if self._parts is not None:
            raise self._broken(kind, "flow", f"came amid the parts of batch {self._last}")

    def between_transactions(self, kind: str) -> None:
        """Check a frame of a backfill, which may come only between batches and between transactions."""
        self.between(kind)
        if not self.generation:
            raise self._broken(kind, "flow", "came to a flow that was assigned without a generation")
        if self._unfinished:
            raise self._broken(kind, "flow", f"came amid a transaction, which goes on behind batch {self._last}")

    def keep(self, size: int, marker: Datamarker | None = None) -> None:
        """Count ``size`` bytes of a frame that is kept until a datamarker is acknowledged: the frame's own ``marker``,
        or else the next one."""
        self._kept.append((marker, size))
        self.kept += size

    def acknowledged(self, marker: Datamarker) -> int:
        """Stop counting frames up to ``marker``, which are no longer kept. Returns their bytes."""
        kept, before = self._kept, self.kept
        upto = 0
        for i, (waiting, _) in enumerate(kept, 1):
            if waiting is not None:
                if waiting.order > marker.order:
                    break
                upto = i
                if waiting == marker:
                    break  # a later marker may have the same place, with more rows of a backfill before it
        for _ in range(upto):
            self.kept -= kept.popleft()[1]
        return before - self.kept

    def progress(self, number: int) -> None:
        """Report progress up to batch ``number``: the bytes of these batches no longer count."""
        self.progressed = number
        sizes = self._sizes
        while sizes and sizes[0][0] <= number:
            size = sizes.popleft()[1]
            self.in_flight -= size
            self.unsaid += size

    def new_counts(self) -> CountsReport:
        """The counts since :meth:`new_counts` was called last in this epoch."""
        report = self.counts.report(self._counts_at)
        self._counts_at = report.at
        return report

    def close(self, phase: SubscriberFlowPhase) -> None:
        """Accept no further data, and drop an incomplete batch."""
        self.phase = phase
        self._parts = None

    def _begin(self, kind: str, number: int, size: int, field: str) -> None:
        if number != self._last + 1:
            raise self._broken(kind, "number", f"{number} came where {self._last + 1} was due")
        if not size:
            raise self._broken(kind, field, "empty")
        if size > self._max_body:
            raise self._broken(kind, field, f"{size} bytes; at most {self._max_body} are taken")
        if self.in_flight and self.in_flight + size > self.credit:
            raise self._broken(
                kind, field, f"{size} bytes with {self.in_flight} in flight go over the credit of {self.credit}"
            )
        if len(self._sizes) >= max(_LEAST_IN_FLIGHT, self.credit // _LEAST_BODY):
            raise self._broken(kind, "number", f"{len(self._sizes)} batches are in flight, with {self.in_flight} bytes")
        self._last = number
        self.in_flight += size
        self._sizes.append((number, size))

    def _opened(self, kind: str) -> None:
        if self.phase is SubscriberFlowPhase.ASSIGNED:
            raise self._broken(kind, "flow", "came before Accepted was sent")

    def _broken(self, kind: str, field: str, what: str) -> ProtocolError:
        return ProtocolError(f"{kind}.{field} of flow {self.number} epoch {self.epoch}: {what}", shard=self.shard)
