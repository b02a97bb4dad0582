"""The suite itself: a sink in memory passes it, and fails it with each fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from sinks.port import Guarantee, Sink, SinkKind, SinkSettings
from sinks.testing.contract import RowSinkContract
from sinks.testing.harness import TABLES, Row, RowHarness
from subscriber_sdk import KeptMarker, Key, NoticeKind, ScanEnd, ShardNotice, Subscriber, Update
from subscriber_sdk.testing import Kit, update
from wormhole.model.errors import EpochRefused, TargetUnavailable
from wormhole.model.findings import Report
from wormhole.model.values import UNAVAILABLE, Op, Value

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


class Memory:
    """What every process of the sink shares. ``faults``: what the sink forgets to do."""

    def __init__(self, faults: set[str]) -> None:
        self.faults = faults
        self.away = False
        self.rows: dict[str, dict[Key, Row]] = {}
        self.generation: dict[tuple[str, Key], int] = {}
        self.epochs: dict[str, int] = {}


class MemorySubscriber(Subscriber):
    """Keeps rows in a :class:`Memory`."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.generation = 0

    async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        if notice.kind is NoticeKind.ASSIGNED:
            held = self.memory.epochs.get(notice.shard, 0)
            if held > notice.epoch:
                raise EpochRefused("a later epoch", held_epoch=held)
            self.memory.epochs[notice.shard] = notice.epoch
        return None

    async def on_updates(self, batch: Sequence[Update]) -> None:
        memory = self.memory
        if memory.away:
            if "away" in memory.faults:
                return
            raise TargetUnavailable("away")
        for one in batch:
            if memory.epochs[one.shard] > one.epoch and "fence" not in memory.faults:
                raise TargetUnavailable("a later epoch")
            self.apply(one)

    def apply(self, one: Update) -> None:
        faults, rows = self.memory.faults, self.memory.rows.setdefault(one.table, {})
        if one.op is Op.TRUNCATE:
            if "truncate" not in faults:
                rows.clear()
            return
        key = tuple(one.key)
        if one.after and one.after.get("text") == "refused":
            if "poison" in faults:
                return
            raise ValueError("refused")
        if one.old_key and "moves" not in faults:
            rows[key] = rows.pop(tuple(one.old_key), {})
        if one.op is Op.DELETE:
            rows.pop(key, None)
        else:
            known = {name: value for name, value in (one.after or {}).items() if value is not UNAVAILABLE}
            merged = one.op is Op.UPDATE and "unavailable" not in faults
            rows[key] = {**rows.get(key, {}), **known} if merged else known
            self.memory.generation[one.table, key] = one.generation

    async def on_scan_end(self, end: ScanEnd) -> None:
        rows = self.memory.rows.setdefault(end.table, {})
        for key in [key for key in rows if self.memory.generation[end.table, key] < end.generation]:
            if "scan end" not in self.memory.faults:
                del rows[key]

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        rows = self.memory.rows.get(table, {})
        return {key: rows[key] for key in keys if key in rows}

    async def on_verify_keys(self, table: str, shard: str) -> list[Key]:
        return list(self.memory.rows.get(table, {}))


class MemorySink(Sink):
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @property
    def subscriber(self) -> Subscriber:
        return MemorySubscriber(self._memory)

    async def examine(self) -> Report:
        if self._memory.away:
            raise TargetUnavailable("away")
        return Report("memory")


class MemorySettings(SinkSettings):
    memory: Any


class MemoryKind(SinkKind[MemorySettings]):
    title: ClassVar[str] = "Memory"
    form: ClassVar[str] = "memory:"
    guarantee: ClassVar[Guarantee] = Guarantee.CONVERGES
    requirement: ClassVar[str] = ""
    settings = MemorySettings

    def open(self, name: str, settings: MemorySettings) -> Sink:
        return MemorySink(settings.memory)


class MemoryHarness(RowHarness):
    kind: ClassVar[SinkKind[Any]] = MemoryKind()
    refused = update(TABLES[0], key=7, after={"text": "refused"})

    def __init__(self, *faults: str) -> None:
        self.memory = Memory(set(faults))

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": "memory:", "memory": self.memory}

    @contextmanager
    def away(self) -> Iterator[None]:
        self.memory.away = True
        try:
            yield
        finally:
            self.memory.away = False

    def rows(self, table: str) -> Mapping[int, Row]:
        return {int(str(key)): row for (key,), row in self.memory.rows.get(table, {}).items()}

    def remove(self, table: str, key: int) -> None:
        del self.memory.rows[table][key,]


@pytest.fixture
def harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemory(RowSinkContract):
    pass


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("away", RowSinkContract.test_a_store_that_is_away_is_waited_for),
        ("fence", RowSinkContract.test_a_process_that_was_replaced_harms_nothing),
        ("truncate", RowSinkContract.test_a_truncate_arrives),
        ("poison", RowSinkContract.test_the_update_that_is_refused_is_parked),
        ("moves", RowSinkContract.test_updates_arrive_in_the_order_of_the_log),
        ("unavailable", RowSinkContract.test_a_value_that_the_log_lacks_is_left),
        ("scan end", RowSinkContract.test_a_backfill_leaves_the_rows_that_exist),
    ],
)
def test_a_fault_is_found(wormhole_kit: Kit, fault: str, test: Any) -> None:
    test(TestMemory(), wormhole_kit, MemoryHarness())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(TestMemory(), wormhole_kit, MemoryHarness(fault))
