"""A feed: what the publisher knows of one flow for as long as it serves the log.

The caravan's :class:`~caravan.flow.Flow` lives for one epoch; the feed stays across epochs, subscribers and streams.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from caravan.flow import Flow, FlowState
from publisher.push.contest import Contest
from publisher.push.redial import Spacing
from wormhole.filters import Filter
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.ports.dead_letters import DeadLetter, ParkedRows, parked_rows
from wormhole.ports.marker_store import FlowControl, FlowKey, ReplayState
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.audit.ledger import Ledger

__all__ = ["Feed", "FeedState"]


class FeedState(Enum):
    """What an operator sees of a flow."""

    UNASSIGNED = "unassigned"
    PAUSED = "paused"
    OPENING = "opening"
    LIVE = "live"
    CATCHING_UP = "catching_up"
    HELD = "held"
    RELEASING = "releasing"
    REPLAYING = "replaying"
    NEEDS_REPLAY = "needs_replay"


class Feed:
    """One flow of the log: its stored place and who receives it.

    ``marker``: the last acknowledged datamarker; ``durable``: the last one that the store confirmed; ``sent_until``: what ends at
    or before it may have been delivered before. ``subscriber``: id of who it is at, or is being given to.
    ``bad_values``: updates sent although their value, which the filter tests, was not of its format; ``halts_on_bad_value``: the
    application wants none of these. ``stands_at``: the life of the subscriber (``SubscriberStream.life``) at which a handler gave up on it.
    ``asked_at``: since when it is ``releasing``, in seconds of the monotonic clock. ``lost_from``: the stream that broke while it
    was there, so that a handler may still run. ``moving``: its marker is being set just now, nobody may get it meanwhile.
    ``unreadable``: the store holds no valid record of it.

    For operators: ``control``, what they asked of it, as it is stored; ``halted_at``, id of the update at which a handler gave up;
    ``losses``, how often missing log stopped it; ``replayed``, updates that mass replays delivered;
    ``loss_declined``: the application was asked about the ``loss`` and halts; ``handler``, what the subscriber told last of its
    callbacks; ``waiting_credit_since`` and ``progressed_at``, seconds of the
    monotonic clock, 0 when it has credit and when nothing was processed yet.

    ``rolled_back``: id of a transaction of which a part was sent, and which the log shows to be rolled back; told with the next assignment.
    ``rewound``: the marker was set back and no acknowledgement was stored since. ``contest``: why its last assignment was refused, until
    it opens; ``yields``: the assignment gives way to another publisher that is connected. ``acknowledged``: the store has held a datamarker
    of it that a subscriber acknowledged; else its marker is only where it was registered.

    ``parks``: what a handler gives up on is parked; ``parked``: what is, in the order of the log (``None``: not read yet); ``letter``:
    done when a parked update that was sent again was acknowledged (true), or its epoch ended. ``ledger``: what this epoch sent.
    ``spacing``: when it may be given away again.
    """

    def __init__(
        self, application: str, shard: str, wanted: Filter, marker: Datamarker, sent_until: LogPosition
    ) -> None:
        self.application = application
        self.shard = shard
        self.filter = wanted
        self.marker = marker
        self.durable = marker
        self.sent_until = sent_until
        self.epoch = 0
        self.subscriber: str | None = None
        self.opening = False
        self.releasing = False
        self.asked_at = 0.0
        self.stands_at: object | None = None
        self.lost_from: object | None = None
        self.flow: Flow | None = None
        self.loss: tuple[LogGap, Datamarker] | None = None
        self.cause = "no subscriber is there"
        self.updates = 0
        self.bytes = 0
        self.bad_values = 0
        self.losses = 0
        self.replayed = 0
        self.halts_on_bad_value = False
        self.moving = False
        self.rewound = False
        self.acknowledged = True
        self.contest: Contest | None = None
        self.yields = False
        self.unreadable = False
        self.control = FlowControl()
        self.halted_at = ""
        self.loss_declined = False
        self.handler: admin_pb2.HandlerReport | None = None
        self.rolled_back = ""
        self.parks = False
        self.parked: tuple[DeadLetter, ...] | None = None
        self.letter: asyncio.Future[bool] | None = None
        self.ledger: Ledger | None = None
        self.waiting_credit_since = 0.0
        self.progressed_at = 0.0
        self.spacing = Spacing()

    @property
    def lost_record(self) -> str:
        """Why an operator has to say where it goes on; empty: its record says it."""
        return self.control.missing or (self.cause if self.unreadable else "")

    @property
    def dead_letters(self) -> int:
        """How many updates are parked, as far as is known."""
        return len(self.parked or ())

    @property
    def contested(self) -> bool:
        """Whether another publisher has it at its subscriber, and goes first."""
        return self.contest is not None and self.contest.contested

    @property
    def parked_rows(self) -> ParkedRows:
        """Rows of which every later update has to be parked. In a mass replay those to be delivered again hold it up too: that waits until the
        flow is live."""
        return parked_rows(self.parked or (), also_retried=self.control.replay is not None)

    @property
    def key(self) -> FlowKey:
        """``(application, shard)``."""
        return (self.application, self.shard)

    @property
    def name(self) -> str:
        """``APP/SHARD``."""
        return flow_name(self.application, self.shard)

    @property
    def about(self) -> dict[str, object]:
        """The fields of a log line about it (``wormhole.host.logs.FIELDS``)."""
        place = self.marker.order if self.flow is None else self.flow.place
        return {
            "flow": self.name,
            "shard": self.shard,
            "place": str(place),
            "epoch": self.epoch,
            "subscriber": self.subscriber or "",
        }

    def state(self, lead_flows: frozenset[str]) -> FeedState:
        """What it is doing; ``lead_flows`` are the names of the flows that travel with the lead caravan."""
        replay = self.control.replay
        if self.flow is None:
            if replay is not None and not self.opening and not self.releasing:
                needs = replay.state is ReplayState.NEEDS_REPLAY
                return FeedState.NEEDS_REPLAY if needs else FeedState.REPLAYING
            if self.control.paused and not self.opening and not self.releasing:
                return FeedState.PAUSED
            if self.stands_at is not None or self.contested or self.lost_record:
                return FeedState.HELD
            return FeedState.OPENING if self.opening else FeedState.UNASSIGNED
        if self.releasing:
            return FeedState.RELEASING
        if self.flow.state is FlowState.HELD:
            return FeedState.HELD
        return FeedState.LIVE if self.name in lead_flows else FeedState.CATCHING_UP

    def given_up(self, cause: str) -> None:
        """Nobody receives it any more."""
        if self.flow is not None:
            self.sent_until = max(self.sent_until, self.flow.place)
        self.subscriber, self.flow, self.opening, self.releasing, self.loss = None, None, False, False, None
        self.loss_declined, self.waiting_credit_since, self.progressed_at = False, 0.0, 0.0
        self.cause = cause
        self.answer_letter(acked=False)

    def answer_letter(self, *, acked: bool) -> None:
        """The parked update that was sent again was processed, or nobody works on it any more."""
        letter, self.letter = self.letter, None
        if letter is not None and not letter.done():
            letter.set_result(acked)

    def __repr__(self) -> str:
        return f"<Feed {self.name} epoch {self.epoch} at {self.marker} for {self.subscriber or 'nobody'}>"
