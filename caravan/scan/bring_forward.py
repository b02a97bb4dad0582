"""Updates the rows of a chunk to the place where the chunk enters the log.

A chunk shows its table as of some moment, at or after a known place. Every change in the log between this place and the
place of the entry is applied to the rows here, whether the chunk shows the change already or not: the last image of a
row is the valid one. Changes of equal keys are in one shard, in order, so each shard is handled by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from caravan.backfill.changes import is_whole, key_of, update_in
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.v1 import update_pb2

__all__ = ["BroughtForward"]

_INSERTS: Final = frozenset((update_pb2.INSERT, update_pb2.UPSERT))
_MOST_KEY_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Shard:
    """``rows``: the rows to send, by key. ``others``: keys that were touched and are not in ``rows``, each with whether
    its row has to be read again.
    """

    rows: dict[bytes, bytes] = field(default_factory=dict)
    others: dict[bytes, bool] = field(default_factory=dict)

    def drop(self, key: bytes) -> None:
        """Record that there is no row of that key any more."""
        self.rows.pop(key, None)
        self.others.pop(key, None)

    def leave_out(self, key: bytes, *, again: bool) -> None:
        """Record that the row of that key exists and is not sent."""
        self.rows.pop(key, None)
        self.others[key] = again or self.others.get(key, False)


class BroughtForward:
    """The rows of one chunk while changes are applied to them. Used by one thread at a time.

    ``spoiled``: why changes cannot be applied, so that the chunk has to be read again. ``changes``: number of
    applied changes.
    """

    def __init__(self, table: str, schema: Schema, rows: Iterable[tuple[str, bytes, bytes]]) -> None:
        """``rows``: shard, key and update of each."""
        self.spoiled = ""
        self.changes = 0
        self._table = table
        self._schema = schema
        self._shards: dict[str, _Shard] = {}
        self._key_bytes = 0
        known: dict[str, dict[bytes, bytes]] = {}
        for shard, key, row in rows:
            found = known.get(shard)
            if found is None:
                found = known[shard] = self._of(shard).rows
            found[key] = row

    def apply(self, shard: str, run: Run) -> None:
        """Apply the next changes of that shard in log order."""
        ours = {number for number, schema in enumerate(run.schemas) if schema.table == self._table}
        index = run.schema_index
        rows = self._of(shard)
        for ordinal, (begin, end) in enumerate(pairwise((0, *run.ends))):
            number = index[ordinal if len(index) > 1 else 0] if index else 0
            if number in ours and not self.spoiled:
                self.changes += 1
                self._apply(rows, run.schemas[number], update_in(run.blob, begin, end))

    def rows(self) -> Mapping[str, Collection[bytes]]:
        """The updates to send, by shard."""
        return {shard: found.rows.values() for shard, found in self._shards.items() if found.rows}

    def left_out(self) -> tuple[bytes, ...]:
        """Keys whose rows exist, or may exist, and are not sent."""
        return tuple(key for found in self._shards.values() for key in found.others)

    def again(self) -> tuple[bytes, ...]:
        """The left out keys that have to be read again."""
        return tuple(key for found in self._shards.values() for key, again in found.others.items() if again)

    def shards(self) -> dict[bytes, str]:
        """The shard of each key that is left out."""
        return {key: shard for shard, found in self._shards.items() for key in found.others}

    # -- one change

    def _of(self, shard: str) -> _Shard:
        return self._shards.setdefault(shard, _Shard())

    def _apply(self, shard: _Shard, schema: Schema, change: update_pb2.Update) -> None:
        op = change.op
        if op == update_pb2.TRUNCATE:
            # The log does not show which rows remain: those of one partition may be gone, and others not.
            self.spoiled = "rows of the table were removed while it was read, and the log does not say which"
            return
        if schema != self._schema:
            self.spoiled = "the columns of the table changed while its rows were read"
            return
        if op == update_pb2.DELETE_RANGE:
            self._delete_range(shard, change)
            return
        key = key_of(change.key)
        self._key_bytes += len(key)
        if self._key_bytes > _MOST_KEY_BYTES:
            self.spoiled = "too many rows changed while they were read"
        elif op == update_pb2.DELETE:
            shard.drop(key)
        elif op == update_pb2.MERGE:
            shard.leave_out(key, again=True)
        elif op in _INSERTS or op == update_pb2.UPDATE:
            self._put(shard, key, change)
        else:
            self.spoiled = f"a change of the table has an operation that is not known here: {op}"

    def _put(self, shard: _Shard, key: bytes, change: update_pb2.Update) -> None:
        whole = is_whole(change, self._schema)
        if change.old_key:
            shard.drop(key_of(change.old_key))
        former = shard.rows.get(key)
        if former is None:
            # The row is in another range, or was made after the chunk was read. The log then has all of it, unless it
            # is an insert without all its values. If a key moved, the application has the old row only if the old key's
            # range was sent already.
            stayed = change.op == update_pb2.UPDATE and not change.old_key
            shard.leave_out(key, again=not whole and not stayed)
            return
        row = change if whole else self._overlaid(former, change)
        if row is None:
            shard.leave_out(key, again=True)
            return
        shard.rows[key] = update_pb2.Update(op=update_pb2.READ, key=change.key, after=row.after).SerializeToString()

    def _overlaid(self, former: bytes, change: update_pb2.Update) -> update_pb2.Update | None:
        """The row after an update of some columns; ``None``: it is not known."""
        row = update_pb2.Update.FromString(former)
        width = len(self._schema.columns)
        if change.too_large or change.op in _INSERTS or len(change.after) != width or len(row.after) != width:
            return None
        for value, new in zip(row.after, change.after, strict=True):
            kind = new.WhichOneof("kind")
            if kind is None:
                return None  # it changed, and the log does not have the new value
            if kind != "unavailable":
                value.CopyFrom(new)
        return row

    def _delete_range(self, shard: _Shard, change: update_pb2.Update) -> None:
        bounds = [*change.key, *change.key_end]
        if len(bounds) != 2 or any(bound.WhichOneof("kind") != "bytes" for bound in bounds):
            self.spoiled = "a range of rows was deleted, and only the datastore knows their order"
            return
        low, high = (bound.bytes for bound in bounds)
        for key in (*shard.rows, *shard.others):
            values = update_pb2.RowKey.FromString(key).values
            if len(values) == 1 and values[0].WhichOneof("kind") == "bytes" and low <= values[0].bytes < high:
                shard.drop(key)
