"""Checks the certificate of a server before or after gRPC dials it.

gRPC in Python neither shows a client the server's certificate nor reads revocation lists. After a failed handshake it
reports only OpenSSL's code. A handshake of Python's own TLS, with this process's certificate, shows the certificate and
the cause. If revocation lists are configured, this handshake comes first, and gRPC's connection then accepts only the
certificate that was seen here. A server that then uses another certificate is refused.

No thread waits for a peer, because the process has few threads, and the stores of datamarkers need them. Callers
without an event loop use ``asyncio.run``.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from wormhole.host.certificates import Certificate, day
from wormhole.host.trust import PeerRefusedError, Trust
from wormhole.model.errors import StreamBroken, WormholeError

if TYPE_CHECKING:
    import grpc

__all__ = ["checked_credentials", "examine", "explain"]

_TIMEOUT_S: Final = 3.0
_GRPC: Final = ("h2",)  # an HTTP/2 server sends bytes before the client's first request
_REPLY: Final = "replace the certificate that is named; it is read again without a restart"


async def checked_credentials(address: str, trust: Trust) -> tuple[grpc.ChannelCredentials, Certificate | None]:
    """Credentials for one connection to ``address`` (``host:port`` or ``unix:path``), and the certificate that they
    accept. The certificate is known only if revocation lists are configured. Raises as :func:`examine`.
    """
    if (await asyncio.to_thread(trust.current)).lists is None:
        return trust.channel_credentials(), None
    peer = await examine(address, trust)
    return trust.channel_credentials(peer), peer


async def examine(address: str, trust: Trust) -> Certificate:
    """The certificate of the server at ``address``, after the check of its issuer, its dates and the revocation
    lists.

    Raises :class:`~wormhole.model.errors.StreamBroken`, which names certificate and date, if it is not. Raises the same
    for a server that refuses this process's certificate, and for one that does not answer.
    """
    context = await asyncio.to_thread(trust.context, ssl.PROTOCOL_TLS_CLIENT, _GRPC)
    try:
        async with asyncio.timeout(_TIMEOUT_S), _connected(address, context) as (reader, peer):
            await _first_byte(address, reader, trust)
            return peer
    except PeerRefusedError as error:
        raise StreamBroken(
            f"{address} is refused: {error.strerror}", hint=_REPLY, code="certificate-refused"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise StreamBroken(
            f"{address} is refused: {await _why(address, trust, error)}", hint=_REPLY, code="certificate-refused"
        ) from error
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
            f"{address} cannot be reached ({_reason(error)})",
            hint="check that a process listens there, and that the address can be dialled from here",
        ) from error


async def explain(address: str, name: str, trust: Trust) -> str:
    """The reason why gRPC could not make a connection, if the certificates are the cause; empty: they are not.

    ``name``: the one expected in the server's certificate; empty: the host of the address.
    """
    try:
        peer = await examine(address, trust)
    except StreamBroken as error:
        cause = error.__cause__
        return "" if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) else error.message
    except WormholeError as error:
        return error.message
    wanted = name or ("" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]"))
    if wanted and not peer.is_for(wanted):
        names = ", ".join(peer.names) or "(none)"
        return f"{address} is refused: the certificate {peer} has the names {names}, not {wanted!r}"
    return ""


@asynccontextmanager
async def _connected(address: str, context: ssl.SSLContext) -> AsyncIterator[tuple[asyncio.StreamReader, Certificate]]:
    """A connection after the client's part of the handshake, and the server's certificate."""
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(
            address.removeprefix("unix:"), ssl=context, server_hostname=""
        )
    else:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert shown is not None  # a client's handshake without one fails
        yield reader, Certificate.read(shown)
    finally:
        writer.transport.abort()


async def _why(address: str, trust: Trust, error: ssl.SSLCertVerificationError) -> str:
    """The error that the library found, with the facts of the certificate. The certificate is read on another
    connection, which is used for nothing else.
    """
    context = await asyncio.to_thread(trust.looking_context)
    try:
        async with asyncio.timeout(_TIMEOUT_S), _connected(address, context) as (_, peer):
            pass
    except (OSError, ValueError):
        return f"its certificate is not accepted: {error.verify_message}"
    if why := trust.refuses(peer):
        return why
    return f"the certificate {peer} is issued by {peer.issuer}, and is not accepted: {error.verify_message}"


async def _first_byte(address: str, reader: asyncio.StreamReader, trust: Trust) -> None:
    """Raise :class:`~wormhole.model.errors.StreamBroken` when the server closes the connection before it sends a byte.

    In TLS 1.3 the client's part of the handshake ends before the server has checked the client's certificate. A server
    of gRPC then either sends its settings or closes the connection without a message.
    """
    reason = ""
    try:
        if await reader.read(1):
            return
    except ssl.SSLError as error:
        reason = f" ({(error.reason or '').lower().replace('_', ' ')})"
    except ConnectionError:
        pass
    if not trust.held.chain:
        raise StreamBroken(
            f"{address} demands a certificate{reason}, and this process has none",
            hint="dial the address of `token_listen` under [publisher], or give this process a certificate",
            code="certificate-refused",
        )
    own = trust.held.own
    faults = trust.faults() or [
        f"{own}, issued by {own.issuer}, until {day(own.not_after)}: compare with tls.ca and tls.crl there"
    ]
    raise StreamBroken(
        f"{address} refuses our certificate{reason}: {'; '.join(faults)}", hint=_REPLY, code="certificate-refused"
    )


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
