"""A server's log in the archive: every value, GTIDs and images that lack columns come back as the log had them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from publisher.sources import open_source
from spark_replay.archive.reader import DataFile
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import open_store
from spark_replay.archive.verify import verify
from tests.support.archives import manifest_of
from tests.support.databases import DatabaseServer
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.update import Batch, Update

_PIECE = 400  # bytes of log at a time: larger transactions come in pieces


@pytest.fixture
def shop(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own on the shared server."""
    name = f"shop_{zlib.crc32(request.node.name.encode())}"
    database_server.sql(f"CREATE DATABASE {name}")
    yield name
    database_server.sql(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def source(database_server: DatabaseServer, shop: str, tmp_path: Path) -> Iterator[LogSource]:
    found = open_source(
        database_server.url,
        log="log",
        state_dir=tmp_path / "state",
        sharding=Sharding("log"),
        login=Login(database_server.password_file),
    )
    found.start()
    yield found
    found.stop()


def batches(segments: list[Segment]) -> Iterator[tuple[list[Update], Datamarker | None]]:
    """As a subscriber gets them."""
    for segment in segments:
        found: list[Update] = []
        for shard, run in segment.runs.items():
            body = build_body(run, segment.end.incarnation)
            assert body is not None
            schemas = {schema.id: schema for schema in run.schemas}
            found += Batch(parse_body(body.data), shard, 1, False, schemas.__getitem__).updates()
        yield found, segment.marker


def seen(update: Update) -> tuple[object, ...]:
    return (
        update.id, update.op, update.table, update.key, update.old_key, update.before, update.after,
        update.position, update.in_unfinished, update.committed_at,
    )  # fmt: skip


def test_what_a_server_logs_is_archived_as_it_is(
    database_server: DatabaseServer, shop: str, source: LogSource, tmp_path: Path
) -> None:
    database_server.sql(
        f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(20,4), name "
        "VARCHAR(40), data BLOB)"
    )
    start = source.latest()
    most = (1 << 64) - 1
    database_server.sql(
        f"INSERT INTO {shop}.t VALUES (1, {most}, 12345678901234.5678, 'Żółć', x'00ff'), (2, NULL, -0.5, '', x'')",
        f"UPDATE {shop}.t SET id = 3 WHERE id = 2",
        "SET SESSION binlog_row_image = MINIMAL",
        f"UPDATE {shop}.t SET name = 'Ann' WHERE id = 1",
        f"DELETE FROM {shop}.t WHERE id = 3",
        "SET SESSION binlog_row_image = FULL",
        f"INSERT INTO {shop}.t (id, name) SELECT seq.n, REPEAT('x', 30) FROM (SELECT 10 n UNION SELECT 11 "
        "UNION SELECT 12 "
        "UNION SELECT 13 UNION SELECT 14 UNION SELECT 15 UNION SELECT 16 UNION SELECT 17 UNION SELECT 18) seq",
        f"TRUNCATE TABLE {shop}.t",
    )
    end = source.latest()
    segments: list[Segment] = []
    with closing(source.open(start)) as reader:
        while not segments or segments[-1].end < end.order:
            segment = reader.read(_PIECE, 10.0)
            if segment is not None:
                segments.append(segment)
    assert any(segment.marker is None for segment in segments)  # one transaction came in pieces

    store = open_store(str(tmp_path / "archive"), "shop", copy="main", create=True)
    writer = ShardWriter.claim(store, "log", 1, start)
    told: list[Update] = []
    markers: list[Datamarker] = []
    for updates, marker in batches(segments):
        writer.add(updates)
        told += updates
        writer.spill()
        if marker is not None:
            writer.mark(marker)
            markers.append(marker)
    writer.commit(markers[-1])
    assert not verify(store, deep=True).problems

    manifest = manifest_of(store, "log")
    (entry,) = manifest.files
    with DataFile(store.open_data("log", entry.name), entry.name) as file:
        read = [update for updates, _ in batches(list(file.segments(limit=1))) for update in updates]
        assert file.footer.markers == tuple(markers)
        rows = [row for batch in file.batches() for row in batch.to_pylist()]
    assert list(map(seen, read)) == list(map(seen, told))
    assert manifest.end == markers[-1]
    assert manifest.end.delivered == end.delivered  # GTIDs, as the server has them

    first, second, moved, partial, deleted = read[:5]
    assert first.after == {
        "id": 1, "big": most, "price": Decimal("12345678901234.5678"), "name": "Żółć", "data": b"\x00\xff"
    }  # fmt: skip
    assert second.after is not None
    assert second.after["big"] is None
    assert (moved.key, moved.old_key) == ((3,), (2,))
    assert partial.after is not None
    assert partial.after["price"] is UNAVAILABLE
    assert partial.after["name"] == "Ann"
    assert [row["partial"] for row in rows[:5]] == [False, False, False, True, False]
    assert rows[2]["old_key"] == rows[1]["key"] != rows[2]["key"] == rows[4]["key"]
    assert deleted.key == (3,)
    assert (entry.key_changes, entry.partial, entry.ops["truncate"]) == (1, 1, 1)
