"""The process that writes to the store: at a fixed rate, whatever becomes of anybody else.

    python -m examples.demo.writer DATASTORE PLACE JOURNAL START_FIFO SEED SECONDS RATE

Nothing in it knows of Wormhole. Open loop: each transaction has a scheduled time, and being late does not move the next
one. Now and then it does a chore of its store's (:attr:`.datastore.Store.chores`); an application does not write
meanwhile, so its schedule pauses for that. An application does not close its store because it has nothing to write:
this one waits until the FIFO's other end is closed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.demo.datastore import Store, open_store
from examples.demo.events import tell
from examples.demo.journal import Commit, Journal, digest
from examples.demo.workload import transactions

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Wait for the start (nanoseconds of the monotonic clock, through the FIFO), write, say when finished, wait for the
    end.
    """
    datastore, place, journal_path, start = arguments[:4]
    seed, seconds, rate = int(arguments[4]), float(arguments[5]), float(arguments[6])
    store, journal = open_store(datastore, place), Journal(Path(journal_path))
    tell("ready")
    with Path(start).open() as fifo:
        _write(store, journal, int(fifo.readline()), seed, seconds, rate)
        fifo.read()
    store.close()
    tell("closed")
    return 0


def _write(store: Store, journal: Journal, begin: int, seed: int, seconds: float, rate: float) -> None:
    number = updates = 0
    # Soonest last.
    due = sorted(((part * seconds, chore) for chore, parts in store.chores.items() for part in parts), reverse=True)
    for number, changes in enumerate(transactions(seed)):
        at = number / rate
        if at >= seconds:
            break
        if due and at >= due[-1][0]:
            before = time.monotonic_ns()
            what = store.do(due.pop()[1])
            tell("chore", what=what, left=len(due))
            begin += time.monotonic_ns() - before
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
