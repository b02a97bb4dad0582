"""Reads existing rows of the log's tables for backfills. A scanner runs only while a flow needs rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from caravan.backfill.boundaries import BoundaryStore
from caravan.fleet import Fleet
from caravan.flow import CaravanFlow
from caravan.scan.scanner import Scanner, ScanSettings, ScanStatus
from publisher.flows.part_reports import Row
from wormhole.config import ExistingRows
from wormhole.host.clock import Clock
from wormhole.metrics import catalogue as c
from wormhole.model.errors import WormholeError
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.units import format_size
from wormhole.ports.table_source import ScannedTable, TableSource

__all__ = ["RowScans"]

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0


class RowScans:
    """See the module. ``open_tables``: raises :class:`~wormhole.model.errors.WormholeError` if the datastore has no
    tables that can be read.
    """

    def __init__(
        self,
        fleet: Fleet,
        open_tables: Callable[[], TableSource],
        boundaries: BoundaryStore,
        limits: ExistingRows,
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._open_tables = open_tables
        self._boundaries = boundaries
        self._limits = limits
        self._clock = clock
        self._rates: frozenset[float] = frozenset((0.0,))
        self._wanted = asyncio.Event()
        self._scanner: Scanner | None = None
        self._problem = NO_PROBLEM
        self._last = ScanStatus()
        self._before = 0, 0, 0  # rows, chunks and discards of scanners that ended

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                tables = await asyncio.to_thread(self._open_tables)
            except WormholeError as error:
                if error.problem != self._problem:
                    _log.error("existing rows cannot be read: %s", error)
                self._problem = error.problem
                await self._clock.sleep(_RETRY_S)
                continue
            self._problem = NO_PROBLEM
            self._scanner = Scanner(self._fleet, tables, self._boundaries, self._settings(), clock=self._clock)
            try:
                await self._scanner.run()
            finally:
                self._last, self._scanner = self._scanner.status, None
                self._before = self.rows, self.chunks, self.discards
                self._last = replace(self._last, rows=0, chunks=0, discards=0, table="")

    def want(self, rate: float) -> None:
        """Note that a flow needs rows. ``rate``: the requested rate of its backfill in bytes per second; 0: the
        configured rate. It applies from the first chunk on.
        """
        self.ask_rates((*self._rates, rate) if self._wanted.is_set() else (rate,))
        self._wanted.set()

    def keep(self, wanted: bool) -> None:
        """Set whether any flow still needs rows. If none does, the tables are closed."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()
            if self._scanner is not None:
                self._scanner.stop()

    def change(self, limits: ExistingRows) -> None:
        """Apply newly configured limits."""
        if limits != self._limits:
            _log.info("limits on existing rows: %s/s, %s", format_size(limits.rate), format_size(limits.memory))
            self._limits = limits
            self._apply()

    def ask_rates(self, rates: Iterable[float]) -> None:
        """Set the requested rates of the running backfills; 0: the configured rate."""
        asked = frozenset(rates) or frozenset((0.0,))
        if asked != self._rates:
            self._rates = asked
            self._apply()

    @property
    def rate(self) -> float:
        """The limit in bytes of rows per second. Backfills share a scan, and the highest rate applies."""
        return max(rate or self._limits.rate for rate in self._rates)

    @property
    def status(self) -> ScanStatus:
        """The status of the scanner that runs, or of the last one."""
        return self._last if self._scanner is None else self._scanner.status

    @property
    def rows(self) -> int:
        """The number of rows that were read since the start."""
        return self._before[0] + self.status.rows

    @property
    def chunks(self) -> int:
        """The number of chunks that entered the log since the start."""
        return self._before[1] + self.status.chunks

    @property
    def discards(self) -> int:
        """The number of chunks that were read again since the start."""
        return self._before[2] + self.status.discards

    @property
    def wanted(self) -> bool:
        """Whether a flow needs rows."""
        return self._wanted.is_set()

    @property
    def running(self) -> bool:
        """Whether tables are being read."""
        return self._scanner is not None

    @property
    def problem(self) -> Problem:
        """Why the tables cannot be opened; empty if they can."""
        return self._problem

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        yield c.ROWS_READ, self.rows
        yield c.ROWS_CHUNKS, self.chunks
        yield c.ROWS_DISCARDED, self.discards
        yield c.ROWS_RATE, self.status.rate if self.running else 0.0
        yield c.ROWS_WAIT, self.wanted and bool(self.problem or self.status.waits)

    def reach(self, flow: CaravanFlow) -> bool:
        """Whether rows can reach the flow. They enter the log at the lead caravan's place."""
        return self._fleet.lead is not None and flow in self._fleet.lead.flows

    async def tables(self, wanted: Callable[[str], bool], named: Collection[str]) -> Sequence[ScannedTable]:
        """See :meth:`~wormhole.ports.table_source.TableSource.tables`; uses a connection of its own.

        Raises :class:`~wormhole.model.errors.WormholeError`.
        """
        return await asyncio.to_thread(self._tables, wanted, named)

    def _tables(self, wanted: Callable[[str], bool], named: Collection[str]) -> Sequence[ScannedTable]:
        tables = self._open_tables()
        try:
            return tables.tables(wanted, named)
        finally:
            tables.close()

    def _settings(self) -> ScanSettings:
        return ScanSettings(rate=self.rate, memory=self._limits.memory)

    def _apply(self) -> None:
        if self._scanner is not None:
            self._scanner.change(self._settings())
