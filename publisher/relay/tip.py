"""Who extends a relay, and by what: the decisions of the recorder. Pure.

The **tip** is the datamarker up to which everything was handed to the writer. One reader of the log at a time extends
it, the **recording reader**. A segment is recorded when its reader is at the tip, or across it: then it is cut.
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
    """What is known of the relay's log and that of the datastore."""

    UNKNOWN = auto()
    """Nothing yet since the start, or since the recording reader ended."""
    ONE = auto()
    """The datastore's log has the transaction at the tip."""
    PURGED = auto()
    """The datastore's log no longer reaches back to the tip."""
    DIVERGED = auto()
    """The datastore's log is another one."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A stretch begins at ``marker``, behind a hole."""

    marker: Datamarker


class Abandon(Enum):
    """The pieces of the unfinished transaction are forgotten."""

    ABANDON = auto()


class Clear(Enum):
    """The whole relay is of another log."""

    CLEAR = auto()


ABANDON: Final = Abandon.ABANDON
CLEAR: Final = Clear.CLEAR

Order = Segment | Begin | Abandon | Clear
"""What the writer does."""


class Tip:
    """See the module. Not thread-safe.

    ``fills``: a hole is filled from the datastore's log by somebody else, instead of a new stretch that begins behind
    it. ``largest``: bytes of one transaction that may be recorded.
    """

    def __init__(self, *, fills: bool, largest: int) -> None:
        self._fills = fills
        self._largest = largest
        self.marker: Datamarker | None = None
        self.proof = Proof.UNKNOWN
        self.recorder: object | None = None
        self.proving = False  # who records is just about to open the log at the tip
        self.filling = False  # who records fills a hole
        self.generation = 0  # rises when what was recorded is of another log
        self.holes = 0
        self.clearing = False  # the files of another log are about to be removed
        self.unfillable = False  # the hole behind the tip cannot be filled: the next reader begins a stretch
        self._readers: set[object] = set()
        self._ahead: dict[object, LogPosition] = {}  # readers behind a hole, with their place between transactions
        self._inside = 0  # bytes of the pieces of an unfinished transaction; 0: between transactions
        self._passing = False  # over what cannot be recorded, up to the next datamarker

    def opened(self, end: Datamarker | None) -> None:
        """The files were opened, and end there."""
        self.marker = end

    # -- readers

    def join(self, reader: object) -> None:
        """A reader of the datastore's log begins."""
        self._readers.add(reader)

    def leave(self, reader: object) -> list[Order]:
        """The reader ends, or lost its log: it records no more."""
        self._readers.discard(reader)
        self._ahead.pop(reader, None)
        if self.recorder is not reader:
            return []
        if self.proof is Proof.ONE:
            self.proof = Proof.UNKNOWN
        return self.give_up()

    def give_up(self) -> list[Order]:
        """Nobody records for now."""
        self.recorder, self.proving, self.filling, self._passing = None, False, False, False
        return self._abandon()

    def claim(self, reader: object, *, fills: bool = False) -> bool:
        """The reader is about to open the log at the tip, or for a first stretch; ``False``: somebody records.

        ``fills``: it ends where it comes to a reader behind the hole.
        """
        if self.recorder is not None:
            return False
        self.recorder, self.proving, self.filling = reader, True, fills
        return True

    def proved(self, reader: object, proof: Proof, to: object | None) -> None:
        """What came of a :meth:`claim`; ``to`` records from now on, which is at the tip."""
        if self.recorder is not reader:
            return
        self.proof, self.proving, self.recorder = proof, False, to
        if to is not None:
            self._readers.add(to)
        if proof is Proof.DIVERGED:
            self.generation += 1

    def distrust(self) -> list[Order]:
        """The datastore's log may be another one by now: who records has to show that it is not."""
        self.proof = Proof.UNKNOWN
        return self.give_up()

    # -- segments

    def offer(self, reader: object, segment: Segment, before: Datamarker | None, *, room: bool) -> list[Order]:
        """A reader read ``segment``; ``before`` is the datamarker at its begin, ``None`` inside a transaction.

        ``room``: the writer can take it.
        """
        if reader not in self._readers:
            return []  # it was closed meanwhile
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
        """Who records begins a stretch at ``marker``."""
        orders = self._cleared()
        self.holes += self.marker is not None
        self.marker, self.proof, self.unfillable = marker, Proof.ONE, False
        return [*orders, Begin(marker)]

    def lost(self, end: Datamarker | None) -> list[Order]:
        """The writer lost what it had taken: the relay ends at ``end``."""
        self.give_up()
        self.marker = end
        if self.clearing:  # that was not done: who records next orders it again
            self.clearing, self.proof = False, Proof.DIVERGED
        return [ABANDON]

    @property
    def serves(self) -> bool:
        """Whether the files may be read: they are not of another log than the datastore's."""
        return self.proof is not Proof.DIVERGED and not self.clearing

    @property
    def is_doubtful(self) -> bool:
        """Whether the log has to be compared with what was recorded before more is, behind a hole."""
        return self.recorder is None and self.marker is not None and self.proof is Proof.UNKNOWN

    @property
    def needs_filling(self) -> bool:
        """Whether a reader is behind a hole that nobody fills."""
        if not self._fills or self.unfillable or self.recorder is not None:
            return False
        tip = self.marker
        return any(tip is None or place > tip.order for place in self._ahead.values())

    @property
    def met(self) -> bool:
        """Whether who fills the hole has come to a reader behind it, or none is left."""
        tip = self.marker
        return not self._inside and (tip is None or all(place <= tip.order for place in self._ahead.values()))

    def meet(self) -> None:
        """The one who filled the hole ends; a reader that is just at the tip records on."""
        tip = self.marker
        at_tip = [reader for reader, place in self._ahead.items() if tip is not None and place == tip.order]
        self._ahead.clear()
        self.recorder, self.filling = at_tip[0] if at_tip else None, False

    # -- inside

    def _crosses(self, segment: Segment) -> bool:
        """Whether the tip, now that it is between transactions, lies at or in the segment."""
        tip = self.marker
        proven = not self.proving and not self._inside and not self._passing
        return proven and tip is not None and segment.begin <= tip.order <= segment.end

    def _lacks_begin(self, reader: object, segment: Segment, before: Datamarker) -> bool:
        """Whether log is missing before the segment and it begins where no datamarker is known.

        A flow at that place would not be found in a relay that goes on behind the gap, and the datastore would give the
        place up. Who fills holes finds the datamarker there, and begins a stretch.
        """
        if segment.gap is None or not self._fills or (self.filling and self.recorder is reader):
            return False
        return segment.begin not in (before.order, segment.end)

    def _take(self, reader: object, segment: Segment, before: Datamarker) -> list[Order] | None:
        """What a reader that does not record yet begins with; ``None``: nothing."""
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
        """Whether the segment, in which or at whose begin the tip lies, is of the log that was recorded."""
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
        """What cannot be recorded leaves a hole up to the next datamarker, where a stretch begins."""
        orders = self._abandon()
        self._passing = segment.marker is None
        return orders if segment.marker is None else [*orders, *self.begin(segment.marker)]

    def _abandon(self) -> list[Order]:
        inside, self._inside = self._inside, 0
        return [ABANDON] if inside else []

    def _cleared(self) -> list[Order]:
        if self.proof is not Proof.DIVERGED:
            return []
        self.clearing = True  # before :attr:`proof` is another, so that :attr:`serves` is never true in between
        self.marker = None
        return [CLEAR]
