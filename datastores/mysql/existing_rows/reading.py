"""Reads a chunk of a table's rows with several SELECTs in one snapshot, until the chunk's limits are reached.

It also finds the key a given number of rows further along the index, by which a table is divided into ranges."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from datastores.common.existing_rows.reading import ChunkReading
from datastores.mysql.existing_rows.definition import Definition
from datastores.mysql.existing_rows.exact_keys import is_exact
from datastores.mysql.existing_rows.key_order import KEY_SQL, above, order_by
from datastores.mysql.existing_rows.result_rows import ResultRows, Row, rows_of
from datastores.mysql.existing_rows.snapshot import Snapshots
from datastores.mysql.existing_rows.values import RowEncoder
from datastores.mysql.server.connection import bound, server_text
from datastores.mysql.sql_text import quoted, sql_name
from wormhole.model.errors import SourceUnavailable, UnreadableTable
from wormhole.ports.table_source import ChunkLimits

__all__ = ["TIMEOUTS", "Reading", "key_behind", "select"]

TIMEOUTS: Final = frozenset({1969, 3024})
"""The errors of a SELECT that exceeded its timeout."""
_GRACE_S: Final = 5.0  # seconds after the timeout in which the server must end a statement
_SLACK: Final = 4


def select(definition: Definition, conditions: Sequence[str], most: int, limit: int) -> str:
    """The SELECT of the rows that meet all conditions, in the order of the key. ``limit``: the most rows; 0: all.

    Values of long columns are left out if together they exceed ``most`` bytes. With long columns a last column shows
    whether values were left out.
    """
    asked = list(definition.asked)
    if definition.long:
        total = " + ".join(f"COALESCE(OCTET_LENGTH({name}), 0)" for name in definition.long)
        fits = f"{total} <= {most}"
        asked = [f"IF({fits}, {text}, NULL)" if text in definition.long else text for text in asked]
        asked.append(f"NOT ({fits})")
    listed = definition.listed
    parts = [
        f"SELECT {', '.join(asked)}",
        f"FROM {sql_name(listed.database, listed.table)} FORCE INDEX ({quoted(definition.index)})",
        f"WHERE {' AND '.join(conditions)}" if conditions else "",
        f"ORDER BY {order_by(definition.key)}",
        f"LIMIT {limit}" if limit else "",
    ]
    return " ".join(filter(None, parts))


class Reading(ChunkReading[Definition]):
    """Reads through ``connection``. ``raw_keys``: the server's bytes of keys whose text is ambiguous. ``most``: the
    most bytes of values in an update."""

    def __init__(
        self,
        connection: Connection[Any],
        snapshots: Snapshots,
        definition: Definition,
        most: int,
        limits: ChunkLimits,
        row_bytes: int,
    ) -> None:
        self._encoder = RowEncoder(definition.entries, definition.key_positions, most, bool(definition.long))
        super().__init__(definition, KEY_SQL, self._encoder, limits, row_bytes)
        self.raw_keys: dict[bytes, Row] = {}
        self._connection = connection
        self._snapshots = snapshots
        self._most = most
        self._coded = any(definition.coded_key)

    def _may_go_on(self, key: bytes) -> bool:
        return is_exact(self._connection, self.definition, key, self.raw_keys.get(key))

    def _take(self, conditions: Sequence[str], asked: int, seconds: float, most: int = sys.maxsize) -> bool:
        sql = self._snapshots.timed(select(self.definition, conditions, self._most, asked), max(seconds, 0.001))
        bound(self._connection, self.limits.seconds + _GRACE_S, _SLACK * (self.limits.bytes + self._most))
        got, dropped, begin = 0, 0, self._encoder.size
        try:
            rows = rows_of(self._connection, sql)
            while block := rows.take():
                taken = self._add(block, self.limits.bytes if asked else sys.maxsize)
                got += taken
                if self._encoder.size >= self.limits.bytes and asked:
                    dropped = len(block) - taken + self._drain(rows)
                    break
        except pymysql.MySQLError as error:
            if server_text(error)[0] not in TIMEOUTS:
                raise
            self.timed_out = True
        return self._took(begin, got, asked, dropped)

    def _add(self, block: list[Row], room: int) -> int:
        """Encode rows until they take ``room`` bytes of updates. Returns the number of encoded rows."""
        try:
            return self._encoder.add(block, self.rows, self.raw_keys if self._coded else None, room)
        except (ValueError, LookupError, OverflowError) as error:
            raise UnreadableTable(
                f"{self.definition.name}: the server sends what is no value of its column ({error!s:.200})",
                hint="report this, with the table's definition",
            ) from error

    def _drain(self, rows: ResultRows) -> int:
        """Skip the rows after a full chunk while that is cheap. Returns the number of skipped rows."""
        room = self.limits.bytes
        dropped = 0
        while block := rows.take():
            dropped += len(block)
            room -= sum(len(value) for row in block for value in row if value is not None)
            if room < 0:
                self.cut = True
                break
        return dropped


_SKIP_S: Final = 2.0

_SKIP_BYTES: Final = 1 << 20  # the most bytes of an answer with a few keys
_NEIGHBOURS: Final = 8  # the number of keys read, of which one must be exact


def key_behind(
    connection: Connection[Any], snapshots: Snapshots, definition: Definition, after: Sequence[str] | None, rows: int
) -> bytes | None:
    """The key ``rows`` rows after ``after`` (literals), or a nearer key if the server takes too long to count that far.
    ``None``: fewer rows follow, or no chunk may begin after the keys found.

    Raises :class:`~wormhole.model.errors.WormholeError`, and the driver's errors.
    """
    while True:
        sql = _select_key(definition, after, rows - 1)
        bound(connection, _SKIP_S + _GRACE_S, _SKIP_BYTES)
        try:
            answer = rows_of(connection, snapshots.timed(sql, _SKIP_S))
            found = list(chain.from_iterable(iter(answer.take, [])))
        except pymysql.MySQLError as error:
            if server_text(error)[0] not in TIMEOUTS:
                raise
            if rows == 1:
                raise SourceUnavailable(
                    f"{definition.name}: the server found no key within {_SKIP_S:g} s and ended the query",
                    hint="a retry follows; look for a lock on the table (LOCK TABLES, ALTER TABLE)",
                ) from None
            rows = max(1, rows // 4)
            continue
        break
    positions = definition.key_positions
    encoder = RowEncoder([definition.entries[at] for at in positions], range(len(positions)), _SKIP_BYTES)
    keys: dict[bytes, list[bytes | None]] = {}
    try:
        encoder.add(found, {}, keys, _SKIP_BYTES)
    except (ValueError, LookupError, OverflowError) as error:
        raise UnreadableTable(
            f"{definition.name}: the server sends what is no value of its column ({error!s:.200})",
            hint="report this, with the table's definition",
        ) from error
    for key, row in keys.items():
        if is_exact(connection, definition, key, row if any(definition.coded_key) else None):
            return key
    return None


def _select_key(definition: Definition, after: Sequence[str] | None, offset: int) -> str:
    listed = definition.listed
    parts = [
        f"SELECT {', '.join(definition.asked[at] for at in definition.key_positions)}",
        f"FROM {sql_name(listed.database, listed.table)} FORCE INDEX ({quoted(definition.index)})",
        f"WHERE {above(definition.key, after)}" if after is not None else "",
        f"ORDER BY {order_by(definition.key)} LIMIT {_NEIGHBOURS} OFFSET {offset}",
    ]
    return " ".join(filter(None, parts))
