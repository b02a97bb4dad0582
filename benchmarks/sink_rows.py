"""Rows per second of each SQL mirror, beside the bulk loader of its database for the same rows, in the same run.

    python -m benchmarks.sink_rows [ROWS] [TARGET ...]

The mirror gets batches as they arrive from a publisher, and commits a datamarker every 20,000 rows. What is counted is
all that it does: to decode, fold, write and commit. Inserts go into an empty table, updates change all their rows. The
loader is COPY, LOAD DATA or the `.import` of SQLite's shell, into an empty table with the same key, of text that was
made beforehand. The columns of processor time are of this process, which for SQLite and DuckDB
includes the database.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
import pymysql

from benchmarks.cases import scratch
from examples.demo.mariadb import MariaDbServer
from examples.demo.postgres_server import PostgresServer
from sinks.kinds import kind_of
from sinks.port import Sink
from subscriber_sdk import Datamarker, NoticeKind, SchemaChange, ShardNotice, Update
from subscriber_sdk.testing import body_of, update
from subscriber_sdk.testing.publisher import marker_at
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch
from wormholectl.show.printer import print_table

__all__ = ["measure"]

_RUNS: Final = 3
_BATCH: Final = 2_000
_COMMIT: Final = 20_000
_COLUMNS: Final = "id, name, stock, price, changed_at, note"
_DEFINED: Final = (
    "CREATE TABLE loaded (id BIGINT NOT NULL PRIMARY KEY, name {text}, stock BIGINT, price {decimal}, "
    "changed_at {text}, note {text})"
)


@dataclass
class Target:
    """A database. ``load``: load the file with its own loader into an empty table ``loaded``. ``empty``: remove the
    mirror's tables."""

    name: str
    url: str
    load: Callable[[Path], None]
    empty: Callable[[], None]


def _row(key: int, round_: int) -> dict[str, Any]:
    return {
        "name": f"article number {key}",
        "stock": key * 7 + round_,
        "price": Decimal(f"{key}.25"),
        "changed_at": f"2026-11-29 10:{key % 60:02d}:00.000000",
        "note": f"of round {round_}, with some words more, {key:08d}",
    }


def _batches(rows: int, round_: int) -> list[tuple[bytes, Schema]]:
    """Batch bodies: inserts in round 0, then updates."""
    made = []
    for begin in range(0, rows, _BATCH):
        changes = [
            update("shop.items", key=key, before=_row(key, round_ - 1) if round_ else None, after=_row(key, round_))
            for key in range(begin, min(rows, begin + _BATCH))
        ]
        made.append((body_of(changes, number=begin + 1), changes[0].schema))
    return made


def _schema(schema: Schema, _: int) -> Schema:
    return schema


class _Mirror:
    """One shard of an open sink, called as the SDK calls it."""

    def __init__(self, sink: Sink) -> None:
        self._subscriber: Any = sink.subscriber
        self._schema: Any = None
        self._assign(1)

    def _assign(self, epoch: int) -> None:
        notice = ShardNotice(NoticeKind.ASSIGNED, "db1", epoch, marker_at(0), application="bench", log="db1")
        self._subscriber.on_shard_notice(notice)

    def write(self, batches: Sequence[Any], at: int) -> None:
        done = 0
        for body, schema in batches:
            updates = Batch(parse_body(body), "db1", 1, False, partial(_schema, schema)).updates()
            if schema != self._schema:
                self._define(updates[0], schema)
            self._subscriber.on_updates(updates)
            done += len(updates)
            if done % _COMMIT == 0:
                self._subscriber.on_datamarker(_marker(at + done))
        self._subscriber.on_datamarker(_marker(at + done))

    def _define(self, first: Update, schema: Any) -> None:
        change = SchemaChange("db1", 1, schema.table, first.id, None, schema)
        try:
            self._subscriber.on_schema(change)
        except Exception as cause:  # noqa: BLE001 - the table is made by the rollback
            self._subscriber.on_rollback(_marker(0), cause)
            self._subscriber.on_schema(change)
        self._schema = schema

    def close(self) -> None:
        self._subscriber.on_shard_notice(ShardNotice(NoticeKind.REVOKED, "db1", 1))


def _marker(number: int) -> Datamarker:
    return replace(marker_at(number), shard="db1")


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and those of the processor."""
    begin, busy = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - begin, time.process_time() - busy


def measure(target: Target, rows: int, file: Path, rounds: Sequence[Sequence[Any]]) -> list[str]:
    """A row of the table: rows per second of the loader, of inserts and of updates, ratios to the loader, and processor
    time of a row.
    """
    found: dict[str, list[tuple[float, float]]] = {"load": [], "insert": [], "update": []}
    for _ in range(_RUNS):
        found["load"].append(_timed(lambda: target.load(file)))
        target.empty()
        kind = kind_of(target.url.partition("://")[0])
        mirror = _Mirror(kind.open("bench", kind.settings.model_validate({"url": target.url})))
        for name, at in (("insert", 0), ("update", 1)):
            found[name].append(_timed(partial(mirror.write, rounds[at], at * rows)))
        mirror.close()
    load, insert, change = (rows / statistics.median(wall for wall, _ in times) for times in found.values())
    busy = (1e6 * statistics.median(used for _, used in found[name]) / rows for name in ("insert", "update"))
    return [
        target.name,
        f"{load:,.0f}",
        f"{insert:,.0f}",
        f"{insert / load:.2f}",
        f"{change:,.0f}",
        f"{change / load:.2f}",
        *(f"{one:.1f}" for one in busy),
    ]


@contextlib.contextmanager
def _postgres() -> Iterator[Target]:
    with PostgresServer(options={"max_wal_size": "2GB"}) as server:
        at = f"postgresql://postgres@{server.host}:{server.port}/postgres?sslmode=disable"
        defined = _DEFINED.format(text="TEXT", decimal="NUMERIC")
        with psycopg.connect(at, autocommit=True) as connection:

            def load(file: Path) -> None:
                with connection.cursor().copy(f"COPY loaded ({_COLUMNS}) FROM STDIN") as copy, file.open("rb") as data:
                    while portion := data.read(1 << 18):
                        copy.write(portion)

            def empty() -> None:
                connection.execute("DROP TABLE IF EXISTS loaded, items, wormhole_marker, wormhole_sink")
                connection.execute(defined)

            empty()
            yield Target("PostgreSQL", at, load, empty)


@contextlib.contextmanager
def _mariadb() -> Iterator[Target]:
    options = {"local-infile": "1", "innodb-log-file-size": "256M", "innodb-buffer-pool-size": "512M"}
    with MariaDbServer(options=options) as server:
        server.sql("CREATE DATABASE bench")
        url = f"mariadb://root@{server.host}:{server.port}/bench"
        connection = pymysql.connect(
            host=server.host, port=server.port, user="root", database="bench", local_infile=True, autocommit=True
        )

        def run(statement: str) -> None:
            with connection.cursor() as cursor:
                cursor.execute(statement)

        def empty() -> None:
            run("DROP TABLE IF EXISTS loaded, items, wormhole_marker, wormhole_sink")
            run(_DEFINED.format(text="LONGTEXT", decimal="DECIMAL(65,30)"))

        empty()
        yield Target(
            "MariaDB", url, lambda file: run(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded ({_COLUMNS})"), empty
        )
        connection.close()


@contextlib.contextmanager
def _sqlite() -> Iterator[Target]:
    with scratch() as folder:
        path = folder / "bench.db"

        def run(*words: str) -> None:
            subprocess.run(["sqlite3", path, *words], check=True)

        def empty() -> None:
            path.unlink(missing_ok=True)
            run(_DEFINED.format(text="TEXT", decimal="TEXT"))

        empty()
        yield Target("SQLite", f"sqlite:///{path}", lambda file: run(".mode tabs", f".import {file} loaded"), empty)


@contextlib.contextmanager
def _duckdb() -> Iterator[Target]:
    with scratch() as folder:
        path = folder / "bench.duckdb"

        def run(statement: str) -> None:
            with duckdb.connect(str(path), config={"threads": 2}) as connection:
                connection.execute(statement)

        def empty() -> None:
            path.unlink(missing_ok=True)
            run(_DEFINED.format(text="VARCHAR", decimal="VARCHAR"))

        empty()
        yield Target(
            "DuckDB", f"duckdb://{path}", lambda file: run(f"COPY loaded FROM '{file}' (DELIMITER '\t')"), empty
        )


_TARGETS: Final = {"postgres": _postgres, "mariadb": _mariadb, "sqlite": _sqlite, "duckdb": _duckdb}


def main(words: Sequence[str]) -> None:
    """Measure the targets that are named, or all."""
    rows = int(words[0]) if words else 200_000
    rates = ("loader, rows/s", "inserts/s", "of the loader", "updates/s", "of the loader")
    columns = ("database", *rates, "µs an insert", "µs an update")
    with scratch() as folder:
        file = folder / "rows.tsv"
        with file.open("w") as text:
            for key in range(rows):
                text.write("\t".join([str(key), *map(str, _row(key, 0).values())]) + "\n")
        rounds = [_batches(rows, round_) for round_ in (0, 1)]
        shown = []
        for name in words[1:] or _TARGETS:
            with _TARGETS[name]() as target:
                shown.append(measure(target, rows, file, rounds))
    print_table(columns, shown, "", f"{rows:,} rows of six columns; median of {_RUNS}")


if __name__ == "__main__":
    main(sys.argv[1:])
