"""Collects the reports of sinks' stores, and the status of the flows that fill them, for the commands."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sinks.commands.source_tables import source_tables
from sinks.examination import report_of
from sinks.port import Sink
from sinks.settings import ConfiguredSink
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.config import Config
from wormhole.host.where import Where
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Report, Severity
from wormhole.wire.v1 import admin_pb2
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.errors import exit_code

__all__ = ["ExaminedSink", "SinkFlow", "asked", "examined", "flows_of"]

SinkFlow = tuple[admin_pb2.PublisherStatus, admin_pb2.FlowStatus]
"""A flow, and the status of its publisher."""


@dataclass(frozen=True, slots=True)
class ExaminedSink:
    """A sink, the report on its store, and the exit code that ``sink check`` derives from the report."""

    sink: ConfiguredSink
    report: Report
    code: int = 0


def examined(sinks: Sequence[ConfiguredSink], config: Config | None = None) -> list[ExaminedSink]:
    """Connect to the stores of all sinks concurrently. A store that cannot be examined is a finding. Changes nothing.
    ``config``: if given, the stores are also compared with the tables of its sources.
    """

    async def together() -> list[ExaminedSink]:
        return list(await asyncio.gather(*(_examined(sink, config) for sink in sinks)))

    return asyncio.run(together())


async def _examined(sink: ConfiguredSink, config: Config | None) -> ExaminedSink:
    try:
        opened = await asyncio.to_thread(sink.open)
        try:
            report = await opened.examine()
            if config is not None and type(opened).compare is not Sink.compare:
                for source in await asyncio.to_thread(source_tables, config, sink.application):
                    report.findings += await opened.compare(source.log, source.tables)
                    report.findings += source.problems
        finally:
            await opened.close()
    except Exception as error:  # noqa: BLE001 - whatever a kind of another package raises
        code = exit_code(error) if isinstance(error, WormholeError) else BROKEN
        return ExaminedSink(sink, report_of(sink, error), code)
    return ExaminedSink(sink, report, BROKEN if report.severity is Severity.PROBLEM else 0)


def asked(config: Path) -> tuple[list[Answer], str]:
    """The answers of the publishers that ``config`` names, and why they cannot be asked; empty if they can."""
    try:
        answers = admin_service.ask(Where(coordinator=str(config)))
    except WormholeError as error:
        return [], error.message
    return answers, "; ".join(answer.problem for answer in answers if answer.silent)


def flows_of(sink: ConfiguredSink, answers: Sequence[Answer]) -> list[SinkFlow]:
    """The flows of the sink's application."""
    return [
        (answer.status, flow)
        for answer in answers
        if answer.status is not None
        for flow in answer.status.flows
        if flow.flow.partition("/")[0] == sink.application
    ]
