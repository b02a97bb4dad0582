"""What the commands accept as a log, and how they come by a server's password."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from wormhole.config.server_url import SERVER_KINDS, ServerUrl, without_password
from wormhole.model.errors import UsageError
from wormholectl.show.printer import print_text

__all__ = ["extra_of", "login_of", "package_of", "source_kind"]

_FORMS: Final = "write rocksdb:///absolute/path or mysql://user@host:3306"


def source_kind(url: str) -> str:
    """The scheme of a source's URL. Raises :class:`~wormhole.model.errors.UsageError` for what this release cannot tail."""
    kind = url.partition(":")[0]
    if kind in SERVER_KINDS:
        try:
            ServerUrl.parse(url)
        except ValueError as error:
            raise UsageError(f"{without_password(url)!r} names no log: it {error}") from None
        return kind
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{without_password(url)!r} names no log", hint=_FORMS) from None
    if parts.scheme != "rocksdb" or parts.netloc or not parts.path.startswith("/"):
        hint = "write rocksdb:///absolute/path, with three slashes" if parts.scheme == "rocksdb" else _FORMS
        raise UsageError(f"{without_password(url)!r} names no log", hint=hint)
    return kind


def package_of(kind: str) -> str:
    """The name of our package, and of the extra, that reads this kind of log."""
    return "mysql" if kind in SERVER_KINDS else kind


def extra_of(kind: str) -> str:
    """The extras that an installation needs to read this kind of log."""
    return f"publisher,{package_of(kind)}"


def login_of(url: str, password_file: Path | None) -> dict[str, Any]:
    """How to find the password of a server: arguments of ``publisher.sources.mysql.address.parse``; none for other logs.

    Asks at the terminal if there is one. A password in the URL is warned about on standard error.
    Raises :class:`~wormhole.model.errors.UsageError` for a password file where there is no password.
    """
    if source_kind(url) not in SERVER_KINDS:
        if password_file is not None:
            raise UsageError("a RocksDB has no password", hint="leave --password-file out")
        return {}
    if ServerUrl.parse(url).password is not None:
        print_text(
            "warning: a password on the command line can be read by every user of this host and stays in the shell's history",
            "  next: use --password-file, or ~/.my.cnf, or leave it out to be asked",
            error=True,
        )
    prompt = getpass.getpass if sys.stdin.isatty() else None
    return {"password_file": password_file, "my_cnf": True, "prompt": prompt}
