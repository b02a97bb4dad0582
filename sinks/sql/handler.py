"""Writes the updates of shards to the tables of a database, each shard in transactions of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sinks.figures import Figures
from sinks.sql.changes import Moved, Room, steps
from sinks.sql.database import GENERATION, Database
from sinks.sql.failures import RowRefused, database_error
from sinks.sql.mirrored import Mirrored, Place
from sinks.sql.owners import Owner, claimed, is_claimed
from sinks.sql.schema import Options, TableName, TargetTable, plan, wanted
from sinks.sql.settings import SqlSettings, target_name
from sinks.sql.unverified import Unverified, create
from subscriber_sdk import Datamarker, Key, KeyRange, NoticeKind, ScanEnd, SchemaChange, ShardNotice, Update, Value
from subscriber_sdk.transactional import TransactionalHandler
from subscriber_sdk.transactional.store import finish
from wormhole.model.errors import TargetRefused, TargetUnavailable, WormholeError
from wormhole.model.schema import Schema

__all__ = ["MirrorHandler"]

_log = logging.getLogger("sinks")
_OWN_TABLES: Final = frozenset({"wormhole_marker", "wormhole_sink", "wormhole_unverified"})


@dataclass(frozen=True, slots=True)
class _Definition:
    """A definition that has to be made before the next row of a target: the table, and the owner's entry. ``rows``: the
    entry that marks the source's rows as unverified. ``stale``: whether these rows lack values, even if the target has
    the table.
    """

    target: TargetTable
    owner: Owner
    rows: Unverified
    stale: bool


@dataclass(slots=True)
class _Shard:
    """The state of one shard. ``tables``: the tables of this epoch, by the source's name; ``None``: there is no such
    target. ``moved``: the moved keys of the open transaction, by the source's name; all use the memory of ``room``.
    ``defined``: the definition that the next rollback makes; ``failed``: a target whose last definition failed, and the
    error. ``generation``: the generation of the last backfill.
    """

    log: str = ""
    owner: str = ""
    tables: dict[str, Mirrored | None] = field(default_factory=dict)
    moved: dict[str, Moved] = field(default_factory=dict)
    room: Room = field(default_factory=Room)
    defined: _Definition | None = None
    failed: tuple[TableName, WormholeError] | None = None
    generation: int = 0

    def forget_moved(self) -> None:
        """Forget the moved keys, because the open transaction is delivered again."""
        self.moved, self.room = {}, Room()


class MirrorHandler(TransactionalHandler[Any]):
    """Writes the rows of updates to their target tables.

    DDL for a target does not run in the shard's transaction: on another connection it would wait for the transaction's
    locks, and in MySQL it would commit the transaction. So :meth:`on_schema` fails and the transaction is rolled back.
    Then the DDL runs on a connection of its own, and the next delivery finds the new definition.
    """

    state_only = True

    def __init__(self, database: Database, settings: SqlSettings) -> None:
        self._database = database
        self._settings = settings
        self._shards: dict[str, _Shard] = {}
        self._losses: set[tuple[TableName, str]] = set()
        self._unverified: set[tuple[str, str]] = set()
        self.figures = Figures(unverified=self._unverified)

    def on_shard_notice(self, notice: ShardNotice) -> None:
        """Begin an epoch, in which targets are compared with their sources again."""
        if notice.kind is NoticeKind.ASSIGNED:
            shard = self._shards.setdefault(notice.shard, _Shard())
            shard.log, shard.owner = notice.log, f"{notice.application}/{notice.dataset}"
            shard.generation = notice.generation
            shard.tables.clear()
            self._unverified.difference_update([one for one in self._unverified if one[0] == notice.shard])
            shard.forget_moved()

    def on_schema(self, change: SchemaChange, connection: Any) -> None:
        """Compare the target with the schema of the following rows."""
        shard, dialect = self._shards[change.shard], self._database.dialect
        name = target_name(self._settings, shard.log, change.table)
        if name.table.lower() in _OWN_TABLES:
            raise TargetRefused(f"{name} is a table of the sink's own", hint="give it another target (`table`)")
        with self._translated(str(name)):
            options = Options(self._settings.soft_delete, self._settings.merge)
            target = wanted(change.new, name, dialect, options)
            found = self._database.table(connection, name)
            planned = plan(target, found, dialect)
            owner = self._owner(shard, name, change.table)
            owned = is_claimed(self._database, connection, owner)
            rows = Unverified(name, shard.owner, change.table)
            # A column that was dropped kept its values.
            stale = change.old is not None and bool(change.added)
            stale = stale and not rows.is_noted(self._database, connection, change.shard, shard.generation)
            unverified = rows.is_noted(self._database, connection, change.shard)
        if planned.refused:
            raise TargetRefused(
                f"{name} cannot hold {change.table}: {planned.refused}", hint="; ".join(planned.helping)
            )
        if planned.statements or not owned or stale:
            failed = shard.failed[1] if shard.failed and shard.failed[0] == name else None
            shard.failed = None
            if isinstance(failed, TargetRefused):
                raise failed
            shard.defined = _Definition(target, owner, rows, stale)
            raise TargetUnavailable(f"{name} is defined for {change.table} first" + (f": {failed}" if failed else ""))
        assert found is not None
        if unverified:
            self._unverified.add((change.shard, change.table))
        for loss in planned.losses:
            if (name, loss) not in self._losses:
                self._losses.add((name, loss))
                _log.warning("%s: %s", name, loss)
        self._set(shard, change.shard, change.table, found, change.new)

    def on_updates(self, batch: Sequence[Update], connection: Any) -> None:
        """Write a batch."""
        shard = self._shards[batch[0].shard]
        with self.figures.waiting():
            try:
                for table, updates in _by_table(batch).items():
                    self._apply(shard, table, updates, connection)
            except RowRefused:
                self.figures.refused += len(batch) == 1
                raise
        for moved in shard.moved.values():
            moved.begin(batch[-1])
        shard.moved = {table: moved for table, moved in shard.moved.items() if not moved.knows_nothing}
        self.figures.wrote(len(batch), sum(update.size for update in batch))

    def _apply(self, shard: _Shard, table: str, updates: list[Update], connection: Any) -> None:
        first, absent = updates[0], 0
        mirrored = self._of(shard, first.shard, table, connection, first.schema)
        moved = shard.moved.setdefault(table, Moved(shard.room))
        with self._translated(table):
            for step in steps(self._checked(updates), moved):
                if mirrored is not None:
                    absent += mirrored.apply(connection, step, first.generation)
            if moved.lost and mirrored is not None:
                self._note_lost(shard, first, connection)
        moved.lost = False
        if absent:
            text = "%s lacks the rows of %d updates that have some columns only. Next: `wormholectl verify --repair`"
            _log.warning(text, table, absent)

    def _note_lost(self, shard: _Shard, update: Update, connection: Any) -> None:
        """Mark the table as unverified in this shard, when the transaction commits."""
        name = target_name(self._settings, shard.log, update.table)
        rows = Unverified(name, shard.owner, update.table)
        if not rows.is_noted(self._database, connection, update.shard, update.generation):
            rows.note_in(self._database, connection, update.shard, update.generation)
            what = "may lack rows, because a transaction changed the keys of more rows than the sink can keep apart"
            self._warn_unverified(shard, name, what)
        self._unverified.add((update.shard, update.table))

    def on_datamarker(self, marker: Datamarker, connection: Any) -> None:
        """Wait until all rows of the transaction are written."""
        with self._translated(f"shard {marker.shard}"):
            self._database.settle(connection)

    def on_range(self, keys: KeyRange, connection: Any) -> None:
        """Remove rows with single keys, which no longer exist. :meth:`on_scan_end` removes the rows of ranges."""
        gone = list(keys.keys - keys.except_keys)
        shard = self._shards[keys.shard]
        mirrored = self._of(shard, keys.shard, keys.table, connection)
        if gone and mirrored is not None:
            with self._translated(keys.table):
                mirrored.remove_single(connection, gone, keys.generation)

    def on_scan_end(self, end: ScanEnd, connection: Any) -> None:
        """Remove the shard's rows that were not delivered in this generation."""
        shard = self._shards[end.shard]
        mirrored = self._of(shard, end.shard, end.table, connection)
        if mirrored is not None:
            with self._translated(end.table):
                mirrored.remove_older(connection, list(end.except_keys), end.generation)
                rows = Unverified(target_name(self._settings, shard.log, end.table), shard.owner, end.table)
                rows.scanned(self._database, connection, end.shard, end.generation)
                if not rows.is_noted(self._database, connection, end.shard):
                    self._unverified.discard((end.shard, end.table))

    def on_verify(
        self, table: str, shard: str, keys: Sequence[Key], connection: Any
    ) -> Mapping[Key, Mapping[str, Value]]:
        """The rows with these keys."""
        flow = self._shards[shard]
        mirrored = self._of(flow, shard, table, connection)
        with self._translated(table):
            return {} if mirrored is None else mirrored.rows(connection, keys)

    def on_verify_keys(self, table: str, shard: str, connection: Any) -> Iterator[Key]:
        """Every key of the shard's rows."""
        flow = self._shards[shard]
        mirrored = self._of(flow, shard, table, connection)
        with self._translated(table):
            if mirrored is not None:
                yield from mirrored.keys(connection)

    def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """Define a target, if :meth:`on_schema` caused the rollback."""
        shard = self._shards.get(to.shard)
        if shard is not None:
            shard.forget_moved()
        if shard is None or shard.defined is None:
            return
        defined, shard.defined = shard.defined, None
        try:
            with self._translated(str(defined.target.name)):
                self._define(shard, defined)
        except WormholeError as error:
            # Raised at the next delivery: an exception of this callback would count as an attempt.
            _log.warning("%s could not be defined: %s", defined.target.name, error)
            shard.failed = defined.target.name, error

    def _define(self, shard: _Shard, defined: _Definition) -> None:
        database = self._database
        session = finish(database.store.connect())
        try:
            finish(session.begin())
            for statement in (*database.lock_bounds, database.sink_table, create(database.dialect)):
                database.run(session.connection, statement)
            was_filled = claimed(database, session.connection, defined.owner)
            # Another shard may have done the same since.
            found = database.table(session.connection, defined.target.name)
            planned = plan(defined.target, found, database.dialect)
            for statement in planned.statements:
                _log.info("%s", statement)
                self._run_definition(session.connection, statement)
            # In place of the target, an operator made a table that lacks the column.
            dropped = was_filled and (found is None or found.column(GENERATION) is None)
            if stale := dropped or planned.stale or defined.stale:
                defined.rows.note(database, session.connection, shard.generation)
            finish(session.commit())
        finally:
            finish(session.close())
        if stale:
            what = (
                "was dropped in the target, and is made without its rows"
                if dropped
                else "may lack values of what changed"
            )
            self._warn_unverified(shard, defined.target.name, what)

    def _warn_unverified(self, shard: _Shard, name: TableName, what: str) -> None:
        application = shard.owner.partition("/")[0]
        text = "%s %s: it is unverified until a backfill ends. Next: `wormholectl backfill start %s`"
        _log.warning(text, name, what, application)

    def _run_definition(self, connection: Any, statement: str) -> None:
        """Raises :class:`~wormhole.model.errors.TargetRefused` for a statement that the database cannot carry out."""
        try:
            self._database.run(connection, statement.replace("%", "%%"))
        except Exception as error:
            found = database_error(error, "the target")
            if not isinstance(found, RowRefused):
                raise
            raise TargetRefused(
                f"the database refuses to define a target: {found.message.rpartition(': ')[2]}",
                hint=f"change the table by hand to what `{statement}` would make, or name another (`table`)",
            ) from None

    def _of(
        self, shard: _Shard, name: str, table: str, connection: Any, schema: Schema | None = None
    ) -> Mirrored | None:
        """The table, even if no update of this epoch has its schema yet; ``None`` if the table has no target."""
        if table not in shard.tables:
            target = target_name(self._settings, shard.log, table)
            with self._translated(str(target)):
                found = self._database.table(connection, target)
                if found is None or not is_claimed(self._database, connection, self._owner(shard, target, table)):
                    shard.tables[table] = None
                else:
                    self._set(shard, name, table, found, schema if schema is not None and schema.key else None)
        return shard.tables[table]

    def _set(self, shard: _Shard, name: str, table: str, found: Any, schema: Schema | None) -> None:
        place = Place(shard.log, name, table)
        merge, soft = self._settings.merge, self._settings.soft_delete
        shard.tables[table] = Mirrored(self._database, found, place, schema, merge, soft=soft)

    def _owner(self, shard: _Shard, target: TableName, table: str) -> Owner:
        source = f"{shard.log} {table}" if self._settings.merge == "no" else f"merge = {self._settings.merge}"
        return Owner(target, shard.owner, source)

    def _checked(self, updates: list[Update]) -> list[Update]:
        largest = self._database.largest
        if largest is not None:
            for update in updates:
                if update.size > largest:
                    raise RowRefused.of(update, f"its {update.size} bytes are too many for max_allowed_packet")
        return updates

    @contextmanager
    def _translated(self, table: str) -> Iterator[None]:
        """Turn errors of the driver into errors of the port, which contain no values of rows."""
        try:
            yield
        except WormholeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a driver raises
            raise database_error(error, table) from None


def _by_table(batch: Sequence[Update]) -> dict[str, list[Update]]:
    found: dict[str, list[Update]] = {}
    for update in batch:
        found.setdefault(update.table, []).append(update)
    return found
