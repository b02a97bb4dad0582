"""One SELECT after the other within a snapshot, until a chunk's limits are reached."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from datastores.mysql.existing_rows.definition import Definition
from datastores.mysql.existing_rows.exact_keys import is_exact, literals_of
from datastores.mysql.existing_rows.key_order import above, order_by
from datastores.mysql.existing_rows.result_rows import ResultRows, Row, rows_of
from datastores.mysql.existing_rows.snapshot import Snapshots
from datastores.mysql.existing_rows.values import RowEncoder
from datastores.mysql.server.connection import bound, server_text
from datastores.mysql.sql_text import quoted, sql_name
from wormhole.model.errors import UnreadableTable
from wormhole.ports.table_source import ChunkLimits

__all__ = ["TIMEOUTS", "Reading", "select"]

TIMEOUTS: Final = frozenset({1969, 3024})
"""Errors of a SELECT that took longer than it was allowed to."""
_LEAST_SHARE: Final = 8  # a chunk is full when less than this part of its bytes is left
_GRACE_S: Final = 5.0  # for what the server ends itself, before the connection is given up
_SLACK: Final = 4


def select(definition: Definition, conditions: Sequence[str], most: int, limit: int) -> str:
    """The SELECT of the rows for which all conditions hold, in the order of the key; ``limit`` 0: all.

    Values of long columns are left out where they come to more than ``most`` bytes; with such columns, a last one says
    whether they were.
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


@dataclass(slots=True)
class Reading:
    """Fills ``rows`` up to the limits. ``raw_keys``: the keys as the server has them, where text may be that of
    other bytes too. ``row_bytes``: what a row takes, as far as is known. ``done``: nothing is left;
    ``timed_out``: the server ended a SELECT, so that nothing may have come. ``cut``: rows were on their way that were
    not wanted any more, so that the connection has to be closed.
    """

    connection: Connection[Any]
    snapshots: Snapshots
    definition: Definition
    most: int
    limits: ChunkLimits
    row_bytes: int
    rows: dict[bytes, bytes] = field(default_factory=dict)
    raw_keys: dict[bytes, Row] = field(default_factory=dict)
    done: bool = False
    timed_out: bool = False
    cut: bool = False
    coded: bool = field(init=False)
    encoder: RowEncoder = field(init=False)

    def __post_init__(self) -> None:
        definition = self.definition
        self.coded = any(definition.coded_key)
        self.encoder = RowEncoder(definition.entries, definition.key_positions, self.most, bool(definition.long))

    @property
    def size(self) -> int:
        """Bytes of the rows' updates."""
        return self.encoder.size

    def run(self, after: Sequence[str] | None, until: str) -> None:
        """Read on behind the key ``after`` (literals) while the condition ``until`` holds (empty: to the end).

        Raises the driver's errors.
        """
        deadline = time.monotonic() + self.limits.seconds
        while True:
            left = self.limits.rows - len(self.rows)
            room = self.limits.bytes - self.size
            seconds = deadline - time.monotonic()
            if self.rows and (left <= 0 or room < self.limits.bytes // _LEAST_SHARE or seconds <= 0):
                return
            if self.row_bytes:
                left = min(left, max(1, room // self.row_bytes + 1))
            conditions = [above(self.definition.key, after)] if after is not None else []
            if until:
                conditions.append(until)
            sql = select(self.definition, conditions, self.most, left)
            if not self._take(self.snapshots.timed(sql, max(seconds, 0.001)), left):
                return
            key = next(reversed(self.rows))
            if not is_exact(self.connection, self.definition, key, self.raw_keys.get(key)):
                return
            after = literals_of(self.definition, key)

    def run_keys(self, condition: str) -> None:
        """Read the rows for which ``condition`` holds, all of them."""
        sql = select(self.definition, [condition], self.most, 0)
        self._take(self.snapshots.timed(sql, self.limits.seconds), 0)

    def _take(self, sql: str, asked: int) -> bool:
        """Run one SELECT; returns whether another one may bring more."""
        bound(self.connection, self.limits.seconds + _GRACE_S, _SLACK * (self.limits.bytes + self.most))
        got, dropped, begin = 0, 0, self.size
        try:
            rows = rows_of(self.connection, sql)
            while block := rows.take():
                taken = self._add(block, self.limits.bytes if asked else sys.maxsize)
                got += taken
                if self.size >= self.limits.bytes and asked:
                    dropped = len(block) - taken + self._drain(rows)
                    break
        except pymysql.MySQLError as error:
            if server_text(error)[0] not in TIMEOUTS:
                raise
            self.timed_out = True
            return False
        if got:
            self.row_bytes = max(1, (self.size - begin) // got)
        self.done = got < asked and not dropped
        return not self.done and not dropped

    def _add(self, block: list[Row], room: int) -> int:
        """Keep the rows until there are ``room`` bytes of updates; returns how many."""
        try:
            return self.encoder.add(block, self.rows, self.raw_keys if self.coded else None, room)
        except (ValueError, LookupError, OverflowError) as error:
            raise UnreadableTable(
                f"{self.definition.listed.name}: the server sends what is no value of its column ({error!s:.200})",
                hint="report this, with the table's definition",
            ) from error

    def _drain(self, rows: ResultRows) -> int:
        """Pass over what follows a full chunk, as far as that is cheap; returns the number of rows."""
        room = self.limits.bytes
        dropped = 0
        while block := rows.take():
            dropped += len(block)
            room -= sum(len(value) for row in block for value in row if value is not None)
            if room < 0:
                self.cut = True
                break
        return dropped
