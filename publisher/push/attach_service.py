"""The gRPC service that subscribers dial (``wormhole.wire.v1.Publisher``). It decides which subscribers may attach."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from publisher.push.attach_tokens import AttachTokens, host_of
from publisher.push.attached import AttachedLine, AttachedSubscribers
from publisher.push.observed import Observers
from wormhole.config import ApplicationConfig, PublisherConfig
from wormhole.config.fields import split_advertised
from wormhole.coordination.port import AttachPoint
from wormhole.host.clock import Clock
from wormhole.host.listening import add_port
from wormhole.host.socket_table import connection_uid
from wormhole.host.tls import check_listen, is_loopback
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ProtocolError, UsageError, WormholeError
from wormhole.model.problem import NO_PROBLEM
from wormhole.push.attaching import METHOD, OBSERVE_METHOD, OFFER_METHOD, SERVICE, Attaching
from wormhole.push.refusal import refusal_metadata
from wormhole.wire.bounds import MOST_MESSAGE_BYTES

if TYPE_CHECKING:
    from wormhole.coordination.access_tokens import AccessToken
    from wormhole.host.certificates import Certificate
    from wormhole.host.trust import Trust

__all__ = ["AttachListener", "AttachService", "attach_point"]

_log = logging.getLogger(__name__)

_SETTING: Final = "publisher.attach_listen"
_SECOND_SETTING: Final = "publisher.token_listen"
_OPTIONS: Final = [
    ("grpc.so_reuseport", 0),  # a second publisher could bind the same port without an error
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.bdp_probe", 0),  # see `wormhole.push.dial`
    ("grpc.max_concurrent_streams", 64),  # a subscriber's own stream, and streams for tasks of a mass replay
    # A subscriber may send its own pings to detect a dead connection.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.max_allowed_incoming_connections", 2048),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 10_000),  # a subscriber makes its call immediately
]
_MOST_STREAMS: Final = 2048
_CHECKS: Final = 2  # simultaneous checks: they use threads that other work needs too
_EVERYWHERE: Final = ("0.0.0.0", "[::]")  # these mean every address of a host, and cannot be dialled
_AGAIN_S: Final = 5.0
_STOP_S: Final = 0.5


class AttachService:
    """Admits subscribers.

    ``application``: returns the configuration of an application whose subscribers dial; ``None`` for any other name.
    ``settings``: the configured addresses. ``address``: the address at which the service listens; empty while it does
    not listen. ``token_address``: with TLS, the address that requests no certificate. ``insecure``: whether processes
    of other users and hosts are admitted without TLS. ``refused``: the number of refused attempts, by code.
    """

    def __init__(
        self,
        attached: AttachedSubscribers,
        application: Callable[[str], ApplicationConfig | None],
        tokens: AttachTokens,
        observers: Observers,
        trust: Trust | None,
        settings: PublisherConfig,
        *,
        insecure: bool,
    ) -> None:
        self.attached = attached
        self.trust = trust
        self.settings = settings
        self.insecure = insecure
        self.address = self.token_address = ""
        self.refused: Counter[str] = Counter()
        self._checks = asyncio.Semaphore(_CHECKS)
        self._application = application
        self._tokens = tokens
        self._observers = observers

    async def attach(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """The method that a subscriber calls to receive its flows."""
        await self._admit(requests, context, self.attached.attach)

    async def offer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """The method by which an attached subscriber offers a stream for the task of a mass replay."""
        await self._admit(requests, context, self.attached.offer)

    async def observe(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """The method of a client that shows what an application receives."""
        await self._admit(requests, context, self._observers.observe)

    async def _admit(
        self,
        requests: AsyncIterator[bytes],
        context: Any,
        serve: Callable[[Attaching, AttachedLine], Awaitable[None]],
    ) -> None:
        try:
            who = Attaching.from_metadata(context.invocation_metadata() or ())
            peer = unquote(context.peer())
            certificate = None
            if self.trust is not None and (not who.token or context.auth_context().get("x509_pem_cert")):
                certificate = self._certificate(self.trust, who, context)
            token = self._token(who, peer) if who.token else None
            if self.trust is None and token is None:
                async with self._checks:
                    await asyncio.to_thread(self._check_user, peer)
            self._check_application(who)
            until_refused = partial(self._until_refused, who.application, certificate, token)
            await serve(who, AttachedLine(requests, context.write, peer, certificate, until_refused))
        except WormholeError as error:
            self.refused[error.code] += 1
            refused = grpc.StatusCode.INVALID_ARGUMENT
            if not isinstance(error, ProtocolError):
                refused = grpc.StatusCode.PERMISSION_DENIED
            await context.abort(refused, str(error), trailing_metadata=refusal_metadata(error.hint, error.code))

    def _token(self, who: Attaching, peer: str) -> AccessToken:
        """The token that the subscriber offers. Raises :class:`~wormhole.model.errors.WormholeError`."""
        host = host_of(peer)
        if self.trust is None and not is_loopback(host):
            raise UsageError(
                f"a token from {host} came without TLS, so others may have read it",
                hint=f"revoke it (`wormholectl tokens list {who.application}`), and configure [tls]",
                code="token-refused",
            )
        return self._tokens.check(who.application, who.token, host)

    async def _until_refused(
        self, application: str, certificate: Certificate | None, token: AccessToken | None
    ) -> WormholeError:
        """Wait until the certificate is revoked, or the token is revoked or expires. Returns the reason."""
        waits: list[asyncio.Future[WormholeError]] = []
        if token is not None:
            waits.append(asyncio.ensure_future(self._tokens.until_void(application, token)))
        if self.trust is not None and certificate is not None:
            waits.append(asyncio.ensure_future(_revoked(self.trust, certificate)))
        try:
            if not waits:
                await asyncio.Event().wait()
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            await cancel_all(*waits)

    def _certificate(self, trust: Trust, who: Attaching, context: Any) -> Certificate:
        """The subscriber's certificate. Raises :class:`~wormhole.model.errors.UsageError` if it does not name the
        subscriber's id."""
        authenticated = context.auth_context()
        if why := trust.refuses_client(authenticated):
            raise UsageError(why, hint="dial with another certificate", code="certificate-refused")
        certificate = trust.client(authenticated)
        assert certificate is not None  # a connection without a certificate was refused
        if not certificate.is_for(who.subscriber):
            raise UsageError(
                f"a certificate with the names {', '.join(certificate.names)} may not attach as {who.subscriber!r}",
                hint="use an id that the certificate names (WORMHOLE_ID), or another certificate",
                code="certificate-refused",
            )
        return certificate

    def _check_user(self, peer: str) -> None:
        """Check that the client's process belongs to this publisher's user or to root. Called without TLS. Blocks.

        Raises :class:`~wormhole.model.errors.UsageError`.
        """
        user = None if self.insecure else _user_of(peer, self.address)
        if not self.insecure and user not in {0, os.geteuid()}:
            raise UsageError(
                f"a process of {'another host' if user is None else f'user {user}'} may not attach without TLS",
                hint=f"run it on this host as user {os.geteuid()}, or configure [tls]",
                code="not-permitted",
            )

    def _check_application(self, who: Attaching) -> None:
        config = self._application(who.application)
        if config is None or config.connect != "publisher":
            raise UsageError(
                f"this publisher takes no subscribers of {who.application!r} that dial it",
                hint=f'set connect = "publisher" in [applications.{who.application}], of this publisher\'s dataset',
                code="application-unknown",
            )
        if not config.allows(who.subscriber):
            raise UsageError(
                f"subscriber {who.subscriber!r} is not in the allow list of {who.application}",
                hint=f"add it to `allow` in [applications.{who.application}]",
                code="not-permitted",
            )


class AttachListener:
    """Listens once an application has subscribers that dial.

    ``follow`` runs at the same time, and follows which applications have such subscribers. ``problem``: why the
    listener cannot listen.
    """

    def __init__(self, service: AttachService, follow: Callable[[], Awaitable[object]], clock: Clock) -> None:
        self.service = service
        self.problem = NO_PROBLEM
        self._follow = follow
        self._clock = clock

    @property
    def address(self) -> str:
        """The address at which the service listens; empty while it does not listen."""
        return self.service.address

    @property
    def token_address(self) -> str:
        """With TLS, the address that requests no certificate; empty without one."""
        return self.service.token_address

    async def run(self) -> None:
        """Listen until cancelled. If the address cannot be taken, a retry follows. Other flows are served meanwhile."""
        following = asyncio.ensure_future(self._follow())
        try:
            await self.service.attached.wanted.wait()
            await self._listen()
        finally:
            await cancel_all(following)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._listening():
                    self.problem = NO_PROBLEM
                    _log.info("subscribers may dial %s", self.service.address)
                    await asyncio.Event().wait()
            except WormholeError as error:
                if self.problem != error.problem:
                    self.problem = error.problem
                    _log.error("subscribers cannot dial this publisher, a retry follows: %s", error)
                await self._clock.sleep(_AGAIN_S)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Raises :class:`~wormhole.model.errors.ConfigError`."""
        service, trust = self.service, self.service.trust
        listen, token_listen = service.settings.attach_listen, service.settings.token_listen
        check_listen(listen, trust, service.insecure, setting=_SETTING)
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_STREAMS)
        methods = {METHOD: service.attach, OFFER_METHOD: service.offer, OBSERVE_METHOD: service.observe}
        handlers: Any = {
            method.rpartition("/")[2]: grpc.stream_stream_rpc_method_handler(serve) for method, serve in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        address, token_address = _at(listen, await add_port(server, listen, trust, setting=_SETTING)), ""
        if token_listen is not None and trust is not None:
            port = await add_port(server, token_listen, trust, setting=_SECOND_SETTING, demand=False)
            token_address = _at(token_listen, port)
        await server.start()
        try:
            service.address, service.token_address = address, token_address
            yield
        finally:
            service.address = service.token_address = ""
            await server.stop(_STOP_S)


async def _revoked(trust: Trust, certificate: Certificate) -> WormholeError:
    return UsageError(await trust.until_revoked(certificate), code="certificate-refused")


def attach_point(settings: PublisherConfig, log: str, name: str, *, tls: bool) -> AttachPoint:
    """The announcement of where subscribers dial a publisher with these settings. A port that the system chooses is not
    announced, because it is not known before the publisher listens.
    """
    named, outside = split_advertised(settings.attach_advertise)

    def shown(listen: str | None, outside: str = "") -> str:
        host, _, port = (listen or "").rpartition(":")
        host, port = named or host, outside or port
        return "" if port in {"", "0"} or host in _EVERYWHERE else f"{host}:{port}"

    first = shown(settings.attach_listen, outside)
    return AttachPoint(log, name, first, shown(settings.token_listen) if tls else first)


def _at(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"


def _user_of(peer: str, address: str) -> int | None:
    """The user id of the process that connected to ``address`` from ``peer`` (``ipv4:HOST:PORT``,
    ``ipv6:[HOST]:PORT``); ``None`` if the process is on another host. Blocks.
    """
    host, _, port = peer.partition(":")[2].rpartition(":")
    here, _, own = address.rpartition(":")
    try:
        for found in socket.getaddrinfo(here.strip("[]"), int(own), type=socket.SOCK_STREAM):
            user = connection_uid((host.strip("[]"), int(port)), (str(found[4][0]), int(own)))
            if user is not None:
                return user
    except (OSError, ValueError):
        pass
    return None
