"""Writes RocksDB logs for the benchmarks: beforehand (throughput) or on a schedule (latency).

Run as ``python -m benchmarks.store``: prints ``ready`` when it can begin; the store stays open until standard input
ends, so that its log is not deleted.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Sequence

from rocksdict import Options, Rdict, WriteBatch

__all__ = ["STAMP", "key_of", "open_store"]

STAMP = struct.Struct("<q")


def key_of(number: int) -> bytes:
    """The key of update ``number``."""
    return b"key%012d" % number


def open_store(path: str) -> Rdict:
    """A store with raw keys and a memtable that takes everything: its log is deleted only at the end."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(8 << 30)
    return Rdict(path, options)


def fill(store: Rdict, count: int, size: int, per_batch: int, keys: int = 0) -> None:
    """``count`` updates with values of ``size`` random bytes, ``per_batch`` in each transaction, each to a key of its
    own, or all to ``keys`` keys: every key comes once, and the rest anywhere among these.
    """
    noise = random.Random(7).randbytes(size + 4096)
    numbers = _numbers(count, keys or count)
    for first in range(0, count, per_batch):
        batch = WriteBatch(raw_mode=True)
        for i in range(first, min(first + per_batch, count)):
            batch.put(key_of(numbers[i]), noise[i % 4096 : i % 4096 + size])
        store.write(batch)


def _numbers(count: int, keys: int) -> Sequence[int]:
    if keys == count:
        return range(count)
    chance = random.Random(7)
    numbers = [*range(keys), *(chance.randrange(keys) for _ in range(count - keys))]
    chance.shuffle(numbers)
    return numbers


def schedule(store: Rdict, rate: float, size: int, seconds: float, start: float) -> int:
    """Open loop: write ``i`` is due at ``start + i / rate`` (monotonic seconds) whether or not earlier ones were late.

    The value begins with the scheduled time in nanoseconds. Returns how many were written.
    """
    noise = random.Random(7).randbytes(size)
    count = int(rate * seconds)
    for i in range(count):
        due = start + i / rate
        while (wait := due - time.monotonic()) > 0:
            time.sleep(min(wait, 0.01))
        store[key_of(i)] = STAMP.pack(int(due * 1e9)) + noise[STAMP.size :]
    return count


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--per-batch", type=int, default=1)
    parser.add_argument("--keys", type=int, default=0, help="distinct ones; 0: as many as updates")
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    arguments = parser.parse_args()
    store = open_store(arguments.path)
    fill(store, arguments.count, arguments.size, arguments.per_batch, arguments.keys)
    print("ready", flush=True)
    if arguments.rate:
        sys.stdin.readline()  # the start signal
        schedule(store, arguments.rate, arguments.size, arguments.seconds, time.monotonic() + 0.1)
        print("done", flush=True)
    sys.stdin.read()
    store.close()


if __name__ == "__main__":
    main()
