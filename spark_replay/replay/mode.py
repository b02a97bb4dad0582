"""Chooses the mode of a shard's replay: every change, or the last change of each key. Pure.

The last change of each key pushes less when keys repeat, and computes more. Both modes lead to the same state if every
change is of one row and contains its result, and if no filter depends on the changes themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spark_replay.archive.manifest import FileEntry
from spark_replay.frames import ShardFiles
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.keyed import parts
from spark_replay.replay.latest import FOLDABLE
from wormhole.filters.filter import Filter
from wormhole.filters.tree import Changed, Field, Leaf, Moved, OpIn, leaves
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Schema

__all__ = ["BREAK_EVEN", "Choice", "Mode", "Wanted", "break_even", "choose", "obstacle", "unfit"]

Mode = Literal["log", "latest"]
Wanted = Literal["log", "latest", "auto"]

BREAK_EVEN: Final = 0.7
"""Keys per update below which the last change of each key takes less time, even with a handler that does nothing.

The measurement is in docs/performance.md. A slower handler would permit a higher limit. The paper on Databus found 0.5
(figure 16).
"""

_LARGE_EVEN: Final = 0.5
"""The same limit for a range that needs Spark's shuffle, which takes as long again as reading the range."""
_OF_PARTS: Final = 0.5
"""The factor for both limits if all updates are parts of rows. Combining two parts takes longer than pushing one."""

_FOLDABLE: Final = frozenset(op.value for op in FOLDABLE)


@dataclass(frozen=True, slots=True)
class Choice:
    """The mode of one shard. ``reason``: text for operators. ``by_values``: a filter of the flow tests values
    (:func:`~spark_replay.replay.latest.folded`)."""

    shard: str
    mode: Mode
    reason: str
    by_values: bool = False


def choose(
    wanted: Wanted,
    chosen: Sequence[ShardFiles],
    *,
    filters: Sequence[Filter] = (),
    where: Filter | None = None,
    schemas: Mapping[int, Schema],
    estimates: Mapping[str, Estimate] | None = None,
) -> dict[str, Choice]:
    """The choice for each shard. ``filters``: the application's. ``where``: the filter of this replay alone.
    ``schemas``: the schemas of the rows. ``estimates``: needed for ``auto``.

    Raises :class:`~wormhole.model.errors.ReplayError` if ``latest`` was requested and is not possible for some shards,
    with each of them and the reason.
    """
    if wanted == "log":
        return {one.shard: Choice(one.shard, "log", "every change, as asked for") for one in chosen}
    valued = any(_asks_values(each, schemas) for each in filters)
    against = {one.shard: obstacle(one.files, filters, where, schemas) for one in chosen}
    if wanted == "latest":
        if refused := [f"{shard}: {why}" for shard, why in against.items() if why]:
            raise ReplayError(
                f"the last change of each key cannot stand for all of them: {'; '.join(refused)}",
                hint="take --mode auto, which replays every change where it must, or --mode log",
            )
        return {one.shard: Choice(one.shard, "latest", "the last of each key, as asked for", valued) for one in chosen}
    counted = estimates or {}
    return {one.shard: _auto(one, against[one.shard], counted.get(one.shard), valued) for one in chosen}


def _auto(one: ShardFiles, why: str | None, counted: Estimate | None, valued: bool) -> Choice:
    if why is not None:
        return Choice(one.shard, "log", f"every change: {why}")
    if counted is None:
        raise ValueError(f"auto, and no estimate of {one.shard}")
    share = f"about {counted.keys:,} keys in {counted.updates:,} updates"
    if partial := _share_of_parts(one.files):
        share += f", {partial:.0%} of them parts of rows"
    if counted.distinct >= break_even(one.files):
        return Choice(one.shard, "log", f"every change: {share}, so too few would be left out")
    return Choice(one.shard, "latest", f"the last of each key: {share}", valued)


def break_even(files: Sequence[FileEntry]) -> float:
    """Keys per update below which ``auto`` chooses the last change of each key for these files.

    A range of any size can be folded. Whether this takes less time depends on its size and on its share of parts of
    rows, both from the manifest.
    """
    limit = BREAK_EVEN if parts(files) == 1 else _LARGE_EVEN
    return limit * (1 - (1 - _OF_PARTS) * _share_of_parts(files))


def _share_of_parts(files: Sequence[FileEntry]) -> float:
    return sum(entry.partial for entry in files) / max(1, sum(entry.rows for entry in files))


def obstacle(
    files: Sequence[FileEntry], filters: Sequence[Filter], where: Filter | None, schemas: Mapping[int, Schema]
) -> str | None:
    """The reason why the last change of each key cannot replace all changes in these files; ``None`` if it can.

    Manifests count rows by file, so rows of the first and the last file outside the range are included.
    """
    for entry in files:
        others = [f"{count:,} {op.upper()}" for op, count in sorted(entry.ops.items()) if count and op not in _FOLDABLE]
        if others:
            return f"{entry.name} holds {', '.join(others)}"
        if entry.key_changes:
            return f"{entry.name} holds {entry.key_changes:,} changes of a key"
        if entry.too_large:
            return f"{entry.name} holds {entry.too_large:,} updates that came without their values, being too large"
    if table := _relaid(files, schemas):
        return f"the key of {table} changed its layout"
    for asked in (*filters, *([where] if where is not None else [])):
        if why := _asks_kind(asked):
            return why
    if where is not None and _asks_values(where, schemas):
        return f"--where {where} asks for values, which earlier changes of a key may have had"
    if any(entry.partial for entry in files) and any(_asks_values(each, schemas) for each in filters):
        return "the log holds parts of rows, and the application's filter asks for values"
    return None


def unfit(asked: Filter, schemas: Mapping[int, Schema], *, by_values: bool) -> str | None:
    """The reason why folded rows cannot be used with this filter of the application; ``None`` if they can.

    ``by_values``: whether they were folded for a filter that tests values.
    """
    if why := _asks_kind(asked):
        return why
    if not by_values and _asks_values(asked, schemas):
        return f"the filter {asked} asks for values, and the rows were brought together for one that does not"
    return None


def _asks_kind(asked: Filter) -> str | None:
    if any(isinstance(leaf, OpIn | Moved | Changed) for leaf in leaves(asked.normal)):
        return f"the filter {asked} asks what kind of change it is, and several become one"
    return None


def _relaid(files: Sequence[FileEntry], schemas: Mapping[int, Schema]) -> str | None:
    """A table whose key has two layouts in the range; ``None`` if there is none."""
    keys: dict[str, object] = {}
    for entry in files:
        for name, table in entry.schemas.items():
            key = schemas[int(name, 16)].key
            if keys.setdefault(table, key) != key:
                return table
    return None


def _asks_values(asked: Filter, schemas: Mapping[int, Schema]) -> bool:
    return any(_of_value(leaf, asked, schemas) for leaf in leaves(asked.normal))


def _of_value(leaf: Leaf, asked: Filter, schemas: Mapping[int, Schema]) -> bool:
    subject = getattr(leaf, "subject", None)
    if not isinstance(subject, Field):
        return False
    # If values have a format, a name is one of its fields. Else it may be a column of the key.
    if asked.formats or subject.path:
        return True
    return any(all(column.name != subject.name for column in schema.key) for schema in schemas.values())
