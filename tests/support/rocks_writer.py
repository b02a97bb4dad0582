"""A RocksDB database that another process has open and writes: what the publisher really meets.

Run as a program it obeys one JSON command a line on its standard input and answers each with a line of JSON.
"""

from __future__ import annotations

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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.rocks_writer", str(path), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

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
        self._process.kill()
        self._wait()

    def exit(self) -> None:
        """Close the database and end the process."""
        if self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._do("exit")
        self._wait()

    def _wait(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

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
            raise RuntimeError(f"the writer of {self.path} ended with status {self._process.wait()}")
        return json.loads(line)


class _Database:
    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
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
        self.db.close()
        del self.db

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
    database = _Database(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = None
        match command.pop("do"):
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
            case "exit":
                database.close()
                print(json.dumps(None), flush=True)
                return
            case other:
                getattr(database, other)()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
