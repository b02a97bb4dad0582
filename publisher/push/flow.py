"""One flow in the publisher: an application's deliveries from one shard of the log.

A :class:`~caravan.flow.CaravanFlow` exists for one epoch. A ``PublisherFlow`` exists for as long as the publisher
serves the log, across epochs, subscribers and streams.
"""

from __future__ import annotations

from typing import Final

from caravan.flow import CaravanFlow
from publisher.push.delivery import FlowDelivery
from publisher.push.holding import FlowHolding
from publisher.push.loss import FlowLoss
from publisher.push.parking import FlowParking
from publisher.push.stages import Event, PublisherFlowState, Stage, after, shown
from wormhole.filters import Filter
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.model.problem import NO_PROBLEM, Problem, passing
from wormhole.ports.dead_letters import ParkedRows
from wormhole.ports.marker_store import FlowControl, FlowKey, StoredFlow

__all__ = ["PublisherFlow"]


class PublisherFlow:
    """One flow: its stage, and the four objects with its state (``delivery``, ``holding``, ``loss``, ``parking``).

    Other modules read the attributes and call the methods, and do not assign attributes. The methods of this class
    concern more than one of the objects.
    """

    def __init__(
        self, application: str, shard: str, wanted: Filter, marker: Datamarker, sent_until: LogPosition
    ) -> None:
        self.application: Final = application
        self.shard: Final = shard
        self.key: Final[FlowKey] = (application, shard)
        self.name: Final = flow_name(application, shard)
        """``APP/SHARD``."""
        self.filter = wanted
        self.halts_on_bad_value = False
        """Whether the application refuses values that are not of its format."""
        self.parks = False
        """Whether an update whose handler failed is parked."""
        self.marker_interval = 1.0
        """Seconds between two offered datamarkers while updates are sent."""
        self.control = FlowControl()
        """The stored requests of operators and replays about the flow."""
        self.stage = Stage.UNASSIGNED
        """See :mod:`publisher.push.stages`."""
        self.problem = Problem("no subscriber is there", code="no-subscriber")
        """Why the flow is in its stage, for operators."""
        self.holding = FlowHolding()
        self.delivery = FlowDelivery(marker, sent_until)
        self.parking = FlowParking()
        self.loss = FlowLoss()

    @property
    def lost_record(self) -> Problem:
        """Why an operator has to decide where the flow continues; empty if the flow's record is valid."""
        return self.control.missing or (self.problem if self.loss.unreadable else NO_PROBLEM)

    @property
    def cause(self) -> str:
        """Why the flow is in its stage, without the next step."""
        return self.problem.text

    @property
    def parked_rows(self) -> ParkedRows:
        """The rows with parked updates. Every later update of these rows is parked too."""
        return self.parking.rows(replayed=self.control.replay is not None)

    @property
    def about(self) -> dict[str, object]:
        """The fields of a log line about the flow (``wormhole.host.logs.FIELDS``)."""
        return {
            "flow": self.name,
            "shard": self.shard,
            "place": str(self.delivery.place),
            "epoch": self.holding.epoch,
            "subscriber": self.holding.subscriber or "",
        }

    @property
    def recorded(self) -> str:
        """The subscriber that the flow's record names; see :meth:`FlowHolding.recorded`."""
        assigned = self.stage not in (Stage.UNASSIGNED, Stage.HALTED)
        return self.holding.recorded(self.control.replay, assigned=assigned)

    @property
    def releasing(self) -> bool:
        """Whether the subscriber was asked to release the flow."""
        return self.stage in (Stage.WITHDRAWN, Stage.RELEASING)

    @property
    def halted(self) -> bool:
        """Whether a handler failed until its retries were exhausted."""
        return self.stage is Stage.HALTED

    @property
    def held_at_start(self) -> bool:
        """Whether the flow is held because its application's datamarker is not from this log's history."""
        return self.stage is Stage.HELD and self.delivery.caravan_flow is None

    def state(self, lead_flows: frozenset[str]) -> PublisherFlowState:
        """The state that operators see. ``lead_flows``: the names of the flows that travel with the lead caravan."""
        replay = self.control.replay
        return shown(
            self.stage,
            at_lead=self.name in lead_flows,
            paused=bool(self.control.paused),
            replay=None if replay is None else replay.state,
            blocked=self.holding.contested or bool(self.lost_record),
        )

    # -- from one stage to the next; each raises `ImpossibleError` where it cannot happen

    def assign(self, subscriber: str, now: float, process: str = "") -> None:
        """Note that the flow is assigned to the subscriber."""
        self._enter(Event.ASSIGN)
        self.holding.given(subscriber, process, now)
        self.loss.found_unreadable(False)
        if not self.holding.contested:
            self.explain(passing("opening"))

    def redeliver(self) -> None:
        """Note that the subscriber accepted the flow, and that parked updates are sent first."""
        self._enter(Event.REDELIVER)
        self.delivery.reported_rollback()
        self.explain(passing("parked updates are delivered again"))

    def begin(self, caravan_flow: CaravanFlow) -> None:
        """Deliver the log's updates, which ``caravan_flow`` reads."""
        self._enter(Event.BEGIN)
        self.delivery.begin(caravan_flow)
        self.explain(NO_PROBLEM)

    def hold(self, problem: Problem) -> None:
        """Hold the flow, because its log cannot be sent any further."""
        self._enter(Event.HOLD)
        self.explain(problem)

    def ask(self, gap: LogGap, resume: Datamarker, repair: str = "") -> None:
        """Ask the application about missing log. ``resume``: where the log continues after it. ``repair``: the rows
        that a repair would read, for operators.
        """
        self._enter(Event.ASK)
        self.loss.ask(gap, resume, repair)

    def decline(self, problem: Problem) -> None:
        """Hold the flow, because the application does not continue after the missing log."""
        self._enter(Event.DECLINE)
        self.explain(problem)

    def accept(self, *, back: bool) -> None:
        """Continue after the missing log. ``back``: the flow continues before its datamarker, which has to be set back
        first."""
        self._enter(Event.GO_BACK if back else Event.ACCEPT)
        self.loss.close()
        self.explain(NO_PROBLEM)

    def recall(self, cause: str, now: float) -> None:
        """Note that the subscriber is asked to release the flow."""
        if not self.releasing:
            self.holding.asked(now)
        self._enter(Event.RECALL)
        self.explain(passing(cause))

    def release(self, cause: str) -> None:
        """Note that no subscriber receives the flow any more."""
        self._leave(Event.RELEASE, passing(cause))

    def halt(self, cause: str, subscriber: str, life: object, update_id: str) -> None:
        """Halt the flow, because a handler failed. The subscriber gets the flow again only after the subscriber
        restarted or the flow was resumed."""
        self._leave(Event.HALT, Problem(cause, code="handler-failed"))
        self.holding.halted(subscriber, life, update_id)

    def resume(self) -> None:
        """Permit a new assignment, also to the subscriber at which a handler failed."""
        if self.halted:
            self._enter(Event.RESUME)
            self.holding.resumed()

    def _enter(self, event: Event) -> None:
        self.stage = after(self.stage, event)

    def _leave(self, event: Event, why: Problem) -> None:
        self._enter(event)
        self.delivery.left()
        self.holding.left()
        self.loss.close()
        self.explain(why)
        self.parking.answer(acked=False)

    # -- what is known of it

    def explain(self, problem: Problem) -> None:
        """Set why the flow is in its stage, and the next step."""
        self.problem = problem

    def configure(self, wanted: Filter, *, halts_on_bad_value: bool, parks: bool, marker_interval: float = 1.0) -> None:
        """Take over the application's configuration."""
        self.filter, self.halts_on_bad_value, self.parks = wanted, halts_on_bad_value, parks
        self.marker_interval = marker_interval

    def registered(self, record: StoredFlow) -> None:
        """Take over the stored record of the flow."""
        self.control = record.control
        self.holding.raised(record.epoch)
        self.delivery.registered(record)

    def restored(self, control: FlowControl) -> None:
        """Note that the flow's record was written anew."""
        self.control = control
        self.loss.found_unreadable(False)

    def controlled(self, control: FlowControl) -> None:
        """Take over the control that was stored."""
        self.control = control

    def moved(self, epoch: int, to: Datamarker, move: int) -> None:
        """Note that the datamarker was set, in a new epoch. ``move``: the number of the last move now."""
        self.holding.moved(epoch)
        self.delivery.moved(to, move)

    def acked(self, marker: Datamarker) -> None:
        """Note that a subscriber acknowledged everything up to ``marker``."""
        self.delivery.acked(marker)
        self.holding.spacing.acknowledged()
        self.parking.answer(acked=True)

    def __repr__(self) -> str:
        holding = self.holding
        return (
            f"<PublisherFlow {self.name} epoch {holding.epoch} at {self.delivery.marker} "
            f"for {holding.subscriber or 'none'}>"
        )
