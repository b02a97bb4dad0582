"""Finds places of a log by name, by position and by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from datastores.postgres.history.proof import log_bytes_anchor
from datastores.postgres.log import slots
from datastores.postgres.log.flushing import await_flushed
from datastores.postgres.log.opening import Log
from datastores.postgres.log.reader import WalReader
from datastores.postgres.server.address import Address
from datastores.postgres.server.lsn import format_lsn, parse_delivered
from wormhole.model.errors import PositionError, PositionPurged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.log_times import begins_later

__all__ = ["Places"]

_REPLAY = "use earliest, or replay from an archive"
_PROVEN: Final = 4
_PATIENCE_S: Final = 3.0  # the time limit, in seconds, for flushing an empty commit


class Places:
    """``look`` returns the present log. ``open_at`` opens a reader of it. ``commit_nothing`` makes an empty commit and
    ``wait`` pauses (see :mod:`datastores.postgres.log.flushing`).
    """

    def __init__(
        self,
        address: Address,
        look: Callable[[], Log],
        open_at: Callable[[Datamarker], WalReader],
        commit_nothing: Callable[[], object],
        wait: Callable[[float], object],
    ) -> None:
        self._address = address
        self._look = look
        self._open = open_at
        self._commit_nothing = commit_nothing
        self._wait = wait
        self._ending = threading.Lock()  # one empty commit serves all threads that need the end
        self._proving = threading.Lock()
        self._proven: dict[tuple[str, LogPosition], Datamarker] = {}  # the last few; flows share places

    def earliest(self) -> Datamarker:
        """The beginning of the slot that keeps the log."""
        log = self._look()
        return self._with_proof(log, self._earliest(log))

    def latest(self) -> Datamarker:
        """The end of the flushed log. Every confirmed commit precedes it, unless ``synchronous_commit`` is off."""
        log, end = self.end()
        return self._with_proof(log, log.marker(end))

    def end(self) -> tuple[Log, int]:
        """The log, and the end of its last flushed record.

        The end must not be within a record: a walsender that begins within a commit's record skips that commit. Raises
        :class:`~wormhole.model.errors.SourceUnavailable` if the server does not flush the rest of the record.
        """
        log = self._look()
        if not log.torn:
            return log, log.end
        with self._ending:
            log = first = self._look()
            if not first.torn:
                return first, first.end

            def flushed() -> int:
                nonlocal log
                log = self._look()
                return log.state.flushed

            end = first.state.end
            if not await_flushed(end, flushed, self._commit_nothing, self._wait, _PATIENCE_S):
                raise SourceUnavailable(
                    f"the server did not write its log to its disk up to {format_lsn(end)} within {_PATIENCE_S:g} s: "
                    f"it is written up to {format_lsn(log.state.flushed)}, where a commit may be cut",
                    hint="check the server's disk, and wal_writer_delay; a retry follows",
                )
            if (log.state.identity, log.state.session) != (first.state.identity, first.state.session):
                # After a crash the server writes other records here, and one of them may extend past this end.
                raise SourceUnavailable(
                    "another server answers than a moment before, or it crashed; the end of its log was asked for",
                    hint="a retry follows",
                )
            return log, end

    def locate(self, text: str) -> Datamarker:
        """See :meth:`datastores.postgres.source.PostgresSource.locate`."""
        text = text.strip()
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        log = self._look()
        lsn = self._lsn(log, text)
        if lsn > log.state.end:
            raise PositionError(
                f"{text} is ahead of the log, which ends at {log.marker(log.state.end)}", hint="use latest"
            )
        first = self._earliest(log)
        if lsn < first.order.offset:
            raise PositionPurged(
                f"the log begins at {first}, and the server no longer sends {text}",
                last_missing=first.delivered,
                position=text,
                hint=_REPLAY,
            )
        return self._with_proof(log, log.marker(lsn))

    def locate_time(self, at_us: int) -> Datamarker:
        """The end of the last transaction committed by ``at_us``.

        The log is read from its beginning, because it has no index of times.
        """
        log, end = self.end()
        first = self._earliest(log)
        found: Datamarker | None = None
        reader = self._open(first)
        try:
            while reader.place < log.place(end):
                segment = reader.read(1, 1.0)
                if segment is None or segment.marker is None or segment.newest_us == 0:
                    continue
                if segment.newest_us > at_us:
                    if found is None:
                        raise begins_later(first, segment.newest_us)
                    return found
                found = segment.marker
        finally:
            reader.close()
        if found is None:
            raise begins_later(first, 0)
        return found

    def _with_proof(self, log: Log, marker: Datamarker) -> Datamarker:
        """The marker with an anchor of the log's bytes before it, if the server sends them.

        Without this anchor a restored copy could not be recognised if the state folder is also lost before a
        transaction is read.
        """
        place = marker.order
        if place.offset > log.state.flushed:
            return marker
        key = (
            log.state.started,
            place,
        )  # a restored copy has another start time, and may have other bytes at this place
        with self._proving:
            if key not in self._proven:
                anchor = log_bytes_anchor(self._address, log.state, log.timelines, place)
                if anchor is not None:
                    marker = replace(marker, read_from=min(place, anchor.begin), anchor=anchor)
                while len(self._proven) >= _PROVEN:
                    del self._proven[next(iter(self._proven))]
                self._proven[key] = marker
            return self._proven[key]

    def _earliest(self, log: Log) -> Datamarker:
        first, *_ = slots.usable(log.state, self._address.slot, self._address.database)
        return log.marker(first.confirmed)

    def _lsn(self, log: Log, text: str) -> int:
        if text.count("/") == 2:
            place = LogPosition.parse(text)
            if place.incarnation != log.history.number or place.file:
                raise PositionError(
                    f"{text} is not a place of the log's incarnation {log.history.number}",
                    hint="use earliest, latest or an LSN",
                )
            return place.offset
        timeline, lsn = parse_delivered(text)
        if not log.timelines.holds(timeline or log.timelines.current, lsn):
            raise PositionError(
                f"{text} is of timeline {timeline}, which the server's history does not have up to {format_lsn(lsn)}",
                hint="use earliest, latest or an LSN of its present timeline",
            )
        return lsn
