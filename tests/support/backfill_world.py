"""The model of a backfill as a whole: the real reader of rows, fleet, caravans and flows, and a script that runs them.

Nothing runs by itself. The script decides what happens at every point where something may: before and after each call
to the datastore, between a snapshot and its first row, and whenever the reader of rows waits. It commits and alters
tables, reads the log with any caravan, hands pieces on, makes commits visible late, kills flows back to a stored
datamarker, changes their filters, lets applications join, opens and closes caravans. Each seed prefers events and
changes of its own, since a schedule that breaks something needs several of one kind.

Each chunk is compared with the source at the very place where it enters; at the end, each copy with the source.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from caravan.backfill.boundaries import MemoryBoundaries
from caravan.backfill.progress import BackfillRequest
from caravan.caravan import Caravan
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.flow import CaravanFlowState, Piece
from caravan.scan.scanner import Scanner, ScanSettings
from datastores.memory.tables import key_order
from tests.support.random_tables import IDS, TABLES, Key, RandomTables
from tests.support.rows_received import NEVER_SENT, UNKNOWN, Receiver
from wormhole.filters import Filter
from wormhole.host.clock import Clock
from wormhole.model.position import Datamarker
from wormhole.model.segment import ChunkRange
from wormhole.model.sharding import Sharding
from wormhole.model.values import Value
from wormhole.ports.log_source import LogReader
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.body import parse_body
from wormhole.wire.rows import decode_key
from wormhole.wire.update import Batch

_FILTERS: Final = [
    (Filter.parse(None), set(IDS)),
    (Filter.parse("id in (0, 2, 4, 6, 8)"), {0, 2, 4, 6, 8}),
    (Filter.parse("id in (0, 1, 2, 3)"), {0, 1, 2, 3}),
]
_WANTED: Final = {chosen.hash: ids for chosen, ids in _FILTERS}
_SHARDING: Final = [Sharding("log"), Sharding("log"), Sharding("hash", 2), Sharding("table")]
_USUAL: Final = ["commit"] * 4 + ["follow"] * 3 + ["read"] * 6 + ["take"] * 6 + ["store"] * 3 + ["show"] * 2
_RARE: Final = [
    *("alter", "board", "close", "drop", "filter", "hide", "interrupt", "join", "join ahead", "join ahead", "kill"),
    *("open", "overtake", "overtake", "partial", "partial", "room"),
]
_MOST_CARAVANS: Final = 3
_MOST_RECEIVERS: Final = 5
_T = TypeVar("_T")


def _by_last_digit(key: Key) -> Any:
    """An order that only the datastore has."""
    return tuple(7 * int(value) % 11 for value in key if isinstance(value, int))


class _Scanner(Scanner):
    """Calls happen where the script is at; nothing waits."""

    world: BackfillWorld

    async def _call(self, function: Callable[..., _T], *arguments: object) -> _T:
        await asyncio.sleep(0)
        self.world.something(2)
        result = function(*arguments)
        self.world.something(2)
        return result


class BackfillWorld:
    """One round. ``fleet`` may leave flows behind; :meth:`pause` stands for waiting."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random
        self.left = chance.randrange(20, 160)
        """Steps of the script that are left."""
        # A new generation sends everything again, which hides what went wrong before.
        rare = [event for event in _RARE if chance.random() < (0.2 if event in ("alter", "filter") else 0.6)]
        self.events = [*_USUAL, *rare]
        for favourite in chance.sample(self.events, 2):
            self.events += [favourite] * 4
        self.stores_copies = chance.random() < 0.7
        """Applications store their copies with the datamarker; otherwise a killed one gets changes twice, and those
        that are about the former values of a row would have another meaning then.
        """
        self.order = chance.choice([key_order, _by_last_digit])
        self.sharding = chance.choice(_SHARDING)
        self.store = RandomTables(chance, self.sharding, self.order, replayable=not self.stores_copies)
        self.source, self.tables = self.store.source, self.store.tables
        self.tables.on_snapshot = lambda: self.something(3)
        self.now = 0.0
        clock = Clock(monotonic=lambda: self.now)
        self.fleet = Fleet(
            self.source,
            Limits(read_bytes=200, buffer_bytes=1 << 20),
            FleetEvents(lambda *_: None, lambda *_: None),
            lambda: 0.0,
            clock=clock,
        )
        limits = ChunkLimits(rows=chance.choice([1, 1, 2, 3, 100]))
        settings = ScanSettings(limits=limits, memory=chance.choice([600, 1 << 20]))
        self.scanner = _Scanner(self.fleet, self.tables, MemoryBoundaries(), settings, clock=clock)
        self.scanner.world = self
        self.fleet.rows_watch = self.scanner
        self.readers: dict[int, LogReader] = {}
        self.number = 0
        self.receivers: list[Receiver] = []
        self.busy = False
        self.faults: list[Exception] = []
        self.open(self.store.markers[-1])
        self.join(chance.choice(self.store.markers))

    # -- the publisher

    def open(self, marker: Datamarker) -> Caravan:
        """A caravan at a place of the log."""
        self.number += 1
        reader = self.source.open(marker)
        self.readers[self.number] = reader
        caravan = self.fleet.caravans[self.number] = Caravan(self.number, marker, reader, self.fleet, 0.0, "the script")
        return caravan

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

    def join(self, marker: Datamarker) -> None:
        """Another application, whose copy has rows of long ago."""
        chance = self.random
        wanted, ids = chance.choice(_FILTERS)
        shard = chance.choice(self.store.shards)
        tables = (shard.removeprefix("log."),) if self.sharding.by == "table" else ()
        receiver = Receiver(shard, marker, self.order, wanted, BackfillRequest(1, tables))
        for id_ in ids:
            if chance.random() < 0.3:
                receiver.copy.rows[(tables or TABLES)[0], (id_,)] = {"v": -1, "a": -1}, 0
        if self.stores_copies:
            receiver.store()
        self.receivers.append(receiver)
        self.fleet.add(receiver.flow)
        self.board(receiver)

    def restart(self, receiver: Receiver, begin: Callable[[], object]) -> None:
        """The flow begins its next epoch where its datamarker was stored."""
        self.fleet.remove(receiver.flow)
        begin()
        self.fleet.add(receiver.flow)
        self.board(receiver)

    def acknowledge(self, receiver: Receiver) -> None:
        """The flow's datamarker is stored, and its copy with it if the application does that."""
        if self.stores_copies:
            receiver.store()
        else:
            receiver.stored = receiver.flow.marker

    def begin_anew(self, receiver: Receiver, wanted: Filter) -> None:
        """The flow's filter changes, or an operator starts another backfill: a new generation."""
        self.restart(receiver, lambda: receiver.begin_anew(wanted))

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
                self._check_copy(receiver, piece.chunk, before - set(receiver.copy.rows))
            count += 1
        if count:
            self.fleet.moved(receiver.flow)
        return count

    # -- what has to be true on the way

    def _check(self, receiver: Receiver, piece: Piece) -> None:
        """Rows of a chunk are those of the source where it enters, and every other key of its range is left out."""
        chunk, marker = piece.chunk, piece.marker
        if chunk is None or marker is None or self._has_former_key(chunk, marker):
            return
        rows = self._rows_of(receiver, chunk, marker)
        sent = _sent(receiver, piece)
        for key, row in sent.items():
            assert key in rows, f"{key} was deleted before {marker}"
            wrong = {name: value for name, value in (row or {}).items() if rows[key].get(name, value) != value}
            assert not wrong, f"{key} at {marker}: {wrong}, not {rows[key]}"
        wanted = _WANTED[receiver.wanted.hash]
        left_out = set(map(decode_key, chunk.left_out))
        for key in self._inside(chunk, rows):
            assert key in sent or key in left_out or key[0] not in wanted, f"{key} is missing"

    def _has_former_key(self, chunk: ChunkRange, marker: Datamarker) -> bool:
        """Whether the table has another key at that place: then it begins again."""
        rekeyed = self.store.rekeyed.get(chunk.table)
        return rekeyed is not None and (len(chunk.schema.key) > 1) is not (marker.order >= rekeyed.order)

    def _rows_of(self, receiver: Receiver, chunk: ChunkRange, marker: Datamarker) -> dict[Key, dict[str, Value]]:
        source = self.store.rows(receiver.shard, marker)
        return {key: row for (table, key), row in source.items() if table == chunk.table}

    def _inside(self, chunk: ChunkRange, rows: dict[Key, dict[str, Value]]) -> set[Key]:
        if chunk.alone:
            return set(map(decode_key, chunk.alone)) & rows.keys()
        low = None if chunk.after is None else self.order(decode_key(chunk.after))
        high = None if chunk.until is None else self.order(decode_key(chunk.until))
        return {
            key for key in rows if (low is None or self.order(key) > low) and (high is None or self.order(key) <= high)
        }

    def _check_copy(self, receiver: Receiver, chunk: ChunkRange, deleted: set[tuple[str, Key]]) -> None:
        """The copy has every row of the range as the source has it there, but for those that are read again."""
        marker, wanted = receiver.flow.marker, _WANTED[receiver.wanted.hash]
        source = self.store.rows(receiver.shard, marker)
        for name in deleted:
            assert name not in source or name[1][0] not in wanted, f"{name} is there and was deleted"
        if self._has_former_key(chunk, marker):
            return
        again = set(map(decode_key, chunk.again))
        rows = self._rows_of(receiver, chunk, marker)
        for key in self._inside(chunk, rows):
            if key[0] not in wanted:
                continue
            assert (chunk.table, key) in receiver.copy.rows, f"{key} of {chunk.table} is not in the copy"
            if self.stores_copies and key not in again:  # another copy may be ahead of its flow
                copy, _ = receiver.copy.rows[chunk.table, key]
                wrong = {name: copy.get(name) for name, value in rows[key].items() if copy.get(name) != value}
                assert all(value is UNKNOWN for value in wrong.values()), f"{key} is {wrong}, not {rows[key]}"

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
        match chance.choice(self.events):
            case "commit":
                self.store.commit()
            case "alter":
                self.store.alter()
            case "partial":
                self.store.commit_partial()
            case "follow":
                chance.choice([self.store.commit, self.store.commit_partial])()
                self.follow()
            case "read":
                self.read(caravan, chance.choice([1, 50, 500]))
            case "take":
                self.take(receiver, chance.randrange(1, 4))
            case "store":
                if not receiver.flow.inside:
                    self.acknowledge(receiver)
            case "kill":
                self.restart(receiver, receiver.restart)
            case "filter":
                self.begin_anew(receiver, chance.choice(_FILTERS)[0])
            case "board":
                self.board(receiver, caravan)
            case "open":
                if len(self.fleet.caravans) < _MOST_CARAVANS:
                    self.open(chance.choice(self.store.markers))
            case "close":
                if len(self.fleet.caravans) > 1 and not caravan.appends.locked():
                    self.close(caravan)
            case "overtake":
                if not receiver.flow.inside and len(self.fleet.caravans) < _MOST_CARAVANS:
                    self.overtake(receiver)
            case "join":
                if len(self.receivers) < _MOST_RECEIVERS:
                    self.join(chance.choice(self.store.markers))
            case "join ahead":
                if len(self.receivers) < _MOST_RECEIVERS:
                    self.join_ahead()
            case "hide":
                self.tables.visible = chance.choice(self.store.markers[-4:])
            case "show":
                self.tables.visible = None
            case "room":
                receiver.has_room = not receiver.has_room
            case "drop":
                if caravan.buffer.first < caravan.buffer.end:
                    caravan.trim(caravan.buffer.size - 1)
            case _:
                self.tables.interrupt()

    @property
    def lead(self) -> Caravan:
        """The caravan furthest ahead."""
        lead = self.fleet.lead
        assert lead is not None
        return lead

    def follow(self) -> None:
        """The lead reads the log to its end."""
        while self.read(self.lead, 500):
            pass

    def commit_unseen(self) -> None:
        """Commits that the lead has not read, and that no snapshot shows yet."""
        self.tables.visible = self.lead.marker
        for _ in range(self.random.randrange(2, 6)):
            self.store.commit()

    def overtake(self, receiver: Receiver) -> None:
        """A caravan takes the flow ahead of the lead, and ends there."""
        self.commit_unseen()
        ahead = self.open(receiver.flow.marker)
        self.board(receiver, ahead)
        while self.read(ahead, 500):
            pass
        self.take(receiver, self.random.choice([2, 1000]))
        self.close(ahead)
        self.board(receiver)

    def join_ahead(self) -> None:
        """Two applications join, one where the lead is, the other at the end of the log."""
        self.join(self.lead.marker)
        self.commit_unseen()
        self.join(self.store.markers[-1])

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        """The reader of rows waits."""
        del event
        self.now += seconds
        self.something(4)
        if not self.left:
            self.calm()
        await asyncio.sleep(0)

    def calm(self) -> None:
        """Nothing is committed any more, and everybody goes on."""
        self.tables.visible = None
        lead = self.lead
        for caravan in self.fleet.caravans.values():
            while self.read(caravan, 500):
                pass
        for receiver in self.receivers:
            receiver.has_room = True
            for _ in range(50):
                if self.fleet.caravan_of(receiver.flow) is not lead:
                    self.board(receiver, lead)
                if self.fleet.caravan_of(receiver.flow) is None:
                    catching_up = self.open(receiver.flow.marker)
                    self.board(receiver, catching_up)
                    while self.read(catching_up, 500):
                        pass
                if not self.take(receiver, 1000):
                    break

    async def run(self) -> None:
        """Until every backfill has ended."""
        # Rows of a former key stay in a copy until a backfill that begins behind the ALTER.
        once_more = True
        for _ in range(4000):
            await self.scanner._step()
            self.something(2)
            if self.faults:
                raise self.faults[0]
            if not self.left:
                self.calm()
                if once_more and self.store.rekeyed:
                    for receiver in self.receivers:
                        self.acknowledge(receiver)
                        self.begin_anew(receiver, receiver.wanted)
                    self.calm()
                once_more = False
                if all(receiver.backfill.finished for receiver in self.receivers):
                    break
        else:
            raise AssertionError(f"not finished: {self.scanner.status}")
        self.calm()

    def check(self) -> None:
        """Each copy is what its filter leaves of the source."""
        for receiver in self.receivers:
            assert receiver.flow.place == self.source.latest().order
            assert not receiver.backfill.refused
            wanted = _WANTED[receiver.wanted.hash]
            rows = self.store.rows(receiver.shard)
            expected = {name: row for name, row in rows.items() if name[1][0] in wanted}
            unread = sum(done.unread for done in receiver.backfill.finished_tables())
            copy = {name: row for name, (row, _) in receiver.copy.rows.items()}
            if unread:
                assert expected.keys() <= copy.keys()
            else:
                assert copy.keys() == expected.keys(), (
                    f"{copy.keys() - expected.keys()}, {expected.keys() - copy.keys()}"
                )
            for name, row in expected.items():
                for column, value in row.items():
                    found = copy[name].get(column)
                    known = found is UNKNOWN or found == value or (unread and found is NEVER_SENT)
                    assert known, f"{name}: {column} is {found!r}, not {value!r}"
            assert unread or not receiver.copy.owed, f"never sent: {receiver.copy.owed}"


def _sent(receiver: Receiver, piece: Piece) -> dict[Key, Any]:
    """The rows of a chunk by key; ``None`` for one that is too large."""
    if piece.body is None:
        return {}
    schemas = {schema.id: schema for schema in piece.body.schemas}
    batch = Batch(parse_body(piece.body.data), receiver.shard, 1, False, schemas.__getitem__)
    return {update.key: None if update.too_large else update.after for update in batch.updates()}
