"""Finds and reads a RocksDB database's files that matter for reading its log. It writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datastores.rocksdb.decode.options import DatabaseOptions, parse_options
from wormhole.model.errors import DecodeError, SourceUnavailable, UsageError

__all__ = [
    "LiveFile",
    "check_database",
    "head_of",
    "live_file",
    "live_files",
    "newest_options",
    "options_names",
    "wal_directory",
]

_WAL: Final = re.compile(r"(\d+)\.log")
_OPTIONS: Final = re.compile(r"OPTIONS-(\d+)")
_HEAD: Final = 64


@dataclass(slots=True)
class LiveFile:
    """A WAL in RocksDB's own directory, from one scan. ``modified_us``: its last write, microseconds since 1970."""

    number: int
    path: Path
    device: int
    inode: int
    size: int
    modified_us: int


def check_database(path: Path) -> None:
    """Check that ``path`` is a readable RocksDB database.

    Raises :class:`UsageError` if it is not, and :class:`SourceUnavailable` if that may change.
    """
    try:
        names = os.listdir(path)
    except NotADirectoryError:
        raise UsageError(
            f"{path} is a file, not a RocksDB database", hint="name the database's directory", code="peer-not-database"
        ) from None
    except FileNotFoundError:
        raise SourceUnavailable(
            f"there is no directory {path}", hint="check the path, or create the database first"
        ) from None
    except PermissionError as error:
        raise SourceUnavailable(
            f"{path} cannot be listed: {error.strerror}",
            hint="let the publisher's user read the database's directory",
            code="account-lacks-rights",
        ) from error
    if "CURRENT" not in names:
        if not names:
            raise SourceUnavailable(f"{path} is empty: no database yet", hint="open the database once to create it")
        raise UsageError(
            f"{path} is no RocksDB database: it has no CURRENT file",
            hint="name the directory that holds CURRENT",
            code="peer-not-database",
        )
    if "IDENTITY" not in names and not any(_OPTIONS.fullmatch(name) for name in names):
        raise UsageError(
            f"{path} looks like LevelDB: it has neither IDENTITY nor OPTIONS files",
            hint="only RocksDB can be tailed",
            code="peer-not-database",
        )
    if not os.access(path / "CURRENT", os.R_OK):
        raise SourceUnavailable(
            f"{path / 'CURRENT'} cannot be read",
            hint="let the publisher's user read the database's files",
            code="account-lacks-rights",
        )


def options_names(path: Path) -> list[str]:
    """Names of the OPTIONS files, newest first."""
    matches = [match for name in os.listdir(path) if (match := _OPTIONS.fullmatch(name))]
    return [m[0] for m in sorted(matches, key=lambda m: int(m[1]), reverse=True)]


def newest_options(path: Path) -> DatabaseOptions | None:
    """The settings of the last open; ``None``: no OPTIONS file can be read."""
    for name in options_names(path):
        try:
            return parse_options((path / name).read_text(encoding="utf-8", errors="backslashreplace"))
        except (OSError, DecodeError):
            continue  # deleted or incomplete; the previous file has nearly the same settings
    return None


def wal_directory(path: Path, options: DatabaseOptions | None) -> Path:
    """The directory of the WAL files: ``wal_dir`` of the OPTIONS file, or the database's directory by default.

    Raises :class:`UsageError` for a relative ``wal_dir``, because only the database's process knows the working
    directory.
    """
    text = options.db.get("wal_dir", "") if options else ""
    if not text:
        return path
    if not text.startswith("/"):
        raise UsageError(
            f"{path}: wal_dir={text!r} is relative to a working directory that the OPTIONS file does not contain",
            hint="open the database with an absolute wal_dir",
        )
    return Path(text)


def live_files(directory: Path) -> dict[int, LiveFile]:
    """The WAL files of ``directory`` by number, with those that RocksDB moved to ``archive`` (WAL_ttl_seconds).

    Raises ``OSError`` if the directory cannot be listed.
    """
    found: dict[int, LiveFile] = {}
    try:
        for file in _scan(directory / "archive"):
            found[file.number] = file
    except OSError:
        pass  # the archive exists only if the database keeps old files
    for file in _scan(directory):
        found[file.number] = file
    return found


def live_file(path: Path) -> LiveFile | None:
    """The WAL at ``path``; ``None``: the file is no WAL, or is gone."""
    match = _WAL.fullmatch(path.name)
    if match is None:
        return None
    try:
        stat = path.lstat()
    except FileNotFoundError:
        return None
    return LiveFile(int(match[1]), path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns // 1000)


def _scan(directory: Path) -> Iterator[LiveFile]:
    for name in os.listdir(directory):
        if name.endswith(".log") and (file := live_file(directory / name)) is not None:
            yield file


def head_of(path: Path) -> bytes:
    """The first bytes of a WAL. They identify it by its first record's checksum and sequence number."""
    with path.open("rb", buffering=0) as file:
        return file.read(_HEAD) or b""
