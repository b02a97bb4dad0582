"""Chunks are bounded in rows, bytes and seconds, and what the server changes between two of them is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datastores.mysql.existing_rows import reading
from tests.support.databases import DatabaseServer
from tests.support.table_scene import TableScene
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_row

MIB = 1 << 20
NUMBERS = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT {} FROM n"


@pytest.fixture
def scene(database_server: DatabaseServer) -> Iterator[TableScene]:
    database_server.sql("DROP DATABASE IF EXISTS big", "CREATE DATABASE big")
    with TableScene(database_server) as scene:
        yield scene


def fill(scene: TableScene, rows: int, values: str) -> None:
    deep = "max_recursive_iterations" if scene.server.flavour == "mariadb" else "cte_max_recursion_depth"
    scene.run(
        f"SET SESSION {deep} = 1000000",
        "CREATE TABLE big.rows_ (n INT PRIMARY KEY, v MEDIUMBLOB)",
        f"INSERT INTO big.rows_ {NUMBERS.format(rows, values)}",
    )


def test_a_chunk_ends_with_its_bytes(scene: TableScene) -> None:
    fill(scene, 400, "i, REPEAT('x', 10000)")
    chunks = list(scene.chunks("big.rows_", ChunkLimits(rows=5000, bytes=100_000)))
    assert all(len(chunk.rows) <= 10 for chunk in chunks)
    assert sum(len(chunk.rows) for chunk in chunks) == 400
    assert max(chunk.size for chunk in chunks) < 150_000
    assert len(chunks) < 60


def test_rows_of_very_different_sizes(scene: TableScene) -> None:
    """What the server sends beyond a full chunk is not kept, and more of it than a chunk's bytes not even received."""
    fill(scene, 2000, "i, IF(i % 500 < 450, 'x', REPEAT('x', 200000))")
    chunks = list(scene.chunks("big.rows_", ChunkLimits(rows=5000, bytes=MIB)))
    assert {key: update for chunk in chunks for key, update in chunk.rows.items()} == scene.rows["big.rows_"]
    assert max(chunk.size for chunk in chunks) < 2 * MIB


def test_a_row_over_the_bytes_of_a_chunk_comes_alone(scene: TableScene) -> None:
    fill(scene, 4, "i, REPEAT('x', 3000000)")
    assert [len(chunk.rows) for chunk in scene.chunks("big.rows_", ChunkLimits())] == [1, 1, 1, 1, 0]


def test_a_statement_that_takes_too_long_ends_with_what_it_found(
    scene: TableScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scene, 3000, "i, 'x'")
    plain = reading.select

    def slow(*arguments: object) -> str:  # the server takes a while for one row
        sleeps = "IF(n = 2500, BENCHMARK(1000000000, SHA2(n, 256)), 0) + `n`"
        return plain(*arguments).replace("`n`,", f"{sleeps},", 1)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "select", slow)
    first = scene.chunk("big.rows_", limits=ChunkLimits(rows=5000, seconds=0.5))
    assert 0 < len(first.rows) <= 2500
    assert not first.done
    assert first.last is not None
    last = decode_row(first.rows[first.last]).key[0].int
    assert last == len(first.rows)


def test_a_statement_that_finds_nothing_in_time_is_tried_for_longer(
    scene: TableScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scene, 3, "i, 'x'")
    plain = reading.select
    slow = "WHERE BENCHMARK(1000000000, SHA2(n, 256)) = 1 ORDER"
    with monkeypatch.context() as patched:
        patched.setattr(reading, "select", lambda *given: plain(*given).replace("ORDER", slow, 1))
        for seconds in ("0.1", "0.2", "0.4"):
            with pytest.raises(SourceUnavailable, match=f"found no row within {seconds} s") as raised:
                scene.chunk("big.rows_", limits=ChunkLimits(rows=1, seconds=0.1))
            assert "keeps deleted rows from being purged" in str(raised.value.hint)
    assert len(scene.chunk("big.rows_", limits=ChunkLimits(rows=1, seconds=0.1)).rows) == 1


def test_a_column_that_is_added_between_the_definition_and_the_rows(scene: TableScene) -> None:
    fill(scene, 3, "i, 'x'")
    scene.chunk("big.rows_")
    scene.run("ALTER TABLE big.rows_ ADD COLUMN w INT DEFAULT 7 FIRST")
    chunk = scene.chunk("big.rows_", limits=ChunkLimits())
    assert [column.name for column in chunk.schema.columns] == ["w", "n", "v"]
    scene.run("ALTER TABLE big.rows_ RENAME COLUMN v TO x, ALGORITHM = INSTANT")
    chunk = scene.chunk("big.rows_", limits=ChunkLimits())
    assert [column.name for column in chunk.schema.columns] == ["w", "n", "x"]
    scene.run("UPDATE big.rows_ SET w = 8")
    assert scene.chunk("big.rows_", limits=ChunkLimits()).schema == scene.schemas["big.rows_"]
    assert scene.read("big.rows_") == scene.rows["big.rows_"]


def test_a_system_versioned_table(scene: TableScene) -> None:
    if scene.server.flavour == "mysql":
        return  # it has none
    scene.run(
        "CREATE TABLE big.told (n INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "CREATE TABLE big.named (n INT, v INT, a TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
        "z TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, z), PRIMARY KEY (n)) "
        "WITH SYSTEM VERSIONING",
    )
    for table in ("big.told", "big.named"):
        scene.run(
            f"INSERT INTO {table} (n, v) VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
            f"UPDATE {table} SET v = 9 WHERE n = 2",
            f"DELETE FROM {table} WHERE n = 3",
        )
        assert scene.read(table) == scene.rows[table]
        assert scene.chunk(table).schema == scene.schemas[table]
