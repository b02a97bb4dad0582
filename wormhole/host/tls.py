"""Mutual TLS on every connection, and the refusal to listen beyond loopback without it.

Every process has one certificate and trusts one authority (:class:`~wormhole.config.TlsFiles`). Servers require a
client certificate, so a stranger can neither receive nor push updates. A publisher dials a subscriber with the
subscriber's **registered id** as expected name (:func:`target_options`): the certificate must carry that id as a DNS
name, whatever the dialled address. Together with an application's ``allow`` list this determines who may receive what.
ZooKeeper, or a process that can write there, cannot redirect updates to a host without the right certificate.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    from wormhole.config import TlsFiles
    from wormhole.host.trust import Trust

__all__ = [
    "check_listen",
    "is_loopback",
    "open_trust",
    "target_options",
]


def open_trust(tls: TlsFiles | None) -> Trust | None:
    """The files of ``[tls]``, read again when they change; ``None`` without TLS. Faults that would make peers refuse
    are logged.

    Reads the files: call it before the event loop runs, or in a thread. Raises
    :class:`~wormhole.model.errors.ConfigError`.
    """
    if tls is None:
        return None
    from wormhole.host.trust import Trust  # here, because its library takes 13 MB

    trust = Trust(tls)
    trust.warn()
    return trust


def target_options(name: str) -> list[tuple[str, str]]:
    """Channel options that make gRPC expect the DNS name ``name`` in the server's certificate, not the address's."""
    return [("grpc.ssl_target_name_override", name)]


def is_loopback(address: str) -> bool:
    """Whether ``host:port``, a bare host or ``unix:path`` can be reached from this machine only.

    Decided without DNS: of names only ``localhost`` is loopback, because the address of another name can change.
    """
    if address.startswith("unix:"):
        return True
    host = _host(address)
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def check_listen(address: str, tls: object | None, insecure: bool = False, *, setting: str = "listen") -> None:
    """Refuse to listen beyond loopback without TLS; ``setting`` names what to change.

    Raises :class:`~wormhole.model.errors.ConfigError` unless ``tls`` is given, ``insecure`` is true or the address is
    loopback.
    """
    if tls is None and not insecure and not is_loopback(address):
        raise ConfigError(
            (
                f'{setting} = "{address}": listening beyond this machine without TLS would give every update to '
                "whoever connects"
            ),
            hint='configure [tls] cert, key and ca, listen on "127.0.0.1:0", or set insecure = true',
        )


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # More than one colon outside brackets is a bare IPv6 address.
    return address.rpartition(":")[0] if address.count(":") == 1 else address
