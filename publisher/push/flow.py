"""What the publisher knows of one flow for as long as it serves the log.

The caravan's :class:`~caravan.flow.CaravanFlow` lives for one epoch; this one stays across epochs, subscribers and
streams.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import replace
from typing import Final

from caravan.flow import CaravanFlow
from publisher.push.epoch_conflict import EpochConflict
from publisher.push.redial import Spacing
from publisher.push.stages import Event, PublisherFlowState, Stage, after, shown
from wormhole.audit.sent_counts import NOT_COUNTED, SentCounts
from wormhole.filters import Filter
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.model.problem import NO_PROBLEM, Problem, passing
from wormhole.ports.dead_letters import DeadLetter, ParkedRows, for_receiver, parked_rows
from wormhole.ports.marker_store import FlowControl, FlowKey, StoredFlow
from wormhole.wire.body import Body
from wormhole.wire.markers import marker_to_bytes
from wormhole.wire.v1 import push_pb2

__all__ = ["PublisherFlow"]


_MOST_OFFERED: Final = 256  # datamarkers of a flow that are remembered: more than can be unacknowledged


def _digest(marker: Datamarker) -> bytes:
    return hashlib.blake2b(marker_to_bytes(marker), digest_size=8).digest()


class PublisherFlow:
    """One flow of the log: its stage, its stored place and the subscriber that receives it.

    Other modules read the attributes and call the methods; they assign nothing.

    ``key``: application and shard; ``name``: the same as ``APP/SHARD``. ``stage``: see :mod:`publisher.push.stages`.
    ``cause``: why it is in it, for operators, and ``hint``, the next step. ``marker``: the last
    acknowledged datamarker; ``durable``: the last one that the store confirmed; ``sent_until``: what ends at or before
    it may have been delivered before. ``acknowledged``: the store has held a datamarker of it that a subscriber
    acknowledged; otherwise its marker is only where it was registered. ``rewound``: the marker was set back, and no
    acknowledgement was stored since. ``moving``: its marker is being set, so that it is not assigned meanwhile.
    ``unreadable``: the store holds no valid record of it. ``control``: what operators asked of it, as it is stored.

    ``subscriber``: id of the one that it is assigned to, or was at last; ``lost_from``: the stream that broke while it
    was there, so that a handler may still run; ``held_until``: so may one that an earlier publisher called, until then
    (seconds of the monotonic clock; 0: none). ``intended``: the subscriber that it is about to be given to.
    ``halted_life``: the life of the subscriber (``SubscriberStream.life``) in which a handler failed; ``halted_at``: id
    of the update at which it failed.
    ``asked_at``: when it was asked to release the flow, in seconds of the monotonic clock. ``spacing``: when it may be
    assigned again. ``receiver``: who had or has it, as far as that is proven.
    ``conflict``: why its last assignment was refused, until a subscriber accepts it.

    ``caravan_flow``: its reading of the log, from :meth:`begin` to :meth:`release`. ``loss``: the missing log that the
    application was asked about, and where the log continues; ``repair``: which rows a repair of it would read, for
    operators; ``losses``: how often that happened.
    ``halts_on_bad_value``: the application takes no value that is not of its format; ``bad_values``: such values that
    were sent. ``rolled_back``: id of a transaction of which a part was sent, and which the log shows to be rolled back;
    reported with the next assignment.

    ``parks``: an update whose handler failed is parked; ``parked``: those that are, in the order of the log (``None``:
    not read yet); ``letter``: done when a parked update that was sent again was acknowledged (true), or its epoch
    ended. ``sent_counts``: what this epoch sent. ``replayed``: updates that mass replays delivered. ``handler``: the
    last report of the subscriber's callbacks. ``waiting_credit_since`` and ``progressed_at``: seconds of the monotonic
    clock, 0 when it has credit, and when nothing was processed yet.
    """

    def __init__(
        self, application: str, shard: str, wanted: Filter, marker: Datamarker, sent_until: LogPosition
    ) -> None:
        self.application = application
        self.shard = shard
        self.key: Final[FlowKey] = (application, shard)
        self.name: Final = flow_name(application, shard)
        self.filter = wanted
        self.marker = marker
        self.durable = marker
        self._stored_in = -1
        self.sent_until = sent_until
        self.epoch = 0
        self.subscriber: str | None = None
        self.stage = Stage.UNASSIGNED
        self.asked_at = 0.0
        self.halted_life: object | None = None
        self.lost_from: object | None = None
        self.held_until = 0.0
        self.intended: str | None = None
        self.caravan_flow: CaravanFlow | None = None
        self.loss: tuple[LogGap, Datamarker] | None = None
        self.repair = ""
        self.problem = Problem("no subscriber is there", code="no-subscriber")
        self.updates = 0
        self.bytes = 0
        self.bad_values = 0
        self.losses = 0
        self.replayed = 0
        self.halts_on_bad_value = False
        self.moving = False
        self.rewound = False
        self.acknowledged = True
        self.conflict: EpochConflict | None = None
        self.unreadable = False
        self.control = FlowControl()
        self.halted_at = ""
        self.handler: push_pb2.HandlerReport | None = None
        self.rolled_back = ""
        self.parks = False
        self.parked: tuple[DeadLetter, ...] | None = None
        self.receiver = ""
        self._offered: deque[bytes] = deque(maxlen=_MOST_OFFERED)
        self.letter: asyncio.Future[bool] | None = None
        self.sent_counts: SentCounts = NOT_COUNTED
        self.waiting_credit_since = 0.0
        self.progressed_at = 0.0
        self.spacing = Spacing()

    @property
    def acknowledged_to(self) -> Datamarker:
        """Its marker, at its place in the present history of the log as soon as that is known: the marker itself stays
        in a former one until something is acknowledged in the present one.
        """
        reads = self.caravan_flow
        if reads is None or reads.begun.incarnation <= self.marker.order.incarnation:
            return self.marker
        return replace(self.marker, order=reads.begun)

    @property
    def lost_record(self) -> Problem:
        """Why an operator has to say where it goes on; empty: its record says it."""
        return self.control.missing or (self.problem if self.unreadable else NO_PROBLEM)

    @property
    def cause(self) -> str:
        """Why it is in its stage, without the next step."""
        return self.problem.text

    @property
    def dead_letters(self) -> int:
        """How many updates are parked, as far as is known."""
        return len(self.parked or ())

    @property
    def contested(self) -> bool:
        """Whether another publisher has it at its subscriber, and goes first."""
        return self.conflict is not None and self.conflict.contested

    @property
    def parked_rows(self) -> ParkedRows:
        """Rows of which every later update has to be parked. In a mass replay also those of updates to be delivered
        again, which waits until the flow is live."""
        return parked_rows(self.parked or (), also_retried=self.control.replay is not None)

    @property
    def about(self) -> dict[str, object]:
        """The fields of a log line about it (``wormhole.host.logs.FIELDS``)."""
        place = self.marker.order if self.caravan_flow is None else self.caravan_flow.place
        return {
            "flow": self.name,
            "shard": self.shard,
            "place": str(place),
            "epoch": self.epoch,
            "subscriber": self.subscriber or "",
        }

    @property
    def recorded(self) -> str:
        """The subscriber that its flow record names: a handler of the flow may run there, or may in a moment. Empty:
        nowhere.

        The next owner of the log waits for that handler, so the record names the subscriber before it gets the flow.
        """
        replay = self.control.replay
        if self.intended is not None:
            return self.intended
        if replay is not None and replay.subscriber:
            return replay.subscriber
        assigned = self.stage not in (Stage.UNASSIGNED, Stage.HALTED)
        return (self.subscriber or "") if assigned or self.lost_from is not None or self.held_until else ""

    @property
    def releasing(self) -> bool:
        """Whether its subscriber was asked to release it."""
        return self.stage in (Stage.WITHDRAWN, Stage.RELEASING)

    @property
    def halted(self) -> bool:
        """Whether a handler failed until its retries were exhausted."""
        return self.stage is Stage.HALTED

    def state(self, lead_flows: frozenset[str]) -> PublisherFlowState:
        """What an operator sees; ``lead_flows`` are the names of the flows that travel with the lead caravan."""
        replay = self.control.replay
        return shown(
            self.stage,
            at_lead=self.name in lead_flows,
            paused=bool(self.control.paused),
            replay=None if replay is None else replay.state,
            blocked=self.contested or bool(self.lost_record),
        )

    @property
    def needed(self) -> LogPosition:
        """The earliest place that has to stay in the log: the flow continues from its durable datamarker, or from a
        later one, or one of the same place, that was sent and is not durable yet."""
        acknowledged = self.marker if self.marker.order >= self.durable.order else self.durable
        kept = min(self.durable.read_from, acknowledged.read_from)
        return kept if self.caravan_flow is None else min(kept, self.caravan_flow.keeps(self.durable))

    # -- from one stage to the next; each raises `ImpossibleError` where it cannot happen

    def assign(self, subscriber: str, now: float) -> None:
        """It was given to the subscriber."""
        self._enter(Event.ASSIGN)
        self.was_at(subscriber, None)
        self.intended, self.halted_life, self.halted_at = None, None, ""
        self.unreadable, self.handler = False, None
        self.spacing.given(now)
        if not self.contested:
            self.explain(passing("opening"))

    def redeliver(self) -> None:
        """The subscriber accepted it, and parked updates go first."""
        self._enter(Event.REDELIVER)
        self.rolled_back = ""
        self.explain(passing("parked updates are delivered again"))

    def begin(self, caravan_flow: CaravanFlow) -> None:
        """The log's updates are delivered: ``caravan_flow`` reads them."""
        self._enter(Event.BEGIN)
        self.caravan_flow, self.rolled_back = caravan_flow, ""
        self.explain(NO_PROBLEM)

    def hold(self, problem: Problem) -> None:
        """The log cannot be read on."""
        self._enter(Event.HOLD)
        self.explain(problem)

    def ask(self, gap: LogGap, resume: Datamarker, repair: str = "") -> None:
        """The application is asked about missing log, behind which the log continues at ``resume``. ``repair``: what a
        repair of it would read.
        """
        self._enter(Event.ASK)
        self.loss, self.repair = (gap, resume), repair
        self.losses += 1

    def decline(self, problem: Problem) -> None:
        """The application halts at the missing log."""
        self._enter(Event.DECLINE)
        self.explain(problem)

    def accept(self, *, back: bool) -> None:
        """It continues after the missing log. ``back``: before its datamarker, which has to be set back first."""
        self._enter(Event.GO_BACK if back else Event.ACCEPT)
        self.loss, self.repair = None, ""
        self.explain(NO_PROBLEM)

    def recall(self, cause: str, now: float) -> None:
        """Its subscriber is asked to release it."""
        if not self.releasing:
            self.asked_at = now
        self._enter(Event.RECALL)
        self.explain(passing(cause))

    def release(self, cause: str) -> None:
        """Nobody receives it any more."""
        self._leave(Event.RELEASE, passing(cause))

    def halt(self, cause: str, subscriber: str, life: object, update_id: str) -> None:
        """A handler failed there. It is not assigned to the subscriber until that restarts or the flow is resumed."""
        self._leave(Event.HALT, Problem(cause, code="handler-failed"))
        self.subscriber, self.halted_life, self.halted_at = subscriber, life, update_id

    def resume(self) -> None:
        """It may be assigned again, also where a handler failed."""
        if self.halted:
            self._enter(Event.RESUME)
            self.halted_life, self.halted_at = None, ""

    def _enter(self, event: Event) -> None:
        self.stage = after(self.stage, event)

    def _leave(self, event: Event, why: Problem) -> None:
        self._enter(event)
        if self.caravan_flow is not None:
            self.reached(self.caravan_flow.place)
        self.subscriber, self.caravan_flow, self.loss, self.repair = None, None, None, ""
        self.waiting_credit_since, self.progressed_at = 0.0, 0.0
        self.explain(why)
        self.answer_letter(acked=False)

    # -- what is known of it

    def explain(self, problem: Problem) -> None:
        """Why it is in its stage, or stays in it, and the next step."""
        self.problem = problem

    def was_at(self, subscriber: str | None, stream: object | None, until: float = 0.0) -> None:
        """It was at the subscriber last; in ``stream`` a handler of it may still run, or ``until`` then one that an
        earlier publisher called.
        """
        self.subscriber, self.lost_from, self.held_until = subscriber, stream, until

    def intend(self, subscriber: str | None) -> None:
        """It is about to be given to the subscriber; ``None``: to nobody."""
        self.intended = subscriber

    def refused(self, conflict: EpochConflict) -> None:
        """Its subscriber holds it in another epoch."""
        self.conflict = conflict

    def accepted(self) -> None:
        """A subscriber accepted it: no other publisher goes first."""
        if self.conflict is not None:
            self.conflict = replace(self.conflict, contested=False)

    def undone(self, transaction: str) -> None:
        """A transaction of which a part was sent was rolled back."""
        self.rolled_back = transaction

    # -- its record in the marker store

    def registered(self, record: StoredFlow) -> None:
        """Its record, as it is stored."""
        self.epoch = record.epoch
        self.control = record.control
        self.rewound = record.rewound
        self.acknowledged = bool(record.filter_hash)

    def restored(self, control: FlowControl) -> None:
        """Its record was written anew."""
        self.control, self.unreadable = control, False

    def found_unreadable(self, unreadable: bool) -> None:
        """Whether its record could not be read."""
        self.unreadable = unreadable

    def controlled(self, control: FlowControl) -> None:
        """What operators asked of it is stored."""
        self.control = control

    def raised(self, epoch: int) -> None:
        """Its epoch was raised."""
        self.epoch = max(self.epoch, epoch)

    def begin_move(self) -> None:
        """Its marker is being set: nobody gets it until :meth:`end_move`."""
        self.moving = True

    def end_move(self) -> None:
        """Its marker is set, or could not be."""
        self.moving = False

    def moved(self, epoch: int, to: Datamarker) -> None:
        """Its marker was set, in a new epoch."""
        self.epoch = epoch
        self.rewound |= to.order < self.durable.order
        self.marker = self.durable = to

    def acked(self, marker: Datamarker) -> None:
        """A subscriber acknowledged everything up to ``marker``."""
        self.marker = marker
        self.spacing.acknowledged()
        self.answer_letter(acked=True)

    def stored(self, marker: Datamarker, epoch: int) -> None:
        """``marker``, which a subscriber acknowledged in ``epoch``, is durable."""
        self.durable, self.rewound, self.acknowledged, self._stored_in = marker, False, True, epoch

    def has_stored(self, marker: Datamarker, epoch: int) -> bool:
        """Whether just that is durable: an idle flow acknowledges the same datamarker again and again."""
        return self._stored_in == epoch and self.durable == marker

    def offers(self, marker: Datamarker) -> None:
        """The subscriber is offered ``marker``."""
        self._offered.append(_digest(marker))

    def was_offered(self, have: Datamarker) -> bool:
        """Whether an application may have ``have``. It may have what this process offered it, and whatever lies before
        the present datamarker. While this process has offered nothing, an earlier one may have: then the transaction
        before ``have`` proves it when the log is opened there, and a place without one has to lie within what may have
        been sent.
        """
        if _digest(have) in (_digest(self.marker), *self._offered):
            return True
        if have.order < self.marker.order:
            return True
        return not self._offered and (have.anchor is not None or have.order <= self.sent_until)

    def reached(self, place: LogPosition) -> None:
        """Updates up to ``place`` may have been delivered."""
        self.sent_until = max(self.sent_until, place)

    # -- its configuration, parked updates and counters

    def configure(self, wanted: Filter, *, halts_on_bad_value: bool, parks: bool) -> None:
        """What its application is configured to receive."""
        self.filter, self.halts_on_bad_value, self.parks = wanted, halts_on_bad_value, parks

    def parks_now(self, letters: tuple[DeadLetter, ...]) -> None:
        """The updates that are parked, in the order of the log."""
        self.parked = letters

    def received_by(self, receiver: str) -> None:
        """Who gets the flow now: what another one parked is not delivered again to it."""
        self.receiver = receiver
        self.parked = for_receiver(self.parked or (), receiver)

    def expect_letter(self) -> asyncio.Future[bool]:
        """A parked update was sent again; the future is its answer."""
        self.letter = asyncio.get_running_loop().create_future()
        return self.letter

    def answer_letter(self, *, acked: bool) -> None:
        """The parked update that was sent again was processed, or nobody works on it any more."""
        letter, self.letter = self.letter, None
        if letter is not None and not letter.done():
            letter.set_result(acked)

    def count_sent(self, counts: SentCounts) -> None:
        """What its epoch sends is counted in ``counts``."""
        self.sent_counts = counts

    def close_sent_counts(self) -> SentCounts:
        """Its epoch is over. Returns the counts of what it sent."""
        counts, self.sent_counts = self.sent_counts, NOT_COUNTED
        return counts

    def lacks_credit(self, now: float) -> None:
        """There is something to send, and no credit for it."""
        self.waiting_credit_since = self.waiting_credit_since or now

    def has_credit(self) -> None:
        """What there is to send may be sent."""
        self.waiting_credit_since = 0.0

    def progressed(self, at: float) -> None:
        """Its subscriber processed something, or has nothing to process."""
        self.progressed_at = at

    def reported(self, report: push_pb2.HandlerReport, at: float) -> None:
        """What the subscriber reports of its callbacks. A slow batch counts as processed at its end only, so a callback
        that is at another update is progress."""
        before, self.handler = self.handler, report
        if before is not None and before.running_update and report.running_update != before.running_update:
            self.progressed_at = at

    def sent(self, body: Body) -> None:
        """``body`` was written to the stream."""
        self.updates += body.updates
        self.bytes += body.size
        self.bad_values += len(body.bad)
        self.sent_counts.sent(body)

    def count_replayed(self, updates: int) -> None:
        """A mass replay delivered so many more."""
        self.replayed += updates

    def __repr__(self) -> str:
        return f"<PublisherFlow {self.name} epoch {self.epoch} at {self.marker} for {self.subscriber or 'nobody'}>"
