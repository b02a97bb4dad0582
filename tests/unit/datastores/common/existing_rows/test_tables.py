"""What the tables of every SQL server do alike; over servers: ``tests/contract/test_table_source.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from datastores.common.existing_rows.reading import ChunkReading, KeySql, key_values
from datastores.common.existing_rows.tables import AlteredError, SqlTables
from wormhole.model.errors import SourceUnavailable, UnreadableTable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding, shard_of_hash
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import encode_key
from wormhole.wire.v1 import update_pb2

_PLACE = LogPosition(1, 5, 100)
_MARKER = Datamarker(_PLACE, "1", _PLACE)
_SQL = KeySql(
    lambda columns, key: [str(value.int) for value in key_values(key, len(columns))],
    lambda _, literals: f"above {literals[0]}",
    lambda _, literals: f"up to {literals[0]}",
    lambda _, keys: f"{len([*keys])} keys",
)


class Definition:
    """Of a table with one column."""

    name = "shop.t"
    schema = Schema("shop.t", (), ())
    key = ("id",)
    fingerprint = "f"


class Reading(ChunkReading[Definition]):
    """Brings the rows that a statement asks for, one byte each, of which the table has five."""

    size = 0

    def __init__(self, tables: Tables, limits: ChunkLimits) -> None:
        super().__init__(Definition(), _SQL, self, limits, 0)
        self._tables = tables

    def _take(self, conditions: Sequence[str], asked: int, seconds: float, most: int = 0) -> bool:
        self._tables.statements.append((*conditions, asked))
        begin, there = self.size, min(asked, 5 - len(self.rows))
        for _ in range(there):
            self.rows[encode_key((len(self.rows),))] = b"u"
            self.size += 1
        return self._took(begin, there, asked, 0)


class Tables(SqlTables[str, Definition, Reading]):
    """Of a server that is played. ``altered``: how often a table changes while it is read."""

    _SLOW_HINT = "wait"

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        super().__init__("url", SourceOptions("log", folder, sharding, 1 << 20, 0), "played")
        self.statements: list[tuple[object, ...]] = []
        self.altered = 0

    def _connect(self) -> str:
        return "session"

    def _is_open(self, session: str) -> bool:
        return True

    def _close(self, session: str, at_once: bool) -> None: ...

    @contextmanager
    def _refusing(self, table: str, session: str) -> Iterator[None]:
        yield

    def _definition(self, session: str, table: str) -> Definition:
        return Definition()

    def _read_once(self, session: str, table: str, limits: ChunkLimits, not_before: Datamarker, read: Any) -> Any:
        if self.altered:
            self.altered -= 1
            raise AlteredError
        reading = Reading(self, limits)
        read(reading)
        return reading, _PLACE

    def _skip(self, session: str, definition: Definition, after: bytes | None, rows: int) -> bytes | None:
        raise AlteredError

    def _same_rows(self, definition: Definition, missing: Any, others: Any) -> list[bytes]:
        return []

    def _shard_name(self, table: str) -> str:
        return f"log.{table}"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path, Sharding("hash", 7))


def test_a_chunk_is_asked_for_in_statements(tables: Tables) -> None:
    chunk = tables.chunk("shop.t", None, encode_key((9,)), ChunkLimits(rows=5, bytes=16), _MARKER)
    assert (len(chunk.rows), chunk.last, chunk.done) == (5, encode_key((4,)), False)
    assert tables.statements == [("up to 9", 5)]
    tables.statements.clear()
    chunk = tables.chunk("shop.t", encode_key((1,)), None, ChunkLimits(rows=9), _MARKER)
    assert (tables.statements, chunk.done) == ([("above 1", 9)], True)


def test_many_keys_are_asked_for_some_at_a_time(tables: Tables) -> None:
    assert tables.rows("shop.t", [encode_key((n,)) for n in range(500)], _MARKER).done
    assert tables.statements == [("200 keys", 0), ("200 keys", 0), ("100 keys", 0)]


@pytest.mark.parametrize(("times", "read"), [(2, True), (3, False)])
def test_a_table_that_is_altered_is_read_again(tables: Tables, times: int, read: bool) -> None:
    tables.altered = times
    if read:
        assert tables.chunk("shop.t", None, None, ChunkLimits(), _MARKER).done
    else:
        with pytest.raises(SourceUnavailable, match="is altered again and again"):
            tables.chunk("shop.t", None, None, ChunkLimits(), _MARKER)
    with pytest.raises(SourceUnavailable, match="is being altered"):
        tables.skip("shop.t", None, 1)


def test_only_a_later_place_of_the_same_incarnation_reaches_a_chunk(tables: Tables) -> None:
    for place, expected in (((1, 5, 100), True), ((1, 5, 99), False), ((1, 6, 0), True), ((2, 9, 9), False)):
        order = LogPosition(*place)
        assert tables.reached(str(_PLACE), Datamarker(order, "1", order)) is expected


@pytest.mark.parametrize("key", [(5,), (b"bytes",), ("text",), (b"a", -5)])
def test_the_shard_of_a_key(tables: Tables, tmp_path: Path, key: tuple[Any, ...]) -> None:
    """`tests/unit/datastores/mysql/decode/test_rows.py` has the same rule of the log's rows."""
    encoded = encode_key(key)
    values = update_pb2.RowKey.FromString(encoded).values
    hashed = key[0] if key == (b"bytes",) else b"".join(value.SerializeToString() for value in values)
    assert tables.shard_of("shop.t", encoded) == shard_of_hash("log", hashed, 7)
    assert Tables(tmp_path, Sharding("table")).shard_of("shop.t", encoded) == "log.shop.t"


@pytest.mark.parametrize("key", [b"\xff", encode_key((1, 2)), b""])
def test_what_is_no_key_of_the_table(tables: Tables, key: bytes) -> None:
    with pytest.raises(UnreadableTable, match="none of the table's as it is now"):
        tables.chunk("shop.t", key, None, ChunkLimits(), _MARKER)
