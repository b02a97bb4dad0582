"""Processes that carry a mark in their environment, which children inherit, and what they listen on (Linux)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from pathlib import Path

MARK = "WORMHOLE_TEST_MARK"

_LISTEN = "0A"
_PROC = Path("/proc")


def marked(value: str) -> dict[int, str]:
    """Process id to command line of every process whose environment has ``MARK=value``."""
    wanted = f"{MARK}={value}".encode()
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = command
        except OSError:  # gone meanwhile, or another user's
            continue
    return found


def listening(pids: Iterable[int]) -> set[str]:
    """Addresses (without ports) at which the processes listen."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for handle in (_PROC / str(pid) / "fd").iterdir():
            target = str(handle.readlink())
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:
        pass
    return found


def _address(text: str) -> str:
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    # An IPv4 address on an IPv6 socket.
    return str(getattr(address, "ipv4_mapped", None) or address)
