"""The assignment of a flow: its epoch, the subscriber that holds it, and the subscriber's progress."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from publisher.push.epoch_conflict import EpochConflict
from publisher.push.spacing import Spacing
from wormhole.ports.marker_store import ReplayControl
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowHolding"]


@dataclass(slots=True, eq=False)
class FlowHolding:
    """See the module. Other modules read the attributes and change them only through the methods. Times are seconds of
    the monotonic clock."""

    epoch: int = 0
    """The epoch of the last assignment. Each assignment raises it first."""
    subscriber: str | None = None
    """Id of the subscriber that has the flow or had it last."""
    process: str = ""
    """The process of that subscriber (:class:`~wormhole.coordination.port.SubscriberInfo`)."""
    lost_from: object | None = None
    """The stream that broke while it had the flow. A handler of the flow may still run there."""
    held_until: float = 0.0
    """A handler that an earlier publisher called may run until this time. 0: no such handler runs."""
    intended: str | None = None
    """The subscriber that is about to get the flow."""
    intended_process: str = ""
    """The process of that subscriber."""
    halted_life: object | None = None
    """The life of the subscriber (``SubscriberStream.life``) in which a handler failed."""
    halted_at: str = ""
    """Id of the update at which the handler failed."""
    asked_at: float = 0.0
    """When the subscriber was asked to release the flow."""
    spacing: Spacing = field(default_factory=Spacing)
    """When the flow may be assigned again."""
    conflict: EpochConflict | None = None
    """Why the last assignment was refused. It stays until a subscriber accepts the flow."""
    handler: push_pb2.HandlerReport | None = None
    """The last report of the subscriber's callbacks."""
    progressed_at: float = 0.0
    """When the subscriber last processed something or had nothing to process; 0: not yet in this assignment."""
    waiting_credit_since: float = 0.0
    """When an update began to wait for credit; 0: no update waits."""

    @property
    def contested(self) -> bool:
        """Whether another publisher has the flow at the subscriber, and has precedence."""
        return self.conflict is not None and self.conflict.contested

    @property
    def epoch_to_exceed(self) -> int:
        """The next epoch has to be higher than this."""
        return self.epoch if self.conflict is None else max(self.epoch, self.conflict.held_epoch)

    def recorded(self, replay: ReplayControl | None, *, assigned: bool) -> str:
        """The subscriber for the flow's record, at which a handler of the flow may run now or soon; empty without one.

        The next owner of the log waits for that handler. So the record names the subscriber before the subscriber gets
        the flow.
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
        """For how many seconds an update has waited for credit."""
        return now - self.waiting_credit_since if self.waiting_credit_since else 0.0

    def stalled_s(self, now: float, in_flight: int) -> float:
        """For how many seconds the subscriber has processed none of its ``in_flight`` bytes."""
        return now - self.progressed_at if in_flight and self.progressed_at else 0.0

    # -- the assignment

    def raised(self, epoch: int) -> None:
        """Note that the epoch was raised."""
        self.epoch = max(self.epoch, epoch)

    def moved(self, epoch: int) -> None:
        """Note that the datamarker was set, in a new epoch."""
        self.epoch = epoch

    def intend(self, subscriber: str | None, process: str = "") -> None:
        """Note the subscriber that is about to get the flow; ``None``: no subscriber is."""
        self.intended, self.intended_process = subscriber, process

    def given(self, subscriber: str, process: str, now: float) -> None:
        """Note that the subscriber has the flow."""
        self.was_at(subscriber, None, process=process)
        self.intend(None)
        self.handler = None
        self.resumed()
        self.spacing.given(now)

    def asked(self, now: float) -> None:
        """Note that the subscriber was asked to release the flow."""
        self.asked_at = now

    def left(self) -> None:
        """Note that no subscriber has the flow."""
        self.subscriber = None
        self.waiting_credit_since = self.progressed_at = 0.0

    def halted(self, subscriber: str, life: object, update_id: str) -> None:
        """Note that a handler of the subscriber failed at the update."""
        self.subscriber, self.halted_life, self.halted_at = subscriber, life, update_id

    def resumed(self) -> None:
        """Permit an assignment to the subscriber at which a handler failed."""
        self.halted_life, self.halted_at = None, ""

    def was_at(self, subscriber: str | None, stream: object | None, until: float = 0.0, *, process: str = "") -> None:
        """Note the subscriber, and its ``process``, that had the flow last. A handler may still run there. ``stream``:
        the stream that called the handler. ``until``: when a handler that an earlier publisher called has ended.
        """
        self.subscriber, self.lost_from, self.held_until = subscriber, stream, until
        self.process = process

    def refused(self, conflict: EpochConflict) -> None:
        """Note that the subscriber refused the flow, because it holds the flow in another epoch."""
        self.conflict = conflict

    def accepted(self) -> None:
        """Note that a subscriber accepted the flow, so that no other publisher has precedence."""
        if self.conflict is not None:
            self.conflict = replace(self.conflict, contested=False)

    # -- the subscriber's work

    def lacks_credit(self, now: float) -> None:
        """Note that an update waits for credit."""
        self.waiting_credit_since = self.waiting_credit_since or now

    def has_credit(self) -> None:
        """Note that no update waits for credit."""
        self.waiting_credit_since = 0.0

    def progressed(self, at: float) -> None:
        """Note that the subscriber processed something, or has nothing to process."""
        self.progressed_at = at

    def reported(self, report: push_pb2.HandlerReport, at: float) -> None:
        """Take over the subscriber's report of its callbacks. A callback that has reached another update is progress,
        because a slow batch is reported as processed only at its end.
        """
        before, self.handler = self.handler, report
        if before is not None and before.running_update and report.running_update != before.running_update:
            self.progressed_at = at
