"""Makes gRPC servers listen at an address, and reports why an address cannot be used."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING

from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    import grpc.aio

    from wormhole.host.trust import Trust

__all__ = ["add_port", "cannot_listen"]

_HINTS = {
    errno.EADDRINUSE: "another process listens there (`ss -ltnp` names it): end it, or choose another port",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
    errno.EACCES: "choose a port from 1024 on, or port 0",
}


def cannot_listen(listen: str, error: OSError, *, setting: str) -> ConfigError:
    """The error for ``listen`` (``host:port``). ``setting``: the setting that has to be changed."""
    number = error.errno or 0
    why = os.strerror(number) if number > 0 else str(error.strerror or error)  # asyncio's text repeats the address
    hint = _HINTS.get(number, "name an address of this machine, with a free port or port 0")
    return ConfigError(f'{setting} = "{listen}" cannot be taken: {why}', hint=hint, code="address-taken")


async def add_port(
    server: grpc.aio.Server, listen: str, trust: Trust | None, *, setting: str = "listen", demand: bool = True
) -> int:
    """Make ``server`` listen at ``listen`` (``host:port``), with TLS unless ``trust`` is ``None``. Returns the port.

    ``demand``: whether clients have to show a certificate.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    # gRPC would log a line of its own for a used port, and raise an error without the reason.
    await asyncio.to_thread(_check_free, listen, setting)
    try:
        if trust is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, trust.server_credentials(demand=demand))
    except RuntimeError:
        used = OSError(errno.EADDRINUSE, "")  # another process took the port after the check
        raise cannot_listen(listen, used, setting=setting) from None


def _check_free(listen: str, setting: str) -> None:
    """Raise an error unless one of the addresses of ``listen`` is free. Blocks: a name is looked up."""
    host, _, port = listen.rpartition(":")
    problem: OSError | None = None
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise cannot_listen(listen, error, setting=setting) from None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
                probe.bind(address)
                return
        except OSError as error:
            problem = problem or error
    assert problem is not None
    raise cannot_listen(listen, problem, setting=setting)
