"""Reads a chunk of a table's rows with several COPYs in one snapshot, until the chunk's limits are reached."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from datastores.common.existing_rows.reading import ChunkReading
from datastores.postgres.existing_rows.copied_rows import CopiedRows
from datastores.postgres.existing_rows.definition import Definition
from datastores.postgres.existing_rows.keys import KEY_SQL, ROW, column_of_row, order_by
from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import SourceUnavailable
from wormhole.model.schema import Column
from wormhole.ports.table_source import ChunkLimits

__all__ = ["CANCELED", "Reading", "copied", "copied_key", "timeout", "unasked_rows"]

CANCELED: Final = "57014"
"""The error code of a statement that exceeded its timeout."""
_GRACE_S: Final = 5.0  # seconds after the timeout in which the server must end a statement
_SIZES: Final = "wormhole_sizes"
_TERMS: Final = 40
_CHEAP: Final = 64 << 10  # the most bytes of unwanted rows that are read to keep the connection


def copied(definition: Definition, conditions: Sequence[str], most: int, limit: int) -> str:
    """The COPY of the rows that meet all conditions, in the order of the key. ``limit``: the most rows; 0: all.

    The values of a row's long columns are left out if together they exceed ``most`` bytes. If the table has long
    columns, an additional last column shows whether they were. A row's sizes are summed once, not once per column.
    """
    asked, source = list(definition.asked), ""
    if definition.long:
        fits = _unlike("wormhole_fits", definition.schema.columns)
        sizes = [f"coalesce(pg_catalog.octet_length({name}), 0)::bigint" for name in sorted(definition.long)]
        asked = [f"CASE WHEN {fits} THEN {name} END" if name in definition.long else name for name in asked]
        asked.append(f"NOT {fits}")
        # Without OFFSET the server would compute the whole sum at each use.
        source = f" CROSS JOIN LATERAL (SELECT {_sum(sizes)} <= {most} AS {fits} OFFSET 0) AS {_SIZES}"
    statement = _select(definition, asked, conditions, source)
    return f"COPY ({statement}{f' LIMIT {limit}' if limit else ''}) TO STDOUT"


def _sum(terms: Sequence[str]) -> str:
    """The SQL sum of the terms, in groups. A plain sum of many terms is nested too deep for the server's stack."""
    while len(terms) > 1:
        terms = [f"({' + '.join(terms[at : at + _TERMS])})" for at in range(0, len(terms), _TERMS)]
    return terms[0]


def _unlike(name: str, columns: Iterable[Column]) -> str:
    """A name that no column of the table has. A publication's filter does not qualify columns, so names must differ."""
    taken = {column.name for column in columns}
    while name in taken:
        name += "_"
    return quote_identifier(name)


def copied_key(definition: Definition, conditions: Sequence[str], offset: int) -> str:
    """The COPY of one key, with its columns in the order of the log's keys. ``offset``: how many rows precede it."""
    names = [column_of_row(name) for name in definition.key_table.columns]
    return f"COPY ({_select(definition, names, conditions)} OFFSET {offset} LIMIT 1) TO STDOUT"


def timeout(seconds: float) -> str:
    """The SQL that limits each statement of the transaction to this many seconds."""
    return f"SET LOCAL statement_timeout = {max(1, round(seconds * 1000))}"


def unasked_rows(table: str) -> SourceUnavailable:
    """The error for a server that sends more rows than requested, and may never stop."""
    return SourceUnavailable(
        f"{table}: the server sends more rows than it was asked for",
        hint="check that the address leads to a PostgreSQL server, with nothing in between; a retry follows",
        code="peer-not-database",
    )


def _select(definition: Definition, asked: Sequence[str], conditions: Sequence[str], source: str = "") -> str:
    wanted = [*conditions, *([f"({definition.filter})"] if definition.filter else [])]
    parts = [
        f"SELECT {', '.join(asked)} FROM {definition.source} AS {ROW}{source}",  # noqa: S608
        f"WHERE {' AND '.join(wanted)}" if wanted else "",
        f"ORDER BY {order_by(definition.key)}",
    ]
    return " ".join(filter(None, parts))


class Reading(ChunkReading[Definition]):
    """Reads through ``connection``. A timeout of a statement ends the transaction. ``most``: the most bytes of values
    in an update."""

    def __init__(
        self, connection: Connection, definition: Definition, most: int, limits: ChunkLimits, row_bytes: int
    ) -> None:
        self._encoder = CopiedRows(definition.table, most, bool(definition.long))
        super().__init__(definition, KEY_SQL, self._encoder, limits, row_bytes)
        self._connection = connection
        self._most = most

    def _take(self, conditions: Sequence[str], asked: int, seconds: float, most: int = sys.maxsize) -> bool:
        statement = copied(self.definition, conditions, self._most, asked)
        before = len(self.rows)
        got = dropped = unwanted = 0
        begin, full = self._encoder.size, False
        try:
            self._connection.query(timeout(seconds))
            for lines in self._connection.copy_rows(statement, timeout_s=seconds + _GRACE_S):
                taken = 0
                if not full:
                    taken = self._encoder.add(lines, self.rows, self.limits.bytes if asked else sys.maxsize)
                    got += taken
                    full = asked > 0 and self._encoder.size >= self.limits.bytes
                    if len(self.rows) - before > most:
                        raise unasked_rows(self.definition.name)
                dropped += len(lines) - taken
                unwanted += sum(map(len, lines[taken:]))
                if unwanted > self.limits.bytes + _CHEAP:
                    self.cut = True
                    break
        except ServerError as error:
            if error.sqlstate != CANCELED:
                raise
            self.timed_out = True
        return self._took(begin, got, asked, dropped)
