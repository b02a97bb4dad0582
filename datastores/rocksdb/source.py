"""RocksDB as a log source: reads from the disk the WAL files of a database that another process has open."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from datastores.rocksdb.history.keeper import KeptHistory, WalKeeper
from datastores.rocksdb.log.cursor import WentBack
from datastores.rocksdb.log.places import (
    check_anchor,
    check_reach,
    diverged,
    first_sequence,
    record_after,
    sequence_after,
)
from datastores.rocksdb.log.reader import RocksReader
from datastores.rocksdb.log.scan import find_sequence, scan_end
from wormhole.model.errors import DecodeError, Diverged, PositionError, PositionPurged, SourceUnavailable, WormholeError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding, hash_shards, shard_of_table
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later

__all__ = ["RocksSource"]


class RocksSource:
    """Implements :class:`~wormhole.ports.log_source.LogSource` for the database in the directory ``path``.

    :class:`~datastores.rocksdb.log.reader.RocksReader` defines order and gaps. Places are (incarnation, WAL number,
    offset); logical positions are sequence numbers. WAL files are kept from ``start`` on until they are released, even
    while the source is stopped.
    """

    def __init__(
        self,
        path: Path,
        *,
        log: str,
        state_dir: Path,
        sharding: Sharding,
        max_update_bytes: int,
        disk_budget: int,
        polling: bool = False,
    ) -> None:
        self._path = path
        self._log = log
        self._sharding = sharding
        self._max_update_bytes = max_update_bytes
        self._keeper = WalKeeper(path, state_dir / "rocksdb", disk_budget, polling=polling)
        self._lock = threading.Lock()
        self._furthest: Datamarker | None = None
        self._readers: set[_Reader] = set()

    def start(self) -> None:
        """See the port."""
        self._keeper.start()

    def stop(self) -> None:
        """See the port. Open readers are closed."""
        with self._lock:
            readers, self._furthest = list(self._readers), None
        for reader in readers:
            reader.close()
        self._keeper.stop()

    def earliest(self) -> Datamarker:
        """See the port. The place is the beginning of the oldest WAL that is live or kept."""
        history = self._history()
        number = history.files.newer(-1)
        if number is None:
            # The database is just being opened, or every WAL was deleted.
            order = LogPosition(history.incarnation, max(0, history.files.highest), 0)
            return Datamarker(order, str(history.catalogue.last_sequence), order)
        sequence = first_sequence(history.files, number)
        before = sequence - 1 if sequence is not None else history.catalogue.last_sequence
        order = LogPosition(history.incarnation, number, 0)
        return Datamarker(order, str(before), order)

    def latest(self) -> Datamarker:
        """See the port."""
        self._keeper.scan()  # includes a file that was just created
        history = self._history()
        with self._lock:
            known = self._furthest
        if known is not None and (known.order.incarnation != history.incarnation or not self._stands(history, known)):
            with self._lock:
                self._furthest = known = None
        if known is None and history.files.newer(-1) is None:
            return self.earliest()
        try:
            marker = scan_end(history.files, source_id=history.source_id, incarnation=history.incarnation, after=known)
        except WentBack as back:
            self._split(history, back)
            return self.latest()
        if marker.anchor is None:
            return self.earliest()
        return self._note(marker)

    def locate(self, text: str) -> Datamarker:
        """See the port. ``seq:N`` is the place after the change with sequence number N. If that is within a
        transaction, it is the transaction's beginning."""
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        latest, earliest = self.latest(), self.earliest()
        history = self._history()
        place: LogPosition | None = None
        if text.startswith("seq:"):
            if not text[4:].isascii() or not text[4:].isdigit():
                raise PositionError(
                    f"{text!r} is no sequence number", hint="write seq: and a number, for example seq:1042"
                )
            sequence = int(text[4:])
            if sequence > int(latest.delivered or 0):
                raise PositionError(f"{text} is ahead of the log, which ends at {latest}", hint="use latest")
        else:
            place = LogPosition.parse(text)
            if place.incarnation != history.incarnation:
                raise PositionError(
                    f"{text} is of incarnation {place.incarnation}, the database is in incarnation "
                    f"{history.incarnation}",
                    hint="use earliest, latest or seq:N",
                )
            if place > latest.order:
                raise PositionError(f"{text} is ahead of the log, which ends at {latest}", hint="use latest")
            if place < earliest.order:
                sequence = -1
            else:
                following = sequence_after(history.files, place)
                if following is None:
                    return latest
                sequence = following - 1
        if sequence < int(earliest.delivered or 0):
            raise PositionPurged(
                f"the log begins at {earliest} and no longer holds {text}",
                last_missing=earliest.delivered,
                position=text,
                hint="use earliest, or replay from an archive",
            )
        if sequence == int(earliest.delivered or 0):
            return earliest
        try:
            return find_sequence(history.files, sequence, source_id=history.source_id, incarnation=history.incarnation)
        except DecodeError:
            # The user may choose this place to skip damage, which a sequence number alone does not skip.
            found = None if place is None else record_after(history.files, place)
            if found is None:
                raise
            return Datamarker(found[0], str(found[1] - 1), found[0])

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. Exact to about a second, because the log has no times
        (:mod:`datastores.rocksdb.history.time_index`)."""
        latest, earliest = self.latest(), self.earliest()
        found = self._history().times.until(at_us)
        if found is None or found[0] <= earliest.order:
            raise begins_later(earliest, 0 if found is None else found[1])
        place = found[0]
        if place.offset:  # the transaction that ends at the place is later, so the result precedes it
            place = LogPosition(place.incarnation, place.file, place.offset - 1)
        return latest if place >= latest.order else self.locate(str(place))

    def open(self, marker: Datamarker) -> _Reader:
        """See the port."""
        history = self._history()
        files, order = history.files, marker.order
        if order.incarnation != history.incarnation:
            now = self.latest().order
            ended = self._keeper.ended_at(order.incarnation)
            raise diverged(marker, f"the database is in incarnation {now.incarnation}, at {now}", ended)
        if order.file > files.highest:
            self._keeper.scan()  # the file may have just been created
            if order.file > files.highest >= 0:
                raise diverged(marker, f"the log ends at {self.latest().order}")
        if files.path(order.file) is None:
            history.catalogue.refresh()
            check_reach(files, marker, history.catalogue.last_sequence)
        else:
            check_anchor(files, marker)
        if marker.order >= self.latest().order:
            self._check_there()
        reader = _Reader(self, history, marker, self._reader(history, marker))
        with self._lock:
            self._readers.add(reader)
        return reader

    def shards(self) -> frozenset[str]:
        """See the port."""
        match self._sharding.by:
            case "hash":
                return frozenset(hash_shards(self._log, self._sharding.count))
            case "table":
                names = self._history().catalogue.names().values()
                return frozenset(shard_of_table(self._log, name) for name in names)
            case _:
                return frozenset({self._log})

    def release(self, oldest: LogPosition) -> None:
        """See the port."""
        try:
            self._keeper.release(oldest.incarnation, oldest.file, oldest.offset)
            history = self._history()
            if oldest.incarnation == history.incarnation:
                history.times.prune(oldest)
                history.catalogue.forget_logs(oldest.file)
        except OSError as error:
            raise SourceUnavailable(
                f"the kept log of {self._path} cannot be deleted: {error}",
                hint="make space on the disk of the publisher's state_dir; a retry follows",
                code="file-unwritable",
            ) from error

    def status(self) -> SourceStatus:
        """See the port."""
        history = self._history()
        oldest = LogPosition(history.incarnation, max(0, history.files.newer(-1) or 0), 0)
        with self._lock:
            known = self._furthest
        end = known.order if known is not None and known.order.incarnation == history.incarnation else oldest
        files = history.files
        return SourceStatus(
            end,
            oldest,
            files.pinned_bytes,
            self._keeper.problems(),
            files=files.sizes(),
            budget_bytes=files.budget,
            end_unknown=self._keeper.gone,
        )

    # --- inside ------------------------------------------------------------------------------------------------

    def _history(self) -> KeptHistory:
        return self._keeper.current

    def _check_there(self) -> None:
        """Raise :class:`SourceUnavailable` if the database is gone. Otherwise its log would look idle."""
        if gone := self._keeper.gone:
            raise SourceUnavailable(
                gone,
                hint="bring it back; if it was moved, write its new path into `source` and restart the publisher",
            )

    def _reader(self, history: KeptHistory, marker: Datamarker) -> RocksReader:
        return RocksReader(
            history,
            marker,
            log=self._log,
            sharding=self._sharding,
            max_update_bytes=self._max_update_bytes,
        )

    def _split(self, history: KeptHistory, back: WentBack) -> None:
        """Begin the history that ``back`` found. Raises :class:`SourceUnavailable`."""
        try:
            self._keeper.split(history, back.file, back.message)
        except OSError as error:
            raise SourceUnavailable(f"{self._path} cannot be read: {error}", hint="a retry follows") from error

    @staticmethod
    def _stands(history: KeptHistory, known: Datamarker) -> bool:
        """Whether the log still holds the transaction before ``known``. A crash may have removed the log's end."""
        try:
            check_anchor(history.files, known)
        except (Diverged, DecodeError):
            return False
        return True

    def _note(self, marker: Datamarker) -> Datamarker:
        with self._lock:
            if self._furthest is None or marker.order > self._furthest.order:
                self._furthest = marker
                self._keeper.reached(marker.order, marker.delivered)
        return marker

    def _closed(self, reader: _Reader) -> None:
        with self._lock:
            self._readers.discard(reader)


class _Reader:
    """A `RocksReader` that also notices missing files and the end of its history. Implements
    :class:`~wormhole.ports.log_source.LogReader`."""

    def __init__(self, source: RocksSource, history: KeptHistory, marker: Datamarker, reader: RocksReader) -> None:
        self._source = source
        self._history = history
        self._marker = marker
        # The file of the last transaction before the reader's place, or the file before the first unread one. A later
        # datamarker without an anchor only passes empty files, so it does not change this.
        order, anchor = marker.order, marker.anchor
        self._known_file = anchor.begin.file if anchor is not None else order.file if order.offset else order.file - 1
        self._reader = reader
        self._is_closed = False

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See :class:`~wormhole.ports.log_source.LogReader`.

        Raises :class:`Diverged` when the history ended and another one follows."""
        ended = self._history.files.closed
        try:
            segment = self._reader.read(max_bytes, 0.0 if ended else wait_s)
        except WentBack as back:
            self.close()
            self._source._split(self._history, back)
            raise diverged(self._marker, f"another history began, at {self._source.latest().order}") from back
        except WormholeError as error:
            self.close()
            raise error.at(position=str(self._marker.order)) from error.__cause__
        if segment is None:
            if ended and not self._is_closed:
                self.close()
                raise diverged(self._marker, f"another history began, at {self._source.latest().order}")
            if not self._is_closed:
                self._check_there()
            return None
        gap = segment.gap
        if gap is not None and gap.kind is LossKind.NOT_LOGGED:
            before, after = self._known_file, segment.end.file
            if before < after and self._may_lack(before, after):
                segment.gap = replace(
                    gap,
                    kind=LossKind.PURGED,
                    message=f"sequence numbers {gap.first_missing} to {gap.last_missing} are not in the log: WAL files "
                    f"between {before} "
                    f"and {after} were deleted before they could be kept",
                )
        if segment.marker is not None:
            self._marker = self._source._note(segment.marker)
            if segment.marker.anchor is not None:
                self._known_file = segment.marker.anchor.begin.file
        return segment

    def _may_lack(self, before: int, after: int) -> bool:
        """Whether a file between these two may have been deleted before it could be kept."""
        files, catalogue = self._history.files, self._history.catalogue
        if files.may_lack(before, after, catalogue.logs()):
            return True
        # The keeper's thread may not have read the event about a file that was created and deleted.
        self._source._keeper.catch_up()
        return files.may_lack(before, after, catalogue.logs())

    def _check_there(self) -> None:
        try:
            self._source._check_there()
        except WormholeError as error:
            self.close()
            raise error.at(position=str(self._marker.order)) from None

    def close(self) -> None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        self._is_closed = True
        self._reader.close()
        self._source._closed(self)
