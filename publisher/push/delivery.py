"""The progress of a flow's delivery: its datamarkers, its reading of the log, and what was sent."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from caravan.flow import CaravanFlow
from wormhole.audit.sent_counts import NOT_COUNTED, SentCounts
from wormhole.model.position import Datamarker, LastAck, LogPosition
from wormhole.ports.marker_store import StoredFlow
from wormhole.push.moves import refuses_later
from wormhole.wire.body import Body
from wormhole.wire.markers import marker_to_bytes

__all__ = ["FlowDelivery"]

_MOST_OFFERED: Final = 256  # datamarkers of a flow that are remembered: more than can be unacknowledged


def _digest(marker: Datamarker) -> bytes:
    return hashlib.blake2b(marker_to_bytes(marker), digest_size=8).digest()


@dataclass(slots=True, eq=False)
class FlowDelivery:
    """Other modules read the attributes and call the methods."""

    marker: Datamarker
    """The last acknowledged datamarker."""
    sent_until: LogPosition
    """Updates that end at or before this place may have been delivered before."""
    durable: Datamarker = field(init=False)
    """The last datamarker that the marker store confirmed."""
    acknowledged: bool = True
    """Whether a subscriber acknowledged a datamarker. Otherwise the datamarker is only where the flow was registered,
    or was set."""
    rewound: bool = False
    """Whether the datamarker was set back, and no acknowledgement was stored since."""
    move: int = 0
    """The number of the last move of the datamarker that the application did not make itself; 0: there was none."""
    last_ack: LastAck | None = None
    """The last acknowledgement of another datamarker; ``None``: there was none, or it is not known."""
    moves_under_way: int = 0
    """How many changes of the datamarker are under way."""
    caravan_flow: CaravanFlow | None = None
    """Its reading of the log, while a subscriber receives the log's updates."""
    rolled_back: str = ""
    """Id of a transaction that was rolled back after a part of it was sent. The next assignment reports it."""
    sent_counts: SentCounts = NOT_COUNTED
    """The counts of what this epoch sent."""
    updates: int = 0
    """Updates that were sent."""
    sent_bytes: int = 0
    """Bytes of their bodies."""
    bad_values: int = 0
    """The number of sent values that are not of the application's format."""
    replayed: int = 0
    """Updates that mass replays delivered."""
    _stored_in: int = -1
    _offered: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MOST_OFFERED))

    def __post_init__(self) -> None:
        self.durable = self.marker

    @property
    def place(self) -> LogPosition:
        """The place up to which the log was sent or skipped."""
        return self.marker.order if self.caravan_flow is None else self.caravan_flow.place

    @property
    def acknowledged_to(self) -> Datamarker:
        """The place of the datamarker in the present history of the log, as soon as that is known. The datamarker
        itself stays in a former history until something is acknowledged in the present one.
        """
        reads = self.caravan_flow
        if reads is None or reads.begun.incarnation <= self.marker.order.incarnation:
            return self.marker
        return replace(self.marker, order=reads.begun)

    @property
    def needed(self) -> LogPosition:
        """The earliest place that has to stay in the log. The flow continues from its durable datamarker, or from one
        that was sent and is not durable yet, which is at the same or a later place."""
        acknowledged = self.marker if self.marker.order >= self.durable.order else self.durable
        kept = min(self.durable.read_from, acknowledged.read_from)
        return kept if self.caravan_flow is None else min(kept, self.caravan_flow.keeps(self.durable))

    # -- the datamarker

    @property
    def was_used(self) -> bool:
        """Whether the datamarker was ever acknowledged or moved since the flow was registered."""
        return self.acknowledged or self.move > 0

    def registered(self, record: StoredFlow) -> None:
        """Take the datamarker from the flow's record."""
        self.acknowledged = bool(record.filter_hash)
        self.rewound, self.move, self.last_ack = record.rewound, record.move, record.last_ack

    def refuses_later(self, move: int) -> bool:
        """Whether a later datamarker of the application, which it stored after ``move`` (0: unknown), is from before
        the datamarker was set back."""
        return refuses_later(self.move, rewound=self.rewound, known=move)

    @property
    def moving(self) -> bool:
        """Whether the datamarker is being set: the flow is not assigned meanwhile."""
        return self.moves_under_way > 0

    def begin_move(self) -> None:
        """The datamarker is being set: the flow is not assigned until :meth:`end_move`."""
        self.moves_under_way += 1

    def end_move(self) -> None:
        """The datamarker is set, or could not be."""
        self.moves_under_way -= 1

    def moved(self, to: Datamarker, move: int) -> None:
        """The datamarker was set. ``move``: the number of the last move now."""
        # A move without a new number does not count as setting back what was acknowledged meanwhile. Otherwise the
        # move would be repeated each time.
        before = self.durable.order if move == self.move else max(self.marker.order, self.durable.order)
        self.rewound |= to.order < before
        self.marker = self.durable = to
        self.move = move
        if self.last_ack is not None and self.last_ack.move == move:
            self.last_ack = min(self.last_ack, LastAck(move, to.order))

    def acked(self, marker: Datamarker) -> None:
        """A subscriber acknowledged everything up to ``marker``."""
        if marker != self.marker:
            self.last_ack = LastAck(self.move, marker.order)
        self.marker, self.acknowledged = marker, True

    def stored(self, marker: Datamarker, epoch: int) -> None:
        """``marker``, which a subscriber acknowledged in ``epoch``, is durable."""
        self.durable, self.rewound, self._stored_in = marker, False, epoch

    def has_stored(self, marker: Datamarker, epoch: int) -> bool:
        """Whether exactly this datamarker is durable: an idle flow acknowledges the same datamarker repeatedly."""
        return self._stored_in == epoch and self.durable == marker

    def offers(self, marker: Datamarker) -> None:
        """``marker`` is offered to the subscriber."""
        self._offered.append(_digest(marker))

    def was_offered(self, have: Datamarker) -> bool:
        """Whether this process offered the datamarker ``have``, or it is the flow's."""
        return _digest(have) in (_digest(self.marker), *self._offered)

    def may_have(self, have: Datamarker) -> bool:
        """Whether an application may have the datamarker ``have``, which another process may have offered it.

        The transaction before ``have`` proves it when the log is opened there. Without such a transaction the place
        has to lie within the log that may have been sent.
        """
        return have.anchor is not None or have.order <= max(self.marker.order, self.sent_until)

    # -- what is sent

    def begin(self, caravan_flow: CaravanFlow) -> None:
        """``caravan_flow`` reads the log's updates from now on."""
        self.caravan_flow = caravan_flow
        self.reported_rollback()

    def left(self) -> None:
        """No subscriber receives the log's updates."""
        if self.caravan_flow is not None:
            self.reached(self.caravan_flow.place)
        self.caravan_flow = None

    def reached(self, place: LogPosition) -> None:
        """Updates up to ``place`` may have been delivered."""
        self.sent_until = max(self.sent_until, place)

    def undone(self, transaction: str) -> None:
        """A transaction of which a part was sent was rolled back."""
        self.rolled_back = transaction

    def reported_rollback(self) -> None:
        """The subscriber accepted the assignment that reported it."""
        self.rolled_back = ""

    def sent(self, body: Body) -> None:
        """``body`` was written to the stream."""
        self.updates += body.updates
        self.sent_bytes += body.size
        self.bad_values += len(body.bad)
        self.sent_counts.sent(body)

    def count_replayed(self, updates: int) -> None:
        """A mass replay delivered this many more updates."""
        self.replayed += updates

    def count_sent(self, counts: SentCounts) -> None:
        """``counts`` counts what the epoch sends."""
        self.sent_counts = counts

    def close_sent_counts(self) -> SentCounts:
        """The epoch is over. Returns the counts of what it sent."""
        counts, self.sent_counts = self.sent_counts, NOT_COUNTED
        return counts
