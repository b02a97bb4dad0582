"""Plans a run for one table: the part of the archive after the table's places, and the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_replay.archive.manifest import Manifest
from spark_replay.archive.ranges import Asked
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from spark_replay.export.columns import evolved
from spark_replay.export.port import SeenTable
from spark_replay.export.state import ANEW, Exported, ExportedShard
from spark_replay.frames import ShardFiles
from spark_replay.tables.about import SnapshotAbout
from spark_replay.tables.columns import TableColumn, unite
from spark_replay.tables.rolling import lost_after, select_since
from spark_replay.tables.selection import TableSelection, key_problem, select
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Column, Schema

__all__ = ["ExportPlan", "KeylessError", "continued", "first", "planned"]

BASELINE = (
    "make a snapshot that has them (`wormholectl snapshot --baseline`), and name its folder with --from for the first "
    "export"
)

REKEYED = (
    "make a snapshot of its rows as they are now (`wormholectl snapshot --baseline`), drop this table, and export it "
    "anew with --from the snapshot's folder"
)


class KeylessError(UsageError):
    """A table whose rows cannot be identified. It is left out, unless it was requested by name."""

    def __init__(self, table: str, problem: str) -> None:
        super().__init__(f"{table} cannot be exported: {problem}", hint="leave it out: -t names the tables to export")


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """``schemas``: the schemas of the rows, oldest first. ``key``, ``columns``: the table's after the run.
    ``changes``: about how many of its changes the ranges have. ``before``: the shards in the table before the run.
    """

    selection: TableSelection
    schemas: tuple[Schema, ...]
    key: tuple[Column, ...]
    columns: tuple[TableColumn, ...]
    changes: int
    before: Mapping[str, ExportedShard] = field(default_factory=dict)

    @property
    def ranges(self) -> tuple[ShardFiles, ...]:
        """The ranges of the archive to read."""
        return self.selection.shards

    @property
    def moved(self) -> bool:
        """Whether the archive continues after the table's places."""
        marks = {shard: one.marker.order for shard, one in self.before.items()}
        return marks != {one.shard: one.until.order for one in self.ranges if one.until is not None}

    def state(self, store: ArchiveStore, table: str, run: str, at_us: int) -> Exported:
        """The state for the commit at ``at_us``."""
        shards = {}
        for one in self.ranges:
            assert one.until is not None
            before = self.before.get(one.shard)
            file = one.files[-1].name if one.files else before.file if before is not None else ""
            shards[one.shard] = ExportedShard(one.until, self.selection.manifests[one.shard].log, file)
        return Exported(store.dataset, store.copy, table, shards, self.key, self.columns, run, at_us)


def first(store: ArchiveStore, start: SnapshotAbout | None, folder: str, until: Asked) -> TableSelection:
    """The selection for the first export of a table: everything, or the updates after the snapshot ``start``.

    ``folder``: the folder of the snapshot. Raises :class:`~wormhole.model.errors.ReplayError` if rows would be missing.
    """
    if start is not None:
        return select_since(store, start, f"the snapshot in {folder}", until)
    selection = select(store, stop=until)
    lacking = [
        one
        for one in selection.shards
        if one.shard not in selection.whole or lost_after(selection.manifests[one.shard], one)
    ]
    if lacking:
        names = ", ".join(one.shard for one in lacking)
        raise ReplayError(
            f"the archive of {names} does not hold every row: it begins later than the shard, or lost a part",
            hint=BASELINE,
        )
    return selection


def continued(store: ArchiveStore, state: Exported, name: str, until: Asked) -> TableSelection:
    """The selection of the updates after the places of a table.

    Raises :class:`~wormhole.model.errors.ReplayError` if the archive does not continue from them.
    """
    selection = select_since(store, state.about(), name, until, ANEW)
    for shard, one in state.shards.items():
        _check_history(store, selection.manifests[shard], one.marker, name)
    if lost := sorted({one.shard for one in selection.shards} - selection.whole):
        raise ReplayError(
            f"the archive of {', '.join(lost)} lost a part of what comes after {name}", hint=f"{BASELINE}; {ANEW}"
        )
    return selection


def _check_history(store: ArchiveStore, manifest: Manifest, marker: Datamarker, name: str) -> None:
    """Refuse an archive that replaced the exported one: the marker's place may have another meaning in it."""
    known = [manifest.begin, manifest.end]
    for entry in manifest.files:
        if entry.begin.order <= marker.order <= entry.end.order:
            known += [entry.begin, entry.end]
            if entry.begin.order < marker.order < entry.end.order:
                with open_file(store, manifest.shard, entry) as file:
                    known += file.footer.markers
    there = {one.anchor.id for one in known if one.order == marker.order and one.anchor is not None}
    if marker.anchor is not None and there and marker.anchor.id not in there:
        raise ReplayError(
            f"{name} holds {manifest.shard} up to {marker.order} of another history: in this archive that place is of "
            "another transaction",
            hint=f"name the archive that it was exported from; or {ANEW}",
        )


def planned(
    table: str, seen: SeenTable, selection: TableSelection, before: Sequence[Schema], types: Mapping[str, str]
) -> ExportPlan:
    """The plan for ``table``. ``before``: the schemas of the snapshot that a first export starts from.

    Raises :class:`~wormhole.model.errors.UsageError` for a table whose rows cannot be identified, and for an unknown
    column or type.
    """
    own = tuple(one for one in {one.id: one for one in (*before, *selection.schemas)}.values() if one.table == table)
    state = seen.state
    keyed = own if state is None else (Schema(table, state.key, ()), *own)
    known = tuple(one for one in own if one.columns)
    if (problem := key_problem(_with_columns(keyed), table)) is not None:
        if state is None:
            raise KeylessError(table, problem)
        raise UsageError(f"{table} cannot be carried on: {problem}", hint=REKEYED)
    shards = {} if state is None else state.shards
    news = [one for one in selection.shards if not _is_known(one, shards.get(one.shard))]
    changes = sum(entry.tables.get(table, 0) for one in news for entry in one.files)
    if state is not None:
        return ExportPlan(selection, own, state.key, evolved(state.columns, known, types), changes, shards)
    newest = [one.schema for _, one in sorted(selection.newest.get(table, {}).items())] or known[-1:]
    if not known:
        raise UsageError(f"the archive has no rows of {table}", hint="`wormholectl archive show` lists what it has")
    return ExportPlan(selection, own, known[-1].key, unite(known, types, only=newest), changes)


def _is_known(one: ShardFiles, before: ExportedShard | None) -> bool:
    """Whether the table already has the whole range.

    The range may have files that end at the table's place. They may have new rows of a backfill there."""
    assert one.until is not None
    return (
        before is not None
        and one.until.order == before.marker.order
        and (not one.files or one.files[-1].name == before.file)
    )


def _with_columns(schemas: Sequence[Schema]) -> list[Schema]:
    return [one if one.columns or not one.key else Schema(one.table, one.key, one.key) for one in schemas]
