"""Removes the keys of changed rows, so that an application reads them from its database again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from sinks.records import Record, RecordSubscriber, RecordWriter
from sinks.records.held import Budget
from sinks.records.transactions import runs
from sinks.records.writer import Packed
from sinks.redis.flows import RAISE, FlowRecords, Script
from sinks.redis.keys import OWNERS, Keys, pattern_of
from sinks.redis.store import Command, Store
from sinks.redis.sweeps import Sweeps
from subscriber_sdk import Datamarker, KeptMarker, ScanEnd, ShardNotice
from wormhole.model.errors import TargetRefused
from wormhole.model.values import Op
from wormhole.wire.update import Update

__all__ = ["InvalidatingSubscriber"]

_WHOLE_TABLE: Final = frozenset({Op.TRUNCATE, Op.DELETE_RANGE})
_KEYS: Final = 1000  # in one command
_SCANNED: Final = 5000  # keys that one SCAN looks at: about a millisecond of the server


class ChangedKeys:
    """Makes a record of each key that has to be removed. ``key``: the key in Redis. For a whole table ``key`` is empty,
    and ``value`` is the prefix of the table's keys.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def records(self, update: Update) -> Sequence[Record]:
        """One record, or two records if the row's key changed."""
        id_, table = update.id, update.table
        if update.op in _WHOLE_TABLE:
            return [Record(id_, id_, table, b"", self._keys.prefix(update.shard, table))]
        changed = [update.key] if update.old_key is None else [update.key, update.old_key]
        return [
            Record(f"{id_}/{number}" if number else id_, id_, table, self._keys.key(update.shard, table, values), None)
            for number, values in enumerate(changed)
        ]


class KeyRemover(RecordWriter):
    """Removes the keys of records. The order does not matter: after a repeated removal the row is only read again."""

    def __init__(self, keys: Keys, store: Store, form: str) -> None:
        self._keys = keys
        self._store = store
        # The store may be empty, because an empty cache contains no outdated value.
        self._flows = FlowRecords(store, form, whole=False)
        self._sweeps = Sweeps(store)
        self._free: set[bytes] = set()  # prefixes of keys under which no sink keeps whole rows

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        self._free.clear()
        self._sweeps.assigned(notice)
        return await self._flows.assigned(notice)

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        await self._check(shard, {record.table for record in records})
        for prefix, id_ in {record.value: record.id for record in records if record.value is not None}.items():
            await self.remove_table(shard, prefix, id_)
        # A server that lost the end of its writes lost the new version too, because that comes last.
        await self._unlink(shard, (record.key for record in records if record.value is None))

    def packed(self, shard: str, updates: Sequence[Update]) -> Packed | None:
        keys: list[bytes] = []
        tables: set[str] = set()
        for run in runs(updates):
            changed = updates[run.begin : run.end]
            if not _WHOLE_TABLE.isdisjoint([update.op for update in changed]):
                return None
            tables.add(table := changed[0].table)
            keys += self._keys.keys(shard, table, [update.key for update in changed])
            keys += self._keys.keys(shard, table, [old for update in changed if (old := update.old_key) is not None])
        return Packed(len(updates), [tables, keys], sum(map(len, keys)))

    async def write_packed(self, shard: str, packed: Packed) -> None:
        tables, keys = packed.parts
        await self._check(shard, tables)
        await self._unlink(shard, iter(keys))

    async def _check(self, shard: str, tables: Iterable[str]) -> None:
        """Raise :class:`~wormhole.model.errors.TargetRefused` if another sink keeps rows under the same keys."""
        new = list({self._keys.prefix(shard, table) for table in tables} - self._free)
        if new:
            (owners,) = await self._store.run(("HMGET", OWNERS, *new))
            for prefix, owner in zip(new, owners, strict=True):
                if owner is not None:
                    raise TargetRefused(
                        f"the keys of {owner.decode()} begin with {prefix.decode()} in {self._store.where}, and a sink "
                        "keeps its rows there",
                        hint="give one of the sinks another template or database. What is no longer stored is "
                        f"forgotten with: HDEL {OWNERS} '{prefix.decode()}'",
                    )
            self._free.update(new)

    async def marked(self, marker: Datamarker) -> None:
        await self._flows.marked(marker)

    async def revoked(self, shard: str) -> None:
        await self._flows.revoked(shard)

    async def _unlink(self, shard: str, keys: Iterator[bytes]) -> None:
        await self._flows.run(shard, [Script(RAISE)], *_unlinks(keys))

    async def remove_table(self, shard: str, prefix: bytes, why: str) -> None:
        """Remove every key of a table. ``why``: an id of the reason, the same when the removal is repeated."""
        pattern = pattern_of(prefix)
        async for found in self._sweeps.portions(
            shard,
            f"{why} {prefix!r}",
            lambda cursor: ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED),
            self._store.run,
        ):
            await self._store.run(*_unlinks(iter(found)))


class InvalidatingSubscriber(RecordSubscriber):
    """Removes the keys of a transaction when the transaction is complete. Earlier, an application could read the old
    rows into the cache again.
    """

    def __init__(self, keys: Keys, store: Store, form: str, budget: Budget) -> None:
        self._keys = keys
        self._remover = KeyRemover(keys, store, form)
        super().__init__(ChangedKeys(keys), self._remover, budget)

    async def on_scan_end(self, end: ScanEnd) -> None:
        """Remove every key of the table, because keys of deleted rows may be left."""
        prefix = self._keys.prefix(end.shard, end.table)
        await self._remover.remove_table(end.shard, prefix, f"generation {end.generation}")


def _unlinks(keys: Iterator[bytes]) -> Iterator[Command]:
    while portion := list(islice(keys, _KEYS)):
        yield "UNLINK", *portion
