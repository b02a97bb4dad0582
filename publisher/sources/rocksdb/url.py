"""``rocksdb:///absolute/path``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from wormhole.model.errors import UsageError

__all__ = ["database_path"]


def database_path(url: str) -> Path:
    """The directory that a URL names; characters may be percent-encoded. Raises :class:`UsageError`."""
    parts = urlsplit(url)
    if parts.scheme != "rocksdb":
        raise UsageError(f"{url!r} is no RocksDB source", hint="write rocksdb:///absolute/path")
    if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.query or parts.fragment:
        raise UsageError(
            f"{url!r} names no directory: RocksDB is read from this host's disk",
            hint="write rocksdb:///absolute/path with three slashes, other characters percent-encoded",
        )
    return Path(unquote(parts.path))
