"""The updates that one epoch of a flow sent, and its subscriber's reports, until the updates are acknowledged. Pure.
The publisher and a task of a mass replay use it.

No work is done per update: a batch body has the counts of its updates, shared by every flow that sends it.

A subscriber reports its counts in order. At an acknowledgement it reports its counts up to the datamarker and not
beyond. So its counts since the previous acknowledgement, less the rolled back ones, are one pass over the updates
between the two: each of them has to be included once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wormhole.audit.window_counts import ProcessedCount, processed_from_messages, processed_to_messages
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.body import Body, parse_body
from wormhole.wire.markers import position_from_message, position_to_message
from wormhole.wire.tally import Tally, added, update_hash, window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["NOT_COUNTED", "EarlierCounts", "EndedEpoch", "SentCounts", "Settled"]


@dataclass(frozen=True, slots=True)
class EarlierCounts:
    """The counts of the subscriber's life before it accepted the flow, and the epochs in which it had the flow."""

    counted: Mapping[int, ProcessedCount] = field(default_factory=dict)
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """The updates between ``begin`` and an acknowledged datamarker.

    ``sent``: all that were sent, repeats included. ``counted``: those of them that were not counted as delivered
    before. ``letters``: hashes of parked updates that were sent again, with their windows. ``reported``: the updates
    that the subscriber's ``life`` (0: it keeps no counts) processed or set aside, as reported since the last
    acknowledgement. ``passed``: the part of ``reported`` in the acknowledged pass. ``before``: the life's counts before
    the epoch, only in the first one of an epoch.

    ``partial``: only the last change of each key was sent, or only updates that a filter in addition to the
    application's selected. Then ``sent`` and ``counted`` have no meaning.
    """

    begin: LogPosition
    sent: Mapping[int, Tally] = field(default_factory=dict)
    counted: Mapping[int, Tally] = field(default_factory=dict)
    letters: tuple[tuple[int, int], ...] = ()
    life: int = 0
    reported: Mapping[int, ProcessedCount] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)
    before: EarlierCounts | None = None
    partial: bool = False

    def then(self, later: Settled) -> Settled:
        """Both as one; ``later`` begins where this one ends."""
        sent, counted, passed = dict(self.sent), dict(self.counted), dict(self.passed)
        added(sent, later.sent)
        added(counted, later.counted)
        for window, updates in later.passed.items():
            passed[window] = passed.get(window, 0) + updates
        letters, reported = (*self.letters, *later.letters), {**self.reported, **later.reported}
        return Settled(self.begin, sent, counted, letters, self.life, reported, passed, self.before, self.partial)

    def to_message(self) -> admin_pb2.Settled:
        """The message, without ``letters``: a replay has none."""
        message = admin_pb2.Settled(begin=position_to_message(self.begin), life=self.life, partly=self.partial)
        for window, tally in () if self.partial else self.sent.items():
            counted, passed = self.counted.get(window, Tally()), self.passed.get(window, 0)
            message.windows.add(
                window=window, sent=tally.updates, delivered=counted.updates, hash=counted.hash, passed=passed
            )
        message.processed.extend(processed_to_messages(self.reported))
        if self.before is not None:
            message.before.epochs.extend(self.before.epochs)
            message.before.processed.extend(processed_to_messages(self.before.counted))
        return message

    @classmethod
    def from_message(cls, message: admin_pb2.Settled) -> Settled:
        """Inverse of :meth:`to_message`. The hashes of updates that were sent again are not known."""
        before = EarlierCounts(processed_from_messages(message.before.processed), tuple(message.before.epochs))
        return cls(
            position_from_message(message.begin),
            {one.window: Tally(one.sent, 0) for one in message.windows},
            {one.window: Tally(one.delivered, one.hash) for one in message.windows if one.delivered},
            (),
            message.life,
            processed_from_messages(message.processed),
            {one.window: one.passed for one in message.windows},
            before if message.HasField("before") else None,
            message.partly,
        )


@dataclass(frozen=True, slots=True)
class EndedEpoch:
    """The end of an epoch, beyond the acknowledged updates.

    The reports of its ``life``, and by window the updates that were sent and not counted as delivered (``sent``).
    """

    life: int
    before: EarlierCounts | None
    reported: Mapping[int, ProcessedCount]
    sent: Mapping[int, Tally]


@dataclass(slots=True)
class _Interval:
    """The updates that were sent between two datamarkers.

    ``counted``: those of them that were not counted as delivered before. ``letters``: hashes of parked updates that
    were sent again, with their windows.
    """

    sent: dict[int, Tally] = field(default_factory=dict)
    counted: dict[int, Tally] = field(default_factory=dict)
    letters: list[tuple[int, int]] = field(default_factory=list)
    marker: Datamarker | None = None


class SentCounts:
    """One epoch of one flow, from ``place`` on: updates that were sent and not acknowledged.

    Its size is bounded by the credit and the datamarkers that may be open. A subscriber reports nothing before
    :meth:`opened`. ``counted_to``: the place up to which deliveries are counted already. ``partial``: see
    :class:`Settled`.
    """

    def __init__(self, place: LogPosition, counted_to: LogPosition | None = None, *, partial: bool = False) -> None:
        self.place = place
        self.life = 0
        """The life of the subscriber; 0: it keeps no counts."""
        self._partial = partial
        self._before: EarlierCounts | None = None
        self._reported: dict[int, ProcessedCount] = {}  # the last report of each window
        self._windows: set[int] = set()  # windows of the sent updates: a subscriber counts no others
        self._pass_began: dict[int, ProcessedCount] = {}  # earlier counts of the windows that changed in this pass
        self._counted_to = counted_to if counted_to is not None and counted_to > place else None
        self._open = _Interval()
        self._offered: deque[_Interval] = deque()

    def opened(self, life: int, processed: Iterable[push_pb2.Processed] = (), epochs: Iterable[int] = ()) -> None:
        """The subscriber accepts the flow, and reports the earlier counts of its life."""
        self.life = life
        if life:
            self._reported = processed_from_messages(processed)
            self._before = EarlierCounts(dict(self._reported), tuple(epochs))

    def sent(self, body: Body) -> None:
        """A batch was sent."""
        tallies, interval = body.tallies, self._open
        self._windows.update(tallies)
        added(interval.sent, tallies)
        added(interval.counted, tallies if self._counted_to is None else _beyond(body, self._counted_to))

    def letter(self, body: bytes) -> None:
        """A parked update was sent again, by itself."""
        parsed = parse_body(body)
        source, _, transaction = parsed.transaction_id(0).rpartition(":")
        hash_ = update_hash(source, int(transaction), parsed.index_of(0))
        window = window_of(parsed.committed_at_us(0))
        self._windows.add(window)
        self._open.letters.append((window, hash_))

    def offered(self, marker: Datamarker) -> None:
        """A datamarker was sent after all that."""
        self._open.marker = marker
        self._offered.append(self._open)
        self._open = _Interval()

    def reported(self, processed: Iterable[push_pb2.Processed]) -> None:
        """The subscriber's report with progress, with an acknowledgement, or with the release of the flow.

        Windows of which it was sent no update, in this epoch or before, are ignored.
        """
        if not self.life:
            return
        known = (one for one in processed if one.window in self._windows or one.window in self._reported)
        for window, counted in processed_from_messages(known).items():
            self._pass_began.setdefault(window, self._reported.get(window, ProcessedCount()))
            self._reported[window] = counted

    def acknowledged(self, marker: Datamarker) -> Settled | None:
        """All that was sent before ``marker``, and all reports. ``None`` when the marker was not offered here: the
        application keeps its own.
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
        before, self._before = self._before, None
        reported = self._new_reports()
        passed: dict[int, int] = {}
        for window, now in reported.items():
            then = self._pass_began[window]
            passed[window] = now.all - then.all - (now.rolled_back - then.rolled_back)
        self._pass_began = {}
        letters = tuple(whole.letters)
        return Settled(begin, whole.sent, whole.counted, letters, self.life, reported, passed, before, self._partial)

    def ended(self) -> EndedEpoch:
        """The epoch is over."""
        sent: dict[int, Tally] = {}
        for interval in (*self._offered, self._open):
            added(sent, interval.counted)
        return EndedEpoch(self.life, self._before, self._new_reports(), sent)

    def _new_reports(self) -> dict[int, ProcessedCount]:
        return {window: self._reported[window] for window in self._pass_began}


class _NotCounted(SentCounts):
    def opened(self, life: int, processed: Iterable[push_pb2.Processed] = (), epochs: Iterable[int] = ()) -> None:
        pass

    def sent(self, body: Body) -> None:
        pass

    def letter(self, body: bytes) -> None:
        pass

    def offered(self, marker: Datamarker) -> None:
        pass


NOT_COUNTED: Final = _NotCounted(LogPosition(0, 0, 0))
"""Counts nothing, for a flow without a subscriber."""


def _beyond(body: Body, place: LogPosition) -> dict[int, Tally]:
    """The tallies of a body's updates after ``place``. Updates that a flow repeats after it was set back are counted
    already.
    """
    found: dict[int, Tally] = {}
    if body.last is not None and (body.last < place or (body.last == place and not body.unfinished)):
        return found  # true for nearly every body of a replay; reading each update would cost as much as pushing it
    parsed = parse_body(body.data)
    for i in range(len(parsed.updates)):
        tx = parsed.transaction_of(i)
        at = parsed.position_of(tx)  # for an unfinished transaction, the place where it begins
        if at > place or (at == place and tx >= len(parsed.tx_end)):
            source, _, number = parsed.transaction_id(tx).rpartition(":")
            one = Tally(1, update_hash(source, int(number), parsed.index_of(i)))
            added(found, {window_of(parsed.committed_at_us(tx)): one})
    return found
