"""Mutual TLS on every link, and the refusal to listen beyond loopback without it.

Every process has one certificate and trusts one authority (:class:`~wormhole.config.TlsFiles`). Servers require a client
certificate, so a stranger can neither receive nor push updates. A publisher dials a subscriber with the subscriber's
**registered id** as expected name (:func:`target_options`): the certificate must carry that id as a DNS name, whatever address it was
reached at. Together with an application's ``allow`` list this says who may receive what: ZooKeeper, or whoever can write
there, cannot redirect updates to a host without the right certificate.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from wormhole.config import TlsFiles
from wormhole.errors import ConfigError

if TYPE_CHECKING:
    import grpc

__all__ = [
    "TlsFiles",
    "channel_credentials",
    "check_listen",
    "is_loopback",
    "server_credentials",
    "target_options",
]


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a gRPC server that demands a certificate of the same authority from every client.

    Reads the files: call it before the event loop runs, or in a thread. Raises :class:`~wormhole.errors.ConfigError`
    that names the file when one cannot be read or is no PEM.
    """
    import grpc  # here, because a monitor asks this module only whether it may listen

    cert, key, authority = _read(tls)
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=authority, require_client_auth=True)


def channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials to dial with, presenting our own certificate. Raises as :func:`server_credentials`."""
    import grpc

    cert, key, authority = _read(tls)
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=cert)


def target_options(name: str) -> list[tuple[str, str]]:
    """Channel options that make gRPC expect a server certificate with the DNS name ``name`` instead of the address's."""
    return [("grpc.ssl_target_name_override", name)]


def is_loopback(address: str) -> bool:
    """Whether ``host:port``, a bare host or ``unix:path`` can be reached from this machine only.

    Decided without asking DNS: of names only ``localhost`` counts, because what another name means can change.
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


def check_listen(address: str, tls: TlsFiles | None, insecure: bool = False, *, setting: str = "listen") -> None:
    """Refuse to listen beyond loopback without TLS; ``setting`` names what to change.

    Raises :class:`~wormhole.errors.ConfigError` unless ``tls`` is given, ``insecure`` is true or the address is loopback.
    """
    if tls is None and not insecure and not is_loopback(address):
        raise ConfigError(
            f'{setting} = "{address}": listening beyond this machine without TLS would give every update to whoever connects',
            hint='configure [tls] cert, key and ca, listen on "127.0.0.1:0", or set insecure = true',
        )


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # More than one colon outside brackets is a bare IPv6 address.
    return address.rpartition(":")[0] if address.count(":") == 1 else address


def _read(tls: TlsFiles) -> tuple[bytes, bytes, bytes]:
    """Certificate, key, authority; every problem in one error."""
    problems: list[str] = []
    cert = _pem(tls.cert, "tls.cert", b"CERTIFICATE", problems)
    key = _pem(tls.key, "tls.key", b"PRIVATE KEY", problems)
    authority = _pem(tls.ca, "tls.ca", b"CERTIFICATE", problems)
    if problems:
        raise ConfigError("; ".join(problems), hint="each names a PEM file that this process can read")
    return cert, key, authority


def _pem(path: Path, setting: str, kind: bytes, problems: list[str]) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        problems.append(f'{setting} = "{path}": cannot be read: {error.strerror}')
        return b""
    # gRPC itself says nothing of use about a wrong file: the connection would fail later and look like the network.
    if b"-----BEGIN " not in data or kind + b"-----" not in data:
        problems.append(f'{setting} = "{path}": holds no PEM {kind.decode()}')
    return data
