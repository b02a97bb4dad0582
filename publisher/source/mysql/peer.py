"""Which account of this host answers at the other end of a connection: what the kernel says, which no peer can forge.

A port above 1024 is free to every local user while the server is down, and so is a socket's path in ``/tmp``. Linux records the
owner of each local socket: ``SO_PEERCRED`` of a Unix socket (unix(7)), and the ``uid`` of ``/proc/net/tcp`` (proc_pid_net(5)).
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

__all__ = ["doubt_local", "owner", "row_owner"]

_SERVER_ACCOUNTS: Final = ("mysql", "mariadb")
"""The accounts that the packages of both servers make."""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_PEER: Final = struct.Struct("3i")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9


def doubt_local(connected: socket.socket, path: str | None = None) -> str | None:
    """Why the process at the other end may not be the database; empty: it runs as root, as this user, or as the server's account.
    ``None``: it is not on this host, as far as the kernel knows. ``path``: of a Unix socket, which is also trusted in a folder that not
    everybody can write to."""
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
    """The uid of the process at the other end of a connection; ``None`` where it is not on this host."""
    if connected.family == socket.AF_UNIX:
        uid: int = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        return uid
    ours, theirs = connected.getsockname()[:2], connected.getpeername()[:2]
    for table in _TABLES:
        try:
            with table.open("rb") as rows:
                found = row_owner(rows, local=theirs, remote=ours)
        except OSError:  # no such protocol here, or no /proc
            continue
        if found is not None:
            return found
    return None


def row_owner(rows: Iterable[bytes], *, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The uid in the row of ``/proc/net/tcp`` or ``tcp6`` for these ends; ``None`` where there is none."""
    wanted = {_written(local, six) + b" " + _written(remote, six) for six in (False, True)}
    for row in rows:
        fields = row.split(None, _INODE + 1)
        # A socket that no process holds, one not accepted yet for instance, is listed as root's, with the inode 0.
        if len(fields) > _INODE and b" ".join(fields[_LOCAL : _REMOTE + 1]) in wanted and fields[_INODE] != b"0":
            return int(fields[_UID])
    return None


def _written(end: tuple[str, int], six: bool) -> bytes:
    """An address as those tables have it: 32-bit words in the machine's order, a port; ``six``: that of an IPv6 socket."""
    address = ip_address(end[0].partition("%")[0])
    if six and isinstance(address, IPv4Address):
        address = IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
    return b"".join(b"%08X" % word for word in words) + b":%04X" % end[1]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
