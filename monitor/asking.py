"""Asks publishers over HTTP, the one thing that a monitor needs a network library for: gRPC would be a fifth of its memory."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import aiohttp

from wormhole.config import TlsFiles
from wormhole.http_server import client_context, url

__all__ = ["Asker", "NoAnswerError"]

_MOST_BYTES: Final = 64 << 20


class NoAnswerError(Exception):
    """Why there is none, as the end of a sentence that begins with who was asked."""


class Asker:
    """``tls``: as the publishers are configured; they are shown this host's certificate. A connection to each is kept."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Read the certificates; idempotent. Raises :class:`~wormhole.errors.ConfigError`."""
        if self._session is not None:
            return
        context = None if self._tls is None else await asyncio.to_thread(client_context, self._tls)
        if self._session is None:  # nobody else did meanwhile
            connector = aiohttp.TCPConnector(ssl=True if context is None else context, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )

    async def close(self) -> None:
        """Give up connections; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(self, address: str, path: str, timeout_s: float) -> bytearray:
        """What is at ``path`` of who listens at ``address``. :meth:`start` first. Raises :class:`NoAnswerError`."""
        assert self._session is not None
        body = bytearray()
        try:
            async with asyncio.timeout(timeout_s), self._session.get(url(address, self._tls, path)) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise NoAnswerError(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
        except TimeoutError:
            raise NoAnswerError(f"it does not answer within {timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            raise NoAnswerError(f"it does not answer: {os.strerror(number) if number else error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswerError(f"it does not answer: {error or type(error).__name__}") from error
        return body
