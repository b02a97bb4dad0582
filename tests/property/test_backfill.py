"""Existing rows against a model of the whole: whatever happens on the way, each application's copy becomes the source.

The reader of rows, the fleet and its caravans are the real ones; only nothing runs by itself. A script decides what
happens at every point where something may: before and after each call to the datastore, between a snapshot and its
first row, and whenever the reader of rows waits. It commits, reads the log with any caravan, hands pieces on, makes
commits visible late, kills flows back to a stored datamarker, lets applications join, opens and closes caravans.

Each chunk is compared with the source at the very place where it enters; at the end, each copy with the source.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caravan.backfill import scanner as scanner_module
from caravan.backfill.boundaries import MemoryBoundaries
from caravan.backfill.progress import BackfillRequest
from caravan.backfill.scanner import Scanner, ScanSettings
from caravan.caravan import Caravan
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import CaravanFlowState, Piece
from publisher.sources.memory.changes import Change
from publisher.sources.memory.source import MemorySource
from publisher.sources.memory.tables import MemoryTables, key_order
from tests.support.rows_received import UNKNOWN, Key, Receiver
from tests.support.seed import examples
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.log_source import LogReader
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.body import parse_body
from wormhole.wire.rows import decode_key
from wormhole.wire.update import Batch

_KEYS = range(10)
_TABLES = ("t", "u")
_FILTERS = [(Filter.parse(None), set(_KEYS)), (Filter.parse("key in (0, 2, 4, 6, 8)"), {0, 2, 4, 6, 8})]
_WANTED = {chosen.hash: keys for chosen, keys in _FILTERS}
_LARGE = 400
_T = TypeVar("_T")


def _by_last_digit(key: Key) -> Any:
    """An order that only the datastore has."""
    return tuple(7 * int(value) % 11 for value in key if isinstance(value, int))


class _Time:
    now = 0.0


class _Scanner(Scanner):
    """Calls happen where the script is at; nothing waits."""

    world: _World

    async def _call(self, function: Callable[..., _T], *arguments: object) -> _T:
        await asyncio.sleep(0)
        self.world.something(2)
        result = function(*arguments)
        self.world.something(2)
        return result


class _World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random
        self.left = chance.randrange(20, 120)
        """Steps of the script that are left."""
        self.stores_copies = chance.random() < 0.7
        """Applications store their copies with the datamarker; otherwise a killed one gets changes twice, and those
        that are about the former values of a row would have another meaning then.
        """
        self.order = chance.choice([key_order, _by_last_digit])
        self.source = MemorySource(
            log="log", sharding=Sharding("log"), now_us=lambda: 0, max_update_bytes=chance.choice([_LARGE // 2, 10_000])
        )
        self.tables = MemoryTables(self.source, order=self.order)
        self.tables.on_snapshot = lambda: self.something(3)
        self.version = 1
        self.columns = ["a"]
        self.markers = [self.source.commit([(Op.INSERT, table, 0, {"v": 1, "a": 1}) for table in _TABLES])]
        for _ in range(chance.randrange(8)):
            self.commit()
        _Time.now = 0.0
        self.fleet = Fleet(
            self.source,
            Limits(read_bytes=200, buffer_bytes=1 << 20),
            FleetEvents(lambda *_: None, lambda *_: None),
            lambda: 0.0,
            clock=Clock(monotonic=lambda: _Time.now),
        )
        limits = ChunkLimits(rows=chance.choice([1, 2, 3, 100]))
        settings = ScanSettings(limits=limits, memory=chance.choice([600, 1 << 20]))
        self.scanner = _Scanner(
            self.fleet, self.tables, MemoryBoundaries(), settings, clock=Clock(monotonic=lambda: _Time.now)
        )
        self.scanner.world = self
        self.fleet.rows_watch = self.scanner
        self.readers: dict[int, LogReader] = {}
        self.number = 0
        self.receivers: list[Receiver] = []
        self.busy = False
        self.faults: list[Exception] = []
        self.open(self.markers[-1])
        self.join()

    # -- the datastore

    def commit(self) -> None:
        """A random transaction."""
        changes: list[Change] = []
        now = {table: {key[0]: row for key, row in self.tables.all_rows().get(table, {}).items()} for table in _TABLES}
        for _ in range(self.random.randrange(1, 4)):
            table = self.random.choice(_TABLES)
            changes.append(self._change(table, now[table]))
        self.markers.append(self.source.commit(changes))

    def _change(self, table: str, rows: dict[Any, Any]) -> Change:
        chance = self.random
        self.version += 1
        key = chance.choice(_KEYS)
        whole: dict[str, Value] = {"v": self.version, **{name: chance.randrange(100) for name in self.columns}}
        part: dict[str, Value] = {"v": self.version, **dict.fromkeys(self.columns, UNAVAILABLE)}
        if chance.random() < 0.02:
            rows.clear()
            return Change(Op.TRUNCATE, table)
        if chance.random() < 0.02 and len(self.columns) < 3:
            self.columns.append("abc"[len(self.columns)])
        if key not in rows:
            rows[key] = whole
            return Change(chance.choice([Op.INSERT, Op.UPSERT]), table, key, whole)
        what = chance.choice(["whole", "part", "part", "delete", "move", "move part", "merge", "large", "again"])
        free = [other for other in _KEYS if other not in rows]
        if what in ("move part", "merge") and not self.stores_copies:
            what = "whole"
        if what.startswith("move") and free:
            to = chance.choice(free)
            rows[to] = rows.pop(key)
            return Change(Op.UPDATE, table, to, whole if what == "move" else part, old_key=key)
        match what:
            case "delete":
                del rows[key]
                return Change(Op.DELETE, table, key)
            case "merge":
                return Change(Op.MERGE, table, key, {"a": 1})
            case "large":
                return Change(Op.UPDATE, table, key, {**whole, "a": "x" * _LARGE})
            case "part":
                return Change(Op.UPDATE, table, key, part)
            case _:
                return Change(Op.UPDATE if what == "whole" else Op.UPSERT, table, key, whole)

    # -- the publisher

    def open(self, marker: Datamarker) -> None:
        """A caravan at a place of the log."""
        self.number += 1
        reader = self.source.open(marker)
        self.readers[self.number] = reader
        self.fleet.caravans[self.number] = Caravan(self.number, marker, reader, self.fleet, 0.0, "the script")

    def close(self, caravan: Caravan) -> None:
        """The caravan ends; its flows look for another."""
        for flow in tuple(caravan.flows):
            caravan.leave(flow, CaravanFlowState.WAITING, "the script")
        del self.fleet.caravans[caravan.number]

    def read(self, caravan: Caravan, size: int) -> bool:
        """One segment, as ``Caravan.run`` reads it."""
        if caravan.appends.locked():
            return False
        segment = self.readers[caravan.number].read(size, 0)
        if segment is None:
            return False
        caravan.buffer.append(segment)
        self.fleet.advanced(caravan, segment)
        caravan.marker = segment.marker or caravan.marker
        return True

    def board(self, receiver: Receiver, caravan: Caravan | None = None) -> None:
        """A flow travels with any caravan that has its place."""
        flow = receiver.flow
        choices = [caravan] if caravan is not None else list(self.fleet.caravans.values())
        self.random.shuffle(choices)
        for one in choices:
            cursor = one.buffer.join(flow.place)
            if cursor is not None:
                former = self.fleet.caravan_of(flow)
                if former is not None:
                    former.leave(flow, CaravanFlowState.WAITING, "the script")
                one.board(flow, cursor)
                return

    def join(self) -> None:
        """Another application, whose copy has rows of long ago."""
        wanted, keys = self.random.choice(_FILTERS)
        receiver = Receiver("log", self.random.choice(self.markers), self.order, wanted, BackfillRequest(1))
        for key in keys:
            if self.random.random() < 0.3:
                receiver.copy.rows["t", (key,)] = {"v": -1, "a": -1}, 0
        if self.stores_copies:
            receiver.store()
        self.receivers.append(receiver)
        self.fleet.add(receiver.flow)
        self.board(receiver)

    def take(self, receiver: Receiver, most: int) -> int:
        """The flow hands pieces on, and each is compared with the source at its place."""
        count = 0
        while count < most and (piece := receiver.flow.peek()) is not None:
            assert piece.gap is None
            assert piece.broken is None
            before = set(receiver.copy.rows)
            self._check(receiver, piece)
            receiver.copy.take(piece, receiver.shard)
            receiver.flow.take()
            if piece.chunk is not None:
                self._check_deleted(receiver, before - set(receiver.copy.rows))
            count += 1
        if count:
            self.fleet.moved(receiver.flow)
        return count

    def _check(self, receiver: Receiver, piece: Piece) -> None:
        """Rows of a chunk are those of the source where it enters, and every other key of its range is left out."""
        chunk = piece.chunk
        if chunk is None or piece.marker is None:
            return
        rows = self.tables.all_rows(piece.marker).get(chunk.table, {})
        sent: dict[Key, Any] = {}
        if piece.body is not None:
            schemas = {schema.id: schema for schema in piece.body.schemas}
            batch = Batch(parse_body(piece.body.data), receiver.shard, 1, False, schemas.__getitem__)
            for update in batch.updates():
                sent[update.key] = None if update.too_large else update.after
        for key, row in sent.items():
            assert key in rows, f"{key} was deleted before {piece.marker}"
            assert row is None or row.items() <= rows[key].items(), f"{key} at {piece.marker}: {row}, not {rows[key]}"
        if chunk.alone:
            inside = set(map(decode_key, chunk.alone))
        else:
            low = None if chunk.after is None else self.order(decode_key(chunk.after))
            high = None if chunk.until is None else self.order(decode_key(chunk.until))
            inside = {
                key
                for key in rows
                if (low is None or self.order(key) > low) and (high is None or self.order(key) <= high)
            }
        wanted = _WANTED[receiver.wanted.hash]
        left_out = set(map(decode_key, chunk.left_out))
        for key in inside & rows.keys():
            assert key in sent or key in left_out or key[0] not in wanted, f"{key} is missing"

    def _check_deleted(self, receiver: Receiver, deleted: set[tuple[str, Key]]) -> None:
        rows = self.tables.all_rows(receiver.flow.marker)
        for table, key in deleted:
            assert key not in rows.get(table, {}), f"{key} of {table} is there and was deleted"

    def kill(self, receiver: Receiver) -> None:
        """The flow begins its next epoch where its datamarker was stored."""
        self.fleet.remove(receiver.flow)
        receiver.restart()
        self.fleet.add(receiver.flow)
        self.board(receiver)

    # -- the script

    def something(self, most: int) -> None:
        """What may happen here."""
        if self.busy:
            return
        self.busy = True
        try:
            for _ in range(self.random.randrange(most + 1)):
                if self.left:
                    self.left -= 1
                    self._happen()
        except Exception as error:
            self.faults.append(error)  # the reader of rows would go on after it
            raise
        finally:
            self.busy = False

    def _happen(self) -> None:
        chance = self.random
        caravan = chance.choice(list(self.fleet.caravans.values()))
        receiver = chance.choice(self.receivers)
        match chance.choice(["commit"] * 6 + ["read"] * 8 + ["take"] * 6 + ["store"] * 3 + _RARE):
            case "commit":
                self.commit()
            case "read":
                self.read(caravan, chance.choice([1, 50, 500]))
            case "take":
                self.take(receiver, chance.randrange(1, 4))
            case "store":
                if self.stores_copies and not receiver.flow.inside:
                    receiver.store()
                elif not receiver.flow.inside:
                    receiver.stored = receiver.flow.marker
            case "kill":
                self.kill(receiver)
            case "board":
                if receiver.flow.state is not CaravanFlowState.CLOSED:
                    self.board(receiver, caravan)
            case "open":
                if len(self.fleet.caravans) < 3:
                    self.open(chance.choice(self.markers))
            case "close":
                if len(self.fleet.caravans) > 1 and not caravan.appends.locked():
                    self.close(caravan)
            case "join":
                if len(self.receivers) < 3:
                    self.join()
            case "hide":
                self.tables.visible = chance.choice(self.markers[-4:])
            case "show":
                self.tables.visible = None
            case "room":
                receiver.has_room = not receiver.has_room
            case "drop":
                if caravan.buffer.first < caravan.buffer.end:
                    caravan.trim(caravan.buffer.size - 1)
            case _:
                self.tables.interrupt()

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        """The reader of rows waits."""
        del event
        _Time.now += seconds
        self.something(4)
        if not self.left:
            self.calm()
        await asyncio.sleep(0)

    def calm(self) -> None:
        """Nothing is committed any more, and everybody goes on."""
        self.tables.visible = None
        lead = self.fleet.lead
        assert lead is not None
        for caravan in self.fleet.caravans.values():
            while self.read(caravan, 500):
                pass
        for receiver in self.receivers:
            receiver.has_room = True
            for _ in range(50):
                if self.fleet.caravan_of(receiver.flow) is not lead:
                    self.board(receiver, lead)
                if self.fleet.caravan_of(receiver.flow) is None:
                    self.open(receiver.flow.marker)
                    catching_up = self.fleet.caravans[self.number]
                    self.board(receiver, catching_up)
                    while self.read(catching_up, 500):
                        pass
                if not self.take(receiver, 1000):
                    break

    async def run(self) -> None:
        """Until every backfill has ended."""
        for _ in range(3000):
            await self.scanner._step()
            self.something(2)
            if self.faults:
                raise self.faults[0]
            if not self.left:
                self.calm()
                if all(receiver.backfill.finished for receiver in self.receivers):
                    break
        else:
            raise AssertionError(f"not finished: {self.scanner.status}")
        self.calm()

    def check(self) -> None:
        """Each copy is what its filter leaves of the source."""
        source = self.tables.all_rows()
        for receiver in self.receivers:
            assert receiver.flow.place == self.source.latest().order
            assert not receiver.backfill.refused
            wanted = _WANTED[receiver.wanted.hash]
            expected = {
                (table, key): row for table, rows in source.items() for key, row in rows.items() if key[0] in wanted
            }
            unread = sum(done.unread for done in receiver.backfill.finished_tables())
            copy = {name: row for name, (row, _) in receiver.copy.rows.items()}
            if unread:
                assert expected.keys() <= copy.keys()
            else:
                assert copy.keys() == expected.keys()
            for name, row in expected.items():
                for column, value in row.items():
                    found = copy[name].get(column)
                    assert found is UNKNOWN or found == value, f"{name}: {column} is {found!r}, not {value!r}"
            assert unread or not receiver.copy.owed, f"never sent: {receiver.copy.owed}"


_RARE = ["kill", "board", "open", "close", "join", "hide", "show", "show", "room", "drop", "interrupt"]


def _round(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(seed)
    monkeypatch.setattr(scanner_module, "wait_at_most", world.pause)
    monkeypatch.setattr(world.fleet, "may_leave", lambda caravan: True)
    try:
        asyncio.run(world.run())
        world.check()
    finally:
        for reader in world.readers.values():
            reader.close()


@examples(60)
@given(seed=st.integers(0, 1 << 32))
def test_every_copy_becomes_the_source(seed: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _round(seed, monkeypatch)
