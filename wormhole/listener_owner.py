"""Which user's process is at the other end of a port of this machine, as the kernel reports it (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["listener_uids", "server_uids"]

_PROC: Final = Path("/proc/net")
_LISTEN: Final = "0A"
# 127.0.0.1 and every address, the way /proc/net/tcp and tcp6 write them on a little-endian machine; tcp6 sockets take IPv4 too.
_LOOPBACK: Final = frozenset({"0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F"})


def listener_uids(port: int) -> frozenset[int]:
    """Users whose sockets listen where a connection to ``127.0.0.1:port`` may arrive; empty: nobody listens. Blocks.

    Another user cannot listen on a port that is taken. Raises ``OSError``.
    """
    return frozenset(uid for uid, state, _, _ in _sockets(port) if state == _LISTEN)


def server_uids(port: int, client_port: int) -> frozenset[int]:
    """Users who may have the other end of the connection from ``127.0.0.1:client_port`` to ``127.0.0.1:port``. Blocks.

    Who accepted it, and who listens: until it is accepted it belongs to the listener, with whom it would end. Raises ``OSError``.
    """
    return frozenset(
        uid
        for uid, state, remote, inode in _sockets(port)
        if state == _LISTEN or (remote == client_port and inode != "0")
    )


def _sockets(port: int) -> Iterator[tuple[int, str, int, str]]:
    """User, state, remote port and inode (``0``: no process has it yet) of every socket at the port.

    Source of the columns: proc_net_tcp of the kernel's documentation.
    """
    for name in ("tcp", "tcp6"):
        table = _PROC / name
        if not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if int(number, 16) == port and address in _LOOPBACK:
                yield int(fields[7]), fields[3], int(fields[2].partition(":")[2], 16), fields[9]
