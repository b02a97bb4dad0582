"""The name by which a publisher's certificate is known to subscribers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final

from wormhole.cli.admin_client import Answer

__all__ = ["name_in", "named"]

_TIMEOUT_S: Final = 3.0


def named(answers: Iterable[Answer]) -> dict[str, str]:
    """Address of each publisher that was reached with TLS and answered, to the name in its certificate. Blocks.

    One that does not show a certificate of the same authority is left out: then it is no publisher of this installation.
    """
    found = {}
    for answer in answers:
        if answer.tls is None or answer.status is None or answer.address.startswith("unix:"):
            continue
        host, _, port = answer.address.rpartition(":")
        context = ssl.create_default_context(cafile=str(answer.tls.ca))
        context.check_hostname = False  # the name is what is asked for
        context.load_cert_chain(answer.tls.cert, answer.tls.key)
        context.set_alpn_protocols(["h2"])  # gRPC's servers close any other connection
        try:
            with (
                socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S) as plain,
                context.wrap_socket(plain) as connection,
            ):
                name = name_in(connection.getpeercert() or {})
        except (OSError, ValueError):
            continue
        if name:
            found[answer.address] = name
    return found


def name_in(certificate: Mapping[str, Any]) -> str:
    """The name of the process that a certificate (:meth:`ssl.SSLSocket.getpeercert`) is for: its common name, or its first DNS name
    that is not this host's; empty when it has none."""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    hosts = [value for key, value in certificate.get("subjectAltName", ()) if key == "DNS"]
    listed = [name for name in common if name in hosts] or [name for name in hosts if name != "localhost"] or common
    return str(listed[0]) if listed else ""
