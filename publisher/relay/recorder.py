"""Writes the segments of the log's readers into the relay's files, in a separate thread.

A reader puts segments into a queue and never waits for the disk. The size of the queue in bytes is limited. When the
queue is full, the recording reader stops recording, and a hole begins.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from publisher.relay.files import NotAdjoiningError, RelayFile, RelayFiles, Stretch
from publisher.relay.settings import RelaySettings
from publisher.relay.tip import ABANDON, CLEAR, Begin, Order, Proof, Tip
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.segment import Segment

__all__ = ["QUEUE_BYTES", "Recorder"]

_log = logging.getLogger(__name__)

QUEUE_BYTES: Final = 32 << 20
_GATHER_S: Final = 0.1  # small segments are gathered for this time and share a record
_GATHER_BYTES: Final = 512 << 10
_SYNC_S: Final = 1.0
_SYNC_BYTES: Final = 16 << 20
_AGAIN_S: Final = 5.0  # the wait after a failed write
_RESTS_S: Final = 0.5
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_FLUSH_S: Final = 30.0
_LARGEST: Final = 4  # one transaction may take at most a quarter of the budget


class Recorder:
    """See the module. Thread-safe. ``losing``: called by the writing thread before it removes a file that a flow needs.

    ``queue_bytes``: the limit for waiting segments, in bytes.
    """

    def __init__(
        self,
        files: RelayFiles,
        settings: RelaySettings,
        losing: Callable[[RelayFile], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._files = files
        self._settings = settings
        self._losing = losing
        self._clock = clock
        self._limit = queue_bytes
        self._holds = settings.mode == "hold"
        self._records = settings.mode != "off"
        lock = threading.Lock()
        self._work = threading.Condition(lock)  # for the writer
        self._news = threading.Condition(lock)  # for other threads: a write was done, or another reader records
        self._tip = Tip(fills=self._holds, largest=settings.budget // _LARGEST)
        self._queue: deque[Order] = deque()
        self._queued = 0  # bytes that are not written yet
        self._number = 0  # how many orders were put into the queue so far
        self._written = 0
        self._urgent = False
        self._stopping = False
        self._version = 0
        self._oldest: LogPosition | None = None
        self._no_space = False  # the disk is full although the budget is not used up
        self._full = False  # the files use their whole budget, and the datastore keeps its log
        self._problem = NO_PROBLEM
        self._again_at = -math.inf
        self._unsynced = 0
        self._synced_at = -math.inf
        self._rests_since = math.inf  # when the recording reader was last read
        self._trim_to: int | None = None
        self._trim_failed = ""
        self.stretches: tuple[Stretch, ...] = ()
        self._thread: threading.Thread | None = None

    # -- life

    def start(self) -> None:
        """Begin to record. Called when the files are open."""
        with self._work:
            self.stretches = self._files.stretches
            self._tip.opened(self.stretches[-1].end if self.stretches else None)
            self._unsynced = int(bool(self.stretches))  # the syncs of a former process are not known
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="relay-writer", daemon=True)
            self._thread.start()

    def do_without(self, problem: Problem) -> None:
        """Record nothing until the next start, because the files cannot be opened."""
        self._records, self._problem = False, problem

    def stop(self) -> None:
        """Write the queued segments, then stop. No further segment is accepted."""
        with self._work:
            thread, self._thread = self._thread, None
            self._put(self._tip.give_up())
            self._stopping = True
            self._work.notify_all()
            self._news.notify_all()
        if thread is not None:
            thread.join()

    # -- readers

    def join(self, reader: object) -> int:
        """Add a reader of the datastore's log. Returns the generation of the log that the relay records."""
        with self._work:
            self._tip.join(reader)
            return self._tip.generation

    def leave(self, reader: object) -> None:
        """Remove a reader that ended, or whose log is gone."""
        with self._work:
            self._put(self._tip.leave(reader))
            self._announce()

    def offer(self, reader: object, segment: Segment, before: Datamarker | None) -> None:
        """Offer a segment that a reader read. ``before``: the datamarker at its beginning; ``None`` inside a
        transaction."""
        with self._work:
            former = self._tip.recorder
            self._put(self._tip.offer(reader, segment, before, room=self._room(former is reader)))
            if self._tip.recorder is not former or (former is None and self._tip.needs_filling):
                self._announce()

    def covers(self, reader: object, place: LogPosition) -> bool:
        """Whether a reader that does not record can continue in the files at ``place``. Cheap: called for each
        segment."""
        if self._tip.recorder is reader:
            return False
        return any(
            one.begin.order <= place < one.end.order or (place == one.end.order and self._is_recorded_at(place))
            for one in self.stretches
        )

    def _is_recorded_at(self, place: LogPosition) -> bool:
        tip = self._tip
        return tip.recorder is not None and tip.marker is not None and tip.marker.order >= place

    # -- the tip

    @property
    def tip(self) -> Datamarker | None:
        """The datamarker at the end of the queued segments; ``None`` for an empty relay."""
        return self._tip.marker

    @property
    def proof(self) -> Proof:
        """Whether the datastore's log is the log that the relay records, as far as known."""
        return self._tip.proof

    @property
    def serves(self) -> bool:
        """Whether the files belong to the recorded log. They do not until the files of another log are removed."""
        return self._tip.serves

    @property
    def is_doubtful(self) -> bool:
        """Whether the datastore's log has to be compared with the recorded log before a reader may record."""
        return self._tip.is_doubtful

    @property
    def is_recording(self) -> bool:
        """Whether a reader extends the relay now."""
        return self._tip.recorder is not None

    @property
    def generation(self) -> int:
        """A number that rises when the relay turns out to be of another log."""
        return self._tip.generation

    @property
    def version(self) -> int:
        """A number that rises with every event for which a reader at the end of the files waits."""
        return self._version

    def claim(self, who: object, *, at: LogPosition | None = None, fills: bool = False, wait: bool = False) -> bool:
        """Claim the tip for ``who``, which is about to open the datastore's log there. Returns ``False`` if another
        reader records or has claimed the tip, or if the tip is not ``at``.

        ``wait``: wait for the outcome of another claim. ``at``: the place at which ``who`` waits for more log. Then it
        may replace a recording reader that is not being read, for example the reader of a stalled caravan.
        """
        with self._work:
            if wait:
                self._news.wait_for(lambda: self._stopping or not self._tip.proving)
            tip = self._tip.marker
            if self._stopping or (at is not None and (tip is None or tip.order != at)):
                return False
            if at is not None and self._clock.monotonic() - self._rests_since >= _RESTS_S:
                self._put(self._tip.give_up())
            if not self._tip.claim(who, fills=fills):
                return False
            self._rests_since = math.inf
            return True

    def proved(self, who: object, proof: Proof, to: object | None = None) -> None:
        """Report the result of a claim. ``to``: the reader at the tip that records from now on."""
        with self._work:
            self._tip.proved(who, proof, to)
            self._rests_since = math.inf if to is who else self._clock.monotonic()
            self._announce()

    def reads(self, reader: object) -> None:
        """Note that the reader is about to wait for the log. Cheap: called for each read."""
        if self._tip.recorder is reader:
            self._rests_since = math.inf

    def rests(self, reader: object) -> None:
        """Note that a read of the reader has ended, with a segment or without one."""
        if self._tip.recorder is reader:
            self._rests_since = self._clock.monotonic()

    def unclaim(self, who: object) -> None:
        """Give a claim up."""
        with self._work:
            if self._tip.recorder is who:
                self._put(self._tip.give_up())
                self._announce()

    def distrust(self) -> None:
        """Note that the datastore may have another log now."""
        with self._work:
            self._put(self._tip.distrust())
            self._announce()

    def begins(self) -> None:
        """Permit that the first stretch begins at the next reader's place, because no flow needs earlier log."""
        with self._work:
            self._tip.unfillable = self._tip.unfillable or self._tip.marker is None

    # -- who fills a hole

    def wait_for_hole(self, rest_s: float) -> bool:
        """Wait for ``rest_s`` seconds, then until a hole has to be filled. Returns false once the recorder is
        stopped."""
        with self._work:
            self._news.wait_for(lambda: self._stopping, rest_s)
            self._news.wait_for(lambda: self._stopping or (self._tip.needs_filling and self._room(fits=False)))
            return not self._stopping

    def fill(self, who: object, segment: Segment, before: Datamarker | None) -> bool:
        """Offer a segment of a hole, and wait until the queue has space. Returns ``False`` once the hole is filled up
        to a reader, or if another reader records."""
        with self._work:
            self._news.wait_for(lambda: self._stopping or self._tip.recorder is not who or self._room(fits=False))
            if self._stopping or self._tip.recorder is not who:
                return False
            self._put(self._tip.offer(who, segment, before, room=True))
            return self._goes_on(who)

    def fill_from(self, who: object, marker: Datamarker) -> bool:
        """Begin a stretch at ``marker``, because earlier log cannot be read."""
        with self._work:
            if self._tip.recorder is not who:
                return False
            self._put(self._tip.begin(marker))
            return self._goes_on(who)

    def fills(self, who: object) -> bool:
        """Whether the hole still exists and ``who`` is filling it."""
        with self._work:
            return self._goes_on(who)

    def _goes_on(self, who: object) -> bool:
        if self._tip.recorder is who and self._tip.met:
            self._tip.meet()
            self._rests_since = self._clock.monotonic()
            self._announce()
        return self._tip.recorder is who

    def cannot_fill(self) -> None:
        """Note that the hole cannot be filled. The reader after the hole begins a new stretch."""
        with self._work:
            self._tip.unfillable = True

    # -- waiting

    def wait_beyond(self, version: int, seconds: float, ends: Callable[[], bool]) -> None:
        """Wait until :attr:`version` has changed, or ``ends`` returns true."""
        with self._work:
            self._news.wait_for(lambda: self._stopping or self._version != version or ends(), seconds)

    def wake(self) -> None:
        """Make :meth:`wait_beyond` call ``ends`` again."""
        with self._work:
            self._news.notify_all()

    def flush(self) -> None:
        """Wait until every queued segment is written, or cannot be written."""
        with self._work:
            upto = self._number
            self._urgent = True
            self._work.notify_all()
            self._news.wait_for(lambda: self._stopping or self._written >= upto, _FLUSH_S)

    # -- room

    def release(self, oldest: LogPosition) -> None:
        """Note that no flow needs log before ``oldest``."""
        with self._work:
            self._oldest = oldest
            self._urgent = self._urgent or self._full or self._files.size > self._settings.budget
            self._work.notify_all()

    def trim(self, keep_bytes: int) -> None:
        """Remove the oldest files until at most ``keep_bytes`` are left. Returns when that is done.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if the disk fails.
        """
        with self._work:
            self._trim_to = keep_bytes
            self._urgent = True
            self._work.notify_all()
            self._news.wait_for(lambda: self._stopping or self._trim_to is None)
            if self._trim_failed:
                raise SourceUnavailable(
                    f"the relay cannot be trimmed: {self._trim_failed}",
                    hint=self._problem.hint,
                    code="relay-unwritable",
                )

    # -- state

    @property
    def problem(self) -> Problem:
        """Why no log is recorded; empty while it is."""
        if self._problem:
            return self._problem
        if self._full:
            return Problem(
                "the relay is full of what flows still need: the datastore keeps its log instead",
                "see which flow is furthest behind (`wormholectl flows`), or raise relay_budget",
                code="relay-full",
            )
        return NO_PROBLEM

    @property
    def is_behind(self) -> bool:
        """Whether the relay lacks log before the end of the log, because its disk failed or a hole is not filled
        yet."""
        tip = self._tip
        return bool(self._problem) or tip.filling or tip.needs_filling

    @property
    def holes(self) -> int:
        """The number of holes since the start."""
        return self._tip.holes

    @property
    def unsynced(self) -> int:
        """Bytes that were recorded since the last successful sync."""
        return self._unsynced + self._queued if self._holds else 0

    # -- inside, with the lock held

    def _room(self, fits: bool) -> bool:
        """Whether the queue accepts more segments: up to the limit from a reader that already records (``fits``), up to
        half of the limit from a new one."""
        if self._full or self._stopping or not self._records or self._clock.monotonic() < self._again_at:
            return False
        return self._queued < (self._limit if fits else self._limit // 2)

    def _put(self, orders: Sequence[Order]) -> None:
        if not orders:
            return
        was_empty, before = not self._queue, self._queued
        for order in orders:
            self._queue.append(order)
            self._number += 1
            if isinstance(order, Segment):
                self._queued += order.memory
        if was_empty or (before < _GATHER_BYTES <= self._queued):
            self._work.notify()

    def _announce(self) -> None:
        self._version += 1
        self._news.notify_all()

    # -- the thread that writes

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(self._is_due, self._sync_in_s())
                if self._queue and not self._hurry():
                    self._work.wait_for(self._hurry, _GATHER_S)
                orders = tuple(self._queue)
                self._queue.clear()
                self._urgent = False
                stopping, trim_to, failed = self._stopping, self._trim_to, ""
            try:
                self._write(orders)
                self._make_room()
                if trim_to is not None:
                    self._trim(trim_to)
                if self._holds and self._unsynced and (stopping or self._sync_in_s() == 0.0):
                    self._sync()
            except NotAdjoiningError:
                self._lost()  # a reader found the newest file damaged and removed it
            except OSError as error:
                failed = error.strerror or str(error)
                self._failed(failed)
                self._no_space = error.errno in _NO_SPACE
            except Exception as error:  # noqa: BLE001
                # Delivery does not depend on the relay, so any failure here is only reported.
                _log.exception("unexpected, please report this")
                self._failed(f"unexpected {type(error).__name__}: {error}")
            with self._work:
                self._written += len(orders)
                self._queued -= sum(order.memory for order in orders if isinstance(order, Segment))
                self.stretches = self._files.stretches
                if trim_to is not None and trim_to == self._trim_to:
                    self._trim_to = None
                    self._trim_failed = failed
                self._announce()
                if stopping and (not self._queue or self._problem):
                    return

    def _is_due(self) -> bool:
        return bool(self._queue) or self._stopping or self._urgent

    def _hurry(self) -> bool:
        return self._stopping or self._urgent or self._queued >= _GATHER_BYTES

    def _sync_in_s(self) -> float | None:
        if not self._holds or not self._unsynced:
            return None
        if self._unsynced >= _SYNC_BYTES:
            return 0.0
        return max(0.0, self._synced_at + _SYNC_S - self._clock.monotonic())

    def _write(self, orders: Sequence[Order]) -> None:
        """Raises :class:`OSError`."""
        files = self._files
        for segments, order in _grouped(orders):
            if segments:
                if not self._unsynced:
                    self._synced_at = self._clock.monotonic()
                files.append(*segments)
                self._unsynced += sum(segment.memory for segment in segments)
                if self._problem:
                    _log.info("the relay is written again")
                    self._problem = NO_PROBLEM
            if isinstance(order, Begin):
                files.begin(order.marker)
            elif order is ABANDON:
                files.abandon()
            elif order is CLEAR:
                _log.warning("the relay is of another log than the datastore has now: it begins anew")
                try:
                    files.clear()
                finally:  # the files are not read any more, even if one cannot be removed
                    with self._work:
                        self._tip.clearing = CLEAR in self._queue

    def _sync(self) -> None:
        self._files.sync()
        self._unsynced = 0
        self._synced_at = self._clock.monotonic()

    def _failed(self, why: str) -> None:
        problem = Problem(
            f"the relay cannot be written: {why}",
            "make room on its disk and see that this user may write there; until then flows that are behind read the "
            "datastore, which keeps its log",
            code="relay-unwritable",
        )
        with self._work:
            if problem != self._problem:
                _log.error("%s", problem)
            self._problem = problem
            self._again_at = self._clock.monotonic() + _AGAIN_S
        self._lost()

    def _lost(self) -> None:
        """Handle the loss of written records, which the queued segments no longer adjoin."""
        with self._work:
            self._unsynced = 0
            self._written += len(self._queue)
            self._queued -= sum(order.memory for order in self._queue if isinstance(order, Segment))
            self._queue.clear()
            stretches = self._files.stretches
            self._put(self._tip.lost(stretches[-1].end if stretches else None))

    def _make_room(self) -> None:
        """Remove the oldest files while the relay is over its budget. If their removal is not permitted, the datastore
        keeps its log."""
        files, full = self._files, False
        limit = self._settings.budget
        if self._no_space:
            self._no_space, limit = False, min(limit, files.size - 1)
        while files.size > limit and (oldest := files.oldest_file()) is not None:
            if self._is_needed(oldest):
                full = self._settings.on_full == "keep_slot"
                if full or self._oldest is None:
                    break
                self._losing(oldest)
            if not files.drop_oldest(oldest.path):
                break
            self._again_at = -math.inf
        with self._work:
            if full and not self._full:
                self._put(self._tip.give_up())
            self._full = full

    def _trim(self, keep_bytes: int) -> None:
        files = self._files
        while files.size > keep_bytes and (oldest := files.oldest_file()) is not None:
            if self._is_needed(oldest):
                self._losing(oldest)
            if not files.drop_oldest(oldest.path):
                break
        if not keep_bytes:
            files.clear()
            self._lost()

    def _is_needed(self, file: RelayFile) -> bool:
        """Whether a flow may need the file's log, which the datastore may no longer have."""
        return self._holds and (self._oldest is None or file.end.order > self._oldest)


def _grouped(orders: Sequence[Order]) -> Iterator[tuple[list[Segment], Order | None]]:
    """The orders as pairs: consecutive segments, and the order that follows them."""
    segments: list[Segment] = []
    for order in orders:
        if isinstance(order, Segment):
            segments.append(order)
        else:
            yield segments, order
            segments = []
    yield segments, None
