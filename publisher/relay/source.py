"""A log source that adds a relay to a datastore's log. Flows that are behind read the relay's records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from caravan.log_map import LogMap
from publisher.relay.cursor import Gone, RelayCursor
from publisher.relay.disk import DISK, Disk
from publisher.relay.files import RelayFile, RelayFiles, Stretch
from publisher.relay.filler import Filler
from publisher.relay.hold import Hold
from publisher.relay.lost_key_files import LostKeyFiles
from publisher.relay.reader import RelayedReader
from publisher.relay.recorder import QUEUE_BYTES, Recorder
from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.tip import Proof
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import DecodeError, Diverged, PositionError, PositionPurged, SourceUnavailable
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.log_source import LogReader, LogSource, PurgedInside, RelayStatus, SourceStatus

__all__ = ["RelayedSource"]

_log = logging.getLogger(__name__)

_FILE_BYTES: Final = 64 << 20
_GIVEN_UP: Final = Problem(
    "the relay cannot take the log as it grows, and the datastore gives it up beyond slot_budget: flows that are "
    "behind lose it (on_relay_full)",
    'see why the relay\'s disk fails or is slow; `on_relay_full = "keep_slot"` has the datastore keep its log',
    code="relay-unwritable",
)
_LEAST_FILES: Final = 8  # the fewest files of a full relay, so that removing one file removes a small part


class RelayedSource:
    """A :class:`~wormhole.ports.log_source.LogSource` around ``inner``, with a relay in ``folder``. Thread-safe.

    ``queue_bytes``: the memory for read log that is not written to the relay yet.
    """

    def __init__(
        self,
        inner: LogSource,
        folder: Path,
        identity: RelayIdentity,
        settings: RelaySettings,
        *,
        disk: Disk = DISK,
        clock: Clock = SYSTEM_CLOCK,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._inner = inner
        self._settings = settings
        self._clock = clock
        self._holds = settings.mode == "hold"
        self._files = RelayFiles(
            folder,
            identity,
            hold=settings.mode != "cache",
            disk=disk,
            compress=settings.compress,
            file_bytes=min(_FILE_BYTES, settings.budget // _LEAST_FILES),
        )
        self._lost_keys = LostKeyFiles(folder, identity, disk=disk)
        self.recorder = Recorder(self._files, settings, self._losing, clock=clock, queue_bytes=queue_bytes)
        self._filler: Filler | None = None
        self._readers: set[RelayedReader] = set()
        self._incarnation: int | None = None  # the incarnation that the relay was last compared with
        self._said = ""
        self._hold = Hold(settings.slot_budget, lose=settings.on_full == "lose")
        self._held: LogPosition | None = None
        self._given_up = False

    # --- the port -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """See the port. Also raises errors of the relay's folder."""
        self._open_files()
        try:
            self._inner.start()
        except BaseException:
            self._files.close()
            raise
        self.recorder.start()
        if self._holds:
            self._filler = Filler(self._inner, self.recorder)
            self._filler.start()

    def _open_files(self) -> None:
        try:
            self._files.open()
        except SourceUnavailable as error:
            if self._settings.mode != "cache":
                raise  # the relay may hold log that the datastore no longer has
            _log.error("the publisher works without its relay until its next start: %s", error)
            self.recorder.do_without(error.problem)
        if self._settings.mode == "off" and self._files.stretches:
            _log.warning("the relay is off: what it holds is read until every flow has passed it, and removed then")

    def stop(self) -> None:
        """See the port. Open readers are closed."""
        for reader in tuple(self._readers):
            reader.close()
        self.recorder.stop()
        if self._filler is not None:
            self._filler.join()
            self._filler = None
        self._inner.stop()
        self._files.close()

    def earliest(self) -> Datamarker:
        """See the port: the beginning of the relay if no log is missing after it, otherwise of the datastore's log."""
        earliest = self._inner.earliest()
        joined = self._joined(earliest.order) if self._is_proven() else None
        return earliest if joined is None else joined.begin

    def latest(self) -> Datamarker:
        """See the port."""
        return self._inner.latest()

    def locate(self, text: str) -> Datamarker:
        """See the port. In log that only the relay holds, the places are the ends of records."""
        if text == "earliest":
            return self.earliest()
        try:
            return self._inner.locate(text)
        except PositionPurged:
            found = self._found(lambda: self._locate(text))
            if found is None:
                raise
            return found

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. In log that only the relay holds, the places are the ends of records."""
        try:
            return self._inner.locate_time(at_us)
        except PositionPurged:
            found = self._found(lambda: self._located_time(at_us))
            if found is None:
                raise
            return found

    def open(self, marker: Datamarker) -> LogReader:
        """See the port."""
        if (reader := self._recorded(marker)) is not None:
            return reader
        if self._holds and self.recorder.tip is None and marker.order <= self._inner.earliest().order:
            self.recorder.begins()
        try:
            return self._reader(marker, inner=self._inner.open(marker))
        except PositionPurged as error:
            # The relay may have recorded the log meanwhile, so that the datastore has deleted it.
            if (reader := self._recorded(marker)) is not None:
                return reader
            raise self._purged(marker, error) from error

    def shards(self) -> frozenset[str]:
        """See the port."""
        return self._inner.shards()

    def release(self, oldest: LogPosition) -> None:
        """See the port. In the mode ``hold`` the datastore may delete log that the relay holds durably."""
        self.recorder.release(oldest)
        place, given_up = oldest, False
        if self._holds and self.recorder.proof is Proof.ONE:
            status = self._inner.status()
            log = LogMap(status.files)
            place, given_up = self._hold.point(oldest, status.end, self._stretches, log, behind=self.recorder.is_behind)
        tip = self.recorder.tip
        if self._settings.mode == "off" and tip is not None and tip.read_from <= oldest:
            self.recorder.trim(0)
        if given_up and not self._given_up:
            _log.error("%s", _GIVEN_UP)
        self._given_up = given_up
        self._held = place if place > oldest else None
        self._inner.release(place)

    def status(self) -> SourceStatus:
        """See the port."""
        status = self._inner.status()
        joined = None
        if self.recorder.proof in (Proof.ONE, Proof.UNKNOWN):
            joined = self._joined(status.oldest)
        return replace(
            status,
            oldest=status.oldest if joined is None else joined.begin.order,
            problems=(
                *status.problems,
                *filter(None, (self.recorder.problem, _GIVEN_UP if self._given_up else NO_PROBLEM)),
            ),
            relay=self._status(),
        )

    # --- the relay (LogRelay) -------------------------------------------------------------------------------------

    def trim(self, keep_bytes: int) -> None:
        """See the port. Only whole files are removed."""
        self.recorder.trim(keep_bytes)
        if not keep_bytes:
            self._lost_keys.clear()

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """See the port."""
        return self._lost_keys.keys(shard, begin, end)

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        """See the port."""
        self._lost_keys.release(oldest)

    # --- what readers go on with ----------------------------------------------------------------------------------

    def find(self, marker: Datamarker) -> RelayCursor | None:
        """See :class:`~publisher.relay.reader.RelayAccess`."""
        if not self.recorder.serves:
            return None
        cursor = self._files.find(marker)
        tip = self.recorder.tip
        if cursor is None and tip is not None and self._end() < marker.order <= tip.order:
            self.recorder.flush()
            cursor = self._files.find(marker)
        return cursor

    def find_following(self, marker: Datamarker) -> RelayCursor | None:
        """See :class:`~publisher.relay.reader.RelayAccess`."""
        recorder = self.recorder
        ends = {stretch.end.order for stretch in self._stretches}
        tip = recorder.tip
        if recorder.is_recording and tip is not None:
            ends.discard(tip.order)
        # Only the datastore can hold the log after the end of a stretch. Opening its log shows whether it does.
        return None if marker.order in ends else self.find(marker)

    def open_inner(self, marker: Datamarker) -> LogReader:
        """See :class:`~publisher.relay.reader.RelayAccess`."""
        return self._inner.open(marker)

    def compare(self) -> None:
        """See :class:`~publisher.relay.reader.RelayAccess`."""
        self._is_proven()

    def behind_hole(self, marker: Datamarker, error: PositionPurged) -> PurgedInside:
        """See :class:`~publisher.relay.reader.RelayAccess`."""
        if isinstance(error, PurgedInside):
            return error
        earliest = self._inner.earliest()
        begins = (one.begin for one in self._stretches if marker.order < one.begin.order <= earliest.order)
        sooner = next(begins, None)
        resume = earliest if sooner is None else sooner
        return PurgedInside(
            error.message if sooner is None else f"{error.message}; the relay begins again at {resume}",
            resume=resume,
            first_missing=error.first_missing,
            last_missing=error.last_missing if sooner is None else resume.delivered,
            position=error.position,
            hint=error.hint,
        )

    # --- the log that the relay is of -----------------------------------------------------------------------------

    def _is_proven(self) -> bool:
        reader = self._prove(None)
        assert reader is None
        return self.recorder.serves and self.recorder.proof in (Proof.ONE, Proof.PURGED)

    def _prove(self, marker: Datamarker | None) -> RelayedReader | None:
        """Check whether the relay records the datastore's log, by opening that log at the relay's tip.

        Does nothing while another reader records or has claimed the tip. Returns the opened reader if ``marker`` is the
        tip, otherwise ``None``. Raises the errors of opening the log, unless the log diverged, is purged or cannot be
        decoded.
        """
        recorder = self.recorder
        incarnation = self._inner.status().end.incarnation
        if self._incarnation is not None and incarnation != self._incarnation:
            recorder.distrust()
        self._incarnation = incarnation
        claim = object()
        if not recorder.claim(claim, wait=True):
            return None
        tip = recorder.tip
        if tip is None:
            recorder.unclaim(claim)
            return None
        try:
            inner = self._inner.open(tip)
        except Diverged as error:
            recorder.proved(claim, Proof.DIVERGED)
            self._say(f"the relay is not used, for it is of another log: {error.message}")
            return None
        except PositionPurged:
            recorder.proved(claim, Proof.PURGED)
            return None
        except DecodeError:
            recorder.unclaim(claim)
            return None
        except BaseException:
            recorder.unclaim(claim)
            raise
        self._said = ""
        if marker is None or not _is_same(marker, tip):
            recorder.proved(claim, Proof.ONE)
            inner.close()
            return None
        reader = self._reader(marker, inner=inner)
        recorder.proved(claim, Proof.ONE, reader)
        return reader

    def _say(self, line: str) -> None:
        if line != self._said:
            self._said = line
            _log.warning("%s", line)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _recorded(self, marker: Datamarker) -> RelayedReader | None:
        """A reader of the files at the marker, or of the datastore's log if the marker is the tip; or ``None``."""
        if (reader := self._prove(marker)) is not None:
            return reader
        cursor = self._find_proven(marker)
        return None if cursor is None else self._reader(marker, cursor=cursor)

    def _reader(
        self, marker: Datamarker, *, cursor: RelayCursor | None = None, inner: LogReader | None = None
    ) -> RelayedReader:
        reader = RelayedReader(self, marker, self._clock, self._readers.discard, cursor=cursor, inner=inner)
        self._readers.add(reader)
        return reader

    def _find_proven(self, marker: Datamarker) -> RelayCursor | None:
        """A cursor at the marker, if the relay records the datastore's log and holds log after the marker."""
        return self.find_following(marker) if self.recorder.proof in (Proof.ONE, Proof.PURGED) else None

    @property
    def _stretches(self) -> tuple[Stretch, ...]:
        """The stretches of the files that belong to the recorded log."""
        return self._files.stretches if self.recorder.serves else ()

    def _end(self) -> LogPosition:
        """The place up to which the datastore's log is complete."""
        stretches = self._files.stretches
        return stretches[-1].end.order if stretches else LogPosition(0, 0, 0)

    def _joined(self, earliest: LogPosition) -> Stretch | None:
        """The first stretch that begins before the datastore's log and reaches it without a gap, or ``None``."""
        for stretch in self._stretches:
            if stretch.begin.order.incarnation == earliest.incarnation and stretch.end.read_from >= earliest:
                return stretch if stretch.begin.order < earliest else None
        return None

    def _purged(self, marker: Datamarker, error: PositionPurged) -> PositionPurged:
        """The error for the range of log that is missing after the marker.

        The range ends where the datastore's log begins, or where the relay continues if that is earlier.
        """
        stretches = self._stretches if self.recorder.proof in (Proof.ONE, Proof.PURGED) else ()
        return self.behind_hole(marker, error) if stretches else error

    def _found(self, look: Callable[[], Datamarker | None]) -> Datamarker | None:
        """The result of ``look`` on the files, if the relay records the datastore's log."""
        if not self._is_proven():
            return None
        while True:
            try:
                return look()
            except Gone:
                pass  # a file was removed meanwhile: search the remaining files

    def _locate(self, text: str) -> Datamarker | None:
        """The last end of a record at or before the place ``text``; ``None`` without one.

        For a logical position, the end of a record that has exactly this position.
        """
        files = self._files.files
        try:
            place = LogPosition.parse(text)
        except PositionError:
            return next((marker for marker, _ in self._ends(files) if marker.delivered == text), None)
        file = next((one for one in reversed(files) if one.begin.order <= place), None)
        return None if file is None else _last(self._ends([file]), lambda marker, newest_us: marker.order <= place)

    def _located_time(self, at_us: int) -> Datamarker | None:
        """The last end of a record before which every transaction was committed at or before ``at_us``."""
        return _last(self._ends(self._files.files), lambda marker, newest_us: newest_us <= at_us)

    def _ends(self, files: Sequence[RelayFile]) -> Iterator[tuple[Datamarker, int]]:
        """The begins of files and the ends of records, each with the latest commit time in the record."""
        for file in files:
            cursor = self._files.find(file.begin)
            if cursor is None:
                continue
            yield file.begin, file.begin.committed_at_us
            with closing(cursor):
                newest_us = 0
                while cursor.marker.order < file.end.order and (segment := cursor.next()) is not None:
                    times = (time for run in segment.runs.values() for time in run.tx_committed_at_us)
                    newest_us = max(newest_us, segment.newest_us, *times)
                    if segment.marker is not None:
                        yield segment.marker, newest_us

    def _losing(self, file: RelayFile) -> None:
        """Prepare the removal of a file that a flow still needs, because the relay is full."""
        _log.error(
            "the relay is full: what flows still need of the log from %s to %s is given up (on_relay_full)",
            file.begin,
            file.end,
        )
        self._lost_keys.note(self._files.segments_of_oldest(), file.begin.order, file.end.order)

    def _status(self) -> RelayStatus:
        stretches, settings = self._files.stretches, self._settings
        first, last = (stretches[0], stretches[-1]) if stretches else (None, None)
        return RelayStatus(
            mode=settings.mode,
            begin=None if first is None else first.begin,
            tip=None if last is None else last.end,
            synced=None if last is None or last.synced is None else last.synced.order,
            stretches=tuple((one.begin.order, one.end.order) for one in stretches),
            held=self._held,
            bytes=self._files.size,
            log_bytes=self._files.log_bytes,
            budget_bytes=settings.budget,
            slot_budget_bytes=settings.slot_budget,
            keeps_slot=settings.on_full == "keep_slot",
            readers=sum(reader.reads_files for reader in tuple(self._readers)),
            problem=self.recorder.problem,
            unsynced_bytes=self.recorder.unsynced,
        )


def _is_same(marker: Datamarker, tip: Datamarker) -> bool:
    return marker.order == tip.order and (None in (marker.anchor, tip.anchor) or marker.anchor == tip.anchor)


def _last(ends: Iterator[tuple[Datamarker, int]], takes: Callable[[Datamarker, int], bool]) -> Datamarker | None:
    """The last of the ``ends`` before the first end for which ``takes`` returns false."""
    found = None
    for marker, newest_us in ends:
        if not takes(marker, newest_us):
            break
        found = marker
    return found
