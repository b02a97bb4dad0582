"""The open webhook sink: its subscriber, and the examination of its receiver."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sinks.envelopes.settings import record_subscriber
from sinks.port import Sink
from sinks.webhook.message import Message, Origin, message
from sinks.webhook.receiver import Receiver
from sinks.webhook.settings import WebhookSettings
from sinks.webhook.writer import WebhookWriter
from subscriber_sdk import Subscriber
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Report, Severity

__all__ = ["WebhookSink"]

_SOON_DAYS: Final = 14


class WebhookSink(Sink):
    """See the port."""

    def __init__(self, application: str, settings: WebhookSettings) -> None:
        self._application = application
        self._settings = settings
        self._receiver = Receiver(settings)
        self._subscriber = record_subscriber(settings, WebhookWriter(application, settings, self._receiver))
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        """Send a signed request without records. HEAD and OPTIONS would not test the secret and the path, because a
        receiver of POST answers them with 405, and verifies no signature.
        """
        report = Report(self._settings.shown)
        await asyncio.to_thread(_examine_file, self._settings.secret_file, report)
        if urlsplit(self._settings.url).scheme == "https":
            await self._examine_certificate(report)
        empty = message(Origin(self._application, "", 0, 0), ())
        try:
            status = await self._receiver.post(Message(f"check/{secrets.token_hex(16)}", empty.body))
        except TargetRefused as refused:
            report.add(
                "target_answer",
                Severity.PROBLEM,
                refused.message,
                because="every flow of the sink would halt",
                next_step=refused.hint or "",
                code=refused.code,
            )
            return report
        if status:
            report.add(
                "target_answer",
                Severity.WARN,
                f"{self._receiver.name} answers {status} to a signed request without records",
                because="with the same answer to an update the update is parked, or its flow halts",
                next_step='have the receiver answer 2xx where "data" is empty, and 401 where a signature is wrong',
                code="record-refused",
            )
        else:
            report.add("target_answer", Severity.OK, f"{self._receiver.name} accepts a signed request")
        return report

    async def close(self) -> None:
        await self._receiver.close()

    async def _examine_certificate(self, report: Report) -> None:
        """Report when the receiver's certificate ends. The request after this reports a certificate that is not
        trusted.
        """
        ends = await _certificate_end(self._settings.url, await self._receiver.trust(), self._settings.timeout)
        if ends is None:
            return
        days = (ends - datetime.now(UTC)).days
        report.facts["certificate_ends"] = f"{ends:%Y-%m-%d}"
        if days >= _SOON_DAYS:
            report.add("target_certificate", Severity.OK, f"the receiver's certificate is valid for {days} days")
        else:
            report.add(
                "target_certificate",
                Severity.WARN,
                f"the receiver's certificate ends in {days} days",
                because="the flows of the sink wait once it has ended",
                next_step="renew it at the receiver",
                code="target-unavailable",
            )


def _examine_file(path: Path, report: Report) -> None:
    if path.stat().st_mode & stat.S_IROTH:
        report.add(
            "target_secret",
            Severity.WARN,
            f"every user of this host can read {path}",
            because="each of them can sign requests that the receiver accepts",
            next_step=f"chmod 600 {path}",
        )


async def _certificate_end(url: str, context: ssl.SSLContext, timeout: float) -> datetime | None:
    """When the certificate of the server ends; ``None`` if there is no connection to it."""
    parts = urlsplit(url)
    with suppress(OSError):  # a TimeoutError is one
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=context)
            try:
                shown = writer.get_extra_info("peercert")
                return datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC)
            finally:
                writer.transport.abort()
    return None
