"""Finds the users of the sockets of this host's TCP connections in the kernel's table, which no peer can forge
(Linux).

A port above 1024 is free to every local user while its server is down. The kernel records the user of each socket in
``/proc/net/tcp`` and ``tcp6`` (proc_pid_net(5)).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

__all__ = ["End", "Row", "connection_uid", "end_uids", "listener_uids", "rows_of", "server_uids"]

End = tuple[str, int]
"""Address and port."""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
_LISTEN: Final = b"0A"
_ANY: Final = frozenset({"0.0.0.0", "::", "127.0.0.1"})  # listeners at these addresses accept connections to 127.0.0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One socket. ``remote`` is ``("0.0.0.0", 0)`` for a listener.

    ``held``: whether a process has it. A connection that is not accepted yet is listed as root's.
    """

    local: End
    remote: End
    listens: bool
    uid: int
    held: bool


def listener_uids(port: int) -> frozenset[int]:
    """Users whose sockets listen where a connection to ``127.0.0.1:port`` may arrive; empty: no process listens.
    Blocks.

    Another user cannot listen on a port that is in use. Raises ``OSError``.
    """
    return frozenset(row.uid for row in _sockets(port) if row.listens and row.local[0] in _ANY)


def server_uids(port: int, client_port: int) -> frozenset[int]:
    """Users who may have the other end of the connection from ``127.0.0.1:client_port`` to ``127.0.0.1:port``. Blocks.

    They are the user of the process that accepted it, and the users that listen. Until the connection is accepted it
    belongs to the listener, and ends with the listener. Raises ``OSError``.
    """
    return frozenset(
        row.uid
        for row in _sockets(port)
        if row.local[0] in _ANY and (row.listens or (row.remote[1] == client_port and row.held))
    )


def connection_uid(local: End, remote: End) -> int | None:
    """The user of the end ``local`` of an accepted connection; ``None`` if that end is not on this host.

    Blocks. Raises ``OSError``.
    """
    wanted = _plain(local), _plain(remote)
    return next((row.uid for row in _sockets(local[1]) if row.held and (row.local, row.remote) == wanted), None)


def end_uids(addresses: Iterable[str], port: int) -> frozenset[int]:
    """Users of the sockets at the ``port`` of local addresses. Blocks. Raises ``OSError``.

    The sockets are those that listen where a connection to the addresses arrives, and those of accepted connections.
    While a process listens there, no other one can begin to use the port.
    """
    places = {_plain((address, port))[0] for address in addresses} | {"0.0.0.0", "::"}
    return frozenset(row.uid for row in _sockets(port) if row.held and row.local[0] in places)


def rows_of(lines: Iterable[bytes], port: int) -> Iterator[Row]:
    """The sockets of a table with the local ``port``."""
    ending = b":%04X" % port
    for line in lines:
        if ending not in line:  # skips nearly all lines, because splitting a line is slow
            continue
        fields = line.split(None, _INODE + 1)
        if len(fields) <= _INODE or not fields[_LOCAL].endswith(ending):
            continue
        yield Row(
            _read(fields[_LOCAL]),
            _read(fields[_REMOTE]),
            fields[_STATE] == _LISTEN,
            int(fields[_UID]),
            fields[_INODE] != b"0",
        )


def _sockets(port: int) -> Iterator[Row]:
    for table in _TABLES:
        try:
            lines = table.read_bytes().splitlines()
        except FileNotFoundError:  # a kernel without IPv6
            continue
        yield from rows_of(lines, port)


def _read(field: bytes) -> End:
    """An end in the form of the tables: 32-bit words in the machine's order, and a port."""
    address, _, port = field.partition(b":")
    words = bytes.fromhex(address.decode())
    count = len(words) // 4
    packed = struct.pack(f"={count}I", *struct.unpack(f">{count}I", words))
    return _plain((str(ip_address(packed)), int(port, 16)))


def _plain(end: End) -> End:
    """The end with an IPv4 address, also if an IPv6 socket has it, and without a zone."""
    address: IPv4Address | IPv6Address = ip_address(end[0].partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return str(address), end[1]
