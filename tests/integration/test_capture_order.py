"""The order of recorded changes, compared with the server's own log of the same transactions.

Twenty writers change few rows at a time, in transactions that are long, nested, rolled back or prepared. Both logs have
to have the same transactions, each with the same updates in the same order, and each row's changes in the same order.
``WORMHOLE_ROUNDS`` sets the number of rounds, and ``WORMHOLE_SEED`` repeats one.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.support.capture_harness import as_owner, capture_source, install
from tests.support.postgres_harness import prepare_database, source_of
from tests.support.postgres_server import NewPostgres, PostgresServer
from wormhole.ports.testing.reading import Read, ReadUpdate, read_log, read_until

ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "1"))
WRITERS: Final = 20
TRANSACTIONS: Final = 6
ROWS: Final = 12
DATABASE: Final = "order_of_changes"

_RETRIED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)


@pytest.fixture(scope="module")
def server() -> Any:
    made = NewPostgres()
    try:
        yield made(max_prepared_transactions="40")
    finally:
        made.close()


def _write(server: PostgresServer, writer: int, seed: str) -> None:
    """Transactions of one writer. Each row that they write has a value of its own."""
    drawn = random.Random(f"{seed}/{writer}")
    with server.connect(DATABASE, autocommit=True) as connection:
        for number in range(TRANSACTIONS):
            with suppress(*_RETRIED):
                _transaction(connection, drawn, f"{writer}.{number}")
            if connection.info.transaction_status:
                connection.execute("ROLLBACK")


def _transaction(connection: psycopg.Connection[Any], drawn: random.Random, name: str) -> None:
    connection.execute("BEGIN")
    for step in range(drawn.randint(1, 5)):
        nested = drawn.random() < 0.3
        if nested:
            connection.execute("SAVEPOINT inner_one")
        table, row, value = drawn.choice("ab"), drawn.randrange(ROWS), f"{name}.{step}"
        match drawn.randrange(4):
            case 0:
                connection.execute(f"DELETE FROM shop.{table} WHERE k = %s", (row,))
            case 1:
                connection.execute(f"UPDATE shop.{table} SET v = %s WHERE k >= %s AND k < %s + 2", (value, row, row))
            case _:
                connection.execute(
                    f"INSERT INTO shop.{table} VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                    (row, value),
                )
        if nested and drawn.random() < 0.5:
            connection.execute("ROLLBACK TO inner_one")
        if drawn.random() < 0.2:
            connection.execute("SELECT pg_sleep(%s)", (drawn.random() * 0.05,))
    end = drawn.random()
    if end < 0.2:
        connection.execute("ROLLBACK")
    elif end < 0.35:
        connection.execute(f"PREPARE TRANSACTION '{name}'")
        connection.execute("SELECT pg_sleep(%s)", (drawn.random() * 0.05,))
        connection.execute(f"{drawn.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} PREPARED '{name}'")
    else:
        connection.execute("COMMIT")


Content = tuple[tuple[object, ...], ...]


def _content(updates: list[ReadUpdate]) -> Content:
    return tuple((update.op, update.table, update.key, update.after) for update in updates)


def _transactions(read: Read) -> list[Content]:
    """What each transaction changed, in the log's order."""
    found: dict[str, list[ReadUpdate]] = defaultdict(list)
    for update in read.updates:
        found[update.id.rpartition(":")[0]].append(update)
    return [_content(updates) for updates in found.values()]


def _by_row(read: Read) -> dict[tuple[object, ...], Content]:
    found: dict[tuple[object, ...], list[ReadUpdate]] = defaultdict(list)
    for update in read.updates:
        found[update.table, *update.key].append(update)
    return {row: _content(updates) for row, updates in found.items()}


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_both_logs_have_the_same_transactions_and_rows(server: PostgresServer, tmp_path: Path, round_: int) -> None:
    seed = os.environ.get("WORMHOLE_SEED") or f"{round_}/{random.randrange(1 << 32)}"
    print(f"WORMHOLE_SEED={seed}")
    prepare_database(server, DATABASE, "DROP SCHEMA IF EXISTS wormhole CASCADE", "DROP SCHEMA IF EXISTS shop CASCADE")
    as_owner(
        server,
        DATABASE,
        "CREATE SCHEMA shop",
        *(f"CREATE TABLE shop.{name} (k int PRIMARY KEY, v text NOT NULL)" for name in "ab"),
    )
    install(server, DATABASE, "shop.*")
    log, captured = (
        source_of(server, DATABASE, tmp_path / "log"),
        capture_source(server, DATABASE, tmp_path / "capture"),
    )
    try:
        log_start, start = log.latest(), captured.latest()
        # A transaction that stays open delays neither the others nor their order.
        with server.connect(DATABASE, autocommit=True) as longest:
            longest.execute("BEGIN")
            longest.execute("INSERT INTO shop.a VALUES (1000, 'longest')")
            reader, live = captured.open(start), Read(last_end=start.order)
            writers = [threading.Thread(target=_write, args=(server, n, seed)) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            while any(writer.is_alive() for writer in writers):
                if (segment := reader.read(500, 0.05)) is not None:
                    live.add(segment)
            read_until(reader, captured.latest().order, into=live)
            assert live.updates
            longest.execute("COMMIT")
            read_until(reader, captured.latest().order, into=live)
            reader.close()
        again, logged = read_log(captured, start), read_log(log, log_start)
        logged.updates = [update for update in logged.updates if update.table.startswith("shop.")]
        assert again.updates == live.updates, "what is read again has another order"
        assert sorted(_transactions(live), key=repr) == sorted(_transactions(logged), key=repr)
        assert _by_row(live) == _by_row(logged)
        assert live.updates[-1].after == ("1000", "longest") or live.updates[-1].key == (1000,)
        assert captured.status().problems == ()
    finally:
        captured.stop()
        log.stop()
