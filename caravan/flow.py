"""One flow: its filter, its place in the log, and its cursor into the buffer of its caravan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from caravan.backfill.progress import FinishedTable, FlowBackfill
from caravan.buffer import Begun, BufferEntry, ChangeBuffer, begun_in, undone
from wormhole.filters import Filter
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.model.problem import NO_PROBLEM, Problem, passing
from wormhole.model.segment import ChunkRange, Segment
from wormhole.wire.body import Body

__all__ = ["CaravanFlow", "CaravanFlowState", "Piece"]

_MOST_REACHING_BACK: Final = 16


class CaravanFlowState(Enum):
    """The state of a flow."""

    WAITING = "waiting"
    """The flow has no caravan: it wants one, or its subscriber takes no updates at the moment."""
    TRAVELLING = "travelling"
    """A caravan carries the flow."""
    HELD = "held"
    """The flow needs a decision: log is missing or diverged, or an update cannot be sent."""
    CLOSED = "closed"
    """No stream takes updates from the flow any more."""


@dataclass(slots=True)
class Piece:
    """The part of one segment that a flow takes: a body to send (or none), the marker after it (or none), or a gap
    before it.

    ``broken``: why the flow's shard cannot be read further. ``undone``: id of a transaction that was handed on
    in part and then rolled back: the flow has to begin again at its marker. ``chunk``: the body holds existing rows of
    this range. ``finished``: the table whose last rows these are.
    """

    body: Body | None
    marker: Datamarker | None
    gap: LogGap | None
    broken: DecodeError | None = None
    undone: str = ""
    chunk: ChunkRange | None = None
    finished: tuple[FinishedTable, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to send, ask or decide: the flow only advances."""
        return self.body is None and self.gap is None and self.broken is None and not self.undone and self.chunk is None


class CaravanFlow:
    """One shard's updates to one application, as the publisher sends them.

    ``name``: ``APP/SHARD``. ``place``: the end of the last transaction that was handed on completely. ``resume_index``:
    the number of updates (by index in the transaction) of the next transaction that were handed on. Together they give
    another caravan the exact update to continue with. Inside a transaction (``inside``) its id is kept: when the log
    shows that it was rolled back, the application has to be informed.

    ``verified``: it was checked that the log is still the one that ``marker`` came from. ``blocked``: its subscriber
    takes less than its caravan reads. ``wake`` is called (on the event loop) when there may be something new to take.
    ``begun``: the place from which on it sends every change in this epoch. ``backfill``: the existing rows that it
    still needs, if any; then every ``marker`` holds its progress. ``takes_rows``: whether its subscriber can take rows
    now.

    Other modules read the attributes and call the methods; they assign nothing.
    """

    def __init__(
        self,
        application: str,
        shard: str,
        wanted: Filter,
        marker: Datamarker,
        epoch: int,
        wake: Callable[[], None],
        backfill: FlowBackfill | None = None,
        takes_rows: Callable[[], bool] = lambda: True,
    ) -> None:
        self.application = application
        self.shard = shard
        self.name: Final = flow_name(application, shard)
        self.filter = wanted
        self.epoch = epoch
        self.wake = wake
        self.backfill = backfill
        self.takes_rows = takes_rows
        self.place = self.begun = marker.order
        self.marker = marker
        self.resume_index = 0
        self.state = CaravanFlowState.WAITING
        self.problem = passing("newly opened")
        self.blocked = False
        self.verified = False
        self._buffer: ChangeBuffer | None = None
        self._cursor = 0
        self._peeked: Piece | None = None
        self._peeked_in: Segment | None = None
        self._inside_of: Begun | None = None  # the transaction of `resume_index`
        self._handed_on = False  # whether its filter passed an update of that transaction
        self._met: LogGap | None = None
        self._passed: LogGap | None = None
        self._skipped = ""
        self._replaced: list[str] = []
        self._went_back: tuple[LogPosition, int] | None = None  # its place, and the log bytes to read again
        self._reaches_back: list[tuple[LogPosition, LogPosition]] = []  # by place: the `read_from` of its marker
        self._rows_wanted = wanted if backfill is None else backfill.request.narrow(wanted)

    @property
    def cursor(self) -> int | None:
        """Number of the segment that it takes next; ``None`` while it travels with no caravan."""
        return self._cursor if self._buffer is not None else None

    def board(self, buffer: ChangeBuffer, cursor: int) -> None:
        """Travel with the caravan that fills ``buffer``, beginning with segment ``cursor``."""
        self._buffer, self._cursor, self._peeked, self._peeked_in = buffer, cursor, None, None
        # A segment without length at the flow's place was passed when the cursor was found.
        for number in range(cursor - 1, buffer.first - 1, -1):
            segment = buffer.segment(number)
            if segment.begin != self.place:
                break
            self._see_replaced(segment)
        self.state = CaravanFlowState.TRAVELLING
        self.explain(NO_PROBLEM)
        self.wake()

    def leave(self, state: CaravanFlowState, cause: str) -> None:
        """Leave the caravan. ``cause``: the reason, for the operator."""
        self._buffer = self._peeked = self._peeked_in = None
        self.state = state
        self.explain(passing(cause))

    @property
    def cause(self) -> str:
        """The reason why the flow waits, without the next step."""
        return self.problem.text

    def explain(self, problem: Problem) -> None:
        """Set the reason why the flow waits, and the next step."""
        self.problem = problem

    @property
    def behind_bytes(self) -> int:
        """Bytes of log that are read again if it leaves its caravan now; see :class:`~caravan.buffer.ChangeBuffer`."""
        return 0 if self._buffer is None else self._buffer.behind_bytes(self._cursor)

    @property
    def may_go_back(self) -> bool:
        """Whether it is twice as far inside its transaction as when it last had to return to the beginning of that
        transaction.
        """
        if self._went_back is None or self._went_back[0] != self.place:
            return True
        return self.behind_bytes >= 2 * self._went_back[1]

    def go_back(self) -> None:
        """Record that it leaves its caravan for one that reads its transaction from the beginning."""
        size = self.behind_bytes
        if self._went_back is not None and self._went_back[0] == self.place:
            size = max(size, self._went_back[1])
        self._went_back = (self.place, size) if size else None

    def verify(self) -> None:
        """Record that the log is still the one that ``marker`` came from."""
        self.verified = True

    def block(self) -> None:
        """Record that its subscriber takes less than its caravan reads: it wants no caravan until :meth:`unblock`."""
        self.blocked = True
        self.wake()

    def unblock(self) -> bool:
        """Record that its subscriber takes updates again. Returns whether it was blocked."""
        was_blocked, self.blocked = self.blocked, False
        return was_blocked

    @property
    def inside(self) -> bool:
        """Whether a transaction was handed on in part: ``marker`` is before that part."""
        return self.resume_index > 0

    def pass_gap(self, resume: Datamarker) -> None:
        """The application decided to continue after missing log: set the flow's place to ``resume``."""
        if self.backfill is not None:
            self.backfill.pass_loss(self.place, resume.order)
        self.place = self.begun = resume.order
        self._come_to(resume)
        self.resume_index = 0
        self._passed = self._met
        self.leave(CaravanFlowState.WAITING, "going on after a data loss")

    def go_over(self, present: Datamarker) -> None:
        """The log continues in another history, in which ``present`` is the flow's place, between transactions."""
        self.marker = replace(self.marker, order=present.order, read_from=present.read_from, anchor=present.anchor)
        self.place = self.begun = present.order

    def end_backfill(self) -> None:
        """End the backfill: the flow takes no more existing rows."""
        self.backfill = None
        self.marker = replace(self.marker, backfill=b"")
        self._peeked = None

    def pass_broken(self, update_id: str) -> None:
        """Continue without the update that cannot be decoded, because an operator skips it."""
        self._skipped = update_id
        self._peeked = None

    def peek(self) -> Piece | None:
        """The next piece to send; ``None`` when all that was read is sent. Advances the flow past segments without
        updates of its shard, and no further.
        """
        if self._peeked is None:
            self._peeked = self._look()
        return self._peeked

    def _look(self) -> Piece | None:
        if self._buffer is None:
            return None
        while True:
            self._pass_foreign(self._buffer)
            entry = self._buffer.entry(self._cursor)
            if entry is None:
                return None
            segment = entry.segment
            if segment.chunk is not None:
                if not self._wants_rows(segment, segment.chunk):
                    self._cursor += 1
                    continue
                return self._look_at_rows(entry, segment.chunk)
            if segment.gap is not None and self._misses(segment.gap, segment.begin):
                self._met = segment.gap
                return Piece(None, None, segment.gap)
            ahead = segment.end > self.place or (segment.end == self.place and segment.marker is None)
            if ahead and (broken := segment.broken.get(self.shard)) is not None and self._lacks(broken):
                return Piece(None, None, None, broken)
            begun = self._inside_of if self.inside else None
            if ahead and begun is not None and undone(segment, self.shard, self.place, begun):
                if self._handed_on:
                    return Piece(None, None, None, undone=begun.id)
                self.resume_index = 0  # the filter passed nothing of it
            self._peeked_in = segment
            try:
                if self.place <= segment.begin and not self.resume_index:
                    body = entry.body(self.shard, self.filter)
                elif ahead:
                    body = entry.body_from(self.shard, self.filter, self.place, self.resume_index)
                else:  # a caravan that is still behind this flow's place
                    self._cursor += 1
                    continue
            except DecodeError as error:
                return Piece(None, None, None, error)
            return Piece(body, segment.marker, None)

    def _pass_foreign(self, buffer: ChangeBuffer) -> None:
        """Advance past all segments without updates of its shard at once: with a thousand shards, these are nearly all
        segments.

        Inside a transaction each segment has to be looked at, because it may show that the transaction was rolled back.
        """
        number = self._cursor if self.inside else buffer.next_of(self.shard, self._cursor)
        if number == self._cursor:
            return
        last, newest = buffer.segment(number - 1), buffer.last_marked(self._cursor, number)
        # A caravan may still be behind the flow's place: then the flow stays where it is.
        if newest is not None and newest.marker is not None and self._is_behind(newest):
            self._come_to(newest.marker)
        if self._is_behind(last):
            self.place, self._handed_on = last.end, False
        self._cursor = number

    def _is_behind(self, segment: Segment) -> bool:
        """Whether the flow has not passed ``segment``."""
        place = self.place
        return place <= segment.begin or segment.end > place

    def _wants_rows(self, segment: Segment, chunk: ChunkRange) -> bool:
        """Whether the flow takes existing rows.

        The rows are current only at their place. The flow must also have sent every change since they were read, in
        this epoch, because rows that changed meanwhile are left out.
        """
        return (
            self.backfill is not None
            and self.place == segment.end
            and not self.resume_index
            and self.begun <= chunk.not_before
            and self.backfill.needs(chunk)
        )

    def _look_at_rows(self, entry: BufferEntry, chunk: ChunkRange) -> Piece:
        assert self.backfill is not None
        self._peeked_in = entry.segment
        chunk = chunk.of_shard(self.shard)
        try:
            body = entry.body(self.shard, self._rows_wanted)
        except DecodeError as error:
            return Piece(None, None, None, error)
        finished = self.backfill.finishes(chunk, 0 if body is None else body.updates)
        return Piece(body, entry.segment.marker, None, chunk=chunk, finished=finished)

    def keeps(self, stored: Datamarker) -> LogPosition:
        """The earliest place that has to be readable, so that the flow can continue from ``stored`` or from a later
        datamarker that is not stored yet.

        A later datamarker may have an earlier ``read_from``. Where a flow began (``latest``) no transaction was known.
        The next datamarkers have the last transaction before that place as their anchor. Existing rows come at that
        same place.
        """
        self._reaches_back = [one for one in self._reaches_back if one[0] >= stored.order]
        return min([stored.read_from, *(read_from for _, read_from in self._reaches_back)])

    def _come_to(self, marker: Datamarker) -> None:
        if marker.read_from < self.marker.read_from:
            read_from = marker.read_from
            if len(self._reaches_back) == _MOST_REACHING_BACK:
                read_from = min(read_from, self._reaches_back.pop()[1])
            self._reaches_back.append((marker.order, read_from))
        self.marker = self._with_progress(marker)

    def _with_progress(self, marker: Datamarker) -> Datamarker:
        return marker if self.backfill is None else replace(marker, backfill=self.backfill.to_bytes())

    def _lacks(self, broken: DecodeError) -> bool:
        """Whether the undecodable bytes may be an update that the flow wants."""
        if broken.update_id and broken.update_id == self._skipped:
            return False
        return not broken.tables or not all(map(self.filter.wants_none_of, broken.tables))

    def _misses(self, gap: LogGap, begin: LogPosition) -> bool:
        """Whether the flow is before ``gap``.

        Changes that were never logged take no bytes in the log. For such a gap the marker's ``delivered`` decides.
        """
        if gap.reached(self.marker.delivered):
            return False
        return gap != self._passed if self.place == begin else self.place < begin

    def take(self) -> None:
        """Advance past the piece that :meth:`peek` returned: it was handed on."""
        assert self._buffer is not None
        segment, body = self._peeked_in, self._peeked.body if self._peeked is not None else None
        assert segment is not None
        if self.backfill is not None and not self.backfill.finished:
            if segment.chunk is not None:
                self.backfill.took(segment.chunk.of_shard(self.shard), 0 if body is None else body.updates)
            elif (entry := self._buffer.entry(self._cursor)) is not None:
                for table in entry.emptied(self.shard):
                    self.backfill.begin_again(table)
                for table, key in entry.moved_in_part(self.shard):
                    self.backfill.read_again(table, key)
        self._see_replaced(segment)
        self._cursor += 1
        self._peeked = self._peeked_in = None
        if segment.marker is not None:
            self._come_to(segment.marker)
            self.place, self.resume_index, self._handed_on = segment.end, 0, False
        else:
            self._stop_inside(segment)
            self._handed_on |= body is not None and body.updates > 0

    def _see_replaced(self, segment: Segment) -> None:
        for table, at in segment.replaced.items():
            if at >= self.place and not self.filter.wants_none_of(table):
                self._note_replaced(table, at)

    def _note_replaced(self, table: str, at: LogPosition) -> None:
        if self.backfill is None or self.backfill.finished or not self.backfill.request.sends_all(table):
            self._replaced.append(table)
        elif self.backfill.request.wanted(self.filter)(table):
            self.backfill.replaced(table, at)

    def replaced(self) -> Sequence[str]:
        """Tables whose rows changed without a trace in the log since the last call, while no backfill needed them."""
        found, self._replaced = self._replaced, []
        return found

    def pass_over(self) -> None:
        """Advance past the segments without anything for the flow, up to the next one with something."""
        while (piece := self.peek()) is not None and piece.empty:
            self.take()

    def _stop_inside(self, segment: Segment) -> None:
        """``segment`` ends inside a transaction that begins at ``segment.end``: remember how much of it was
        delivered.
        """
        if self.place != segment.end:
            self.place, self.resume_index, self._handed_on = segment.end, 0, False
        run = segment.runs.get(self.shard)
        if run is None or not run.unfinished:
            return
        if run.indexes:
            handed_on = run.indexes[-1] + 1
        else:
            before = run.tx_end[-1] if run.tx_end else 0
            handed_on = run.updates - before + (0 if run.tx_end else run.first_index)
        # A piece that another caravan reads again may end before the updates that were handed on.
        self.resume_index = max(self.resume_index, handed_on)
        self._inside_of = begun_in(run)

    def __repr__(self) -> str:
        return f"<CaravanFlow {self.name} {self.state.value} epoch {self.epoch} at {self.place}>"
