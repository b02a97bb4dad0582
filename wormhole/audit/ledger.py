"""What one epoch of a flow sent and was not acknowledged, for the flow's books. Pure; who pushes has one: the
publisher, or a task of a mass replay.

Nothing is done per update: a batch body brings the tally of its updates, shared by every flow that sends it.

What a subscriber tells (:class:`~wormhole.audit.books.Counted`) it tells in order: at an acknowledgement it is what was
counted up to the datamarker and not beyond. So what it counted since the one before, less what was in vain, is the pass
over what lies between the two: each update of that has to be in it once. And when it is cut off, what it may have done
unheard is the rest of the pass that it was at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wormhole.audit.book_page import Counted, counted_from_messages, counted_to_messages
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.body import Body, parse_body
from wormhole.wire.markers import position_from_message, position_to_message
from wormhole.wire.tally import Tally, added, update_hash, window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Before", "CutOff", "Ledger", "Settled"]


@dataclass(frozen=True, slots=True)
class Before:
    """What the subscriber's life had counted before it took the flow, and in which epochs it had it."""

    counted: Mapping[int, Counted] = field(default_factory=dict)
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """What lies between ``begin`` and a datamarker that was acknowledged. ``sent``: repeats included; ``counted``: of
    it, what the books do not have already; ``letters``: hashes of parked updates that were sent again, with their
    windows; ``told``: what the subscriber's ``life`` (0: it does not count) processed or set aside, as it told since
    the last of these; ``passed``: of it, the pass that was acknowledged; ``before``: with the first of an epoch.

    ``partly``: only the last change of each key was sent, or what a filter beside the application's left: ``sent`` and
    ``counted`` say nothing.
    """

    begin: LogPosition
    sent: Mapping[int, Tally] = field(default_factory=dict)
    counted: Mapping[int, Tally] = field(default_factory=dict)
    letters: tuple[tuple[int, int], ...] = ()
    life: int = 0
    told: Mapping[int, Counted] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)
    before: Before | None = None
    partly: bool = False

    def then(self, later: Settled) -> Settled:
        """Both as one; ``later`` begins where this one ends."""
        sent, counted, passed = dict(self.sent), dict(self.counted), dict(self.passed)
        added(sent, later.sent)
        added(counted, later.counted)
        for window, updates in later.passed.items():
            passed[window] = passed.get(window, 0) + updates
        letters, told = (*self.letters, *later.letters), {**self.told, **later.told}
        return Settled(self.begin, sent, counted, letters, self.life, told, passed, self.before, self.partly)

    def to_message(self) -> admin_pb2.Settled:
        """But for ``letters``: a replay has none."""
        message = admin_pb2.Settled(begin=position_to_message(self.begin), life=self.life, partly=self.partly)
        for window, tally in () if self.partly else self.sent.items():
            counted, passed = self.counted.get(window, Tally()), self.passed.get(window, 0)
            message.windows.add(
                window=window, sent=tally.updates, delivered=counted.updates, hash=counted.hash, passed=passed
            )
        message.processed.extend(counted_to_messages(self.told))
        if self.before is not None:
            message.before.epochs.extend(self.before.epochs)
            message.before.processed.extend(counted_to_messages(self.before.counted))
        return message

    @classmethod
    def from_message(cls, message: admin_pb2.Settled) -> Settled:
        """Inverse of :meth:`to_message`; the hash of what was sent again is not known."""
        before = Before(counted_from_messages(message.before.processed), tuple(message.before.epochs))
        return cls(
            position_from_message(message.begin),
            {one.window: Tally(one.sent, 0) for one in message.windows},
            {one.window: Tally(one.delivered, one.hash) for one in message.windows if one.delivered},
            (),
            message.life,
            counted_from_messages(message.processed),
            {one.window: one.passed for one in message.windows},
            before if message.HasField("before") else None,
            message.partly,
        )


@dataclass(frozen=True, slots=True)
class CutOff:
    """How an epoch ended, beyond what was acknowledged: what its ``life`` told, and by window how much it may have done
    and not told (``unheard``), and how many updates were sent that the books do not have (``sent``).
    """

    life: int
    before: Before | None
    told: Mapping[int, Counted]
    unheard: Mapping[int, int]
    sent: Mapping[int, int]


@dataclass(slots=True)
class _Interval:
    """What was sent between two datamarkers. ``counted``: of it, what the books do not have already; ``letters``:
    hashes of parked updates that were sent again, with their windows.
    """

    sent: dict[int, Tally] = field(default_factory=dict)
    counted: dict[int, Tally] = field(default_factory=dict)
    letters: list[tuple[int, int]] = field(default_factory=list)
    marker: Datamarker | None = None


class Ledger:
    """One epoch of one flow, from ``place`` on: what was sent and not acknowledged. Bounded by the credit and the
    datamarkers that may be open.

    ``counted_to``: up to where the books have it already. ``life``: of whom it is sent to, 0 when that does not count.
    ``partly``: see :class:`Settled`.
    """

    def __init__(self, place: LogPosition, counted_to: LogPosition | None, *, partly: bool = False) -> None:
        self.place = place
        self._partly = partly
        self.life = 0
        self._before: Before | None = None
        self._told: dict[int, Counted] = {}  # what was told of each window last
        self._windows: set[int] = set()  # of all that was sent: a subscriber counts nothing else
        self._settled: dict[
            int, Counted
        ] = {}  # of windows that changed since: as they were when the present pass began
        self._counted_to = counted_to if counted_to is not None and counted_to > place else None
        self._open = _Interval()
        self._offered: deque[_Interval] = deque()

    def opened(self, life: int, processed: Iterable[push_pb2.Processed] = (), epochs: Iterable[int] = ()) -> None:
        """The subscriber takes the flow, and tells what its life counted before."""
        self.life = life
        if life:
            self._told = counted_from_messages(processed)
            self._before = Before(dict(self._told), tuple(epochs))

    def sent(self, body: Body) -> None:
        """A batch went out."""
        tallies, interval = body.tallies, self._open
        self._windows.update(tallies)
        added(interval.sent, tallies)
        if self._counted_to is None:
            added(interval.counted, tallies)
        else:
            added(interval.counted, _beyond(body, self._counted_to))

    def letter(self, body: bytes) -> None:
        """A parked update was sent again, by itself."""
        parsed = parse_body(body)
        source, _, transaction = parsed.transaction_id(0).rpartition(":")
        hash_ = update_hash(source, int(transaction), parsed.index_of(0))
        window = window_of(parsed.committed_at_us(0))
        self._windows.add(window)
        self._open.letters.append((window, hash_))

    def offered(self, marker: Datamarker) -> None:
        """A datamarker went out behind all that."""
        self._open.marker = marker
        self._offered.append(self._open)
        self._open = _Interval()

    def heard(self, processed: Iterable[push_pb2.Processed]) -> None:
        """What the subscriber tells with progress, with an acknowledgement, or as it gives the flow back. Windows of
        which it was sent nothing, in this epoch or before, are passed over.
        """
        if not self.life:
            return
        for window, counted in counted_from_messages(one for one in processed if self._counts(one.window)).items():
            self._settled.setdefault(window, self._told.get(window, Counted()))
            self._told[window] = counted

    def acknowledged(self, marker: Datamarker) -> Settled | None:
        """All that was sent before ``marker``, and what was told; ``None`` when that was not offered here: the
        application has its own.
        """
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
        passed, told, before = self._passed(), self._changed(), self._before
        self._settled, self._before = {}, None
        letters = tuple(whole.letters)
        return Settled(begin, whole.sent, whole.counted, letters, self.life, told, passed, before, self._partly)

    def cut_off(self, *, released: bool) -> CutOff:
        """The epoch is over. ``released``: the subscriber told all itself."""
        sent: dict[int, int] = {}
        counted: dict[int, int] = {}
        for interval in (*self._offered, self._open):
            for into, tallies in ((sent, interval.sent), (counted, interval.counted)):
                for window, tally in tallies.items():
                    into[window] = into.get(window, 0) + tally.updates
            for window, _ in interval.letters:
                sent[window] = sent.get(window, 0) + 1
        passed = self._passed()
        unheard = {} if released else {window: max(0, n - passed.get(window, 0)) for window, n in sent.items()}
        return CutOff(self.life, self._before, self._changed(), unheard, counted)

    def _counts(self, window: int) -> bool:
        return window in self._windows or window in self._told

    def _changed(self) -> dict[int, Counted]:
        return {window: self._told[window] for window in self._settled}

    def _passed(self) -> dict[int, int]:
        """Of each window, how much of the present pass was told."""
        return {
            window: (now := self._told[window]).all - then.all - (now.in_vain - then.in_vain)
            for window, then in self._settled.items()
        }


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
