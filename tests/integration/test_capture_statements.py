"""Statements of every kind, drawn at random: what the recorded changes make of the tables is what the tables hold.

Triggers of the application change the same and other rows of the table that fired them. ``WORMHOLE_ROUNDS`` sets the
number of rounds, and ``WORMHOLE_SEED`` repeats one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from datastores.postgres.capture.source import CaptureSource
from tests.support.capture_harness import as_owner, capture_source, install
from tests.support.postgres_server import PostgresServer
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import Row, decode_row, op_of, values_of

ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
STATEMENTS: Final = 120

TABLES: Final = """
CREATE SCHEMA shop;
CREATE TABLE shop.plain (k int PRIMARY KEY, v text, n numeric, at timestamptz,
  doubled int GENERATED ALWAYS AS (k * 2) STORED);
CREATE TABLE shop.parent (k int PRIMARY KEY, v text);
CREATE TABLE shop.child (k int PRIMARY KEY,
  parent int REFERENCES shop.parent ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE shop.parts (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);
CREATE TABLE shop.low PARTITION OF shop.parts FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE shop.high (v text, k int NOT NULL);
ALTER TABLE shop.parts ATTACH PARTITION shop.high FOR VALUES FROM (10) TO (MAXVALUE);
CREATE TABLE shop.chain (k int PRIMARY KEY, v text);
-- Each row changes the ones after it, which the outer statement may have changed already.
CREATE FUNCTION shop.follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() = 1 THEN
  UPDATE shop.chain SET v = NEW.v || '>' WHERE k IN (NEW.k, NEW.k + 1, NEW.k + 2); END IF; RETURN NULL; END $$;
CREATE TRIGGER follow AFTER INSERT OR UPDATE ON shop.chain FOR EACH ROW EXECUTE FUNCTION shop.follow();
-- A row is there again, while the deletion of the row with its key is still to be recorded.
CREATE FUNCTION shop.again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() = 1 THEN
  INSERT INTO shop.chain VALUES (OLD.k + 1, 'again') ON CONFLICT DO NOTHING; END IF; RETURN NULL; END $$;
CREATE TRIGGER again AFTER DELETE ON shop.chain FOR EACH ROW EXECUTE FUNCTION shop.again();
CREATE FUNCTION shop.before() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := 'b' || NEW.v; RETURN NEW; END $$;
CREATE TRIGGER aaa BEFORE INSERT OR UPDATE ON shop.plain FOR EACH ROW EXECUTE FUNCTION shop.before();
"""


def _statement(drawn: random.Random) -> str:
    row, other, value = drawn.randrange(20), drawn.randrange(20), f"v{drawn.randrange(10**6)} \",\\()'' é\n\t"
    text = "'" + value.replace("'", "''").replace("''''", "''") + "'"
    return drawn.choice(
        (
            f"INSERT INTO shop.plain VALUES ({row}, {text}, {row}.50, now()) ON CONFLICT DO NOTHING",
            f"INSERT INTO shop.plain VALUES ({row}, '', NULL, NULL) ON CONFLICT (k) DO UPDATE SET v = {text}",
            f"UPDATE shop.plain SET v = {text} WHERE k BETWEEN {row} AND {other}",
            f"UPDATE shop.plain SET k = {other} WHERE k = {row}",
            f"DELETE FROM shop.plain WHERE k > {row}",
            f"INSERT INTO shop.parent VALUES ({row}, {text}) ON CONFLICT DO NOTHING",
            f"INSERT INTO shop.child SELECT {other}, k FROM shop.parent WHERE k = {row} ON CONFLICT DO NOTHING",
            f"UPDATE shop.parent SET k = {other} WHERE k = {row}",
            f"DELETE FROM shop.parent WHERE k = {row}",
            f"INSERT INTO shop.parts VALUES ({row}, {text}), ({row} + 10, {text}) ON CONFLICT DO NOTHING",
            f"UPDATE shop.parts SET k = {other}, v = {text} WHERE k = {row}",
            f"WITH gone AS (DELETE FROM shop.parts WHERE k = {row} RETURNING *) INSERT INTO shop.chain TABLE gone",
            f"INSERT INTO shop.chain SELECT n, {text} FROM generate_series({row}, {row} + 3) n ON CONFLICT DO NOTHING",
            f"UPDATE shop.chain SET v = {text} WHERE k BETWEEN {row} - 3 AND {row}",
            f"DELETE FROM shop.chain WHERE k BETWEEN {row} AND {row} + 4",
            "SAVEPOINT one",
            "ROLLBACK TO one",
            drawn.choice(
                ("TRUNCATE shop.low", "TRUNCATE shop.parts", "TRUNCATE shop.parent CASCADE", "TRUNCATE shop.chain")
            ),
            drawn.choice(
                ("ALTER TABLE shop.plain ADD COLUMN more text DEFAULT 'm'", "ALTER TABLE shop.plain DROP COLUMN more")
            ),
            "ALTER TABLE shop.plain ALTER COLUMN n TYPE text",
            drawn.choice(("SET TimeZone = 'Asia/Tokyo'", "SET DateStyle = 'German'", "SET bytea_output = 'escape'")),
            drawn.choice(
                ("SET LOCAL session_replication_role = replica", "SET LOCAL session_replication_role = origin")
            ),
        )
    )


def _run(connection: psycopg.Connection[Any], drawn: random.Random) -> None:
    for _ in range(STATEMENTS):
        if not connection.info.transaction_status and drawn.random() < 0.4:
            connection.execute("BEGIN")
        with suppress(psycopg.Error):
            if drawn.random() < 0.05:
                with connection.cursor().copy("COPY shop.chain FROM STDIN") as copy:
                    copy.write(f"{drawn.randrange(20)}\tcopied\n")
            else:
                connection.execute(_statement(drawn).encode())
        if connection.info.transaction_status and drawn.random() < 0.3:
            connection.execute("ROLLBACK" if drawn.random() < 0.2 else "COMMIT")
    if connection.info.transaction_status:
        connection.execute("COMMIT")


Rows = dict[str, dict[tuple[object, ...], dict[str, object]]]


def applied(source: CaptureSource, start: Datamarker) -> Rows:
    """What the updates after ``start`` make of tables that were empty there. A value is compared by its text."""
    rows: Rows = {}
    reader, end, place = source.open(start), source.latest().order, start.order
    while place < end:
        segment = reader.read(2_000, 1.0)
        assert segment is not None
        assert not segment.broken
        assert segment.gap is None
        place = segment.end
        for run in segment.runs.values():
            body = build_body(run, segment.end.incarnation)
            assert body is not None
            parsed = parse_body(body.data)
            schemas = {schema.id: schema for schema in run.schemas}
            for i, data in enumerate(parsed.updates):
                _apply(rows, decode_row(data), schemas[parsed.schema_id_of(i)])
    reader.close()
    return {name: table for name, table in rows.items() if table}


def _apply(rows: Rows, update: Row, schema: Schema) -> None:
    table, key, op = rows.setdefault(schema.table, {}), values_of(update.key), op_of(update)
    if op is Op.TRUNCATE:
        table.clear()
        return
    table.pop(values_of(update.old_key) or key, None)
    if op is not Op.DELETE:
        values = zip((column.name for column in schema.columns), values_of(update.after), strict=True)
        table[key] = {name: None if value is None else str(value) for name, value in values if name != "more"}


def _held(server: PostgresServer, database: str, names: Iterable[str]) -> Rows:
    """The rows that the tables hold."""
    found: Rows = {}
    for name in names:
        columns = server.sql(
            "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attgenerated = '' AND "
            f"attname <> 'more' AND attrelid = '{name}'::regclass",
            database=database,
        )
        texts = ", ".join(f"{column}::text" for (column,) in columns)
        for key, *values in server.sql(f"SELECT k, {texts} FROM {name}", database=database):
            row = {column: value for (column,), value in zip(columns, values, strict=True)}
            found.setdefault(name, {})[key,] = row
    return found


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_the_changes_make_the_tables(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path, round_: int
) -> None:
    server, database = postgres_server, postgres_database
    seed = os.environ.get("WORMHOLE_SEED") or f"{round_}/{random.randrange(1 << 32)}"
    print(f"WORMHOLE_SEED={seed}")
    as_owner(server, database, TABLES)
    install(server, database, "shop.*")
    source = capture_source(server, database, tmp_path)
    try:
        start = source.latest()
        with server.connect(database) as connection:
            _run(connection, random.Random(seed))
        names = ("shop.plain", "shop.parent", "shop.child", "shop.parts", "shop.chain")
        assert applied(source, start) == _held(server, database, names)
        assert source.status().problems == ()
    finally:
        source.stop()
