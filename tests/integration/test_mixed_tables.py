"""Random types in random order in one table, on every server: what the log and what existing rows say of its rows is
what ``SELECT`` shows, value by value.

``WORMHOLE_ROUNDS`` sets the number of tables; each failure prints the seed, which ``WORMHOLE_SEED`` repeats.
"""

from __future__ import annotations

import contextlib
import os
import struct
from random import Random
from typing import Any, Final

import pytest

from tests.support.databases import FLAVOURS, start_server
from tests.support.mixed_tables import Dialect, MixedTable, MySql, Postgres, fill, random_table
from tests.support.mysql_types import UNAVAILABLE, Shown
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.seed import SEED
from tests.support.table_scene import Scene
from wormhole.model.errors import UnreadableTable
from wormhole.model.schema import Schema
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_row

TABLES: Final = 50 * int(os.environ.get("WORMHOLE_ROUNDS", "1"))
STATEMENTS: Final = 30
AT_ONCE: Final = 25  # tables of which the log is read in one go


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_mysql_and_mariadb(flavour: str) -> None:
    with start_server(flavour, max_allowed_packet="128M") as server, contextlib.closing(MySql(server)) as dialect:
        check(dialect)


def test_postgres(postgres_of_each: PostgresServer) -> None:
    server = postgres_of_each
    with new_database(server) as database, contextlib.closing(Postgres(server, database)) as dialect:
        check(dialect)


def check(dialect: Dialect) -> None:
    chance = Random(SEED)
    failures: list[str] = []
    read = 0
    with dialect.scene() as scene:
        for begin in range(0, TABLES, AT_ONCE):
            tables = [random_table(dialect, f"t{begin + i}", chance) for i in range(min(AT_ONCE, TABLES - begin))]
            for table in tables:
                assert fill(dialect, table, chance, STATEMENTS)
            scene.follow()
            for table in tables:
                read += compare(dialect, scene, table, failures)
                assert dialect.attempt(f"DROP TABLE {table.name}")
    assert not failures, f"WORMHOLE_SEED={SEED}\n" + "\n".join(failures)
    assert read > TABLES // 4, "hardly any table has rows that can be read"


def compare(dialect: Dialect, scene: Scene, table: MixedTable, failures: list[str]) -> bool:
    """Note what differs; returns whether the existing rows could be read."""
    name = dialect.full_name(table)
    described = ", ".join(f"{column.name} {column.kind.declared:.40}{column.more}" for column in table.all)
    described = f"{table.name} ({described}) {table.key} {table.parts} {table.options} {table.after}"
    logged, shown = scene.rows.get(name, {}), dialect.rows(table)
    schema = scene.schemas.get(name)
    if schema is None:
        failures.extend([f"{described}: nothing was logged"] if shown else [])
        return False
    names = [column.name for column in table.all]
    if list(schema.names) != names:
        failures.append(f"{described}: the log has the columns {schema.names}")
        return False
    optional = {column.name for column in table.all if column.optional}
    missing, extra = differences(values_of(logged, schema), shown, optional)
    if missing or extra:
        failures.append(f"{described}: the log has {missing[:2]}, SELECT shows {extra[:2]}")
    try:
        chunks = list(scene.chunks(name, ChunkLimits(rows=7)))
    except UnreadableTable as error:
        if table.key == ("n",) or table.hidden[0]:  # an integer alone
            failures.append(f"{described}: {error}")
        return False
    if {chunk.schema for chunk in chunks} != {schema}:
        failures.append(f"{described}: the log has {schema}, existing rows {chunks[0].schema}")
    rows = {key: update for chunk in chunks for key, update in chunk.rows.items()}
    missing, extra = differences(values_of(rows, schema), shown, set())
    if missing or extra:
        failures.append(f"{described}: existing rows are {missing[:2]}, SELECT shows {extra[:2]}")
    if not optional and rows != logged:
        failures.append(f"{described}: existing rows are other updates than the log's")
    return True


def values_of(rows: dict[bytes, bytes], schema: Schema) -> list[dict[str, Shown]]:
    """What updates hold."""
    updates = map(decode_row, rows.values())
    return [dict(zip(schema.names, map(held, row.after), strict=True)) for row in updates]


def held(value: Any) -> Shown:
    kind = value.WhichOneof("kind")
    content = getattr(value, kind)
    return kind, struct.pack("<d", content).hex() if kind == "double" else content


def differences(
    ours: list[dict[str, Shown]], shown: list[dict[str, Shown]], optional: set[str]
) -> tuple[list[dict[str, Shown]], list[dict[str, Shown]]]:
    """The rows that have no equal on the other side, with the values that differ alone."""
    unknown = {name for row in ours for name in optional if row[name] == UNAVAILABLE}
    left = [{name: value for name, value in row.items() if name not in unknown} for row in ours]
    right = [{name: value for name, value in row.items() if name not in unknown} for row in shown]
    for row in list(left):
        if row in right:
            left.remove(row)
            right.remove(row)
    if len(left) == len(right):
        left.sort(key=lambda row: repr(row["n"]))
        right.sort(key=lambda row: repr(row["n"]))
        for one, other in zip(left, right, strict=True):
            for column in [column for column in one if one[column] == other[column]]:
                if column != "n":
                    del one[column], other[column]
    return left, right
