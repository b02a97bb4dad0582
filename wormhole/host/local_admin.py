"""Finds the admin service of a publisher on this host: a socket in its state folder, where no other user can listen.

An address that is found, in ZooKeeper or elsewhere, may belong to any process. Therefore the host's token is read from
the state folder that this side knows by itself. It is sent only over the socket in that folder, and only to a process
of the user who owns the token already.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wormhole.model.errors import UsageError

__all__ = ["LocalAdmin", "socket_target", "token_path"]

_NAME: Final = "admin.sock"
_TOKEN: Final = re.compile(r"[0-9a-f]{64}\n?")
_TIMEOUT_S: Final = 5.0
_OTHERS_READ: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_PEER: Final = struct.Struct("3i")  # pid, uid, gid: `struct ucred` of unix(7)


def token_path(state_dir: Path) -> Path:
    """The path of the token of the publishers with this state folder."""
    return state_dir.absolute() / "admin.token"


def socket_target(folder: int) -> str:
    """The socket in a folder that is open as descriptor ``folder``, in the form in which gRPC dials it and listens at
    it.

    The descriptor is used because the path of a socket has at most 107 bytes, and because it stays the folder that was
    checked.
    """
    return f"unix:/proc/self/fd/{folder}/{_NAME}"


@dataclass(frozen=True, slots=True)
class LocalAdmin:
    """The publisher of one log on this host. ``state_dir``: the state folder of its ``[publisher]``, known by this
    side.
    """

    state_dir: Path
    dataset: str
    copy: str
    log: str

    @contextmanager
    def dial(self) -> Iterator[tuple[str, str]]:
        """The target to dial and the token, both valid within the ``with``. Blocks.

        Raises :class:`~wormhole.model.errors.UsageError` with the reason if this way cannot be used: this user may not
        read the token, or the socket does not belong to the token's owner alone.
        """
        folder, token, owner = self._folder(), *_read_token(token_path(self.state_dir))
        try:
            handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{folder} cannot be opened: {error.strerror}", code="not-permitted") from error
        try:
            found = os.fstat(handle)
            if found.st_uid != owner or found.st_mode & _OTHERS_WRITE:
                raise UsageError(
                    f"{folder} is not only the token's owner's (user {owner}) to write to", code="not-permitted"
                )
            peer = _peer(handle, folder)
            if peer != owner:
                raise UsageError(
                    f"at {folder / _NAME} listens user {peer}, and the token is user {owner}'s", code="not-permitted"
                )
            yield socket_target(handle), token
        finally:
            os.close(handle)

    def _folder(self) -> Path:
        names = (self.dataset, self.copy, self.log)
        if any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
            raise UsageError(f"{'/'.join(names)!r} names no log")
        return self.state_dir.absolute().joinpath(*names)


def _read_token(path: Path) -> tuple[str, int]:
    """The token, and the user who owns it."""
    try:
        # O_NOFOLLOW refuses a symbolic link. O_NONBLOCK opens a pipe without waiting.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            text = file.read(100).decode("ascii", "replace") if stat.S_ISREG(found.st_mode) else ""
    except OSError as error:
        raise UsageError(f"the token {path} cannot be read: {error.strerror}", code="not-permitted") from error
    if not _TOKEN.fullmatch(text):
        raise UsageError(f"{path} holds no token", code="not-permitted")
    if found.st_mode & _OTHERS_READ:
        raise UsageError(f"the token {path} can be read by other users", code="not-permitted")
    return text.strip(), found.st_uid


def _peer(folder: int, shown: Path) -> int:
    """The user of the process that listens, from the kernel."""
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(_TIMEOUT_S)
        try:
            probe.connect(socket_target(folder).removeprefix("unix:"))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except FileNotFoundError as error:
            raise UsageError(
                f"there is no socket {shown / _NAME}: the publisher does not run in this folder, or it is of an "
                "earlier release, "
                "which has to be replaced first",
                code="publisher-silent",
            ) from error
        except OSError as error:
            raise UsageError(
                f"no process answers at {shown / _NAME}: {error.strerror or error}", code="publisher-silent"
            ) from error
    return int(_PEER.unpack(credentials)[1])
