"""Datamarkers in an SQLite file, for one copy whose publisher stays on one host.

Each flow is a row. ``synchronous = FULL`` in WAL mode makes a commit durable before it returns. SQLite recovers the
file after a kill or a power failure. A process owns the store by a lock on a file beside the database (``flock``). The
kernel releases the lock when the process dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from publisher.stores.dead_letters.local import LocalDeadLetters
from publisher.stores.markers.rules import (
    accepts,
    ack_from_text,
    ack_to_text,
    control_from_text,
    control_to_text,
    in_place_of,
    moved,
    raised,
    written,
    written_anew,
)
from wormhole.host.folder_identity import identity_of
from wormhole.host.process_lock import LockHeldError, take_lock
from wormhole.model.errors import MarkerStoreError, PositionError, ProtocolError
from wormhole.model.position import Datamarker, flow_name
from wormhole.ports.marker_store import UNASKED, FlowControl, FlowKey, MarkerWrite, StoredFlow
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["LocalMarkerStore"]

_log = logging.getLogger(__name__)

_FORMAT: Final = 6
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS flows (
    application TEXT NOT NULL, shard TEXT NOT NULL, epoch INTEGER NOT NULL, marker BLOB NOT NULL,
    start TEXT NOT NULL, filter_hash TEXT NOT NULL, control TEXT NOT NULL DEFAULT '',
    rewound INTEGER NOT NULL DEFAULT 0, move INTEGER NOT NULL DEFAULT 0, last_ack TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (application, shard)
) WITHOUT ROWID
"""
_BOOKS: Final = """
CREATE TABLE IF NOT EXISTS books (
    application TEXT NOT NULL, shard TEXT NOT NULL, name TEXT NOT NULL, page BLOB NOT NULL, PRIMARY KEY (application, shard, name)
) WITHOUT ROWID
"""  # noqa: E501
# By format number: the statement that upgrades a file to the next format. A new file begins with format 0.
_UPGRADES: Final = {
    0: _SCHEMA,
    1: "ALTER TABLE flows ADD COLUMN control TEXT NOT NULL DEFAULT ''",
    2: _BOOKS,
    3: "ALTER TABLE flows ADD COLUMN rewound INTEGER NOT NULL DEFAULT 0",
    4: "ALTER TABLE flows ADD COLUMN move INTEGER NOT NULL DEFAULT 0",
    5: "ALTER TABLE flows ADD COLUMN last_ack TEXT NOT NULL DEFAULT ''",
}
_WRITE: Final = (
    "INSERT OR REPLACE INTO flows (application, shard, epoch, marker, start, filter_hash, control, rewound, move, "
    "last_ack) VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_READ: Final = (
    "SELECT application, shard, epoch, marker, start, filter_hash, control, rewound, move, last_ack FROM flows"
)

_Row = tuple[str, str, int, bytes, str, str, str, int, int, str]


class LocalMarkerStore:
    """The local form of the port: ``folder/markers.sqlite`` and its lock ``folder/markers.lock``; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "markers.sqlite"
        self._mutex = threading.Lock()
        self._lock_file: int | None = None
        self._owner = ""
        self._database: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"<LocalMarkerStore {self._path} {'open' if self._lock_file is not None else 'closed'}>"

    @property
    def owner(self) -> str:
        """The identity of the lock file in this kernel. A copy of the folder has another identity. So has the same
        folder seen from another host, because the lock does not work across hosts.
        """
        return self._owner

    def open(self) -> None:
        with self._mutex:
            if self._lock_file is not None:
                return
            self._take_lock()
            try:
                self._connected()
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._mutex:
            self._close()

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        with self._transaction("read the datamarkers") as database:
            query = _READ if application is None else f"{_READ} WHERE application = ?"
            rows = database.execute(query, () if application is None else (application,)).fetchall()
            found = {}
            for row in rows:
                try:
                    flow, stored = self._record(row)
                except MarkerStoreError as error:  # skip only this flow; `register` replaces its record
                    _log.error("%s", error)
                else:
                    found[flow] = stored
            return found

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        return self.register_all({flow: StoredFlow(marker, epoch, start, control=control)})[flow]

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        what = flow_name(*next(iter(records))) if len(records) == 1 else f"{len(records)} flows"
        with self._transaction(f"register {what}") as database:
            return {flow: self._register(database, flow, record) for flow, record in records.items()}

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        with self._transaction(f"raise the epoch of {flow_name(*flow)}") as database:
            return self._put(database, flow, raised(self._existing(database, flow), above)).epoch

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        epochs: dict[FlowKey, int] = {}
        with self._transaction("raise epochs") as database:
            for flow, above in flows.items():
                with contextlib.suppress(MarkerStoreError, KeyError):
                    epochs[flow] = self._put(database, flow, raised(self._existing(database, flow), above)).epoch
        return epochs

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        refused: list[FlowKey] = []
        if not writes:
            return ()
        with self._transaction("store datamarkers") as database:
            for write in writes:
                try:
                    stored = self._get(database, write.flow)
                except MarkerStoreError as error:  # only this flow is skipped; the others are stored
                    _log.error("%s", error)
                    stored = None
                if stored is not None and accepts(stored, write):
                    self._put(database, write.flow, written(stored, write))
                    self._keep(database, write)
                else:
                    refused.append(write.flow)
        return tuple(refused)

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        with self._transaction("read delivery counts") as database:
            query = "SELECT name, page FROM books WHERE application = ? AND shard = ?"
            return {flow: dict(database.execute(query, flow).fetchall()) for flow in flows}

    def rewind(self, flow: FlowKey, marker: Datamarker, *, counts: bool = True) -> int:
        with self._transaction(f"rewind {flow_name(*flow)}") as database:
            return self._put(database, flow, moved(self._existing(database, flow), marker, counts=counts)).epoch

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        with self._transaction(f"write what was asked of {flow_name(*flow)}") as database:
            stored = self._existing(database, flow)
            as_expected = was in (None, stored.control)
            if as_expected:
                self._put(database, flow, replace(stored, control=control))
            return as_expected

    def forget(self, flow: FlowKey) -> None:
        with self._transaction(f"forget {flow_name(*flow)}") as database:
            database.execute("DELETE FROM flows WHERE application = ? AND shard = ?", flow)
            database.execute("DELETE FROM books WHERE application = ? AND shard = ?", flow)

    def dead_letters(self) -> LocalDeadLetters:
        return LocalDeadLetters(self._transaction, str(self._path))

    # --- inside ------------------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        path = self._folder / "markers.lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = take_lock(path)
        except OSError as error:
            raise MarkerStoreError(
                f"the marker store {self._folder} cannot be opened: {error.strerror}",
                hint="publisher.state_dir must be a folder that this process may write to",
                code="file-unwritable",
            ) from error
        except LockHeldError as held:
            raise MarkerStoreError(
                f"the marker store {self._folder} is in use by process {held.process}",
                hint="one publisher serves a log: end that process first, or give this one another publisher.state_dir",
                code="already-running",
            ) from held
        self._lock_file = handle
        self._owner = identity_of(os.fstat(handle))

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):  # all commits are durable, and the file closes even after an error
                database.close()
        handle, self._lock_file, self._owner = self._lock_file, None, ""
        if handle is not None:
            os.close(handle)

    def _connected(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        if self._lock_file is None:
            raise MarkerStoreError(f"the marker store {self._path} is not open", hint="call open() first")
        database: sqlite3.Connection | None = None
        try:
            # The module must not begin transactions itself, because BEGIN IMMEDIATE below begins them.
            database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            # Without this, the file would grow with the number of writes.
            database.execute("PRAGMA wal_autocheckpoint = 200")
            found = int(database.execute("PRAGMA user_version").fetchone()[0])
            if found > _FORMAT:
                raise MarkerStoreError(
                    f"the marker store {self._path} has format {found}, this release reads {_FORMAT}",
                    hint="run the release that wrote it, or a later one",
                    code="release-too-old",
                )
            if found != _FORMAT:
                database.execute("BEGIN IMMEDIATE")
                # A new file gets the present format in one transaction.
                for step in (0, 2) if found == 0 else range(found, _FORMAT):
                    database.execute(_UPGRADES[step])
                database.execute(f"PRAGMA user_version = {_FORMAT}")
                database.execute("COMMIT")
        except BaseException as error:
            if database is not None:
                database.close()
            if isinstance(error, sqlite3.Error):
                raise self._failure("open", error) from error
            raise
        self._database = database
        return database

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            database = self._connected()
            try:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                if not isinstance(error, sqlite3.Error):
                    raise
                # A connection whose write failed is not used again. The next call opens a new one, which recovers.
                self._database = None
                with contextlib.suppress(sqlite3.Error):
                    database.close()
                raise self._failure(what, error) from error

    def _failure(self, what: str, error: sqlite3.Error) -> MarkerStoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _writable(self._folder)):
            hint = (
                f"the disk of {self._folder} is full: make space; a publisher that runs tries again by itself, "
                "nothing acknowledged is lost"
            )
        elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            hint = (
                f"move {self._path} (with its -wal and -shm) away and restore it from a backup; without one, start the "
                "publisher: flows that were served before are held until `wormholectl flows accept-loss APP/SHARD`"
            )
        else:
            hint = f"check that {self._folder} is writable and on a healthy local disk"
        return MarkerStoreError(f"the marker store {self._path} cannot {what}: {error}", hint=hint)

    def _record(self, row: _Row) -> tuple[FlowKey, StoredFlow]:
        application, shard, epoch, marker, start, filter_hash, control, rewound, move, acked = row
        try:
            place, asked, ack = marker_from_bytes(marker), control_from_text(control), ack_from_text(acked)
            return (application, shard), StoredFlow(place, epoch, start, filter_hash, asked, bool(rewound), move, ack)
        except (ProtocolError, ValueError, PositionError) as error:
            raise MarkerStoreError(
                f"the marker store {self._path} holds no valid record of this flow: {error}",
                flow=flow_name(application, shard),
                hint=written_anew((application, shard)),
                code="marker-damaged",
            ) from error

    def _register(self, database: sqlite3.Connection, flow: FlowKey, wanted: StoredFlow) -> StoredFlow:
        row = self._row(database, flow)
        try:
            if row is not None:
                return self._record(row)[1]
        except MarkerStoreError as error:
            assert row is not None
            wanted = in_place_of(error, wanted.marker, max(wanted.epoch, row[2]), wanted.start)
        return self._put(database, flow, wanted)

    def _get(self, database: sqlite3.Connection, flow: FlowKey) -> StoredFlow | None:
        row = self._row(database, flow)
        return None if row is None else self._record(row)[1]

    @staticmethod
    def _row(database: sqlite3.Connection, flow: FlowKey) -> _Row | None:
        row: _Row | None = database.execute(f"{_READ} WHERE application = ? AND shard = ?", flow).fetchone()
        return row

    def _existing(self, database: sqlite3.Connection, flow: FlowKey) -> StoredFlow:
        stored = self._get(database, flow)
        if stored is None:
            raise KeyError(flow)
        return stored

    def _put(self, database: sqlite3.Connection, flow: FlowKey, stored: StoredFlow) -> StoredFlow:
        marker = marker_to_bytes(stored.marker)
        control, rewound = control_to_text(stored.control), int(stored.rewound)
        texts = (stored.start, stored.filter_hash, control)
        acked = ack_to_text(stored.last_ack)
        database.execute(_WRITE, (*flow, stored.epoch, marker, *texts, rewound, stored.move, acked))
        return stored

    @staticmethod
    def _keep(database: sqlite3.Connection, write: MarkerWrite) -> None:
        for name, page in write.counts.items():
            if page:
                database.execute("INSERT OR REPLACE INTO books VALUES (?,?,?,?)", (*write.flow, name, page))
            else:
                database.execute(
                    "DELETE FROM books WHERE application = ? AND shard = ? AND name = ?", (*write.flow, name)
                )


def _writable(folder: Path) -> bool:
    """Whether one more block can be written. This distinguishes a full disk or quota from a broken disk."""
    probe = folder / ".space"
    try:
        probe.write_bytes(b"\0" * 8192)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True
