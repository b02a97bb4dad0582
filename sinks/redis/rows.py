"""Keeps each row as a JSON document under its key: an older value never replaces a newer one."""

from __future__ import annotations

import asyncio
import json
from collections import ChainMap
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sinks.envelopes.texts import dump
from sinks.records import Record, RecordSubscriber, RecordWriter
from sinks.records.held import Budget
from sinks.records.transactions import runs
from sinks.records.writer import Packed
from sinks.redis import scripts
from sinks.redis.changes import GONE, PART, RANGE, TABLE, RowChange, RowEnvelope
from sinks.redis.flows import Evicted, FlowRecords
from sinks.redis.keys import OWNERS, Keys, values_of
from sinks.redis.scripts import Entry, index_of
from sinks.redis.store import Command, Store
from sinks.redis.stored import value_of
from sinks.redis.sweeps import Sweeps
from sinks.redis.versions import CHANGE, READ, digits, place
from subscriber_sdk import Datamarker, KeptMarker, Key, KeyRange, ScanEnd, SchemaChange, ShardNotice, Update, Value
from wormhole.model.errors import TargetRefused
from wormhole.model.values import Op

__all__ = ["RowSubscriber", "RowWriter", "evicting"]

_LOOK_S: Final = 5.0  # seconds between two checks of the server's memory
_SCANNED: Final = 2000  # about the number of entries that one HSCAN returns
_State = tuple[Entry, bytes]
"""The entry and the document of a row; ``b""``: the row is deleted."""
Folded = dict[bytes, _State]
"""The newest state of each row of a portion, by key."""


class RowWriter(RecordWriter):
    """Writes rows. ``keep``: seconds for which the tombstone of a deleted row is kept."""

    def __init__(self, store: Store, keys: Keys, form: str, keep: float) -> None:
        self._store = store
        self._keys = keys
        self._envelope = RowEnvelope(keys)
        self._flows = FlowRecords(store, form, whole=True)
        self._keep = int(keep * 1000)
        self._owners: dict[str, str] = {}  # dataset and application, by shard
        self.ends: dict[str, dict[str, str]] = {}
        """By shard the transactions that came in pieces and are written now, with their positions, which are known only
        since the last piece.
        """
        self._sweeps = Sweeps(store)
        self._looked: dict[str, float] = {}  # by shard the time of the last check of the server's memory
        self._owned: set[tuple[str, str]] = set()  # shards and tables whose keys no other table can have

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        self._sweeps.assigned(notice)
        self._owners[notice.shard] = f"{notice.application}/{notice.dataset}"
        return await self._flows.assigned(notice, await self._evicted())

    async def marked(self, marker: Datamarker) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._looked.get(marker.shard, 0.0) + _LOOK_S:
            self._flows.check(marker.shard, await self._evicted())
            self._looked[marker.shard] = now
        await self._flows.marked(marker)

    async def revoked(self, shard: str) -> None:
        await self._flows.revoked(shard)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        tables: dict[str, list[Record]] = {}
        for record in records:
            tables.setdefault(record.table, []).append(record)
        for table, of_table in tables.items():
            await self._own(shard, table)
            await self._write_table(shard, table, of_table)

    def packed(self, shard: str, updates: Sequence[Update]) -> Packed | None:
        era, size = digits(self._flows.era(shard)), 0
        tables: dict[str, dict[str, dict[bytes, tuple[bytes, bytes]]]] = {}
        for run in runs(updates):
            found = self._envelope.columns(era, run, updates[run.begin : run.end])
            if found is None:
                return None
            first = updates[run.begin]
            rest = f"{first.generation} {found.types} {shard}"
            rows = zip(found.keys, zip(found.versions, found.documents, strict=True), strict=True)
            tables.setdefault(first.table, {}).setdefault(rest, {}).update(rows)
            size += sum(map(len, found.keys)) + sum(map(len, found.documents))
        return Packed(len(updates), list(tables.items()), size)

    async def write_packed(self, shard: str, packed: Packed) -> None:
        for table, groups in packed.parts:
            await self._own(shard, table)
            await self._run(shard, table, groups)

    async def remove(self, shard: str, table: str, keys: Iterable[bytes]) -> None:
        """Remove rows with these keys, which do not exist in the source at the flow's datamarker."""
        index, names = self._index(shard, table), list(keys)
        if not names:
            return
        (entries,) = await self._read(shard, ("HMGET", index[0], *names))
        known = {name: entry for name, entry in zip(names, entries, strict=True) if entry is not None}
        await self._remove(shard, table, known, self._now(shard))

    async def remove_older(self, end: ScanEnd) -> None:
        """Remove the rows of the table and shard that were not received in this generation."""
        kept = {self._keys.key(end.shard, end.table, key) for key in end.except_keys}
        async for found in self._entries(end.shard, end.table, f"generation {end.generation}"):
            old = {
                key: data
                for key, (data, entry) in found.items()
                if entry.there and entry.shard == end.shard and entry.generation < end.generation and key not in kept
            }
            await self._remove(end.shard, end.table, old, self._now(end.shard))

    async def keys(self, shard: str, table: str) -> AsyncIterator[Key]:
        """The key of every row of the shard."""
        after = len(self._keys.prefix(shard, table))
        async for found in self._entries(shard, table, None):
            for key, (_, entry) in found.items():
                if entry.there and entry.shard == shard:
                    yield values_of(key[after:], entry.types)

    async def documents(self, shard: str, table: str, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """The documents of rows; ``None`` for a row whose key has no document."""
        (found,) = await self._read(shard, ("MGET", *(self._keys.key(shard, table, key) for key in keys)))
        return [_document(data) for data in found]

    # --- one table ---

    async def _write_table(self, shard: str, table: str, records: Sequence[Record]) -> None:
        changes = list(self._changes(shard, records))
        era = digits(self._flows.era(shard))
        stored = await self._bases(shard, table, changes)
        folded: Folded = {}
        for number, (key, change) in enumerate(changes):
            version = era + change.version
            if key:
                self._fold(shard, key, change, version, folded, stored)
                continue
            await self._apply(shard, table, folded)
            folded = {}
            if change.kind == TABLE:
                await self._truncate(shard, table, version)
            elif change.kind == RANGE:
                await self._remove_range(shard, table, change, version)
            stored = await self._bases(shard, table, changes[number:])
        await self._apply(shard, table, folded)

    def _changes(self, shard: str, records: Sequence[Record]) -> Iterator[tuple[bytes, RowChange]]:
        ends = self.ends.get(shard)
        for record in records:
            change = RowChange.from_bytes(record.value or b"")
            if ends:
                transaction, _, index = record.update_id.rpartition(":")
                if (end := ends.get(transaction)) is not None:
                    change = change._replace(version=end + digits(int(index)))
            yield record.key, change

    def _fold(self, shard: str, key: bytes, change: RowChange, version: str, folded: Folded, stored: Folded) -> None:
        value = b"" if change.kind == GONE else change.document
        if change.kind == PART:
            # Without the other columns there is no document. The next backfill or repair writes the row.
            rest = _rest(key, change.base or key, version, ChainMap(folded, stored))
            value = b"" if rest is None else dump(rest | json.loads(value)).encode()
        folded[key] = Entry(version, bool(value), change.generation, change.types, shard), value

    async def _bases(self, shard: str, table: str, changes: Iterable[tuple[bytes, RowChange]]) -> Folded:
        """The stored rows that changes without all columns need."""
        keys = {name for key, change in changes if change.kind == PART for name in (change.base or key, key)}
        if not keys:
            return {}
        index, _ = self._index(shard, table)
        entries, documents = await self._read(shard, ("HMGET", index, *keys), ("MGET", *keys))
        found = zip(keys, entries, documents, strict=True)
        return {key: (Entry.from_bytes(entry), data) for key, entry, data in found if entry and data}

    async def _apply(self, shard: str, table: str, folded: Folded) -> None:
        groups: dict[str, dict[bytes, tuple[bytes, bytes]]] = {}
        size = 0
        for key, (entry, value) in folded.items():
            rows = groups.setdefault(entry.rest, {})
            rows[key] = entry.version.encode(), value
            size += len(key) + len(value)
            if len(rows) == scripts.ROWS or size > scripts.BYTES:
                await self._run(shard, table, groups)
                groups, size = {}, 0
        await self._run(shard, table, groups)

    async def _run(self, shard: str, table: str, groups: Mapping[str, Mapping[bytes, tuple[bytes, bytes]]]) -> None:
        index = self._index(shard, table)
        found = [scripts.apply(index, self._keep, rest, rows) for rest, rows in groups.items()]
        if found:
            await self._flows.run(shard, found)

    async def _read(self, shard: str, *commands: Command) -> list[Any]:
        """The answers to commands that the server executes after all earlier writes."""
        await self._flows.confirmed(shard)
        return await self._store.run(*commands)

    async def _truncate(self, shard: str, table: str, version: str) -> None:
        await self._flows.run(shard, [scripts.truncate(self._index(shard, table), version)])
        async for found in self._entries(shard, table, version):
            await self._remove(
                shard, table, {key: data for key, (data, entry) in found.items() if entry.version < version}, None
            )

    async def _remove_range(self, shard: str, table: str, change: RowChange, version: str) -> None:
        begin, end = values_of(change.base, change.types), values_of(change.document, change.types)
        after = len(self._keys.prefix(shard, table))
        async for found in self._entries(shard, table, version):
            within = {
                key: data
                for key, (data, entry) in found.items()
                if entry.version < version
                and entry.types == change.types
                and begin <= values_of(key[after:], entry.types) < end
            }
            await self._remove(shard, table, within, version)

    async def _remove(self, shard: str, table: str, rows: Mapping[bytes, bytes], version: str | None) -> None:
        """Remove rows, by their keys and entries. ``version``: the version of their tombstones; ``None``: no tombstones
        are made.
        """
        removals = [
            (key, data, None if version is None else Entry.from_bytes(data)._replace(version=version, there=False))
            for key, data in rows.items()
        ]
        if removals:
            await self._flows.run(shard, list(scripts.remove(self._index(shard, table), self._keep, removals)))

    async def _entries(
        self, shard: str, table: str, why: str | None
    ) -> AsyncIterator[dict[bytes, tuple[bytes, Entry]]]:
        """The entries of the table in portions, each in its stored and its parsed form. An entry may come twice.
        ``why``: an id of the reason, for a sweep that may take several callbacks; ``None``: it ends within this one.
        """
        name = self._index(shard, table)[0]

        def scan(cursor: int) -> Command:
            return "HSCAN", name, cursor, "COUNT", _SCANNED

        portions = self._sweeps.portions(shard, f"{why} {name}", scan, partial(self._read, shard), ends=why is not None)
        async for found in portions:
            yield {key: (data, Entry.from_bytes(data)) for key, data in found.items() if key}

    def _now(self, shard: str) -> str:
        """The version for changes that are derived at the flow's datamarker."""
        return digits(self._flows.era(shard)) + place(self._flows.marker(shard).order, READ)

    def _index(self, shard: str, table: str) -> tuple[str, str]:
        return index_of(shard.partition(".")[0], table)

    # --- what has to be so ---

    async def _evicted(self) -> Evicted:
        """The number of keys that the server has evicted. Raises :class:`~wormhole.model.errors.TargetRefused` if its
        policy allows evictions.
        """
        (info,) = await self._store.run(("INFO",))
        if (policy := evicting(info)) is not None:
            raise TargetRefused(
                f"{self._store.where} removes keys when its memory is full (maxmemory-policy {policy})",
                hint='set maxmemory-policy to noeviction, or write mode = "delete"',
            )
        return Evicted(info["run_id"], info["evicted_keys"])

    async def _own(self, shard: str, table: str) -> None:
        """Raise :class:`~wormhole.model.errors.TargetRefused` if a row of another table may have the same key."""
        if (shard, table) in self._owned:
            return
        prefix = self._keys.prefix(shard, table)
        mine = f"{self._owners[shard]}/{shard.partition('.')[0]}/{table}".encode()
        _, owners = await self._store.run(("HSETNX", OWNERS, prefix, mine), ("HGETALL", OWNERS))
        for other, owner in owners.items():
            if owner != mine and (other.startswith(prefix) or prefix.startswith(other)):
                raise TargetRefused(
                    f"the keys of {table} begin with {prefix.decode()}, and those of {owner.decode()} with "
                    f"{other.decode()} in {self._store.where}: two rows could have the same key",
                    hint="put {log} into the template, or give one of the tables another one. What is no longer "
                    f"stored is forgotten with: HDEL {OWNERS} '{other.decode()}'",
                )
        self._owned.add((shard, table))


class RowSubscriber(RecordSubscriber):
    """Receives updates, and writes the rows of a transaction when the transaction is complete."""

    def __init__(self, keys: Keys, writer: RowWriter, budget: Budget) -> None:
        super().__init__(RowEnvelope(keys), writer, budget)
        self._rows = writer
        self._keys = keys
        self._schemas: dict[str, dict[str, str]] = {}  # types of columns, by table

    async def on_updates(self, batch: Sequence[Update]) -> None:
        """Write the transactions that are complete. Several pieces of one may be in the batch."""
        self._rows.ends[batch[0].shard] = {}
        await super().on_updates(batch)

    def _continued(self, update: Update) -> None:
        """Note the position of a transaction that comes in pieces."""
        if not update.in_unfinished and update.op is not Op.READ:
            self._rows.ends[update.shard][update.transaction.id] = place(update.position, CHANGE)

    async def on_schema(self, change: SchemaChange) -> None:
        """Remember the types of columns, which are needed to compare values."""
        self._schemas[change.table] = {column.name: column.type for column in change.new.columns}

    async def on_range(self, keys: KeyRange) -> None:
        """Remove rows with single keys, which no longer exist. Rows of ranges are removed at the end of the table."""
        await self._rows.remove(
            keys.shard,
            keys.table,
            (self._keys.key(keys.shard, keys.table, key) for key in keys.keys if key in keys),
        )

    async def on_scan_end(self, end: ScanEnd) -> None:
        """Remove older rows of the table, because every existing row was written."""
        await self._rows.remove_older(end)

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        """Read rows."""
        types = self._schemas.get(table, {})
        found = zip(keys, await self._rows.documents(shard, table, keys), strict=True)
        return {
            key: {name: value_of(document.get(name), type_) for name, type_ in types.items()}
            for key, document in found
            if document is not None
        }

    async def on_verify_keys(self, table: str, shard: str) -> AsyncIterator[Key]:
        """Read keys."""
        async for key in self._rows.keys(shard, table):
            yield key


def evicting(info: Mapping[str, Any]) -> str | None:
    """The policy by which a server evicts keys; ``None``: the server evicts no keys."""
    policy = str(info.get("maxmemory_policy", "noeviction"))
    return policy if info.get("maxmemory") and policy != "noeviction" else None


def _rest(key: bytes, base: bytes, version: str, known: Mapping[bytes, _State]) -> dict[str, Any] | None:
    """The row before a change that lacks columns, from the states ``known``: the row ``base``. If that row is deleted,
    the change is a repetition, and the row ``key`` is used. A newer row under ``base`` is not used.
    """
    for name in (base, key):
        entry, document = known.get(name, (None, b""))
        if entry is not None and (entry.version < version or (name == key and entry.version == version)):
            row = _document(document)
            if row is not None:
                return row
    return None


def _document(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data or b"null")
    except ValueError:
        return None  # another program changed the value
    return found if isinstance(found, dict) else None
