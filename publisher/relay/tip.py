"""Decides for the recorder which reader extends a relay, and by which segments. Pure.

The **tip** is the datamarker up to which all log was given to the writer. One reader at a time, the **recording
reader**, extends it. A segment is recorded if it begins at the tip. A segment that contains the tip is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from publisher.relay.record import Record, cut, proves
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment

__all__ = ["ABANDON", "CLEAR", "Abandon", "Begin", "Clear", "Order", "Proof", "Tip"]


class Proof(Enum):
    """Whether the datastore's log is the log that the relay records, as far as known."""

    UNKNOWN = auto()
    """It was not checked since the start, or since the recording reader ended."""
    ONE = auto()
    """The datastore's log has the transaction at the tip."""
    PURGED = auto()
    """The datastore's log no longer reaches back to the tip."""
    DIVERGED = auto()
    """The datastore has another log."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a stretch at ``marker``, after a hole."""

    marker: Datamarker


class Abandon(Enum):
    """Discard the pieces of the unfinished transaction."""

    ABANDON = auto()


class Clear(Enum):
    """Remove all files, because the relay belongs to another log."""

    CLEAR = auto()


ABANDON: Final = Abandon.ABANDON
CLEAR: Final = Clear.CLEAR

Order = Segment | Begin | Abandon | Clear
"""An order to the writer."""


class Tip:
    """See the module. Not thread-safe.

    ``fills``: whether another thread fills holes from the datastore's log. Otherwise a new stretch begins after a hole.
    ``largest``: the most bytes of a recorded transaction.
    """

    def __init__(self, *, fills: bool, largest: int) -> None:
        self._fills = fills
        self._largest = largest
        self.marker: Datamarker | None = None
        self.proof = Proof.UNKNOWN
        self.recorder: object | None = None
        self.proving = False  # the recording reader is about to open the log at the tip
        self.filling = False  # the recording reader fills a hole
        self.generation = 0  # rises when the recorded log turns out to be another one
        self.holes = 0
        self.clearing = False  # the files of another log are about to be removed
        self.unfillable = False  # the hole after the tip cannot be filled: the next reader begins a stretch
        self._readers: set[object] = set()
        self._ahead: dict[object, LogPosition] = {}  # readers after a hole, and their last place between transactions
        self._inside = 0  # bytes of the pieces of an unfinished transaction; 0: between transactions
        self._passing = False  # log that cannot be recorded is skipped up to the next datamarker

    def opened(self, end: Datamarker | None) -> None:
        """Note that the files were opened and end at ``end``."""
        self.marker = end

    # -- readers

    def join(self, reader: object) -> None:
        """Add a reader of the datastore's log."""
        self._readers.add(reader)

    def leave(self, reader: object) -> list[Order]:
        """Remove a reader that ended, or whose log is gone."""
        self._readers.discard(reader)
        self._ahead.pop(reader, None)
        if self.recorder is not reader:
            return []
        if self.proof is Proof.ONE:
            self.proof = Proof.UNKNOWN
        return self.give_up()

    def give_up(self) -> list[Order]:
        """Stop recording until another reader begins to record."""
        self.recorder, self.proving, self.filling, self._passing = None, False, False, False
        return self._abandon()

    def claim(self, reader: object, *, fills: bool = False) -> bool:
        """Claim the tip for a reader that is about to open the log there, or for a first stretch. Returns ``False`` if
        another reader records.

        ``fills``: whether the reader fills a hole, and ends when it reaches a reader after the hole.
        """
        if self.recorder is not None:
            return False
        self.recorder, self.proving, self.filling = reader, True, fills
        return True

    def proved(self, reader: object, proof: Proof, to: object | None) -> None:
        """Note the result of a :meth:`claim`. ``to``: the reader at the tip that records from now on."""
        if self.recorder is not reader:
            return
        self.proof, self.proving, self.recorder = proof, False, to
        if to is not None:
            self._readers.add(to)
        if proof is Proof.DIVERGED:
            self.generation += 1

    def distrust(self) -> list[Order]:
        """Note that the datastore may have another log now. The next recording reader has to check that."""
        self.proof = Proof.UNKNOWN
        return self.give_up()

    # -- segments

    def offer(self, reader: object, segment: Segment, before: Datamarker | None, *, room: bool) -> list[Order]:
        """The orders for a ``segment`` that a reader read. ``before``: the datamarker at its beginning; ``None`` inside
        a transaction.

        ``room``: whether the writer's queue has space for it.
        """
        if reader not in self._readers:
            return []  # the reader was closed meanwhile
        if before is not None and self._lacks_begin(reader, segment, before):
            given_up = self.give_up() if self.recorder is reader else []
            self.unfillable = False
            self._look_ahead(reader, segment)
            return given_up
        orders: list[Order] | None = None
        if self.recorder is reader and room:
            return self._extend(segment, before)
        if self.recorder is reader:
            given_up = self.give_up()
            self._look_ahead(reader, segment)
            return given_up
        if before is not None and room and (self.recorder is None or (self.filling and self._crosses(segment))):
            orders = self._take(reader, segment, before)
        if orders is None:
            self._look_ahead(reader, segment)
        return orders or []

    def _look_ahead(self, reader: object, segment: Segment) -> None:
        self._ahead.pop(reader, None)
        if segment.marker is not None and (self.marker is None or segment.end > self.marker.order):
            self._ahead[reader] = segment.end

    def begin(self, marker: Datamarker) -> list[Order]:
        """The orders to begin a stretch at ``marker`` with the recording reader."""
        orders = self._cleared()
        self.holes += self.marker is not None
        self.marker, self.proof, self.unfillable = marker, Proof.ONE, False
        return [*orders, Begin(marker)]

    def lost(self, end: Datamarker | None) -> list[Order]:
        """The orders after the writer lost records, so that the relay ends at ``end``."""
        self.give_up()
        self.marker = end
        if self.clearing:  # the files were not removed: the next recording reader orders their removal again
            self.clearing, self.proof = False, Proof.DIVERGED
        return [ABANDON]

    @property
    def serves(self) -> bool:
        """Whether the files may be read, because they are not known to belong to another log."""
        return self.proof is not Proof.DIVERGED and not self.clearing

    @property
    def is_doubtful(self) -> bool:
        """Whether the datastore's log has to be compared with the recorded log before recording continues."""
        return self.recorder is None and self.marker is not None and self.proof is Proof.UNKNOWN

    @property
    def needs_filling(self) -> bool:
        """Whether a reader is after a hole that is not being filled."""
        if not self._fills or self.unfillable or self.recorder is not None:
            return False
        tip = self.marker
        return any(tip is None or place > tip.order for place in self._ahead.values())

    @property
    def met(self) -> bool:
        """Whether the filler has reached a reader after the hole, or no such reader is left."""
        tip = self.marker
        return not self._inside and (tip is None or all(place <= tip.order for place in self._ahead.values()))

    def meet(self) -> None:
        """End the filling. A reader that is exactly at the tip records from now on."""
        tip = self.marker
        at_tip = [reader for reader, place in self._ahead.items() if tip is not None and place == tip.order]
        self._ahead.clear()
        self.recorder, self.filling = at_tip[0] if at_tip else None, False

    # -- inside

    def _crosses(self, segment: Segment) -> bool:
        """Whether the tip is between transactions, and is at the segment's beginning or inside the segment."""
        tip = self.marker
        proven = not self.proving and not self._inside and not self._passing
        return proven and tip is not None and segment.begin <= tip.order <= segment.end

    def _lacks_begin(self, reader: object, segment: Segment, before: Datamarker) -> bool:
        """Whether log is missing before the segment, and no datamarker is known where the segment begins.

        The relay could not serve a flow at that place, although the datastore would delete its log there. So the filler
        finds the datamarker of the place and begins a stretch.
        """
        if segment.gap is None or not self._fills or (self.filling and self.recorder is reader):
            return False
        return segment.begin not in (before.order, segment.end)

    def _take(self, reader: object, segment: Segment, before: Datamarker) -> list[Order] | None:
        """The orders with which a reader begins to record; ``None``: it does not begin."""
        tip = self.marker
        if tip is not None and self.proof is not Proof.DIVERGED:
            same = self.proof is not Proof.PURGED
            if before.order < tip.order:
                whole = segment.marker is not None and not segment.broken and segment.gap is None
                if not same or not whole or segment.end < tip.order or not self._shows(segment, before):
                    return None
                self._become(reader)
                return [] if segment.end == tip.order else self._extend(cut(segment, tip.order), tip)
            if before.order == tip.order and same:
                if not self._shows(segment, before):
                    return None
                self._become(reader)
                return self._extend(segment, before)
        if (self._fills and not self.unfillable) or self.is_doubtful:
            return None
        orders = self.begin(before)
        self._become(reader)
        return [*orders, *self._extend(segment, before)]

    def _shows(self, segment: Segment, before: Datamarker) -> bool:
        """Whether a segment that contains the tip, or begins there, belongs to the recorded log."""
        tip = self.marker
        assert tip is not None
        if self.proof is Proof.ONE:
            return True
        if before.order == tip.order:
            return before.anchor == tip.anchor
        return proves(Record(segment), before.anchor, tip)

    def _become(self, reader: object) -> None:
        self.recorder, self.proof, self.proving, self.filling = reader, Proof.ONE, False, False
        self._ahead.clear()

    def _extend(self, segment: Segment, before: Datamarker | None) -> list[Order]:
        jumped = before is not None and segment.begin != before.order and segment.gap is None
        if jumped or segment.broken or self._passing or self._inside + segment.size > self._largest:
            return self._pass(segment)
        if segment.marker is None:
            self._inside += max(1, segment.size)
        else:
            self._inside = 0
            self.marker = segment.marker
        return [segment]

    def _pass(self, segment: Segment) -> list[Order]:
        """Skip a segment that cannot be recorded. This leaves a hole up to the next datamarker, where a stretch
        begins."""
        orders = self._abandon()
        self._passing = segment.marker is None
        return orders if segment.marker is None else [*orders, *self.begin(segment.marker)]

    def _abandon(self) -> list[Order]:
        inside, self._inside = self._inside, 0
        return [ABANDON] if inside else []

    def _cleared(self) -> list[Order]:
        if self.proof is not Proof.DIVERGED:
            return []
        self.clearing = True  # set before :attr:`proof`, so that :attr:`serves` is never true in between
        self.marker = None
        return [CLEAR]
