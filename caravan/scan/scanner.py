"""Reads the tables of one log for the flows that need their rows, beside the caravans that read the log.

One chunk at a time is read, in a separate thread, while the lead continues to read and each of its segments is recorded
(:mod:`caravan.scan.window`). Then the chunk's rows are brought forward to the end of the lead's buffer, and enter there
as one more segment. Before that no flow sees the chunk, so an error on the way only costs time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from caravan.backfill.boundaries import START, BoundaryStore
from caravan.backfill.progress import FlowBackfill
from caravan.caravan import Caravan
from caravan.fleet import Fleet
from caravan.flow import CaravanFlow
from caravan.scan.catalog import TableLists
from caravan.scan.entering import EnteringChunk
from caravan.scan.rounds import NextRows, Taker, next_work
from caravan.scan.window import ScanWindow
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.waiting import wait_at_most
from wormhole.model.errors import ChunkUnavailable, DecodeError, SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Column
from wormhole.model.segment import ChunkRange, Segment
from wormhole.ports.table_source import Chunk, ChunkLimits, TableSource

__all__ = ["ScanSettings", "ScanStatus", "Scanner"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TICK_S: Final = 0.25
_DESCRIBED_S: Final = 30.0  # how long a description of the tables is used
_LONGEST_WAIT_S: Final = 30.0
_MOST_HALVINGS: Final = 12
_IN_BUFFER: Final = 2  # chunks that a flow may have before it: one to send, one to read meanwhile
_FREE_TRIES: Final = 3  # attempts to catch up with the window before the lead waits for one
_NAMED_TRIES: Final = 3  # attempts to read the keys that subscribers named
_PATIENCE: Final = 10  # after this many discards in a row, a change of the lead discards no chunk
_RATE_WINDOW_S: Final = 5.0
_PACE_S: Final = 0.008  # a chunk has the bytes of this time at the rate, because changes wait while it is read
_LEAST_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """``rate``: bytes of rows per second; 0: nothing is read; infinite: only the fleet's cap applies. ``memory``: bytes
    that a chunk and the changes beside it may take. ``limits``: the limits of one chunk.
    """

    rate: float = 16 << 20
    memory: int = 16 << 20
    limits: ChunkLimits = field(default_factory=ChunkLimits)


@dataclass(frozen=True, slots=True)
class ScanStatus:
    """The state of the scanner, for operators.

    ``scan``: its number, 0 before anything was read. ``table``: the one that is read now. ``rows``, ``chunks``,
    ``discards``: since the start. ``rate``: bytes of rows per second, over the last few seconds. ``waits``: why nothing
    is read at the moment. ``estimates``: rows of the tables as the datastore estimates them.
    """

    scan: int = 0
    table: str = ""
    rows: int = 0
    chunks: int = 0
    discards: int = 0
    rate: float = 0.0
    waits: Problem = NO_PROBLEM
    estimates: dict[str, int] = field(default_factory=dict)


class Scanner:
    """Reads existing rows, as the module describes. Owned by the fleet's owner. Everything is called on the event loop,
    unless a docstring says otherwise. ``tables`` is closed when :meth:`run` ends.
    """

    def __init__(
        self,
        fleet: Fleet,
        tables: TableSource,
        store: BoundaryStore,
        settings: ScanSettings = ScanSettings(),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._fleet = fleet
        self._tables = tables
        self._store = store
        self._catalog = TableLists(tables, store)
        self._settings = settings
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="scanner")
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._window: tuple[Caravan, ScanWindow] | None = None
        self._entered: deque[tuple[int, int, ChunkRange]] = deque(maxlen=_IN_BUFFER)
        self._reads: deque[tuple[float, int]] = deque()
        self._table, self._number = "", START
        self._key_columns: dict[str, tuple[Column, ...]] = {}
        self._status = ScanStatus()
        self._described_at = -math.inf
        self._due = -math.inf
        self._halvings = self._failures = self._discards_in_row = self._named_failures = 0
        self._in_vain = False  # the last chunk was discarded, or could not be read
        self._passes: tuple[int, str] | None = None  # incarnation and place that the lead passes before the next chunk

    # -- called by the owner

    async def run(self) -> None:
        """Read until :meth:`stop` or cancelled."""
        self._fleet.rows_watch = self
        try:
            while not self._stopped.is_set():
                await self._step()
        finally:
            self._fleet.rows_watch = None
            self._tables.interrupt()
            self._pool.submit(self._tables.close)
            self._pool.shutdown(wait=False)

    def stop(self) -> None:
        """End :meth:`run` soon."""
        self._stopped.set()
        self._changed.set()
        self._tables.interrupt()

    def change(self, settings: ScanSettings) -> None:
        """Use other settings from the next chunk on."""
        self._settings = settings
        self._due = -math.inf
        self._changed.set()

    @property
    def status(self) -> ScanStatus:
        """The present state."""
        now = self._clock.monotonic()
        while self._reads and self._reads[0][0] < now - _RATE_WINDOW_S:
            self._reads.popleft()
        known = self._catalog.tables.values()
        return replace(
            self._status,
            rate=sum(size for _, size in self._reads) / _RATE_WINDOW_S,
            estimates={table.name: table.rows for table in known if table.rows is not None},
        )

    # -- called by the fleet (RowsWatch)

    def advanced(self, caravan: Caravan, segment: Segment) -> None:
        """See :class:`~caravan.caravan.RowsWatch`."""
        if self._window is not None and self._window[0] is caravan:
            self._window[1].note(segment)
            self._changed.set()

    def moved(self) -> None:
        """See :class:`~caravan.caravan.RowsWatch`."""
        self._changed.set()

    # -- one step

    async def _step(self) -> None:
        self._changed.clear()
        wanting = [flow for flow in self._fleet.flows if flow.backfill is not None and not flow.backfill.finished]
        try:
            waits = await self._next(wanting)
        except WormholeError as error:
            if isinstance(error, ChunkUnavailable):
                self._read_less()
            await self._fail(error.problem)
            return
        except OSError as error:
            hint = "look at the disk and the rights of the state folder"
            await self._fail(Problem(f"where chunks end cannot be stored: {error}", hint, code="file-unwritable"))
            return
        except Exception as error:  # noqa: BLE001 - a bug: it must only cost time, and be logged
            _log.exception("the reader of existing rows broke")
            await self._fail(
                Problem(
                    f"internal error: {error!r}", "report this with the log of the publisher", code="internal-error"
                )
            )
            return
        self._failures = 0
        if waits is None:
            self._status = replace(self._status, waits=NO_PROBLEM)
            return
        self._status = replace(self._status, waits=waits, table="")
        await wait_at_most(self._changed, _TICK_S)

    async def _next(self, wanting: list[CaravanFlow]) -> Problem | None:
        """Read the next chunk. Returns the reason if none is read."""
        if not wanting:
            return NO_PROBLEM
        if not self._settings.rate:
            return Problem("the rate is 0", "set a rate to go on", code="backfill-waiting")
        now = self._clock.monotonic()
        if now - self._described_at > _DESCRIBED_S or not all(one.offered for one in _backfills(wanting)):
            await self._describe(wanting)
        lead = self._fleet.lead
        if lead is None:
            return Problem(self._fleet.trouble or "no caravan reads the log yet", code="backfill-waiting")
        takers = [taker for flow in wanting if (taker := self._taker(lead, flow)) is not None]
        if not takers:
            return Problem(
                "no flow can take rows now: they are paused, behind the lead, or have no credit",
                code="backfill-waiting",
            )
        work = next_work(takers, self._catalog.lists, self._table, self._number, failed=self._in_vain)
        if work is None:
            return Problem("the last rows are on their way to their flows", code="backfill-waiting")
        if self._passes is not None:
            incarnation, high = self._passes
            if incarnation == lead.buffer.place.incarnation and not await self._call(
                self._tables.reached, high, lead.marker
            ):
                return Problem(
                    "more changed while rows were read than fits in memory; the log is read past that now",
                    code="backfill-waiting",
                )
            self._passes = None
            return None  # a lead may have ended meanwhile
        if lead.buffer.inside:
            return Problem("the lead reads a long transaction", code="backfill-waiting")
        budget = self._fleet.budget(lead)
        lead.trim(budget)
        if lead.buffer.size > budget:
            return Problem("the change buffer is full: a flow takes less than the lead reads", code="backfill-waiting")
        limits = self._limits()
        delay = self._delay(limits.bytes, now)
        if delay > 0:
            await wait_at_most(self._stopped, min(delay, _TICK_S))
            return None
        try:
            await self._read(lead, work, limits)
        except (UnreadableTable, DecodeError) as error:
            self._refuse(wanting, work.table, error.problem)
        return None

    def _taker(self, lead: Caravan, flow: CaravanFlow) -> Taker | None:
        """The flow as a taker, if it would take rows that enter the lead's log next."""
        cursor = flow.cursor
        if (
            flow not in lead.flows
            or cursor is None
            or flow.blocked
            or flow.backfill is None
            or not flow.backfill.takes_rows
        ):
            return None
        if max(flow.begun, flow.place) > lead.buffer.place or not flow.takes_rows():
            return None
        coming = [one for number, at, one in self._entered if number == lead.number and at >= cursor]
        if len(coming) >= _IN_BUFFER:
            return None
        return Taker(flow.backfill, tuple(one for one in coming if flow.begun <= one.not_before))

    async def _describe(self, wanting: list[CaravanFlow]) -> None:
        """Read the descriptions of the tables, and give the flows the lists of the tables that they need."""
        if not self._status.scan:
            self._status = replace(self._status, scan=await self._call(self._store.next_scan))
        chosen = [
            (backfill, backfill.request.wanted(flow.filter))
            for flow in wanting
            if (backfill := flow.backfill) is not None
        ]
        named = {
            name for flow in wanting if flow.backfill is not None for name in flow.backfill.request.named(flow.filter)
        }
        await self._call(self._catalog.load, lambda name: any(wanted(name) for _, wanted in chosen), named)
        self._described_at = self._clock.monotonic()
        self._key_columns.clear()
        for backfill, wanted in chosen:
            for table in self._catalog.tables.values():
                if table.refused and wanted(table.name):
                    backfill.refuse(table.name, table.refused)
            for name in backfill.request.tables:
                missing = name not in self._catalog.tables and not any(sign in name for sign in "*?[")
                if missing and wanted(name):  # tables in no shard of the flow were not looked up
                    backfill.refuse(
                        name, Problem(f"there is no table {name}", "correct the name", code="table-unknown")
                    )
            backfill.offer(
                (name, known)
                for name, known in self._catalog.lists.items()
                if name not in backfill.refused and wanted(name)
            )

    def _limits(self) -> ChunkLimits:
        limits = self._settings.limits
        paced = max(_LEAST_BYTES, self._settings.rate * _PACE_S)
        size = int(min(limits.bytes, self._settings.memory // 4, self._fleet.total_cap.piece, paced))
        return replace(limits, rows=max(1, limits.rows >> self._halvings), bytes=max(1, size >> self._halvings))

    def _delay(self, size: int, now: float) -> float:
        """Seconds until a chunk of ``size`` bytes may be read. When the result is 0, they are taken from the cap of all
        readers, of which a part always remains for the lead.
        """
        total = self._fleet.total_cap
        kept = total.piece if total.rate else 0
        delay = max(self._due - now, total.delay(size + kept, now))
        if delay <= 0:
            total.take(size, now)
        return delay

    def _pay(self, asked: int, read: int) -> None:
        now = self._clock.monotonic()
        self._fleet.total_cap.take(read - asked, now)
        self._reads.append((now, read))
        self._due = max(now, self._due) + read / self._settings.rate if self._settings.rate else -math.inf

    # -- one chunk

    async def _read(self, lead: Caravan, work: NextRows, limits: ChunkLimits) -> None:
        window = ScanWindow(work.table, lead.marker, self._settings.memory // 2)
        self._window = lead, window
        self._table, self._number = work.table, work.begin
        self._status = replace(self._status, table=work.table, waits=NO_PROBLEM)
        read = 0
        try:
            chunk, entering = await self._call(self._take_chunk, work, limits, window)
            read = chunk.size
            if entering is None:
                if work.columns:
                    self._need_whole(work.table)
                return
            self._status = replace(self._status, rows=self._status.rows + len(chunk.rows))
            discarded = await self._enter(lead, window, entering)
        finally:
            self._window = None
            self._pay(limits.bytes, read)
        if discarded:
            if window.over_budget:
                self._passes = window.begin.order.incarnation, chunk.high
            self._discard(discarded)
        else:
            self._number = entering.range.end
            self._halvings = max(0, self._halvings - 1)
            self._discards_in_row = 0
            self._in_vain = False
            self._status = replace(self._status, chunks=self._status.chunks + 1)
            await self._shorten(work.table)

    def _take_chunk(
        self, work: NextRows, limits: ChunkLimits, window: ScanWindow
    ) -> tuple[Chunk, EnteringChunk | None]:
        """Called in the thread: read a chunk, and store where it ended."""
        tables, catalog = self._tables, self._catalog
        known = catalog.lists[work.table]
        after, until, end = known.key(work.begin), known.key(work.end), work.end
        shards = {}
        if work.named:
            chunk, asked = self._named_rows(work, window)
            shards = dict.fromkeys(work.alone, "") | asked
        elif work.alone:
            if work.columns and self._key_columns.get(work.table) != work.columns:
                chunk = tables.rows(work.table, (), window.begin)
                self._key_columns[work.table] = chunk.schema.key
                if chunk.schema.key != work.columns:
                    return chunk, None
            chunk = tables.rows(work.table, work.alone, window.begin)
            if work.columns and (chunk.unclear or chunk.schema.key != work.columns):
                return chunk, None
            shards = {key: tables.shard_of(work.table, key) for key in work.alone}
        else:
            chunk = tables.chunk(work.table, after, until, limits, window.begin)
            if not chunk.done and chunk.last is not None:
                number = catalog.split(work.table, work.begin, work.end, chunk.last)
                if number is None:
                    catalog.renew(work.table)
                    self._described_at = -math.inf
                    return chunk, None
                until, end = chunk.last, number
            elif not chunk.done:
                raise ChunkUnavailable(f"no row of {work.table} was read in time", hint="look at the datastore's load")
        range_ = ChunkRange(
            work.table,
            chunk.schema,
            after,
            until,
            work.begin,
            end,
            window.begin.order,
            alone=work.alone,
            portable=catalog.tables[work.table].portable,
            shards=shards | dict.fromkeys(chunk.unclear, ""),
        )
        rows = ((tables.shard_of(work.table, key), key, row) for key, row in chunk.rows.items())
        reached = partial(tables.reached, chunk.high)
        source = f"read:{self._status.scan}"
        return chunk, EnteringChunk(range_, rows, reached, source, self._status.chunks + self._status.discards + 1)

    def _named_rows(self, work: NextRows, window: ScanWindow) -> tuple[Chunk, dict[bytes, str]]:
        """Called in the thread: the rows of keys that subscribers named, and the shards of the keys that the datastore
        could look up.

        A key that a subscriber names must not make a flow lose its table.
        """
        tables, asked = self._tables, dict[bytes, str]()
        try:
            asked = {key: tables.shard_of(work.table, key) for key in work.alone if tables.can_ask(work.table, key)}
            chunk = tables.rows(work.table, list(asked), window.begin)
        except Exception as error:  # any error: the bytes may not be keys of the table
            self._named_failures += 1
            if isinstance(error, SourceUnavailable) and self._named_failures <= _NAMED_TRIES:
                raise
            _log.warning(
                "keys of %s that subscribers named cannot be read, and count as not compared: %r. Next: verify again",
                work.table,
                error,
            )
            asked = {}
            chunk = tables.rows(work.table, (), window.begin)
        self._named_failures = 0
        return chunk, asked

    def _need_whole(self, table: str) -> None:
        """Mark the whole table as needed. Its key is not the one of the rows that changed in lost log, or is spelled
        differently.
        """
        _log.warning("all rows of %s are read: keys that changed in lost log do not name its rows any more", table)
        for backfill in _backfills(self._fleet.flows):
            backfill.need_whole(table)

    async def _enter(self, lead: Caravan, window: ScanWindow, entering: EnteringChunk) -> str:
        """Bring the chunk forward until it may enter. Returns the reason if it is discarded."""
        tries = 0
        while True:
            self._changed.clear()
            async with lead.appends if tries >= _FREE_TRIES else nullcontext():
                await self._call(partial(entering.catch_up, *entering.unseen(window), lead.marker))
                lost = self._lost(lead, window) or entering.spoiled
                if lost:
                    return lost
                if not lead.buffer.inside:
                    segment = entering.segment(window, lead.buffer.place, lead.marker)
                    if segment is not None:
                        self._fleet.add_rows(lead, segment)
                        self._entered.append((lead.number, lead.buffer.end - 1, entering.range))
                        return ""
            tries += entering.reached
            if not entering.reached:
                waits = Problem("the log is read up to the place that the rows were read at", code="backfill-waiting")
                self._status = replace(self._status, waits=waits)
            await wait_at_most(self._changed, _TICK_S)

    def _lost(self, lead: Caravan, window: ScanWindow) -> str:
        """The reason why the chunk can no longer enter the log of ``lead``; empty: it can."""
        if self._stopped.is_set():
            return "the publisher stops"
        if self._fleet.caravans.get(lead.number) is not lead:
            return "the caravan that it was read for ended"
        if lead is not self._fleet.lead and self._discards_in_row < _PATIENCE:
            return "another caravan leads now"
        return window.spoiled

    def _discard(self, cause: str) -> None:
        _log.debug("rows of %s are read again: %s", self._table, cause)
        self._discards_in_row += 1
        self._read_less()
        self._status = replace(self._status, discards=self._status.discards + 1)

    def _read_less(self) -> None:
        """Make the next chunk smaller, and take it from another table if there is one."""
        self._in_vain = True
        self._halvings = min(_MOST_HALVINGS, self._halvings + 1)

    async def _shorten(self, table: str) -> None:
        former = await self._call(self._catalog.thin, table)
        if former is None:
            return
        known = self._catalog.lists[table]
        self._number = known.widened(self._number, self._number)[0]
        for backfill in _backfills(self._fleet.flows):
            backfill.renumber(table, known, former)

    # -- errors

    async def _fail(self, problem: Problem) -> None:
        """Try again after a while."""
        self._failures += 1
        self._described_at = -math.inf
        if problem != self._status.waits:
            _log.warning("existing rows cannot be read just now: %s", problem)
        self._status = replace(self._status, waits=problem)
        delay = min(_LONGEST_WAIT_S, _TICK_S * 2 ** min(self._failures - 1, 10))
        await wait_at_most(self._stopped, delay)

    def _refuse(self, wanting: list[CaravanFlow], table: str, problem: Problem) -> None:
        _log.warning("the rows of %s cannot be read: %s", table, problem)
        self._catalog.lists.pop(table, None)
        for backfill in _backfills(wanting):
            if table in backfill.tables:
                backfill.refuse(table, problem)

    async def _call(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call ``function`` in the thread that reads the tables."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def _backfills(flows: Iterable[CaravanFlow]) -> list[FlowBackfill]:
    return [flow.backfill for flow in flows if flow.backfill is not None]
