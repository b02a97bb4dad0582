"""A log in memory with a relay around it, whose disk is in memory too. What reads the datastore is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.cursor import RelayCursor
from publisher.relay.disk import DISK, Disk
from publisher.relay.files import RelayFiles
from publisher.relay.reader import RelayedReader
from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.source import RelayedSource
from tests.support.clocks import ScriptedClock
from tests.support.eventually import until
from tests.support.present import present
from tests.support.relay_disk import FakeDisk
from tests.support.relayed_harness import CACHE, HOLD, IDENTITY
from wormhole.host.clock import Clock
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader
from wormhole.ports.testing.reading import Read, read_log, read_until

__all__ = ["Datastore", "FilesScene", "RelayScene", "both", "keys_of", "read_on", "scene_with"]

FOLDER = Path("/relay")


def keys_of(first: int, count: int) -> list[object]:
    """The keys of so many transactions of :meth:`RelayScene.put`."""
    return [b"%06d" % n for n in range(first, first + count)]


def scene_with(settings: RelaySettings = CACHE, **options: object) -> pytest.MarkDecorator:
    """The fixture ``scene`` is a :class:`RelayScene` of these."""
    return pytest.mark.parametrize("scene", [{"settings": settings, **options}], indirect=True, ids=[settings.mode])


def both(*, by_hand: bool = False, **changes: Any) -> pytest.MarkDecorator:
    """The fixture ``scene`` is a cache, and then a relay that holds the log. ``changes``: of their settings."""
    scenes = [{"settings": replace(settings, **changes), "by_hand": by_hand} for settings in (CACHE, HOLD)]
    return pytest.mark.parametrize("scene", scenes, indirect=True, ids=["cache", "hold"])


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
    """``by_hand``: the relay's own clock, ``time``, moves when a test says so. ``queue_bytes``: 0 for the usual."""

    def __init__(
        self, settings: RelaySettings = CACHE, *, memory: MemorySource | None = None, disk: FakeDisk | None = None,
        queue_bytes: int = 0, by_hand: bool = False,
    ) -> None:  # fmt: skip
        self.memory = memory or MemorySource("log")
        self.store = Datastore(self.memory)
        self.disk = disk or FakeDisk()
        self.settings = settings
        self.time = ScriptedClock()
        self.clock = self.time.clock if by_hand else Clock()
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

    def lead(self, count: int = 1) -> RelayedReader:
        """A reader at the end of the log, which has recorded so many transactions."""
        reader = self.open()
        self.recorded(reader, count, 10)
        return reader

    def synced(self) -> None:
        """Wait until everything that was handed over survives a loss of power."""
        self.time.now += 2
        self.flush()
        self.flush()
        self.wait_for(lambda: self.relay.unsynced_bytes == 0, "nothing is synced")

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


class FilesScene:
    """A log, and the relay files of it. ``size``: bytes of each row; ``hold``: files of another relay are refused."""

    def __init__(
        self, folder: Path, *, disk: Disk = DISK, file_bytes: int = 64 << 20, compress: bool = False,
        hold: bool = False, size: int = 20,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.hold = hold
        self._disk, self._file_bytes, self._compress, self._size = disk, file_bytes, compress, size
        self.log = MemorySource()
        self.start = self.log.latest()
        self.files = self.opened()

    def opened(self, identity: RelayIdentity = IDENTITY) -> RelayFiles:
        """The files that are there, and those that will be written."""
        disk, compress, file_bytes = self._disk, self._compress, self._file_bytes
        files = RelayFiles(self.folder, identity, hold=self.hold, disk=disk, compress=compress, file_bytes=file_bytes)
        files.open()
        return files

    def reopen(self, identity: RelayIdentity = IDENTITY) -> None:
        """Another process, after one that was killed or ended."""
        self.files.close()
        self.files = self.opened(identity)

    def commit(self, rows: int = 2, size: int = 0) -> Datamarker:
        """One transaction, which is not recorded yet."""
        number = self.log.latest().order.offset
        value = {"v": "x" * (size or self._size)}
        return self.log.commit([(Op.INSERT, "t", f"{number}.{i}", value) for i in range(rows)])

    def segments(self, marker: Datamarker, max_bytes: int = 1 << 20) -> Iterator[Segment]:
        """The log behind ``marker``."""
        with closing(self.log.open(marker)) as reader:
            while (segment := reader.read(max_bytes, 0)) is not None:
                yield segment

    def record(self, marker: Datamarker, max_bytes: int = 1 << 20) -> None:
        """Write the log behind ``marker``."""
        self.files.append(*self.segments(marker, max_bytes))

    def recorded(self, rows: int = 2, size: int = 0) -> Datamarker:
        """One transaction more, in the files."""
        before = self.log.latest()
        end = self.commit(rows, size)
        self.record(before)
        return end

    def begin(self, rows: int = 2) -> Datamarker:
        """The files begin where the log does, and hold one transaction."""
        self.files.begin(self.start)
        return self.recorded(rows)

    def cursor(self, marker: Datamarker) -> RelayCursor:
        """In the files behind ``marker``, which they hold."""
        return present(self.files.find(marker))

    def ids(self, marker: Datamarker) -> list[str]:
        """Ids of the updates behind ``marker``, from the relay."""
        return read_on(self.cursor(marker))

    def expected(self, marker: Datamarker) -> list[str]:
        """The same, from the log."""
        return read_log(self.log, marker).ids()

    def ends(self) -> list[Datamarker]:
        """Where what is there ends, before each hole and at last."""
        return [stretch.end for stretch in self.files.stretches]


def read_on(cursor: RelayCursor) -> list[str]:
    """Ids of the updates up to the end of what is there."""
    read = Read()
    with closing(cursor):
        while (segment := cursor.next()) is not None:
            read.add(segment)
    return read.ids()
