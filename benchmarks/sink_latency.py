"""Measures the latency from the answer to a COMMIT in MariaDB until the row can be read in its PostgreSQL mirror.

    python -m benchmarks.sink_latency [PER_SECOND [SECONDS [INTERVAL ...]]]

One connection inserts rows at a rate, each in a transaction. Another one looks for the last row of the mirror all the
time. Publisher and sink are those of `wormholectl up`, on the same machine. INTERVAL: values of `marker_interval`.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Final

import psycopg
import pymysql

from benchmarks.cases import scratch
from benchmarks.machine import load
from examples.demo.mariadb import MariaDbServer
from examples.demo.postgres_server import PostgresServer
from wormholectl.show.printer import print_table

__all__ = ["measure"]

_WARM: Final = 200
_PATIENCE_S: Final = 60.0
_CONFIG: Final = """
version = 1

[coordinator]
static = true

[publisher]
state_dir = "{folder}/state"

[datasets.shop.copies.main.logs.db1]
source = "{source}"
password_file = "{password}"

[applications.mirror]
dataset = "shop"
tables = ["shop.*"]
start = "existing"
marker_interval = "{interval}"

[applications.mirror.subscribers]
one = "127.0.0.1:21899"

[sinks.mirror]
url = "{target}"
"""


def _write(port: int, first: int, count: int, rate: float, committed: SynchronizedArray[float]) -> None:
    """Insert rows, and note when each COMMIT was answered."""
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", database="shop", autocommit=True)
    with connection.cursor() as cursor:
        begin = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            cursor.execute("INSERT INTO items VALUES (%s, %s)", (first + number, "a row of some text" * 3))
            committed[number] = time.monotonic()
    connection.close()


def _watch(target: psycopg.Connection[tuple[int]], first: int, count: int) -> array[float]:
    """When each row was seen in the mirror."""
    seen, until = array("d"), time.monotonic() + count / 100 + _PATIENCE_S
    while len(seen) < count:
        found = target.execute("SELECT coalesce(max(id), 0) FROM items WHERE id < %s", (first + count,)).fetchone()
        now = time.monotonic()
        if now > until:
            raise TimeoutError(f"{count - len(seen)} rows did not arrive")
        seen.extend([now] * (max(first - 1, found[0] if found else 0) - first + 1 - len(seen)))
    return seen


def measure(source: MariaDbServer, target: str, rate: float, seconds: float, interval: str) -> list[str]:
    """A row of the table."""
    count = int(rate * seconds)
    with scratch() as folder, psycopg.connect(target, autocommit=True) as connection:
        file = folder / "shop.toml"
        url = f"mariadb://wormhole@127.0.0.1:{source.port}/shop"
        settings = {"folder": folder, "source": url.removesuffix("/shop"), "target": target, "interval": interval}
        file.write_text(_CONFIG.format(password=source.password_file, **settings))
        connection.execute("DROP TABLE IF EXISTS items, wormhole_marker, wormhole_sink")
        connection.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, note TEXT)")
        source.sql("TRUNCATE shop.items")
        up = [sys.executable, "-m", "wormholectl", "up", "-f", str(file), "--detach"]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            for begin, number, speed in ((1, _WARM, 100.0), (1 + _WARM, count, rate)):
                committed = multiprocessing.Array("d", number)
                writer = multiprocessing.Process(target=_write, args=(source.port, begin, number, speed, committed))
                writer.start()
                seen = _watch(connection, begin, number)
                writer.join()
        finally:
            down = [sys.executable, "-m", "wormholectl", "down", "-f", str(file)]
            subprocess.run(down, check=True, stdout=subprocess.DEVNULL)
    waits = sorted(1000 * (there - here) for here, there in zip(committed[:], seen, strict=True))
    hundredths = statistics.quantiles(waits, n=100)
    return [interval, *(f"{value:.1f}" for value in (hundredths[49], hundredths[98], waits[-1])), f"{load():.1f}"]


def main(words: Sequence[str]) -> None:
    """Measure each interval."""
    rate, seconds = float(words[0]) if words else 1000.0, float(words[1]) if len(words) > 1 else 20.0
    options = {"innodb-flush-log-at-trx-commit": "2", "sync-binlog": "0"}
    with MariaDbServer(options=options) as source, PostgresServer(options={"synchronous_commit": "off"}) as server:
        source.sql("CREATE DATABASE shop", "CREATE TABLE shop.items (id BIGINT PRIMARY KEY, note TEXT)")
        target = f"postgresql://postgres@{server.host}:{server.port}/postgres?sslmode=disable"
        rows = [measure(source, target, rate, seconds, interval) for interval in words[2:] or ("10ms", "1s")]
    columns = ("marker_interval", "p50 ms", "p99 ms", "longest ms", "load")
    print_table(columns, rows, "", f"{rate:,.0f} rows a second for {seconds:g} s, each a transaction")


if __name__ == "__main__":
    main(sys.argv[1:])
