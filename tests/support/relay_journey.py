"""Relay files on a disk that loses power: a log to be written, and what has to be there afterwards."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from datastores.memory.source import MemorySource
from publisher.relay.files import RelayFiles
from publisher.relay.settings import RelayIdentity
from tests.support.relay_disk import FakeDisk
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read

__all__ = ["Promises", "TransactionLog", "opened"]

_IDENTITY = RelayIdentity("orders", "memory", "log", 1 << 20, "")
_LARGE = (4, 10, 17)  # the numbers of the large transactions
_COUNT = 20


class TransactionLog:
    """A log of some transactions: the segments of each, as a reader with little room reads them."""

    def __init__(self) -> None:
        log = MemorySource()
        self.markers = [log.latest()]
        self.parts: list[list[Segment]] = []
        self.ids: list[list[str]] = []
        for number in range(_COUNT):
            rows = 40 if number in _LARGE else 2
            changes = [(Op.INSERT, "t", f"{number}.{i}", {"v": f"{number}" * 20}) for i in range(rows)]
            self.markers.append(log.commit(changes))
            read = Read()
            with closing(log.open(self.markers[-2])) as reader:
                self.parts.append(list(iter(partial(reader.read, 600, 0), None)))
            for segment in self.parts[-1]:
                read.add(segment)
            self.ids.append(read.ids())

    def ids_between(self, begin: Datamarker, end: Datamarker) -> list[str]:
        """Ids of the updates between two markers."""
        first, last = self.markers.index(begin), self.markers.index(end)
        return [one for ids in self.ids[first:last] for one in ids]


class Promises:
    """What was reported to survive, and up to where the log was given up on purpose."""

    def __init__(self, log: TransactionLog) -> None:
        self.log = log
        self._safe: list[tuple[Datamarker, Datamarker]] = []
        self._gone = log.markers[0]

    def synced(self, files: RelayFiles) -> None:
        """What the files report to be synced has to survive from now on."""
        self._safe = [(one.begin, one.synced) for one in files.stretches if one.synced is not None]

    def dropped(self, files: RelayFiles) -> None:
        """What is before the first file is given up."""
        self._gone = files.files[0].begin

    def check(self, files: RelayFiles) -> None:
        """What is there is what the log has, and nothing is missing that has to survive."""
        for stretch in files.stretches:
            assert _read_through(files, stretch.begin) == self.log.ids_between(stretch.begin, stretch.end)
        for begin, end in self._safe:
            first = max(begin, self._gone, key=lambda marker: marker.order)
            if first.order < end.order:
                assert any(s.begin.order <= first.order and end.order <= s.end.order for s in files.stretches)
                cursor = files.find(first)
                assert cursor is not None
                cursor.close()


def opened(disk: FakeDisk) -> RelayFiles:
    """Relay files of about three small transactions each."""
    files = RelayFiles(Path("/relay"), _IDENTITY, hold=True, disk=disk, compress=False, file_bytes=2500)
    files.open()
    return files


def _read_through(files: RelayFiles, marker: Datamarker) -> list[str]:
    read = Read()
    cursor = files.find(marker)
    assert cursor is not None
    with closing(cursor):
        while (segment := cursor.next()) is not None:
            read.add(segment)
    assert not read.unfinished
    return read.ids()
