"""Sends one request, and decides what its answer means."""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
from yarl import URL

from sinks.webhook.message import Message
from sinks.webhook.secrets import read_secrets, signatures
from sinks.webhook.settings import WebhookSettings
from wormhole.host.tls import client_context, untrusted
from wormhole.model.errors import TargetRefused, TargetUnavailable, UsageError

__all__ = ["Receiver"]

_REFUSED: Final = {400, 413, 422}
"""The content is refused."""
_AWAY: Final = {408, 409, 425, 429}
"""The statuses below 500 after which the same request may be accepted later, as after every status from 500 on."""
_LOGIN: Final = {401, 403}
_HINTS: Final[Mapping[int, str]] = {
    401: "give both sides the same secret (secret_file; two lines while it is replaced), then resume the flow",
    403: "have the receiver accept requests of this sink, then resume the flow",
    404: "correct the path of url, then resume the flow",
    410: "the receiver wants no more requests: remove the sink, or give it another url",
}
_REDIRECT: Final = "redirects are not followed: write the final address into url"
_USUAL_HINT: Final = "the receiver's log shows why; resume the flow when it accepts requests"
_MOST_BYTES: Final = 64 << 10  # the most bytes that are read of an answer; a connection with a longer one is closed
_LONGEST_PAUSE: Final = 300.0
_WAIT_S: Final = 1.0  # the most seconds of a pause that one call waits
_IDLE_S: Final = 2.0  # seconds until an idle connection is closed; servers keep them longer
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "wormhole"}


class Receiver:
    """The receiver at the URL. Nothing is connected before the first request.

    Redirects are not followed, so that a receiver cannot redirect rows to another server. Only the status and
    ``Retry-After`` of an answer are used. The body of an answer is never shown, because it may repeat rows.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self.name = settings.shown
        try:
            self._url = URL(settings.url)
        except ValueError:
            raise UsageError(f"the path or query of {self.name} is not valid in a URL") from None
        self._secret_file = settings.secret_file
        self._ca_file = settings.ca_file
        self._timeout = settings.timeout
        self._session: aiohttp.ClientSession | None = None
        self._trust: ssl.SSLContext | None = None
        self._not_before = 0.0

    async def post(self, message: Message) -> int:
        """Send a request. Returns 0 if it was accepted, or the status by which its content was refused.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` and :class:`~wormhole.model.errors.TargetRefused`.
        """
        now = asyncio.get_running_loop().time
        if (pause := self._not_before - now()) > 0:
            await asyncio.sleep(min(pause, _WAIT_S))
            if pause > _WAIT_S:
                raise TargetUnavailable(f"{self.name} asked for a pause, of which {pause - _WAIT_S:.0f} s are left")
        status, retry_after = await self._answer(message)
        if 200 <= status < 300:
            return 0
        if status in _REFUSED:
            return status
        if status in _AWAY or status >= 500:
            self._not_before = max(self._not_before, now() + _pause(retry_after))
            raise TargetUnavailable(f"{self.name} answers {status}")
        hint = _REDIRECT if 300 <= status < 400 else _HINTS.get(status, _USUAL_HINT)
        code = "login-refused" if status in _LOGIN else None
        raise TargetRefused(f"{self.name} answers {status}", hint=hint, code=code)

    async def trust(self) -> ssl.SSLContext:
        """The authorities that sign the receiver's certificate.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` if their file cannot be used.
        """
        if self._trust is None:
            self._trust = await asyncio.to_thread(client_context, self._ca_file)
        return self._trust

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _answer(self, message: Message) -> tuple[int, str]:
        """Send a request. Returns the status, and the header ``Retry-After``, empty without one."""
        try:
            secrets = await asyncio.to_thread(read_secrets, self._secret_file)
        except ValueError as error:
            raise TargetUnavailable(str(error)) from None
        seconds = int(time.time())
        headers = {
            **_HEADERS,
            "webhook-id": message.id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": signatures(secrets, message, seconds),
        }
        context = await self.trust() if self._url.scheme == "https" else True
        status, retry_after = 0, ""
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._opened().post(
                    self._url, data=io.BytesIO(message.body), headers=headers, ssl=context, allow_redirects=False
                ) as answer,
            ):
                status, retry_after = answer.status, answer.headers.get("Retry-After", "")
                await _drain(answer)
        except TimeoutError:
            if not status:
                raise TargetUnavailable(f"{self.name} does not answer within {self._timeout:g} s") from None
        except aiohttp.ClientSSLError as error:
            self._trust = None  # the authorities are read again, because their file may have been replaced
            raise untrusted(self.name, _tls_fault(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise TargetUnavailable(f"{self.name} cannot be reached: {error.strerror or error.os_error}") from None
        except aiohttp.ClientResponseError:
            raise TargetUnavailable(f"what {self.name} sends is not HTTP") from None
        except (aiohttp.ClientError, OSError):
            raise TargetUnavailable(f"{self.name} closed the connection without an answer") from None
        return status, retry_after

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                skip_auto_headers=("Accept-Encoding",),
            )
        return self._session


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Read the body, so that the connection can be used again. Errors are ignored."""
    left = _MOST_BYTES
    with suppress(aiohttp.ClientError):
        async for chunk in answer.content.iter_any():
            left -= len(chunk)
            if left < 0:
                answer.close()
                return


def _tls_fault(error: aiohttp.ClientSSLError) -> str:
    fault = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error.os_error
    return getattr(fault, "verify_message", "") or "the TLS handshake fails"


def _pause(text: str) -> float:
    """The seconds of a header ``Retry-After``, at most :data:`_LONGEST_PAUSE`; 0 for an invalid header."""
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE)
