"""The user of this process, as the history of changes names them."""

from __future__ import annotations

import getpass
import socket

__all__ = ["current_user"]


def current_user() -> str:
    """``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = "unknown user"
    return f"{user}@{socket.gethostname()}"
