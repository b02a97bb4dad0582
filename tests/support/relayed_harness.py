"""The harness of a source with a relay around it, for :mod:`wormhole.ports.testing.contract`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.source import RelayedSource
from wormhole.model.position import Datamarker
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.contract import Change, Harness

__all__ = ["CACHE", "HOLD", "IDENTITY", "LITTLE", "RelayedHarness", "StartedSource"]

IDENTITY: Final = RelayIdentity("log", "memory", "log", 64 << 20, "")
CACHE: Final = RelaySettings("cache", 1 << 30)
HOLD: Final = RelaySettings("hold", 1 << 30)
LITTLE: Final = 16 << 10
"""A budget that a relay is always over."""


class StartedSource:
    """A source that somebody else starts and stops."""

    def __init__(self, source: LogSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class RelayedHarness(Harness):
    """Where the datastore loses its log, the relay does too."""

    source: RelayedSource

    def __init__(self, inner: Harness, folder: Path, settings: RelaySettings) -> None:
        self.inner = inner
        self.bounded_by_bytes, self.put = inner.bounded_by_bytes, inner.put
        self.folder, self.settings = folder / "relay", settings
        self._open()

    def _open(self) -> None:
        self.source = RelayedSource(StartedSource(self.inner.source), self.folder, IDENTITY, self.settings)
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.inner.commit(changes)

    def rotate(self) -> None:
        self.inner.rotate()

    def restart(self) -> None:
        self.source.stop()
        self.inner.restart()
        self._open()

    def purge(self) -> None:
        self.purge_inner()
        self.source.trim(0)

    def purge_inner(self) -> None:
        """Only the datastore loses its log."""
        self.source.stop()
        self.inner.purge()
        self._open()

    def save(self) -> None:
        self.inner.save()

    def lose_tail(self, to: Datamarker) -> None:
        self.source.stop()
        self.inner.lose_tail(to)
        self._open()

    def close(self) -> None:
        self.source.stop()
        self.inner.close()

    def table(self, name: str) -> str:
        return self.inner.table(name)

    def shard(self, table: str) -> str:
        return self.inner.shard(table)

    def after(self, key: bytes, value: bytes) -> tuple[bytes, ...]:
        return self.inner.after(key, value)

    def after_delivered(self, marker: Datamarker) -> str:
        return self.inner.after_delivered(marker)

    def first_missing(self, marker: Datamarker) -> str:
        return self.inner.first_missing(marker)
