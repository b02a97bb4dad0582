"""HTTP client for publishers. gRPC would take a fifth of the monitor's memory."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import TYPE_CHECKING, Final

import aiohttp

from wormhole.host.http_server import url
from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["NoAnswerError", "PublisherClient"]

_MOST_BYTES: Final = 64 << 20


class NoAnswerError(Exception):
    """A request without an answer. The message is the end of a sentence whose subject is the publisher."""


class PublisherClient:
    """See the module. ``trust``: the certificates that are accepted and presented.

    A connection to each publisher stays open until the certificate files change.
    """

    def __init__(self, trust: Trust | None = None) -> None:
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Prepare for :meth:`get`, on the event loop; idempotent."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )

    async def close(self) -> None:
        """Close the connections; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, address: str, path: str, timeout_s: float) -> bytearray:
        """The content at ``path`` of the server at ``address``, after :meth:`start`. Raises :class:`NoAnswerError`."""
        assert self._session is not None
        body = bytearray()
        trust, session = self._trust, self._session
        try:
            # After the files were replaced, a new context makes aiohttp open a new connection.
            context = True if trust is None else await asyncio.to_thread(trust.context, ssl.PROTOCOL_TLS_CLIENT)
            async with asyncio.timeout(timeout_s), session.get(url(address, trust, path), ssl=context) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise NoAnswerError(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
        except ConfigError as error:
            raise NoAnswerError(error.message) from error
        except TimeoutError:
            raise NoAnswerError(f"it does not answer within {timeout_s:g} s") from None
        except aiohttp.ClientSSLError as error:
            raise NoAnswerError(f"it does not answer: {error.strerror or error}") from error
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            raise NoAnswerError(f"it does not answer: {os.strerror(number) if number else error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswerError(f"it does not answer: {error or type(error).__name__}") from error
        return body
