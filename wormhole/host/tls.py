"""Mutual TLS on every connection, and the refusal to listen beyond loopback without it.

Every process has one certificate and trusts one authority (:class:`~wormhole.config.TlsFiles`). Servers require a
client certificate, so a stranger can neither receive nor push updates. A publisher dials a subscriber with the
subscriber's **registered id** as expected name (:func:`target_options`): the certificate must carry that id as a DNS
name, whatever the dialled address. Together with an application's ``allow`` list this determines who may receive what.
ZooKeeper, or a process that can write there, cannot redirect updates to a host without the right certificate.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from wormhole.model.errors import ConfigError, TargetUnavailable

if TYPE_CHECKING:
    from wormhole.config import TlsAuthority, TlsFiles
    from wormhole.host.trust import Trust

__all__ = [
    "check_listen",
    "client_context",
    "is_loopback",
    "open_trust",
    "target_options",
    "untrusted",
]


def open_trust(tls: TlsFiles | TlsAuthority | None) -> Trust | None:
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


def client_context(ca: Path | None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """The TLS context of a sink for its store. ``ca``: the authorities, in PEM; ``None``: the system's. ``cert`` and
    ``key``: the sink's own. Blocks. Raises the error of :func:`untrusted` for a file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        files = ", ".join(str(file) for file in (ca, cert, key) if file is not None)
        raise TargetUnavailable(
            f"a file for TLS cannot be used ({files}): {error.strerror or error}",
            hint="they are PEM files that this user can read; the sink continues by itself",
            code="certificate-refused",
        ) from error
    return context


def untrusted(where: str, why: str) -> TargetUnavailable:
    """The error for a store whose certificate is not trusted. Nothing is sent to the store. The
    connection is retried, because certificates and files are replaced without a restart.
    """
    return TargetUnavailable(
        f"the certificate of {where} is refused: {why}",
        hint="renew it, or name the authority that signed it; the sink continues by itself",
        code="certificate-refused",
    )


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
                "any process that connects"
            ),
            hint='configure [tls] cert, key and ca, listen on "127.0.0.1:0", or set insecure = true',
        )


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # More than one colon outside brackets is a bare IPv6 address.
    return address.rpartition(":")[0] if address.count(":") == 1 else address
