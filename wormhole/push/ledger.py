"""What one epoch of a flow sent and was not acknowledged, for the flow's books. Pure; who pushes has one: the publisher, or a task of a
mass replay.

Nothing is done per update: a batch body brings the tally of its updates, shared by every flow that sends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wormhole.books import Counted
from wormhole.position import Datamarker, LogPosition
from wormhole.wire.body import Body, parse_body
from wormhole.wire.markers import position_from_message, position_to_message
from wormhole.wire.tally import Tally, added, update_hash, window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Ledger", "Settled"]


@dataclass(frozen=True, slots=True)
class Settled:
    """What lies between ``begin`` and a datamarker that was acknowledged. ``sent``: repeats included; ``counted``: of it, what the books do not
    have already; ``letters``: hashes of parked updates that were sent again, with their windows; ``told``: what the subscriber's ``life``
    (0: it does not count) processed or set aside, as it told since the last of these.

    ``partly``: only the last change of each key was sent, or what a filter beside the application's left: ``sent`` and ``counted`` say nothing.
    """

    begin: LogPosition
    sent: Mapping[int, Tally] = field(default_factory=dict)
    counted: Mapping[int, Tally] = field(default_factory=dict)
    letters: tuple[tuple[int, int], ...] = ()
    life: int = 0
    told: Mapping[int, Counted] = field(default_factory=dict)
    partly: bool = False

    def to_message(self) -> admin_pb2.Settled:
        """But for ``letters``: a replay has none."""
        message = admin_pb2.Settled(begin=position_to_message(self.begin), life=self.life, partly=self.partly)
        for window, tally in () if self.partly else self.sent.items():
            counted = self.counted.get(window, Tally())
            message.windows.add(window=window, sent=tally.updates, delivered=counted.updates, hash=counted.hash)
        for window, (updates, aside, hash_) in self.told.items():
            message.processed.add(window=window, updates=updates, set_aside=aside, set_aside_hash=hash_)
        return message

    @classmethod
    def from_message(cls, message: admin_pb2.Settled) -> Settled:
        """Inverse of :meth:`to_message`; the hash of what was sent again is not known."""
        sent = {one.window: Tally(one.sent, 0) for one in message.windows}
        counted = {one.window: Tally(one.delivered, one.hash) for one in message.windows if one.delivered}
        told = {one.window: (one.updates, one.set_aside, one.set_aside_hash) for one in message.processed}
        return cls(position_from_message(message.begin), sent, counted, (), message.life, told, message.partly)


@dataclass(slots=True)
class _Interval:
    """What was sent between two datamarkers. ``counted``: of it, what the books do not have already; ``returned``: of it, updates whose
    callbacks returned; ``letters``: hashes of parked updates that were sent again, with their windows."""

    sent: dict[int, Tally] = field(default_factory=dict)
    counted: dict[int, Tally] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    letters: list[tuple[int, int]] = field(default_factory=list)
    marker: Datamarker | None = None


class Ledger:
    """One epoch of one flow, from ``place`` on: what was sent and not acknowledged. Bounded by the credit and the datamarkers that may be open.

    ``counted_to``: up to where the books have it already. ``life``: of whom it is sent to, 0 when that does not count. ``partly``: see
    :class:`Settled`.
    """

    def __init__(self, place: LogPosition, counted_to: LogPosition | None, *, partly: bool = False) -> None:
        self.place = place
        self._partly = partly
        self.life = 0
        self.told: dict[int, Counted] = {}
        """What was told with the last answer, until it is booked."""
        self._counted_to = counted_to if counted_to is not None and counted_to > place else None
        self._open = _Interval()
        self._offered: deque[_Interval] = deque()
        self._flying: deque[tuple[int, _Interval, Mapping[int, Tally]]] = deque()

    def sent(self, number: int, body: Body) -> None:
        """Batch ``number`` went out."""
        tallies, interval = body.tallies, self._open
        self._flying.append((number, interval, tallies))
        added(interval.sent, tallies)
        if self._counted_to is None:
            added(interval.counted, tallies)
        else:
            added(interval.counted, _beyond(body, self._counted_to))

    def letter(self, number: int, body: bytes) -> None:
        """A parked update was sent again, by itself."""
        parsed = parse_body(body)
        source, _, transaction = parsed.transaction_id(0).rpartition(":")
        hash_ = update_hash(source, int(transaction), parsed.index_of(0))
        window = window_of(parsed.committed_at_us(0))
        self._flying.append((number, self._open, {window: Tally(1, hash_)}))
        self._open.letters.append((window, hash_))

    def offered(self, marker: Datamarker) -> None:
        """A datamarker went out behind all that."""
        self._open.marker = marker
        self._offered.append(self._open)
        self._open = _Interval()

    def returned(self, number: int) -> None:
        """Callbacks of all batches up to ``number`` have returned."""
        flying = self._flying
        while flying and flying[0][0] <= number:
            _, interval, tallies = flying.popleft()
            for window, tally in tallies.items():
                interval.returned[window] = interval.returned.get(window, 0) + tally.updates

    def heard(self, life: int, processed: Iterable[push_pb2.Processed]) -> None:
        """What the subscriber tells with an acknowledgement, or as it gives the flow back."""
        if life:
            self.life = life
            for one in processed:
                self.told[one.window] = (one.updates, one.set_aside, one.set_aside_hash)

    def take_told(self) -> dict[int, Counted]:
        """What was told since it was asked for last."""
        told, self.told = self.told, {}
        return told

    def acknowledged(self, marker: Datamarker) -> Settled | None:
        """All that was sent before ``marker``, and what was told; ``None`` when that was not offered here: the application has its own."""
        if all(interval.marker != marker for interval in self._offered):
            self.place = marker.order
            return None
        whole = _Interval()
        while True:
            interval = self._offered.popleft()
            added(whole.sent, interval.sent)
            added(whole.counted, interval.counted)
            whole.letters += interval.letters
            if interval.marker == marker:
                break
        if self._counted_to is not None and marker.order >= self._counted_to:
            self._counted_to = None
        begin, self.place = self.place, marker.order
        return Settled(
            begin, whole.sent, whole.counted, tuple(whole.letters), self.life, self.take_told(), self._partly
        )

    def unacknowledged(self) -> dict[int, int]:
        """Callbacks that returned, of updates that nobody acknowledged."""
        found: dict[int, int] = {}
        for interval in (*self._offered, self._open):
            for window, updates in interval.returned.items():
                found[window] = found.get(window, 0) + updates
        return found


def _beyond(body: Body, place: LogPosition) -> dict[int, Tally]:
    """Of a body, what lies behind ``place``: after a flow went back in the log what is sent is in the books already."""
    parsed = parse_body(body.data)
    found: dict[int, Tally] = {}
    for i in range(len(parsed.updates)):
        tx = parsed.transaction_of(i)
        at = parsed.position_of(tx)  # of an unfinished transaction where it begins
        if at > place or (at == place and tx >= len(parsed.tx_end)):
            source, _, number = parsed.transaction_id(tx).rpartition(":")
            one = Tally(1, update_hash(source, int(number), parsed.index_of(i)))
            added(found, {window_of(parsed.committed_at_us(tx)): one})
    return found
