"""A server's log and its tables, read side by side: what a backfill reads, and what the log says of the same rows."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from examples.demo.database_server import DatabaseServer
from publisher.sources import open_source
from subscriber_sdk.verify.comparing import compare, difference
from tests.support.eventually import until
from tests.support.keyed_copy import KeyedCopy, rows_of
from wormhole.config.datastores import datastore
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.model.verification import Difference, DifferenceKind
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import Chunk, ChunkLimits, TableSource
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.rows import decode_row
from wormhole.wire.update import Batch
from wormhole.wire.v1 import update_pb2

__all__ = ["FEW", "Scene", "TableScene", "held_commits"]

FEW: Final = ChunkLimits(rows=3)
_MIB: Final = 1 << 20


class Scene:
    """Follows a log from its present end on, and reads its tables. ``folder`` is removed at the end.

    ``copy``: what a keyed copy holds of the log. ``rows``: by table and key (of a table without one, by all values),
    the READ update that the log's last image of the row would be; ``shards``: theirs; ``schemas``: of each table the
    last one. ``replaced``: tables whose rows changed without a trace. ``marker``: how far the log was read.
    """

    def __init__(self, source: LogSource, tables: TableSource, folder: Path) -> None:
        self.source = source
        self.tables = tables
        self._folder = folder
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.schemas: dict[str, Schema] = {}
        self.shards: dict[str, dict[bytes, str]] = {}
        self.replaced: list[str] = []
        self.copy = KeyedCopy()
        self.marker: Datamarker

    def __enter__(self) -> Self:
        self.source.start()
        self.marker = self.source.latest()
        self._reader = self.source.open(self.marker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tables.close()
        self._reader.close()
        self.source.stop()
        shutil.rmtree(self._folder)

    def follow(self) -> Datamarker:
        """Read the log up to its end."""
        raise NotImplementedError

    def read_again(self, marker: Datamarker) -> None:
        """Follow the log from ``marker`` on with an empty copy."""
        self._reader.close()
        self.copy, self.marker = KeyedCopy(), marker
        self._reader = self.source.open(marker)
        self.follow()

    def step(self) -> None:
        """Read on, whatever the log's end is."""
        self._reads((0, 0))

    def _reads(self, end: tuple[int, int]) -> bool:
        segment = self._reader.read(_MIB, 0.2)
        if segment is not None:
            assert not segment.broken, segment.broken
            self.replaced += segment.replaced
            self.marker = segment.marker or self.marker
            for shard, run in segment.runs.items():
                schemas = {schema.id: schema for schema in run.schemas}
                body = build_body(run, segment.end.incarnation)
                assert body is not None
                parsed = parse_body(body.data)
                for i, data in enumerate(parsed.updates):
                    self._note(decode_row(data), schemas[parsed.schema_id_of(i)], shard)
        return (self.marker.order.file, self.marker.order.offset) >= end

    def _note(self, row: update_pb2.Update, schema: Schema, shard: str) -> None:
        self.copy.note(row, schema)
        rows = self.rows.setdefault(schema.table, {})
        self.schemas[schema.table] = schema
        if row.op == update_pb2.TRUNCATE:
            rows.clear()
            return
        # A row of a table without a key is known by its values.
        rows.pop(key_of(row.old_key or row.key or row.before), None)
        if row.op != update_pb2.DELETE:
            key = key_of(row.key or row.after)
            read = update_pb2.Update(op=update_pb2.READ, key=row.key, after=row.after, too_large=row.too_large)
            rows[key] = read.SerializeToString()
            self.shards.setdefault(schema.table, {})[key] = shard

    def chunk(
        self, table: str, after: bytes | None = None, until: bytes | None = None, limits: ChunkLimits = FEW
    ) -> Chunk:
        """The next chunk, as of the place that the log was read to."""
        return self.tables.chunk(table, after, until, limits, self.marker)

    def chunks(self, table: str, limits: ChunkLimits = FEW) -> Iterator[Chunk]:
        """All of a table."""
        after = None
        while True:
            chunk = self.chunk(table, after, None, limits)
            yield chunk
            if chunk.done:
                return
            assert chunk.last is not None
            assert chunk.last != after
            after = chunk.last

    def verified(self, table: str) -> list[Difference]:
        """What a verification of the copy finds, for an application that keeps each column that the table has."""
        held, found = dict(self.copy.tables.get(table, {})), []
        for chunk in self.chunks(table):
            schema, rows = chunk.schema, tuple(chunk.rows.values())
            body = ParsedBody(rows, (schema.id,), (), (), 0, ("s",), (), (1,), 1, (1,), (1,), (0,), (len(rows),))
            updates = Batch(body, "s", 1, False, {schema.id: schema}.__getitem__).updates()
            kept = zip(updates, (held.pop(key, None) for key in rows_of(chunk.rows, schema)), strict=True)
            answer = {
                update.key: {name: row.get(name) for name in schema.names} for update, row in kept if row is not None
            }
            found += [one for _, one in compare(updates, answer)]
        return found + [difference(DifferenceKind.EXTRA, tuple(text for _, text in key)) for key in held]

    def read(self, table: str, limits: ChunkLimits = FEW) -> dict[bytes, bytes]:
        """All rows of a table, in the order of its key."""
        found: dict[bytes, bytes] = {}
        for chunk in self.chunks(table, limits):
            assert not found.keys() & chunk.rows.keys()
            found |= chunk.rows
        return found


class TableScene(Scene):
    """A scene of a MariaDB or MySQL server."""

    def __init__(
        self,
        server: DatabaseServer,
        *,
        user: str = "",
        max_update_bytes: int = 64 * _MIB,
        sharding: Sharding = Sharding("log"),  # noqa: B008 - frozen
        skip_tables: frozenset[str] = frozenset(),
        history_tables: frozenset[str] = frozenset(),
    ) -> None:
        self.server = server
        folder = Path(tempfile.mkdtemp())
        login = Login(server.password_file)
        url = server.url.replace("wormhole@", f"{user}@") if user else server.url
        source = open_source(
            server.url,
            log="db",
            state_dir=folder,
            sharding=sharding,
            max_update_bytes=max_update_bytes,
            login=login,
            skip_tables=skip_tables,
            history_tables=history_tables,
        )
        options = SourceOptions(
            "db",
            folder,
            sharding,
            max_update_bytes,
            0,
            login,
            skip_tables=skip_tables,
            history_tables=history_tables,
        )
        super().__init__(source, datastore(server.flavour).open_tables(url, options), folder)

    def run(self, *statements: str) -> None:
        """Write as root, and read the log up to there."""
        self.server.sql("SET SESSION sql_mode = '', time_zone = '+00:00'", *statements)
        self.follow()

    def follow(self) -> Datamarker:
        """Read the log up to its end."""
        status = "SHOW MASTER STATUS" if self.server.flavour == "mariadb" else "SHOW BINARY LOG STATUS"
        file, offset, *_ = self.server.sql(status)[0]
        end = int(file.rpartition(".")[2]), offset
        until(lambda: self._reads(end), f"the reader does not reach {end}")
        return self.marker


def key_of(values: object) -> bytes:
    """A row's key as chunks have it."""
    return update_pb2.RowKey(values=values).SerializeToString()  # type: ignore[arg-type]


@contextlib.contextmanager
def held_commits(server: DatabaseServer, *statements: str) -> Iterator[None]:
    """Within the block, a transaction of these statements is in the log and not visible: its commit waits for a replica
    (semi-sync, AFTER_SYNC), and there is none."""
    mariadb = server.flavour == "mariadb"
    name = "rpl_semi_sync_master" if mariadb else "rpl_semi_sync_source"
    if not mariadb and not server.sql("SHOW VARIABLES LIKE 'rpl_semi_sync_source_enabled'"):
        server.sql("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    server.sql(
        f"SET GLOBAL {name}_timeout = 600000",
        f"SET GLOBAL {name}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL {name}_enabled = ON",
    )
    writing = threading.Thread(target=server.sql, args=statements)
    writing.start()

    def waits() -> bool:
        return bool(server.sql("SHOW GLOBAL STATUS LIKE '%semi%wait_sessions'")[0][1] == "1")

    try:
        until(waits, "the commit does not wait for a replica")
        yield
    finally:
        server.sql(f"SET GLOBAL {name}_enabled = OFF")
        writing.join()
