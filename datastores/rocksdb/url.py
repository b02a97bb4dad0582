"""Parses ``rocksdb:///absolute/path``: the URL of a database's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from wormhole.config.passwords import without_password
from wormhole.model.errors import UsageError

__all__ = ["FORM", "check_url", "database_path"]

FORM: Final = "rocksdb:///absolute/path"


def check_url(url: str) -> None:
    """Check a URL. Raises ``ValueError`` that describes the valid form."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"must be a URL such as {FORM}") from None
    named = parts.path.startswith("/") and parts.path != "/"
    if parts.scheme != "rocksdb" or parts.netloc or not named or parts.query or parts.fragment:
        raise ValueError(f"must be {FORM}, with three slashes and nothing behind the path")


def database_path(url: str) -> Path:
    """The directory that a URL names, with percent-encoding decoded. Raises :class:`UsageError`."""
    try:
        check_url(url)
    except ValueError as error:
        raise UsageError(
            f"{without_password(url)!r} {error}",
            hint="RocksDB is read from this host's disk; percent-encode other characters",
        ) from None
    return Path(unquote(urlsplit(url).path))
