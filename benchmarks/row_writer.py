"""Updates rows at random keys of the benchmark's table on a schedule.

Run as ``python -m benchmarks.row_writer PORT ROWS RATE``. Open loop: a write is due whether or not earlier ones were
late, and the row's ``stamp`` is the time at which it was due. Prints ``ready``; for each line of standard input prints
the nanoseconds from each write's schedule to the server's answer since the last line, as JSON. Ends with its input.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time

import pymysql

from benchmarks.existing_rows import TABLE


def main() -> None:
    """See the module."""
    port, rows, rate = map(int, sys.argv[1:])
    chance = random.Random(7)
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True, ssl_disabled=True)
    print("ready", flush=True)
    delays: list[int] = []
    start, written = time.monotonic_ns(), 0
    while True:
        due = start + written * 1_000_000_000 // rate
        wait = max(0.0, (due - time.monotonic_ns()) / 1e9)
        if (wait or written % rate == 0) and select.select([sys.stdin], [], [], wait)[0]:
            if not sys.stdin.readline():
                break
            print(json.dumps(delays), flush=True)
            delays.clear()
            continue
        connection.query(f"UPDATE {TABLE} SET stamp = {due} WHERE id = {chance.randint(1, rows)}")
        delays.append(time.monotonic_ns() - due)
        written += 1
    connection.close()


if __name__ == "__main__":
    main()
