"""What an application makes of a flow with existing rows: its copy of the tables, as docs/existing-rows.md has it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from caravan.backfill.progress import BackfillRequest, FlowBackfill
from caravan.flow import CaravanFlow, Piece
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.body import parse_body
from wormhole.wire.rows import decode_key
from wormhole.wire.update import Batch, Update

Key = tuple[Value, ...]
Row = dict[str, Any]


class UnknownType:
    """Stands for a value that changed to something that the log does not have."""

    def __init__(self, name: str = "UNKNOWN") -> None:
        self._name = name

    def __deepcopy__(self, memo: object) -> UnknownType:
        return self

    def __repr__(self) -> str:
        return self._name


UNKNOWN = UnknownType()
NEVER_SENT = UnknownType("NEVER_SENT")
"""Stands for a value that did not change, in a row that was not sent yet."""


@dataclass
class Copy:
    """``rows``: by table and key, with the generation that each was received in. ``versions``: the column ``v`` of what
    was received in this epoch, which may not fall. ``owed``: keys whose values are not known though the range that they
    are in was sent since they changed. ``order``: of keys, as the datastore has it.
    """

    order: Callable[[Key], Any]
    generation: int = 0
    rows: dict[tuple[str, Key], tuple[Row, int]] = field(default_factory=dict)
    versions: dict[tuple[str, Key], int] = field(default_factory=dict)
    schemas: dict[int, Schema] = field(default_factory=dict)
    owed: set[tuple[str, Key]] = field(default_factory=set)
    reads: list[tuple[str, Key]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def begin_epoch(self, generation: int) -> None:
        """Redelivered updates may be older than what was received before."""
        self.versions.clear()
        if generation > self.generation:
            self.finished.clear()
            self.generation = generation

    def take(self, piece: Piece, shard: str) -> None:
        """The subscriber gets a piece."""
        received: set[Key] = set()
        if piece.body is not None:
            self.schemas.update({schema.id: schema for schema in piece.body.schemas})
            for update in Batch(parse_body(piece.body.data), shard, 1, False, self.schemas.__getitem__).updates():
                if update.op is Op.READ:
                    received.add(update.key)
                self._apply(update)
        if piece.chunk is not None:
            self._end_range(piece, received)
        for done in piece.finished:
            # Older stamps are of rows that are not there any more.
            self.finished.append(done.table)
            for name, (_, generation) in list(self.rows.items()):
                if name[0] == done.table and generation < self.generation:
                    self._drop(name)

    def _end_range(self, piece: Piece, received: set[Key]) -> None:
        chunk = piece.chunk
        assert chunk is not None
        left_out = set(map(decode_key, chunk.left_out))
        if chunk.alone:
            inside = set(map(decode_key, chunk.alone))
        else:
            low = None if chunk.after is None else self.order(decode_key(chunk.after))
            high = None if chunk.until is None else self.order(decode_key(chunk.until))
            inside = {
                key
                for table, key in self.rows
                if table == chunk.table
                and (low is None or self.order(key) > low)
                and (high is None or self.order(key) <= high)
            }
        for key in inside:
            name = chunk.table, key
            if key not in received and key not in left_out and (chunk.portable or chunk.alone):
                self.rows.pop(name, None)
            self.owed.discard(name)
            if name in self.rows and key not in received and _has_unknown(self.rows[name][0]):
                self.owed.add(name)

    def _apply(self, update: Update) -> None:
        name = update.table, update.key
        if update.op is Op.TRUNCATE:
            for other in [other for other in self.rows if other[0] == update.table]:
                self._drop(other)
            return
        if update.op is Op.DELETE_RANGE:
            assert update.key_end is not None
            low, high = update.key, update.key_end
            for other in [other for other in self.rows if other[0] == update.table and low <= other[1] < high]:
                self._drop(other)
            return
        if update.op is Op.DELETE:
            self._drop(name)
            return
        if update.left:
            for key in (update.key, update.old_key or update.key):
                self._drop((update.table, key))
            return
        base: Row | None = None
        if update.op is Op.UPDATE:
            old = (update.table, update.old_key) if update.old_key is not None else name
            base = self.rows[old][0] if old in self.rows else None
            if old != name:
                self._drop(old)
        self._put(name, update, base)

    def _put(self, name: tuple[str, Key], update: Update, base: Row | None) -> None:
        schema, _ = update.encoded()
        names = [column.name for column in schema.columns]
        row: Row
        if base is not None:
            row = {column: base.get(column) for column in names}  # NULL in a column that was added since
        else:
            row = dict.fromkeys(names, NEVER_SENT if name[0] not in self.finished else UNKNOWN)
        after = update.after or {}
        for column in row:
            value = after.get(column, UNAVAILABLE)
            if value is not UNAVAILABLE:
                row[column] = UNKNOWN if update.op is Op.MERGE else value
            elif update.op is not Op.UPDATE or update.too_large:
                row[column] = UNKNOWN
        version = row.get("v")
        if isinstance(version, int):
            assert version >= self.versions.get(name, 0), f"{name} goes back from {self.versions[name]} to {version}"
            self.versions[name] = version
        self.owed.discard(name)
        if update.old_key is not None and _has_unknown(row) and update.table not in self.finished:
            self.owed.add(name)  # that row was not sent yet: it has to come
        self.rows[name] = row, self.generation
        if update.op is Op.READ:
            self.reads.append(name)

    def _drop(self, name: tuple[str, Key]) -> None:
        self.rows.pop(name, None)
        self.owed.discard(name)


def _has_unknown(row: Row) -> bool:
    return any(isinstance(value, UnknownType) for value in row.values())


class Receiver:
    """One application with one flow over a shard; ``stored`` is what a restart goes on from."""

    def __init__(
        self, shard: str, marker: Datamarker, order: Callable[[Key], Any], wanted: Filter, request: BackfillRequest
    ) -> None:
        self.shard, self.wanted, self.request = shard, wanted, request
        self.copy = Copy(order, request.generation)
        self.stored = marker
        self.kept: Copy | None = None
        self.has_room = True
        self.epoch = 0
        self.flow = self.restart()

    def store(self) -> None:
        """The application acknowledged everything, and stores its copy with the datamarker."""
        self.stored, self.kept = self.flow.marker, deepcopy(self.copy)

    def restart(self) -> CaravanFlow:
        """The next epoch, from the stored datamarker and its progress; with the copy that was stored with it, if so."""
        self.epoch += 1
        if self.kept is not None:
            self.copy = deepcopy(self.kept)
        self.copy.begin_epoch(self.request.generation)
        backfill = FlowBackfill.resume(self.request, self.stored.backfill, self.wanted.hash)
        self.flow = CaravanFlow(
            f"app{id(self)}",
            self.shard,
            self.wanted,
            self.stored,
            self.epoch,
            lambda: None,
            backfill,
            lambda: self.has_room,
        )
        return self.flow

    def begin_anew(self, wanted: Filter) -> CaravanFlow:
        """The next epoch, in a new generation of the backfill, and perhaps with another filter."""
        self.wanted, self.request = wanted, replace(self.request, generation=self.request.generation + 1)
        return self.restart()

    @property
    def backfill(self) -> FlowBackfill:
        """The flow's backfill."""
        assert self.flow.backfill is not None
        return self.flow.backfill

    def take(self, most: int = 1 << 30) -> int:
        """Hand on so many pieces; returns how many there were."""
        count = 0
        while count < most and (piece := self.flow.peek()) is not None:
            assert piece.gap is None
            assert piece.broken is None
            self.copy.take(piece, self.shard)
            self.flow.take()
            count += 1
        return count
