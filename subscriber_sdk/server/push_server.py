"""The gRPC service that publishers dial. It carries bytes and decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.stream import PublisherStream, Streams
from wormhole.host.listening import add_port
from wormhole.host.tls import check_listen, open_trust
from wormhole.model.requirements import need
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["SERVICE", "PushServer"]

need("grpcio", grpc.__version__)

log = logging.getLogger("subscriber_sdk")

SERVICE: Final = "wormhole.wire.v1.Subscriber"
_ANOTHER: Final = "give the publisher another certificate; the files are read again without a restart"
_HANDSHAKE_MS: Final = 10_000
_IDLE_MS: Final = 60_000
_MOST_STREAMS: Final = 2048  # the most streams, including the streams of strangers, which are refused


class PushServer:
    """Listens, and opens a stream of ``streams`` for every publisher that dials."""

    def __init__(self, streams: Streams, options: Options) -> None:
        check_listen(options.listen, options.tls, options.insecure)
        self._streams = streams
        self._options = options
        self._server: grpc.aio.Server | None = None
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

    async def start(self) -> None:
        """Listen. Raises :class:`~wormhole.model.errors.ConfigError` when the address cannot be taken or a TLS file is
        wrong.
        """
        options = self._options
        server = grpc.aio.server(
            options=[
                # Otherwise a second server could bind the same port without an error, and would get half of the calls.
                ("grpc.so_reuseport", 0),
                # Twice the announced limit, so that a slightly larger message gets an answer that names the limit.
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
        handler: Any = grpc.stream_stream_rpc_method_handler(self._push)  # raw bytes, which the session parses
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Push": handler}),))
        self.trust = await asyncio.to_thread(open_trust, options.tls)
        self.port = await add_port(server, options.listen, self.trust)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Close every stream and the port; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)

    async def _push(self, requests: AsyncIterator[bytes], context: Any) -> None:
        names = _names_of(context) if self._options.tls is not None else frozenset()
        with self._streams.opened(context.peer(), names, self._revoked(context)) as stream:
            watching: asyncio.Task[None] | None = None
            if self.trust is not None and not stream.connection.closed:
                watching = self._watch(stream, self.trust, context)
            try:
                await stream.run(requests, context.write)
            finally:
                if watching is not None:
                    watching.cancel()

    def _revoked(self, context: Any) -> tuple[push_pb2.Goodbye.Reason, str, str] | None:
        why = "" if self.trust is None else self.trust.refuses_client(context.auth_context())
        return (push_pb2.Goodbye.NOT_ALLOWED, why, _ANOTHER) if why else None

    def _watch(self, stream: PublisherStream, trust: Trust, context: Any) -> asyncio.Task[None]:
        """End the stream when a newly loaded revocation list contains the publisher's certificate."""

        async def watch() -> None:
            why = await trust.until_revoked(trust.client(context.auth_context()))
            log.warning("%s; its stream from %s ends", why, context.peer())
            stream.connection.dismiss(why, _ANOTHER)

        return asyncio.create_task(watch(), name="wormhole revocation")


def _names_of(context: Any) -> frozenset[str]:
    """The common name and the alternative names in the peer's certificate."""
    identity = context.auth_context()
    kinds = ("x509_common_name", "x509_subject_alternative_name")
    return frozenset(name.decode(errors="replace") for kind in kinds for name in identity.get(kind, ()))
