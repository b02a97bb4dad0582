"""Dials a subscriber, for a publisher's streams and the tasks of a mass replay.

:mod:`wormhole.push.session` defines the frames of the stream.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from wormhole.host.socket_table import end_uids
from wormhole.host.tls import is_loopback, target_options
from wormhole.model.errors import ProtocolError, StreamBroken, WormholeError
from wormhole.model.requirements import need
from wormhole.push.line import PushCall
from wormhole.push.refusal import why_unreachable
from wormhole.wire.bounds import MOST_MESSAGE_BYTES

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate
    from wormhole.host.trust import Trust

__all__ = ["DialledLine", "Peer", "broken", "check_user", "is_refused", "why_not_reached"]

need("grpcio", grpc.__version__)

_METHOD: Final = "/wormhole.wire.v1.Subscriber/Push"
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    # Data that is not read yet waits at the subscriber. Probes of the bandwidth would let megabytes of it arrive, and
    # receiving them is work.
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
_CERTIFICATE: Final = (
    "replace the certificate that is named, or correct the setting; files are read again without a restart"
)
# The text of grpcio when a write fails before the peer's status is known. It contains no cause.
_OF_A_CUT: Final = frozenset({"Internal error from Core"})


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


class DialledLine:
    """A :class:`~wormhole.push.line.Line` to a subscriber that listens. With TLS its certificate must carry the
    subscriber's id.

    ``certificate`` is known only if revocation lists are configured: it is checked before gRPC dials, and is then the
    only one that is accepted.
    """

    def __init__(self, peer: Peer, subscriber: str, metadata: tuple[tuple[str, bytes], ...] = ()) -> None:
        self.certificate: Certificate | None = None
        self._peer = peer
        self._subscriber = subscriber
        self._metadata = metadata
        self._channel: grpc.aio.Channel | None = None
        self._call: PushCall = None

    async def open(self) -> PushCall:
        """Open the stream. gRPC dials with the first message."""
        peer = self._peer
        if peer.trust is None:
            self._channel = grpc.aio.insecure_channel(peer.address, _OPTIONS)
        else:
            from wormhole.host.peer_check import checked_credentials  # here, because its library takes 13 MB

            credentials, self.certificate = await checked_credentials(peer.address, peer.trust)
            options = [*_OPTIONS, *target_options(self._subscriber)]
            self._channel = grpc.aio.secure_channel(peer.address, credentials, options)
        self._call = self._channel.stream_stream(_METHOD)(metadata=self._metadata)
        return self._call

    async def check_peer(self) -> None:
        """Without TLS, check which user's process answered: another user's process may have taken the port before it
        was dialled.
        """
        if self._peer.trust is None:
            await asyncio.to_thread(check_user, self._peer)

    async def until_refused(self) -> None:
        """See :class:`~wormhole.push.line.Line`."""
        trust = self._peer.trust
        if trust is None or self.certificate is None:
            await asyncio.Event().wait()
        else:
            raise StreamBroken(await trust.until_revoked(self.certificate), code="certificate-refused")

    async def why_ended(self, error: grpc.RpcError, *, welcomed: bool) -> StreamBroken | ProtocolError:
        """See :class:`~wormhole.push.line.Line`."""
        if welcomed:
            return broken(error, self._peer, self._subscriber)
        return await why_not_reached(error, self._peer, self._subscriber)

    async def close(self) -> None:
        """See :class:`~wormhole.push.line.Line`."""
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            await self._channel.close()


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
    """The error for a stream that was never established, in the words of :func:`broken`. With TLS the certificates are
    checked on a connection of their own.
    """
    unavailable = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE
    if peer.trust is not None and unavailable and not is_refused(error):
        from wormhole.host.peer_check import explain

        if why := await explain(peer.address, subscriber, peer.trust):
            return StreamBroken(why, hint=_CERTIFICATE, code="certificate-refused")
    return broken(error, peer, subscriber)


def broken(error: BaseException, peer: Peer, subscriber: str) -> StreamBroken | ProtocolError:
    """The error for a stream that ended, with the next step."""
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

    ``error``: the error of a dial or a call, or one that was raised from such an error.
    """
    if isinstance(error, WormholeError):
        error = error.__cause__
    if isinstance(error, grpc.aio.AioRpcError):
        return "Connection refused" in (error.details() or "")
    return isinstance(error, ConnectionRefusedError)
