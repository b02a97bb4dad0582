"""Opens connections to the database, and turns SQLite's errors into the product's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError, WormholeError

__all__ = ["Connection", "connect", "is_of_schema", "snapshot", "understood"]

Connection = sqlite3.Connection
OLDEST: Final = (3, 37, 0)
_BUSY_S: Final = 5.0
_NO_DATABASE: Final = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_NO_ACCESS: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_BASE_CODE: Final = 0xFF


def _text(data: bytes) -> str | bytes:
    """Decode a text. Text that is not UTF-8 stays bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def connect(path: Path, *, write: bool = False) -> Connection:
    """A connection outside any transaction, for one thread at a time. ``write``: allows changes to the database.

    Raises :class:`UsageError`, :class:`SourceUnavailable` and :class:`UnsupportedLog`.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise UnsupportedLog(
            f"the SQLite of this Python is {sqlite3.sqlite_version}",
            hint=f"use a Python whose `sqlite3.sqlite_version` is {'.'.join(map(str, OLDEST))} or newer",
        )
    if not path.is_file():
        raise SourceUnavailable(
            f"{path} is no file", hint="correct the path, or let the application make its database first"
        )
    with understood(path):
        uri = f"file:{quote(str(path))}?mode={'rw' if write else 'ro'}"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.text_factory = _text
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """One snapshot of the database for every statement of the block."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn SQLite's errors in the block into :class:`WormholeError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error_of(path, error) from error


def is_of_schema(error: sqlite3.OperationalError) -> bool:
    """Whether a statement failed because it does not fit the present tables. After another error it may succeed later:
    the database was locked or unreadable, or the statement was interrupted.
    """
    return error.sqlite_errorcode == sqlite3.SQLITE_ERROR


def _error_of(path: Path, error: sqlite3.Error) -> WormholeError:
    code = getattr(error, "sqlite_errorcode", 0) & _BASE_CODE
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return SourceUnavailable(
            f"{path} is locked by another process: {error}",
            hint="a retry follows; end the process that holds a transaction open",
        )
    if code in _NO_DATABASE:
        return UsageError(
            f"{path} is no readable SQLite database: {error}",
            hint="correct the path; `PRAGMA integrity_check` examines a damaged file",
            code="peer-not-database",
        )
    if code in _NO_ACCESS:
        return UsageError(
            f"{path} cannot be opened or written: {error}",
            hint="let this user read and write the file and its folder, where SQLite keeps its journal",
            code="file-unwritable",
        )
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return SourceUnavailable(
            f"{path} cannot be read or written: {error}",
            hint="make room on its disk; a retry follows",
            code="file-unwritable",
        )
    return SourceUnavailable(f"{path}: {error}", hint="a retry follows; `wormholectl doctor URL` examines it")
