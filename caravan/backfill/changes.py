"""Finds the rows that were sent already and that a run of updates invalidates."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.v1 import update_pb2

__all__ = ["emptied", "is_whole", "key_of", "moved_in_part", "update_in"]


def emptied(run: Run) -> list[str]:
    """Tables that lost rows in ``run`` by a statement, possibly in one partition only.

    Such a TRUNCATE has no columns. A TRUNCATE with columns empties the whole table.
    """
    found = []
    for number, schema in enumerate(run.schemas):
        if schema.columns or schema.key:
            continue
        index = run.schema_index
        for ordinal, (begin, end) in enumerate(pairwise((0, *run.ends))):
            same = (index[ordinal if len(index) > 1 else 0] if index else 0) == number
            if same and update_in(run.blob, begin, end).op == update_pb2.TRUNCATE:
                found.append(schema.table)
                break
    return found


def moved_in_part(run: Run, moved: Iterable[int]) -> list[tuple[str, bytes]]:
    """Table and new key of each update that changed its key and lacks some values. ``moved``: ordinals of the updates
    that changed their key.
    """
    found = []
    for ordinal in moved:
        schema = run.schemas[run.schema_index[ordinal if len(run.schema_index) > 1 else 0] if run.schema_index else 0]
        change = update_in(run.blob, run.ends[ordinal - 1] if ordinal else 0, run.ends[ordinal])
        if not is_whole(change, schema):
            found.append((schema.table, key_of(change.key)))
    return found


def is_whole(change: update_pb2.Update, schema: Schema) -> bool:
    """Whether the update holds every value of its row."""
    kinds = [value.WhichOneof("kind") for value in change.after]
    complete = len(kinds) == len(schema.columns) and not any(kind in (None, "unavailable") for kind in kinds)
    return complete and not change.too_large


def key_of(values: Iterable[update_pb2.Value]) -> bytes:
    """The key as bytes, equal for equal keys."""
    return update_pb2.RowKey(values=values).SerializeToString()


def update_in(blob: bytes, begin: int, end: int) -> update_pb2.Update:
    """The update at ``blob[begin:end]`` of a run."""
    at = begin + 1  # after the tag, and then the length of the entry
    while blob[at] > 0x7F:
        at += 1
    return update_pb2.Update.FromString(blob[at + 1 : end])
