"""Examines the store of a sink. An error during the examination becomes a finding of the report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sinks.port import Sink
from sinks.settings import ConfiguredSink
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, Report, Severity

__all__ = ["StoreWatch", "report_of"]

_log = logging.getLogger("sinks")

_AGAIN_S: Final = 30.0
_FIRST_S: Final = 10.0  # how long the start waits for the first examination


def report_of(sink: ConfiguredSink, error: Exception) -> Report:
    """The report of an examination that failed."""
    report = Report(sink.settings.shown)
    if isinstance(error, WormholeError):
        report.add("target", Severity.PROBLEM, error.message, next_step=error.hint or "", code=error.code)
        return report
    _log.error("sink %s", sink.name, exc_info=error)
    what, step = f"the examination failed: {type(error).__name__}", "report it with the traceback in the log"
    report.add("target", Severity.PROBLEM, what, next_step=step)
    return report


class StoreWatch:
    """Examines the store at the start, and again until no problem is found. ``used``: returns a number that rises with
    each write that the store confirms. A store that confirms a write has no problem.
    """

    def __init__(self, sink: ConfiguredSink, used: Callable[[], int]) -> None:
        self._sink = sink
        self._used = used
        self.problems: list[Finding] = []
        """The problems that the last examination found."""

    async def begin(self) -> None:
        """Examine the store for the first time. Returns after ten seconds, even if the store has not answered."""
        try:
            await asyncio.wait_for(self._look(), _FIRST_S)
        except TimeoutError:
            self._found([Finding("target", Severity.PROBLEM, "the store does not answer", code="target-unavailable")])

    async def run(self) -> None:
        """Examine the store again until no problem is found."""
        while self.problems:
            await asyncio.sleep(_AGAIN_S)
            if self._used():
                self._found([])
            else:
                await self._look()

    async def _look(self) -> None:
        try:
            opened = await asyncio.to_thread(self._sink.open)
            report = await _examined(opened)
        except Exception as error:  # noqa: BLE001 - whatever a kind of another package raises
            report = report_of(self._sink, error)
        self._found([finding for finding in report.findings if finding.severity is Severity.PROBLEM])

    def _found(self, problems: list[Finding]) -> None:
        if problems == self.problems:
            return
        self.problems = problems
        for finding in problems:
            code, what, step = finding.known_code, finding.what, finding.next_step or "`wormholectl sink check`"
            _log.error("sink %s: %s: %s. Next: %s", self._sink.name, code, what, step)
        if not problems:
            _log.info("sink %s: its store can be used", self._sink.name)


async def _examined(opened: Sink) -> Report:
    try:
        return await opened.examine()
    finally:
        await opened.close()
