"""A RocksDB of the newest release that Maven has, written by a JVM of its own through RocksJava.

The program is ``RocksStore.java`` beside this module, which Java runs from its source. A process that closed its
database opens the next one: to start another takes a second of a processor.
"""

from __future__ import annotations

import atexit
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from scripts import pinned_jars
from tests.support import jars as pinned
from tests.support.rocks_writer import end_process

__all__ = ["JavaStore", "Operation", "Options", "RefusedError", "jars"]

_PROGRAM: Final = Path(__file__).with_name("RocksStore.java")

Options = Mapping[str, str]
Operation = tuple[str, str, bytes] | tuple[str, str, bytes, bytes]
"""``put``, ``delete``, ``single_delete``, ``merge``, ``delete_range`` or ``log_data``; column family, key, value."""


class RefusedError(Exception):
    """RocksDB's own error."""


def jars() -> Path:
    """The folder of RocksJava. Skips the test where it cannot be had."""
    return pinned.folder(pinned_jars.ROCKSDB, "rocksdb", "RocksJava")


def _hex(data: bytes) -> str:
    return data.hex() or "-"


def _options(options: Options) -> str:
    return ";".join(f"{name}={value}" for name, value in options.items()) or "-"


class JavaStore:
    """A database and the process that has it open. ``sequence``: the last sequence number, after each call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 0
        self._process = _idle.pop() if _idle else _started()
        self._has_database = False

    def open(self, kind: str, options: Options, families: Mapping[str, Options]) -> None:
        """``kind``: ``plain``, ``ttl``, or the write policy of a TransactionDB, for example ``WRITE_COMMITTED``."""
        described = [f"{name}:{_options(of)}" for name, of in families.items()]
        self._do("open", str(self.path), kind, _options(options), *described)
        self._has_database = True

    def close(self) -> None:
        """Close the database, keep the process."""
        self._do("close")
        self._has_database = False

    def write(self, operations: Iterable[Operation], flags: str = "-") -> None:
        """One batch. ``flags``: ``n`` without the WAL, ``s`` with a sync."""
        self._do("write", flags, *map(_word, operations))

    def write_raw(self, batch: bytes) -> None:
        """One batch in RocksDB's own form: what Java has no call for (wide columns, keys with timestamps)."""
        self._do("write", "-", f"raw,{batch.hex()}")

    def storm(self, threads: int, count: int, prefix: str) -> None:
        """Threads that write ``count`` keys each at the same time: ``PREFIX-THREAD-NUMBER`` with the number."""
        self._do("storm", str(threads), str(count), prefix)

    def begin(self, name: str, operations: Iterable[Operation]) -> None:
        """A transaction of this name."""
        self._do("begin", name, *map(_word, operations))

    def prepare(self, name: str) -> None:
        self._do("prepare", name)

    def commit(self, name: str) -> None:
        self._do("commit", name)

    def rollback(self, name: str) -> None:
        self._do("rollback", name)

    def flush(self) -> None:
        """Flush all column families."""
        self._do("flush")

    def flush_wal(self) -> None:
        """Write the WAL out and sync it."""
        self._do("flushwal")

    def create(self, family: str, options: Options) -> None:
        self._do("create", family, _options(options))

    def drop(self, family: str) -> None:
        self._do("drop", family)

    def number(self, family: str) -> int:
        """The number that a column family has in batches."""
        return int(self._do("number", family))

    def rows(self, family: str) -> dict[bytes, bytes]:
        """All keys and values of a column family."""
        pairs = (pair.split("=") for pair in self._do("rows", family).split())
        return {_bytes(key): _bytes(value) for key, value in pairs}

    def kill(self) -> None:
        """``kill -9``, as a crash."""
        self._process.kill()
        end_process(self._process)

    def end(self) -> None:
        """Give the process back. Without `close` it ends, and the database is left as by a crash."""
        if self._has_database:
            end_process(self._process)
        else:
            _idle.append(self._process)

    def _do(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        outcome, _, rest = self._process.stdout.readline().rstrip("\n").partition(" ")
        if outcome != "ok":
            raise RefusedError(bytes.fromhex(rest).decode() or f"the process ended with {self._process.poll()}")
        if words[0] not in {"number", "rows"}:
            self.sequence = int(rest)
        return rest


_idle: Final[list[subprocess.Popen[str]]] = []
"""Processes without a database."""


def _started() -> subprocess.Popen[str]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars()}/*", str(_PROGRAM)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tempfile.gettempdir()
    )


@atexit.register
def _end_all() -> None:
    while _idle:
        end_process(_idle.pop())


def _word(operation: Operation) -> str:
    name, family, *parts = operation
    return ",".join((name, family, *map(_hex, parts)))


def _bytes(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)
