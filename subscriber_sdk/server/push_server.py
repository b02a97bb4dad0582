"""The gRPC service that publishers dial. It carries bytes and decides nothing."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from subscriber_sdk.options.admission import Admission
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.connection import PublisherConnection
from subscriber_sdk.server.epoch_records import AskEpochs
from subscriber_sdk.server.publishers import Publishers
from subscriber_sdk.stream.flow_port import PushingPeer
from subscriber_sdk.stream.session import Session
from subscriber_sdk.work.shards import Shards
from wormhole.host.listening import add_port
from wormhole.host.tls import check_listen, open_trust
from wormhole.model.errors import ProtocolError
from wormhole.model.problem import Problem
from wormhole.model.requirements import need
from wormhole.wire.problems import code_of_goodbye
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.config import ApplicationConfig
    from wormhole.host.trust import Trust

__all__ = ["SERVICE", "PushServer"]

need("grpcio", grpc.__version__)

log = logging.getLogger("subscriber_sdk")

SERVICE: Final = "wormhole.wire.v1.Subscriber"
_ANOTHER: Final = "give the publisher another certificate; the files are read again without a restart"
_HANDSHAKE_MS: Final = 10_000
_IDLE_MS: Final = 60_000
_MOST_STREAMS: Final = 2048  # this includes the streams of strangers, which get a refusal
_PROGRESS_S: Final = 0.05  # least time between two messages that only report progress
_CLOSE_S: Final = 5.0  # how long a publisher that does not read may delay the end of a stream that we close


class PushServer:
    """Listens, and joins every stream to ``shards``."""

    def __init__(self, shards: Shards, options: Options) -> None:
        check_listen(options.listen, options.tls, options.insecure)
        self.admission = Admission(options.application, options.instance, options.publishers)
        """Which publishers may push, for streams that begin from now on."""
        self.epochs: AskEpochs | None = None
        """Where assignments of streams that begin from now on are looked up; ``None``: nowhere."""
        self.publishers = Publishers(options, lambda: bool(shards.workers()))
        """Logs which publishers are connected."""
        self._shards = shards
        self._options = options
        self._streams: set[_Stream] = set()
        self._server: grpc.aio.Server | None = None
        self._late = 0  # frames, of streams that ended
        self.trust: Trust | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """The address that publishers should dial."""
        host = self._options.listen.rpartition(":")[0]
        advertise = self._options.advertise
        if advertise:
            return advertise if ":" in advertise.rpartition("]")[2] else f"{advertise}:{self.port}"
        return f"{host}:{self.port}"

    @property
    def traffic(self) -> tuple[int, int]:
        """The number of open streams, and the number of frames that arrived too late so far."""
        streams = tuple(self._streams)
        return len(streams), self._late + sum(stream.connection.session.dropped for stream in streams)

    def bind(self, configured: ApplicationConfig | None) -> None:
        """Accept only publishers of the application's dataset from now on; ``None``: the dataset is not known."""
        if configured is not None:
            self.admission = replace(self.admission, dataset=configured.dataset)

    async def start(self) -> None:
        """Listen. Raises :class:`~wormhole.model.errors.ConfigError` when the address cannot be taken or a TLS file is
        wrong.
        """
        options = self._options
        server = grpc.aio.server(
            options=[
                # A second server would bind the same port without an error and get half of the connections.
                ("grpc.so_reuseport", 0),
                # Twice the announced limit: slightly larger messages get an answer that names it, gRPC refuses others.
                ("grpc.max_receive_message_length", 2 * options.max_frame),
                ("grpc.max_send_message_length", -1),
                # A publisher has one stream on each connection. A connection without a stream, or with an unfinished
                # handshake, is closed.
                ("grpc.max_concurrent_streams", 8),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
            ],
            maximum_concurrent_rpcs=_MOST_STREAMS,
        )
        handler: Any = grpc.stream_stream_rpc_method_handler(self._push)  # raw bytes: parsing is the session's
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Push": handler}),))
        self.trust = await asyncio.to_thread(open_trust, options.tls)
        self.port = await add_port(server, options.listen, self.trust)
        await server.start()
        self._server = server

    async def leave(self) -> None:
        """Say goodbye on every stream."""
        for stream in list(self._streams):
            stream.connection.leave()
        if self._streams:
            await asyncio.wait([stream.over for stream in self._streams], timeout=_CLOSE_S)

    async def stop(self) -> None:
        """Close every stream and the port; idempotent."""
        self.publishers.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)

    async def _push(self, requests: AsyncIterator[bytes], context: Any) -> None:
        names = _names_of(context) if self._options.tls is not None else frozenset()
        refusal = self._revoked(context) or self.admission.refuses_certificate(names)
        stream = _Stream(
            self._shards,
            self._options,
            self.admission,
            self.epochs,
            self.publishers,
            label=context.peer(),
            names=names,
        )
        self._streams.add(stream)
        watching: asyncio.Task[None] | None = None
        try:
            if refusal is not None:
                reason, message, hint = refusal
                self.publishers.refused(context.peer(), Problem(message, hint, code_of_goodbye(reason)))
                stream.connection.session.goodbye(*refusal)
            else:
                stream.connection.begin()
                watching = self._watch(stream, context)
            await stream.run(requests, context.write)
        finally:
            if watching is not None:
                watching.cancel()
            self._streams.discard(stream)
            self.publishers.disconnected(stream.connection.session.peer)
            self._late += stream.connection.session.dropped

    def _revoked(self, context: Any) -> tuple[push_pb2.Goodbye.Reason, str, str] | None:
        why = "" if self.trust is None else self.trust.refuses_client(context.auth_context())
        return (push_pb2.Goodbye.NOT_ALLOWED, why, _ANOTHER) if why else None

    def _watch(self, stream: _Stream, context: Any) -> asyncio.Task[None] | None:
        """Ends the stream when a newly loaded list revokes the publisher's certificate."""
        trust = self.trust
        if trust is None:
            return None

        async def watch() -> None:
            why = await trust.until_revoked(trust.client(context.auth_context()))
            log.warning("%s; its stream from %s ends", why, context.peer())
            stream.connection.dismiss(why, _ANOTHER)

        return asyncio.create_task(watch(), name="wormhole revocation")


class _Stream:
    """One stream: a reader that always reads, a writer that sends the output, a timer for silence."""

    def __init__(
        self,
        shards: Shards,
        options: Options,
        admission: Admission,
        epochs: AskEpochs | None,
        publishers: Publishers,
        *,
        label: str,
        names: frozenset[str],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._time: Callable[[], float] = loop.time
        self._call_at = loop.call_at
        self._due = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None  # sets `_due`
        self._said_at = -math.inf
        self.over: asyncio.Future[None] = loop.create_future()
        owner = ",".join(sorted(names)) or f"{label} {id(self)}"
        session = Session(
            admission,
            max_frame_bytes=options.max_frame,
            max_body_bytes=options.max_body,
            now=loop.time(),
            peer=PushingPeer(label, names=names),
            abilities=shards.abilities,
            # Without TLS publishers cannot be distinguished: each stream counts for itself.
            accounts=shards.accounts(owner, self._end),
        )
        self.connection = PublisherConnection(session, shards, self._due.set, epochs, publishers, self._speak_soon)

    def _speak_soon(self) -> None:
        """Send at once after a pause, otherwise later, so that one message answers several."""
        if self._soon is None and not self._due.is_set():
            self._soon = self._call_at(self._said_at + _PROGRESS_S, self._due.set)

    def _end(self, error: ProtocolError) -> None:
        """End the stream, because another one needs its memory."""
        self.connection.refuse(error)

    async def run(self, requests: AsyncIterator[bytes], write: Callable[[bytes], Any]) -> None:
        """Run until either side has ended the stream."""
        reader = asyncio.create_task(self._read(requests), name="wormhole stream reader")
        writer = asyncio.create_task(self._write(write), name="wormhole stream writer")
        cause = "the connection to the publisher broke"  # gRPC cancels the handler of a peer that is gone
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not writer.done():
                cause = reader.result()
                # Half closed: nothing more can arrive, so the publisher is gone. Waiting output is still sent.
                self.connection.lost(cause)
                self._due.set()
                await asyncio.wait({writer}, timeout=_CLOSE_S)
            elif writer.done() and not writer.cancelled() and writer.exception() is not None:
                cause = f"writing failed: {writer.exception()!r}"
            else:
                cause = "closed"
        finally:
            self.connection.lost(cause)
            for task in (reader, writer):
                task.cancel()
            try:
                await asyncio.gather(reader, writer, return_exceptions=True)
            finally:  # gRPC cancels the handler when the peer ends, even while the handler ends
                if not self.over.done():
                    self.over.set_result(None)

    async def _read(self, requests: AsyncIterator[bytes]) -> str:
        connection, time = self.connection, self._time
        try:
            async for data in requests:
                if connection.closed:
                    break
                connection.receive(data, time())
        except grpc.RpcError as error:
            return f"the connection broke: {error!r}"
        return "the publisher ended the stream"

    async def _write(self, write: Callable[[bytes], Any]) -> None:
        connection, due, time = self.connection, self._due, self._time
        while True:
            due.clear()
            if self._soon is not None:
                self._soon.cancel()
                self._soon = None
            data = connection.take_output(now := time())
            if data is not None:
                self._said_at = now
                # A publisher that neither reads nor closes must not keep the stream, and its flows, for ever.
                async with asyncio.timeout(connection.session.silence_limit()):
                    await write(data)
                continue
            if connection.closed:
                return
            try:
                async with asyncio.timeout_at(connection.session.deadline()):
                    await due.wait()
            except TimeoutError:
                connection.tick(time())


def _names_of(context: Any) -> frozenset[str]:
    """The common name and the alternative names in the peer's certificate."""
    identity = context.auth_context()
    kinds = ("x509_common_name", "x509_subject_alternative_name")
    return frozenset(name.decode(errors="replace") for kind in kinds for name in identity.get(kind, ()))
