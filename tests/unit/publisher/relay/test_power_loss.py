"""A loss of power after each operation on the disk: what was synced is there, and nothing torn is served."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

from publisher.relay.files import RelayFiles
from publisher.relay.settings import RelayIdentity
from publisher.sources.memory.source import MemorySource
from tests.support.relay_disk import FakeDisk, PowerLostError, Survives
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read

IDENTITY = RelayIdentity("orders", "memory", "log", 1 << 20, "")
FOLDER = Path("/relay")
LARGE = (4, 10)  # of the transactions


class Log:
    """A log, and the segments of each transaction as a reader with little room reads them."""

    def __init__(self) -> None:
        log = MemorySource()
        self.markers = [log.latest()]
        self.parts: list[list[Segment]] = []
        self.ids: list[list[str]] = []
        for number in range(14):
            rows = 40 if number in LARGE else 2
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


class Journey:
    """What is done with relay files. ``safe``: what was reported to survive; ``gone``: up to there it was given up on
    purpose.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.safe: list[tuple[Datamarker, Datamarker]] = []
        self.gone = log.markers[0]

    def go(self, disk: FakeDisk) -> None:
        """Write, sync, forget an unfinished transaction, drop, begin behind a hole, start again."""
        parts, markers = self.log.parts, self.log.markers
        files = opened(disk)
        files.begin(markers[0])
        for number in range(6):
            files.append(*parts[number])
            if number % 2:
                self.sync(files)
        self.gone = files.files[1].begin
        files.drop_oldest()
        files.append(*parts[6], *parts[7])
        self.sync(files)
        files.begin(markers[9])  # the one before is missing: a hole
        files.append(*parts[9], *parts[10][:2])
        self.sync(files)
        files.abandon()
        files.append(*parts[10], *parts[11])
        files.close()
        files = opened(disk)
        files.append(*parts[12], *parts[13])
        self.sync(files)
        files.close()

    def sync(self, files: RelayFiles) -> None:
        """Everything that is there is safe from now on."""
        files.sync()
        stretches = files.stretches
        assert all(stretch.synced == stretch.end for stretch in stretches)
        self.safe = [(stretch.begin, stretch.end) for stretch in stretches]

    def check(self, files: RelayFiles) -> None:
        """What is there is what the log has, and nothing is missing that was safe."""
        for stretch in files.stretches:
            assert read_through(files, stretch.begin) == self.log.ids_between(stretch.begin, stretch.end)
        for begin, end in self.safe:
            first = max(begin, self.gone, key=lambda marker: marker.order)
            if first.order < end.order:
                assert any(s.begin.order <= first.order and end.order <= s.end.order for s in files.stretches)
                assert files.find(first) is not None


def opened(disk: FakeDisk) -> RelayFiles:
    """Relay files of about three transactions each."""
    files = RelayFiles(FOLDER, IDENTITY, hold=True, disk=disk, compress=False, file_bytes=2500)
    files.open()
    return files


def read_through(files: RelayFiles, marker: Datamarker) -> list[str]:
    """Ids of the updates behind ``marker``."""
    read = Read()
    cursor = files.find(marker)
    assert cursor is not None
    with closing(cursor):
        while (segment := cursor.next()) is not None:
            read.add(segment)
    assert not read.unfinished
    return read.ids()


def test_what_was_synced_survives_a_loss_of_power_after_every_operation() -> None:
    log = Log()
    for number in count():
        journey, disk = Journey(log), FakeDisk(power_lost_at=number)
        try:
            journey.go(disk)
        except PowerLostError:
            for survives in Survives:
                files = opened(disk.after_power_loss(survives))
                journey.check(files)
                files.close()
        else:
            break
    assert number > 50, "the journey has as many operations"
