"""A sink of Kafka that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from sinks.envelopes import envelope_named
from sinks.kafka.clients import client_config
from sinks.kafka.examine import compare, examine
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.subscriber import KafkaSubscriber
from sinks.kafka.writer import KafkaWriter
from sinks.port import Sink
from subscriber_sdk import Subscriber
from wormhole.model.findings import Finding, Report
from wormhole.model.table_definition import TableDefinition

__all__ = ["KafkaSink"]


class KafkaSink(Sink):
    """See the port."""

    def __init__(self, name: str, settings: KafkaSettings) -> None:
        self._settings = settings
        self._configure = partial(client_config, name, settings)
        self._writer = KafkaWriter(self._configure, settings)
        envelope = envelope_named(settings.envelope, settings.source_database)
        self._subscriber = KafkaSubscriber(envelope, self._writer)
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        await asyncio.to_thread(self._examine, report)
        return report

    async def compare(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        return await asyncio.to_thread(lambda: compare(self._settings, self._configure(), tables))

    def _examine(self, report: Report) -> None:
        examine(self._settings, self._configure(), report)

    async def close(self) -> None:
        await self._writer.close()
