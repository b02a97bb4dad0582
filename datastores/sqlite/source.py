"""The log of a database: moves the changes that triggers recorded into the publisher's record, which readers read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from datastores.common.next_steps import REPAIR
from datastores.common.polling import Polling
from datastores.common.shared_state import make_state_dir
from datastores.sqlite.changes import Changes, Shown
from datastores.sqlite.claim import Claim
from datastores.sqlite.reader import RecordReader
from datastores.sqlite.record import Place, Record, Recorded
from datastores.sqlite.triggers import Installation
from datastores.sqlite.url import SEQUENCE, Address
from wormhole.model.errors import Diverged, PositionError, PositionPurged, SourceUnavailable, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.sharding import hash_shards, shard_of_table
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later

__all__ = ["SqliteSource", "stale_problem"]

_log = logging.getLogger(__name__)

_FASTEST_S: Final = 0.005
_SLOWEST_S: Final = 0.05
_PRUNED_S: Final = 5.0
_LEAST_PRUNED: Final = 1_000
_LOW: Final = 0xFFFFFFFF


class SqliteSource:
    """Implements :class:`~wormhole.ports.log_source.LogSource`."""

    def __init__(self, address: Address, options: SourceOptions) -> None:
        self._path = address.path
        self._options = options
        self._folder = options.state_dir / "sqlite"
        self._changes = Changes(address.path, options.max_update_bytes, write=not options.transient)
        self._claim = Claim(address.path)
        self._record: Record | None = None
        self._installation: Installation | None = None
        self._lock = threading.RLock()
        self.grown = threading.Condition()
        self.history = 0
        self._end = self._begin = Place(0, 0, 0)
        self._released = 0
        self._pruned_at = 0.0
        self._unpruned = NO_PROBLEM
        self._pause_s = _FASTEST_S
        self._polling = Polling(options, _log, "%s")

    # --- the port -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """See the port."""
        make_state_dir(self._folder)
        with self._lock:
            if not self._options.transient:
                with self._changes.shown(0):  # it is a database whose changes are recorded
                    self._claim.take()
                self._changes.check_writable()
            self._record = Record(self._folder / "record.db")
            self._take()
        self._pause_s = _FASTEST_S
        self._polling.begin(f"changes-{self._options.log}", {"": (lambda: self._pause_s, self._poll)})

    def stop(self) -> None:
        """See the port."""
        self._polling.end()
        with self._lock:
            self._changes.close()
            record, self._record = self._record, None
            if record is not None:
                record.close()
            self._claim.release()

    def earliest(self) -> Datamarker:
        """See the port."""
        with self._lock:
            return self.marker(self._recorded().begin())

    def latest(self) -> Datamarker:
        """See the port."""
        with self._lock:
            self._take()
            return self.marker(self._end)

    def locate(self, text: str) -> Datamarker:
        """See the port. ``seq:42`` is the place after change 42."""
        if text == "earliest":
            return self.earliest()
        latest = self.latest()
        if text == "latest":
            return latest
        if (named := SEQUENCE.fullmatch(text)) is not None:
            seq = int(named[1])
        else:
            place = LogPosition.parse(text)
            if (place.incarnation, place.file) != (latest.order.incarnation, latest.order.file):
                raise PositionError(f"{text} is of another log than {latest.order}", hint="use latest")
            seq = place.offset
        if seq > latest.order.offset:
            raise PositionError(f"{text} is ahead of the log, which ends at {latest}", hint="use latest")
        with self._lock:
            if seq < self._begin.seq:
                raise self.purged(text)
            return self.marker(next(one for one in self._recorded().places() if one.seq <= seq))

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port."""
        with self._lock:
            self._take()
            if self._begin.at * 1000 > at_us:
                raise begins_later(self.marker(self._begin), self._begin.at * 1000)
            return self.marker(next(one for one in self._recorded().places() if one.at * 1000 <= at_us))

    def open(self, marker: Datamarker) -> RecordReader:
        """See the port."""
        with self._lock:
            self._take()
            self._compare(marker)
            path = self._folder / "record.db"
            return RecordReader(self, Record(path), marker.order.offset, self._options.log, self._options.sharding)

    def shards(self) -> frozenset[str]:
        """See the port."""
        sharding, log = self._options.sharding, self._options.log
        if sharding.by == "hash":
            return frozenset(hash_shards(log, sharding.count))
        if sharding.by != "table":
            return frozenset({log})
        with self._lock:
            captured = () if self._installation is None else self._installation.captured
            return frozenset(shard_of_table(log, table) for table in self._recorded().tables() | set(captured))

    def release(self, oldest: LogPosition) -> None:
        """See the port."""
        with self._lock:
            if self._installation is not None and oldest.incarnation == self._installation.incarnation:
                self._released = max(self._released, oldest.offset)
                self._recorded().drop(self._released)
                self._begin = self._recorded().begin()

    def status(self) -> SourceStatus:
        """See the port."""
        installation, end = self._installation, self._end
        problems = [problem for problem in (self._polling.problem, self._unpruned) if problem]
        if installation is not None and installation.stale:
            problems.append(stale_problem(self._path, sorted(installation.stale)))
        return SourceStatus(
            self.order(end.seq),
            self.order(self._begin.seq),
            0 if self._record is None else self._record.size,
            tuple(problems),
            files=((0, end.seq),),
            budget_bytes=self._options.disk_budget,
            end_unknown=str(self._polling.problem),
        )

    # --- for readers ----------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number of the last recorded change."""
        return self._end.seq

    @property
    def identity(self) -> str:
        """The identity of the database."""
        return "" if self._installation is None else self._installation.identity

    def order(self, seq: int) -> LogPosition:
        """The place after a change."""
        return LogPosition(0 if self._installation is None else self._installation.incarnation, 0, seq)

    def marker(self, place: Place) -> Datamarker:
        """The datamarker at a place."""
        order = self.order(place.seq)
        anchor = Anchor(f"{self.identity}:{place.seq}", place.proof & _LOW, self.order(max(0, place.seq - 1)))
        return Datamarker(order, str(place.seq), order, anchor, place.at * 1000)

    def purged(self, place: str, first: str = "") -> PositionPurged:
        """The error for a place before the beginning of the record."""
        return PositionPurged(
            f"the log begins at {self.order(self._begin.seq)} and no longer holds what follows {place}",
            first_missing=first,
            last_missing=str(self._begin.seq),
            position=place,
            hint=REPAIR,
        )

    # --- recording changes, with the lock held --------------------------------------------------------------------

    def _recorded(self) -> Record:
        if self._record is None:
            raise SourceUnavailable(f"the source of {self._path} was stopped", hint="start it again")
        return self._record

    def _take(self) -> None:
        """Record the changes that were committed since the last call."""
        record = self._recorded()
        while self._take_once(record):
            pass
        begin, end = record.begin(), record.end()
        with self.grown:
            self._begin, self._end = begin, end
            self.grown.notify_all()

    def _take_once(self, record: Record) -> bool:
        """Record the changes in one snapshot. Returns whether to read again, after an entry was added."""
        with self._changes.shown(record.end().seq) as (installation, shown):
            self._installation = installation
            self._prove(record, installation, shown)
            after = record.end()
            replaced = self._replaced(record, installation)
            if shown.top.seq > after.seq:
                self._add(record, installation, shown, after, replaced)
            full, end = shown.full, record.end().seq
        if self._options.transient:
            return False
        if full:
            record.sync()
            self._changes.unblock(end)
        elif replaced and shown.top.seq <= after.seq:
            self._changes.note()
        else:
            return False
        return True

    def _add(
        self, record: Record, installation: Installation, shown: Shown, after: Place, replaced: Sequence[str]
    ) -> None:
        begins, at, gap = after.seq, max(after.at, shown.top.at), ("", "")
        captured = installation.working
        if shown.gaps is not None:
            first, last = shown.gaps
            gap = str(first), str(last)
            proof = self._changes.proof(first - 1)
            if first - 1 > begins and proof is not None:
                place = Place(first - 1, proof, at)
                rows = self._changes.rows(installation, begins, first - 1)
                record.add(Recorded(place, begins, ("", ""), ()), rows, captured)
                begins = first - 1
        rows = self._changes.rows(installation, begins, shown.top.seq)
        place = Place(shown.top.seq, shown.top.proof, at)
        record.add(Recorded(place, begins, gap, tuple(replaced)), rows, captured)
        record.trim(self._options.disk_budget)

    def _prove(self, record: Record, installation: Installation, shown: Shown) -> None:
        """Check that the database has the recorded history. Changes that it lost leave the record."""
        end, known = record.end(), record.identity()
        if not known:
            record.begin_anew(installation.identity, shown.low)
            return
        if known == installation.identity and self._changes.proof(end.seq) == end.proof:
            return
        kept = None
        if known == installation.identity:
            kept = next((one for one in record.places() if self._changes.proof(one.seq) == one.proof), None)
        if kept is None:
            record.begin_anew(installation.identity, shown.low)
        else:
            record.cut(kept.seq)
        self.history += 1
        _log.warning(
            "%s was replaced or restored, or another publisher deleted its changes: they were read up to %d, and it "
            "has only those up to %d. Next: nothing; flows that cannot continue are held and report the range",
            self._path,
            end.seq,
            0 if kept is None else kept.seq,
        )

    def _replaced(self, record: Record, installation: Installation) -> list[str]:
        """The tables whose changes may be incomplete, because their triggers were missing for a time."""
        before, now = record.captured(), installation.working
        if before is None or before == now:
            return []
        lost = [name for name, number in before.items() if now.get(name) != number and name in self._changes.tables]
        new = [name for name in now if name not in before and not self._changes.is_empty(name)]
        return sorted({*lost, *new})

    def _compare(self, marker: Datamarker) -> None:
        """Check that ``marker`` belongs to this log. Raises ``Diverged`` or ``PositionPurged``."""
        order, end = marker.order, self.order(self._end.seq)
        if (order.incarnation, order.file) != (end.incarnation, end.file) or order > end:
            raise self._diverged(marker, f"the log is {self.order(self._begin.seq)} to {end}")
        if order.offset < self._begin.seq:
            raise self.purged(str(order), str(order.offset + 1))
        if marker.anchor is None:
            return
        place = next(one for one in self._recorded().places() if one.seq <= order.offset)
        proof = place.proof if place.seq == order.offset else self._shown_proof(order.offset)
        found = None if proof is None else f"{self.identity}:{order.offset}", None if proof is None else proof & _LOW
        if found != (marker.anchor.id, marker.anchor.checksum):
            raise self._diverged(marker, "the change before that place is another one")

    def _shown_proof(self, seq: int) -> int | None:
        with self._changes.shown(seq):
            return self._changes.proof(seq)

    def _diverged(self, marker: Datamarker, found: str) -> Diverged:
        fork = self._recorded().fork()
        lost = 0 < fork < marker.order.offset and marker.order.incarnation == self.order(0).incarnation
        return Diverged(
            f"the datamarker {marker} is not of this log: {found}",
            first_missing=str(fork + 1) if lost else "",
            last_missing=marker.delivered,
            resume=str(self.order(max(fork, self._begin.seq))) if lost else "",
            position=str(marker.order),
            hint=REPAIR,
        )

    # --- the thread -----------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._pause_s = min(self._pause_s * 1.5, _SLOWEST_S)
        self._polling.poll(self._poll_once)
        if self._polling.problem:
            self._pause_s = _SLOWEST_S

    def _poll_once(self) -> None:
        with self._lock:
            if self._changes.changed():
                self._pause_s = _FASTEST_S
                self._take()
            self._prune()

    def _prune(self) -> None:
        """Delete changes from the database: those that every flow has, or all recorded ones if there are very many."""
        now = time.monotonic()
        if self._options.transient or self._installation is None or now < self._pruned_at + _PRUNED_S:
            return
        self._pruned_at = now
        record = self._recorded()
        with self._changes.shown(self._end.seq) as (installation, shown):
            many = (shown.top.seq - shown.low.seq) * 2 > installation.max_changes
        before = self._end.seq if many else min(self._released, self._end.seq)
        if before - shown.low.seq < _LEAST_PRUNED:
            return
        record.sync()
        try:
            while self._changes.prune(before):
                pass
        except WormholeError as error:
            self._unpruned = error.problem
        else:
            self._unpruned = NO_PROBLEM


def stale_problem(path: Path, tables: Sequence[str]) -> Problem:
    """The problem of tables whose triggers are missing or outdated."""
    return Problem(
        f"changes of {', '.join(tables)} are not recorded, or not all of them: the triggers are not those that belong "
        "to the table as it is now",
        f"wormholectl capture install sqlite://{path} --tables {','.join(tables)}",
        code="objects-missing",
    )
