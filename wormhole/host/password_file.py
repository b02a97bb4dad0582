"""Reads the file that holds only a password."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wormhole.model.errors import UsageError

__all__ = ["read_password_file"]

_LONGEST_PASSWORD: Final = 64 << 10


def read_password_file(path: Path) -> str:
    """The password in a file: its text without the line end.

    Raises :class:`~wormhole.model.errors.UsageError`."""
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_PASSWORD + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(
            f"the password file {path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"the password file {path} is not UTF-8") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise UsageError(f"the password file {path} is empty", hint="write the password into it, on one line")
    if len(data) > _LONGEST_PASSWORD or "\n" in password or "\0" in password:
        raise UsageError(f"the password file {path} holds more than one line", hint="one line: the password")
    return password
