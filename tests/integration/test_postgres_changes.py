"""What PostgreSQL logs of changed tables, partitions, TRUNCATE and messages, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from datastores.postgres.log.opening import MESSAGES_SINCE
from tests.support.postgres_changes import Slot, decoded, keyed
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.postgres_types import VERSION
from wormhole.model.values import UNAVAILABLE

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def slot(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Slot]:
    found = Slot(postgres_server, postgres_database)
    yield found
    found.close()


@pytest.fixture
def sql(postgres_server: PostgresServer, postgres_database: str) -> Sql:
    return lambda *statements: postgres_server.sql(*statements, database=postgres_database)


def test_schema_changes_inside_a_transaction(sql: Sql, slot: Slot) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, gone text, v text)",
        "INSERT INTO t VALUES (1, 'g', 'a')",
        "BEGIN",
        "INSERT INTO t VALUES (2, 'g', 'b')",
        "ALTER TABLE t DROP COLUMN gone",
        "INSERT INTO t VALUES (3, 'c')",
        "ALTER TABLE t ADD COLUMN n numeric DEFAULT 1.5",
        "ALTER TABLE t RENAME v TO w",
        "UPDATE t SET n = 2 WHERE id = 1",
        "ALTER TABLE t ALTER n TYPE text",
        "INSERT INTO t VALUES (4, 'd', 'x')",
        "COMMIT",
    )
    changes = [(change.op, change.after and {**change.after}) for change in decoded(slot.messages())]
    assert changes[0] == ("insert", {"id": 1, "gone": "g", "v": "a"})
    assert changes[1] == ("insert", {"id": 2, "gone": "g", "v": "b"})
    assert changes[2] == ("insert", {"id": 3, "v": "c"})
    assert [str(value) for value in (changes[3][1] or {}).values()] == ["1", "a", "2"]
    assert changes[-1] == ("insert", {"id": 4, "w": "d", "n": "x"})


def test_truncate_with_cascade_and_several_tables(sql: Sql, slot: Slot) -> None:
    sql(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a)",
        "CREATE TABLE c (id int)",
        "TRUNCATE a, c CASCADE",
    )
    found = [(change.op, change.table) for change in decoded(slot.messages())]
    assert sorted(found) == [("truncate", "public.a"), ("truncate", "public.b"), ("truncate", "public.c")]


@pytest.mark.parametrize("root", [False, True])
def test_partitions_by_root_or_leaf(
    postgres_server: PostgresServer, postgres_database: str, sql: Sql, root: bool
) -> None:
    slot = Slot(postgres_server, postgres_database, f"FOR ALL TABLES WITH (publish_via_partition_root = {root})")
    sql(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low (v text, id int NOT NULL)",
        "ALTER TABLE low ADD PRIMARY KEY (id)",
        "ALTER TABLE p ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF p FOR VALUES FROM (10) TO (20)",
        "INSERT INTO p VALUES (1, 'a'), (11, 'b')",
        "UPDATE p SET id = 12 WHERE id = 1",
        "TRUNCATE p",
    )
    found = [(change.op, change.table.removeprefix("public."), change.key) for change in decoded(slot.messages())]
    slot.close()
    changes = [("insert", "low", (1,)), ("insert", "high", (11,)), ("delete", "low", (1,)), ("insert", "high", (12,))]
    if root:
        assert found == [*((op, "p", key) for op, _, key in changes), ("truncate", "p", ())]
    else:
        assert found[:4] == changes
        assert sorted(found[4:]) == [("truncate", "high", ()), ("truncate", "low", ())]


def test_a_key_that_is_stored_apart_is_known_although_it_did_not_change(sql: Sql, slot: Slot) -> None:
    key = "".join(chr(33 + n * 7919 % 90) for n in range(2500))
    sql(
        "CREATE TABLE t (k text PRIMARY KEY, v text)",
        "ALTER TABLE t ALTER k SET STORAGE external",
        f"INSERT INTO t VALUES ($${key}$$, 'a')",
        "UPDATE t SET v = 'b'",
        "DELETE FROM t",
    )
    changes = decoded(slot.messages())
    assert [(change.op, change.key, change.old_key) for change in changes] == [
        ("insert", (key,), ()),
        ("update", (key,), ()),
        ("delete", (key,), ()),
    ]
    assert changes[1].after == {"k": key, "v": "b"}


@pytest.mark.parametrize("full", [False, True])
def test_unchanged_toast(sql: Sql, slot: Slot, full: bool) -> None:
    large = "x" * 9000
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, n int)",
        "ALTER TABLE t ALTER v SET STORAGE external",
        f"ALTER TABLE t REPLICA IDENTITY {'FULL' if full else 'DEFAULT'}",
        f"INSERT INTO t VALUES (1, '{large}', 1)",
        "UPDATE t SET n = 2",
        "UPDATE t SET v = NULL",
    )
    _, kept, gone = decoded(slot.messages(), find_key=keyed("id"))
    assert kept.after == {"id": 1, "v": large if full else UNAVAILABLE, "n": 2}
    assert gone.after == {"id": 1, "v": None, "n": 2}


def test_a_large_transaction_that_is_rolled_back_leaves_nothing(postgres_of_each: PostgresServer) -> None:
    """Version 18 sends a Stream Abort for its subtransaction, though nothing is streamed."""
    rows = "INSERT INTO t (v) SELECT repeat('x', 100) FROM generate_series(1, {})"
    with new_database(postgres_of_each) as database:
        postgres_of_each.sql("CREATE TABLE t (id serial PRIMARY KEY, v text)", database=database)
        slot = Slot(postgres_of_each, database, logical_decoding_work_mem="64kB")
        made = ("BEGIN", rows.format(1), "SAVEPOINT a", rows.format(100), "RELEASE a", rows.format(5000), "ROLLBACK")
        postgres_of_each.sql(*made, "INSERT INTO t VALUES (1, 'a')", database=database)
        changes = decoded(slot.messages())
        slot.close()
    assert [(change.op, change.key) for change in changes] == [("insert", (1,))]


@pytest.mark.skipif(VERSION * 10_000 < MESSAGES_SINCE, reason="this server sends no logical messages")
def test_logical_messages(sql: Sql, slot: Slot) -> None:
    sql(
        "BEGIN",
        "SELECT pg_logical_emit_message(true, 'outbox', 'first')",
        "SELECT pg_logical_emit_message(false, 'at once', 'second')",
        "COMMIT",
        "BEGIN",
        "SELECT pg_logical_emit_message(true, 'outbox', 'never')",
        "SELECT pg_logical_emit_message(false, 'at once', '\\xff00'::bytea)",
        "ROLLBACK",
        "SELECT pg_logical_emit_message(true, 'outbox', 'last')",  # which flushes the log
    )
    assert [tuple((change.after or {}).values()) for change in decoded(slot.messages())] == [
        ("at once", b"second", False),
        ("outbox", b"first", True),
        ("at once", b"\xff\x00", False),
        ("outbox", b"last", True),
    ]


def test_a_database_in_sql_ascii_may_hold_what_is_no_text(postgres_server: PostgresServer) -> None:
    postgres_server.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    slot = Slot(postgres_server, "ascii", client_encoding="SQL_ASCII")  # with another the server refuses to send it
    postgres_server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, E'\\xff'), (2, 'ü')",
        database="ascii",
    )
    assert [(change.after or {})["v"] for change in decoded(slot.messages())] == [b"\xff", "ü"]
    slot.close()
    postgres_server.sql("SELECT pg_drop_replication_slot('slot_ascii')", "DROP DATABASE ascii WITH (FORCE)")
