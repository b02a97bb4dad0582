"""What one flow's backfill still needs: pure, owned by its flow, and stored in the flow's datamarkers.

A flow that was stopped goes on from its datamarker and the progress in it. Progress that cannot be read, or is about
something else, means that everything is needed: rows may be sent twice, and none is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Final, Self

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.encoding import DamagedError, Reader, Writer, sealed, unsealed
from wormhole.filters import Filter
from wormhole.filters.tree import And
from wormhole.model.problem import Problem
from wormhole.model.segment import ChunkRange

__all__ = ["MOST_BYTES", "BackfillRequest", "FinishedTable", "FlowBackfill", "without"]

MOST_BYTES: Final = 16 << 10
"""The most that the progress takes in a datamarker."""

_VERSION: Final = 1
_MOST_AGAIN: Final = 1_000  # keys of one table to read again; with more, their ranges are read again
_MOST_AGAIN_BYTES: Final = 1 << 20
_TRIES: Final = 10  # how often a key is read again before it is reported


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What was asked for. ``generation`` rises with each request for a flow. ``tables``: patterns as in filters; empty:
    all that the flow's filter may want. ``where``: rows to send, beside those that the flow's filter leaves out.
    """

    generation: int
    tables: tuple[str, ...] = ()
    where: Filter | None = None
    paused: bool = False

    def wanted(self, own: Filter) -> Callable[[str], bool]:
        """Which tables a flow with the filter ``own`` needs, by name."""
        chosen = [own, *([self.where] if self.where is not None else ())]
        if self.tables:
            chosen.append(Filter.parse(None, self.tables))
        return lambda table: not any(one.wants_none_of(table) for one in chosen)

    def narrow(self, own: Filter) -> Filter:
        """Which rows a flow with the filter ``own`` is sent."""
        if self.where is None:
            return own
        return Filter(And((own.where, self.where.where)), own.source, own.formats, own.projection)


@dataclass(frozen=True, slots=True)
class FinishedTable:
    """A table of which a flow was sent every row. ``rows``: how many. ``unread``: keys that could not be read at a
    place of the log, however often it was tried; with any, nothing may be concluded of rows that were not sent.
    """

    table: str
    rows: int
    unread: int = 0


@dataclass(slots=True)
class _Again:
    """A key to read again, in the range of these numbers; ``tries``: how often it was put on the list."""

    begin: int
    end: int
    tries: int


@dataclass(slots=True)
class _Need:
    """Of one table. ``ranges``: of numbers, disjoint and ascending."""

    list_id: int
    ranges: list[tuple[int, int]]
    again: dict[bytes, _Again] = field(default_factory=dict)
    rows: int = 0
    unread: int = 0

    @property
    def empty(self) -> bool:
        return not self.ranges and not self.again

    def is_of(self, boundaries: Boundaries) -> bool:
        """Whether its numbers are those of the list: one that was restored from an older copy lacks later ones."""
        again = ((one.begin, one.end) for one in self.again.values())
        return self.list_id == boundaries.id and all(map(boundaries.knows, chain.from_iterable((*self.ranges, *again))))

    def bound(self) -> None:
        """Too many keys to read again become the ranges that they are in."""
        if len(self.again) > _MOST_AGAIN or sum(map(len, self.again)) > _MOST_AGAIN_BYTES:
            self.ranges = _merged((*self.ranges, *((one.begin, one.end) for one in self.again.values())))
            self.again.clear()


class FlowBackfill:
    """The progress of one flow. Not for use by several threads.

    ``paused``: it takes no rows just now. ``refused``: tables whose rows cannot be read, and why. ``rows``: that it was
    sent of all tables.
    """

    def __init__(self, request: BackfillRequest, filter_hash: str) -> None:
        self.request = request
        self.filter_hash = filter_hash
        self.paused = request.paused
        self.refused: dict[str, Problem] = {}
        self.rows = 0
        self._needs: dict[str, _Need] = {}
        self._done: dict[bytes, FinishedTable] = {}  # by hash of the name, which alone is stored
        self._offered = False
        self._bytes: bytes | None = None

    @classmethod
    def resume(cls, request: BackfillRequest, data: bytes, filter_hash: str) -> Self:
        """Go on from what :meth:`to_bytes` gave. Everything is needed where that is empty, unreadable, or of another
        generation or filter.
        """
        found = cls(request, filter_hash)
        try:
            found._read(data)
        except DamagedError:
            return cls(request, filter_hash)
        return found

    @property
    def generation(self) -> int:
        """Of the request."""
        return self.request.generation

    @property
    def narrowed(self) -> bool:
        """Whether not every row that passes the flow's filter is sent, so that nothing follows from one that is not."""
        return self.request.where is not None

    # -- what the scanner does

    @property
    def offered(self) -> bool:
        """Whether :meth:`offer` was called: before that its tables are not known."""
        return self._offered

    def offer(self, lists: Iterable[tuple[str, Boundaries]]) -> None:
        """These are the tables that it needs, as they are now. Those that it finished are left out."""
        if self.finished:
            return
        kept: dict[str, _Need] = {}
        for table, boundaries in lists:
            if _hash(table) in self._done:
                continue
            need = self._needs.get(table)
            if need is None or not need.is_of(boundaries):
                need = _Need(boundaries.id, [(START, END)])
            kept[table] = need
        self._needs = kept
        self._offered = True
        self._bytes = None

    def renumber(self, table: str, boundaries: Boundaries, former_id: int) -> None:
        """The list ``former_id`` was thinned out, and has the id of ``boundaries`` now."""
        need = self._needs.get(table)
        if need is None or need.list_id != former_id:
            return
        need.list_id = boundaries.id
        need.ranges = _merged(boundaries.widened(begin, end) for begin, end in need.ranges)
        for again in need.again.values():
            again.begin, again.end = boundaries.widened(again.begin, again.end)
        self._bytes = None

    def refuse(self, table: str, problem: Problem) -> None:
        """The rows of ``table`` cannot be read: it is needed no longer."""
        self.refused[table] = problem
        if self._needs.pop(table, None) is not None:
            self._bytes = None

    @property
    def tables(self) -> Sequence[str]:
        """Tables of which something is needed, in alphabetical order."""
        return sorted(self._needs)

    def ranges(self, table: str) -> Sequence[tuple[int, int]]:
        """Of ``table``, the ranges of numbers that are needed, ascending."""
        need = self._needs.get(table)
        return () if need is None else need.ranges

    def rows_of(self, table: str) -> int:
        """Rows that were sent of a table of which something is needed; 0 for any other."""
        need = self._needs.get(table)
        return 0 if need is None else need.rows

    def again(self, table: str) -> Iterable[bytes]:
        """Keys of ``table`` to read again."""
        need = self._needs.get(table)
        return () if need is None else need.again

    # -- what the flow does

    def needs(self, chunk: ChunkRange) -> bool:
        """Whether the flow has use for the rows of ``chunk``."""
        need = self._needs.get(chunk.table)
        if need is None or self.paused:
            return False
        if chunk.alone:
            return any(key in need.again for key in chunk.alone)
        return any(begin < chunk.end and chunk.begin < end for begin, end in need.ranges)

    def finishes(self, chunk: ChunkRange, rows: int) -> tuple[FinishedTable, ...]:
        """The table of which every row was sent once ``chunk`` with ``rows`` for the flow is. None for a narrowed
        request, nor where keys could not be read: nothing follows from rows that were not sent then.
        """
        need = self._needs.get(chunk.table)
        if need is None or chunk.again or need.unread or self.narrowed:
            return ()
        if chunk.alone:
            rest = bool(need.ranges) or any(key not in chunk.alone for key in need.again)
        else:
            rest = bool(need.again) or any(begin < chunk.begin or end > chunk.end for begin, end in need.ranges)
        return () if rest else (FinishedTable(chunk.table, need.rows + rows),)

    def took(self, chunk: ChunkRange, rows: int) -> None:
        """The flow handed the rows of ``chunk`` on, so many of them."""
        need = self._needs.get(chunk.table)
        if need is None:
            return
        need.rows += rows
        self.rows += rows
        former = {key: need.again.pop(key) for key in chunk.alone if key in need.again}
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
            self._done[_hash(chunk.table)] = FinishedTable(chunk.table, need.rows, need.unread)
        self._bytes = None

    def begin_again(self, table: str) -> None:
        """The log removed rows of ``table`` and does not say which: those that are left are sent again."""
        need = self._needs.get(table)
        if need is not None:
            need.ranges, need.unread = [(START, END)], 0
            need.again.clear()
        elif self._done.pop(_hash(table), None) is not None:
            self._offered = False  # which has its list looked up
        self._bytes = None

    def read_again(self, table: str, key: bytes) -> None:
        """The log moved a row to ``key`` without all its values, and the flow may not have sent those."""
        need = self._needs.get(table)
        if need is not None and key not in need.again:
            need.again[key] = _Again(START, END, 0)
            need.bound()
            self._bytes = None

    def finished_tables(self) -> tuple[FinishedTable, ...]:
        """Those that were finished by this object, in that order; those finished before :meth:`resume` have no name."""
        return tuple(self._done.values())

    @property
    def finished(self) -> bool:
        """Whether nothing is needed any more."""
        return self._offered and not self._needs

    # -- bytes

    def to_bytes(self) -> bytes:
        """For the datamarker: at most :data:`MOST_BYTES`. What does not fit is forgotten, and read again."""
        if self._bytes is None:
            self._bytes = self._encoded()
        return self._bytes

    def _encoded(self) -> bytes:
        needs = {name: need for name, need in self._needs.items() if need.ranges != [(START, END)] or need.again}
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
            # Thousands of tables: those that are under way, or done, and are not stored here start again.
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
    ) -> bytes:
        out = Writer()
        out.number(self.generation)
        out.data(self.filter_hash.encode())
        out.number(int(self.finished))
        out.number(self.rows)
        out.number(len(done))
        for name_hash in done:
            out.raw(name_hash)
        out.number(len(ranges))
        for name, kept in ranges.items():
            need = needs[name]
            out.data(name.encode())
            out.raw(need.list_id.to_bytes(8, "big"))
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
        source = Reader(unsealed(_VERSION, data))
        if source.number() != self.generation or source.data() != self.filter_hash.encode():
            raise DamagedError
        self._offered = bool(source.number())
        self.rows = source.number()
        for _ in range(source.number()):
            name_hash = source.raw(8)
            self._done[name_hash] = FinishedTable("", 0)
        for _ in range(source.number()):
            name = source.text()
            need = _Need(int.from_bytes(source.raw(8), "big"), [])
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
    return blake2b(table.encode(), digest_size=8).digest()


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint and ascending; those that touch are one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif begin < end:
            found.append((begin, end))
    return found


def _closed(ranges: list[tuple[int, int]], closed: set[int]) -> list[tuple[int, int]]:
    """Without the gaps before the ranges of these indexes."""
    found: list[tuple[int, int]] = []
    for i, (begin, end) in enumerate(ranges):
        if i in closed:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


def without(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """What is left of disjoint, ascending ``ranges`` when one is taken away."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        found.extend(piece for piece in ((low, min(high, begin)), (max(low, end), high)) if piece[0] < piece[1])
    return found
