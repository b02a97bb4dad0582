"""Files with credentials for ZooKeeper: one line, ``user:password``, readable by their owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from wormhole.host.private_files import private_opener
from wormhole.model.errors import ConfigError
from wormhole.model.replace_file import make_file

__all__ = ["VARIABLE", "make_credentials", "read_credentials", "readable_by_others", "status_of"]

VARIABLE: Final = "WORMHOLE_COORDINATOR_AUTH_FILE"
"""The variable that names the file for commands and subscribers. Daemons use `auth_file` of ``[coordinator]``."""

_BYTES: Final = 32


def make_credentials(path: Path, user: str) -> str:
    """The credentials in ``path``. A missing file is made from the system's random source, with mode 0600. Blocks.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    try:
        if not path.exists():  # if another process is faster, its file is used
            make_file(path, f"{user}:{secrets.token_urlsafe(_BYTES)}\n", opener=private_opener)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="make its folder writable", code="file-unwritable"
        ) from error
    return read_credentials(path)


def status_of(path: Path) -> os.stat_result:
    """Owner and mode of the file. Blocks. Raises :class:`~wormhole.model.errors.ConfigError`."""
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error


def readable_by_others(path: Path) -> bool:
    """Whether another user or group has any right at the file. Blocks, raises as :func:`status_of`."""
    return bool(status_of(path).st_mode & 0o077)


def read_credentials(path: Path) -> str:
    """The ``user:password`` in the file. Blocks.

    Raises :class:`~wormhole.model.errors.ConfigError`, which shows nothing of the file's content.
    """
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text:
        raise ConfigError(
            f'coordinator.auth_file = "{path}": must hold one line, user:password',
            hint="put back the file that `wormholectl zookeeper credentials` wrote; in the data folder of "
            "`wormholectl up` remove it, "
            "and the next `up` makes another",
            code="coordination-refused",
        )
    return text


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else "it holds no text"
    return ConfigError(
        f'coordinator.auth_file = "{path}": cannot be read: {why}',
        hint=f"run this as the owner of that file, or name credentials of your own in {VARIABLE}",
        code="coordination-refused",
    )
