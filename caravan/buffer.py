"""The change buffer of a caravan: the last segments that its reader read, and the batch bodies made of them.

Every body is built once per (shard, filter, segment), for the first flow that needs it. Segments are numbered from 0 by
each buffer; a flow's cursor is such a number.

The buffer knows which segments hold updates of a shard. So a flow passes all other segments at once
(:meth:`ChangeBuffer.next_of`), however many there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from caravan.backfill.changes import emptied, moved_in_part
from wormhole.filters import Filter, RunView, Selection
from wormhole.model.position import LogPosition
from wormhole.model.segment import Run, Segment
from wormhole.wire.body import Body, build_body

__all__ = ["Begun", "BufferEntry", "ChangeBuffer", "begun_in", "first_wanted", "undone"]


# Bytes of the objects around the bytes of a body, measured like those of a segment.
_BODY_BYTES: Final = 300
# Number of segments that are dropped between two removals of their numbers.
_FORGET_EVERY: Final = 256
# Bytes of the objects of a view (the parts of a run that filters read) and of a filter's selection, measured likewise.
_VIEW_BYTES: Final = 700
_SELECTION_BYTES: Final = 400


def _uncounted(size: int) -> None:
    """Ignore the growth of an entry that left the buffer."""


class BufferEntry:
    """A buffered segment, the bodies built from it, and the memory that both take (``size``, bytes).

    ``behind_bytes``: bytes of log between the beginning of the segment and the beginning of the transaction in which it
    begins; 0 if it begins between transactions.
    """

    __slots__ = ("_bodies", "_grown", "_moved", "_selections", "_views", "behind_bytes", "segment", "size")

    def __init__(self, segment: Segment, grown: Callable[[int], None], behind_bytes: int = 0) -> None:
        self.segment = segment
        self.behind_bytes = behind_bytes
        self.size = segment.memory
        self._grown = grown
        self._bodies: dict[tuple[str, str], Body | None] = {}
        self._selections: dict[tuple[str, str], Selection] = {}
        self._views: dict[str, RunView] = {}
        self._moved: dict[str, list[tuple[str, bytes]]] = {}

    def body(self, shard: str, wanted: Filter) -> Body | None:
        """The body of ``shard``'s updates that ``wanted`` selects; ``None`` when there is nothing to send.

        Raises :class:`~wormhole.model.errors.DecodeError` for updates that must not be sent unchanged and cannot be
        projected.
        """
        run = self.segment.runs.get(shard)
        if run is None:
            return None
        key = (shard, wanted.hash)
        if key not in self._bodies:
            found = self._select(shard, run, wanted)
            body = build_body(
                wanted.projection.project(run, found.kept),
                self.segment.end.incarnation,
                found.kept,
                marks=found.marks,
                instead=found.key_only,
                bad=found.bad,
                counted=self.segment.chunk is None,
            )
            self._bodies[key] = body
            own = () if body is None else [piece for piece in body.pieces if piece is not run.blob]
            self._grow(_BODY_BYTES + sum(map(len, own)))
        return self._bodies[key]

    def body_from(self, shard: str, wanted: Filter, place: LogPosition, resume_index: int) -> Body | None:
        """:meth:`body` for a flow that joins in the middle, without the updates that it has (see :func:`first_wanted`).
        The body is kept only if it is complete.
        """
        run = self.segment.runs.get(shard)
        if run is None:
            return None
        if place.incarnation != self.segment.end.incarnation:
            # The log continued in another history: all its places are after the flow's, whatever their numbers.
            place = LogPosition(self.segment.end.incarnation, 0, 0)
        transaction, ordinal = first_wanted(run, place, resume_index)
        if not transaction and not ordinal:
            return self.body(shard, wanted)
        found = self._select(shard, run, wanted)
        kept = range(run.updates) if found.kept is None else found.kept
        rest = kept[bisect_left(kept, ordinal) :]
        return build_body(
            wanted.projection.project(run, rest),
            self.segment.end.incarnation,
            rest,
            transaction,
            inside=resume_index > 0,
            marks=found.marks,
            instead=found.key_only,
            bad=[one for one in found.bad if one[0] >= ordinal],
        )

    def emptied(self, shard: str) -> Sequence[str]:
        """Tables that lost rows here. The log does not show which rows."""
        run = self.segment.runs.get(shard)
        return () if run is None else emptied(run)

    def moved_in_part(self, shard: str) -> Sequence[tuple[str, bytes]]:
        """Rows whose key changed and of which the log lacks some values: table and new key (a serialized
        ``RowKey``).
        """
        run = self.segment.runs.get(shard)
        if run is None:
            return ()
        if shard not in self._moved:
            view = self._view(shard, run)
            before = view.size
            found = self._moved[shard] = moved_in_part(run, view.moved)
            view.forget()
            self._grow(view.size - before + sum(100 + len(key) for _, key in found))
        return self._moved[shard]

    def drop(self) -> None:
        """Stop counting the entry's memory: it left the buffer. A flow may still read it."""
        self._grown = _uncounted

    def _grow(self, size: int) -> None:
        self.size += size
        self._grown(size)

    def _select(self, shard: str, run: Run, wanted: Filter) -> Selection:
        if wanted.matches_all:
            return Selection(None)
        key = (shard, wanted.hash)
        found = self._selections.get(key)
        if found is None:
            view = self._view(shard, run)
            before = view.size
            found = self._selections[key] = wanted.select(view)
            view.forget()
            kept = () if found.kept is None else found.kept
            self._grow(_SELECTION_BYTES + view.size - before + 8 * len(kept) + 100 * len(found.marks))
        return found

    def _view(self, shard: str, run: Run) -> RunView:
        view = self._views.get(shard)
        if view is None:
            view = self._views[shard] = RunView(run)
            self._grow(_VIEW_BYTES)
        return view


def first_wanted(run: Run, place: LogPosition, resume_index: int) -> tuple[int, int]:
    """Ordinals of the first transaction and of the first update that a flow at ``place`` still needs of ``run``.

    Transactions that end at or before ``place`` are skipped as a whole. In the transaction that begins at ``place``,
    the updates whose index is below ``resume_index`` are skipped: they were sent before the flow was moved.
    """
    ended = len(run.tx_end)
    here = (place.file, place.offset)
    low, high = 0, ended
    while low < high:
        middle = (low + high) // 2
        if (run.tx_file[middle], run.tx_offset[middle]) <= here:
            low = middle + 1
        else:
            high = middle
    ordinal = run.tx_end[low - 1] if low else 0
    if resume_index:
        end = run.tx_end[low] if low < ended else run.updates
        while ordinal < end and _index(run, ordinal, low) < resume_index:
            ordinal += 1
    return low, ordinal


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction that a segment contains in part.

    The id alone does not identify it: a datastore may give the id of a rolled back transaction to the next one, which
    is in another file. A transaction never spans files.
    """

    id: str
    file: int


def begun_in(run: Run) -> Begun | None:
    """The transaction that continues in the next segment; ``None``: the run ends between transactions."""
    return Begun(run.transaction_id(-1), run.tx_file[-1]) if run.unfinished else None


def undone(segment: Segment, shard: str, place: LogPosition, begun: Begun) -> bool:
    """Whether ``segment``, the next one at ``place``, shows that the transaction ``begun`` was rolled back.

    It begins at ``place``, earlier segments had a part of it for ``shard``, and none had its end. A log holds such a
    part if a server ended while it wrote the transaction, or if it logged the rollback of a large one.
    """
    same = place.incarnation == segment.end.incarnation
    run = segment.runs.get(shard)
    if run is not None:
        # In another history all places are after the flow's, whatever their numbers.
        tx, _ = first_wanted(run, place if same else LogPosition(segment.end.incarnation, 0, 0), 0)
        if tx < len(run.tx_number):
            return run.transaction_id(tx) != begun.id or (same and run.tx_file[tx] != begun.file)
    return segment.marker is not None or (same and segment.end > place)


def _index(run: Run, ordinal: int, tx: int) -> int:
    if run.indexes:
        return run.indexes[ordinal]
    return ordinal - run.tx_end[tx - 1] if tx else ordinal + run.first_index


class ChangeBuffer:
    """Segments in log order. The oldest are dropped when the reader's owner requests it."""

    __slots__ = ("_entries", "_first", "_inside", "_of_all", "_of_shard", "_open_bytes", "place", "size")

    def __init__(self, place: LogPosition) -> None:
        self._entries: deque[BufferEntry] = deque()
        self._first = 0
        self._inside = False
        self._open_bytes = 0  # bytes read so far of the transaction inside which the newest segment ends
        # Numbers of segments, ascending. Numbers of dropped segments are removed from time to time.
        self._of_shard: dict[str, list[int]] = {}
        self._of_all: list[int] = []  # segments that every flow has to read
        self.place = place
        """The place after the newest segment, which is read next."""
        self.size = 0
        """Bytes of memory that the segments and their bodies take."""

    @property
    def first(self) -> int:
        """Number of the oldest segment held."""
        return self._first

    @property
    def end(self) -> int:
        """Number that the next segment will get."""
        return self._first + len(self._entries)

    @property
    def inside(self) -> bool:
        """Whether the newest segment ends inside a transaction."""
        return self._entries[-1].segment.marker is None if self._entries else self._inside

    @property
    def start(self) -> LogPosition:
        """The earliest place from which the buffer can serve."""
        return self._entries[0].segment.begin if self._entries else self.place

    def append(self, segment: Segment) -> None:
        """Add the newest segment."""
        self._clear_undone(segment)
        if segment.concerns_all:
            self._of_all.append(self.end)
        else:
            for shard in segment.runs:
                self._of_shard.setdefault(shard, []).append(self.end)
        entry = BufferEntry(segment, self._grow, self._open_bytes)
        self._open_bytes = self._open_bytes + segment.log_bytes if segment.marker is None else 0
        self._entries.append(entry)
        self.size += entry.size
        self.place = segment.end

    def _clear_undone(self, segment: Segment) -> None:
        """Empty the pieces of a transaction that ``segment`` shows to be rolled back, so that no further flow receives
        them.
        """
        for at in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[at]
            piece = entry.segment
            if piece.marker is not None or piece.end != self.place:
                return
            opened = {shard: begun for shard, run in piece.runs.items() if (begun := begun_in(run)) is not None}
            if not any(undone(segment, shard, self.place, begun) for shard, begun in opened.items()):
                continue
            rest = {shard: run for shard, run in piece.runs.items() if shard not in opened}
            emptied = self._entries[at] = BufferEntry(replace(piece, runs=rest), self._grow, entry.behind_bytes)
            self.size += emptied.size - entry.size
            entry.drop()

    def drop_oldest(self) -> None:
        """Drop the oldest segment."""
        entry = self._entries.popleft()
        self.size -= entry.size
        entry.drop()
        self._inside = entry.segment.marker is None
        self._first += 1
        if not self._first % _FORGET_EVERY:
            self._forget()

    def _forget(self) -> None:
        """Forget the numbers of dropped segments."""
        self._of_all = self._of_all[bisect_left(self._of_all, self._first) :]
        left = ((shard, numbers[bisect_left(numbers, self._first) :]) for shard, numbers in self._of_shard.items())
        self._of_shard = {shard: numbers for shard, numbers in left if numbers}

    def _grow(self, size: int) -> None:
        self.size += size

    def entry(self, number: int) -> BufferEntry | None:
        """Segment ``number``; ``None`` if it is not read yet. Raises ``IndexError`` when it was dropped."""
        if number < self._first:
            raise IndexError(f"segment {number} is no longer buffered; the oldest is {self._first}")
        return self._entries[number - self._first] if number < self.end else None

    def segment(self, number: int) -> Segment:
        """Segment ``number``, which was read and not dropped."""
        return self._entries[number - self._first].segment

    def behind_bytes(self, number: int) -> int:
        """Bytes of log that a flow would have to read again if it left before it takes segment ``number``.

        They reach from the beginning of the transaction in which that segment begins. The result is 0 between
        transactions, and as long as that begin is buffered.
        """
        if not self._entries or not self._entries[0].behind_bytes:
            return 0
        return self._entries[number - self._first].behind_bytes if number < self.end else self._open_bytes

    def next_of(self, shard: str, number: int) -> int:
        """Number of the first segment from ``number`` on that a flow of ``shard`` has to look at; :attr:`end` when
        there is none.

        Earlier segments hold no updates of the shard, and nothing that concerns every flow.
        """
        found = self.end
        for numbers in (self._of_shard.get(shard), self._of_all):
            if numbers and numbers[-1] >= number:
                found = min(found, numbers[bisect_left(numbers, number)])
        return found

    def last_marked(self, first: int, end: int) -> Segment | None:
        """The last segment, from ``first`` up to but excluding ``end``, that ends between transactions."""
        for number in range(end - 1, first - 1, -1):
            segment = self.segment(number)
            if segment.marker is not None:
                return segment
        return None

    def find(self, place: LogPosition) -> int | None:
        """Number of the segment where a flow at ``place`` continues; ``None`` when the buffer does not hold it.

        For a place at the end of the buffer it is the number of the next segment. A transaction whose first piece was
        dropped cannot be joined.
        """
        if place > self.place or place.incarnation != self.place.incarnation:
            return None
        if not self._entries:
            return self.end if place == self.place and not self._inside else None
        if place < self.start or (place == self.start and self._inside):
            return None
        low, high = 0, len(self._entries)
        while low < high:
            middle = (low + high) // 2
            segment = self._entries[middle].segment
            if segment.end > place or (segment.end == place and segment.marker is None):
                high = middle
            else:
                low = middle + 1
        return self._first + low

    def join(self, place: LogPosition) -> int | None:
        """Number of the segment from which a flow at ``place`` can travel; ``None`` when it would miss updates here.

        A flow that is ahead of everything read joins at the end, and skips the updates that it has. A flow exactly at
        the end must be found: otherwise the reader is inside the transaction that begins there, and its first piece was
        dropped.
        """
        cursor = self.find(place)
        if cursor is None and self.place < place and self.place.incarnation == place.incarnation:
            return self.end
        return cursor

    def __repr__(self) -> str:
        return f"<ChangeBuffer {self.start}..{self.place}, {len(self._entries)} segments>"
