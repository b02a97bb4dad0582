"""Which reader extends a relay, and by which segments: the decisions of the recorder. Pure.

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
    """What is known about the relay's log and the datastore's."""

    UNKNOWN = auto()
    """Nothing is known since the start, or since the recording reader ended."""
    ONE = auto()
    """The datastore's log has the transaction at the tip."""
    PURGED = auto()
    """The datastore's log no longer reaches back to the tip."""
    DIVERGED = auto()
    """The datastore's log is another one."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A stretch begins at ``marker``, after a hole."""

    marker: Datamarker


class Abandon(Enum):
    """The pieces of the unfinished transaction are discarded."""

    ABANDON = auto()


class Clear(Enum):
    """The whole relay belongs to another log."""

    CLEAR = auto()


ABANDON: Final = Abandon.ABANDON
CLEAR: Final = Clear.CLEAR

Order = Segment | Begin | Abandon | Clear
"""An order to the writer."""


class Tip:
    """See the module. Not thread-safe.

    ``fills``: whether another thread fills a hole from the datastore's log; otherwise a new stretch begins after the
    hole. ``largest``: the most bytes of one transaction that is recorded.
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
        self._ahead: dict[object, LogPosition] = {}  # readers after a hole, with their place between transactions
        self._inside = 0  # bytes of the pieces of an unfinished transaction; 0: between transactions
        self._passing = False  # log that cannot be recorded is skipped up to the next datamarker

    def opened(self, end: Datamarker | None) -> None:
        """The files were opened, and end at ``end``."""
        self.marker = end

    # -- readers

    def join(self, reader: object) -> None:
        """A reader of the datastore's log begins."""
        self._readers.add(reader)

    def leave(self, reader: object) -> list[Order]:
        """The reader ends, or lost its log: it no longer records."""
        self._readers.discard(reader)
        self._ahead.pop(reader, None)
        if self.recorder is not reader:
            return []
        if self.proof is Proof.ONE:
            self.proof = Proof.UNKNOWN
        return self.give_up()

    def give_up(self) -> list[Order]:
        """No reader records for now."""
        self.recorder, self.proving, self.filling, self._passing = None, False, False, False
        return self._abandon()

    def claim(self, reader: object, *, fills: bool = False) -> bool:
        """The reader is about to open the log at the tip, or for a first stretch. Returns ``False`` if another reader
        records.

        ``fills``: it ends where it reaches a reader after the hole.
        """
        if self.recorder is not None:
            return False
        self.recorder, self.proving, self.filling = reader, True, fills
        return True

    def proved(self, reader: object, proof: Proof, to: object | None) -> None:
        """The result of a :meth:`claim`. ``to``, which is at the tip, records from now on."""
        if self.recorder is not reader:
            return
        self.proof, self.proving, self.recorder = proof, False, to
        if to is not None:
            self._readers.add(to)
        if proof is Proof.DIVERGED:
            self.generation += 1

    def distrust(self) -> list[Order]:
        """The datastore's log may be another one by now: the next recording reader has to prove that it is not."""
        self.proof = Proof.UNKNOWN
        return self.give_up()

    # -- segments

    def offer(self, reader: object, segment: Segment, before: Datamarker | None, *, room: bool) -> list[Order]:
        """A reader read ``segment``; ``before`` is the datamarker at its beginning, ``None`` inside a transaction.

        ``room``: whether the writer can take it.
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
        """The recording reader begins a stretch at ``marker``."""
        orders = self._cleared()
        self.holes += self.marker is not None
        self.marker, self.proof, self.unfillable = marker, Proof.ONE, False
        return [*orders, Begin(marker)]

    def lost(self, end: Datamarker | None) -> list[Order]:
        """The writer lost what it had taken: the relay ends at ``end``."""
        self.give_up()
        self.marker = end
        if self.clearing:  # the files were not removed: the next recording reader orders it again
            self.clearing, self.proof = False, Proof.DIVERGED
        return [ABANDON]

    @property
    def serves(self) -> bool:
        """Whether the files may be read, because they do not belong to another log than the datastore's."""
        return self.proof is not Proof.DIVERGED and not self.clearing

    @property
    def is_doubtful(self) -> bool:
        """Whether the log has to be compared with the recorded log before recording continues after a hole."""
        return self.recorder is None and self.marker is not None and self.proof is Proof.UNKNOWN

    @property
    def needs_filling(self) -> bool:
        """Whether a reader is after a hole that no thread fills."""
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
        """The filler ends. A reader that is exactly at the tip records from now on."""
        tip = self.marker
        at_tip = [reader for reader, place in self._ahead.items() if tip is not None and place == tip.order]
        self._ahead.clear()
        self.recorder, self.filling = at_tip[0] if at_tip else None, False

    # -- inside

    def _crosses(self, segment: Segment) -> bool:
        """Whether the tip, which is between transactions, is at or in the segment."""
        tip = self.marker
        proven = not self.proving and not self._inside and not self._passing
        return proven and tip is not None and segment.begin <= tip.order <= segment.end

    def _lacks_begin(self, reader: object, segment: Segment, before: Datamarker) -> bool:
        """Whether log is missing before the segment and it begins where no datamarker is known.

        A flow at that place would not be found in a relay that continues after the gap, and the datastore would delete
        the place. The filler finds the datamarker there, and begins a stretch.
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
        """Whether the segment, which contains the tip or begins at it, belongs to the recorded log."""
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
        """Skip a segment that cannot be recorded. It leaves a hole up to the next datamarker, where a stretch
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
        self.clearing = True  # before :attr:`proof` changes, so that :attr:`serves` is never true in between
        self.marker = None
        return [CLEAR]
