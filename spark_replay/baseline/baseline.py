"""A snapshot of tables that had rows before their archive began.

::

    plan      take the archive's end, then divide the tables into ranges by the datastore's own order of keys
    scan      tasks of Spark read them chunk by chunk, each chunk with its (not_before, high)
    wait      until the archive reaches every high
    check     read tables again whose columns or rows changed as a whole meanwhile; read new tables
    fold      combine the rows with the archived changes since the plan: every row as it is at the archive's end
    again     read rows again that still lack values, and fold

The work is stored in the snapshot's folder (:mod:`spark_replay.baseline.work`). The same call continues it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spark_replay.archive.columns import position_of, read_place
from spark_replay.archive.manifest import Manifest
from spark_replay.archive.store import ArchiveStore
from spark_replay.baseline.log_archives import ANOTHER, LogArchives, ScanPace
from spark_replay.baseline.rows import baseline_rows, offsets, unknown_keys, without_moves
from spark_replay.baseline.scan import Portion, Scan, ScanOutcome, TableLog, key_changed, not_before_of
from spark_replay.baseline.source_tables import SourceTables
from spark_replay.baseline.work import FOLDER, PLAN, BaselinePlan, Done, KeyRange, done_path, of_log, tasks_of
from spark_replay.frames import ShardFiles, read, reading, schemas_of
from spark_replay.tables.about import ABOUT
from spark_replay.tables.folder import Folder, Written
from spark_replay.tables.newest import LogSchema, newest_schemas
from spark_replay.tables.schemas import attach
from spark_replay.tables.selection import TableOptions, TableSelection, key_problem, ordered_schemas
from spark_replay.tables.snapshot_writer import HeldRows, SnapshotPlan, write_tables, write_updates
from spark_replay.tables.updates import read_updates
from wormhole.model.errors import ReplayError, UnreadableTable, UsageError, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.ports.table_source import ScannedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["write_baseline"]

_ROUNDS: Final = 3
"""How often tables or rows are read again."""
_LEAST, _MOST = 50_000, 2_000_000
"""The least and the most rows of a range."""
_RANGES_PER_SLOT: Final = 8
_MOST_KEYS: Final = 100_000
_KEYS_PER_RANGE: Final = 1_000
_PROGRESS_S: Final = 10.0


def write_baseline(
    spark: SparkSession,
    store: ArchiveStore,
    to: str,
    logs: Sequence[TableLog],
    *,
    tables: Collection[str] = (),
    readings: Mapping[str, TableOptions] | None = None,
    now: datetime,
    pace: ScanPace = ScanPace(),  # noqa: B008 - frozen
) -> Written:
    """Write the tables of ``logs`` as they are at the archive's end into the folder ``to``.

    ``logs``: the logs of the archive. ``to``: an empty folder, or one in which an earlier call did not finish.
    ``tables``: the tables to read; empty: all. ``readings``: how single tables are read. Raises
    :class:`~wormhole.model.errors.UsageError` for a wrong request, :class:`~wormhole.model.errors.ReplayError` if the
    tables cannot be made whole, and what the datastore and the archive raise.
    """
    folder = Folder(to, ABOUT, FOLDER)
    with SourceTables({log.name: log for log in logs}, pace.patience_s) as source:
        baseline = _Baseline(spark, store, folder, {log.name: log for log in logs}, source, pace)
        baseline.begin(tuple(sorted(tables)), int(now.timestamp()))
        plan, rows = baseline.rows()
    written = write_tables(spark, store, folder, plan, rows, readings or {}, now)
    folder.remove_work()
    return written


@dataclass(slots=True)
class _Now:
    """The tables at the end of a round. ``schemas``: by log and table, with the place at which they were read.
    ``truncated``: by log and table, the last place where it lost all rows, or all of a partition.
    """

    schemas: dict[tuple[str, str], tuple[Schema, LogPosition]] = field(default_factory=dict)
    truncated: dict[tuple[str, str], LogPosition] = field(default_factory=dict)


class _Baseline:
    def __init__(
        self,
        spark: SparkSession,
        store: ArchiveStore,
        folder: Folder,
        logs: Mapping[str, TableLog],
        source: SourceTables,
        pace: ScanPace,
    ) -> None:
        self._spark = spark
        self._store = store
        self._folder = folder
        self._logs = logs
        self._source = source
        self._pace = pace
        self._archive = LogArchives(store, source, tuple(logs), pace)
        self._plan: BaselinePlan
        self._begins: Mapping[str, Datamarker] = {}
        self._done: dict[int, Done] = {}
        self._left_out: dict[str, str] = {}

    # -- the plan

    def begin(self, asked: tuple[str, ...], scan: int) -> None:
        """Make the plan, or continue with an existing one."""
        storage = self._folder.storage
        data = storage.read(PLAN)
        if data is None:
            self._folder.begin()
            self._plan = self._planned(asked, scan)
            self._save()
            self._left_out = dict(self._plan.left_out)
            return
        if storage.read(ABOUT) is not None:
            raise UsageError(f"{self._folder.to} holds a whole snapshot", hint="name a new folder")
        self._plan = plan = BaselinePlan.from_json(data, storage.path(PLAN))
        self._begins, self._left_out = plan.begins, dict(plan.left_out)
        wanted = (self._store.dataset, self._store.copy, asked, sorted(self._logs))
        if (plan.dataset, plan.copy, plan.asked, sorted(plan.begins)) != wanted:
            which = f"of {plan.dataset}, {', '.join(plan.asked) or 'all tables'}, logs {', '.join(sorted(plan.begins))}"
            raise UsageError(
                f"{self._folder.to} holds the beginning of another baseline: {which}",
                hint="name a new folder, or ask for the same",
            )
        for log, begin in plan.begins.items():
            not_before_of(self._store, log, begin)

    def _planned(self, asked: tuple[str, ...], scan: int) -> BaselinePlan:
        self._pace.say("looking at the tables")
        # The archive's end is taken before any row is read, so that the archive has every later change.
        self._begins = {log: self._archive.end(log) for log in self._logs}
        listed = {log: self._source.listed(log, asked) for log in self._logs}
        every = [table for tables in listed.values() for table in tables]
        if missing := sorted(set(asked) - {table.name for table in every}):
            raise UsageError(
                f"there is no table {', '.join(missing)}, or the account may not see it",
                hint="correct the name",
                code="table-unknown",
            )
        readable = {table.name for table in every if not table.refused}
        for table in every:
            if table.refused and (not readable or (table.name in asked and table.name not in readable)):
                raise UsageError(table.refused.text, hint=table.refused.hint, code=table.refused.code)
        wanted = [
            (log, table)
            for log, tables in listed.items()
            for table in tables
            if not table.refused and (not asked or table.name in asked)
        ]
        if not wanted:
            raise UsageError(
                "there is no table to read", hint="see that the account has SELECT on the tables", code="table-unknown"
            )
        self._check_archiver(*wanted[0])
        size = self._pace.range_rows or self._range_rows(table for _, table in wanted)
        fingerprints: dict[str, dict[str, str]] = {log: {} for log in self._logs}
        for log, table in wanted:
            fingerprints[log][table.name] = table.fingerprint
        plan = BaselinePlan(
            self._store.dataset,
            self._store.copy,
            scan,
            asked,
            self._begins,
            fingerprints,
            {} if asked else {table.name: str(table.refused) for table in every if table.refused},
            tuple(sorted({table.name for table in every} - set(asked))) if asked else (),
        )
        return plan.with_ranges(
            one for log, table in wanted for one in self._source.ranges(log, table, size, plan.round)
        )

    def _check_archiver(self, log: str, table: ScannedTable) -> None:
        """Check that the archive grows, before hours are spent on reading."""
        self._archive.await_reached({log: {self._source.first(log, table.name, self._begins[log]).high}}, self._begins)

    def _range_rows(self, tables: Iterable[ScannedTable]) -> int:
        rows = sum(table.rows or 0 for table in tables)
        slots = self._spark.sparkContext.defaultParallelism
        return min(_MOST, max(_LEAST, rows // (_RANGES_PER_SLOT * slots)))

    def _save(self) -> None:
        self._folder.storage.replace(PLAN, self._plan.to_json())

    def _add(self, ranges: Iterable[KeyRange]) -> None:
        self._plan = self._plan.with_ranges(ranges)
        self._save()

    # -- rounds

    def rows(self) -> tuple[SnapshotPlan, HeldRows]:
        """Read and fold until every row is whole, or :data:`_ROUNDS` is reached."""
        again = self._plan.round
        while True:
            self._scan()
            now = self._look()
            if more := self._stale(now):
                if again < _ROUNDS:
                    again += 1
                    self._add(more)
                    continue
                for one in more:
                    self._leave_out(one.table, "its columns or its rows as a whole changed each time it was read")
            self._pace.say("folding rows and changes")
            plan = self._folded_plan(now)
            with reading():
                held_rows = self._fold(plan)
                lacking = self._lacking(held_rows) if again < _ROUNDS else []
            if not lacking:
                return plan, held_rows
            again += 1
            self._add(lacking)

    def _scan(self) -> None:
        storage = self._folder.storage
        run = self._pace.run or self._by_spark
        scan = Scan(self._logs, self._store, storage, self._begins, self._plan.scan, self._pace.patience_s)
        while pending := self._pending():
            rows = sum(one.rows for one in pending)
            self._pace.say(f"reading {len(pending):,} ranges, about {rows:,} rows")
            portions = [
                Portion(some[0].log, some, {one.table: self._plan.fingerprints[one.log][one.table] for one in some})
                for some in tasks_of(pending)
            ]
            for outcome in run(scan, portions):
                if outcome.table:
                    self._leave_out(outcome.table, str(outcome.problem))
                elif outcome.problem:
                    hint = f"{outcome.problem.hint}; then the same command goes on where it was".removeprefix("; ")
                    raise ReplayError(outcome.problem.text, hint=hint)

    def _by_spark(self, scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        # Secrets are sent with the function, in memory. Portions are sent through a file of Spark.
        tasks = self._spark.sparkContext.parallelize(portions, len(portions))
        with self._progress():
            found: list[ScanOutcome] = tasks.map(scan).collect()
        return found

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """Report the progress of the ranges, at once and every few seconds."""
        ended = threading.Event()

        def watch() -> None:
            while True:
                with suppress(WormholeError):  # a failed report does not end the baseline
                    done = len(self._folder.storage.files(f"{FOLDER}/done"))
                    self._pace.say(f"read {done:,} of {len(self._plan.ranges):,} ranges")
                if ended.wait(_PROGRESS_S):
                    return

        watcher = threading.Thread(target=watch, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _pending(self) -> list[KeyRange]:
        """The ranges that are still to read. Loads the ranges that were read into ``_done``."""
        storage = self._folder.storage
        for one in self._plan.ranges:
            path = done_path(one.number)
            if one.number not in self._done and (data := storage.read(path)) is not None:
                self._done[one.number] = Done.from_json(data, storage.path(path))
        return [one for one in self._plan.ranges if one.number not in self._done and one.table not in self._left_out]

    def _leave_out(self, table: str, why: str) -> None:
        if table in self._plan.asked:
            raise ReplayError(f"{table}: {why}", hint=f"when it is quiet, {ANOTHER}")
        self._left_out.setdefault(table, why)

    # -- what changed meanwhile

    def _look(self) -> _Now:
        """Wait until the archive has reached all rows that were read. Returns the tables as they are then."""
        self._archive.await_reached(self._highs(), self._begins)
        now = _Now()
        highs: dict[str, set[str]] = {}
        for log, known in self._plan.fingerprints.items():
            listed = {table.name: table for table in self._source.listed(log)}
            not_before = not_before_of(self._store, log, self._begins[log])
            for name, fingerprint in known.items():
                if name not in self._left_out and self._is_there(name, fingerprint, listed.get(name)):
                    self._look_at(log, name, not_before, now, highs)
            if not self._plan.asked:
                self._meet(log, [table for name, table in listed.items() if name not in known])
        self._archive.await_reached(highs, self._begins)
        self._find_truncated(now)
        return now

    def _highs(self) -> dict[str, set[str]]:
        highs: dict[str, set[str]] = {}
        for one in self._plan.ranges:
            if one.number in self._done:
                highs.setdefault(one.log, set()).add(self._done[one.number].high)
        return highs

    def _is_there(self, name: str, fingerprint: str, table: ScannedTable | None) -> bool:
        if table is None:
            self._leave_out(name, "it was dropped or renamed while its rows were read")
        elif table.refused:
            self._leave_out(name, str(table.refused))
        elif table.fingerprint != fingerprint:
            raise key_changed(name)
        else:
            return True
        return False

    def _look_at(self, log: str, name: str, not_before: Datamarker, now: _Now, highs: dict[str, set[str]]) -> None:
        try:
            chunk = self._source.first(log, name, not_before)
        except UnreadableTable as error:
            self._leave_out(name, str(error.problem))
            return
        now.schemas[log, name] = chunk.schema, not_before.order
        highs.setdefault(log, set()).add(chunk.high)

    def _meet(self, log: str, tables: Sequence[ScannedTable]) -> None:
        """Add tables that appeared meanwhile, to be read too. They may be former tables with another name."""
        for table in tables:
            if table.name in self._left_out:
                continue
            if table.refused:
                self._leave_out(table.name, str(table.refused))
                continue
            prints = {**self._plan.fingerprints, log: {**self._plan.fingerprints[log], table.name: table.fingerprint}}
            self._plan = replace(self._plan, fingerprints=prints)

    def _stale(self, now: _Now) -> list[KeyRange]:
        """The ranges of tables that have to be read, or read again."""
        found: list[KeyRange] = []
        covering = self._plan.newest()
        for log, known in self._plan.fingerprints.items():
            for name in known.keys() - self._left_out.keys():
                newest = covering.get((log, name))
                if not newest:
                    table = ScannedTable(name)
                    found += self._source.ranges(log, table, self._pace.range_rows or _LEAST, self._plan.round + 1)
                    continue
                done = [self._done[one.number] for one in newest]
                schema = now.schemas.get((log, name))
                altered = schema and any(one.file and set(one.schemas) != {schema[0]} for one in done)
                truncated = now.truncated.get((log, name))
                if altered or (truncated is not None and truncated > min(one.first for one in done)):
                    found += [replace(one, round=self._plan.round + 1) for one in newest]
        return found

    def _find_truncated(self, now: _Now) -> None:
        """Find the last TRUNCATE of each table. The log does not show whether it removed all rows or a partition's."""
        import pyspark.sql.functions as f

        ranges = [one for one in self._archive.since(self._begins, self._store.manifests()) if _has(one, Op.TRUNCATE)]
        if not ranges:
            return
        with reading():
            rows = read(self._spark, self._store, ranges, ("place", "op", "table"))
            last = (
                rows.where(f.col("op") == Op.TRUNCATE.value).groupBy("shard", "table").agg(f.max("place").alias("at"))
            )
            for row in last.collect():
                key = self._archive.log_of(row.shard), row.table
                place = position_of(bytes(row.at))
                now.truncated[key] = max(place, now.truncated.get(key, place))

    # -- the fold

    def _folded_plan(self, now: _Now) -> SnapshotPlan:
        manifests = self._store.manifests()
        ranges = self._archive.since(self._begins, manifests)
        self._check_shards(manifests)
        by_id = schemas_of(self._store, ranges)
        log_of = {shard: manifest.log for shard, manifest in manifests.items()}
        before: dict[str, dict[str, LogSchema]] = {}
        for (log, table), (schema, place) in now.schemas.items():
            name = next(manifest.log for shard, manifest in manifests.items() if of_log(log, shard))
            before.setdefault(table, {})[name] = LogSchema(schema, read_place(place, 0))
        newest = newest_schemas(self._store, ranges, log_of, by_id, before)
        read_ = (schema for one in self._done.values() for schema in one.schemas)
        schemas = {schema.id: schema for schema in (*read_, *ordered_schemas(by_id, ranges, newest))}
        selection = TableSelection(tuple(ranges), manifests, frozenset(manifests), tuple(schemas.values()), newest)
        return self._snapshot_plan(selection)

    def _snapshot_plan(self, selection: TableSelection) -> SnapshotPlan:
        scanned = {table for known in self._plan.fingerprints.values() for table in known}
        left_out = dict(self._left_out)
        others = set(self._plan.others)
        for table in {schema.table for schema in selection.schemas if schema.columns} - scanned - others:
            if self._plan.asked:
                others.add(table)
            else:
                left_out.setdefault(table, "the server did not list it when its tables were read")
        for table in sorted(scanned - left_out.keys()):
            if (why := key_problem(selection.schemas, table)) is not None:
                left_out[table] = why
        names = tuple(sorted(scanned - left_out.keys()))
        return SnapshotPlan(selection, names, left_out, tuple(sorted(others)))

    def _check_shards(self, manifests: Mapping[str, Manifest]) -> None:
        """Leave out tables if the archive may lack changes of their rows since they were read."""
        for one in self._plan.ranges:
            done = self._done.get(one.number)
            if done is None or one.table in self._left_out:
                continue
            for shard in done.shards:
                manifest = manifests.get(shard)
                if manifest is None:
                    why = f"nothing is archived of its shard {shard}, which the log did not have until now"
                    self._leave_out(one.table, f"{why}: let something be written to it")
                elif manifest.begin.order > done.first and not manifest.whole:
                    why = f"the archive of its shard {shard} begins at {manifest.begin.order}"
                    self._leave_out(one.table, f"{why}, and its rows were read as of {done.first}")

    def _fold(self, plan: SnapshotPlan) -> HeldRows:
        import pyspark.sql.functions as f

        done = [self._done[one.number] for one in self._plan.ranges if one.number in self._done]
        rows = baseline_rows(self._spark, self._folder.storage, offsets(done))
        changes = read(self._spark, self._store, plan.selection.shards)
        if any(entry.key_changes and entry.partial for one in plan.selection.shards for entry in one.files):
            changes = without_moves(changes)
        source = attach(rows.unionByName(changes), plan.selection.schemas)
        return write_updates(self._spark, self._folder, source.where(f.col("table").isin(*plan.names)), plan)

    def _lacking(self, rows: HeldRows) -> list[KeyRange]:
        """The keys of rows that lack values, without rows that lack them because of their size.

        Empty if there are more than :data:`_MOST_KEYS`.
        """
        if not any(one.lack for one in rows.tables.values()):
            return []
        every = read_updates(self._spark, self._folder.storage, rows.files)
        found = unknown_keys(every).limit(_MOST_KEYS + 1).collect()
        if len(found) > _MOST_KEYS:
            return []
        by_table: dict[tuple[str, str], list[bytes]] = {}
        for row in found:
            by_table.setdefault((self._archive.log_of(row.shard), row.table), []).append(bytes(row.key))
        return [
            KeyRange(0, self._plan.round, log, table, keys=tuple(keys[at : at + _KEYS_PER_RANGE]), rows=_KEYS_PER_RANGE)
            for (log, table), keys in sorted(by_table.items())
            for at in range(0, len(keys), _KEYS_PER_RANGE)
        ]


def _has(one: ShardFiles, op: Op) -> bool:
    return any(entry.ops.get(op.value) for entry in one.files)
