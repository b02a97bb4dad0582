"""Reads a log from the relay's files if they hold it, and otherwise from the datastore.

One reader at a time records the datastore's log in the relay. At the end of the files, a reader waits while another
reader records. If no reader records, it opens the datastore's log there and becomes the recording reader. A reader of
the datastore's log changes to the files once it reaches a place that they hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from publisher.relay.cursor import Gone, RelayCursor
from publisher.relay.recorder import Recorder
from publisher.relay.tip import Proof
from wormhole.host.clock import Clock
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable, WormholeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, PurgedInside

__all__ = ["RelayAccess", "RelayedReader"]

_LOOK_S: Final = 0.25  # between two checks whether the recording reader is in use
_COMPARE_S: Final = 1.0
_STUCK_S: Final = 5.0  # the longest wait for a disk that does not accept writes


class RelayAccess(Protocol):
    """The files of a relay and its datastore's log, as a reader uses them."""

    recorder: Recorder

    def find(self, marker: Datamarker) -> RelayCursor | None:
        """A cursor at ``marker``, if the files provably hold that place; otherwise ``None``."""
        ...

    def find_following(self, marker: Datamarker) -> RelayCursor | None:
        """A cursor at ``marker``, if the files hold later log or another reader records there; otherwise ``None``."""
        ...

    def open_inner(self, marker: Datamarker) -> LogReader:
        """Open the datastore's log at ``marker``."""
        ...

    def compare(self) -> None:
        """Check whether the datastore's log is the recorded log, unless another reader records."""
        ...

    def behind_hole(self, marker: Datamarker, error: PositionPurged) -> PurgedInside:
        """The gap after ``marker``, which neither the relay nor the datastore holds, and the next readable place."""
        ...


class RelayedReader:
    """A :class:`~wormhole.ports.log_source.LogReader` that begins at ``marker``: in the files at ``cursor``, or in the
    datastore's log with ``inner``.

    ``closed``: called once, when the reader closes.
    """

    def __init__(
        self,
        access: RelayAccess,
        marker: Datamarker,
        clock: Clock,
        closed: Callable[[RelayedReader], None],
        *,
        cursor: RelayCursor | None = None,
        inner: LogReader | None = None,
    ) -> None:
        self._access = access
        self._recorder = access.recorder
        self._marker = marker  # the last datamarker
        self._whole = True  # the place is between transactions
        self._clock = clock
        self._cursor = cursor
        self._inner = inner
        self._reading = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        self._stuck_at: LogPosition | None = None  # the end of the files, while the next log is not written
        self._stuck_since = 0.0
        self._compares_at = 0.0
        self._on_closed = closed
        self._generation = self._recorder.generation if inner is None else self._recorder.join(self)

    @property
    def reads_files(self) -> bool:
        """Whether the reader reads the relay now."""
        return self._cursor is not None

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`. Segments of the relay have their recorded size."""
        with self._reading:
            segment = self._read(max_bytes, self._clock.monotonic() + wait_s)
        if self._closed:
            self._close_cursor()
        return segment

    def _read(self, max_bytes: int, deadline: float) -> Segment | None:
        while not self._closed:
            inner, cursor = self._inner, self._cursor
            if inner is not None:
                segment = self._read_inner(inner, max_bytes, deadline)
                if segment is not None or self._cursor is None:
                    return segment
                continue
            assert cursor is not None
            if self._generation != self._recorder.generation:
                raise SourceUnavailable(
                    "the relay turned out to be of another log",
                    hint="the datastore's log is opened instead",
                    code="relay-damaged",
                )
            version = self._recorder.version
            try:
                segment = self._next(cursor)
                if segment is None:
                    segment = self._go_on(cursor, version, deadline)
            except Gone as error:
                segment = self._look_up_again(cursor, error)
                if segment is None:
                    continue
            if segment is not None:
                return self._passed(segment)
            if self._cursor is not None and self._clock.monotonic() >= deadline:
                return None
        return None

    def close(self) -> None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            inner = self._inner
        self._recorder.leave(self)
        if inner is not None:
            inner.close()
        self._recorder.wake()
        self._close_cursor()
        self._on_closed(self)

    def _close_cursor(self) -> None:
        # If another thread is reading, it closes the cursor when its read ends.
        if self._reading.acquire(blocking=False):
            try:
                self._leave_cursor()
            finally:
                self._reading.release()

    def _leave_cursor(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    # --- the files ------------------------------------------------------------------------------------------------

    def _next(self, cursor: RelayCursor) -> Segment | None:
        try:
            return cursor.next()
        except OSError as error:
            raise SourceUnavailable(
                f"the relay cannot be read at {self._marker}: {error.strerror or error}",
                hint="the datastore's log is opened instead",
                code="relay-unwritable",
            ) from error

    def _look_up_again(self, cursor: RelayCursor, error: Gone) -> Segment | None:
        """Continue after the cursor's file was removed, in the present files or with the datastore's log."""
        if self._closed or self._generation != self._recorder.generation:
            return None
        if cursor.inside:
            raise error  # a part of the damaged transaction was returned: only its receiver can continue
        return None if self._find_again(cursor.marker) else self._leave_files(cursor, claimed=False)

    def _find_again(self, marker: Datamarker) -> bool:
        cursor = self._access.find_following(marker)
        if cursor is None:
            return False
        self._leave_cursor()
        self._cursor = cursor
        return True

    def _go_on(self, cursor: RelayCursor, version: int, deadline: float) -> Segment | None:
        """Wait for more log at the end of a stretch, or leave the files."""
        recorder, marker = self._recorder, cursor.marker
        tip = recorder.tip
        at_tip = tip is not None and tip.order == marker.order
        behind_hole = any(one.begin.order >= marker.order for one in recorder.stretches)
        if recorder.claim(self, at=marker.order) if at_tip else behind_hole:
            return self._leave_files(cursor, claimed=at_tip)
        now = self._clock.monotonic()
        if at_tip or self._stuck_at != marker.order:
            self._stuck_at, self._stuck_since = marker.order, now
        elif now - self._stuck_since >= _STUCK_S:
            return self._leave_files(cursor, claimed=False)
        recorder.wait_beyond(version, max(0.0, min(deadline - now, _LOOK_S)), lambda: self._closed)
        return None

    def _leave_files(self, cursor: RelayCursor, *, claimed: bool) -> Segment | None:
        """Continue with the datastore's log. ``claimed``: this reader is at the tip and becomes the recording
        reader."""
        recorder, marker = self._recorder, cursor.marker
        try:
            inner = self._access.open_inner(marker)
        except PositionPurged as error:
            if claimed:
                recorder.proved(self, Proof.PURGED)
                return self._gap(marker, error)
            try:
                written = self._next(cursor)  # the datastore may have deleted log that the relay holds by now
            except Gone:
                return None if self._find_again(marker) else self._gap(marker, error)
            return self._gap(marker, error) if written is None else written
        except Diverged as error:
            if claimed:
                recorder.proved(self, Proof.DIVERGED)
            # Flows behind this reader may be at places that the log still holds.
            raise SourceUnavailable(error.message, hint="it is opened again, at each flow's place") from error
        except BaseException:
            if claimed:
                recorder.unclaim(self)
            raise
        self._leave_cursor()
        self._marker, self._whole = marker, True
        self._adopt(inner)
        if claimed:
            recorder.proved(self, Proof.ONE, self)
        return None

    def _adopt(self, inner: LogReader) -> None:
        self._recorder.join(self)
        with self._closing:
            closed = self._closed
            self._inner = None if closed else inner
        if closed:
            inner.close()
            self._recorder.leave(self)

    def _gap(self, marker: Datamarker, error: PositionPurged) -> Segment:
        """The segment with the gap after the marker, which neither the relay nor the datastore holds."""
        access = self._access
        hole = access.behind_hole(marker, error)
        inner: LogReader | None = None
        while (cursor := access.find(hole.resume)) is None:
            try:
                inner = access.open_inner(hole.resume)
                break
            except PositionPurged as later:
                following = access.behind_hole(hole.resume, later)
                if following.resume.order <= hole.resume.order:
                    raise
                hole = following  # the log at that place was deleted meanwhile
        self._leave_cursor()
        self._cursor = cursor
        if inner is not None:
            self._adopt(inner)
        resume = hole.resume
        last = hole.last_missing or resume.delivered
        gap = LogGap(LossKind.PURGED, error.first_missing, last, hole.message, behind=resume.delivered)
        return Segment(resume.order, resume.order, {}, resume, 0, resume.committed_at_us, gap)

    def _passed(self, segment: Segment) -> Segment:
        if segment.marker is not None:
            self._marker = segment.marker
        return segment

    # --- the datastore's log --------------------------------------------------------------------------------------

    def _read_inner(self, inner: LogReader, max_bytes: int, deadline: float) -> Segment | None:
        self._recorder.reads(self)
        try:
            segment = inner.read(max_bytes, max(0.0, deadline - self._clock.monotonic()))
        except WormholeError:
            self._recorder.leave(self)
            raise
        if segment is None:
            self._recorder.rests(self)
            return None
        before = self._marker if self._whole else None
        if segment.gap is not None and before is not None and self._recorder.covers(self, before.order):
            self._enter_files(inner, before)  # the datastore deleted log that the relay holds
            if self._cursor is not None:
                return None
        self._recorder.offer(self, segment, before)
        if self._recorder.is_doubtful and self._compare():
            self._recorder.offer(self, segment, before)
        self._recorder.rests(self)
        self._whole = segment.marker is not None
        if segment.marker is not None:
            self._marker = segment.marker
            if self._recorder.covers(self, segment.end):
                self._enter_files(inner, segment.marker)
        return segment

    def _compare(self) -> bool:
        """Compare the recorded log with the datastore's log, so that recording can continue. A failed comparison is
        retried at intervals.
        """
        now = self._clock.monotonic()
        if now < self._compares_at:
            return False
        with suppress(WormholeError):
            self._access.compare()
        doubtful = self._recorder.is_doubtful
        self._compares_at = now + _COMPARE_S if doubtful else 0.0
        return not doubtful

    def _enter_files(self, inner: LogReader, marker: Datamarker) -> None:
        cursor = self._access.find(marker)
        if cursor is None:
            return
        with self._closing:
            self._inner, self._cursor = None, cursor
        self._generation = self._recorder.generation
        self._recorder.leave(self)
        inner.close()
