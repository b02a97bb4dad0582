"""A cursor that advances over files, records and gaps of the WAL, and encodes the records that it passes.

The cursor's action depends on what follows. The first matching line applies::

    whole record                                                      encode it
    whole fragment of an unknown kind, or with no FIRST before it     DecodeError
    nothing, zeros, or an older log's remains                         go to a newer file with records, or wait
    no whole record, valid log of this file after it                  damage: DecodeError
    no whole record, none after it, first of the file's full blocks   not RocksDB's log: DecodeError
    no whole record, newer file with records, numbers adjoin          the database dropped it after a crash: go there
    no whole record, newer file with records, numbers do not          damage: DecodeError (in a recycled file: a gap)
    no whole record, no newer file                                    not written yet: wait
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from typing import Final

from datastores.common.next_steps import REPAIR
from datastores.rocksdb.decode.log_format import FULL, LAST
from datastores.rocksdb.decode.write_batch import Encoder, Status
from datastores.rocksdb.log.port import WalFiles
from datastores.rocksdb.log.transaction import Bytes, Outcome, Payload, PreparedBatch, RecordWalk, refuse_per_batch
from datastores.rocksdb.log.wal_file import FillResult, WalFile, WalRecord
from wormhole.model.errors import DecodeError, Diverged, WormholeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition

__all__ = ["CursorStep", "WalCursor", "WentBack"]

_NOOP: Final = b"\x0d"


def _after(wal: WalFile, first: int) -> int:
    """The fragment after the record that begins with fragment ``first``."""
    while wal.frames.kinds[first] not in {FULL, LAST}:
        first += 1
    return first + 1


class WentBack(Diverged):
    """Another history begins with WAL ``file``, whose first sequence number earlier files have already reached."""

    def __init__(self, message: str, *, file: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.file = file


class CursorStep:
    """The result of a step of the cursor."""

    END: Final = 0
    """The log has nothing more now."""
    PROGRESS: Final = 1
    """The cursor passed records and is at a transaction's end."""
    PIECE: Final = 2
    """A part of a transaction is encoded. The next step continues the transaction."""
    GAP: Final = 3
    """Log is missing before the next record. ``gap`` describes it; the caller clears ``gap``."""


class WalCursor:
    """``file`` and ``at``: the place, which is the next byte to read.

    ``begin``, ``sequence``, ``checksum``: of the transaction before the place.

    ``prepared``: transactions prepared before the place and not yet committed or rolled back. ``log_bytes``: bytes of
    log passed so far. ``resolve``: registers a column family with the encoder.
    """

    def __init__(
        self,
        files: WalFiles,
        encoder: Encoder,
        resolve: Callable[[int, WalFile], None],
        *,
        file: int,
        at: int,
        silent_until: tuple[int, int] | None = None,
        one_by_one: bool = False,
    ) -> None:
        """``silent_until``: before this place nothing is encoded, and only prepared transactions are recorded.

        ``one_by_one``: a step passes one record.
        """
        self._files = files
        self._encoder = encoder
        self._resolve = resolve
        self._one_by_one = one_by_one
        self.file = file
        self.at = at
        self.begin: tuple[int, int] | None = None
        self.sequence = 0
        self.checksum = 0
        self.prepared: dict[bytes, PreparedBatch] = {}
        self.gap: LogGap | None = None
        self.log_bytes = 0
        self._silent_until = silent_until
        self._silent_expected = encoder.expected
        self._skipping = encoder.skipping
        if silent_until is not None:
            encoder.skipping = True
            encoder.expected = -1
        self._wal: WalFile | None = None
        self._others: dict[int, WalFile] = {}
        self._next = 0  # the next fragment; with 0 fragments nothing is loaded
        self._walk: RecordWalk | None = None
        self._walk_begin = 0
        self._walk_end = (0, 0)  # end and checksum of the record in `_walk`
        self._walk_stop = 0
        self._unprepared = b""
        self._lost_file = 0
        self._expect: int | None = None  # the sequence number after a gap
        self._rechecked = False
        self._seen_fault: tuple[int, tuple[int, int]] | None = None

    def close(self) -> None:
        """Close every file."""
        for wal in (self._wal, *self._others.values()):
            if wal is not None:
                wal.close()
        self._wal = None
        self._others.clear()

    @property
    def silent(self) -> bool:
        """Whether the place is before ``silent_until``, so that nothing is encoded."""
        return self._silent_until is not None

    @property
    def loaded(self) -> bool:
        """Whether the next step needs no read, because records are in memory."""
        return self._walk is None and self._wal is not None and self._next < self._wal.frames.count

    @property
    def open_index(self) -> int:
        """The number of updates encoded so far of the transaction at the cursor."""
        return self._walk.index if self._walk is not None else 0

    @property
    def open_end(self) -> int:
        """The offset after the transaction at the cursor."""
        return self._walk_end[0]

    def step(self, max_bytes: int) -> int:
        """Advance by about ``max_bytes``. Returns a `CursorStep`.

        Raises :class:`DecodeError`, :class:`Diverged`, :class:`~wormhole.model.errors.SourceUnavailable`,
        :class:`~wormhole.model.errors.UnsupportedLog`.
        """
        if self._expect is not None:
            self._encoder.expected, self._expect = self._expect, None
        if self._silent_until is not None and (self.file, self.at) >= self._silent_until:
            file, at = self._silent_until
            if self.file == file and self.at != at:
                raise self._no_place(at)
            self._silent_until = None
            self._encoder.skipping = self._skipping
            if self._silent_expected >= 0:
                self._encoder.expected = self._silent_expected
        if self._walk is not None:
            return self._go_on(max_bytes)
        wal = self._wal or self._open()
        if wal is None:
            return self._missing()
        if self._next >= wal.frames.count:
            result = wal.fill(self.at, min(max(max_bytes, 64 << 10), 1 << 20))
            self._next = 0
            if result is FillResult.LARGE:
                self._check_first(wal)
                return self._start_large(wal)
            if result is not FillResult.RECORDS:
                return self._at_end(wal, result)
            self._check_first(wal)
            self._rechecked = False
            self._seen_fault = None
        return self._records(wal, max_bytes)

    def marker(self, incarnation: int, source_id: str, anchor: Anchor | None, committed_at_us: int) -> Datamarker:
        """The datamarker at the place, a transaction's end. ``anchor``: an earlier anchor, used if the cursor has
        passed no transaction."""
        if self.begin is not None:
            begin = LogPosition(incarnation, *self.begin)
            anchor = Anchor(f"{source_id}:{self.sequence}", self.checksum, begin)
        order = LogPosition(incarnation, self.file, self.at)
        read_from = order
        if self.prepared:
            read_from = LogPosition(incarnation, *min(prepared.place for prepared in self.prepared.values()))
        expected = self._encoder.expected
        return Datamarker(order, str(expected - 1) if expected > 0 else "", read_from, anchor, committed_at_us)

    # --- records --------------------------------------------------------------------------------------------------

    def _records(self, wal: WalFile, max_bytes: int) -> int:
        frames, encoder, first = wal.frames, self._encoder, self._next
        last = _after(wal, first) if self._one_by_one else frames.count
        if self._silent_until is not None:
            file, at = self._silent_until
            if file == self.file:
                last = bisect_left(frames.heads, at - wal.base, first, last)
                if last == first:
                    raise self._no_place(at)
        if wal.zstd:
            return self._compressed(wal, last, max_bytes)
        encoder.frame = -1
        try:
            self._next = encoder.records(wal.data, frames, first, last, wal.base, max_bytes)
        except DecodeError as error:
            bad = first if encoder.frame < 0 else _after(wal, encoder.frame)
            raise wal.error("record", wal.base + frames.heads[bad], f"cannot be decoded: {error.message}") from error
        if encoder.frame >= 0:
            self._passed(wal, encoder.frame, self._next)
        status = encoder.status
        if status == Status.OK:
            return CursorStep.PROGRESS
        if self._next > first and status != Status.FAMILY:
            return CursorStep.PROGRESS  # the encoded records are returned first; the next step gets the status again
        return self._odd(wal, status, max_bytes)

    def _compressed(self, wal: WalFile, last: int, max_bytes: int) -> int:
        """Decompress and encode compressed records one by one."""
        frames, encoder, first = wal.frames, self._encoder, self._next
        while self._next < last and encoder.used < max_bytes:
            stop = _after(wal, self._next)
            at, end = wal.base + frames.heads[self._next], wal.base + frames.ends[stop - 1]
            try:
                batch = wal.batch(self._next, stop)
                if batch is None:
                    if self._next > first:
                        break
                    return self._start(wal, wal.open_payload(at), at, stop, wal.payload_crc(first), max_bytes)
                status = encoder.record(batch, 0, len(batch), end)
            except DecodeError as error:
                raise wal.error("record", at, f"cannot be decoded: {error.message}") from error
            if status == Status.OK:
                self._passed(wal, self._next, stop)
                self._next = stop
            elif status == Status.FAMILY:
                self._resolve(encoder.family, wal)
            elif self._next > first:
                break
            else:
                return self._odd(wal, status, max_bytes)
        return CursorStep.PROGRESS

    def _odd(self, wal: WalFile, status: int, max_bytes: int) -> int:
        """Handle the record at ``_next``, which is not plain or does not continue the last one."""
        encoder = self._encoder
        at = wal.base + wal.frames.heads[self._next]
        if status == Status.FAMILY:
            self._resolve(encoder.family, wal)
            return self._records(wal, max_bytes)
        if status == Status.GAP:
            return self._tell_gap(encoder.sequence)
        if status == Status.BACK:
            raise self._back(wal, at)
        if status == Status.PER_BATCH:
            raise refuse_per_batch().at(position=f"{self.file}/{at}")
        if status == Status.MARKER:
            stop = _after(wal, self._next)
            batch = wal.batch(self._next, stop)
            assert batch is not None
            return self._start(wal, Bytes(batch), at, stop, wal.payload_crc(self._next), max_bytes)
        raise wal.error("record", at, f"is no valid batch: {encoder.problem}")

    def _passed(self, wal: WalFile, last_record: int, following: int) -> None:
        """Move the place past the records before fragment ``following``. ``last_record``: the first fragment of the
        last one."""
        frames = wal.frames
        before = self.at
        self.begin = (self.file, wal.base + frames.heads[last_record])
        self.at = wal.base + frames.ends[following - 1]
        self.sequence = self._encoder.sequence
        self.checksum = wal.payload_crc(last_record)
        self.log_bytes += self.at - before
        self._lost_file = 0

    # --- records in parts -----------------------------------------------------------------------------------------

    def _start_large(self, wal: WalFile) -> int:
        at = wal.base
        measured = wal.measure(at)
        if measured is None:
            return self._at_end(wal, FillResult.TORN)
        end, checksum = measured
        return self._start(wal, wal.open_payload(at), at, 0, checksum, 1 << 18, end)

    def _start(
        self, wal: WalFile, payload: Payload, at: int, stop: int, checksum: int, max_bytes: int, end: int = 0
    ) -> int:
        self._walk = RecordWalk(
            self._encoder,
            payload,
            (self.file, at),
            self.prepared,
            self._fetch,
            lambda family: self._resolve(family, wal),
        )
        self._walk_end = (end or wal.base + wal.frames.ends[stop - 1], checksum)
        self._walk_begin = at
        self._walk_stop = stop
        self._unprepared = b""
        return self._go_on(max_bytes)

    def _fetch(self, prepared: PreparedBatch) -> Payload:
        """The batch that holds a prepared transaction."""
        file, at = prepared.place
        if self._wal is not None and self._wal.number == file:
            return self._wal.open_payload(at)
        if file not in self._others:
            path = self._files.path(file)
            if path is None:
                raise DecodeError(
                    f"WAL {file}, which holds a prepared transaction at {at}, is gone before its commit",
                    hint="start the application anew: what was prepared there cannot be read any more",
                )
            for other in self._others.values():
                other.close()
            self._others = {file: WalFile(path, file)}
        return self._others[file].open_payload(at)

    def _go_on(self, max_bytes: int) -> int:
        walk, wal, encoder = self._walk, self._wal, self._encoder
        assert walk is not None
        assert wal is not None
        used, updates = encoder.used, encoder.updates
        try:
            outcome = walk.step(max_bytes)
            while outcome == Outcome.UNPREPARED:
                self._unprepared = walk.xid
                outcome = walk.step(max_bytes)
        except DecodeError as error:
            encoder.used, encoder.updates = used, updates
            raise wal.error("record", self._walk_begin, f"is no valid batch: {error.message}") from error
        if outcome == Outcome.PIECE:
            encoder.open_transaction(self._walk_begin)
            return CursorStep.PIECE
        self._walk = None
        if outcome == Outcome.GAP:
            wal.frames.count = 0  # the record is read again after the gap is reported
            return self._tell_gap(encoder.sequence)
        if outcome == Outcome.BACK:
            raise self._back(wal, self._walk_begin)
        if walk.index:
            encoder.end_transaction(self._walk_end[0])
        if walk.consumed:
            encoder.expected = walk.sequence + walk.consumed
        self.log_bytes += self._walk_end[0] - self.at
        self.begin = (self.file, self._walk_begin)
        self.sequence = walk.sequence
        self.at, self.checksum = self._walk_end
        self._next = self._walk_stop or wal.frames.count
        if self._unprepared and not encoder.skipping:
            self.gap = LogGap(
                LossKind.PURGED,
                str(walk.sequence + walk.consumed),
                "",
                f"the transaction named {self._unprepared!r} was committed at {self.file}/{self._walk_begin}, "
                "and the log no longer holds what it prepared",
            )
            self._expect = -1
        return CursorStep.PROGRESS

    # --- gaps and the ends of files -------------------------------------------------------------------------------

    def _tell_gap(self, sequence: int) -> int:
        encoder = self._encoder
        # Only the next step moves past the gap, because a datamarker from before it must lead to the gap again.
        self._expect = sequence
        expected = encoder.expected
        if self.silent:
            return CursorStep.PROGRESS
        kind, why = LossKind.NOT_LOGGED, "they were written past the log (writes with the WAL disabled, ingested files)"
        if self._lost_file:
            kind, why = LossKind.PURGED, f"WAL {self._lost_file} is no longer there"
            self._lost_file = 0
        self.gap = LogGap(
            kind,
            str(expected),
            str(sequence - 1),
            f"sequence numbers {expected} to {sequence - 1} are not in the log: {why}",
        )
        return CursorStep.GAP

    def _no_place(self, at: int) -> DecodeError:
        return DecodeError(
            f"offset {at} of WAL {self.file} is no transaction's end",
            hint="the place comes from another log: start the application anew from a place of this one",
        )

    def _back(self, wal: WalFile, at: int) -> WormholeError:
        went = f"sequence number {self._encoder.sequence} where {self._encoder.expected} follows"
        with closing(WalFile(wal.path, wal.number)) as whole:
            before: WalRecord | None = None
            for record in whole.records():
                if before is not None and record.sequence < before.sequence + before.entries:
                    # A file never holds two histories, so falling numbers within a file have another cause.
                    if before.sequence < record.sequence:
                        return refuse_per_batch().at(position=f"{self.file}/{before.begin}")
                    return wal.error("record", at, f"has {went}")
                before = record
        return self._went_back(f"{wal.path.name}, offset {at}: {went}")

    def _check_first(self, wal: WalFile) -> None:
        """At a file's beginning, raise :class:`WentBack` if the file does not continue the files before it.

        Its first sequence number is then one that earlier files reached, and ids of changes would be used twice. If the
        database lost the end of its log, its next file may begin with a record without changes.
        """
        first = wal.first_sequence() if self.at == 0 else None
        if first is None:
            return
        file, reached = self._files.reached
        expected = self._encoder.expected
        if self.file > file and first <= reached:
            raise self._went_back(
                f"{wal.path.name} begins at sequence number {first}, and WAL {file} had reached {reached}"
            )
        if first < expected:
            if self.begin is not None and self.sequence < first and self._is_separated(*self.begin):
                raise refuse_per_batch().at(position="{}/{}".format(*self.begin))
            raise self._went_back(f"{wal.path.name}, offset 0: sequence number {first} where {expected} follows")

    def _is_separated(self, number: int, at: int) -> bool:
        """Whether the batch of the record at ``at`` ends with a no-op. A database that numbers batches ends each batch
        with one, unless the batch was prepared before."""
        path = self._files.path(number)
        last = b""
        if path is not None:
            with closing(WalFile(path, number)) as wal:
                payload = wal.open_payload(at)
                while piece := payload.read(1 << 16):
                    last = piece[-1:]
        return last == _NOOP

    def _went_back(self, why: str) -> WentBack:
        return WentBack(
            f"{why}: the database went back to an earlier state",
            file=self.file,
            hint=f"it was restored or lost the end of its log: {REPAIR}",
        )

    def _open(self) -> WalFile | None:
        path = self._files.path(self.file)
        if path is None:
            return None
        self._wal = WalFile(path, self.file)
        self._next = 0
        return self._wal

    def _missing(self) -> int:
        """Continue with the next file, because the place's file is gone."""
        found = self._successor()
        lost = self.file if self.at or self.file else 0
        if found is None:
            # The log ends in a file without records. The place moves there, so that it is the log's end.
            newer = self._files.newer(self.file)
            if newer is not None and not self.silent:
                self._lost_file = self._lost_file or lost
                self._move(newer)
            return CursorStep.END
        self._lost_file = self._lost_file or lost
        self._move(found[0])
        return CursorStep.PROGRESS if self.silent else self.step(1 << 18)

    def _successor(self) -> tuple[int, int] | None:
        """The next file that holds a record, and that record's sequence number."""
        number = self._files.newer(self.file)
        while number is not None:
            path = self._files.path(number)
            if path is not None:
                wal = WalFile(path, number)
                try:
                    sequence = wal.first_sequence()
                finally:
                    wal.close()
                if sequence is not None:
                    return number, sequence
            number = self._files.newer(number)
        return None

    def _move(self, number: int) -> None:
        if self._wal is not None:
            self._wal.close()
            self._wal = None
        self.file, self.at = number, 0
        self._next = 0
        self._rechecked = False
        self._seen_fault = None

    def _at_end(self, wal: WalFile, result: FillResult) -> int:
        if result is FillResult.TORN:
            wal.check()
        successor = self._successor()
        if successor is not None and not self._rechecked:
            # The file may have grown after it was read and before the next file was found.
            self._rechecked = True
            return self.step(1 << 18)
        self._check_damage(wal, result, successor is not None)
        if successor is None:
            return CursorStep.END
        number, sequence = successor
        expected = self._encoder.expected
        if result is FillResult.TORN and not wal.recycled and 0 <= expected < sequence:
            at, _ = wal.fault
            raise wal.error(
                "record",
                at,
                f"is not whole, and WAL {number} goes on at sequence number {sequence} where {expected} is next",
            )
        self._move(number)
        return self.step(1 << 18)

    def _check_damage(self, wal: WalFile, result: FillResult, closed: bool) -> None:
        """Raise :class:`DecodeError` if valid log follows bytes that are no record.

        At the live end the file is searched once per change. A recycled file normally holds an older log's remains
        there. It is searched only if the file changed and the place did not.
        """
        at, _ = wal.fault
        state = (at, wal.changed())
        if not closed:
            seen, self._seen_fault = self._seen_fault, state
            if seen == state or (wal.recycled and (seen is None or seen[0] != at)):
                return
        later = wal.later_record(at)
        if later is None and not wal.is_foreign():
            return
        # The file may have grown, and the bytes may now be a record.
        again = wal.fill(self.at)
        if again is FillResult.LARGE and wal.measure(wal.base) is None:
            again = FillResult.TORN
        wal.frames.count = 0
        if again is result and wal.fault[0] == at:
            raise wal.damage(later)
