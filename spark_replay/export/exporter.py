"""Exports all tables once: reads the state of each, writes later changes, commits. Retries if another writer won."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.export.job import ChangedRows, Work
from spark_replay.export.leftovers import ExportRun, clean, noted
from spark_replay.export.plan import ExportPlan, KeylessError, continued, first, planned
from spark_replay.export.port import Draft, OpenTable, SeenTable
from spark_replay.tables.about import SnapshotAbout
from spark_replay.tables.selection import LATEST, TableSelection
from spark_replay.tables.start import read_about, snapshot_rows
from wormhole.model.errors import ArchiveConflict, ReplayError, UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.suggestion import suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ExportStart", "Exporter", "Result", "start_from"]

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_IDLE_US: Final = 3_600_000_000
"""A table without changes is moved to later places once an hour."""


@dataclass(frozen=True)
class ExportStart:
    """The snapshot from which new open tables begin. ``rows``: its rows of all tables."""

    folder: str
    about: SnapshotAbout
    rows: Callable[[SparkSession], DataFrame]

    def check(self, table: str) -> None:
        """Raise :class:`~wormhole.model.errors.ReplayError` for a table that the snapshot does not have."""
        if table in self.about.left_out or table in self.about.others:
            raise ReplayError(
                f"{table} cannot begin from the snapshot in {self.folder}: {self.about.problems_of(table)[-1]}",
                hint="name another snapshot with --from, or leave the table out (-t names those to export)",
            )


def start_from(folder: str, store: ArchiveStore) -> ExportStart:
    """The snapshot in ``folder``. Raises :class:`~wormhole.model.errors.ReplayError` for one of another dataset."""
    about = read_about(folder, store.dataset, store.copy)
    return ExportStart(folder, about, lambda spark: snapshot_rows(spark, folder, about)(""))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run for one table. ``did``: ``created``, ``changed``, ``moved`` (later places, the same rows),
    ``nothing``, or ``left_out`` (it cannot be exported, and was not requested by name). ``rows``: the number of rows of
    the table. ``changes``: about how many changes of the archive were read. ``added`` and ``removed``: files.
    ``places``: by shard, the place up to which the table has the log. ``problem``: why nothing was done.
    """

    table: str
    name: str
    did: str
    version: str = ""
    rows: int = 0
    changes: int = 0
    added: int = 0
    removed: int = 0
    places: Mapping[str, str] = field(default_factory=dict)
    problem: WormholeError | None = None


@dataclass
class Exporter:
    """``open``: returns the open table of a table of the dataset. ``job``: writes the new files. ``tables``: only
    these. ``types``: the types of columns, by table. ``until``: the last place. ``dry``: write nothing. ``now_us``:
    microseconds since 1970. Not safe for threads.
    """

    store: ArchiveStore
    open: Callable[[str], OpenTable]
    job: Callable[[Work], ChangedRows]
    tables: Collection[str] = ()
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    until: Asked = LATEST
    start: ExportStart | None = None
    dry: bool = False
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    _cleaned: set[str] = field(default_factory=set)
    _selections: dict[frozenset[tuple[str, Datamarker, str]], TableSelection] = field(default_factory=dict)

    def run(self) -> list[Result]:
        """Each table's result, in alphabetical order.

        A problem of one table is in its result, and does not stop the others. Raises
        :class:`~wormhole.model.errors.WormholeError` for a problem of all tables.
        """
        self._selections.clear()
        return [self._table(table) for table in self._names()]

    def _names(self) -> list[str]:
        manifests = self.store.manifests()
        if not manifests:
            raise UsageError(
                f"the archive of {self.store.dataset} holds nothing yet", hint="see `wormholectl archive show`"
            )
        known = {table for one in manifests.values() for entry in one.files for table in entry.tables}
        if self.start is not None:
            known |= self.start.about.tables.keys()
        for option, given in (("--table", self.tables), ("--type", self.types)):
            if strangers := sorted(set(given) - known):
                raise UsageError(
                    f"the archive has no rows of {', '.join(strangers)}, which {option} names"
                    f"{suggestion(strangers[0], known)}",
                    hint="`wormholectl archive show` lists what it has",
                )
        return sorted(self.tables or known)

    def _table(self, table: str) -> Result:
        opened = self.open(table)
        try:
            for _ in range(_ATTEMPTS):
                try:
                    return self._attempt(table, opened)
                except ArchiveConflict:
                    continue
            raise ArchiveConflict(
                f"others committed to {opened.name} during each of {_ATTEMPTS} attempts",
                hint="see who writes to it; nothing of these attempts was committed",
            )
        except KeylessError as error:
            return Result(table, opened.name, "nothing" if self.tables else "left_out", problem=error)
        except WormholeError as error:
            self._cleaned.discard(table)
            return Result(table, opened.name, "nothing", problem=error)

    def _attempt(self, table: str, opened: OpenTable) -> Result:
        seen = opened.look()
        if seen.state is not None and table not in self._cleaned and not self.dry:
            clean(opened, seen.version)
            if not noted(opened.filesystem, opened.root):  # else another run is left, which may still be at work
                self._cleaned.add(table)
        selection = self._selection(seen, table, opened.name)
        plan = planned(table, seen, selection, self._start_schemas(), self.types.get(table, {}))
        did = self._needed(seen, plan)
        if self.dry and did != "nothing":
            opened.check(plan.columns)
        if did == "nothing" or self.dry:
            return _result(table, opened, seen, plan, did)
        return self._commit(table, opened, seen, plan, did)

    def _needed(self, seen: SeenTable, plan: ExportPlan) -> str:
        state = seen.state
        if state is None:
            return "created"
        if plan.changes or state.columns != plan.columns:
            return "changed"
        idle = self.now_us() - state.at_us < _IDLE_US and {one.shard for one in plan.ranges} == state.shards.keys()
        return "nothing" if idle or not plan.moved else "moved"

    def _selection(self, seen: SeenTable, table: str, name: str) -> TableSelection:
        """The selection after the table's places. Tables at the same places share one selection in a run, so they have
        the same places again."""
        start, state = self.start, seen.state
        if state is None and start is not None:
            start.check(table)
        shards = {} if state is None else state.shards
        places = frozenset((shard, one.marker, one.log) for shard, one in shards.items())
        if places not in self._selections:
            if state is not None:
                self._selections[places] = continued(self.store, state, name, self.until)
            elif start is not None:
                self._selections[places] = first(self.store, start.about, start.folder, self.until)
            else:
                self._selections[places] = first(self.store, None, "", self.until)
        return self._selections[places]

    def _start_schemas(self) -> tuple[Schema, ...]:
        return self.start.about.schemas if self.start is not None else ()

    def _commit(self, table: str, opened: OpenTable, seen: SeenTable, plan: ExportPlan, did: str) -> Result:
        draft = opened.draft(plan.columns)
        run = ExportRun(opened, seen.version)
        run.begin()
        changed = ChangedRows((), ())
        if did != "moved":
            changed = self._write(table, opened, seen, plan, draft, run)
        state = plan.state(self.store, table, run.name, self.now_us())
        try:
            version = draft.commit(state, changed.added, changed.removed)
        except ArchiveConflict:
            if not opened.committed(run.name, seen.version):
                run.abandon()
                raise
            version = opened.look().version
        run.committed()
        try:
            opened.tidy(self.now_us())
        except WormholeError as error:  # not a failure of the run, because the rows are committed
            _log.warning("%s", error)
        return _result(table, opened, seen, plan, did, version, changed)

    def _write(
        self, table: str, opened: OpenTable, seen: SeenTable, plan: ExportPlan, draft: Draft, run: ExportRun
    ) -> ChangedRows:
        state = seen.state
        before = plan.columns if state is None else state.columns
        start = self.start if state is None else None
        work = Work(
            self.store,
            table,
            plan.ranges,
            plan.schemas,
            plan.key,
            before,
            plan.columns,
            seen.files,
            opened.filesystem,
            run.folder,
            draft.shape,
            plan.selection.needs_inspection,
            before != plan.columns,
            None if start is None else start.rows,
            0 if start is None or table not in start.about.tables else start.about.tables[table].rows,
        )
        try:
            return self.job(work)
        except BaseException:
            run.abandon()
            if opened.look().version != seen.version:
                raise ArchiveConflict(f"another writer committed to {opened.name} meanwhile") from None
            raise


def _result(
    table: str,
    opened: OpenTable,
    seen: SeenTable,
    plan: ExportPlan,
    did: str,
    version: str = "",
    changed: ChangedRows = ChangedRows((), ()),  # noqa: B008  # nothing changes it
) -> Result:
    rows = sum(one.rows for one in seen.files) - sum(one.rows for one in changed.removed)
    places = {one.shard: str(one.until.order) for one in plan.ranges if one.until is not None}
    if did == "nothing" and seen.state is not None:
        places = {shard: str(one.marker.order) for shard, one in seen.state.shards.items()}
    return Result(
        table,
        opened.name,
        did,
        version or seen.version,
        rows + sum(one.rows for one in changed.added),
        plan.changes,
        len(changed.added),
        len(changed.removed),
        places,
    )
