"""The fold of rows that were read, each as of a place of its own, and of changes: exact at its end. Without Spark.

A chunk shows its rows at some place at or after its ``not_before``. The rows are folded as if a backfill had read them
at ``not_before``, so that changes between both are applied to rows that show them already.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pytest

from spark_replay.archive.columns import place_bytes, read_place
from spark_replay.baseline.rows import split_moves
from spark_replay.images import read_row
from spark_replay.selected import PLAIN
from spark_replay.tables.versions import Barriers, EndedVersion, RowChange, versions
from tests.support.seed import SEED
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import encode_key, encode_row, values_of

ID = Column("id", "int")
NAMES = ("a", "b", "c")
SCHEMA = Schema("t", (ID,), (ID, *(Column(name, "text") for name in NAMES)))
KEYS = 8
ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "0")) * 20

Table = dict[int, tuple[Value, ...]]


def at(number: int) -> LogPosition:
    """The place after transaction ``number``."""
    return LogPosition(1, 1, 100 * number)


@dataclass
class Server:
    """``states``: the table after each transaction; ``log``: the archive rows of these, from number 1 on."""

    choice: random.Random
    states: list[Table] = field(default_factory=list)
    log: list[dict[str, object]] = field(default_factory=list)
    ended: list[EndedVersion] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states.append({key: (key, *self.values()) for key in range(KEYS) if self.choice.random() < 0.6})

    def values(self) -> tuple[Value, ...]:
        return tuple(self.choice.choice(["x", "y", "z", None]) for _ in NAMES)

    def logged(self, row: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """What the log has of new values, and which values are written."""
        part = self.choice.random() < 0.5
        return tuple(UNAVAILABLE if part and self.choice.random() < 0.6 else value for value in row), row

    def run(self, transactions: int) -> None:
        for number in range(1, transactions + 1):
            rows = dict(self.states[-1])
            for index in range(self.choice.randrange(1, 3)):
                self.change(rows, number, index)
            self.states.append(rows)

    def change(self, rows: Table, number: int, index: int) -> None:
        choice = self.choice
        free = [key for key in range(KEYS) if key not in rows]
        chance = choice.random()
        if not rows or (free and chance < 0.3):
            key = choice.choice(free)
            known, rows_values = self.logged(self.values())
            rows[key] = (key, *rows_values)
            self.add(Op.INSERT, number, index, key, (key, *known))
            return
        key = choice.choice(sorted(rows))
        row = rows.pop(key)
        if chance < 0.5:
            self.add(Op.DELETE, number, index, key)
            return
        if chance < 0.53:
            rows.clear()
            self.ended.append(EndedVersion(place_bytes(at(number), False, index), None, Op.TRUNCATE.value))
            return
        to = choice.choice(free) if free and chance < 0.75 else key
        known, _ = self.logged(self.values())
        rows[to] = (to, *(old if new is UNAVAILABLE else new for old, new in zip(row[1:], known, strict=True)))
        self.add(Op.UPDATE, number, index, to, (to, *known), key if to != key else None)

    def add(
        self, op: Op, number: int, index: int, key: int, after: tuple[Value, ...] = (), old: int | None = None
    ) -> None:
        update = encode_row(op, (key,), after=after, old_key=() if old is None else (old,))
        self.log.append(
            archive_row(
                place_bytes(at(number), False, index),
                op,
                key,
                update,
                partial=UNAVAILABLE in after,
                old_key=None if old is None else encode_key((old,)),
            )
        )

    def read(self, number: int, first: int, end: int, count: int) -> Iterator[dict[str, object]]:
        """The rows of a chunk that shows ``number``, as of a ``not_before`` some transactions before that."""
        not_before = self.choice.randrange(max(0, number - 4), number + 1)
        for key, row in self.states[number].items():
            if first <= key < end:
                update = encode_row(Op.READ, (key,), after=row)
                yield archive_row(read_place(at(not_before), count + key), Op.READ, key, update)


def archive_row(
    place: bytes, op: Op, key: int, update: bytes, *, partial: bool = False, old_key: bytes | None = None
) -> dict[str, object]:
    given = dict.fromkeys(PLAIN.names)
    rest = {"place": place, "op": op.value, "key": encode_key((key,)), "old_key": old_key, "update": update}
    return {**given, **rest, "schema_id": 0, "tx_index": 0, "partial": partial, "ends_tx": True, "shard": "s"}


def folded(rows: list[dict[str, object]], ended: list[EndedVersion]) -> dict[int, tuple[Value, ...]]:
    """As :func:`spark_replay.tables.history.version_rows` does."""
    moves = [row for row in rows if row["old_key"] is not None and row["partial"]]
    others = [row for row in rows if not (row["old_key"] is not None and row["partial"])]
    batches = [pa.RecordBatch.from_pylist(moves, schema=PLAIN)] if moves else []
    every = others + [row for batch in split_moves(batches) for row in batch.to_pylist()]
    groups: dict[bytes, list[RowChange]] = {}
    for row in every:
        given = (row["key"], row["old_key"], 0, row["partial"], row["update"])
        groups.setdefault(row["key"], []).append(RowChange(row["place"], None, row["op"], *given))
        if row["old_key"] is not None:
            groups.setdefault(row["old_key"], []).append(RowChange(row["place"], None, row["op"], *given, left=True))
    barriers = Barriers(sorted(ended, key=lambda one: one.place))
    found = {}
    for changes in groups.values():
        changes.sort(key=lambda one: one.place)
        for version in versions(changes, barriers, lambda _: SCHEMA, from_first=True):
            if version.ended is None:
                row = read_row(version.update)
                (key,) = values_of(row.key)
                assert isinstance(key, int)
                found[key] = values_of(row.after) or (UNAVAILABLE,) * len(SCHEMA.columns)
    return found


def check_round(seed: int) -> int:
    """How many rows lack values."""
    choice = random.Random(seed)
    server = Server(choice)
    server.run(choice.randrange(1, 25))
    last = len(server.states) - 1
    rows = list(server.log)
    bounds = sorted({0, KEYS, *(choice.randrange(KEYS) for _ in range(2))})
    for first, end in pairwise(bounds):
        rows += server.read(choice.randrange(last + 1), first, end, 0)
    found = folded(rows, server.ended)
    wanted = server.states[last]
    assert found.keys() == wanted.keys()
    lacking = 0
    for key, row in found.items():
        for value, right in zip(row, wanted[key], strict=True):
            assert value is UNAVAILABLE or value == right, (key, row, wanted[key])
        lacking += UNAVAILABLE in row
    # What lacks values is read again, by its key, at a place behind all others.
    again = [key for key, row in found.items() if UNAVAILABLE in row]
    rows += [one for key in again for one in server.read(last, key, key + 1, 100) if one["key"] == encode_key((key,))]
    if all(row["place"][:20] == at(last).to_bytes() for row in rows[len(rows) - len(again) :]):  # type: ignore[index]
        assert folded(rows, server.ended) == wanted
    return lacking


def test_rows_and_changes_are_the_table_at_the_end() -> None:
    lacking = [check_round(seed) for seed in range(400)]
    assert 0 < sum(lacking) < 400 * KEYS / 2


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_they_are_for_every_schedule(round_: int) -> None:
    check_round(SEED + round_)
