"""One connection to the servers, and the stream behind it.

The client does not reconnect by itself, because it would then send its unsent messages after a gap, out of order. The
next call replaces a lost connection by a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js.api import PubAck, StreamInfo
from nats.js.errors import APIError, NoStreamResponseError

from sinks.nats.failures import TOO_LARGE, target_error
from sinks.nats.nkeys import UserKey, read_user_key
from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import covers, pattern_of
from wormhole.model.errors import TargetRefused

__all__ = ["Connected", "Message", "Servers", "TooLarge"]

_TIMEOUT_S: Final = 10.0
_CONNECT_S: Final = 3
_CONNECT_ALL_S: Final = 10.0  # for tries of all servers, in random order; the SDK ends a callback after 30 s
_CLOSE_S: Final = 1.0
_BATCH_HEADERS: Final = 128
"""The most bytes of the headers that a batch adds to each message."""
_HEADERS: Final = 64
_T = TypeVar("_T")


class TooLarge(Exception):  # noqa: N818 - a state of the stream
    """The stream takes no message of this size."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. ``id``: the id by which the stream recognises a repetition."""

    subject: str
    id: str
    payload: bytes

    @property
    def size(self) -> int:
        """An upper bound of the message's bytes, as the server counts them."""
        return len(self.id) + len(self.payload) + _HEADERS + _BATCH_HEADERS

    def again(self, number: int) -> Message:
        """The same content with another id, so that the stream does not recognise it as a repetition."""
        return replace(self, id=f"{self.id}/again{number}")


class _Client(Client):
    def use_key(self, key: UserKey) -> None:
        self._public_nkey = key.public

    def _connect_command(self) -> bytes:
        # The client would encrypt only at the server's request, which a man in the middle could remove.
        if self.options.get("tls") is not None and not self._server_info.get("tls_required"):
            raise nats.errors.SecureConnWantedError
        return super()._connect_command()


class Servers:
    """Keeps at most one connection to the servers of one sink."""

    def __init__(self, stream: str, settings: NatsSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._connected: Connected | None = None
        self._opening: asyncio.Task[Connected] | None = None

    async def connected(self) -> Connected:
        """The connection, or a new one if it was lost. Raises the errors of the port.

        Concurrent calls wait for the same single attempt, because the time of a callback is limited.
        """
        if self._connected is not None and not self._connected.lost.done():
            return self._connected
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End the connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._close()

    def _opened(self, opening: asyncio.Task[Connected]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # every waiting call raises this exception

    async def _open(self) -> Connected:
        await self._close()
        self._connected = await Connected.open(self._stream, self._settings)
        return self._connected

    async def _close(self) -> None:
        connected, self._connected = self._connected, None
        if connected is not None:
            await connected.close()


class Connected:
    """A connection, until it is lost. Its methods raise the errors of the port.

    ``info``: the description of the stream when the connection began. ``largest``: the bytes of the largest message
    that the server takes.
    """

    def __init__(self, stream: str, settings: NatsSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._client = _Client()
        self._jetstream = self._client.jetstream(timeout=2 * _TIMEOUT_S)  # longer than the timeout of _ask
        self._denied: list[str] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.info: StreamInfo
        self.largest = 0

    @classmethod
    async def open(cls, stream: str, settings: NatsSettings) -> Connected:
        """Connect to one of the servers, and read the description of the stream."""
        connected = cls(stream, settings)
        given = await connected._login()  # a client that did not try to connect cannot be closed
        try:
            await connected._open(given)
        except BaseException:
            await connected.close()
            raise
        return connected

    async def _login(self) -> Mapping[str, Any]:
        """The client's parameters for the login, by name."""
        settings = self._settings
        given: dict[str, Any] = {}
        if (secret := await asyncio.to_thread(settings.read_password)) is not None:
            given = {"token": secret} if settings.user is None else {"user": settings.user, "password": secret}
        if settings.credentials_file is not None:
            key = await asyncio.to_thread(read_user_key, settings.credentials_file)
            given["signature_cb"] = key.signature
            if (jwt := key.jwt) is None:
                self._client.use_key(key)
            else:
                given["user_jwt_cb"] = lambda: bytearray(jwt)
        if settings.encrypted:
            given["tls"] = await asyncio.to_thread(settings.tls)
        return given

    async def _open(self, given: Mapping[str, Any]) -> None:
        settings = self._settings
        last: list[Exception] = []

        async def failed(error: Exception) -> None:
            last[:] = [error]
            if "permissions violation" in (said := str(error).lower()):
                self._denied.append(said)

        async def closed() -> None:
            self._lose()

        try:
            async with asyncio.timeout(_CONNECT_ALL_S):
                await self._client.connect(
                    settings.servers,
                    name="wormhole-sink",
                    error_cb=failed,
                    closed_cb=closed,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # each server is tried twice
                    reconnect_time_wait=0,
                    connect_timeout=_CONNECT_S,
                    **given,
                )
            if not self._client.is_connected:
                raise nats.errors.ConnectionClosedError
        except (nats.errors.Error, OSError, ValueError, TypeError) as error:
            known = last[0] if isinstance(error, nats.errors.NoServersError) and last else error
            raise target_error(self._stream, settings, known) from error
        self.largest = self._client.max_payload
        self.info = await self.look()
        if self.info.config.no_ack:
            raise TargetRefused(
                f"stream {self._stream} of {settings.url} acknowledges nothing",
                hint="switch no_ack off: the sink could not know what is stored",
            )

    async def look(self) -> StreamInfo:
        """The present description of the stream."""
        about = f"$JS.API.STREAM.INFO.{self._stream}"
        try:
            return await self._ask(about, self._jetstream.stream_info(self._stream))
        except (APIError, nats.errors.NoRespondersError, NoStreamResponseError) as error:
            raise target_error(self._stream, self._settings, error) from error

    async def publish(self, message: Message) -> PubAck:
        """Publish one message, and return when it is stored. Also raises :class:`TooLarge`."""
        try:
            return await self._ask(message.subject, self._publish(message, self._headers(message)))
        except NoStreamResponseError as error:
            await self._explain(message.subject)
            raise target_error(self._stream, self._settings, error) from error
        except APIError as error:
            if error.err_code == TOO_LARGE:
                raise TooLarge from error
            raise target_error(self._stream, self._settings, error) from error

    async def publish_together(self, messages: Sequence[Message]) -> int | None:
        """Publish all messages or none of them. Returns the last message's sequence number in the stream; ``None`` if
        the stream refuses the messages, for example because it has one of them. The numbers are consecutive.
        """
        try:
            return (await self._ask(messages[-1].subject, self._publish_together(messages))).seq
        except (NoStreamResponseError, APIError):
            return None

    async def close(self) -> None:
        """End the connection. Waiting calls fail."""
        self._lose()
        # After a failed handshake the client's close would wait for ever, and it may write to a lost connection.
        with contextlib.suppress(OSError, nats.errors.Error):
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def _headers(self, message: Message) -> dict[str, str]:
        return {"Nats-Msg-Id": message.id, "Nats-Expected-Stream": self._stream}

    async def _publish(self, message: Message, headers: dict[str, str]) -> PubAck:
        return await self._jetstream.publish(message.subject, message.payload, headers=headers)

    async def _publish_together(self, messages: Sequence[Message]) -> PubAck:
        batch = secrets.token_hex(8)
        for number, message in enumerate(messages, 1):
            headers = {**self._headers(message), "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == len(messages):
                break
            await self._client.publish(message.subject, message.payload, headers=headers)
        return await self._publish(message, {**headers, "Nats-Batch-Commit": "1"})

    async def _ask(self, subject: str, call: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``call``, which fails when the connection is lost. The client itself would let it wait."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, self.lost), timeout=_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise nats.errors.ConnectionClosedError if self.lost.done() else nats.errors.TimeoutError
            return task.result()
        except (APIError, nats.errors.NoRespondersError, NoStreamResponseError):
            raise
        except (nats.errors.Error, OSError, ValueError, KeyError, TypeError) as error:
            self._lose()  # the next connection may be to a server that answers
            denied = [said for said in self._denied if f'"{subject.lower()}"' in said or "subscription" in said]
            raise target_error(self._stream, self._settings, error, denied) from error
        finally:
            task.cancel()

    async def _explain(self, subject: str) -> None:
        """Explain why nothing answers on ``subject``: raise the error for a stream that is missing or lacks it."""
        subjects = (await self.look()).config.subjects or []
        if not any(covers(pattern, subject) for pattern in subjects):
            wanted = pattern_of(self._settings.subject, self._stream)
            raise TargetRefused(
                f"stream {self._stream} of {self._settings.url} does not have the subjects {wanted}",
                hint=f"add {wanted} to its subjects, or correct subject of the sink",
            )
