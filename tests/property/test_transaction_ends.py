"""The same log read with other segment sizes, shardings, filters and changes of reader: each update is told the same.

What is compared: the order, the index, the transaction, its commit time, and where it ends. And transactions that the
database rolled back after a part of them was delivered: the flow is told so whoever reads, and then gets everything
else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from caravan.buffer import ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState
from datastores.mysql.decode import events
from datastores.mysql.log.dump import Dump
from datastores.mysql.log.reader import BinlogReader
from tests.support import mysql_events as build
from tests.support.mysql_dump import TORN, Scripted, format_description, insert, refuse, rotate, table
from tests.support.present import present
from tests.support.seed import examples
from wormhole.filters import Filter
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.wire.body import parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.update import Batch

START = Datamarker(LogPosition(1, 3, 4), "", LogPosition(1, 3, 4))
SHARDINGS = (Sharding("log"), Sharding("hash", 2), Sharding("hash", 5))

logging.getLogger("datastores.mysql.log.walk").setLevel(
    logging.ERROR
)  # one warning for each transaction that is not whole

Told = tuple[str, str, bool, object]


def beginning(name: str = "binlog.000003") -> build.Stream:
    stream = build.Stream(offset=4)
    rotate(stream, name, 4)
    format_description(stream)
    return stream


def begin(stream: build.Stream, number: int, mariadb: bool) -> None:
    if mariadb:  # written at the commit, which is later than the rows
        stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, number, events.FL_TRANSACTIONAL), timestamp=1_700_000_900)
    else:
        stream.add(build.GTID, build.gtid(build.UUID, number), timestamp=1_700_000_900)
        stream.add(build.QUERY, build.query("BEGIN"))


class Reading:
    """The files as a reader with segments of ``max_bytes`` hands them on."""

    def __init__(
        self, folder: Path, files: list[build.Stream], sharding: Sharding, max_bytes: int, mariadb: bool
    ) -> None:
        first, *rest = files
        scripted = Scripted(folder, first, sharding=sharding, mariadb=mariadb)
        self.dump = scripted.dump
        if rest:
            self.dump.feed(refuse(TORN))
            scripted.next_files[3] = ("binlog.000004", rest[0])
        self._max_bytes = max_bytes
        self._reader = BinlogReader(
            cast(Dump, scripted.dump), scripted.encoder, scripted.walk, scripted.tables, scripted.prepared,
            scripted.delivered, START, placed=True, passed=lambda marker: None, closed=lambda: None,
            confirmed=lambda error, since: error,
        )  # fmt: skip
        self.buffer = ChangeBuffer(START.order)
        self.schemas: dict[int, Schema] = {}
        self.shards: set[str] = set()

    def read(self) -> bool:
        segment = self._reader.read(self._max_bytes, 0.0)
        if segment is None:
            return False
        for shard, run in segment.runs.items():
            self.shards.add(shard)
            self.schemas.update((schema.id, schema) for schema in run.schemas)
        self.buffer.append(segment)
        return True


@dataclass
class Taken:
    """What an application heard: of each epoch the updates, in order."""

    told: list[Told] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    _endings: Endings = field(default_factory=Endings)
    _acknowledged: int = 0

    def take(self, flow: CaravanFlow, reading: Reading) -> bool:
        """Go on with the flow as a stream does; whether it can."""
        piece = flow.peek()
        if piece is None:
            return False
        if piece.undone:
            self.rolled_back.append(piece.undone)
            del self.told[self._acknowledged :]
            return False
        if piece.body is not None:
            body = parse_body(self._endings.pass_on(piece.body.data, unfinished=piece.body.unfinished))
            for one in Batch(body, flow.shard, 1, False, reading.schemas.__getitem__).updates():
                self.told.append((one.id, one.transaction.id, one.ends_transaction, one.committed_at))
        flow.take()
        if piece.marker is not None:
            self._acknowledged = len(self.told)
        return True


def followed(readings: list[Reading], shard: str, wanted: Filter, changes: Iterator[int]) -> Taken:
    """A flow that changes its reader after each number of pieces that ``changes`` gives."""
    taken = Taken()
    marker = START
    while True:
        flow = CaravanFlow("app", shard, wanted, marker, 1, lambda: None)
        at, left = 0, next(changes)
        for reading in readings:
            if not reading.buffer.end:
                while reading.read():
                    pass
        cursor = present(readings[0].buffer.join(flow.place))
        flow.board(readings[0].buffer, cursor)
        while taken.take(flow, readings[at]):
            left -= 1
            if left == 0:
                flow.leave(CaravanFlowState.WAITING, "left behind")
                at, left = (at + 1) % len(readings), next(changes)
                cursor = present(readings[at].buffer.join(flow.place))
                flow.board(readings[at].buffer, cursor)
        if not taken.rolled_back or taken.rolled_back[-1] == "seen":
            return taken
        marker = flow.marker
        taken.rolled_back.append("seen")
        taken._endings = Endings()


transactions = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=6), min_size=1, max_size=4)
sizes = st.lists(st.sampled_from((1, 60, 150, 400, 1 << 20)), min_size=1, max_size=3)


def log_of(transactions: list[list[int]], stream: build.Stream, mariadb: bool, number: int = 1) -> None:
    key = 1000 * number
    for rows in transactions:
        parts = []
        for count in rows:
            parts.append(insert(*range(key, key + count)))
            key += count
        begin(stream, number, mariadb)
        for at, (kind, body) in enumerate((table(), *parts)):
            stream.add(kind, body, timestamp=1_700_000_000 + at)
        stream.add(build.XID, bytes(8), timestamp=1_700_000_900)
        number += 1


@examples(60)
@given(
    transactions,
    sizes,
    st.sampled_from(SHARDINGS),
    st.sampled_from(("", "id < 1003", "id > 2001")),
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.booleans(),
)
def test_each_update_is_reported_the_same_however_the_log_is_read(
    given_transactions: list[list[int]],
    max_bytes: list[int],
    sharding: Sharding,
    where: str,
    changes: list[int],
    mariadb: bool,
) -> None:
    stream = beginning()
    log_of(given_transactions, stream, mariadb)
    wanted = Filter.parse(where or None)
    with TemporaryDirectory() as folder:
        whole = Reading(Path(folder), [stream], sharding, 1 << 20, mariadb)
        while whole.read():
            pass
        readings = [Reading(Path(folder), [stream], sharding, size, mariadb) for size in max_bytes]
        for shard in sorted(whole.shards):
            expected = followed([whole], shard, wanted, iter([1 << 30]))
            after = iter([*changes, *([1 << 30] * 99)])
            taken = followed(readings, shard, wanted, after)
            assert taken.told == expected.told
            assert not taken.rolled_back
            last = {transaction: id_ for id_, transaction, _, _ in expected.told}
            assert [id_ for id_, _, ends, _ in taken.told if ends] == list(last.values())


@examples(60)
@given(
    transactions,
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    transactions,
    sizes,
    st.sampled_from(SHARDINGS),
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_what_a_server_never_finished_is_taken_back_and_the_rest_is_right(
    before: list[list[int]],
    torn: list[int],
    after: list[list[int]],
    max_bytes: list[int],
    sharding: Sharding,
    changes: list[int],
    same_number: bool,
    mariadb: bool,
) -> None:
    first, second = beginning(), beginning("binlog.000004")
    log_of(before, first, mariadb)
    broken = len(before) + 1
    begin(first, broken, mariadb)
    for kind, body in (table(), *(insert(*range(90_000 + 10 * i, 90_000 + 10 * i + n)) for i, n in enumerate(torn))):
        first.add(kind, body)
    log_of(after, second, mariadb, broken if same_number else broken + 1)
    clean = beginning()
    log_of(before, clean, mariadb)
    with TemporaryDirectory() as folder:
        expected: dict[str, list[Told]] = {}
        for files in ([clean], [second]):
            reading = Reading(Path(folder), files, sharding, 1 << 20, mariadb)
            while reading.read():
                pass
            for shard in reading.shards:
                expected.setdefault(shard, []).extend(
                    followed([reading], shard, Filter.parse(None), iter([1 << 30])).told
                )
        readings = [Reading(Path(folder), [first, second], sharding, size, mariadb) for size in max_bytes]
        for shard, told in expected.items():
            taken = followed(readings, shard, Filter.parse(None), iter([*changes, *([1 << 30] * 99)]))
            assert taken.told == told, taken.rolled_back
            assert len(taken.rolled_back) <= 2
