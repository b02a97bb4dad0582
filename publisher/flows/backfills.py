"""The backfills of the flows of one log: their requests and their progress. No other module changes these requests.

Each change of a request is one write of the flow's stored control. After a crash between two writes, the stored request
contains the remaining work, and the flow's datamarker contains the progress.
"""

from __future__ import annotations

import logging
import shlex
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import grpc

from caravan.backfill.progress import BackfillRequest, FinishedTable, FlowBackfill
from publisher.flows.applications import Served
from publisher.flows.assigner import Assigner
from publisher.flows.backfill_rules import (
    CANCELLED,
    DONE,
    Range,
    asked,
    check_size,
    check_verifies,
    compiled,
    does_not_verify,
    ended,
    extended,
    is_unfinished,
    noun_of,
    paused,
    renewed,
    tables_of_shard,
    with_lost,
)
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.lost_rows import LostRows
from publisher.flows.missing_columns import missing_columns
from publisher.flows.records import FlowRecords
from publisher.flows.refused_error import RefusedError
from publisher.flows.row_scans import RowScans
from publisher.flows.verifications import Verifications, unconfirmed_keys, unread_keys
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from publisher.stores.markers.rules import written_anew
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.errors import MarkerStoreError, WormholeError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.verification import TableVerification, VerifyMode
from wormhole.model.visible import few
from wormhole.ports.marker_store import MOST_UNLOGGED, BackfillControl, FlowControl, FlowKey
from wormhole.ports.table_source import ScannedTable
from wormhole.push.session import Verified

__all__ = ["BackfillPlan", "Backfills", "Speed"]

_log = logging.getLogger(__name__)


class Speed:
    """How fast a count grows, over the last few seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=6)

    def note(self, count: int, now: float) -> None:
        """Note the ``count`` at ``now`` (seconds). Called about once a second."""
        self._counts.append((now, count))

    @property
    def per_s(self) -> float:
        """The growth per second; 0 while it is not known."""
        if len(self._counts) < 2:
            return 0.0
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """A backfill that may be started. ``wanted``: its request; ``tables``: the tables that it reads. ``resumes``:
    whether it exists already and is paused. ``notes``: for the operator, for example on tables without a column that
    the filter tests. ``keys``: the only rows that it sends; ``None``: all rows.
    """

    wanted: BackfillControl
    tables: Sequence[ScannedTable]
    resumes: bool = False
    notes: Sequence[str] = ()
    keys: LostKeys | None = None


class Backfills:
    """See the module. Methods are called on the event loop."""

    def __init__(
        self,
        served: Served,
        assigner: Assigner,
        records: FlowRecords,
        scans: RowScans,
        lost: LostRows,
        background: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._served = served
        self._assigner = assigner
        self._records = records
        self._scans = scans
        self._lost = lost
        self._background = background
        self._clock = clock
        self._ending: set[FlowKey] = set()
        self._reported: dict[FlowKey, tuple[int, int]] = {}  # generation, and number of its logged finished tables
        self._problems: dict[FlowKey, Problem] = {}
        self._unlogged: dict[FlowKey, set[str]] = {}  # tables whose rows changed without a trace in the log
        self._storing: set[FlowKey] = set()
        self._last: dict[FlowKey, FlowBackfill] = {}  # includes flows without a subscriber
        self._speeds: dict[FlowKey, Speed] = {}
        self._verifications = Verifications()
        # By flow: the ranges of lost log that its backfill covers, and the keys of the rows that changed in them.
        self._keys: dict[FlowKey, tuple[tuple[Range, ...], LostKeys]] = {}

    # -- what the publisher reports

    async def prepare(self, flow: PublisherFlow) -> None:
        """Prepare a flow that is about to be assigned in a new epoch. If its filter has changed, its backfill begins
        anew.
        """
        try:
            backfill = flow.control.backfill
            if backfill is not None and not backfill.ended and backfill.filter_hash != flow.filter.hash:
                await self._records.renew_backfill(flow, "its filter changed")
            await self._load_keys(flow)
        except KeyError:
            missing = "its datamarker is missing in the marker store"
            hint = written_anew(flow.key)
            raise MarkerStoreError(missing, flow=flow.name, hint=hint, code="marker-missing") from None

    async def _load_keys(self, flow: PublisherFlow) -> None:
        """Load the keys that a backfill of rows in lost log has to read. If they are not known, the backfill becomes
        one of whole tables."""
        backfill = flow.control.backfill
        if backfill is None or backfill.ended or not backfill.lost:
            return
        self._keys.pop(flow.key, None)
        keys = await self._known(flow, backfill.lost)
        if isinstance(keys, LostKeys):
            self._keys[flow.key] = backfill.lost, keys
            return
        hash_, generation = flow.filter.hash, backfill.generation
        await self._records.control(flow, lambda control: renewed(control, hash_, generation, whole=True))
        _log.warning("%s is sent all rows of its tables, since %s", flow.name, keys, extra=flow.about)

    def begin(self, flow: PublisherFlow, stream: SubscriberStream) -> FlowBackfill | None:
        """The flow's backfill in the epoch that begins; ``None``: it needs no rows, or cannot get them."""
        self._problems.pop(flow.key, None)
        control = flow.control.backfill
        if control is None or control.ended:
            return None
        verifies = control.verify is not VerifyMode.NONE
        if verifies and not stream.verifies:
            self._problems[flow.key] = does_not_verify(stream.info.id)
            _log.warning("%s is not verified: %s", flow.name, self._problems[flow.key], extra=flow.about)
            return None
        if stream.begins(flow) != (control.generation, control.verify):
            return None  # the request is newer than the assignment: the flow is being assigned anew
        try:
            where = compiled(control.where, self._served.formats, capabilities_of(self._served.kind))
        except WormholeError as error:  # a publisher of another release accepted this filter
            self._problems[flow.key] = error.problem
            _log.error("%s gets no existing rows: %s", flow.name, error, extra=flow.about)
            return None
        keys = self.keys_of(flow)
        if control.lost and keys is None:
            return None  # the request is newer than the keys: the flow is being assigned anew
        own = tables_of_shard(flow.shard, self._served.log, self._served.dataset.shard_by)
        request = BackfillRequest(
            control.generation,
            control.tables or own,
            where,
            paused=bool(control.paused),
            verify=verifies,
            keys=keys,
            lost=control.lost,
        )
        backfill = FlowBackfill.resume(request, flow.delivery.marker.backfill, flow.filter.hash)
        wanted = request.wanted(flow.filter)
        self._unlogged[flow.key] = {one for one in self._unlogged.get(flow.key, ()) if not wanted(one)}
        if any(map(wanted, flow.control.unlogged)):
            self._background.spawn(self._store_unlogged(flow, asked=wanted))
        self._reported[flow.key] = control.generation, len(backfill.finished_tables())
        self._last[flow.key], self._speeds[flow.key] = backfill, Speed()
        self._scans.want(control.rate)
        if verifies:
            self._verifications.begin(flow, control.generation)
        _log.info(
            "existing rows of %s are %s, in generation %d: %s",
            flow.name,
            "compared" if verifies else "sent",
            control.generation,
            keys or (few(control.tables) if control.tables else "all tables of its filter"),
            extra=flow.about,
        )
        return backfill

    def look(self) -> None:
        """Note which tables and backfills have ended; called about once a second."""
        rates = []
        for flow in tuple(self._assigner.flows.values()):
            backfill, control = self.progress_of(flow), flow.control.backfill
            self._report_replaced(flow)
            if backfill is not None:
                self._look_at(flow, backfill)
                self._speeds[flow.key].note(backfill.rows, self._clock.monotonic())
                if control is not None and not backfill.finished:
                    rates.append(control.rate)
        self._scans.ask_rates(rates)
        self._scans.keep(bool(rates))

    def verified(self, flow: PublisherFlow, epoch: int, event: Verified) -> None:
        """Note a result of the flow's subscriber in ``epoch``, which compared rows with those of its application."""
        backfill = self.progress_of(flow)
        if epoch != flow.holding.epoch or backfill is None or not backfill.request.verify:
            return  # the epoch or the verification ended meanwhile
        table = event.found.table
        self._verifications.add(flow, event.found)
        if event.confirm:
            backfill.confirm(table, self._verifications.take_extra(flow, table))
            self._want(flow)
        if event.found.ended:
            more = unconfirmed_keys(table, backfill.unconfirmed(table))
            if more is not None:
                self._verifications.add(flow, more)
            self._verifications.log_end(flow, table)
            self._look_at(flow, backfill)

    def verifications(self, flow: PublisherFlow) -> Sequence[TableVerification]:
        """The findings by table of the flow's last backfill; empty unless it was a verification."""
        control = flow.control.backfill
        return () if control is None else self._verifications.of(flow, control.generation)

    def problem(self, flow: PublisherFlow) -> Problem:
        """Why the flow gets no existing rows although it should, or which tables need them; for operators."""
        if is_unfinished(flow.control) and flow.key in self._problems:
            return self._problems[flow.key]
        tables = sorted({*flow.control.unlogged, *self._unlogged.get(flow.key, ())})
        return _unlogged_problem(flow, tables) if tables else NO_PROBLEM

    @staticmethod
    def progress_of(flow: PublisherFlow) -> FlowBackfill | None:
        """The progress of the flow's backfill; ``None`` while its subscriber takes no rows."""
        return None if flow.delivery.caravan_flow is None else flow.delivery.caravan_flow.backfill

    def last_progress_of(self, flow: PublisherFlow) -> FlowBackfill | None:
        """The last known progress of the flow's last backfill; ``None`` if this process knows none."""
        last, control = self._last.get(flow.key), flow.control.backfill
        stored = flow.delivery.durable.backfill
        if last is None and control is not None and not control.ended and stored:
            last = FlowBackfill.resume(BackfillRequest(control.generation), stored, flow.filter.hash)
            self._last[flow.key] = last
        return last if last is not None and control is not None and last.generation == control.generation else None

    def keys_of(self, flow: PublisherFlow) -> LostKeys | None:
        """The only rows that the flow's last backfill sends; ``None``: all rows, or this process does not know."""
        lost, keys = self._keys.get(flow.key, ((), None))
        return keys if flow.control.backfill is not None and flow.control.backfill.lost == lost else None

    def rows_per_s(self, flow: PublisherFlow) -> float:
        """Rows that the flow is sent per second, over the last few seconds."""
        speed = self._speeds.get(flow.key)
        return 0.0 if speed is None else speed.per_s

    def tables_of(self, flow: PublisherFlow) -> Callable[[str], bool]:
        """Returns a predicate: whether the table of that name may have rows for the flow."""
        own = tables_of_shard(flow.shard, self._served.log, self._served.dataset.shard_by)
        return BackfillRequest(1, own).wanted(flow.filter)

    # -- what was lost

    async def rows_lost(self, flow: PublisherFlow, begin: LogPosition, end: LogPosition) -> LostKeys | str:
        """The rows that the flow lacks from this range of the log, or why they are not known."""
        return await self._known(flow, ((begin, end),))

    async def _known(self, flow: PublisherFlow, ranges: Sequence[Range]) -> LostKeys | str:
        keys = await self._lost.known(flow.shard, ranges)
        return keys.of(self.tables_of(flow)) if isinstance(keys, LostKeys) else keys

    async def cover(self, flow: PublisherFlow, begin: LogPosition, end: LogPosition) -> bool:
        """Add the rows of a lost range to a running backfill that sends rows of lost log to the flow.

        Called before the application is asked about the loss. Returns false if the flow is assigned anew for the added
        rows.
        """
        control, backfill = flow.control.backfill, self.progress_of(flow)
        if (
            control is None
            or control.ended
            or not control.lost
            or backfill is None
            or backfill.request.covers(begin, end)
        ):
            return True
        lost = with_lost(control.lost, begin, end)
        keys = await self._known(flow, lost)
        if isinstance(keys, str):
            return True  # all tables are read, if the flow continues after the range
        generation, fresh = control.generation, not backfill.begun
        await self._records.control(flow, lambda control: extended(control, lost, generation, anew=not fresh))
        if fresh and self.progress_of(flow) is backfill:
            self._keys[flow.key] = lost, keys
            backfill.extend(keys, lost)
            return True
        self._assigner.anew(flow, "log was lost that the rows which are sent again do not cover")
        return False

    async def release(self, oldest: LogPosition) -> None:
        """Prepare the deletion of the log before ``oldest``. The keys of rows that changed in lost ranges stay until
        no backfill needs them. Raises the relay's errors.
        """
        backfills = [flow.control.backfill for flow in self._assigner.flows.values()]
        lost = [one.lost for one in backfills if one is not None and not one.ended]
        await self._lost.keep(min([oldest, *(begin for ranges in lost for begin, _ in ranges)]))

    # -- what operators ask

    async def plan_repair(self, flow: PublisherFlow, rate: float | None, who: str) -> BackfillPlan | str:
        """The plan of a backfill that sends only the rows that changed in the flow's lost log. Returns the reason as
        text if whole tables have to be read.
        """
        check_size((), "", rate)
        present = flow.control.backfill
        if present is not None and not present.ended:
            return "a backfill was begun before"
        if flow.loss.open is None or flow.delivery.caravan_flow is None:
            return "the flow is not held at a loss, and where an earlier one was is not known any more"
        begin, end = flow.delivery.caravan_flow.place, flow.loss.open[1].order
        keys = await self.rows_lost(flow, begin, end)
        if isinstance(keys, str):
            return keys
        found = await self._scans.tables(keys.tables.__contains__, ())
        wanted = BackfillControl(
            1,
            who,
            self._clock.wall(),
            filter_hash=flow.filter.hash,
            rate=0.0 if rate is None else rate,
            lost=((begin, end),),
        )
        planned = asked(flow.control, wanted, flow.holding.epoch if present is None else 0).backfill
        assert planned is not None
        there = {table.name for table in found}
        gone = sorted(name for name in keys.tables if name not in there and not flow.filter.wants_none_of(name))
        notes = [f"changed, and not there any more, or not to be seen: {few(gone)}"] if gone else []
        return BackfillPlan(planned, found, notes=notes, keys=keys)

    async def plan(
        self,
        flow: PublisherFlow,
        tables: Sequence[str],
        where: str,
        rate: float | None,
        who: str,
        verify: VerifyMode = VerifyMode.NONE,
    ) -> BackfillPlan:
        """The plan of a backfill. Raises :class:`~wormhole.model.errors.WormholeError` if it cannot be started."""
        check_size(tables, where, rate)
        check_verifies(where, verify)
        present = flow.control.backfill
        resumes = False
        if present is not None and not present.ended:
            same = (set(present.tables), present.where, present.verify) == (set(tables), where, verify)
            if not (present.paused and same):
                raise self._runs_already(flow, present)
            resumes = True
        narrowed = compiled(where, self._served.formats, capabilities_of(self._served.kind))
        named = BackfillRequest(1, tuple(tables), narrowed).named(flow.filter)
        found = await self._scans.tables(self._wants(flow, tables), tuple(named))
        self._check_tables(flow, tables, found)
        notes = () if narrowed is None else await self._check_columns(flow, narrowed, found)
        if resumes and present is not None:
            return BackfillPlan(
                replace(present, paused="", rate=rate or present.rate), found, resumes=True, notes=notes
            )
        wanted = BackfillControl(
            1,
            who,
            self._clock.wall(),
            tuple(tables),
            where,
            flow.filter.hash,
            0.0 if rate is None else rate,
            verify=verify,
        )
        epoch = flow.holding.epoch if present is None else 0
        planned = asked(flow.control, wanted, epoch).backfill
        assert planned is not None
        return BackfillPlan(planned, found, notes=notes)

    async def start(self, flow: PublisherFlow, plan: BackfillPlan) -> None:
        """Start the planned backfill."""
        if plan.resumes:
            await self._change(flow, lambda control: replace(control, backfill=plan.wanted))
            self._set_paused(flow, False)
            return

        def begun(control: FlowControl) -> FlowControl:
            if control.backfill == plan.wanted:
                return control
            if control.backfill is not None and not control.backfill.ended:
                raise self._runs_already(flow, control.backfill)
            return asked(control, plan.wanted, flow.holding.epoch)

        await self._records.control(flow, begun)
        if plan.keys is not None:
            self._keys[flow.key] = plan.wanted.lost, plan.keys
        done = "sent" if plan.wanted.verify is VerifyMode.NONE else "compared"
        self._assigner.anew(flow, f"existing rows are {done}, as {plan.wanted.who} asked")

    async def pause(self, flow: PublisherFlow, by: str) -> None:
        """Send no rows until :meth:`resume`."""
        await self._change(flow, lambda control: paused(control, by))
        self._set_paused(flow, True)

    async def resume(self, flow: PublisherFlow) -> None:
        """Continue a paused backfill at the place where it stopped."""
        await self._change(flow, lambda control: paused(control, ""))
        self._set_paused(flow, False)

    async def cancel(self, flow: PublisherFlow) -> None:
        """End the backfill early. Its generation is not used again."""
        present = self.unfinished(flow)
        progress = self.last_progress_of(flow)
        rows = 0 if progress is None else progress.rows
        await self._change(flow, lambda control: ended(control, CANCELLED, present.generation, rows))
        caravan_flow = flow.delivery.caravan_flow
        if caravan_flow is not None and caravan_flow.backfill is not None:
            caravan_flow.end_backfill()
        _log.info("the %s of %s was cancelled", noun_of(present), flow.name, extra=flow.about)

    def unfinished(self, flow: PublisherFlow) -> BackfillControl:
        """The flow's unfinished backfill.

        Raises :class:`~publisher.flows.refused_error.RefusedError` if the flow has none.
        """
        backfill = flow.control.backfill
        if backfill is None or backfill.ended:
            state = "none was asked for" if backfill is None else f"the last one is {backfill.ended}"
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{flow.name}: no backfill runs, {state}",
                hint=f"`wormholectl backfill start {flow.application}` begins one",
            )
        return backfill

    # -- inside

    async def _change(self, flow: PublisherFlow, change: Callable[[FlowControl], FlowControl]) -> None:
        self.unfinished(flow)
        await self._records.control(flow, change)

    def _set_paused(self, flow: PublisherFlow, value: bool) -> None:
        backfill = self.progress_of(flow)
        if backfill is not None:
            backfill.paused = value
            self._want(flow)

    def _want(self, flow: PublisherFlow) -> None:
        control = flow.control.backfill
        if control is not None:
            self._scans.want(control.rate)

    def _wants(self, flow: PublisherFlow, tables: Sequence[str]) -> Callable[[str], bool]:
        names, of_shard = set(tables), self.tables_of(flow)
        return lambda table: table in names or (not names and of_shard(table))

    def _check_tables(self, flow: PublisherFlow, tables: Sequence[str], found: Sequence[ScannedTable]) -> None:
        there = {table.name: table for table in found}
        of_shard = self.tables_of(flow)
        missing = [name for name in tables if name not in there]
        if missing:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"there is no table {few(missing)}",
                flow=flow.name,
                hint=f"`wormholectl backfill start {flow.application}` without tables and --yes lists them",
                code="table-unknown",
            )
        excluded = [name for name in tables if flow.filter.wants_none_of(name)]
        if excluded:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{flow.application} receives nothing of {few(excluded)}, by its tables or its filter",
                flow=flow.name,
                hint="leave these tables out, or change the application's configuration first",
            )
        elsewhere = [name for name in tables if not of_shard(name)]
        if elsewhere:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{few(elsewhere)} has no rows in shard {flow.shard}",
                flow=flow.name,
                hint="ask the flow of that table's shard",
            )

    async def _check_columns(self, flow: PublisherFlow, where: Filter, found: Sequence[ScannedTable]) -> Sequence[str]:
        """What the filter means for tables without a column that it tests. A column that no table has is an error, but
        with shards by table or database another shard's table may have it.
        """
        if self._served.formats or capabilities_of(self._served.kind).of_bytes:
            return ()  # the filter tests fields of values, which no table declares
        missing = missing_columns(where, found)
        wrong = missing
        if missing.everywhere and tables_of_shard(flow.shard, self._served.log, self._served.dataset.shard_by):
            wrong = missing_columns(where, await self._scans.tables(BackfillRequest(1).wanted(flow.filter), ()))
        if wrong.everywhere:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"where: {wrong.text}",
                flow=flow.name,
                hint=wrong.hint,
                code="filter-invalid",
            )
        return missing.notes

    @staticmethod
    def _runs_already(flow: PublisherFlow, present: BackfillControl) -> RefusedError:
        state = f"was paused by {present.paused}" if present.paused else "runs"
        return RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"{flow.name}: the {noun_of(present)} that {present.who} started {state} (generation {present.generation})",
            hint=f"wait until it has ended, or `wormholectl backfill cancel {flow.application}`",
        )

    def _look_at(self, flow: PublisherFlow, backfill: FlowBackfill) -> None:
        generation, logged = self._reported.get(flow.key, (backfill.generation, 0))
        finished = backfill.finished_tables()
        fresh = finished[logged if generation == backfill.generation else 0 :]
        for table in () if backfill.request.verify else fresh:
            unread = f"; {table.unread} keys could not be read" if table.unread else ""
            _log.info("%s was sent the rows of %s: %d%s", flow.name, table.table, table.rows, unread, extra=flow.about)
        self._reported[flow.key] = backfill.generation, len(finished)
        if backfill.request.verify:
            self._end_unread(flow, finished)
        caravan_flow, stored = flow.delivery.caravan_flow, flow.delivery.durable
        # The datamarker contains the last rows that were sent. They are durable once the store has that datamarker.
        durable = caravan_flow is not None and caravan_flow.marker.backfill == stored.backfill
        renewal = backfill.renewal
        if backfill.finished and durable and self._compared(flow, backfill):
            self._end(flow, self._finish, backfill)
        elif renewal is not None and (renewal.at is None or renewal.at < stored.order):
            self._end(flow, self._renew, backfill)

    def _end(
        self,
        flow: PublisherFlow,
        end: Callable[[PublisherFlow, FlowBackfill], Coroutine[None, None, None]],
        backfill: FlowBackfill,
    ) -> None:
        """Call ``end`` for the flow's backfill, unless its generation has ended or is being ended."""
        control = flow.control.backfill
        ends = control is not None and not control.ended and control.generation == backfill.generation
        if ends and flow.key not in self._ending:
            self._ending.add(flow.key)
            self._background.spawn(end(flow, backfill))

    async def _renew(self, flow: PublisherFlow, backfill: FlowBackfill) -> None:
        cause = "" if backfill.renewal is None else backfill.renewal.cause
        with _tried(flow, self._ending, f"the backfill of {flow.name} cannot begin anew yet"):
            hash_, generation = flow.filter.hash, backfill.generation
            await self._records.control(flow, lambda control: renewed(control, hash_, generation, whole=True))
            self._assigner.anew(flow, f"its existing rows are sent anew: {cause}")
            _log.warning(
                "the backfill of %s begins anew, in the generation after %d: %s. Next: nothing",
                flow.name,
                generation,
                cause,
                extra=flow.about,
            )

    def _report_replaced(self, flow: PublisherFlow) -> None:
        """Report tables whose rows changed without a trace in the log while no existing rows of them were wanted."""
        caravan_flow = flow.delivery.caravan_flow
        tables = set() if caravan_flow is None else set(filter(self.tables_of(flow), caravan_flow.replaced()))
        if tables:
            self._unlogged.setdefault(flow.key, set()).update(tables)
            _log.warning("%s: %s", flow.name, _unlogged_problem(flow, sorted(tables)), extra=flow.about)
        if self._unlogged.get(flow.key) and flow.key not in self._storing:
            self._storing.add(flow.key)
            self._background.spawn(self._store_unlogged(flow))

    async def _store_unlogged(self, flow: PublisherFlow, asked: Callable[[str], bool] = lambda _: False) -> None:
        """Store the tables whose rows changed unlogged with the flow's record, except the tables of which ``asked``
        returns true. Without the record, a publisher that starts after the change would not know of it."""

        def kept(control: FlowControl) -> FlowControl:
            tables = {*control.unlogged, *self._unlogged.get(flow.key, ())}
            return replace(control, unlogged=tuple(sorted(one for one in tables if not asked(one)))[:MOST_UNLOGGED])

        with _tried(flow, self._storing, f"{flow.name}: which rows changed is not stored yet"):
            await self._records.control(flow, kept)
            self._unlogged.get(flow.key, set()).difference_update(flow.control.unlogged)

    def _end_unread(self, flow: PublisherFlow, finished: Sequence[FinishedTable]) -> None:
        """End the verification of tables some of whose rows could not be read. The subscriber receives no end of such a
        table, so it reports none."""
        for table in finished:
            if table.unread and not self._verifications.has_ended(flow, table.table):
                self._verifications.add(flow, unread_keys(table.table, table.unread))
                self._verifications.log_end(flow, table.table)

    def _compared(self, flow: PublisherFlow, backfill: FlowBackfill) -> bool:
        """Whether a verification has ended for every table that was sent."""
        return not backfill.request.verify or all(
            self._verifications.has_ended(flow, table.table) for table in backfill.finished_tables()
        )

    async def _finish(self, flow: PublisherFlow, backfill: FlowBackfill) -> None:
        with _tried(flow, self._ending, f"that the backfill of {flow.name} is done is not stored yet"):
            await self._records.control(flow, lambda control: ended(control, DONE, backfill.generation, backfill.rows))
            refused = f", without {few(list(backfill.refused))}" if backfill.refused else ""
            _log.info(
                "the %s of %s is done: %d rows in generation %d%s",
                "verification" if backfill.request.verify else "backfill",
                flow.name,
                backfill.rows,
                backfill.generation,
                refused,
                extra=flow.about,
            )


@contextmanager
def _tried(flow: PublisherFlow, under_way: set[FlowKey], failure: str) -> Iterator[None]:
    """Run the block for the flow, which leaves ``under_way`` afterwards. If the block fails, ``failure`` is logged, and
    the next :meth:`Backfills.look` tries again.
    """
    try:
        yield
    except (WormholeError, KeyError) as error:
        _log.warning("%s: %s", failure, error, extra=flow.about)
    finally:
        under_way.discard(flow.key)


def _unlogged_problem(flow: PublisherFlow, tables: Sequence[str]) -> Problem:
    return Problem(
        f"rows of {few(list(tables))} changed, and the log does not have them: what the application holds may differ",
        f"`wormholectl backfill start {flow.application} --tables {shlex.quote(','.join(tables))}` sends them, and "
        "`wormholectl verify` shows whether they differ",
        code="rows-not-logged",
    )
