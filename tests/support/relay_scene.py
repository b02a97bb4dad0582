"""A log in memory with a relay around it, whose disk is in memory too. What reads the datastore is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datastores.memory.source import MemorySource
from publisher.relay.reader import RelayedReader
from publisher.relay.settings import RelaySettings
from publisher.relay.source import RelayedSource
from tests.support.eventually import until
from tests.support.relay_disk import FakeDisk
from tests.support.relayed_harness import CACHE, IDENTITY
from wormhole.host.clock import Clock
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader
from wormhole.ports.testing.reading import Read, read_until

__all__ = ["Datastore", "RelayScene"]

FOLDER = Path("/relay")


class Datastore:
    """The log ``memory``. ``opened``: how many readers it had; ``readers``: those of now. ``change``: what becomes of
    each segment that is read.
    """

    def __init__(self, memory: MemorySource) -> None:
        self.memory = memory
        self.opened = 0
        self.readers: set[CountedReader] = set()
        self.change: Callable[[Segment], Segment] = lambda segment: segment
        self.released: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def open(self, marker: Datamarker) -> LogReader:
        """See the port."""
        reader = CountedReader(self, self.memory.open(marker))
        self.opened += 1
        self.readers.add(reader)
        return reader


class CountedReader:
    """A reader of a :class:`Datastore`."""

    def __init__(self, store: Datastore, reader: LogReader) -> None:
        self._store = store
        self._reader = reader

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        """See the port."""
        segment = self._reader.read(max_bytes, wait_s)
        return segment and self._store.change(segment)

    def close(self) -> None:
        """See the port."""
        self._store.readers.discard(self)
        self._reader.close()


class RelayScene:
    """``clock``: the relay's own."""

    def __init__(
        self, settings: RelaySettings = CACHE, *, memory: MemorySource | None = None, disk: FakeDisk | None = None,
        queue_bytes: int = 0, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.memory = memory or MemorySource("log")
        self.store = Datastore(self.memory)
        self.disk = disk or FakeDisk()
        self.settings = settings
        self.clock = clock or Clock()
        self.queue_bytes = queue_bytes
        self.start = self.memory.latest()
        self.written = 0
        self._open()

    def _open(self) -> None:
        self.source = RelayedSource(
            self.store, FOLDER, IDENTITY, self.settings, disk=self.disk, clock=self.clock,
            **({"queue_bytes": self.queue_bytes} if self.queue_bytes else {}),
        )  # fmt: skip
        self.source.start()

    @property
    def relay(self) -> Any:
        """What the relay holds."""
        status = self.source.status().relay
        assert status is not None
        return status

    def restart(self, disk: FakeDisk | None = None) -> None:
        """End the publisher, and start another one, on ``disk``."""
        self.source.stop()
        self.disk = disk or self.disk
        self._open()

    def put(self, count: int = 1, size: int = 10) -> Datamarker:
        """Commit transactions of one update each."""
        for _ in range(count):
            self.memory.commit([(Op.UPSERT, "a", b"%06d" % self.written, {"value": b"x" * size})])
            self.written += 1
        return self.memory.latest()

    def put_large(self, updates: int, size: int) -> Datamarker:
        """Commit one transaction of many updates."""
        rows = [(Op.UPSERT, "a", b"large %06d" % n, {"value": b"x" * size}) for n in range(updates)]
        return self.memory.commit(rows)

    def open(self, marker: Datamarker | None = None) -> RelayedReader:
        """A reader of the relayed log."""
        reader = self.source.open(marker or self.start)
        assert isinstance(reader, RelayedReader)
        return reader

    def read(self, reader: LogReader, marker: Datamarker | None = None, max_bytes: int = 1 << 20) -> Read:
        """Read up to the marker, or to the end."""
        return read_until(reader, (marker or self.memory.latest()).order, max_bytes=max_bytes)

    def recorded(self, reader: LogReader, count: int = 1, size: int = 10) -> Datamarker:
        """Write, let ``reader`` read it, and wait until it is in the relay."""
        end = self.put(count, size)
        self.read(reader, end)
        self.flush()
        return end

    def flush(self) -> None:
        """Wait until everything that was handed over is written."""
        self.source.recorder.flush()

    def catches_up(self) -> bool:
        """Whether the relay has everything."""
        self.flush()
        return bool(self.relay.tip == self.memory.latest())

    def wait_for(self, true: Callable[[], object], what: str) -> None:
        """Wait for what another thread does."""
        until(true, what)

    def gate(self, operation: str = "write") -> threading.Event:
        """The disk hangs in this operation until the event is set."""
        opens = threading.Event()

        def hang(one: str, path: Path) -> OSError | None:
            if one == operation:
                opens.wait()
            return None

        self.disk.fails = hang
        return opens

    def close(self) -> None:
        """Stop the source."""
        self.disk.work()
        self.source.stop()
