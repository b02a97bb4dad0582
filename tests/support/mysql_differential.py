"""The three answers to the question what a table holds: the server's own, ours from the log, and another library's
from the same log."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pymysql
from pymysql.connections import Connection
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import NONE_SOURCE
from pymysqlreplication.row_event import DeleteRowsEvent, PartialUpdateRowsEvent, UpdateRowsEvent, WriteRowsEvent

from examples.demo.database_server import DatabaseServer
from publisher.sources import open_source
from tests.support.eventually import PATIENCE_S
from tests.support.mysql_types import CHANGED, NULL, UNAVAILABLE, Shown, Type
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogReader
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, op_of

Row = Mapping[str, Shown]

_ORACLE_ID: Final = 987_654


@dataclass(frozen=True)
class Table:
    """A table as it was created; ``key``: names of the primary key's columns, in its order."""

    name: str
    columns: Mapping[str, Type]
    key: tuple[str, ...] = ()
    options: str = ""

    def ddl(self) -> str:
        """The statement that creates it."""
        lines = [f"`{name}` {kind.declared}" for name, kind in self.columns.items()]
        if self.key:
            parts = ", ".join(self.columns[name].key.format(f"`{name}`") for name in self.key)
            lines.append(f"PRIMARY KEY ({parts})")
        return f"CREATE TABLE {self.name} ({', '.join(lines)}) {self.options}"


@dataclass(frozen=True)
class Change:
    """An update. ``place``: (file, offset) after its transaction; images without values are empty."""

    place: tuple[int, int]
    op: str
    table: str
    before: Row
    after: Row
    key: Row = field(default_factory=dict)
    old_key: Row = field(default_factory=dict)


# --- the server ----------------------------------------------------------------------------------------------------


class Session:
    """A connection that writes, and that looks at what it wrote. Results are bytes as the server sends them."""

    def __init__(self, server: DatabaseServer, database: str) -> None:
        self._server = server
        self._mariadb = server.flavour == "mariadb"
        self._connection: Connection[Any] = server.connect(use_unicode=False, conv={}, read_timeout=PATIENCE_S)
        self.run(f"CREATE DATABASE IF NOT EXISTS {database}", f"USE {database}")
        # Everything that a table may hold can be written: zero dates, and the error value of an ENUM.
        self.run("SET SESSION sql_mode = '', time_zone = '+00:00', innodb_strict_mode = OFF")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def run(self, *statements: str) -> list[tuple[bytes | None, ...]]:
        """Returns the rows of the last statement."""
        rows: list[tuple[bytes | None, ...]] = []
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def attempt(self, *statements: str) -> None:
        """Like :meth:`run`; a statement that the server refuses changes nothing."""
        for statement in statements:
            with contextlib.suppress(pymysql.err.MySQLError):
                self.run(statement)

    def place(self) -> tuple[int, int]:
        """The end of the log, as (number of the file, offset)."""
        file, offset, *_ = self.run("SHOW MASTER STATUS" if self._mariadb else "SHOW BINARY LOG STATUS")[0]
        assert file is not None
        assert offset is not None
        return int(file.rpartition(b".")[2]), int(offset)

    def rows(self, table: Table) -> list[dict[str, Shown]]:
        """What ``SELECT`` shows."""
        asked = ", ".join(kind.asked.format(f"`{name}`") for name, kind in table.columns.items())
        return [
            {
                name: NULL if raw is None else kind.shown(raw)
                for (name, kind), raw in zip(table.columns.items(), row, strict=True)
            }
            for row in self.run(f"SELECT {asked} FROM {table.name}")
        ]


# --- ours ----------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> Shown:
    kind = value.WhichOneof("kind")
    if kind is None:
        return CHANGED
    held = getattr(value, kind)
    if kind == "double":
        held = struct.pack("<d", held).hex()
    return kind, held


def _image(schema: Schema, values: Sequence[Any]) -> dict[str, Shown]:
    if not values:
        return {}
    return {column.name: _shown(value) for column, value in zip(schema.columns, values, strict=True)}


class Follower:
    """Our reader, from the end of the log on."""

    def __init__(self, server: DatabaseServer, **more: Any) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._source = open_source(
            server.url,
            log="diff",
            state_dir=self._folder,
            sharding=Sharding("log"),
            login=Login(server.password_file),
            **more,
        )
        self.schemas: dict[str, Schema] = {}
        """The last schema of each table."""
        self.too_large = 0
        self._reader: LogReader

    def __enter__(self) -> Self:
        self._source.start()
        self._reader = self._source.open(self._source.latest())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._source.stop()
        shutil.rmtree(self._folder)

    def read(self, end: tuple[int, int]) -> list[Change]:
        """All updates up to that end of the log."""
        changes: list[Change] = []
        waiting: list[Change] = []
        deadline = time.monotonic() + PATIENCE_S
        reached = (0, 0)
        while reached < end:
            segment = self._reader.read(1 << 20, 0.2)
            assert time.monotonic() < deadline, f"the reader is at {reached}, and the log ends at {end}"
            if segment is None:
                continue
            assert not segment.broken, segment.broken
            assert segment.gap is None
            if segment.marker is not None:
                reached = (segment.end.file, segment.end.offset)
            for run in segment.runs.values():
                schemas = {schema.id: schema for schema in run.schemas}
                body = build_body(run, segment.end.incarnation)
                assert body is not None
                parsed = parse_body(body.data)
                # The end of a large transaction, and so its place, comes with its last piece.
                ended = len(parsed.tx_end)
                of_tx: dict[int, list[int]] = {}
                for i in range(len(parsed.updates)):
                    of_tx.setdefault(parsed.transaction_of(i), []).append(i)
                for tx in range(len(parsed.tx_number)):
                    place = parsed.position_of(tx)
                    for i in of_tx.get(tx, ()):
                        row, schema = decode_row(parsed.updates[i]), schemas[parsed.schema_id_of(i)]
                        waiting.append(self._change(row, schema, (place.file, place.offset)))
                    if tx < ended:
                        changes += [replace(change, place=(place.file, place.offset)) for change in waiting]
                        waiting.clear()
        return changes

    def _change(self, row: Any, schema: Schema, place: tuple[int, int]) -> Change:
        self.schemas[schema.table] = schema
        self.too_large += row.too_large
        names = [column.name for column in schema.key]

        def key(values: Any) -> dict[str, Shown]:
            return dict(zip(names, map(_shown, values), strict=True)) if values else {}

        return Change(
            place,
            op_of(row).name,
            schema.table,
            _image(schema, row.before),
            _image(schema, row.after),
            key(row.key),
            key(row.old_key),
        )


# --- the other library's --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A row as mysql-replication reads it; ``at``: the end of its event.

    ``failed``: an event that it could not read, and why."""

    at: int
    op: str = ""
    table: str = ""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


class Absent:
    """Stands for what is not in the row's image."""


MISCOUNTED: Final = "unused bits are counted as columns"
"""Why it could not read an event; see :func:`_is_miscounted`."""
_ROWS: Final = (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent)


def said_by_oracle(server: DatabaseServer, begin: tuple[int, int], end: tuple[int, int]) -> list[Said]:
    """What mysql-replication reads between two places of one file."""
    assert begin[0] == end[0]
    reader = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": "root", "password": ""},
        server_id=_ORACLE_ID,
        log_file=f"binlog.{begin[0]:06d}",
        log_pos=begin[1],
        end_log_pos=end[1],
        resume_stream=True,
        only_events=_ROWS,
        enable_logging=False,
    )
    found: list[Said] = []
    with contextlib.closing(reader), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it calls PyMySQL in a way of the past
        while True:
            table = ""
            try:
                event = reader.fetchone()
                if event is None:
                    return found
                table = f"{event.schema}.{event.table}"
                if _is_miscounted(event):
                    found.append(Said(reader.log_pos, "", table, failed=MISCOUNTED))
                    continue
                found += [_said(event, reader.log_pos, table, row) for row in event.rows]
            except Exception as error:  # whatever it stumbles over: the caller knows which of it is expected
                failed = Said(reader.log_pos, "", table, failed=f"{type(error).__name__}: {error}")
                assert failed not in found[-1:], f"mysql-replication does not get on: {failed}"
                found.append(failed)


def _is_miscounted(event: Any) -> bool:
    """Whether it takes the wrong number of bytes for the bits of NULLs of an image, and so misreads the row.

    MySQL sets the unused bits at the end of the bits of an image's columns. mysql-replication counts them. The bytes
    are then too many where binlog_row_image = NOBLOB leaves columns out of a table of more than eight, as with REPLACE.
    """
    for name in ("columns_present_bitmap", "columns_present_bitmap2"):
        bits = int.from_bytes(getattr(event, name, b""), "little")
        in_use = bits & (1 << event.number_of_columns) - 1
        if (bits.bit_count() + 7) // 8 != (in_use.bit_count() + 7) // 8:
            return True
    return False


def _said(event: Any, at: int, table: str, row: Mapping[str, Any]) -> Said:
    def image(name: str, absent: str) -> dict[str, Any]:
        missing = {column for column, why in row[absent].items() if why == NONE_SOURCE.COLS_BITMAP}
        return {column: Absent if column in missing else value for column, value in row[name].items()}

    if isinstance(event, WriteRowsEvent):
        return Said(at, "INSERT", table, {}, image("values", "none_sources"))
    if isinstance(event, DeleteRowsEvent):
        return Said(at, "DELETE", table, image("values", "none_sources"), {})
    before, after = image("before_values", "before_none_sources"), image("after_values", "after_none_sources")
    return Said(at, "UPDATE", table, before, after)


# --- all of them ----------------------------------------------------------------------------------------------------


class Replay:
    """Tables as they are after all updates so far.

    Each update has to fit what is there: a missing or different row is an error."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Shown]]] = {}

    def apply(self, change: Change) -> None:
        """Fold one update in."""
        rows = self.tables.setdefault(change.table, [])
        if change.op == "TRUNCATE":
            rows.clear()
            return
        assert bool(change.before) == (change.op != "INSERT"), change
        assert bool(change.after) == (change.op != "DELETE"), change
        if change.key:
            self._check_key(change)
        row: dict[str, Shown] = {}
        if change.op != "INSERT":
            row = rows.pop(self._find(rows, change))
        if change.op != "DELETE":
            # An INSERT logs no generated column that is not stored, unless with full images.
            rows.append(
                {name: row.get(name, value) if value == UNAVAILABLE else value for name, value in change.after.items()}
            )

    def _find(self, rows: list[dict[str, Shown]], change: Change) -> int:
        key = dict(change.old_key or change.key)
        wanted = {name: value for name, value in change.before.items() if value != UNAVAILABLE} | key
        for i, row in enumerate(rows):
            if all(row[name] in (value, UNAVAILABLE, CHANGED) for name, value in wanted.items()):
                return i
        raise AssertionError(f"no row is as this update says that it was: {change}\n{rows}")

    def _check_key(self, change: Change) -> None:
        image = change.before if change.op == "DELETE" else change.after
        for name, value in change.key.items():
            assert value != UNAVAILABLE, change
            assert image[name] in (value, UNAVAILABLE), change
        assert change.old_key != change.key, change
        for name, value in change.old_key.items():
            assert change.before[name] in (value, UNAVAILABLE), change


def as_set(rows: Sequence[Row], without: set[str]) -> list[str]:
    """Rows in an order of their own, to be compared; without these columns."""
    return sorted(repr(sorted((name, value) for name, value in row.items() if name not in without)) for row in rows)
