"""A flow in the publisher, for as long as the publisher serves the log.

The caravan's :class:`~caravan.flow.CaravanFlow` exists for one epoch. This class stays across epochs, subscribers and
streams.
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
    """One flow of the log: its stage, and the four values with its state.

    Other modules read the attributes and call the methods; they assign nothing. The methods of this class are those
    that concern more than one value.
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
        """Seconds after which a datamarker is offered while there are updates."""
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
        """Why an operator has to decide where the flow continues; empty if its record has the place."""
        return self.control.missing or (self.problem if self.loss.unreadable else NO_PROBLEM)

    @property
    def cause(self) -> str:
        """Why the flow is in its stage, without the next step."""
        return self.problem.text

    @property
    def parked_rows(self) -> ParkedRows:
        """The rows of which every later update is parked, too."""
        return self.parking.rows(replayed=self.control.replay is not None)

    @property
    def about(self) -> dict[str, object]:
        """The fields of a log line about it (``wormhole.host.logs.FIELDS``)."""
        return {
            "flow": self.name,
            "shard": self.shard,
            "place": str(self.delivery.place),
            "epoch": self.holding.epoch,
            "subscriber": self.holding.subscriber or "",
        }

    @property
    def recorded(self) -> str:
        """The subscriber that its flow record names; see :meth:`FlowHolding.recorded`."""
        assigned = self.stage not in (Stage.UNASSIGNED, Stage.HALTED)
        return self.holding.recorded(self.control.replay, assigned=assigned)

    @property
    def releasing(self) -> bool:
        """Whether its subscriber was asked to release it."""
        return self.stage in (Stage.WITHDRAWN, Stage.RELEASING)

    @property
    def halted(self) -> bool:
        """Whether a handler failed until its retries were exhausted."""
        return self.stage is Stage.HALTED

    @property
    def held_at_start(self) -> bool:
        """Whether it is held because the log does not lead to what its application has."""
        return self.stage is Stage.HELD and self.delivery.caravan_flow is None

    def state(self, lead_flows: frozenset[str]) -> PublisherFlowState:
        """What an operator sees; ``lead_flows`` are the names of the flows that travel with the lead caravan."""
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
        """It was given to the subscriber."""
        self._enter(Event.ASSIGN)
        self.holding.given(subscriber, process, now)
        self.loss.found_unreadable(False)
        if not self.holding.contested:
            self.explain(passing("opening"))

    def redeliver(self) -> None:
        """The subscriber accepted it, and parked updates go first."""
        self._enter(Event.REDELIVER)
        self.delivery.reported_rollback()
        self.explain(passing("parked updates are delivered again"))

    def begin(self, caravan_flow: CaravanFlow) -> None:
        """The log's updates are delivered: ``caravan_flow`` reads them."""
        self._enter(Event.BEGIN)
        self.delivery.begin(caravan_flow)
        self.explain(NO_PROBLEM)

    def hold(self, problem: Problem) -> None:
        """The log cannot be read on."""
        self._enter(Event.HOLD)
        self.explain(problem)

    def ask(self, gap: LogGap, resume: Datamarker, repair: str = "") -> None:
        """The application is asked about missing log, after which the log continues at ``resume``. ``repair``: what a
        repair would read.
        """
        self._enter(Event.ASK)
        self.loss.ask(gap, resume, repair)

    def decline(self, problem: Problem) -> None:
        """The application halts at the missing log."""
        self._enter(Event.DECLINE)
        self.explain(problem)

    def accept(self, *, back: bool) -> None:
        """It continues after the missing log. ``back``: it continues before its datamarker, which has to be set back
        first."""
        self._enter(Event.GO_BACK if back else Event.ACCEPT)
        self.loss.close()
        self.explain(NO_PROBLEM)

    def recall(self, cause: str, now: float) -> None:
        """Its subscriber is asked to release it."""
        if not self.releasing:
            self.holding.asked(now)
        self._enter(Event.RECALL)
        self.explain(passing(cause))

    def release(self, cause: str) -> None:
        """No subscriber receives it any more."""
        self._leave(Event.RELEASE, passing(cause))

    def halt(self, cause: str, subscriber: str, life: object, update_id: str) -> None:
        """A handler failed at the subscriber. The flow is not assigned to it until it restarts or the flow is
        resumed."""
        self._leave(Event.HALT, Problem(cause, code="handler-failed"))
        self.holding.halted(subscriber, life, update_id)

    def resume(self) -> None:
        """It may be assigned again, also to the subscriber at which a handler failed."""
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
        """Why it is in its stage, or stays in it, and the next step."""
        self.problem = problem

    def configure(self, wanted: Filter, *, halts_on_bad_value: bool, parks: bool, marker_interval: float = 1.0) -> None:
        """What its application is configured to receive."""
        self.filter, self.halts_on_bad_value, self.parks = wanted, halts_on_bad_value, parks
        self.marker_interval = marker_interval

    def registered(self, record: StoredFlow) -> None:
        """Its record, as it is stored."""
        self.control = record.control
        self.holding.raised(record.epoch)
        self.delivery.registered(record)

    def restored(self, control: FlowControl) -> None:
        """Its record was written anew."""
        self.control = control
        self.loss.found_unreadable(False)

    def controlled(self, control: FlowControl) -> None:
        """Its control is stored."""
        self.control = control

    def moved(self, epoch: int, to: Datamarker, move: int) -> None:
        """Its datamarker was set, in a new epoch. ``move``: the number of the last move now."""
        self.holding.moved(epoch)
        self.delivery.moved(to, move)

    def acked(self, marker: Datamarker) -> None:
        """A subscriber acknowledged everything up to ``marker``."""
        self.delivery.acked(marker)
        self.holding.spacing.acknowledged()
        self.parking.answer(acked=True)

    def __repr__(self) -> str:
        holding = self.holding
        return (
            f"<PublisherFlow {self.name} epoch {holding.epoch} at {self.delivery.marker} "
            f"for {holding.subscriber or 'none'}>"
        )
