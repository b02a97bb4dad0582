"""The progress of a flow's delivery: its datamarkers, its reader of the log, and the counts of sent updates."""

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

_MOST_OFFERED: Final = 256  # remembered datamarkers of a flow: more than can be unacknowledged


def _digest(marker: Datamarker) -> bytes:
    return hashlib.blake2b(marker_to_bytes(marker), digest_size=8).digest()


@dataclass(slots=True, eq=False)
class FlowDelivery:
    """See the module. Other modules read the attributes and change them only through the methods."""

    marker: Datamarker
    """The last acknowledged datamarker."""
    sent_until: LogPosition
    """Updates that end at or before this place may have been delivered before."""
    durable: Datamarker = field(init=False)
    """The last datamarker that the marker store confirmed."""
    acknowledged: bool = True
    """Whether a subscriber acknowledged the flow. If not, the datamarker is the place where the flow was registered or
    set."""
    rewound: bool = False
    """Whether the datamarker was set back and no later acknowledgement was stored."""
    move: int = 0
    """The number of the last move of the datamarker that the application did not request; 0 without one."""
    last_ack: LastAck | None = None
    """The last acknowledgement that changed the datamarker; ``None`` if it is not known."""
    moves_under_way: int = 0
    """How many changes of the datamarker are under way."""
    caravan_flow: CaravanFlow | None = None
    """The flow in its caravan, which reads the log for it; ``None`` unless a subscriber receives the log's updates."""
    rolled_back: str = ""
    """Id of a transaction that was rolled back after a part of it was sent. The next assignment reports it."""
    sent_counts: SentCounts = NOT_COUNTED
    """The counts of the updates that were sent in this epoch."""
    updates: int = 0
    """Updates that were sent."""
    sent_bytes: int = 0
    """Bytes of their bodies."""
    bad_values: int = 0
    """The number of sent values that do not have the declared format."""
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
        """The datamarker, with its place in the present history of the log once that place is known. The datamarker
        itself keeps a place of the former history until an ack arrives for the present one.
        """
        reads = self.caravan_flow
        if reads is None or reads.begun.incarnation <= self.marker.order.incarnation:
            return self.marker
        return replace(self.marker, order=reads.begun)

    @property
    def needed(self) -> LogPosition:
        """The earliest place that has to stay in the log: where the flow continues after a restart."""
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
        """Whether a later datamarker of the application is outdated, because the flow's datamarker was set back since.

        ``move``: the flow's move after which the application stored its datamarker; 0: unknown."""
        return refuses_later(self.move, rewound=self.rewound, known=move)

    @property
    def moving(self) -> bool:
        """Whether the datamarker is being set. The flow is not assigned meanwhile."""
        return self.moves_under_way > 0

    def begin_move(self) -> None:
        """Begin to set the datamarker. The flow is not assigned until :meth:`end_move`."""
        self.moves_under_way += 1

    def end_move(self) -> None:
        """End the setting of the datamarker, whether it succeeded or failed."""
        self.moves_under_way -= 1

    def moved(self, to: Datamarker, move: int) -> None:
        """Take over a stored move to the datamarker ``to``. ``move``: the number of the last move now."""
        # A move without a new number goes back only if it is before the durable datamarker. Otherwise the move would be
        # repeated each time.
        before = self.durable.order if move == self.move else max(self.marker.order, self.durable.order)
        self.rewound |= to.order < before
        self.marker = self.durable = to
        self.move = move
        if self.last_ack is not None and self.last_ack.move == move:
            self.last_ack = min(self.last_ack, LastAck(move, to.order))

    def acked(self, marker: Datamarker) -> None:
        """Note that a subscriber acknowledged everything up to ``marker``."""
        if marker != self.marker:
            self.last_ack = LastAck(self.move, marker.order)
        self.marker, self.acknowledged = marker, True

    def stored(self, marker: Datamarker, epoch: int) -> None:
        """Note that ``marker``, which a subscriber acknowledged in ``epoch``, is durable."""
        self.durable, self.rewound, self._stored_in = marker, False, epoch

    def has_stored(self, marker: Datamarker, epoch: int) -> bool:
        """Whether this datamarker is durable already. An idle flow acknowledges the same datamarker repeatedly."""
        return self._stored_in == epoch and self.durable == marker

    def offers(self, marker: Datamarker) -> None:
        """Note that ``marker`` is offered to the subscriber."""
        self._offered.append(_digest(marker))

    def was_offered(self, have: Datamarker) -> bool:
        """Whether ``have`` is the flow's datamarker, or this process offered it."""
        return _digest(have) in (_digest(self.marker), *self._offered)

    def may_have(self, have: Datamarker) -> bool:
        """Whether the application's datamarker ``have`` may be genuine although this process did not offer it.

        If ``have`` names the transaction before it, opening the log there proves it. Otherwise the place has to lie
        within the log that may have been sent.
        """
        return have.anchor is not None or have.order <= max(self.marker.order, self.sent_until)

    # -- what is sent

    def begin(self, caravan_flow: CaravanFlow) -> None:
        """Read the log's updates through ``caravan_flow`` from now on."""
        self.caravan_flow = caravan_flow
        self.reported_rollback()

    def left(self) -> None:
        """Note that no subscriber receives the log's updates any more."""
        if self.caravan_flow is not None:
            self.reached(self.caravan_flow.place)
        self.caravan_flow = None

    def reached(self, place: LogPosition) -> None:
        """Note that updates up to ``place`` may have been delivered."""
        self.sent_until = max(self.sent_until, place)

    def undone(self, transaction: str) -> None:
        """Note that a transaction was rolled back after a part of it was sent."""
        self.rolled_back = transaction

    def reported_rollback(self) -> None:
        """Note that the subscriber accepted the assignment that reported the rollback."""
        self.rolled_back = ""

    def sent(self, body: Body) -> None:
        """Count ``body``, which was written to the stream."""
        self.updates += body.updates
        self.sent_bytes += body.size
        self.bad_values += len(body.bad)
        self.sent_counts.sent(body)

    def count_replayed(self, updates: int) -> None:
        """Add the number of ``updates`` that a mass replay delivered."""
        self.replayed += updates

    def count_sent(self, counts: SentCounts) -> None:
        """Count the updates that the epoch sends in ``counts``."""
        self.sent_counts = counts

    def close_sent_counts(self) -> SentCounts:
        """End the counts of the epoch. Returns the counts of the updates that it sent."""
        counts, self.sent_counts = self.sent_counts, NOT_COUNTED
        return counts
