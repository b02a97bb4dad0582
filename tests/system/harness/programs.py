"""The programs that tests start as processes: ``wormholectl``, who writes, and who receives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.system.harness.logs import Entry, Lines, parse
from tests.system.harness.processes import Process

__all__ = ["WORMHOLECTL", "Command", "SubscriberProcess", "WriterProcess"]

WORMHOLECTL: Final = (
    "from tests.system.harness.child import die_with_parent as d; d(); from wormholectl import main; main()"
)
"""What ``python -c`` runs for a command that ends with its test."""


class Command(Process):
    """``wormholectl`` with these words; it ends with its test. ``before``: Python that runs first."""

    def __init__(
        self, name: str, folder: Path, *words: str, environment: Mapping[str, str] | None = None, before: str = "",
        whole: bool = False,
    ) -> None:  # fmt: skip
        program = ["-c", before + WORMHOLECTL, *words]
        super().__init__(name, program, folder, environment=environment, whole=whole or bool(before))


class WriterProcess(Process):
    """:mod:`.writer`, which owns the store or the connection to it. ``settings``: of that program."""

    def __init__(self, name: str, folder: Path, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, ["-m", "tests.system.harness.writer", ""], folder, talks=True)
        self.settings = settings or {}

    def ready(self) -> int:
        """Start it (again); returns the store's last sequence number."""
        self.arguments[2] = json.dumps(self.settings)
        self.start()
        return int(self._answer()["ready"])

    def tell(self, command: str) -> Any:
        """Give it a command; returns its answer."""
        self.say(command)
        return self._answer()[command.split()[0]]

    def _answer(self) -> dict[str, Any]:
        line = self.hear()
        assert line, self.tail()
        found: dict[str, Any] = json.loads(line)
        return found


class SubscriberProcess(Process):
    """:mod:`.subscriber`; each run logs to a file of its own. ``settings``: of that program."""

    def __init__(
        self, name: str, application: str, folder: Path, settings: dict[str, Any], *, whole: bool = False
    ) -> None:
        super().__init__(name, ["-m", "tests.system.harness.subscriber", ""], folder, whole=whole)
        self.application = application
        self.settings = {"application": application, **settings}
        self._lines: list[Lines] = []

    def start(self) -> None:
        log = self.folder / f"{self.name}.{self.runs + 1}.log"
        self.arguments[2] = json.dumps({**self.settings, "log": str(log)})
        self._lines.append(Lines(log))
        super().start()

    def fresh(self) -> Iterator[tuple[str, str]]:
        """What was logged since the last call: the run, and a line."""
        return ((lines.path.stem, line) for lines in self._lines for line in lines.new())

    def entries(self) -> list[Entry]:
        """Everything that was logged, in all runs."""
        return [parse(line) for lines in self._lines for line in Lines(lines.path).new()]
