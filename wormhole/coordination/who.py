"""Who changes something from this process, as the history names them."""

from __future__ import annotations

import getpass
import socket

__all__ = ["who"]


def who() -> str:
    """``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
