"""Finds the account on this host that runs the process at the other end of a connection, as the kernel reports it.

While the server is down, every local user may take its port (above 1024) or its socket's path in ``/tmp``. Linux
records the owner of each local socket: ``SO_PEERCRED`` for a Unix socket (unix(7)), and
:mod:`wormhole.host.socket_table` for a TCP socket.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from wormhole.host.socket_table import connection_uid

__all__ = ["doubt_local", "owner"]

_SERVER_ACCOUNTS: Final = ("mysql", "mariadb")
"""The accounts that the packages of both servers create."""

_PEER: Final = struct.Struct("3i")


def doubt_local(connected: socket.socket, path: str | None = None) -> str | None:
    """Why the process at the other end may not be the database; empty: it runs as root, as this user, or as the
    server's account. ``None``: the kernel knows no such process on this host.

    ``path``: the path of a Unix socket. A socket in a folder that only some users can write to is also trusted."""
    uid = owner(connected)
    if uid is None:
        return None
    if uid in (0, os.geteuid()) or _name(uid) in _SERVER_ACCOUNTS:
        return ""
    if path is not None and not Path(path).parent.stat().st_mode & stat.S_IWOTH:
        return ""
    who = _name(uid) or "no account's"
    return (
        f"the process that answers on this host runs as uid {uid} ({who}), neither as root nor as this user nor as "
        + " or ".join(_SERVER_ACCOUNTS)
    )


def owner(connected: socket.socket) -> int | None:
    """The uid of the process at the other end of a connection; ``None``: it is not on this host."""
    if connected.family == socket.AF_UNIX:
        uid: int = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        return uid
    try:
        return connection_uid(connected.getpeername()[:2], connected.getsockname()[:2])
    except OSError:  # the system has no /proc
        return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
