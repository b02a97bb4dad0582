"""The holder of a flow: its epoch, its subscriber, and the subscriber's progress."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from publisher.push.epoch_conflict import EpochConflict
from publisher.push.spacing import Spacing
from wormhole.ports.marker_store import ReplayControl
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowHolding"]


@dataclass(slots=True, eq=False)
class FlowHolding:
    """Times are seconds of the monotonic clock. Other modules read the attributes and call the methods."""

    epoch: int = 0
    """The epoch of the last assignment. Each assignment raises it first."""
    subscriber: str | None = None
    """Id of the subscriber that has the flow or had it last."""
    process: str = ""
    """The process of that subscriber (:class:`~wormhole.coordination.port.SubscriberInfo`)."""
    lost_from: object | None = None
    """The stream that broke while the flow was there: a handler of the flow may still run."""
    held_until: float = 0.0
    """Until this time a handler that an earlier publisher called may still run. 0: there is no such handler."""
    intended: str | None = None
    """The subscriber that is about to get the flow."""
    intended_process: str = ""
    """The process of that subscriber."""
    halted_life: object | None = None
    """The life of the subscriber (``SubscriberStream.life``) in which a handler failed."""
    halted_at: str = ""
    """Id of the update at which it failed."""
    asked_at: float = 0.0
    """When the subscriber was asked to release the flow."""
    spacing: Spacing = field(default_factory=Spacing)
    """When the flow may be assigned again."""
    conflict: EpochConflict | None = None
    """Why the last assignment was refused. It stays until a subscriber accepts the flow."""
    handler: push_pb2.HandlerReport | None = None
    """The last report of the subscriber's callbacks."""
    progressed_at: float = 0.0
    """When the subscriber last processed something or had nothing to process. 0: not in this assignment."""
    waiting_credit_since: float = 0.0
    """The time since when there is something to send and no credit for it. 0: there is credit."""

    @property
    def contested(self) -> bool:
        """Whether another publisher has the flow at the subscriber, and has precedence."""
        return self.conflict is not None and self.conflict.contested

    @property
    def epoch_to_exceed(self) -> int:
        """The next epoch has to be higher than this."""
        return self.epoch if self.conflict is None else max(self.epoch, self.conflict.held_epoch)

    def recorded(self, replay: ReplayControl | None, *, assigned: bool) -> str:
        """The subscriber that the flow record names: a handler of the flow may run there now or soon. Empty if no
        handler may run.

        The next owner of the log waits for that handler, so the record names the subscriber before it gets the flow.
        """
        if self.intended is not None:
            return self.intended
        if replay is not None and replay.subscriber:
            return replay.subscriber
        works = assigned or self.lost_from is not None or bool(self.held_until)
        return (self.subscriber or "") if works else ""

    @property
    def recorded_process(self) -> str:
        """The process of the subscriber that the flow record names."""
        return self.process if self.intended is None else self.intended_process

    def credit_waited_s(self, now: float) -> float:
        """For how long there has been something to send and no credit for it."""
        return now - self.waiting_credit_since if self.waiting_credit_since else 0.0

    def stalled_s(self, now: float, in_flight: int) -> float:
        """For how long the subscriber has processed none of its ``in_flight`` bytes."""
        return now - self.progressed_at if in_flight and self.progressed_at else 0.0

    # -- the assignment

    def raised(self, epoch: int) -> None:
        """The epoch was raised."""
        self.epoch = max(self.epoch, epoch)

    def moved(self, epoch: int) -> None:
        """The datamarker was set, in a new epoch."""
        self.epoch = epoch

    def intend(self, subscriber: str | None, process: str = "") -> None:
        """The flow is about to be assigned to the subscriber; ``None``: to no subscriber."""
        self.intended, self.intended_process = subscriber, process

    def given(self, subscriber: str, process: str, now: float) -> None:
        """The subscriber has the flow."""
        self.was_at(subscriber, None, process=process)
        self.intend(None)
        self.handler = None
        self.resumed()
        self.spacing.given(now)

    def asked(self, now: float) -> None:
        """The subscriber was asked to release the flow."""
        self.asked_at = now

    def left(self) -> None:
        """No subscriber has the flow."""
        self.subscriber = None
        self.waiting_credit_since = self.progressed_at = 0.0

    def halted(self, subscriber: str, life: object, update_id: str) -> None:
        """A handler of the subscriber failed at the update."""
        self.subscriber, self.halted_life, self.halted_at = subscriber, life, update_id

    def resumed(self) -> None:
        """The flow may be assigned to the subscriber at which a handler failed."""
        self.halted_life, self.halted_at = None, ""

    def was_at(self, subscriber: str | None, stream: object | None, until: float = 0.0, *, process: str = "") -> None:
        """The subscriber had the flow last, in that ``process``. A handler may still run there: one called through
        ``stream``, or, ``until`` that time, one that an earlier publisher called.
        """
        self.subscriber, self.lost_from, self.held_until = subscriber, stream, until
        self.process = process

    def refused(self, conflict: EpochConflict) -> None:
        """The subscriber holds the flow in another epoch."""
        self.conflict = conflict

    def accepted(self) -> None:
        """A subscriber accepted the flow: no other publisher has precedence."""
        if self.conflict is not None:
            self.conflict = replace(self.conflict, contested=False)

    # -- the subscriber's work

    def lacks_credit(self, now: float) -> None:
        """There is something to send, and no credit for it."""
        self.waiting_credit_since = self.waiting_credit_since or now

    def has_credit(self) -> None:
        """There is credit for what has to be sent."""
        self.waiting_credit_since = 0.0

    def progressed(self, at: float) -> None:
        """The subscriber processed something, or has nothing to process."""
        self.progressed_at = at

    def reported(self, report: push_pb2.HandlerReport, at: float) -> None:
        """The subscriber reports on its callbacks. A slow batch is reported as processed only at its end, so a callback
        at another update is progress.
        """
        before, self.handler = self.handler, report
        if before is not None and before.running_update and report.running_update != before.running_update:
            self.progressed_at = at
