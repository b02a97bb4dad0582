"""The publisher's gRPC service for operators (``wormhole.wire.v1.Admin``), for reports and changes.

Every client that reaches the address may read the publisher's state. Other requests need a credential
(:mod:`publisher.operate.admin_access`). A refused request gets one line of text and does not affect the flows.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from publisher.flows.applications import Served
from publisher.flows.refused_error import RefusedError, one_line, status_of
from publisher.flows.this_process import ThisProcess
from publisher.operate.admin_access import OperatorAccess, host_token
from publisher.operate.operated import Operated
from wormhole.host.clock import Clock
from wormhole.host.compiled import compiled_modules
from wormhole.host.http_server import MOST_CONNECTIONS
from wormhole.host.listening import add_port
from wormhole.host.local_admin import socket_target
from wormhole.model.errors import ConfigError, WormholeError
from wormhole.model.problem import Problem
from wormhole.push.refusal import refusal_metadata
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["serve_admin"]

_log = logging.getLogger(__name__)

_LARGEST_REQUEST: Final = 512 << 10  # bytes: a piece of a parked update and its whole schema fit
_AT_ONCE: Final = 64  # requests; more are refused at once instead of waiting
_STRANGERS: Final = 48  # requests without a credential; the remaining places stay free for operators
_FORWARDED: Final = 64  # streams of tasks of a mass replay, beside the requests
_REQUEST_S: Final = 10.0  # to receive the whole request: an unsent request must not occupy a place
_STOP_S: Final = 0.5  # for requests that are under way when the service stops

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R", bound=Message)
_Method = Callable[[bytes, Any], Awaitable[bytes]]


class _Places:
    """Limits simultaneous requests. Requests of clients without a credential are answered one after the other and use
    at most half of the time, because the flows use the same event loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strangers = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Run the block when it is the turn of a client without a credential."""
        async with self._turn:
            began = self._clock.monotonic()
            try:
                yield
            finally:
                await self._clock.sleep(self._clock.monotonic() - began)

    async def request(self, requests: AsyncIterator[bytes], context: Any, *, known: bool) -> bytes:
        """Receive the client's request within the time limit. ``known``: whether the client has a credential."""
        if not known and self._strangers >= _STRANGERS:
            busy = Problem(f"{_STRANGERS} requests are being read", "try again soon", code="change-refused")
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, busy)
        self._strangers += not known
        try:
            async with asyncio.timeout(_REQUEST_S):
                return await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            text = f"no whole request came within {_REQUEST_S:g} s"
            late = Problem(text, "use wormholectl", code="change-refused")
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, late)
        finally:
            self._strangers -= not known


class _Service:
    """The methods of the service. A change that has begun is finished even if the client disconnects."""

    def __init__(self, operated: Operated, access: OperatorAccess, clock: Clock) -> None:
        self._operated = operated
        self._access = access
        self._under_way: set[asyncio.Task[Any]] = set()
        self._places = _Places(clock)

    def opened(self, method: _Method) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
        """Wrap the method with the limits on requests, because a client may open a call and send nothing."""

        async def answer(requests: AsyncIterator[bytes], context: Any) -> bytes:
            return await method(await self._places.request(requests, context, known=self._known(context)), context)

        return answer

    async def describe(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.PublisherStatus:
            wanted = _parsed(admin_pb2.DescribeRequest, request)
            async with self._places.turn():
                return self._operated.reports.status(wanted.flow, wanted.after)

        return await _answered(answer, context)

    async def change(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.ChangeReply:
            certificate = self._permit(context)
            wanted = _parsed(admin_pb2.ChangeRequest, request)
            return await self._finished(self._operated.control.change(wanted, certificate))

        return await _answered(answer, context)

    async def replay(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.ReplayReply:
            async with self._places.turn():  # the client has at most a ticket, which is known only after reading
                wanted = _parsed(admin_pb2.ReplayRequest, request)
            return await self._finished(self._operated.replays.replay(wanted, lambda: self._permit(context)))

        return await _answered(answer, context)

    async def push(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Forward the stream of a replay's task, which has a ticket, to the subscriber."""

        async def passed() -> admin_pb2.ReplayReply:
            await self._operated.forwarding.push(requests, context)
            return admin_pb2.ReplayReply()

        await _answered(passed, context)

    async def dead_letters(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.DeadLettersReply:
            self._permit(context)
            return await self._operated.letters.parked(_parsed(admin_pb2.DeadLettersRequest, request))

        return await _answered(answer, context)

    async def _finished(self, work: Coroutine[Any, Any, R]) -> R:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def audit(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.AuditReply:
            self._permit(context)
            wanted = _parsed(admin_pb2.AuditRequest, request)
            return self._operated.counter.report(wanted, tuple(self._operated.flows.values()))

        return await _answered(answer, context)

    async def trim_relay(self, request: bytes, context: Any) -> bytes:
        async def answer() -> admin_pb2.TrimRelayReply:
            certificate = self._permit(context)
            wanted = _parsed(admin_pb2.TrimRelayRequest, request)
            return await self._finished(self._operated.relay.trim(wanted, certificate))

        return await _answered(answer, context)

    def _known(self, context: Any) -> bool:
        try:
            self._permit(context)
        except RefusedError:
            return False
        return True

    def _permit(self, context: Any) -> str:
        given = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        return self._access.check([str(value) for value in given], _names(context.auth_context()))


def _names(auth: Mapping[str, Any]) -> list[str] | None:
    """The names of the client's certificate; ``None`` without TLS."""
    if auth.get("transport_security_type") != [b"ssl"]:
        return None
    found = [*auth.get("x509_common_name", ()), *auth.get("x509_subject_alternative_name", ())]
    return [name.decode(errors="replace") for name in found]


def _parsed(kind: type[R], data: bytes) -> R:
    try:
        return kind.FromString(data)
    except ProtobufDecodeError:
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT, f"the request is no {kind.DESCRIPTOR.name}", hint="use wormholectl"
        ) from None


async def _answered(answer: Callable[[], Awaitable[Message]], context: Any) -> bytes:
    """The serialized answer. If the request fails, the call is aborted with one line that has the reason."""
    try:
        return (await answer()).SerializeToString()
    except WormholeError as error:
        status, text, hint, code = status_of(error), one_line(error), error.hint, error.code
    except Exception as error:  # noqa: BLE001 - the client gets a line, the log has the rest
        _log.exception("a request of an operator failed inside the publisher")
        status, hint, code = grpc.StatusCode.INTERNAL, None, "internal-error"
        text = f"internal error: {type(error).__name__}; the publisher's log has more [{code}]"
    await context.abort(status, text, trailing_metadata=refusal_metadata(hint, code))
    raise AssertionError("abort raises")


async def _abort(context: Any, status: grpc.StatusCode, problem: Problem) -> NoReturn:
    metadata = refusal_metadata(problem.hint, problem.code)
    await context.abort(status, str(problem), trailing_metadata=metadata)
    raise AssertionError("abort raises")


def _accepted(method: Callable[[A, Any], Awaitable[B]], trust: Trust | None) -> Callable[[A, Any], Awaitable[B]]:
    """Wrap the method so that the client's certificate must be within its dates and not revoked. The TLS handshake does
    not check a revocation list.
    """
    if trust is None:
        return method

    async def answer(request: A, context: Any) -> B:
        authenticated = context.auth_context()
        # A TLS client needs an accepted certificate. The mode of the state folder protects the socket in it.
        if authenticated.get("transport_security_type") == [b"ssl"] and (why := trust.refuses_client(authenticated)):
            refused = Problem(why, "dial with another certificate", code="certificate-refused")
            await _abort(context, grpc.StatusCode.PERMISSION_DENIED, refused)
        return await method(request, context)

    return answer


@asynccontextmanager
async def serve_admin(
    served: Served, process: ThisProcess, operated: Operated, clock: Clock, address: str, trust: Trust | None
) -> AsyncIterator[str]:
    """Serve at ``address`` and at the socket in the log's state folder. Yields the address with its port.

    Raises :class:`~wormhole.model.errors.ConfigError` if the address cannot be taken, or if a token or a socket cannot
    be made or be protected from other users.
    """
    settings = served.settings
    token = await asyncio.to_thread(host_token, settings.state_dir)
    service = _Service(operated, OperatorAccess(token, settings.admins), clock)
    await asyncio.to_thread(compiled_modules)  # reads the disk the first time
    options = [
        ("grpc.so_reuseport", 0),  # sharing would let a second publisher bind the same port without an error
        ("grpc.max_receive_message_length", _LARGEST_REQUEST),
        # Connections of strangers must leave file descriptors for the files and streams of the flows.
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", 60_000),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_AT_ONCE + _FORWARDED)
    methods = {
        "Describe": service.describe,
        "Change": service.change,
        "DeadLetters": service.dead_letters,
        "Audit": service.audit,
        "Replay": service.replay,
        "TrimRelay": service.trim_relay,
    }
    handlers: Any = {
        name: grpc.stream_unary_rpc_method_handler(service.opened(_accepted(method, trust)))
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", handlers),))
    forwarded: Any = {"Push": grpc.stream_stream_rpc_method_handler(_accepted(service.push, trust))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Subscriber", forwarded),))
    port = await add_port(server, address, trust, setting="publisher.admin_listen")
    folder = await asyncio.to_thread(
        _own_folder, settings.state_dir.absolute() / served.dataset.name / served.copy / served.log
    )
    try:
        server.add_insecure_port(socket_target(folder))
        await server.start()
        process.admin_address = f"{address.rpartition(':')[0]}:{port}"
        yield process.admin_address
    finally:
        await server.stop(_STOP_S)
        os.close(folder)


def _own_folder(path: Path) -> int:
    """Open the folder of the socket, and make sure that no other user can put a socket there.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o022:  # the folder was made under another umask
            path.chmod(found.st_mode & 0o7755)
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"{path}, where operators of this host find the publisher, cannot be opened: {error.strerror}",
            hint="publisher.state_dir must be a folder that this process may write to",
            code="file-unwritable",
        ) from error
