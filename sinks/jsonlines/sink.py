"""The open sink of JSON lines: writes to a folder, or to standard output."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

from sinks.envelopes.settings import record_subscriber
from sinks.jsonlines.failures import target_error
from sinks.jsonlines.files import FilesWriter
from sinks.jsonlines.output import OutputWriter
from sinks.jsonlines.settings import JsonLinesSettings
from sinks.jsonlines.shard_file import FINISHED, OPEN
from sinks.port import Sink
from subscriber_sdk import Subscriber
from wormhole.model.findings import Report, Severity
from wormhole.model.units import rounded_size

__all__ = ["JsonLinesSink"]


class JsonLinesSink(Sink):
    """See the port."""

    def __init__(self, settings: JsonLinesSettings) -> None:
        self._settings = settings
        folder = settings.folder
        self._writer = (
            OutputWriter(sys.stdout.fileno())
            if folder is None
            else FilesWriter(folder, settings.rotate_size, settings.rotate_every)
        )
        self._subscriber = record_subscriber(settings, self._writer)
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        if self._settings.folder is None:
            report.add("target_folder", Severity.OK, "documents go to standard output, one a line")
        else:
            await asyncio.to_thread(_examine, self._settings.folder, report)
        return report

    async def close(self) -> None:
        if isinstance(self._writer, FilesWriter):
            await self._writer.close()


def _examine(folder: Path, report: Report) -> None:
    try:
        names = os.listdir(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise target_error(str(folder), error) from error
    report.facts |= {"folder": str(folder), "free": rounded_size(free)}
    finished = sum(name.endswith(FINISHED) for name in names)
    left = sum(name.endswith(OPEN) for name in names)
    if os.access(folder, os.W_OK | os.X_OK):
        report.add(
            "target_folder", Severity.OK, f"{folder} can be written and has {finished} finished and {left} open files"
        )
    else:
        report.add(
            "target_folder",
            Severity.PROBLEM,
            f"{folder} cannot be written by this account",
            because="every flow of the sink would halt",
            next_step=f"give the account write access to {folder}",
            code="target-refused",
        )
