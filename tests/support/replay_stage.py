"""What plays in a mass replay: a publisher, an archiver and applications, each a process; and what they tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.eventually import until
from tests.system.harness.processes import Process
from tests.system.harness.programs import Command
from wormhole.admin import admin_service
from wormhole.model.errors import UsageError
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where


class Stage(ABC):
    """``config``: of a dataset ``shop`` with its archive in ``archive``, a folder or a URL."""

    def __init__(self, folder: Path, archive: str = "") -> None:
        self.folder = folder
        self.archive = archive or str(folder / "archive")
        self.config = folder / "wormhole.toml"
        self.where = Where(coordinator=str(self.config))

    @abstractmethod
    def processes(self) -> list[Process]:
        """All of them, those first that depend on others."""

    def problems(self) -> list[str]:
        """What the applications were told wrongly."""
        return []

    def wormholectl(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        """The command as a process of its own, not started."""
        return Command(name, self.folder, *arguments, environment=environment)

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes():
            process.kill()

    def wait(self, what: str, holds: Callable[[], Any]) -> Any:
        """Until ``holds`` gives something true; what went wrong, and what the processes said, when it does not."""

        def said() -> str:
            dead = [one.name for one in self.processes() if one.ended]
            tails = [one.tail() for one in self.processes() if one.runs]
            return "\n".join([f"{what}: not so; ended by themselves: {dead}", *self.problems(), *tails])

        def so() -> Any:
            found = holds()
            assert found or not (self.problems() or any(one.ended for one in self.processes())), said()
            return found

        return until(so, said)

    def flows(self, application: str) -> list[admin_pb2.FlowStatus]:
        """As the publisher tells; empty while it does not answer."""
        told = [flow for status in self.statuses() for flow in status.flows]
        return [flow for flow in told if flow.flow.startswith(f"{application}/")]

    def statuses(self) -> list[admin_pb2.PublisherStatus]:
        """What the publisher tells of itself; empty while it does not answer."""
        try:
            return [one.status for one in admin_service.ask_each(self.where) if one.status is not None]
        except Exception:
            return []

    def store(self) -> ArchiveStore | None:
        """The archive, once there is one."""
        try:
            return open_store(self.archive, "shop")
        except UsageError:
            return None
