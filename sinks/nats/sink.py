"""A sink that is open."""

from __future__ import annotations

from sinks.envelopes.settings import record_subscriber
from sinks.nats.connection import Servers
from sinks.nats.examination import examine_stream
from sinks.nats.settings import NatsSettings
from sinks.nats.writer import NatsWriter
from sinks.port import Sink
from subscriber_sdk import Subscriber
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Report, Severity

__all__ = ["NatsSink"]


class NatsSink(Sink):
    """See the port."""

    def __init__(self, stream: str, settings: NatsSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._servers = Servers(stream, settings)
        self._subscriber = record_subscriber(settings, NatsWriter(stream, settings, self._servers))
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        report.facts["stream"] = self._stream
        try:
            info = (await self._servers.connected()).info
        except TargetRefused as refused:
            report.add(
                "target_stream", Severity.PROBLEM, refused.message, next_step=refused.hint or "", code=refused.code
            )
            return report
        examine_stream(report, info, self._settings)
        return report

    async def close(self) -> None:
        await self._servers.close()
