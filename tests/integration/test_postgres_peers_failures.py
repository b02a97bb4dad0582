"""What readers of PostgreSQL's log are known to do wrong, each with the test that shows that ours does not.

- The server's disk fills with log while the publication is idle (PostHog #83333, "the dominant CDC production
  failure"): ``test_postgres_source.py: test_posthog_83333_the_slot_follows_while_only_another_database_writes``, and
  for minutes ``tests/system/test_postgres_catch_up.py:
  test_posthog_83333_an_idle_publication_beside_a_busy_database``.
- It fills while a load stalls (PostHog #83333):
  ``test_postgres_source.py: test_posthog_83333_a_stalled_reader_fills_the_disk_up_to_its_bound_only``.
- The slot is ahead of the stored place, and what lies between is skipped (airbyte #46571):
  ``test_postgres_source.py: test_airbyte_46571_a_slot_that_another_program_advanced_is_a_loss``.
- A large value that did not change arrives as NULL: ``test_postgres_changes.py: test_unchanged_toast``.
- A row has the name of its partition, where the table's was asked for:
  ``test_postgres_changes.py: test_partitions_by_root_or_leaf``.
- Domains, arrays, composites, ranges, infinity, years BC and NaN are lost or rounded:
  ``test_postgres_types.py: test_every_type``, against ``SELECT`` and a second decoder.
- The values of an enum keep the names from before a rename: `test_enum_renames`.
- A type is altered, and rows are read by its old form: `test_alter_type`, `test_alter_type_of_a_column`.
- A dropped column shifts the values of those behind it: `test_dropped_columns`.
- The schema changes within a transaction: ``test_postgres_changes.py: test_schema_changes_inside_a_transaction``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.support.postgres_changes import Slot, decoded
from tests.support.postgres_server import PostgresServer
from wormhole.model.values import Value

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def slot(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Slot]:
    found = Slot(postgres_server, postgres_database)
    yield found
    found.close()


@pytest.fixture
def sql(postgres_server: PostgresServer, postgres_database: str) -> Sql:
    return lambda *statements: postgres_server.sql(*statements, database=postgres_database)


def _rows(slot: Slot) -> list[Mapping[str, Value]]:
    return [{**(change.after or {})} for change in decoded(slot.messages())]


def test_enum_renames(sql: Sql, slot: Slot) -> None:
    """A row has the name that the value had when the row was written, also where it is read later."""
    sql(
        "CREATE TYPE mood AS ENUM ('sad', 'fine')",
        "CREATE TABLE t (id int PRIMARY KEY, v mood, many mood[])",
        "INSERT INTO t VALUES (1, 'sad', '{sad,fine}')",
        "BEGIN",
        "INSERT INTO t VALUES (2, 'sad', '{sad}')",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "INSERT INTO t VALUES (3, 'blue', '{blue}')",
        "COMMIT",
        "ALTER TYPE mood ADD VALUE 'sad' BEFORE 'fine'",
        "ALTER TYPE mood RENAME TO feeling",
        "UPDATE t SET v = 'sad', many = NULL WHERE id = 1",
    )
    assert [tuple(row.values()) for row in _rows(slot)] == [
        (1, "sad", "{sad,fine}"),
        (2, "sad", "{sad}"),
        (3, "blue", "{blue}"),
        (1, "sad", None),
    ]


def test_alter_type(sql: Sql, slot: Slot) -> None:
    sql(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE DOMAIN price AS numeric(12, 2)",
        "CREATE TABLE t (id int PRIMARY KEY, v pair, p price)",
        "INSERT INTO t VALUES (1, '(1,x)', 1.5)",
        "BEGIN",
        "ALTER TYPE pair ADD ATTRIBUTE c date",
        "INSERT INTO t VALUES (2, '(2,y,2024-02-29)', 2)",
        "ALTER TYPE pair DROP ATTRIBUTE a",
        "ALTER DOMAIN price ADD CHECK (VALUE >= 0)",
        "ALTER DOMAIN price RENAME TO amount",
        "INSERT INTO t VALUES (3, '(z,infinity)', NULL)",
        "COMMIT",
    )
    assert [(row["v"], str(row["p"])) for row in _rows(slot)] == [
        ("(1,x)", "1.50"),
        ("(2,y,2024-02-29)", "2.00"),
        ("(z,infinity)", "None"),
    ]


def test_alter_type_of_a_column(sql: Sql, slot: Slot) -> None:
    """Every row is written anew by it, which is no change; the type is that of each row."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, '7')",
        "ALTER TABLE t ALTER v TYPE bigint USING v::bigint",
        "INSERT INTO t VALUES (2, 8)",
        "ALTER TABLE t ALTER v TYPE timestamptz USING to_timestamp(v)",
        "UPDATE t SET v = '-infinity' WHERE id = 1",
        "ALTER TABLE t ALTER v TYPE bytea USING '\\x00'",
        "ALTER TABLE t ALTER id TYPE text",
        "INSERT INTO t VALUES ('3', '\\x01')",
    )
    assert [tuple(row.values()) for row in _rows(slot)] == [(1, "7"), (2, 8), (1, "-infinity"), ("3", b"\x01")]


def test_dropped_columns(sql: Sql, slot: Slot) -> None:
    """Also before the key, and one that comes again under the same name."""
    sql(
        "CREATE TABLE t (gone text, id int PRIMARY KEY, a text, b int)",
        "INSERT INTO t VALUES ('g', 1, 'a', 10)",
        "ALTER TABLE t DROP gone, DROP a",
        "INSERT INTO t VALUES (2, 20)",
        "ALTER TABLE t ADD a int",
        "UPDATE t SET a = 3 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    changes = decoded(slot.messages())
    assert [(change.op, change.key, change.after and {**change.after}) for change in changes] == [
        ("insert", (1,), {"gone": "g", "id": 1, "a": "a", "b": 10}),
        ("insert", (2,), {"id": 2, "b": 20}),
        ("update", (1,), {"id": 1, "b": 10, "a": 3}),
        ("delete", (2,), None),
    ]
