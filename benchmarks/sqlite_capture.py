"""Measures the cost of capture triggers for the writer of an SQLite database, and the speed at which changes are read.

``python -m benchmarks.sqlite_capture`` runs the same writes with and without triggers, on a disk in memory. Times are
processor time of the process, since a loaded machine hardly changes it.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from datastores.sqlite.datastore import DATASTORE
from publisher.sources import open_source
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormholectl.show.printer import print_table, print_text

__all__ = ["main"]

_ROWS: Final = 20_000
_TABLE: Final = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT{unique}, n INTEGER, body TEXT)"
_BODY: Final = "x" * 100


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def _writes(path: Path, per_commit: int) -> tuple[float, float, float]:
    """Microseconds for each insert, update and delete."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        spent = []
        for statement in (
            "INSERT INTO t (id, name, n, body) VALUES (:id, 'name ' || :id, :id, :body)",
            "UPDATE t SET n = n + 1 WHERE id = :id AND :body <> ''",
            "DELETE FROM t WHERE id = :id AND :body <> ''",
        ):
            begun = _cpu()
            for first in range(0, _ROWS, per_commit):
                writer.execute("BEGIN IMMEDIATE")
                for row in range(first, first + per_commit):
                    writer.execute(statement, {"id": row, "body": _BODY})
                writer.execute("COMMIT")
            spent.append((_cpu() - begun) / _ROWS * 1e6)
    return spent[0], spent[1], spent[2]


def _made(folder: Path, name: str, unique: str, captured: bool) -> Path:
    path = folder / name
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(_TABLE.format(unique=unique))
    if captured:
        url = f"sqlite://{path}"
        DATASTORE.run_statements(url, Login(), DATASTORE.server_objects(url, Login(), ("*",)).missing)
    return path


def _read(folder: Path) -> tuple[float, float]:
    """Seconds of the processor in which the changes are taken into the record, and in which the record is read."""
    path = _made(folder, "read.db", "", True)
    source = open_source(f"sqlite://{path}", log="log", state_dir=folder / "state", sharding=Sharding("hash", 4))
    source.start()
    start = source.latest()
    source.stop()
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.executemany(
            "INSERT INTO t (id, name, n, body) VALUES (?, 'name', 1, ?)", ((n, _BODY) for n in range(_ROWS))
        )
    source = open_source(f"sqlite://{path}", log="log", state_dir=folder / "state", sharding=Sharding("hash", 4))
    begun = _cpu()
    source.start()
    taken = _cpu()
    reader, updates = source.open(start), 0
    while updates < _ROWS:
        segment = reader.read(1 << 18, 1.0)
        updates += 0 if segment is None else segment.updates
    ended = _cpu()
    reader.close()
    source.stop()
    return taken - begun, ended - taken


def main() -> None:
    """Measure, and print a table."""
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        folder = Path(scratch)
        for unique in ("", " UNIQUE"):
            for per_commit in (1, 100):
                without = _writes(_made(folder, f"w{unique}{per_commit}.db", unique, False), per_commit)
                captured = _writes(_made(folder, f"c{unique}{per_commit}.db", unique, True), per_commit)
                rows += [
                    (
                        f"{what}{', one more unique column' if unique else ''}",
                        str(per_commit),
                        f"{before:.1f}",
                        f"{after:.1f}",
                        f"{after / before:.2f}",
                    )
                    for what, before, after in zip(("insert", "update", "delete"), without, captured, strict=True)
                ]
        took, read = _read(folder)
    print_text(f"{time.strftime('%Y-%m-%d')}, SQLite {sqlite3.sqlite_version}, WAL, {_ROWS:,} rows", "")
    print_table(("STATEMENT", "PER COMMIT", "us WITHOUT", "us WITH TRIGGERS", "RATIO"), rows, empty="nothing")
    print_text("", f"taken into the record: {_ROWS / took:,.0f} updates/s; read from it: {_ROWS / read:,.0f} updates/s")


if __name__ == "__main__":
    main()
