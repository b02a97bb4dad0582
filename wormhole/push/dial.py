"""Dialling a subscriber: what a publisher's streams and the tasks of a mass replay have in common.

What travels is :mod:`wormhole.push.session`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from wormhole.host.socket_table import end_uids
from wormhole.host.tls import is_loopback, target_options
from wormhole.model.errors import ProtocolError, StreamBroken
from wormhole.push.refusal import why_unreachable

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate
    from wormhole.host.trust import Trust

__all__ = ["Line", "PushCall", "broken", "is_refused", "open_line", "open_push", "stranger_at", "why_not_reached"]

_METHOD: Final = "/wormhole.wire.v1.Subscriber/Push"
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", -1),
    # Dialling again is its caller's business, with a backoff of its own; a shared subchannel would add gRPC's, and that
    # of others.
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
# What grpcio says when a write fails before the peer's status is known. It names no cause because it has none.
_CERTIFICATE: Final = (
    "replace the certificate that is named, or correct the setting; files are read again without a restart"
)
_OF_A_CUT: Final = frozenset({"Internal error from Core"})

PushCall = Any
"""``grpc.aio.StreamStreamCall[bytes, bytes]``; the stubs cannot say that a call without serializers carries bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """A channel for one connection.

    ``peer``: the only certificate that it accepts; ``None``: any of the authority, or no TLS.
    """

    channel: grpc.aio.Channel
    peer: Certificate | None = None


async def open_line(address: str, subscriber: str, trust: Trust | None) -> Line:
    """For one connection to the subscriber. With TLS its certificate must carry the subscriber's id.

    gRPC has not dialled yet. Where revocation lists are configured the subscriber's certificate has been looked at,
    which raises :class:`~wormhole.model.errors.StreamBroken`.
    """
    if trust is None:
        return Line(grpc.aio.insecure_channel(address, _OPTIONS))
    from wormhole.host.peer_check import checked_credentials  # here, because its library takes 13 MB

    credentials, peer = await checked_credentials(address, trust)
    return Line(grpc.aio.secure_channel(address, credentials, [*_OPTIONS, *target_options(subscriber)]), peer)


def open_push(channel: grpc.aio.Channel) -> PushCall:
    """The stream, which carries serialized messages both ways."""
    return channel.stream_stream(_METHOD)()


def stranger_at(address: str, user: int | None) -> str:
    """Why the process that answers at a loopback address is not one of ``user``, who registered it, nor of root; empty:
    nothing speaks against it. ``None``: the user is not known. Blocks.

    A port above 1024 is free to every local user as soon as the subscriber has ended, and its registration lives a
    little longer.
    """
    if user is None or not is_loopback(address):
        return ""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    named = host.lower().rstrip(".") == "localhost"
    try:
        others = end_uids(_LOCALHOST if named else (host,), int(port)) - {user, 0}
    except OSError:  # no table of this kind
        return ""
    if not others:
        return ""
    why = StreamBroken(
        (
            f"{address} is served by user {min(others)}, and the subscriber that registered it runs as user {user}: it "
            "gets nothing"
        ),
        hint="find out what listens there (`ss -ltnp` names it), end it, and start the subscriber again; or use `tls`",
    )
    return str(why)


async def why_not_reached(
    error: BaseException, address: str, subscriber: str, trust: Trust | None, *, here: str = "this host"
) -> StreamBroken | ProtocolError:
    """As :func:`broken`, of a stream that never came up: with TLS the certificates are looked at, on a connection for
    that alone.
    """
    unavailable = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE
    if trust is not None and unavailable and not is_refused(error):
        from wormhole.host.peer_check import explain

        if why := await explain(address, subscriber, trust):
            return StreamBroken(why, hint=_CERTIFICATE)
    return broken(error, address, subscriber, tls=trust is not None, here=here)


def broken(
    error: BaseException, address: str, subscriber: str, *, tls: bool, here: str = "this host"
) -> StreamBroken | ProtocolError:
    """Why the stream ended, in words that say what to change. ``here``: where it was dialled from."""
    code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
    details = (error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)) or ""
    if details in _OF_A_CUT:
        return StreamBroken(f"the connection to {address} ended while a message was written to it", hint=_AGAIN)
    if code is grpc.StatusCode.UNAVAILABLE:
        certificates = (
            "; that both certificates come from the same authority "
            f"and the subscriber's carries the name {subscriber!r}"
        )
        return StreamBroken(
            f"{address} cannot be reached ({why_unreachable(details)})",
            hint=(
                "check that the subscriber runs and that its `advertise` address can be dialled from "
                f"{here}{certificates if tls else ''}"
            ),
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ProtocolError(
            f"{address} is no Wormhole subscriber", hint=f"check the `advertise` address of {subscriber!r}"
        )
    name = code.name.lower().replace("_", " ") if code else "error"
    return StreamBroken(
        f"the connection to {address} ended: {name}: {details}",
        hint=_AGAIN if code is None else _HINTS.get(code, _AGAIN),
    )


def is_refused(error: BaseException) -> bool:
    """Whether the host answered that nobody listens there, as opposed to no answer at all."""
    if isinstance(error, StreamBroken):
        return isinstance(error.__cause__, ConnectionRefusedError)
    return isinstance(error, grpc.aio.AioRpcError) and "Connection refused" in (error.details() or "")
