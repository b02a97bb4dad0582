"""The process that owns the store: writes at a fixed rate, whatever becomes of anybody else.

    python -m examples.demo.writer STORE JOURNAL START_FIFO SEED SECONDS RATE

Nothing in it knows of Wormhole: a RocksDB with default options, written through rocksdict. Open loop: each transaction has a
scheduled time, and being late does not move the next one. Twice it lets RocksDB flush and once it closes and opens the
store: each time RocksDB deletes its log. An application cannot write to a closed store, so its schedule pauses for that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocksdict import AccessType, Options, Rdict, WriteBatch

from examples.demo.events import tell
from examples.demo.journal import Commit, Journal, digest
from examples.demo.workload import TABLES, Change, transactions

__all__ = ["Store", "main", "read_store"]

_FLUSH_AT = (0.3, 0.8)
_REOPEN_AT = 0.55


def _options() -> Options:
    return Options(raw_mode=True)  # raw: keys and values are bytes; everything else is RocksDB's default


class Store:
    """The RocksDB at ``path`` with one column family for each table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        there = Rdict.list_cf(str(self._path), _options()) if (self._path / "CURRENT").exists() else []
        self._db = Rdict(str(self._path), _options(), column_families={name: _options() for name in there})
        self._families = {
            name: self._db.get_column_family(name) if name in there else self._db.create_column_family(name, _options())
            for name in TABLES
        }
        self._handles = {name: self._db.get_column_family_handle(name) for name in TABLES}

    def commit(self, changes: Sequence[Change]) -> None:
        """One transaction."""
        batch = WriteBatch(raw_mode=True)
        for change in changes:
            if change.value is None:
                batch.delete(change.key, self._handles[change.table])
            else:
                batch.put(change.key, change.value, self._handles[change.table])
        self._db.write(batch)

    def flush(self) -> None:
        """Let RocksDB write the tables out, in the background; after that it deletes its log."""
        for family in self._families.values():
            family.flush(wait=False)

    def reopen(self) -> None:
        """Close and open again."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close; everything is written out."""
        self._handles.clear()
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._db.close()


def read_store(path: Path) -> dict[tuple[str, str], str]:
    """What a closed store holds: (table, key) to the digest of the value."""
    families = {name: _options() for name in ("default", *TABLES)}
    database = Rdict(str(path), _options(), column_families=families, access_type=AccessType.read_only())
    content: dict[tuple[str, str], str] = {}
    for table in TABLES:
        family = database.get_column_family(table)
        content.update(((table, _bytes(key).decode()), digest(_bytes(value))) for key, value in family.items())
        family.close()
    database.close()
    return content


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)  # raw mode
    return value


def main(arguments: Sequence[str]) -> int:
    """Wait for the start (nanoseconds of the monotonic clock, through the FIFO), write, say when finished."""
    store_path, journal_path, start = (Path(argument) for argument in arguments[:3])
    seed, seconds, rate = int(arguments[3]), float(arguments[4]), float(arguments[5])
    store, journal = Store(store_path), Journal(journal_path)
    tell("ready")
    with start.open() as fifo:
        begin = int(fifo.readline())
    number = updates = 0
    # Fractions of the run at which the store is flushed or opened anew, soonest last.
    due = sorted([(part * seconds, "flushed") for part in _FLUSH_AT] + [(_REOPEN_AT * seconds, "reopened")])[::-1]
    for number, changes in enumerate(transactions(seed)):
        at = number / rate
        if at >= seconds:
            break
        if due and at >= due[-1][0]:
            _, what = due.pop()
            before = time.monotonic_ns()
            if what == "flushed":
                store.flush()
            else:
                store.reopen()
                begin += time.monotonic_ns() - before
            tell(what, files=sorted(path.name for path in store_path.glob("*.log")))
        scheduled = begin + int(at * 1e9)
        wait = (scheduled - time.monotonic_ns()) / 1e9
        if wait > 0:
            time.sleep(wait)
        store.commit(changes)
        now = time.monotonic_ns()
        updates += len(changes)
        journal.write(
            [Commit(c.serial, number, c.table, c.key.decode(), digest(c.value), scheduled, now).line() for c in changes]
        )
    tell("finished", updates=updates, transactions=number)
    # The log goes when the store is closed: a graceful end is the third way in which RocksDB deletes it.
    store.close()
    tell("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
