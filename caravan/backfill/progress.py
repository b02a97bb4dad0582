"""Tracks the rows that one flow's backfill still needs. Pure. The flow stores this progress in its datamarkers.

Each key of a table at which a chunk ended has a number (:mod:`caravan.backfill.boundaries`). The rows that are needed
are ranges of these numbers.

A flow that was stopped continues from its datamarker and the progress in it. If the progress cannot be read, or belongs
to another request, everything is needed: rows may be sent twice, and none is missed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Final, Self

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.encoding import DamagedError, FieldReader, FieldWriter, sealed, unsealed
from wormhole.filters import Filter
from wormhole.filters.tree import And, TableIn, TableMatches, leaves
from wormhole.model.lost_keys import LostKeys, TableKeys
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem
from wormhole.model.schema import Column
from wormhole.model.segment import ChunkRange

__all__ = ["MOST_BYTES", "BackfillRequest", "FinishedTable", "FlowBackfill", "Renewal", "Unconfirmed", "without"]

MOST_BYTES: Final = 16 << 10
"""Limit in bytes of the progress in a datamarker."""

_VERSION: Final = 2
_UNKEPT: Final = 0  # version of bytes that only make datamarkers differ
_MOST_AGAIN: Final = 1_000  # keys of one table to read again; with more, their ranges are read again
_MOST_AGAIN_BYTES: Final = 1 << 20
_TRIES: Final = 10  # how often a key is read again before it is reported
_KEY_BYTES: Final = 4  # bytes of a table's fingerprint that are kept


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The request for a backfill.

    ``generation`` rises with each request for a flow. ``tables``: patterns as in filters; empty: all that the flow's
    filter may want. ``where``: selects the rows to send, in addition to the flow's filter. ``verify``: the rows are
    compared with those of the application, from the beginning in each epoch. ``lost``: only the rows ``keys``, which
    changed in these ranges of the log, each with its beginning and end; ``keys`` ``None``: whole tables.
    """

    generation: int
    tables: tuple[str, ...] = ()
    where: Filter | None = None
    paused: bool = False
    verify: bool = False
    keys: LostKeys | None = None
    lost: tuple[tuple[LogPosition, LogPosition], ...] = ()

    def wanted(self, own: Filter) -> Callable[[str], bool]:
        """Decides by name which tables a flow with the filter ``own`` needs."""
        chosen = [own, *([self.where] if self.where is not None else ())]
        if self.tables:
            chosen.append(Filter.parse(None, self.tables))
        known = None if self.keys is None else self.keys.tables
        return lambda table: (known is None or table in known) and not any(one.wants_none_of(table) for one in chosen)

    def keys_of(self, table: str) -> TableKeys | None:
        """The only rows of the table that are sent; ``None``: all of them."""
        found = None if self.keys is None else self.keys.tables.get(table)
        return None if found is None or found.whole else found

    def sends_all(self, table: str) -> bool:
        """Whether the request needs every row of the table, if it needs the table at all."""
        return self.keys is None or (table in self.keys.tables and self.keys_of(table) is None)

    def covers(self, begin: LogPosition, end: LogPosition) -> bool:
        """Whether every row that changed in this range of the log is among those that are sent."""
        return self.keys is None or any(low <= begin and end <= high for low, high in self.lost)

    def named(self, own: Filter) -> Iterable[str]:
        """The tables that are named in full in the request or in the flow's filter ``own``."""
        tests = leaves(own.where) if self.where is None else (*leaves(own.where), *leaves(self.where.where))
        patterns = chain(self.tables, *(test.patterns for test in tests if isinstance(test, TableMatches)))
        names = chain(*(test.names for test in tests if isinstance(test, TableIn)))
        return {*names, *(pattern for pattern in patterns if not any(sign in pattern for sign in "*?["))}

    def narrow(self, own: Filter) -> Filter:
        """The filter of the rows that a flow with the filter ``own`` is sent."""
        if self.where is None:
            return own
        return Filter(And((own.where, self.where.where)), own.source, own.formats, own.projection)


@dataclass(frozen=True, slots=True)
class FinishedTable:
    """A table whose rows were all sent to a flow.

    ``rows``: their number. ``unread``: number of keys that could not be read at one place of the log in any of the
    attempts. If there are any, nothing may be concluded about rows that were not sent.
    """

    table: str
    rows: int
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Keys that only the application reports to hold and whose state in the source is not known.

    ``foreign``: they belong to other shards, or are not spelled as in the table. ``changed``: the log has
    changes of them from the time in which they were read.
    """

    foreign: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Renewal:
    """The reason for beginning the backfill again in the next generation: the rows that were sent in this one prove
    nothing.

    ``at``: the place of the log that caused it. A flow that continued from a datamarker at or before it would meet it
    again. ``None``: the log did not cause it.
    """

    cause: str
    at: LogPosition | None = None


@dataclass(slots=True)
class _Again:
    """A key to read again, in the range of these numbers. ``tries``: how often it was put on the list."""

    begin: int
    end: int
    tries: int


@dataclass(slots=True)
class _Need:
    """The rows of one table that a backfill still needs.

    ``key``: fingerprint of the table's key. ``ranges``: ranges of numbers, disjoint and ascending. ``named``: keys to
    read once, because the subscriber named them. ``lost``: keys to read once, because only these rows of the table are
    needed; ``None``: all of the table is needed. ``columns``: the columns of the keys in ``lost``.
    """

    key: bytes
    list_id: int
    ranges: list[tuple[int, int]]
    again: dict[bytes, _Again] = field(default_factory=dict)
    rows: int = 0
    unread: int = 0
    named: dict[bytes, None] = field(default_factory=dict)
    lost: dict[bytes, None] | None = None
    columns: tuple[Column, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.ranges and not self.again and not self.named and not self.lost

    @property
    def begun(self) -> bool:
        """Whether there is progress to remember."""
        return bool(self.again) or (self.lost is None and self.ranges != [(START, END)])

    def be_whole(self) -> None:
        """Mark the whole table as needed, from its beginning."""
        self.ranges, self.lost = [(START, END)], None
        self.again.clear()

    def is_of(self, boundaries: Boundaries) -> bool:
        """Whether ``boundaries`` has its numbers. A list that was restored from an older copy lacks later numbers."""
        if not self.ranges and not self.again:
            return True  # no progress refers to a number
        again = ((one.begin, one.end) for one in self.again.values())
        return self.list_id == boundaries.id and all(map(boundaries.knows, chain.from_iterable((*self.ranges, *again))))

    def bound(self) -> None:
        """Replace the keys to read again by their ranges, if there are too many."""
        if len(self.again) > _MOST_AGAIN or sum(map(len, self.again)) > _MOST_AGAIN_BYTES:
            self.ranges = _merged((*self.ranges, *((one.begin, one.end) for one in self.again.values())))
            self.again.clear()
            self.lost = None


class FlowBackfill:
    """The progress of one flow. It is not thread-safe.

    ``offered``: whether :meth:`offer` was called; before that its tables are not known. ``paused``: it takes no rows at
    the moment. ``refused``: tables whose rows cannot be read, with the reason. ``rows``: number of rows sent, of all
    tables. ``renewal``: set when the backfill has to begin again in the next generation; it takes no rows then.
    """

    def __init__(self, request: BackfillRequest, filter_hash: str) -> None:
        self.request = request
        self.filter_hash = filter_hash
        self.paused = request.paused
        self.refused: dict[str, Problem] = {}
        self.rows = 0
        self.renewal: Renewal | None = None
        self._refused_rows: dict[str, int] = {}
        self._needs: dict[str, _Need] = {}
        self._done: dict[
            bytes, tuple[FinishedTable, bytes]
        ] = {}  # key: hash of the table's name; value: with the fingerprint of its key
        self.offered = False
        self._bytes: bytes | None = None
        self._chunks = 0
        self._unconfirmed: dict[str, Unconfirmed] = {}

    @classmethod
    def resume(cls, request: BackfillRequest, data: bytes, filter_hash: str) -> Self:
        """Continue from the result of :meth:`to_bytes`.

        Everything is needed if ``data`` is empty, unreadable, or of another generation or filter, and for a
        verification, which stores no progress.
        """
        found = cls(request, filter_hash)
        try:
            found._read(data)
        except DamagedError:
            return cls(request, filter_hash)
        return found

    @property
    def generation(self) -> int:
        """The generation of the request."""
        return self.request.generation

    @property
    def narrowed(self) -> bool:
        """Whether some rows that pass the flow's filter are not sent. If so, a row that was not sent may exist."""
        return self.request.where is not None

    # -- called by the scanner

    def offer(self, lists: Iterable[tuple[str, Boundaries]]) -> None:
        """Set the tables that the flow needs, as they are now. The tables that it finished are left out.

        If a key has another type or order than before, rows that the application holds under the former keys would stay
        in this generation.
        """
        if self.finished:
            return
        kept: dict[str, _Need] = {}
        for table, boundaries in lists:
            key = _digest(boundaries.fingerprint, _KEY_BYTES)
            done, need = self._done.get(_hash(table)), self._needs.get(table)
            former = done[1] if done is not None else None if need is None else need.key
            if former not in (key, None):
                self._renew(f"the type or the collation of the key of {table} changed")
            if done is not None:
                self._done[_hash(table)] = replace(done[0], table=table), done[1]
                continue
            if need is None:
                need = self._fresh(table, key, boundaries.id)
            elif not need.is_of(boundaries):
                need = _Need(key, boundaries.id, [(START, END)])
            elif need.lost is None and not need.ranges:  # the progress was stored without the lost keys
                fresh = self._fresh(table, key, boundaries.id)
                need.lost, need.columns = fresh.lost, fresh.columns
            kept[table] = need
        self._needs = kept
        self.offered = True
        self._bytes = None

    def _fresh(self, table: str, key: bytes, list_id: int) -> _Need:
        only = self.request.keys_of(table)
        if only is None:
            return _Need(key, list_id, [(START, END)])
        return _Need(key, list_id, [], lost=dict.fromkeys(sorted(only.keys)), columns=only.key)

    @property
    def begun(self) -> bool:
        """Whether any row was sent, or any result found."""
        begun = any(need.rows or need.begun for need in self._needs.values())
        return begun or bool(self.rows or self._done) or self.renewal is not None

    def extend(self, keys: LostKeys, lost: tuple[tuple[LogPosition, LogPosition], ...]) -> None:
        """Add keys of more lost log, before anything was sent."""
        self.request = replace(self.request, keys=keys, lost=lost)
        self._needs, self.offered, self._bytes = {}, False, None

    def need_whole(self, table: str) -> None:
        """Mark all of ``table`` as needed, because its known keys no longer identify the needed rows."""
        need = self._needs.get(table)
        if need is not None and need.lost is not None:
            need.be_whole()
            self._bytes = None

    def renumber(self, table: str, boundaries: Boundaries, former_id: int) -> None:
        """Adapt to a list that was thinned out: ``former_id`` is its old id, and ``boundaries`` has the new one."""
        need = self._needs.get(table)
        if need is None or need.list_id != former_id:
            return
        need.list_id = boundaries.id
        need.ranges = _merged(boundaries.widened(begin, end) for begin, end in need.ranges)
        for again in need.again.values():
            again.begin, again.end = boundaries.widened(again.begin, again.end)
        self._bytes = None

    def refuse(self, table: str, problem: Problem) -> None:
        """Record that the rows of ``table`` cannot be read: it is no longer needed."""
        self.refused[table] = problem
        need = self._needs.pop(table, None)
        if need is not None:
            self._refused_rows[table] = need.rows
            self._bytes = None

    @property
    def takes_rows(self) -> bool:
        """Whether it can take rows now."""
        return not self.paused and self.renewal is None

    @property
    def tables(self) -> Sequence[str]:
        """Tables of which rows are needed, in alphabetical order."""
        return sorted(self._needs)

    def ranges(self, table: str) -> Sequence[tuple[int, int]]:
        """The ranges of numbers that ``table`` still needs, ascending."""
        need = self._needs.get(table)
        return () if need is None else need.ranges

    def rows_of(self, table: str) -> int:
        """The number of rows sent of a table that is still needed or was refused; 0 for any other table."""
        need = self._needs.get(table)
        return self._refused_rows.get(table, 0) if need is None else need.rows

    def again(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` to read again."""
        need = self._needs.get(table)
        return () if need is None else need.again

    def named(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` to read because the subscriber named them."""
        need = self._needs.get(table)
        return () if need is None else need.named

    def lost(self, table: str) -> tuple[tuple[Column, ...], Iterable[bytes]]:
        """The keys of ``table`` if only these rows are needed, and the columns of which the keys consist."""
        need = self._needs.get(table)
        return ((), ()) if need is None or need.lost is None else (need.columns, need.lost)

    # -- called by the flow

    def needs(self, chunk: ChunkRange) -> bool:
        """Whether the flow needs the rows of ``chunk``."""
        need = self._needs.get(chunk.table)
        if need is None or not self.takes_rows:
            return False
        if chunk.alone:
            lost = need.lost or {}
            return any(key in need.again or key in need.named or key in lost for key in chunk.alone)
        return any(begin < chunk.end and chunk.begin < end for begin, end in need.ranges)

    def finishes(self, chunk: ChunkRange, rows: int) -> tuple[FinishedTable, ...]:
        """The table that is complete once ``chunk``, with ``rows`` for the flow, is sent.

        Empty for a narrowed request, for a table of which only some keys are needed, and if keys could not be read. In
        these cases a row that was not sent may exist.
        """
        need = self._needs.get(chunk.table)
        if need is None or need.unread or need.lost is not None or self.narrowed:
            return ()
        if chunk.alone:
            read = {*chunk.alone}.difference(chunk.again)
            rest = bool(need.ranges) or not need.again.keys() <= read or not need.named.keys() <= {*chunk.alone}
        else:
            outside = any(begin < chunk.begin or end > chunk.end for begin, end in need.ranges)
            rest = outside or bool(chunk.again or need.again or need.named)
        return () if rest else (FinishedTable(chunk.table, need.rows + rows),)

    def took(self, chunk: ChunkRange, rows: int) -> None:
        """Record that the flow handed on the rows of ``chunk``, with the number ``rows``."""
        need = self._needs.get(chunk.table)
        if need is None:
            return
        self._chunks += 1
        need.rows += rows
        self.rows += rows
        former = {key: need.again.pop(key) for key in chunk.alone if key in need.again}
        if need.lost is not None:
            for key in chunk.alone:
                if key in need.lost:
                    del need.lost[key]
                    former.setdefault(key, _Again(START, END, 0))
        self._read_named(chunk, need)
        if not chunk.alone:
            need.ranges = without(need.ranges, chunk.begin, chunk.end)
        for key in chunk.again:
            before = former.get(key) or need.again.get(key)
            if chunk.alone and before is None:
                continue  # another flow asked for it
            again = before or _Again(chunk.begin, chunk.end, 0)
            again.tries += 1
            if again.tries > _TRIES:
                need.again.pop(key, None)
                need.unread += 1
            else:
                need.again[key] = again
        need.bound()
        if need.empty:
            del self._needs[chunk.table]
            self._done[_hash(chunk.table)] = FinishedTable(chunk.table, need.rows, need.unread), need.key
        self._bytes = None

    def _read_named(self, chunk: ChunkRange, need: _Need) -> None:
        named = {key for key in chunk.alone if key in need.named}
        if named:
            for key in named:
                del need.named[key]
            unsent, before = named.intersection(chunk.left_out), self.unconfirmed(chunk.table)
            foreign = len(unsent.intersection(chunk.shards))
            self._unconfirmed[chunk.table] = Unconfirmed(
                before.foreign + foreign, before.changed + len(unsent) - foreign
            )

    def confirm(self, table: str, keys: Iterable[bytes]) -> None:
        """Read these keys, which the subscriber named, of a finished table. The table is finished again after them."""
        done = self._done.pop(_hash(table), None)
        if done is not None:
            finished, key = done
            need = _Need(key, 0, [], rows=finished.rows, unread=finished.unread, named=dict.fromkeys(keys))
            self._needs[table] = need

    def unconfirmed(self, table: str) -> Unconfirmed:
        """How many of the named keys were neither sent nor reported as gone."""
        return self._unconfirmed.get(table, Unconfirmed())

    def begin_again(self, table: str) -> None:
        """The log removed rows of ``table`` and does not show which: the remaining ones are sent again."""
        need = self._needs.get(table)
        if need is not None and need.lost is None:
            need.be_whole()
            need.unread = 0
            need.named.clear()  # the application removes all that it holds
        elif need is not None or self.request.verify or self.request.keys_of(table) is not None:
            return  # a comparison was valid at its place, and the single keys are still the only lost rows
        elif self._done.pop(_hash(table), None) is not None:
            self.offered = False  # so the scanner looks its list up again
        self._bytes = None

    def replaced(self, table: str, at: LogPosition) -> None:
        """The rows of ``table`` changed at this place of the log, and the log does not have the changes: another table
        took its name, or a statement rewrote them. The application may hold former rows for ever in this generation.
        """
        if not self.offered or table in self._needs or table in self.refused or _hash(table) in self._done:
            self._renew(f"rows of {table} changed, and the log does not have them", at)
        else:
            self.offered = False  # the table may have rows now

    def _renew(self, cause: str, at: LogPosition | None = None) -> None:
        if self.renewal is None:
            self.renewal = Renewal(cause, at)
        elif at is not None and self.renewal.at is not None:
            self.renewal = Renewal(self.renewal.cause, max(at, self.renewal.at))
        self._bytes = None

    def read_again(self, table: str, key: bytes) -> None:
        """Read ``key`` again: the log moved a row to it without all its values, and the flow may not have sent
        these.
        """
        need = self._needs.get(table)
        if need is not None and key not in need.again:
            need.again[key] = _Again(START, END, 0)
            need.bound()
            self._bytes = None
        elif need is None and not self.offered and self.request.keys_of(table) is not None:
            self._renew(f"a row of {table} got another key before it was sent")

    def pass_loss(self, at: LogPosition, resume: LogPosition) -> None:
        """Log is missing between these places. Rows that were sent may have changed there, and it is not known
        which.
        """
        if self.request.keys is not None:
            if not self.request.covers(at, resume):
                self._renew("log was lost that the rows which are sent again do not cover", at)
        elif self.begun:
            self._renew("log was lost after rows were sent", at)

    def finished_tables(self) -> tuple[FinishedTable, ...]:
        """The finished tables in the order in which they were finished. Tables that were finished before :meth:`resume`
        have no name before :meth:`offer`.
        """
        return tuple(finished for finished, _ in self._done.values())

    @property
    def finished(self) -> bool:
        """Whether nothing is needed any more."""
        return self.offered and not self._needs and self.renewal is None

    # -- the stored form

    def to_bytes(self) -> bytes:
        """The progress for the datamarker: at most :data:`MOST_BYTES`. Ranges that do not fit are left out, and read
        again.
        """
        if self._bytes is None:
            self._bytes = self._encoded()
        return self._bytes

    def _encoded(self) -> bytes:
        if self.request.verify:
            # The datamarker after the last rows differs from the earlier ones, so that its ack shows their end.
            out = FieldWriter()
            for number in (self.generation, self._chunks):
                out.number(number)
            return sealed(_UNKEPT, out.taken())
        needs = {name: need for name, need in self._needs.items() if need.begun}
        done = [] if self.finished else list(self._done)
        ranges = {name: list(need.ranges) for name, need in needs.items()}
        keys = {name: list(need.again.items()) for name, need in needs.items()}
        data = self._write(needs, ranges, keys, done)
        if len(data) > MOST_BYTES:
            for name, need in needs.items():
                ranges[name] = _merged((*need.ranges, *((one.begin, one.end) for one in need.again.values())))
                keys[name] = []
            data = self._write(needs, ranges, keys, done)
        while len(data) > MOST_BYTES and any(len(one) > 1 for one in ranges.values()):
            for name, one in ranges.items():
                # Half of the gaps are closed, the narrowest first.
                gaps = sorted(range(1, len(one)), key=lambda i: one[i][0] - one[i - 1][1])
                closed = set(gaps[: (len(gaps) + 1) // 2])
                ranges[name] = _closed(one, closed)
            data = self._write(needs, ranges, keys, done)
        while len(data) > MOST_BYTES:
            if self.request.keys is not None:
                # A shorter record of single keys would lose the rows that moved meanwhile.
                cause = "its progress does not fit a datamarker"
                return self._write({}, {}, {}, [], cause)
            # There are thousands of tables. Those in progress or done that are not stored here start again.
            ranges = dict(list(ranges.items())[: len(ranges) // 2])
            done = done[len(done) // 8 + 1 :]
            data = self._write(needs, ranges, keys, done)
        return data

    def _write(
        self,
        needs: dict[str, _Need],
        ranges: dict[str, list[tuple[int, int]]],
        keys: dict[str, list[tuple[bytes, _Again]]],
        done: list[bytes],
        renewal: str = "",
    ) -> bytes:
        out = FieldWriter()
        out.number(self.generation)
        out.data(self.filter_hash.encode())
        out.number(int(self.finished))
        out.data((renewal if self.renewal is None else self.renewal.cause).encode())
        out.number(self.rows)
        out.number(len(done))
        for name_hash in done:
            finished, key = self._done[name_hash]
            out.raw(name_hash + key)
            out.number(finished.rows)
            out.number(finished.unread)
        out.number(len(ranges))
        for name, kept in ranges.items():
            need = needs[name]
            out.data(name.encode())
            out.raw(need.key + need.list_id.to_bytes(8, "big"))
            for value in (need.rows, need.unread, len(kept)):
                out.number(value)
            before = 0
            for begin, end in kept:
                out.number(begin - before)
                out.number(end - begin)
                before = end
            out.number(len(keys[name]))
            for key, again in keys[name]:
                out.data(key)
                for value in (again.begin, again.end - again.begin, again.tries):
                    out.number(value)
        return sealed(_VERSION, out.taken())

    def _read(self, data: bytes) -> None:
        source = FieldReader(unsealed(_VERSION, data))
        if source.number() != self.generation or source.data() != self.filter_hash.encode():
            raise DamagedError
        self.offered = bool(source.number())
        if cause := source.text():
            self.renewal = Renewal(cause)
        self.rows = source.number()
        for _ in range(source.number()):
            name_hash, key = source.raw(8), source.raw(_KEY_BYTES)
            self._done[name_hash] = FinishedTable("", source.number(), source.number()), key
        for _ in range(source.number()):
            name = source.text()
            need = _Need(source.raw(_KEY_BYTES), int.from_bytes(source.raw(8), "big"), [])
            need.rows, need.unread = source.number(), source.number()
            before = 0
            for _ in range(source.number()):
                begin = before + source.number()
                before = begin + source.number()
                need.ranges.append((begin, before))
            for _ in range(source.number()):
                key, begin = source.data(), source.number()
                need.again[key] = _Again(begin, begin + source.number(), source.number())
            self._needs[name] = need
        source.end()


def _hash(table: str) -> bytes:
    return _digest(table, 8)


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, made disjoint and ascending. Ranges that touch are joined."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif begin < end:
            found.append((begin, end))
    return found


def _closed(ranges: list[tuple[int, int]], closed: set[int]) -> list[tuple[int, int]]:
    """The ranges without the gaps before those with these indexes."""
    found: list[tuple[int, int]] = []
    for i, (begin, end) in enumerate(ranges):
        if i in closed:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


def without(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """The rest of disjoint, ascending ``ranges`` when one range is removed."""
    first = bisect_right(ranges, begin, key=itemgetter(1))
    behind = bisect_left(ranges, end, first, key=itemgetter(0))
    if first == behind:
        return [*ranges]
    left = ((ranges[first][0], begin), (end, ranges[behind - 1][1]))
    return [*ranges[:first], *(piece for piece in left if piece[0] < piece[1]), *ranges[behind:]]
