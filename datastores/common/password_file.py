"""Finds an account's password: in a password file, the URL, the user's own file, or a prompt."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from wormhole.host.password_file import read_password_file
from wormhole.model.errors import UsageError

__all__ = ["Password", "others_may_read"]


def others_may_read(path: Path) -> bool:
    """Whether every user of this host may read the file."""
    return bool(path.stat().st_mode & stat.S_IROTH)


@dataclass(frozen=True, slots=True)
class Password:
    """A password. ``found``: where it came from, for messages. ``remarks``: warnings for the user."""

    text: str = field(default="", repr=False)
    found: str = "no password was given"
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        shown: str,
        given: str | None,
        *,
        file: Path | None,
        kept: tuple[str, Path] | None,
        prompt: Callable[[], str] | None,
    ) -> Password:
        """The password from ``file``, else from the URL, else from the user's own file, else from ``prompt``.

        ``shown``: the URL without the password. Raises :class:`~wormhole.model.errors.UsageError`."""
        if file is not None:
            if given is not None:
                raise UsageError(f"{shown} has a password, and --password-file names another", hint="keep the file")
            return cls(read_password_file(file), f"the password came from {file}", _remarks(file))
        if given is not None:
            return cls(given, "the password came from the URL")
        if kept is not None:
            return cls(kept[0], f"the password came from {kept[1]}", _remarks(kept[1]))
        return cls() if prompt is None else cls(prompt(), "the password was typed")


def _remarks(path: Path) -> tuple[str, ...]:
    if not others_may_read(path):
        return ()
    return (f"{path} can be read by every user of this host: chmod 600 {path}",)
