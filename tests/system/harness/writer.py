"""``python -m tests.system.harness.writer SETTINGS``: writes to a store, journalled.

Settings: ``path`` of a RocksDB or ``port`` of a server (with its ``database``, of PostgreSQL), ``journal``, ``tables``
(beside ``default``), ``seed``, ``rate`` (commits per second while running). Commands come as lines on standard input
and are answered by one line of JSON each:

``go``, ``pause``          write at the rate, or not
``flush``                  let the log go on elsewhere: RocksDB deletes the old one, a server also alters a table
``sequence``               the store's number of the last change
``state``                  the whole store: ``{table: {key: digest}}``
``fill COMMITS BYTES``     so many commits of one value each at once
``huge VALUES BYTES``      one commit of so many values
``bulk ROWS BYTES``        one commit of so many empty rows, and one UPDATE of them all to so many bytes
``stop``                   close the store and leave
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from pathlib import Path
from typing import Any

from tests.system.harness.child import settings
from tests.system.harness.store import Operation, Store


def _opened(given: dict[str, Any]) -> Store:
    journal = Path(given["journal"])
    if "database" in given:
        from tests.system.harness.postgres_store import PostgresStore

        return PostgresStore(given["port"], given["database"], journal, given["tables"])
    if "port" in given:
        from tests.system.harness.server_store import ServerStore

        return ServerStore(given["port"], journal, given["tables"])
    from tests.system.harness.rocks_store import RocksStore

    return RocksStore(Path(given["path"]), journal, given["tables"])


def _operations(chance: random.Random, number: int, tables: list[str]) -> list[Operation]:
    """A commit as applications make them: mostly one change, sometimes a batch over several tables, rarely a large
    one."""
    kind = chance.random()
    count = 1 if kind < 0.6 else chance.randint(2, 8) if kind < 0.995 else 400
    found: list[Operation] = []
    for index in range(count):
        key = f"key-{chance.randrange(600):04d}".encode()
        if chance.random() < 0.15:
            found.append((chance.choice(tables), key, None))
            continue
        size = chance.randint(0, 200) if chance.random() < 0.95 else chance.randint(1_000, 20_000)
        found.append((chance.choice(tables), key, f"{number}:{index}:".encode() + chance.randbytes(size)))
    return found


def main() -> None:
    """Serve commands until ``stop`` or the end of input."""
    given = settings()
    tables = ["default", *given["tables"]]
    store = _opened(given)
    chance = random.Random(f"{given['seed']}/{store.number}")
    pause = 1.0 / given["rate"]
    running, due = False, time.monotonic()
    print(json.dumps({"ready": store.sequence}), flush=True)
    while True:
        wait = max(0.0, due - time.monotonic()) if running else None
        if select.select([sys.stdin], [], [], wait)[0]:
            command, *arguments = sys.stdin.readline().split() or ["stop"]
            answer: object = None
            match command:
                case "go" | "pause":
                    running, due = command == "go", time.monotonic()
                case "flush":
                    store.flush()
                case "sequence":
                    answer = store.sequence
                case "state":
                    answer = store.state()
                case "fill":
                    for number in range(int(arguments[0])):
                        store.commit([("default", f"fill-{number:08d}".encode(), os.urandom(int(arguments[1])))])
                case "huge":
                    value = os.urandom(int(arguments[1]))
                    store.commit([("default", f"huge-{i:08d}".encode(), value) for i in range(int(arguments[0]))])
                case "bulk":
                    store.bulk(int(arguments[0]), int(arguments[1]))
                case "stop":
                    store.close()
            print(json.dumps({command: answer}), flush=True)
            if command == "stop":
                return
        if running and time.monotonic() >= due:
            store.commit(_operations(chance, store.number, tables))
            due += pause


if __name__ == "__main__":
    main()
