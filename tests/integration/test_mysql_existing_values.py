"""Rows of chunks are byte for byte what the log has of the same rows: every type, every value worth storing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.databases import DatabaseServer, start_server
from tests.support.mysql_types import Type, of_flavour
from tests.support.table_scene import TableScene
from wormhole.model.errors import UnreadableTable
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_row
from wormhole.wire.v1 import update_pb2

ALL = ChunkLimits(rows=100_000, bytes=1 << 30, seconds=60.0)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with start_server(request.param, max_allowed_packet="128M") as server:
        yield server


@pytest.fixture
def scene(server: DatabaseServer) -> Iterator[TableScene]:
    server.sql("DROP DATABASE IF EXISTS kinds", "CREATE DATABASE kinds")
    with TableScene(server) as scene:
        yield scene


def write(scene: TableScene, *statements: str) -> None:
    """A statement that the server refuses changes nothing."""
    begin = "SET SESSION sql_mode = '', time_zone = '+00:00', innodb_strict_mode = OFF"
    with scene.server.connect(database="kinds") as connection, connection.cursor() as cursor:
        cursor.execute(begin)
        for statement in statements:
            try:
                cursor.execute(statement)
            except connection.Error:
                assert statement.startswith("INSERT"), statement


def compare(scene: TableScene, table: str) -> None:
    """Equal bytes, the same keys, and the same schema."""
    chunk = scene.chunk(table, limits=ALL)
    assert chunk.schema == scene.schemas[table]
    ours, logged = chunk.rows, scene.rows[table]
    different = [key for key in ours.keys() | logged.keys() if ours.get(key) != logged.get(key)]
    shown = [(shape(ours.get(key)), shape(logged.get(key))) for key in different[:3]]
    assert not different, shown
    assert chunk.done


def shape(update: bytes | None) -> str:
    return str(decode_row(update))[:2000] if update is not None else "missing"


def test_every_value_of_every_type(scene: TableScene) -> None:
    failures = []
    kinds = of_flavour(scene.server.flavour)
    for number, kind in enumerate(kinds):
        rows = [f"INSERT INTO type{number} VALUES ({n}, {edge})" for n, edge in enumerate(kind.edges)]
        write(scene, f"CREATE TABLE type{number} (n INT PRIMARY KEY, v {kind.declared})", *rows)
        write(scene, f"INSERT INTO type{number} VALUES ({len(kind.edges)}, NULL)")
    scene.follow()
    for number, kind in enumerate(kinds):
        try:
            compare(scene, f"kinds.type{number}")
        except AssertionError as error:
            failures.append(f"{kind}: {error!s:.1500}")
    assert not failures, "\n\n".join(failures)


def test_every_type_as_a_key(scene: TableScene) -> None:
    """Read in small chunks: each begins behind the last key of the one before."""
    failures = []
    kinds = [kind for kind in of_flavour(scene.server.flavour) if kind.key == "{}"]
    for number, kind in enumerate(kinds):
        rows = [f"INSERT INTO key{number} VALUES ({edge}, {n})" for n, edge in enumerate(kind.edges)]
        # A row image of a blob is no key; a table that the server does not make is none.
        write(scene, f"CREATE TABLE key{number} (k {kind.declared} NOT NULL, n INT, PRIMARY KEY (k))", *rows)
    scene.follow()
    refused = {table.name: table.refused for table in scene.tables.tables(lambda name: name.startswith("kinds.key"))}
    for number, kind in enumerate(kinds):
        name = f"kinds.key{number}"
        if refused[name]:
            failures += [f"{kind}: {refused[name]}"] if not expected_refusal(kind) else []
            continue
        assert not expected_refusal(kind)
        try:
            found = scene.read(name, ChunkLimits(rows=2))
            lossy = [charset for charset in LOSSY if kind.name.endswith(charset)]
            assert certain(found, lossy) == certain(scene.rows[name], lossy)
            order = [raw for (raw,) in scene.server.sql(f"SELECT n FROM {name} FORCE INDEX (PRIMARY) ORDER BY k")]
            assert lossy or [decode_row(update).after[1].int for update in found.values()] == order
            try:
                assert scene.tables.rows(name, list(found), scene.marker).rows == found
            except UnreadableTable:
                assert lossy
        except Exception as error:  # all of them are listed
            failures.append(f"{kind}: {type(error).__name__} {error!s:.1500}")
    assert not failures, "\n\n".join(failures)


LOSSY = ("gbk", "ucs2", "sjis", "ujis", "utf16", "utf16le", "utf32")
"""Character sets of which the values hold bytes that are no characters: in the log they are question marks."""


def certain(rows: dict[bytes, bytes], lossy: list[str]) -> dict[bytes, bytes]:
    """Rows whose keys are not those of others."""
    return {key: update for key, update in rows.items() if not lossy or b"?" not in key}


def expected_refusal(kind: Type) -> bool:
    """A SET, and an ENUM of which the server does not say which number it orders a member by."""
    return kind.name in {"enum with an empty name", "enum of utf8mb4"} or kind.name.startswith("set ")


def test_a_row_of_many_columns(scene: TableScene) -> None:
    columns = ", ".join(f"c{i} INT" for i in range(1, 999))
    values = ", ".join("NULL" if i % 3 == 0 else str(i) for i in range(1, 999))
    write(
        scene,
        f"CREATE TABLE wide (c0 INT, {columns}, c999 INT, PRIMARY KEY (c999, c0))",
        f"INSERT INTO wide VALUES (0, {values}, 999)",
    )
    scene.follow()
    compare(scene, "kinds.wide")


def test_generated_and_invisible_columns(scene: TableScene) -> None:
    write(
        scene,
        "CREATE TABLE made (n INT, hidden VARCHAR(9) INVISIBLE, made VARCHAR(40) AS (CONCAT('n', n)) STORED, "
        "computed BIGINT AS (n + 1) VIRTUAL, PRIMARY KEY (n))",
        "INSERT INTO made (n, hidden) VALUES (1, 'x'), (2, NULL)",
    )
    scene.follow()
    unavailable = update_pb2.Value(unavailable=True)
    chunk = scene.chunk("kinds.made")
    assert chunk.schema == scene.schemas["kinds.made"]
    for key, logged in scene.rows["kinds.made"].items():
        ours, theirs = decode_row(chunk.rows[key]), decode_row(logged)
        for mine, other in zip(ours.after, theirs.after, strict=True):
            # Only a generated column that is not stored may be missing in the log.
            assert mine == other or (other == unavailable and mine.int == ours.key[0].int + 1)


def test_a_row_over_the_limit_comes_without_its_values(server: DatabaseServer) -> None:
    server.sql("DROP DATABASE IF EXISTS kinds", "CREATE DATABASE kinds")
    with TableScene(server, max_update_bytes=10_000) as scene:
        write(
            scene,
            "CREATE TABLE large (n INT PRIMARY KEY, a LONGBLOB, b MEDIUMTEXT, c VARCHAR(5000))",
            "INSERT INTO large VALUES (1, REPEAT('x', 9000), '', 'c'), (2, REPEAT('x', 9990), '', NULL)",
            "INSERT INTO large VALUES (3, REPEAT('x', 10000000), '', 'c')",
            "INSERT INTO large VALUES (4, REPEAT('x', 6000), REPEAT('y', 6000), '')",
            "INSERT INTO large VALUES (5, REPEAT('x', 6000), '', REPEAT('c', 4500)), (6, NULL, NULL, NULL)",
        )
        scene.follow()
        compare(scene, "kinds.large")
        large = {row.key[0].int for row in map(decode_row, scene.rows["kinds.large"].values()) if row.too_large}
        assert large >= {3, 4, 5}


def test_a_row_of_several_packets(scene: TableScene) -> None:
    size = (1 << 24) + 4711
    write(
        scene,
        "CREATE TABLE huge (n INT PRIMARY KEY, v LONGBLOB, w LONGBLOB)",
        f"INSERT INTO huge VALUES (1, REPEAT(x'80ff', {size // 2}), 'after it'), (2, 'small', NULL)",
    )
    scene.follow()
    compare(scene, "kinds.huge")
    # One row is over the limit of bytes, and ends the chunk.
    assert [len(chunk.rows) for chunk in scene.chunks("kinds.huge", ChunkLimits(rows=5000))] == [1, 1]
