"""Selects the input of a snapshot or a history: shards with their ranges, tables and schemas.

The selection reads manifests and footers only, without Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from spark_replay.archive.manifest import Manifest, marker_to_text
from spark_replay.archive.ranges import Asked, files_between, range_of
from spark_replay.archive.reader import markers_of
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.tables.newest import Newest, newest_schemas
from wormhole.formats import FormatSpec
from wormhole.model.errors import UsageError
from wormhole.model.schema import Schema
from wormhole.model.values import Op

__all__ = [
    "EARLIEST",
    "ENDING",
    "LATEST",
    "TableOptions",
    "TableSelection",
    "key_problem",
    "ordered_schemas",
    "select",
    "select_tables",
    "shard_range",
]

EARLIEST: Final = Asked("earliest", earliest=True)
LATEST: Final = Asked()
ENDING: Final = (Op.TRUNCATE.value, Op.DELETE_RANGE.value)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How one table is read: ``types`` of columns, ``fields`` of values; see :func:`spark_replay.tables.rows.rows`."""

    types: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    value_format: FormatSpec | None = None


@dataclass(frozen=True, slots=True)
class TableSelection:
    """``shards``: the range to read of each shard, with both datamarkers. ``manifests``: the manifests that were used.
    ``whole``: shards that are read from their first change on. ``schemas``: all schemas; the newest of each table are
    last. ``newest``: the newest schemas, by table and log.
    """

    shards: tuple[ShardFiles, ...]
    manifests: Mapping[str, Manifest]
    whole: frozenset[str]
    schemas: tuple[Schema, ...]
    newest: Newest

    @property
    def needs_inspection(self) -> bool:
        """Whether the files have a change that ends many rows at once, or changes a key."""
        files = [entry for one in self.shards for entry in one.files]
        return any(entry.key_changes or any(entry.ops.get(op) for op in ENDING) for entry in files)

    def shards_to_json(self) -> dict[str, dict[str, Any]]:
        """The shards as in the JSON file beside the tables."""
        return {
            one.shard: {
                "from": str(one.begin.order),
                "place": str(one.until.order),
                "marker": marker_to_text(one.until),
                "whole": one.shard in self.whole,
            }
            for one in self.shards
            if one.begin is not None and one.until is not None
        }


def select(
    store: ArchiveStore, shards: Collection[str] = (), start: Asked = EARLIEST, stop: Asked = LATEST
) -> TableSelection:
    """Select the archive's updates between ``start`` and ``stop``. ``shards``: the shards to read; empty: all.

    Raises :class:`~wormhole.model.errors.UsageError` and :class:`~wormhole.model.errors.ReplayError` for shards and
    ranges that the archive does not hold, and :class:`~wormhole.model.errors.ArchiveError`.
    """
    known = store.shards()
    if strangers := sorted(set(shards) - set(known)):
        raise UsageError(
            f"the archive of {store.dataset} has no shard {', '.join(strangers)}",
            hint=f"its shards are {', '.join(known) or 'none yet: is the archiver running?'}",
        )
    manifests = {shard: manifest for shard in shards or known if (manifest := store.read(shard)) is not None}
    if not manifests:
        raise UsageError(f"the archive of {store.dataset} holds nothing yet", hint="see `wormholectl archive show`")
    ranges = tuple(shard_range(store, manifest, start, stop) for manifest in manifests.values())
    whole = frozenset(
        one.shard
        for one in ranges
        if manifests[one.shard].whole and one.begin is not None and one.begin.order == manifests[one.shard].begin.order
    )
    by_id = schemas_of(store, ranges)
    log_of = {shard: manifest.log for shard, manifest in manifests.items()}
    newest = newest_schemas(store, ranges, log_of, by_id)
    return TableSelection(ranges, manifests, whole, ordered_schemas(by_id, ranges, newest), newest)


def shard_range(store: ArchiveStore, manifest: Manifest, start: Asked, stop: Asked) -> ShardFiles:
    """The range of one shard between ``start`` and ``stop``. Raises as :func:`select`."""
    # The range is that of a replay of a flow that has received the log up to the archive's beginning or
    # end.
    stored = manifest.begin if start.earliest else manifest.end
    range_ = range_of(manifest, stored, start, stop, partial(markers_of, store, manifest.shard))
    files = files_between(manifest, range_.begin, range_.until)
    return ShardFiles(manifest.shard, files, range_.begin, range_.until)


def ordered_schemas(by_id: Mapping[int, Schema], ranges: Sequence[ShardFiles], newest: Newest) -> tuple[Schema, ...]:
    """The schemas of the files in the order in which they occur last, and after them the ``newest`` ones."""
    seen: dict[int, Schema] = {}

    def meet(schema: Schema) -> None:
        seen.pop(schema.id, None)
        seen[schema.id] = schema

    for one in ranges:
        for entry in one.files:
            for id_ in sorted(int(text, 16) for text in entry.schemas):
                meet(by_id[id_])
    for logs in newest.values():
        for log in sorted(logs):
            meet(logs[log].schema)
    return tuple(seen.values())


def key_problem(schemas: Sequence[Schema], table: str) -> str | None:
    """The reason why the table's rows cannot be identified in all of its history; ``None`` if they can."""
    # The schema of a barrier has no columns, and does not show the key.
    keys = {schema.key for schema in schemas if schema.table == table and schema.columns}
    if not all(keys):
        return "it has no primary key: two equal rows cannot be distinguished"
    if len(keys) > 1:
        versions = "; ".join(sorted(", ".join(f"{one.name} {one.type}" for one in key) for key in keys))
        return f"its primary key changed ({versions}): the log does not show which row became which"
    return None


def select_tables(schemas: Sequence[Schema], wanted: Collection[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The tables to write, and the tables that are left out, with the reason.

    ``wanted``: the tables to write; empty: all tables that can be written. Raises
    :class:`~wormhole.model.errors.UsageError` for one of ``wanted`` that does not exist or cannot be written.
    """
    known = sorted({schema.table for schema in schemas if schema.columns})
    if strangers := sorted(set(wanted) - set(known)):
        raise UsageError(
            f"the archive has no rows of {', '.join(strangers)}", hint=f"its tables are {', '.join(known) or 'none'}"
        )
    problems = {table: why for table in wanted or known if (why := key_problem(schemas, table)) is not None}
    if wanted and problems:
        table, why = next(iter(problems.items()))
        raise UsageError(f"{table}: {why}", hint="spark_replay.rows gives its changes as they came")
    return tuple(table for table in sorted(wanted or known) if table not in problems), problems
