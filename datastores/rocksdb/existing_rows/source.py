"""The rows that a RocksDB holds now, read by a secondary instance while another process owns the database.

The place of a chunk is the sequence number that the instance has reached. The instance catches up only on request.
Writes past the WAL are in the rows but in no log. With such writes the place is the last sequence number in the log.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from google.protobuf.message import DecodeError

from datastores.rocksdb.existing_rows.secondary_pipe import read_message, write_message
from datastores.rocksdb.log.places import sequence_of
from datastores.rocksdb.log.reader import VALUE_SCHEMAS
from wormhole.model.errors import ChunkUnavailable, SourceUnavailable, UnreadableTable, UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding, shard_of_hash, shard_of_table
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable
from wormhole.wire.rows import decode_key, encode_key
from wormhole.wire.v1 import update_pb2

__all__ = ["RocksTables"]

_PATIENCE_S: Final = 3.0  # the longest wait for an instance that must be opened again
_OPERATION: Final = 2  # bytes before the key in an update
_ERRORS: Final[dict[str, type[WormholeError]]] = {
    error.__name__: error for error in (SourceUnavailable, UnreadableTable, UsageError)
}


class RocksTables:
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the database in the directory ``path``.

    ``state_dir``: the folder of the log's source; this source has its own folder beside it. ``folder``: this source's
    own folder if several sources read at a time. Nothing is written into ``path``.
    """

    def __init__(
        self,
        path: Path,
        *,
        log: str,
        state_dir: Path,
        sharding: Sharding,
        max_update_bytes: int,
        folder: Path | None = None,
    ) -> None:
        self._path = path
        self._log = log
        self._folder = (folder or state_dir) / "rocksdb-tables"
        self._kept = state_dir / "rocksdb"
        self._sharding = sharding
        self._max_update_bytes = max_update_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._incarnation = 0
        self._busy = False
        self._interrupted = False

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """See the port. The estimate counts a key once for each write since the last compaction."""
        answer, _ = self._ask({"do": "tables"})
        return [
            ScannedTable(name, rows, Problem(text, hint, code="table-unreadable"), fingerprint, portable)
            for name, rows, text, hint, fingerprint, portable in answer["tables"]
            if wanted(name)
        ]

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port."""
        request = {
            "do": "chunk",
            "after": None if after is None else _raw(after).hex(),
            "until": None if until is None else _raw(until).hex(),
            "rows": limits.rows,
            "max_bytes": limits.bytes,
            "seconds": limits.seconds,
        }
        return self._read(table, request, not_before)

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""
        return self._read(table, {"do": "rows", "keys": [_raw(key).hex() for key in keys]}, not_before)

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        request = {"do": "skip", "table": table, "after": None if after is None else _raw(after).hex(), "rows": rows}
        answer, _ = self._ask(request)
        return None if answer["key"] is None else encode_key((bytes.fromhex(answer["key"]),))

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port."""
        return (sequence_of(marker) if marker.delivered else 0) >= int(high)

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        try:
            values = update_pb2.RowKey.FromString(key).values
        except DecodeError:
            return False
        return len(values) == 1 and values[0].WhichOneof("kind") == "bytes"

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        match self._sharding.by:
            case "hash":
                return shard_of_hash(self._log, _raw(key), self._sharding.count)
            case "table":
                return shard_of_table(self._log, table)
            case _:
                return self._log

    def interrupt(self) -> None:
        """See the port."""
        with self._lock:
            if self._busy and self._process is not None:
                self._interrupted = True
                self._process.kill()

    def close(self) -> None:
        """See the port."""
        self.interrupt()
        with self._lock:
            if not self._busy:
                self._end()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _read(self, table: str, request: dict[str, Any], not_before: Datamarker) -> Chunk:
        if not_before.order.incarnation != self._incarnation:  # the instance may show rows of the former history
            with self._lock:
                self._end()
            self._incarnation = not_before.order.incarnation
        order = not_before.order
        place = (int(not_before.delivered or 0), order.incarnation, order.file, order.offset)
        answer, blob = self._ask({**request, "table": table, "not_before": place})
        key_columns, columns = VALUE_SCHEMAS[answer["wide"]]
        schema = Schema(table, key_columns, columns)
        last = None if answer["last"] is None else encode_key((bytes.fromhex(answer["last"]),))
        return Chunk(schema, _rows_of(blob, answer["count"]), str(answer["high"]), last, answer["done"])

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request and return the answer. Raises the error in the answer, and :class:`SourceUnavailable` if the
        process ends."""
        limit = time.monotonic() + _PATIENCE_S
        while True:
            header, blob = self._exchange(request)
            if "stale" not in header:
                break
            with self._lock:
                self._end()
            if time.monotonic() >= limit:
                raise SourceUnavailable(header["stale"], hint="a retry follows")
        if "error" in header:
            raise _ERRORS[header["error"]](header["message"], hint=header["hint"])
        return header, blob

    def _exchange(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            if self._process is None:
                self._process = self._start()
            process = self._process
            self._busy, self._interrupted = True, False
        answer = None
        try:
            write_message(cast("BinaryIO", process.stdin), request)
            answer = read_message(cast("BinaryIO", process.stdout))
        except OSError:
            pass  # the process ended, which is reported below
        finally:
            with self._lock:
                self._busy = False
                interrupted = self._interrupted
                if answer is None or interrupted:
                    self._end()
        if interrupted:
            raise SourceUnavailable(f"reading {self._path} was interrupted", hint="a retry follows")
        if answer is None:
            raise ChunkUnavailable(
                f"the process that reads {self._path} ended with status {process.returncode}",
                hint="its standard error has the reason; it is started again",
            )
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        module = "datastores.rocksdb.existing_rows.secondary"
        arguments = (str(self._path), str(self._folder), str(self._kept), str(self._max_update_bytes))
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C at the terminal must reach only the publisher
            )
        except OSError as error:
            raise SourceUnavailable(
                f"the process that reads {self._path} cannot be started: {error}", hint="a retry follows"
            ) from error

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # unwritten bytes are not needed any more


def _raw(key: bytes) -> bytes:
    """The key's bytes in RocksDB."""
    (value,) = decode_key(key)
    return cast("bytes", value)


def _rows_of(blob: bytes, count: int) -> dict[bytes, bytes]:
    """The rows by key."""
    ends, key_sizes = array("Q"), array("I")
    at = ends.itemsize * count
    ends.frombytes(blob[:at])
    base = at + key_sizes.itemsize * count
    key_sizes.frombytes(blob[at:base])
    rows: dict[bytes, bytes] = {}
    begin = base
    for end, key_size in zip(ends, key_sizes, strict=True):
        key = begin + _OPERATION
        rows[blob[key : key + key_size]] = blob[begin : base + end]
        begin = base + end
    return rows
