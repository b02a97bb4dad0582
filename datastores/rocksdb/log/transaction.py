"""Reads records that are not one plain batch in memory: two-phase commit, and records too large for memory.

A record is read in parts. At a COMMIT, the entries of the prepared transaction are read again from the record of its
PREPARE. Until then only the WAL holds them, and memory holds their place::

    walk := entry* ((BEGIN_PREPARE entry* END_PREPARE) | COMMIT prepared | COMMIT_AT prepared | ROLLBACK)*
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from datastores.rocksdb.decode.write_batch import Encoder, Status
from wormhole.model.errors import DecodeError, UnsupportedLog

__all__ = ["Bytes", "Outcome", "Payload", "PreparedBatch", "RecordWalk", "refuse_per_batch"]

_PIECE: Final = 64 << 10
_BEGIN_PREPARE: Final = 0x09
_END_PREPARE: Final = 0x0A
_ROLLBACK: Final = 0x0C
_COMMIT_AT: Final = 0x15


class Payload(Protocol):
    """A batch that is read in parts."""

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        ...


class Bytes:
    """A batch in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        """The whole batch, regardless of ``size``, because it is small."""
        data, self._data = self._data, b""
        return data


@dataclass(slots=True)
class PreparedBatch:
    """A prepared transaction's entries: bytes ``begin`` to ``end`` of the batch at ``place`` (file, offset)."""

    place: tuple[int, int]
    begin: int
    end: int
    entries: int


class Outcome:
    """The result of a step of a walk."""

    DONE: Final = 0
    PIECE: Final = 1
    """About the requested bytes are encoded, and more follow."""
    GAP: Final = 2
    BACK: Final = 3
    UNPREPARED: Final = 4
    """A commit of ``xid``, whose prepare was not found."""


def refuse_per_batch() -> UnsupportedLog:
    """The error for `Status.PER_BATCH`."""
    return UnsupportedLog(
        "this database numbers batches instead of keys (write-prepared or write-unprepared transactions, "
        "seq_per_batch)",
        hint="open the TransactionDB with the write policy WRITE_COMMITTED",
    )


class _Level:
    """A source of entries: the record itself, or the prepared transaction that it commits."""

    __slots__ = ("at", "buffer", "ended", "left", "offset", "payload", "skip")

    def __init__(self, payload: Payload, skip: int, left: int) -> None:
        self.payload = payload
        self.skip = skip
        self.left = left  # unread bytes after the skipped ones
        self.buffer = b""
        self.at = 0
        self.offset = skip  # offset in the batch at which the buffer begins
        self.ended = left == 0

    def more(self, need: int) -> None:
        """Read until the buffer has ``need`` bytes from ``at`` on, or the end is reached."""
        parts = io.BytesIO()
        have = parts.write(memoryview(self.buffer)[self.at :])
        self.buffer = b""
        self.offset += self.at
        self.at = 0
        need = max(need, have + _PIECE)
        while have < need and not self.ended:
            piece = self.payload.read(_PIECE)
            if self.skip:
                dropped = min(self.skip, len(piece))
                self.skip -= dropped
                if dropped == len(piece) and piece:
                    continue
                piece = piece[dropped:]
            piece = piece[: self.left]
            self.left -= len(piece)
            self.ended = not piece or not self.left
            have += parts.write(piece)
        self.buffer = parts.getvalue()  # getvalue() does not copy, so a large value is in memory once

    def drop(self) -> None:
        """Free the bytes before ``at`` if there are many."""
        if self.at > _PIECE * 16:
            self.buffer = self.buffer[self.at :]
            self.offset += self.at
            self.at = 0


class RecordWalk:
    """Reads one record into an encoder.

    ``prepared``: the prepared transactions by name (xid), which the walk updates. ``consumed``: the sequence numbers
    used by the record so far. ``index``: the number of its updates in earlier parts.
    """

    def __init__(
        self,
        encoder: Encoder,
        payload: Payload,
        place: tuple[int, int],
        prepared: dict[bytes, PreparedBatch],
        fetch: Callable[[PreparedBatch], Payload],
        resolve: Callable[[int], None],
    ) -> None:
        self._encoder = encoder
        self._place = place
        self._prepared = prepared
        self._fetch = fetch
        self._resolve = resolve
        self._levels = [_Level(payload, 0, 1 << 62)]
        self._begun = False
        self._prepare: tuple[int, int] | None = None  # the open prepare: its entries' begin, the count before
        self._written = 0  # entries of the record that its header counts
        self._in_commit = False
        self._skipping = encoder.skipping
        self.consumed = 0
        self.index = 0
        self.xid = b""

    @property
    def sequence(self) -> int:
        """The record's first sequence number. Known after the first step."""
        return self._sequence

    def step(self, max_bytes: int) -> int:
        """Encode about ``max_bytes`` more.

        Returns an `Outcome`. After `Outcome.DONE` the caller must still report the transaction's end. `GAP` and `BACK`
        are returned before anything is encoded or changed. After `UNPREPARED` (see ``xid``) the next step continues
        after the commit. Raises :class:`DecodeError`.
        """
        encoder = self._encoder
        if not self._begun:
            status = self._begin()
            if status != Outcome.DONE:
                return status
        encoder.sequence = self._sequence
        before = encoder.updates
        outcome = Outcome.DONE
        while self._levels:
            if encoder.used >= max_bytes:
                outcome = Outcome.PIECE
                break
            stopped = self._walk(self._levels[-1])
            if stopped is not None:
                outcome = stopped
                break
        self.index += encoder.updates - before
        if outcome == Outcome.DONE:
            if self._prepare is not None:
                raise DecodeError("record: a prepare has no end")
            if self._written != self._count:
                raise DecodeError(f"record: its batch claims {self._count} entries and has {self._written}")
        return outcome

    def _begin(self) -> int:
        encoder, level = self._encoder, self._levels[0]
        level.more(12)
        expected, encoder.expected = encoder.expected, -1
        status = encoder.begin(level.buffer, 0, min(12, len(level.buffer)))
        encoder.expected = expected
        if status == Status.BROKEN:
            raise DecodeError(f"record: its batch is broken: {encoder.problem}")
        self._sequence = encoder.sequence
        self._count = encoder.count
        level.at = 12
        if encoder.count and expected >= 0 and encoder.sequence != expected:
            return Outcome.GAP if encoder.sequence > expected else Outcome.BACK
        self._begun = True
        return Outcome.DONE

    def _walk(self, level: _Level) -> int | None:
        encoder = self._encoder
        encoder.counted = 0
        encoder.skipping = self._skipping or self._prepare is not None
        try:
            status = encoder.entries(level.buffer, level.at, len(level.buffer), level.ended)
        finally:
            encoder.skipping = self._skipping
        level.at = encoder.at
        level.drop()
        counted = encoder.counted
        if self._in_commit:
            self.consumed += counted
        else:
            self._written += counted
            if self._prepare is None:
                self.consumed += counted
        if status == Status.OK and level.ended:
            self._levels.pop()
            self._in_commit = False
            encoder.commit_timestamp = b""
        elif status in {Status.OK, Status.MORE}:
            level.more(encoder.need if status == Status.MORE else 0)
        elif status == Status.SKIP:
            level.at = len(level.buffer)
            self._pass_over(level, encoder.need)
        elif status == Status.FAMILY:
            self._resolve(encoder.family)
        elif status == Status.MARKER:
            return self._marker(level)
        elif status == Status.PER_BATCH:
            raise refuse_per_batch()
        else:
            raise DecodeError(f"record: its batch is broken: {encoder.problem}")
        return None

    def _pass_over(self, level: _Level, size: int) -> None:
        while size:
            if level.at == len(level.buffer):
                if level.ended:
                    raise DecodeError(f"record: it ends {size} bytes before the end of its last entry")
                level.more(0)
            step = min(size, len(level.buffer) - level.at)
            level.at += step
            size -= step

    def _marker(self, level: _Level) -> int | None:
        kind = level.buffer[level.at]
        if kind == _BEGIN_PREPARE:
            if self._prepare is not None or self._in_commit:
                raise DecodeError("record: a prepare begins inside a prepare")
            level.at += 1
            self._prepare = (level.offset + level.at, self._written)
            return None
        timestamp, after = b"", level.at + 1
        if kind == _COMMIT_AT:
            timestamp, after = self._name(level, 1)
        xid, after = self._name(level, after - level.at)
        if kind == _END_PREPARE:
            if self._prepare is None:
                raise DecodeError("record: a prepare ends that did not begin")
            begin, before = self._prepare
            end = level.offset + level.at
            self._prepare = None
            level.at = after
            self._prepared[xid] = PreparedBatch(self._place, begin, end, self._written - before)
            return None
        if self._prepare is not None or self._in_commit:
            raise DecodeError("record: a commit or rollback is inside a prepare")
        if kind == _ROLLBACK:
            self._prepared.pop(xid, None)
            level.at = after
            return None
        prepared = self._prepared.get(xid)
        encoder = self._encoder
        if prepared is None:
            self.xid = xid
            level.at = after
            return Outcome.UNPREPARED
        if prepared.entries and not self.consumed and 0 <= encoder.expected != self._sequence:
            return Outcome.GAP if self._sequence > encoder.expected else Outcome.BACK
        level.at = after
        del self._prepared[xid]
        if self._skipping:
            self.consumed += prepared.entries
            return None
        encoder.commit_timestamp = timestamp
        self._in_commit = True
        self._levels.append(_Level(self._fetch(prepared), prepared.begin, prepared.end - prepared.begin))
        return None

    def _name(self, level: _Level, at: int) -> tuple[bytes, int]:
        """The string ``at`` bytes after the present place of ``level``, and the index after it."""
        if len(level.buffer) - level.at < at + 5 and not level.ended:
            level.more(at + 5)
        size = shift = 0
        buffer = level.buffer
        i = level.at + at
        while i < len(buffer) and shift < 35:
            byte = buffer[i]
            i += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80 and size <= 1 << 20:
                start = i - level.at
                if len(buffer) - i < size and not level.ended:
                    level.more(start + size)
                end = level.at + start + size
                if end > len(level.buffer):
                    break
                return level.buffer[level.at + start : end], end
            shift += 7
        raise DecodeError("record: the name of a transaction runs over the end of the batch")
