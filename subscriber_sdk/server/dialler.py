"""Dials publishers (``wormhole.wire.v1.Publisher/Attach``), for a subscriber that they cannot reach.

Each address has at most one connection, which is dialled again when it is lost. A stream is the same whichever side
dials: the publisher begins with ``Hello``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from subscriber_sdk.options.admission import without_process
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.found_publishers import FoundPublishers
from subscriber_sdk.server.stream import PublisherStream, Streams
from wormhole.host.tls import is_loopback, open_trust, target_options
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ConfigError, StreamBroken, WormholeError
from wormhole.model.problem import Problem
from wormhole.model.requirements import need
from wormhole.push.attaching import METHOD, OFFER_METHOD, Attaching
from wormhole.push.redial import Redial
from wormhole.push.refusal import refusal_of, why_unreachable

if TYPE_CHECKING:
    from wormhole.config import TlsAuthority, TlsFiles
    from wormhole.host.certificates import Certificate
    from wormhole.host.trust import Trust

__all__ = ["PublisherDialler", "check_addresses", "publisher_channel", "refusal"]

need("grpcio", grpc.__version__)

log = logging.getLogger("subscriber_sdk")

_INSTANCE_BYTES: Final = 16
_LOOK_S: Final = 5.0  # between two searches for new publishers
_KEPT_S: Final = 30.0  # how long only the publisher that was connected last is accepted at an address


class PublisherDialler:
    """Dials the publishers of ``options.dial`` and those that ``found`` returns, and opens a stream to each."""

    address: Final = ""
    """Empty, because this subscriber does not listen."""

    def __init__(self, streams: Streams, options: Options, found: FoundPublishers | None = None) -> None:
        check_addresses(options.dial, options.tls, options.token, insecure=options.insecure)
        self.trust: Trust | None = None
        self._streams = streams
        self._options = options
        self._attaching = Attaching(
            options.application, options.instance, secrets.token_hex(_INSTANCE_BYTES), options.weight, options.token
        )
        self._found = found
        self._wanted: Collection[str] = options.dial
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._met: dict[str, tuple[str, float]] = {}  # by address: the publisher that is expected, and until when

    async def start(self) -> None:
        """Begin to dial. Raises :class:`~wormhole.model.errors.ConfigError` when a TLS file is wrong."""
        self.trust = await asyncio.to_thread(open_trust, self._options.tls)
        if self._found is None:
            self._dial(self._options.dial)
        else:
            self._tasks[""] = asyncio.create_task(self._follow(self._found), name="wormhole publishers")

    async def stop(self) -> None:
        """Hang up; idempotent."""
        tasks, self._tasks = tuple(self._tasks.values()), {}
        await cancel_all(*tasks)

    async def _follow(self, found: FoundPublishers) -> None:
        while True:
            self._dial((await found.addresses()) or self._wanted)
            await asyncio.sleep(_LOOK_S)

    def _dial(self, addresses: Collection[str]) -> None:
        """Dial these addresses. A connection to any other address is kept, because its publisher may serve without
        contact to the coordinator, but is not dialled again when it is lost.
        """
        self._wanted = addresses
        for address in addresses:
            if address not in self._tasks or self._tasks[address].done():
                self._tasks[address] = asyncio.create_task(self._keep(address), name=f"wormhole dial {address}")

    async def _keep(self, address: str) -> None:
        """Keep a connection to the address: dial again whenever it is lost."""
        redial, problem, loop = Redial(), Problem(""), asyncio.get_running_loop()
        while address in self._wanted:
            began = loop.time()
            try:
                welcomed = await self._connect(address)
                found = Problem("")
            except WormholeError as error:
                welcomed, found = False, error.problem
                if found != problem:
                    log.warning("publisher at %s: %s; it is dialled again", address, error)
            problem = found
            lasted = loop.time() - began if welcomed else 0.0
            wait = redial.wait_s(lasted_s=lasted, acked=False, refused=False, left=False)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    async def _connect(self, address: str) -> bool:
        """Dial once, and serve the stream until it ends. Returns whether the publisher was accepted. Raises
        :class:`~wormhole.model.errors.StreamBroken` if the publisher refuses this subscriber, or cannot be reached.
        """
        channel, certificate = await publisher_channel(address, self.trust, self._options.max_frame)
        async with channel:
            expected = self._expected(address)
            with self._streams.opened(address, _names(certificate), expected=expected) as stream:
                if stream.connection.closed:  # the publisher's certificate is refused, so nothing is sent to it
                    return False
                call: Any = channel.stream_stream(METHOD)(metadata=self._attaching.to_metadata())
                replays = asyncio.create_task(self._take_replays(channel, address, certificate))
                try:
                    await self._run(stream, call, call, certificate)
                finally:
                    replays.cancel()
                    call.cancel()
                    await asyncio.gather(replays, return_exceptions=True)
                session = stream.connection.session
                welcomed = session.welcomed
                if welcomed:
                    met = "" if session.peer.left else without_process(session.peer.name)
                    self._met[address] = met, asyncio.get_running_loop().time()
                if not welcomed and await call.code() is not grpc.StatusCode.OK:
                    raise await refusal(call, address)
                return welcomed

    def _expected(self, address: str) -> str:
        """The publisher that was connected at the address a moment ago, and did not stop; empty: there was none. Behind
        a load balancer another publisher may answer, and the flows of the first publisher would not be served.
        """
        met, until = self._met.get(address, ("", 0.0))
        return met if asyncio.get_running_loop().time() - until < _KEPT_S else ""

    async def _run(self, stream: PublisherStream, call: Any, requests: Any, certificate: Certificate | None) -> None:
        watching = asyncio.create_task(self._dismiss(stream, certificate), name="wormhole revocation")
        try:
            await stream.run(requests, call.write, call.done_writing)
        finally:
            watching.cancel()

    async def _take_replays(self, channel: grpc.aio.Channel, address: str, certificate: Certificate | None) -> None:
        """Keep one more stream open to the publisher, which forwards the stream of a mass replay's task on it."""
        metadata = self._attaching.to_metadata()
        redial, running = Redial(), set[asyncio.Task[None]]()
        try:
            while True:
                wait = redial.wait_s(lasted_s=0.0, acked=False, refused=False, left=False)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # a call is refused until this process is attached
                call: Any = channel.stream_stream(OFFER_METHOD)(metadata=metadata)
                messages = aiter(call)
                try:
                    first = await anext(messages)
                except (StopAsyncIteration, grpc.RpcError):
                    continue
                redial = Redial()
                task = asyncio.create_task(
                    self._take_replay(address, call, _with(first, messages), certificate), name="wormhole replay"
                )
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            await cancel_all(*running)

    async def _take_replay(
        self, address: str, call: Any, messages: AsyncIterator[bytes], certificate: Certificate | None
    ) -> None:
        try:
            with self._streams.opened(address, _names(certificate)) as stream:
                await self._run(stream, call, messages, certificate)
        finally:
            call.cancel()

    async def _dismiss(self, stream: PublisherStream, certificate: Certificate | None) -> None:
        if self.trust is not None:
            why = await self.trust.until_revoked(certificate)
            stream.connection.dismiss(why, "give the publisher another certificate")


def check_addresses(dial: Iterable[str], tls: TlsFiles | TlsAuthority | None, token: str, *, insecure: bool) -> None:
    """Check that updates and the token may be sent to each address. Raises
    :class:`~wormhole.model.errors.ConfigError` for an address that needs TLS."""
    far = [address for address in dial if not is_loopback(address)]
    if tls is None and token and far:
        raise ConfigError(
            f'dial = "{far[0]}": without TLS the token could be read on the way',
            hint="configure tls and publishers, or dial a publisher of this machine",
            code="token-refused",
        )
    if tls is None and not insecure and far:
        raise ConfigError(
            f'dial = "{far[0]}": without TLS every update could be read and forged on the way',
            hint="configure tls and publishers, dial a publisher of this machine, or set insecure = true",
        )


async def publisher_channel(
    address: str, trust: Trust | None, max_frame: int
) -> tuple[grpc.aio.Channel, Certificate | None]:
    """Open a channel that accepts only the certificate that the publisher shows now. Returns the channel and this
    certificate, whose names the caller checks before it sends anything.
    """
    arguments: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", 2 * max_frame),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),  # each connection is a new one
    ]
    if trust is None:
        return grpc.aio.insecure_channel(address, arguments), None
    from wormhole.host.peer_check import examine  # imported here, because its library takes 13 MB of memory

    await asyncio.to_thread(trust.current)
    certificate = await examine(address, trust)
    credentials = trust.channel_credentials(certificate)
    arguments += target_options(certificate.names[0])
    return grpc.aio.secure_channel(address, credentials, arguments), certificate


def _names(certificate: Certificate | None) -> frozenset[str]:
    return frozenset() if certificate is None else frozenset((*certificate.common_names, *certificate.names))


async def _with(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for message in others:
        yield message


async def refusal(call: Any, address: str) -> StreamBroken:
    """The error that explains why the publisher ended the call, or could not be reached."""
    code, details = await call.code(), await call.details() or ""
    metadata = await call.trailing_metadata()
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata or grpc.aio.Metadata(), details)
    _, problem = refusal_of(error)
    if problem.code:
        return StreamBroken(problem.text, hint=problem.hint, code=problem.code)
    return StreamBroken(
        f"{address} cannot be reached ({why_unreachable(details) or code.name.lower()})",
        hint="check that the publisher runs, serves this application, and listens there (`attach_listen`)",
    )
