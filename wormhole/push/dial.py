"""Dialling a subscriber, for a publisher's streams and the tasks of a mass replay.

The frames are those of :mod:`wormhole.push.session`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from wormhole.host.socket_table import end_uids
from wormhole.host.tls import is_loopback, target_options
from wormhole.model.errors import ProtocolError, StreamBroken, WormholeError
from wormhole.model.requirements import need
from wormhole.push.refusal import why_unreachable
from wormhole.wire.bounds import MOST_MESSAGE_BYTES

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate
    from wormhole.host.trust import Trust

__all__ = [
    "Line",
    "Peer",
    "PushCall",
    "broken",
    "check_user",
    "is_refused",
    "open_line",
    "open_push",
    "why_not_reached",
]

need("grpcio", grpc.__version__)

_METHOD: Final = "/wormhole.wire.v1.Subscriber/Push"
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    # Data that is not read yet waits at the subscriber. Probing would let megabytes of it arrive, and receiving is
    # work, too.
    ("grpc.http2.bdp_probe", 0),
    # The caller dials again after a backoff of its own. A shared subchannel would add gRPC's backoff, and other
    # callers' too.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

_LOCALHOST: Final = ("127.0.0.1", "::1")
_AGAIN: Final = (
    "it is dialled again; if this repeats, look at the subscriber's log and at the network between here and there"
)
_HINTS: Final = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "let the subscriber take larger messages (max_frame), or free memory on its host"
    ),
    grpc.StatusCode.UNKNOWN: "its handler failed inside: look at the subscriber's log; the connection is dialled again",
    grpc.StatusCode.UNAUTHENTICATED: "compare the certificates of both sides; the connection is dialled again",
    grpc.StatusCode.PERMISSION_DENIED: "compare the certificates of both sides; the connection is dialled again",
}
# The text of grpcio when a write fails before the peer's status is known. It contains no cause.
_CERTIFICATE: Final = (
    "replace the certificate that is named, or correct the setting; files are read again without a restart"
)
_OF_A_CUT: Final = frozenset({"Internal error from Core"})

PushCall = Any
"""``grpc.aio.StreamStreamCall[bytes, bytes]``. The stubs cannot express that a call without serializers carries
bytes.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A channel for one connection.

    ``peer``: the only certificate that it accepts; ``None``: any of the authority, or no TLS.
    """

    channel: grpc.aio.Channel
    peer: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """The address of a subscriber, and how it is dialled.

    ``trust``: ``None`` without TLS. ``user``: the user that registered the subscriber; ``None``: not known. ``here``:
    where it is dialled from, for messages.
    """

    address: str
    trust: Trust | None = None
    user: int | None = None
    here: str = "this host"


async def open_line(peer: Peer, subscriber: str) -> Line:
    """Open a line for one connection to the subscriber. With TLS its certificate must carry the subscriber's id.

    gRPC does not dial yet. If revocation lists are configured, the subscriber's certificate is checked first, which may
    raise :class:`~wormhole.model.errors.StreamBroken`.
    """
    if peer.trust is None:
        return Line(grpc.aio.insecure_channel(peer.address, _OPTIONS))
    from wormhole.host.peer_check import checked_credentials  # here, because its library takes 13 MB

    credentials, certificate = await checked_credentials(peer.address, peer.trust)
    options = [*_OPTIONS, *target_options(subscriber)]
    return Line(grpc.aio.secure_channel(peer.address, credentials, options), certificate)


def open_push(channel: grpc.aio.Channel) -> PushCall:
    """The stream, which carries serialized messages both ways."""
    return channel.stream_stream(_METHOD)()


def check_user(peer: Peer) -> None:
    """Refuse a process at a loopback address that runs neither as the user that registered the subscriber nor as root.

    Raises :class:`~wormhole.model.errors.StreamBroken`. Blocks. The reason: a port above 1024 is free to every local
    user as soon as the subscriber has ended, and its registration lives a little longer.
    """
    if peer.user is None or not is_loopback(peer.address):
        return
    host, _, port = peer.address.rpartition(":")
    host = host.strip("[]")
    named = host.lower().rstrip(".") == "localhost"
    try:
        others = end_uids(_LOCALHOST if named else (host,), int(port)) - {peer.user, 0}
    except OSError:  # no table of this kind
        return
    if others:
        raise StreamBroken(
            f"{peer.address} is served by user {min(others)}, and the subscriber that registered it runs as user "
            f"{peer.user}: it gets nothing",
            hint=(
                "find out what listens there (`ss -ltnp` names it), end it, and start the subscriber again; or use "
                "`tls`"
            ),
            code="address-taken",
        )


async def why_not_reached(error: BaseException, peer: Peer, subscriber: str) -> StreamBroken | ProtocolError:
    """The error for a stream that was never established, as :func:`broken`. With TLS the certificates are checked on a
    connection of their own.
    """
    unavailable = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE
    if peer.trust is not None and unavailable and not is_refused(error):
        from wormhole.host.peer_check import explain

        if why := await explain(peer.address, subscriber, peer.trust):
            return StreamBroken(why, hint=_CERTIFICATE, code="certificate-refused")
    return broken(error, peer, subscriber)


def broken(error: BaseException, peer: Peer, subscriber: str) -> StreamBroken | ProtocolError:
    """The error for a stream that ended, in words that tell what to change."""
    call = error if isinstance(error, grpc.aio.AioRpcError) else None
    code = None if call is None else call.code()
    details = (str(error) if call is None else call.details()) or ""
    if details in _OF_A_CUT:
        return StreamBroken(f"the connection to {peer.address} ended while a message was written to it", hint=_AGAIN)
    if code is grpc.StatusCode.UNAVAILABLE:
        certificates = (
            "; that both certificates come from the same authority "
            f"and the subscriber's carries the name {subscriber!r}"
        )
        return StreamBroken(
            f"{peer.address} cannot be reached ({why_unreachable(details)})",
            hint=(
                "check that the subscriber runs and that its `advertise` address can be dialled from "
                f"{peer.here}{certificates if peer.trust is not None else ''}"
            ),
            code="subscriber-unreachable",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ProtocolError(
            f"{peer.address} is no Wormhole subscriber",
            hint=f"check the `advertise` address of {subscriber!r}",
            code="address-taken",
        )
    name = code.name.lower().replace("_", " ") if code else "error"
    return StreamBroken(
        f"the connection to {peer.address} ended: {name}: {details}",
        hint=_AGAIN if code is None else _HINTS.get(code, _AGAIN),
    )


def is_refused(error: BaseException | None) -> bool:
    """Whether the host answered that no process listens there, as opposed to no answer at all.

    ``error``: of a dial or a call, or one that was raised from such an error.
    """
    if isinstance(error, WormholeError):
        error = error.__cause__
    if isinstance(error, grpc.aio.AioRpcError):
        return "Connection refused" in (error.details() or "")
    return isinstance(error, ConnectionRefusedError)
