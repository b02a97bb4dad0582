"""The connections to one server, which all shards of a sink share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from sinks.redis.failures import target_error
from sinks.redis.settings import RedisSettings
from wormhole.host.tls import client_context

__all__ = ["Command", "Sent", "Store", "pack"]

Command = Sequence[str | bytes | int]

_ANSWER_S: Final = 20.0  # within the usual handler_timeout
_CONNECT_S: Final = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Commands that were sent, whose answers have not arrived. ``names``: the names of the commands."""

    connection: Any
    names: Sequence[str]


def pack(command: Command) -> bytes:
    """A command in the protocol of the server."""
    words = [word if type(word) is bytes else str(word).encode() for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


class _Login(CredentialProvider):
    """The account for the login. Its password file is read at each login, because the file may change."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._settings.read_password() or ""
        return (password,) if self._settings.user is None else (self._settings.user, password)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return await asyncio.to_thread(self.get_credentials)


class Store:
    """Connects at the first command. ``where``: the name of the server for messages.

    Methods raise :class:`~wormhole.model.errors.TargetUnavailable` and
    :class:`~wormhole.model.errors.TargetRefused`.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self.where = f"{settings.host}:{settings.port}"
        self._settings = settings
        tls: dict[str, Any] = {}
        if settings.tls:
            names = {
                "ssl_ca_certs": settings.tls_ca,
                "ssl_certfile": settings.tls_cert,
                "ssl_keyfile": settings.tls_key,
            }
            tls = {"ssl": True, **{name: str(path) for name, path in names.items() if path is not None}}
        self._client = Redis(
            host=settings.host,
            port=settings.port,
            db=settings.database,
            credential_provider=None if settings.password_file is None else _Login(settings),
            protocol=2,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_CONNECT_S,
            # The client does not repeat commands: a repetition could overwrite a later write of another process.
            retry=Retry(NoBackoff(), 0),
            **tls,
        )

    async def run(self, *commands: Command) -> list[Any]:
        """Send the commands together, and return their answers. Commands after a failed one may have been executed."""
        names = [str(command[0]) for command in commands]
        return await self.receive(await self.send([pack(command) for command in commands], names))

    async def send(self, packed: Sequence[bytes], names: Sequence[str]) -> Sent:
        """Send packed commands. The caller has to pass the result to :meth:`receive` or :meth:`drop`."""
        async with self._usable():
            connection = await self._client.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            sent = Sent(connection, names)
            try:
                await connection.send_packed_command(packed, check_health=False)
            except BaseException:
                await self.drop(sent)
                raise
            return sent

    async def receive(self, sent: Sent) -> list[Any]:
        """The answers."""
        async with self._usable():
            try:
                answers = [await self._client.parse_response(sent.connection, name) for name in sent.names]
            except BaseException:
                await self.drop(sent)
                raise
            await self._client.connection_pool.release(sent.connection)
            return answers

    async def drop(self, sent: Sent) -> None:
        """Give up waiting for the answers. The commands may have been executed."""
        await sent.connection.disconnect(nowait=True)
        await self._client.connection_pool.release(sent.connection)

    @contextlib.asynccontextmanager
    async def _usable(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            # The address may lead to another server now, and the login of a connection may be incomplete.
            await self._client.connection_pool.disconnect(inuse_connections=False)
            if isinstance(error, RedisError | OSError):
                await self._check_files()
                raise target_error(self.where, error) from error
            raise

    async def _check_files(self) -> None:
        """Raise an error that names a wrong TLS file, because the client's error would not name the file."""
        settings = self._settings
        if settings.tls:
            await asyncio.to_thread(client_context, settings.tls_ca, settings.tls_cert, settings.tls_key)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
