"""Looks at the certificate of a server before or after gRPC dials it.

gRPC in Python neither shows a client the server's certificate nor reads revocation lists, and of a failed handshake it gives OpenSSL's
code alone. A handshake of Python's own TLS, with our certificate, has all of it. Where revocation lists are configured it comes first, and
gRPC's connection then accepts only the certificate that was seen here: whoever answers the second time with another one is refused.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from wormhole.certificates import Certificate, day
from wormhole.errors import StreamBroken, WormholeError
from wormhole.trust import PeerRefusedError, Trust

if TYPE_CHECKING:
    import grpc

__all__ = ["checked_credentials", "examine", "explain"]

_TIMEOUT_S: Final = 3.0
_GRPC: Final = ("h2",)  # whose server speaks first
_REPLY: Final = "replace the certificate that is named; it is read again without a restart"


def checked_credentials(address: str, trust: Trust) -> tuple[grpc.ChannelCredentials, Certificate | None]:
    """Credentials for one connection to ``address`` (``host:port`` or ``unix:path``), and the certificate that they are for, which is
    known where revocation lists are configured. Blocks. Raises as :func:`examine`."""
    if trust.current().lists is None:
        return trust.channel_credentials(), None
    peer = examine(address, trust)
    return trust.channel_credentials(peer), peer


def examine(address: str, trust: Trust) -> Certificate:
    """The certificate of the server at ``address``, which is of our authority, within its dates and not revoked. Blocks.

    Raises :class:`~wormhole.errors.StreamBroken` that names certificate and date for one that is not, for a server that refuses
    ours, and for one that does not answer.
    """
    context = trust.context(ssl.PROTOCOL_TLS_CLIENT, _GRPC)
    try:
        with _connected(address, context) as connection:
            peer = _shown(connection)
            _await_first_byte(address, connection, trust)
            return peer
    except PeerRefusedError as error:
        raise StreamBroken(f"{address} is refused: {error.strerror}", hint=_REPLY) from error
    except ssl.SSLCertVerificationError as error:
        raise StreamBroken(f"{address} is refused: {_why(address, trust, error)}", hint=_REPLY) from error
    except TimeoutError as error:
        raise StreamBroken(
            f"{address} cannot be reached (no answer within {_TIMEOUT_S:g} s)", hint="check that the address is right"
        ) from error
    except ssl.SSLError as error:
        raise StreamBroken(
            f"{address} cannot be reached (TLS: {error.reason or error})", hint="check that it is configured with TLS"
        ) from error
    except OSError as error:
        raise StreamBroken(
            f"{address} cannot be reached ({error.strerror or error})",
            hint="check that a process listens there, and that the address can be dialled from here",
        ) from error


def explain(address: str, name: str, trust: Trust) -> str:
    """Why a connection that gRPC could not make fails, as far as the certificates are the cause; empty: they are not. Blocks.

    ``name``: the one expected in the server's certificate; empty: the host of the address.
    """
    try:
        peer = examine(address, trust)
    except StreamBroken as error:
        return (
            ""
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, ssl.SSLError)
            else error.message
        )
    except WormholeError as error:
        return error.message
    wanted = name or ("" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]"))
    if wanted and not peer.is_for(wanted):
        return f"{address} is refused: the certificate {peer} has the names {', '.join(peer.names) or '(none)'}, not {wanted!r}"
    return ""


@contextmanager
def _connected(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    if address.startswith("unix:"):
        bare = socket.socket(socket.AF_UNIX)
        bare.settimeout(_TIMEOUT_S)
        bare.connect(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        bare = socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S)
    with bare, context.wrap_socket(bare) as connection:
        yield connection


def _shown(connection: ssl.SSLSocket) -> Certificate:
    shown = connection.getpeercert(binary_form=True)
    assert shown is not None  # a client's handshake without one fails
    return Certificate.read(shown)


def _why(address: str, trust: Trust, error: ssl.SSLCertVerificationError) -> str:
    """What the library found wrong, with the facts of a certificate that is taken from another connection, to look at only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.load_cert_chain(trust.files.cert, trust.files.key)
        with _connected(address, context) as connection:
            peer = _shown(connection)
    except (OSError, ValueError):
        return f"its certificate is not accepted: {error.verify_message}"
    if why := trust.refuses(peer):
        return why
    return f"the certificate {peer} is issued by {peer.issuer}, and is not accepted: {error.verify_message}"


def _await_first_byte(address: str, connection: ssl.SSLSocket, trust: Trust) -> None:
    """Raises :class:`~wormhole.errors.StreamBroken` when the server hangs up instead.

    In TLS 1.3 the client's part of the handshake ends before the server has looked at the client's certificate. A server of gRPC then either
    sends its settings or closes the connection without a word.
    """
    reason = ""
    try:
        if connection.recv(1):
            return
    except TimeoutError:
        return  # slow, which is not for us to judge
    except ssl.SSLError as error:
        reason = f" ({(error.reason or '').lower().replace('_', ' ')})"
    except OSError:
        pass
    own = trust.held.own
    faults = trust.faults() or [
        f"{own}, issued by {own.issuer}, until {day(own.not_after)}: compare with tls.ca and tls.crl there"
    ]
    raise StreamBroken(f"{address} refuses our certificate{reason}: {'; '.join(faults)}", hint=_REPLY)
