"""Interprets the URL of a log in a command, and finds the log's password."""

from __future__ import annotations

import getpass
import glob
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from wormhole.config.datastores import datastore, schemes
from wormhole.config.passwords import without_password
from wormhole.model.errors import UsageError
from wormhole.ports.datastore import Datastore, Login
from wormholectl.show.printer import print_text

__all__ = ["datastore_at", "login_of", "source_kind", "split_database", "tables_within"]


_ENCODE: Final = (
    "leave the password out, for --password-file; within a URL a password has %40 for @, %2F for /, %23 for #, "
    "%3F for ? and %25 for %"
)


def datastore_at(url: str) -> Datastore:
    """The datastore of a log's URL. Raises :class:`~wormhole.model.errors.UsageError` for a URL that names no log."""
    try:
        found = datastore(source_kind(url))
        found.check_url(url)
    except UsageError as error:
        raise UsageError(
            f"{without_password(url)!r} names no log: {error.message}", hint=error.hint, code=error.code
        ) from None
    except ValueError as error:
        shown = without_password(url)
        hint = _ENCODE if shown != url else None
        raise UsageError(f"{shown!r} names no log: it {error}", hint=hint) from None
    return found


def source_kind(url: str) -> str:
    """The scheme of a source's URL; empty if the URL has none."""
    return url.partition(":")[0] if ":" in url else ""


def split_database(url: str) -> tuple[str, str]:
    """Split ``url`` into the URL of the log and the name of a database of its server; empty without a database."""
    kind = source_kind(url)
    return datastore(kind).split_database(url) if kind in schemes() else (url, "")


def tables_within(database: str, patterns: Sequence[str]) -> list[str]:
    """The table patterns of a command, completed with the ``database`` of its URL, which a pattern may omit.

    Raises :class:`~wormhole.model.errors.UsageError` for a pattern of another database.
    """
    if not database:
        return list(patterns)
    inside = f"{glob.escape(database)}."
    for pattern in patterns:
        if "." in pattern and not pattern.startswith((inside, f"{database}.")):
            raise UsageError(
                f"the URL names the database {database!r}, and --table {pattern!r} is not in it",
                hint=f"leave {database!r} out of the URL",
            )
    return [pattern if "." in pattern else inside + pattern for pattern in patterns or ("*",)]


def login_of(url: str, password_file: Path | None, *, warn: bool = True) -> Login:
    """How to find the password of the log at ``url``, if necessary by a question at the terminal.

    ``warn``: whether to warn on standard error about a password in the URL; false if the command has warned before.
    Raises :class:`~wormhole.model.errors.UsageError` for a password file if the datastore has no passwords.
    """
    found = datastore_at(url)
    if reason := found.refuses.get("password_file"):
        if password_file is not None:
            raise UsageError(reason, hint="leave --password-file out")
        return Login()
    if warn and urlsplit(url).password is not None:
        others = f", or {found.user_files}" if found.user_files else ""
        print_text(
            "warning: a password on the command line can be read by every user of this host and stays in the "
            "shell's history",
            f"  next: use --password-file{others}, or leave it out to be asked",
            error=True,
        )
    # The answer is remembered, so that the same question is asked once.
    prompt = cache(getpass.getpass) if sys.stdin.isatty() else None
    return Login(password_file, user_files=True, prompt=prompt)
