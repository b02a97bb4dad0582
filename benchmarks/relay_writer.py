"""Inserts rows into the relay benchmark's table on a schedule, on a server of any kind.

Run as ``python -m benchmarks.relay_writer KIND PORT RATE BYTES``. Open loop: a write is due whether or not earlier ones
were late, and the row's ``stamp`` is the time at which it was due. Prints ``ready``. Ends with its input.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable

import psycopg
import pymysql

from benchmarks.postgres.wal import DATABASE


def _writer(kind: str, port: int) -> Callable[[str], object]:
    if kind == "postgres":
        postgres = psycopg.connect(
            host="127.0.0.1", port=port, dbname=DATABASE, user="postgres", sslmode="disable", autocommit=True
        )
        postgres.execute("SET synchronous_commit = on")  # else the server sends a commit a fifth of a second later
        return lambda statement: postgres.execute(statement.encode())
    return pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True, ssl_disabled=True).query


def main() -> None:
    """See the module."""
    kind, *numbers = sys.argv[1:]
    port, rate, size = map(int, numbers)
    write, table = _writer(kind, port), "public.rows_" if kind == "postgres" else "bench.rows_"
    print("ready", flush=True)
    start, written = time.monotonic_ns(), 0
    while True:
        due = start + written * 1_000_000_000 // rate
        wait = max(0.0, (due - time.monotonic_ns()) / 1e9)
        if (wait or written % rate == 0) and select.select([sys.stdin], [], [], wait)[0]:
            break
        write(f"INSERT INTO {table} (id, stamp, body) VALUES ({due}, {due}, REPEAT('x', {size}))")
        written += 1


if __name__ == "__main__":
    main()
