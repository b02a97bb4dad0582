"""A RocksDB database that another process has open and writes: what the publisher really meets.

Run as a program it obeys one JSON command a line on its standard input and answers each with a line of JSON. A process
that closed its database opens the next one: to start another takes longer than most tests that use it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tests.support.mass_workload import FAMILIES, transactions

Change = tuple[str, str, bytes] | tuple[str, str, bytes, bytes]
"""(``put``, ``delete``, ``merge`` or ``delete_range``), column family, key, value or end of range."""


class RocksWriter:
    """Starts the process and talks to it.

    ``options``: names of ``rocksdict.Options`` setters without ``set_``, to arguments."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self._lock = threading.Lock()  # one question at a time
        self._process = _idle.pop() if _idle else _started()
        self._exited = False
        self._do("begin", path=str(path), settings=options)

    def write(self, changes: Iterable[Change]) -> int:
        """One atomic batch; the sequence number after it."""
        encoded = [[op, family, *(part.hex() for part in rest)] for op, family, *rest in changes]
        return int(self._do("write", changes=encoded))

    def put(self, key: bytes, value: bytes, family: str = "default") -> int:
        """One change, one batch."""
        return self.write([("put", family, key, value)])

    def many(self, first: int, count: int, size: int = 100, flush_every: int = 0) -> int:
        """``count`` batches of one put each; keys ``k00000000`` and on, values of ``size`` bytes."""
        return int(self._do("many", first=first, count=count, size=size, flush_every=flush_every))

    def mass(self, first: int, count: int, keys: int) -> int:
        """Changes ``first`` and on of ``tests.support.mass_workload``; the sequence number after them."""
        return int(self._do("mass", first=first, count=count, keys=keys))

    def rows(self, family: str = "default") -> list[tuple[bytes, bytes]]:
        """All keys and values of a column family."""
        return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in self._do("rows", family=family)]

    def flush(self) -> None:
        """Flush all column families: the WAL becomes obsolete."""
        self._do("flush")

    def close(self) -> None:
        """Close the database, keep the process."""
        self._do("close")

    def open(self) -> None:
        """Open it again."""
        self._do("open")

    def create_family(self, name: str) -> None:
        """Create a column family."""
        self._do("create", name=name)

    def drop_family(self, name: str) -> None:
        """Drop a column family."""
        self._do("drop", name=name)

    def kill(self) -> None:
        """``kill -9``, as a crash."""
        self._exited = True
        self._process.kill()
        self._process.wait()
        end_process(self._process)

    def exit(self) -> None:
        """Close the database; nothing if that was done, or the process has ended."""
        if self._exited:
            return
        try:
            self._do("end")
        except (BrokenPipeError, RuntimeError):  # the process was killed
            end_process(self._process)
        else:
            _idle.append(self._process)
        self._exited = True

    def _do(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._exited = True
            end_process(self._process)
            raise RuntimeError(f"the writer of {self.path} ended with status {self._process.returncode}")
        return json.loads(line)


_idle: list[subprocess.Popen[str]] = []
"""Processes without a database."""


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.rocks_writer"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end_process(process: subprocess.Popen[str]) -> None:
    """The process ends with its standard input."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()


@atexit.register
def _end_all() -> None:
    while _idle:
        end_process(_idle.pop())


class _Database:
    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.db: Any = None
        self.open()

    def options(self) -> Any:
        from rocksdict import Options

        options = Options(raw_mode=True)
        options.create_if_missing(True)
        for name, value in self.settings.items():
            getattr(options, f"set_{name}")(value)
        return options

    def open(self) -> None:
        from rocksdict import Rdict

        families: list[str] = []
        if (Path(self.path) / "CURRENT").exists():
            families = [name for name in Rdict.list_cf(self.path) if name != "default"]
        self.db = Rdict(self.path, self.options(), column_families={name: self.options() for name in families})

    def close(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None

    def write(self, changes: list[list[str]]) -> int:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for op, family, *rest in changes:
            handle = self.db.get_column_family_handle(family)
            getattr(batch, op)(*map(bytes.fromhex, rest), handle)
        self.db.write(batch)
        return int(self.db.latest_sequence_number())

    def many(self, first: int, count: int, size: int, flush_every: int) -> int:
        for n in range(first, first + count):
            self.db[b"k%08d" % n] = (b"%08d" % n).ljust(size, b".")[:size]
            if flush_every and (n + 1) % flush_every == 0:
                self.db.flush()
        return int(self.db.latest_sequence_number())

    def mass(self, first: int, count: int, keys: int) -> int:
        from rocksdict import WriteBatch

        handles = {name: self.db.get_column_family_handle(name) for name in FAMILIES}
        for together in transactions(first, count, keys):
            batch = WriteBatch(raw_mode=True)
            for family, key, value in together:
                if value:
                    batch.put(key.encode(), value.encode(), handles[family])
                else:
                    batch.delete(key.encode(), handles[family])
            self.db.write(batch)
        return int(self.db.latest_sequence_number())

    def rows(self, family: str) -> list[tuple[str, str]]:
        rows = self.db if family == "default" else self.db.get_column_family(family)
        return [(cast("bytes", key).hex(), value.hex()) for key, value in rows.items()]

    def flush(self) -> None:
        self.db.flush()
        for name in self.db.list_cf(self.path):
            if name != "default":
                self.db.get_column_family(name).flush()


def main() -> None:
    database: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = None
        match command.pop("do"):
            case "begin":
                database = _Database(**command)
            case "end":
                database.close()
                database = None
            case "write":
                answer = database.write(**command)
            case "many":
                answer = database.many(**command)
            case "mass":
                answer = database.mass(**command)
            case "rows":
                answer = database.rows(**command)
            case "create":
                database.db.create_column_family(command["name"], database.options())
            case "drop":
                database.db.drop_column_family(command["name"])
            case other:
                getattr(database, other)()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
